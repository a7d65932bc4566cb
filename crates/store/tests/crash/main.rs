//! Kills a process that writes, again and again, and looks what is left.
//!
//! The process's disk loses power with it: what was not committed is lost, some of it is torn, and
//! bits flip ([`Faults`]). After each kill everything that was reported as stored must be there and
//! right, unless it was removed or reported as given up; with flipped bits it may be in the list of
//! what is damaged instead, but never wrong and never gone without a word.
//!
//! ```bash
//! HEADSTART_KILLS=5000 cargo test --release -p headstart-store --test suite crash -- --nocapture
//! ```

#[path = "../suite/conformance.rs"]
#[allow(dead_code)]
mod conformance;
#[path = "../suite/faults.rs"]
#[allow(dead_code)]
mod faults;
#[path = "../suite/support.rs"]
#[allow(dead_code)]
mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use headstart_core::{BlockHash, Rng};

use crate::faults::Faults;
use crate::support::{Driver, News, options};

/// Kills per scenario where nothing else is asked for: some seconds.
const KILLS: u64 = 25;

/// Kills after which the folder is emptied: later ones would find little left to write.
const LIFE: u64 = 24;

/// Environment variable that holds the child's task.
const CHILD: &str = "HEADSTART_CRASH_CHILD";

#[derive(Clone, Copy, Debug)]
struct Scenario {
    name: &'static str,
    budget_bytes: u64,
    names: usize,
    torn: f64,
    flipped: f64,
    removes: bool,
}

/// Everything fits: what was stored is there.
const ROOMY: Scenario = Scenario {
    name: "roomy",
    budget_bytes: 48 << 20,
    names: 2_000,
    torn: 0.3,
    flipped: 0.0,
    removes: false,
};

/// Segments are cleaned and given up all the time.
const CROWDED: Scenario = Scenario {
    name: "crowded",
    budget_bytes: 6 << 20,
    names: 4_000,
    torn: 0.3,
    flipped: 0.0,
    removes: true,
};

/// Bits flip, too.
const FLIPPING: Scenario = Scenario {
    name: "flipping",
    budget_bytes: 48 << 20,
    names: 2_000,
    torn: 0.3,
    flipped: 0.02,
    removes: false,
};

const SCENARIOS: [Scenario; 3] = [ROOMY, CROWDED, FLIPPING];

fn child_faults(scenario: &Scenario, seed: u64) -> Faults {
    Faults {
        seed,
        loses_power: true,
        torn: scenario.torn,
        flipped: scenario.flipped,
        ..Faults::default()
    }
}

/// Not a test: the process that is killed. It says what it stored, lost and removed, in order.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else {
        return;
    };
    let mut words = task.split(' ');
    let mut word = || words.next().expect("three words");
    let (number, seed, folder) = (word(), word(), word());
    let number: usize = number.parse().expect("a number");
    let seed: u64 = seed.parse().expect("a number");
    let scenario = SCENARIOS[number];
    let options = options(Path::new(folder), scenario.budget_bytes);
    let faults = child_faults(&scenario, seed);
    let (flips, tears) = (faults.flips.clone(), faults.tears.clone());
    let mut driver = Driver::open_telling(options, &faults, Box::new(tell));
    let mut rng = Rng::new(seed ^ 1);
    let mut out = std::io::stdout();
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    loop {
        let name = rng.below(scenario.names) as u64;
        match rng.below(10) {
            0..6 => {
                driver.put(name);
            }
            6..8 if scenario.removes => {
                // Told before it happens: it may be there or not when the kill comes. And after it:
                // that it was stored may have been told in between.
                writeln!(out, "R {name}").expect("somebody reads");
                driver.remove(name);
                writeln!(out, "R {name}").expect("somebody reads");
            }
            // Asserts that what is there is right.
            _ => {
                driver.loads(name);
            }
        }
        writeln!(out, "F {} {}", flips.load(relaxed), tears.load(relaxed)).expect("read");
    }
}

/// Says what happened to a record, in a line.
fn tell(news: News) {
    let mut out = std::io::stdout();
    let told = match news {
        News::Stored(name) => writeln!(out, "S {name}"),
        News::Lost(name) => writeln!(out, "L {}", number_of(name)),
    };
    told.expect("somebody reads");
}

fn number_of(name: BlockHash) -> u64 {
    u128::from_be_bytes(name.0) as u64
}

/// Counters of a run of kills.
#[derive(Debug, Default)]
struct Tally {
    kills: u64,
    stored: u64,
    flips: u64,
    tears: u64,
    detected: u64,
    removed: u64,
    given_up: u64,
    missing: u64,
    /// Of these, not in the list of what is damaged.
    hidden: u64,
}

/// Records expected after a kill, and counters.
#[derive(Default)]
struct Expected {
    stored: BTreeSet<u64>,
    /// The list of damage, as last read.
    known: String,
    tally: Tally,
}

impl Expected {
    /// Takes in a line that the child wrote before it died; false for one that was cut off.
    fn hear(&mut self, line: &str) -> bool {
        let mut words = line.split(' ');
        let kind = words.next();
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        match (kind, number()) {
            (Some("S"), Some(name)) => {
                self.stored.insert(name);
                self.tally.stored += 1;
            }
            (Some(why @ ("L" | "R")), Some(name)) => {
                let was_there = u64::from(self.stored.remove(&name));
                match why {
                    "L" => self.tally.given_up += was_there,
                    _ => self.tally.removed += was_there,
                }
            }
            _ => return false,
        }
        true
    }
}

/// Starts a child, and kills it after `lines` lines.
fn run_child(number: usize, seed: u64, folder: &Path, lines: usize, expected: &mut Expected) {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{number} {seed} {}", folder.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut heard = 0;
    let mut faults = (0, 0);
    for line in stdout.lines() {
        let Ok(line) = line else { break };
        if let Some(counts) = line.strip_prefix("F ") {
            if let Some((flips, tears)) = counts.split_once(' ') {
                faults = (flips.parse().unwrap_or(0), tears.parse().unwrap_or(0));
            }
        } else {
            expected.hear(&line);
        }
        heard += 1;
        if heard == lines {
            child.kill().expect("it is alive");
        }
    }
    let status = child.wait_with_output().expect("it was started");
    let errors = String::from_utf8_lossy(&status.stderr);
    assert!(heard >= lines, "seed {seed}: it died by itself: {errors}");
    expected.tally.flips += faults.0;
    expected.tally.tears += faults.1;
    expected.tally.kills += 1;
}

/// Opens what is left and asks for everything.
fn look(scenario: &Scenario, folder: &Path, names: usize, expected: &mut Expected, context: &str) {
    let mut driver = Driver::open(options(folder, scenario.budget_bytes));
    let mut missing = Vec::new();
    for name in 0..names as u64 {
        // Asserts that what is there is right.
        if !driver.loads(name) && expected.stored.contains(&name) {
            missing.push(name);
        }
    }
    expected.tally.detected += driver.disk.stats().corrupt.get();
    expected.tally.missing += missing.len() as u64;
    let noted = std::fs::read_to_string(folder.join("quarantine")).unwrap_or_default();
    // The list starts over when it is long or the folder was emptied.
    let known = noted.get(..expected.known.len()) == Some(&expected.known);
    let known = if known { expected.known.len() } else { 0 };
    expected.known.clone_from(&noted);
    let noted = &noted[known..];
    let is_hidden = |name: &&u64| !noted.contains(&format!("{:?}", BlockHash::from_u64(**name)));
    expected.tally.hidden += missing.iter().filter(is_hidden).count() as u64;
    missing.iter().for_each(|name| {
        expected.stored.remove(name);
    });
    // Removals and losses are reported before a record can be gone from the disk.
    let is_excused = scenario.flipped > 0.0;
    assert!(missing.is_empty() || is_excused, "{context}: stored and not there: {missing:?}");
    assert_eq!(expected.tally.hidden, 0, "{context}: {missing:?}, {noted}");
}

fn kills() -> u64 {
    let asked = std::env::var("HEADSTART_KILLS");
    asked.map_or(KILLS, |kills| kills.parse().expect("HEADSTART_KILLS: a number"))
}

fn check(number: usize) {
    let scenario = SCENARIOS[number];
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("cache");
    let mut expected = Expected::default();
    let mut rng = Rng::new(number as u64);
    for kill in 0..kills() {
        if kill > 0 && kill % LIFE == 0 {
            // Most names are stored by now: from the start again.
            let context = format!("{scenario:?}, before kill {kill}");
            look(&scenario, &folder, scenario.names, &mut expected, &context);
            std::fs::remove_dir_all(&folder).expect("a folder");
            expected.stored.clear();
        }
        let lines = 1 + rng.below(600);
        run_child(number, kill, &folder, lines, &mut expected);
        // Not every time: a child, too, must find its way after a kill.
        if kill % 3 == 0 {
            let context = format!("{scenario:?}, kill {kill}");
            look(&scenario, &folder, scenario.names, &mut expected, &context);
        }
    }
    let context = format!("{scenario:?}, at the end");
    look(&scenario, &folder, scenario.names, &mut expected, &context);
    eprintln!("{}: {:?}", scenario.name, expected.tally);
    let tally = &expected.tally;
    assert!(tally.stored > tally.kills && tally.tears > 0, "something happened");
    assert!((tally.flips > 0) == (scenario.flipped > 0.0));
    assert!((tally.removed > 0) == scenario.removes);
    // Where everything fits and nothing flips, nothing goes.
    assert!((tally.given_up > 0) == scenario.removes || tally.flips > 0);
}

#[test]
fn what_was_stored_survives_kills() {
    check(0);
}

#[test]
fn kills_while_segments_are_cleaned_leave_nothing_wrong() {
    check(1);
}

#[test]
fn kills_with_flipping_bits_leave_nothing_wrong() {
    check(2);
}

#[test]
fn reports_are_what_the_lines_say() {
    let mut expected = Expected::default();
    assert!(expected.hear("S 7") && expected.hear("S 8") && expected.hear("L 7"));
    assert!(!expected.hear("S") && !expected.hear("running 1 test"));
    assert_eq!(expected.stored, BTreeSet::from([8]));
}
