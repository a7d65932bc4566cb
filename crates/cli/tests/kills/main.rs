//! `kill -9` of `headstart serve` at random moments while it computes, demotes and stores, with
//! faults put beneath its context cache before each restart.
//!
//! Every answer is compared with that of a server without a cache. Now and then two copies of the
//! folder are read record by record, one from before the faults and one from after. Each record
//! that was readable before is readable after, or is in the list of damage, by its name or as pages
//! or a file with unknown contents. Or its whole group was taken back, which looks as if it had
//! never been written. A test of its own ([`control`]) shows that the comparison sees wrong bytes.
//!
//! ```bash
//! HEADSTART_KILLS=2000 cargo test -p headstart --features ablations --test kills -- --nocapture
//! ```

#[path = "../suite/support/mod.rs"]
mod support;

mod audit;
mod control;
mod faults;
mod packs;
mod pool;
mod segments;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use headstart_core::Rng;
use support::{Scratch, Served, serve, text};

use faults::Harm;
use pool::{Answers, Pool};
use segments::Files;

/// Kills where nothing else is asked for: some seconds.
const KILLS: usize = 12;

/// Most that the context cache may take: room for some forty units, of the few hundred that the
/// long run's prompts have.
const BUDGET_GIB: &str = "0.03125";
const BUDGET_BYTES: u64 = 32 << 20;

/// Little memory above the disk, so that most of what is used again comes from there.
const SMALL: [&str; 8] = [
    "--replicas",
    "2",
    "--cache-blocks",
    "96",
    "--host-cache-gib",
    "0.006",
    "--max-batched-tokens",
    "256",
];

/// Clients at once.
const CLIENTS: u64 = 3;

/// A server is ready within about this, and answers a request within about that.
const STARTING: Duration = Duration::from_millis(120);
const AFTERWARDS: Duration = Duration::from_millis(120);

/// Kills between two audits, which read the folder record by record.
const AUDIT_EVERY: usize = 6;

/// Kills after which everything is asked for, from a server that is not killed.
const ASK_ALL_EVERY: usize = 200;

fn number_of(variable: &str, usual: usize) -> usize {
    let given = std::env::var(variable);
    given.map_or(usual, |text| text.parse().expect("a whole number"))
}

/// Totals of a run.
#[derive(Debug, Default)]
struct Tally {
    kills: usize,
    kills_before_ready: usize,
    answers: Answers,
    written_bytes: u64,
    most_bytes: u64,
    faults: faults::Counts,
    detected_while_serving: usize,
    audits: audit::Counts,
    packs: packs::Counts,
}

/// One folder and the servers that follow each other on it.
struct Campaign {
    scratch: Scratch,
    folder: PathBuf,
    pool: Pool,
    /// Of a server whose context cache is in this folder.
    arguments: fn(&Path) -> Vec<String>,
    /// Answers in a life, as a multiple of what is usual.
    busy: usize,
    rng: Rng,
    /// The files as they were before the server that runs now.
    before: Files,
    /// Pages that were harmed and not rewritten since. Harm adds up: a damaged table that was not
    /// needed counts once the footer is gone as well.
    harmed: BTreeSet<(PathBuf, usize)>,
    tally: Tally,
}

/// Arguments of a server whose context cache is in `folder`.
fn arguments(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let own = ["--context-cache", &folder, "--context-cache-gib", BUDGET_GIB];
    let all = own.into_iter().chain(SMALL);
    all.map(str::to_owned).collect()
}

impl Campaign {
    fn new(name: &str, pool: Pool, arguments: fn(&Path) -> Vec<String>, seed: u64) -> Self {
        let scratch = Scratch::new(name);
        Self {
            folder: scratch.0.join("kv"),
            scratch,
            pool,
            arguments,
            busy: 1,
            rng: Rng::new(seed),
            before: Files::default(),
            harmed: BTreeSet::new(),
            tally: Tally::default(),
        }
    }

    fn log(&self) -> PathBuf {
        self.scratch.0.join("log")
    }

    fn spawn(&self) -> Child {
        let log = File::create(self.log()).expect("a file");
        let mut command = serve((self.arguments)(&self.folder));
        let process = command.stdout(Stdio::piped()).stderr(log).spawn();
        process.expect("the binary runs")
    }

    /// When to kill: mostly amid traffic, at times while it starts and reads what is there.
    fn moment(&mut self) -> Moment {
        let rng = &mut self.rng;
        let pause = |most: Duration, rng: &mut Rng| most.mul_f64(rng.next_f64());
        let answers = match rng.below(100) {
            0..12 => return Moment::AfterStart(pause(STARTING, rng)),
            12..85 => rng.below(5),
            _ => 5 + rng.below(10),
        };
        Moment::AfterAnswers(answers * self.busy, pause(AFTERWARDS, rng))
    }

    /// Starts a server, lets it work and kills it.
    fn kill_one(&mut self, number: usize) {
        let moment = self.moment();
        let mut child = self.spawn();
        match moment {
            Moment::AfterStart(pause) => {
                std::thread::sleep(pause);
                child.kill().expect("it runs");
                child.wait().expect("it ends");
                self.tally.kills_before_ready += 1;
            }
            Moment::AfterAnswers(answers, pause) => {
                let mut server = Served::ready(child);
                self.traffic(&mut server, number, answers, pause);
            }
        }
        self.tally.kills += 1;
        self.look_at_log(number);
    }

    /// Lets clients ask until the server is killed: `pause` after `answers` answers.
    fn traffic(&mut self, server: &mut Served, number: usize, answers: usize, pause: Duration) {
        let is_killed = AtomicBool::new(false);
        let answered = AtomicUsize::new(0);
        let address = server.address.clone();
        let pool = &self.pool;
        let answers = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    let mut rng = Rng::new(number as u64 * CLIENTS + client);
                    let (address, is_killed, answered) = (&address, &is_killed, &answered);
                    scope.spawn(move || pool.ask_until(address, &mut rng, is_killed, answered))
                })
                .collect();
            // Also where a client has panicked: it says why.
            let goes_on = || clients.iter().all(|client| !client.is_finished());
            while answered.load(Ordering::SeqCst) < answers && goes_on() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(pause);
            is_killed.store(true, Ordering::SeqCst);
            server.process.kill().expect("it runs");
            server.process.wait().expect("it ends");
            let answers = clients.into_iter().map(|client| client.join());
            let answers: Vec<_> = answers.map(|joined| joined.expect("no panic")).collect();
            answers
        });
        for answers in answers {
            answers.check(&format!("kill {number}"));
            self.tally.answers.add(&answers);
        }
    }

    /// A server that cannot use its cache, or a thread that dies, would only look like misses.
    fn look_at_log(&self, number: usize) {
        let log = text(&std::fs::read(self.log()).expect("a log"));
        for sign in ["panicked", "no lower tiers", "WARN", "ERROR"] {
            assert!(!log.contains(sign), "kill {number}: {log}");
        }
    }

    /// Reads what the last server left.
    fn look(&mut self) -> Files {
        let now = Files::read(&self.folder, &self.before);
        self.tally.detected_while_serving += now.noted_since(&self.before);
        let changed = now.changed_pages(&self.before);
        self.harmed.retain(|(path, page)| {
            let changed = changed.get(path);
            changed.is_some_and(|changed| !changed.contains(page))
        });
        now
    }

    /// Does harm beneath the tier, and at times looks what is left.
    fn harm(&mut self, number: usize) {
        let mut now = self.look();
        self.tally.written_bytes += now.changed_since(&self.before);
        let bytes = now.bytes();
        assert!(bytes <= BUDGET_BYTES, "kill {number}: {bytes} bytes");
        self.tally.most_bytes = self.tally.most_bytes.max(bytes);
        let is_audit = number.is_multiple_of(AUDIT_EVERY);
        let whole = is_audit.then(|| audit::read_copy(&self.folder, &self.scratch.0));
        if let Some(whole) = &whole {
            self.tally.packs.compare(&whole.records, &format!("kill {number}"));
        }
        let layout = now.layout();
        let counts = &mut self.tally.faults;
        let harm = faults::inject(&mut now, &layout, &self.before, &mut self.rng, counts);
        counts.units_in_harm += harm.excuses(&layout, &now).len();
        now.write_back(&harm);
        self.harmed.extend(harm.pages);
        let all = Harm { pages: self.harmed.clone(), cut: harm.cut };
        let excuses = all.excuses(&layout, &now);
        if let Some(whole) = whole {
            let harmed = audit::read_copy(&self.folder, &self.scratch.0);
            let counts = &mut self.tally.audits;
            audit::compare(&whole, &harmed, &excuses, counts, &format!("kill {number}"));
        }
        self.before = now;
    }

    /// Asks everything once, from a server that is not killed.
    fn ask_all(&mut self) {
        let server = Served::ready(self.spawn());
        let answers = self.pool.ask_all(&server.address);
        answers.check("asked for everything");
        self.tally.answers.add(&answers);
        drop(server);
        self.before = self.look();
    }

    /// Checks that enough happened for the test to be conclusive.
    fn check(&self) {
        let tally = &self.tally;
        let Answers { compared, hit_tokens, prompt_tokens, .. } = tally.answers;
        assert!(compared > tally.kills, "{tally:?}");
        assert!(hit_tokens * 20 > prompt_tokens, "what was stored was used: {tally:?}");
        assert!(tally.faults.all() > tally.kills / 2, "{tally:?}");
        assert!(tally.audits.read > 0 && tally.written_bytes > 0, "{tally:?}");
        if tally.kills >= 100 {
            assert!(tally.detected_while_serving > 0 && tally.audits.set_aside > 0);
            assert!(tally.written_bytes > 4 * BUDGET_BYTES, "{tally:?}");
        }
    }
}

/// When a server is killed.
enum Moment {
    AfterStart(Duration),
    /// After this number of answers, and then a pause.
    AfterAnswers(usize, Duration),
}

#[test]
fn killed_and_harmed_servers_never_answer_wrongly() {
    let kills = number_of("HEADSTART_KILLS", KILLS);
    let seed = number_of("HEADSTART_SEED", 1) as u64;
    let pool = Pool::new((kills / 4).clamp(6, 40), seed);
    let mut campaign = Campaign::new("kills", pool, arguments, seed);
    campaign.run(kills);
    campaign.check();
}

impl Campaign {
    fn run(&mut self, kills: usize) {
        let campaign = self;
        let started = Instant::now();
        for number in 1..=kills {
            campaign.kill_one(number);
            campaign.harm(number);
            if number % ASK_ALL_EVERY == 0 {
                campaign.ask_all();
                let seconds = started.elapsed().as_secs();
                eprintln!("after {seconds} s: {:?}", campaign.tally);
            }
        }
        campaign.ask_all();
        eprintln!("{:#?}", campaign.tally);
    }
}
