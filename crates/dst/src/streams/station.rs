//! One replica: its engine, the process that publishes, the way, and the follower at its end.
//!
//! What the follower wants is carried out here as the gateway does it, and nothing is decided.

mod follow;
mod lateness;

use std::time::Duration;

use headstart_core::{Nanos, ReplicaId, Rng};
use headstart_router::index::Update;
use headstart_router::stream::{Damage, Follower, SILENCE_TIME_MAX, StreamBatch};
use headstart_router::{PrefixIndex, RunIndex};

use super::announce::Voice;
use super::catalog::{Catalog, PromptText};
use super::channel::{FaultRates, FaultyChannel, below, hits};
use super::engine::{EngineSpec, Happening, SimulatedEngine};
use super::publisher::{BatchPosition, BatchRecord, Fate, Process, ProcessNo};
use super::scenario::{Habits, StationSpec, change_engine};
use super::tally::CoverageTally;
use super::texts::Texts;
use super::truth::Truth;
pub use lateness::{Late, Lateness};

/// Most batches that a new process makes at once to pass its predecessor.
const PASSED_MAX: usize = 40;

/// Steps in a row that may bring nothing new, where something new is wanted.
const TRIES_MAX: usize = 50;

/// Longest pause between two steps of an engine that is not heard for longer: some of them make a
/// silence that is asked about, or an absence that is doubted.
const DEAF_PACE: Duration = Duration::from_secs(20);

/// Shortest time in which a process is replaced unnoticed: its clock advances measurably.
const HIDDEN_TIME_MIN: Duration = Duration::from_millis(1);

/// Shortest time that a connection is away for long.
const AWAY_TIME_MIN: Duration = SILENCE_TIME_MAX;

/// A restart so soon behind a batch counts as quick.
const QUICK_TIME: Duration = Duration::from_secs(1);

/// State common to all stations of a simulation.
#[derive(Debug)]
pub struct Commons {
    /// All that is random.
    pub rng: Rng,
    /// Virtual time.
    pub now: Nanos,
    /// All blocks.
    pub catalog: Catalog,
    /// Source of the prompts.
    pub texts: Texts,
    /// The index under test.
    pub index: RunIndex,
    /// Counts of events so far.
    pub tally: CoverageTally,
    /// Log of events in words, if one is wanted.
    pub log: Option<Vec<String>>,
    /// Common seed of all hashes, if there is one.
    pub hash_seed: Option<u64>,
    /// Longest pause between two steps of an engine, most of the time.
    pub pace: Duration,
}

impl Commons {
    /// Takes note of something.
    pub fn note(&mut self, words: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(log) = &mut self.log {
            log.push(format!("{:12.6} {}", now.0 as f64 / 1e9, words()));
        }
    }
}

/// One replica.
#[derive(Debug)]
pub struct Station {
    /// Its name.
    pub replica: ReplicaId,
    /// Specification of the engine and the way to it.
    pub spec: StationSpec,
    /// Contents of its engine after the last applied batch.
    pub truth: Truth,
    /// The follower under test.
    pub follower: Follower,
    /// Evidence that the follower may be behind.
    pub lateness: Lateness,
    /// When its engine does something next.
    pub next_step: Nanos,
    /// Until when prompts are assumed to be there.
    pub assumed_until: Nanos,
    engine: SimulatedEngine,
    voice: Voice,
    /// All that ever lived; the last one lives unless `is_down`.
    processes: Vec<Process>,
    is_down: bool,
    channel: FaultyChannel,
    clock_offset_s: f64,
    /// Steps to be taken in a hurry.
    hurry: usize,
    /// When the last batch was made.
    published: Option<Nanos>,
    /// The latest batch that arrived live.
    arrived: Option<BatchPosition>,
}

/// The way in which a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// Its connections end with it.
    Seen,
    /// Something between keeps its connections.
    Hidden,
}

impl Station {
    /// A replica whose engine has just been started, without a follower yet.
    pub fn new(replica: ReplicaId, spec: StationSpec, commons: &mut Commons) -> Self {
        let configured = Update::Track { block_size: spec.configured_size };
        commons.index.update(replica, configured, commons.now);
        let mut station = Self {
            replica,
            truth: Truth::default(),
            follower: Follower::new(spec.follower),
            lateness: Lateness::new(&spec),
            next_step: commons.now,
            assumed_until: Nanos(0),
            engine: SimulatedEngine::new(spec.engine.clone()),
            voice: Voice {
                hash_seed: 0,
                tells_all_tokens: spec.tells_all_tokens,
                tells_host_tokens: spec.tells_host_tokens,
            },
            processes: Vec::new(),
            is_down: true,
            channel: FaultyChannel::default(),
            clock_offset_s: 0.0,
            hurry: 0,
            published: None,
            arrived: None,
            spec,
        };
        station.channel.faults = station.spec.faults;
        station.start(commons);
        station
    }

    /// When anything happens next.
    #[must_use]
    pub fn next(&self) -> Nanos {
        let times = [self.channel.next(), self.follower.due()];
        times.into_iter().flatten().fold(self.next_step, Nanos::min)
    }

    /// Whether nothing is on its way.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.channel.is_quiet()
    }

    /// The process that lives or has just ended.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.processes[self.processes.len() - 1]
    }

    /// The engine of the process whose batches are applied.
    #[must_use]
    pub fn applied_engine(&self) -> &EngineSpec {
        let process = self.truth.process();
        process.map_or(&self.spec.engine, |process| &self.processes[process.0].engine)
    }

    /// Nothing goes wrong any more.
    pub fn heal(&mut self, commons: &mut Commons) {
        self.spec.habits = Habits::default();
        self.spec.faults = FaultRates::default();
        self.channel.heal();
        self.hurry = 0;
        if self.is_down {
            self.start(commons);
        }
        // A new connection makes the follower ask for everything that it missed.
        self.channel.disconnect(commons.now, &mut commons.rng);
        let pause = Duration::from_millis(100);
        self.channel.connect(commons.now, pause, &mut commons.rng);
    }

    /// Replaces the follower of the replica by a new one, with an index that may know the replica
    /// from a dump.
    pub fn follow_anew(&mut self, commons: &mut Commons) {
        let configured = Update::Track { block_size: self.spec.configured_size };
        commons.index.update(self.replica, configured, commons.now);
        self.truth = Truth::default();
        self.follower = Follower::resumed(self.spec.follower, self.follower.report());
        self.lateness.begin_anew(&self.spec);
        self.assumed_until = Nanos(0);
        self.channel.abandon();
        if !self.is_down {
            let pause = below(Duration::from_secs(1), &mut commons.rng);
            self.channel.connect(commons.now, pause, &mut commons.rng);
        }
    }

    /// Handles what is due at `now`: one item of each kind. Returns whether the follower's
    /// knowledge may have changed.
    pub fn advance(&mut self, commons: &mut Commons) -> Result<bool, String> {
        let mut is_told = false;
        if self.next_step <= commons.now {
            self.step(commons);
            // Nothing is reported then, but nothing may be believed either.
            is_told = self.lateness.at(commons.now).is_some();
        }
        if let Some(delivery) = self.channel.receive(commons.now) {
            is_told |= self.deliver(delivery, commons)?;
        }
        if self.follower.due().is_some_and(|due| due <= commons.now) {
            is_told |= self.tell(commons, Follower::on_time)?;
            // `on_time` must move its time on, or the loop would never advance.
            let due = self.follower.due();
            if due.is_some_and(|due| due <= commons.now) {
                return Err(format!("on_time left something due: {due:?}"));
            }
        }
        Ok(is_told)
    }

    /// The engine forgets everything, and says so.
    pub fn clear(&mut self, commons: &mut Commons) {
        commons.note(|| format!("{:?} clears its cache", self.replica));
        self.engine.clear();
        self.publish(Fate::Sent, commons);
    }

    /// The process ends; another one begins after a moment.
    pub fn crash(&mut self, end: ProcessEnd, commons: &mut Commons) {
        // Some die with their last batch on its way.
        if !self.is_down && commons.rng.below(3) > 0 {
            self.work(commons);
        }
        commons.note(|| format!("{:?} dies, {end:?}", self.replica));
        commons.tally.restarts += 1;
        self.is_down = true;
        let (now, rng) = (commons.now, &mut commons.rng);
        let latest = ProcessNo(self.processes.len() - 1);
        if self.arrived.is_none_or(|position| position.process < latest) {
            // Late messages of a life of which nothing else was heard fit into the next one.
            self.channel.lose();
        }
        match end {
            ProcessEnd::Seen => self.channel.disconnect(now, rng),
            ProcessEnd::Hidden => self.channel.outlive_process(now, rng),
        }
        let limit = Duration::from_millis([10, 500, 5_000][rng.below(3)]);
        // A clock cannot tell two processes of the same instant apart.
        self.next_step = now + below(limit, rng) + HIDDEN_TIME_MIN;
        if self.spec.habits.hurries {
            self.hurry = self.process().records().len() + commons.rng.below(5);
        }
    }

    /// The process ends, and before anybody is connected again another one has passed its number.
    pub fn replace(&mut self, commons: &mut Commons) {
        let last = self.process().records().len();
        self.crash(ProcessEnd::Seen, commons);
        self.start(commons);
        for _ in 0..last.min(PASSED_MAX) + commons.rng.below(3) {
            self.publish_something(commons);
        }
    }

    /// Serves prompts until one of them is news, but not for ever.
    pub fn publish_something(&mut self, commons: &mut Commons) {
        let before = commons.tally.batches;
        for _ in 0..TRIES_MAX {
            if commons.tally.batches > before {
                return;
            }
            self.step(commons);
        }
    }

    /// Serves a prompt or two.
    pub fn step(&mut self, commons: &mut Commons) {
        if self.is_down {
            self.start(commons);
        }
        self.schedule(commons);
        let habits = self.spec.habits;
        if hits(habits.restart, &mut commons.rng) {
            let is_hidden = self.spec.can_hide && commons.rng.below(2) == 0;
            return self
                .crash(if is_hidden { ProcessEnd::Hidden } else { ProcessEnd::Seen }, commons);
        }
        self.work(commons);
        self.trouble(commons);
    }

    fn work(&mut self, commons: &mut Commons) {
        let habits = self.spec.habits;
        if hits(habits.set_clock, &mut commons.rng) {
            // From 80 s back to 20 s ahead.
            self.clock_offset_s -= commons.rng.next_f64() * 100.0 - 20.0;
            self.lateness.on_clock_set();
        }
        // The product of two draws: one step in four serves two prompts.
        for _ in 0..1 + commons.rng.below(2) * commons.rng.below(2) {
            if hits(habits.clear, &mut commons.rng) {
                self.engine.clear();
            }
            let text = commons.texts.prompt(&mut commons.rng);
            let (catalog, rng) = (&mut commons.catalog, &mut commons.rng);
            self.engine.serve(&text, catalog, rng);
            if commons.rng.below(8) == 0 {
                self.assume(&text, commons);
            }
        }
        let fate = fate(habits, &mut commons.rng);
        self.publish(fate, commons);
    }

    fn assume(&mut self, text: &PromptText, commons: &mut Commons) {
        let keys = commons.index.hash(Texts::question(text));
        commons.index.update(self.replica, Update::Assume(&keys), commons.now);
        self.assumed_until = commons.now + headstart_router::index::ASSUMPTION_TTL;
    }

    fn schedule(&mut self, commons: &mut Commons) {
        let rng = &mut commons.rng;
        let is_idle = hits(self.spec.habits.idle, rng);
        let limit = match self.hurry.checked_sub(1) {
            Some(left) => {
                self.hurry = left;
                Duration::from_millis(1)
            }
            None if self.channel.is_silent(commons.now + DEAF_PACE) => DEAF_PACE,
            None if is_idle => Duration::from_secs([15, 100, 500][rng.below(3)]),
            None => commons.pace,
        };
        // At least a nanosecond, so that time moves on.
        self.next_step = commons.now + below(limit, rng) + Duration::from_nanos(1);
    }

    fn start(&mut self, commons: &mut Commons) {
        let number = ProcessNo(self.processes.len());
        commons.note(|| format!("{:?} starts as {number:?}", self.replica));
        if number.0 > 0 && self.spec.changes {
            change_engine(&mut self.spec.engine, &mut commons.rng);
            let is_told = self.spec.tells_all_tokens || self.spec.engine.groups.len() == 1;
            commons.tally.changed_engines += 1;
            commons.tally.changed_in_silence += u64::from(!is_told);
        }
        let rng = &mut commons.rng;
        let engine = self.spec.engine.clone();
        self.engine = SimulatedEngine::new(engine.clone());
        // Without a clock, one that says the very same as its predecessor cannot be told from it.
        let is_told = number.0 == 0 || self.spec.has_ts;
        let shared = commons.hash_seed.filter(|_| is_told);
        self.voice.hash_seed = shared.unwrap_or_else(|| rng.next_u64());
        self.processes.push(Process::new(number, engine, self.spec.buffer_max));
        self.is_down = false;
        if self.channel.is_open(commons.now) {
            commons.tally.hidden_restarts += 1;
            return;
        }
        if self.channel.is_connected() {
            // Its first batch would be missed, which could never be noticed.
            self.channel.disconnect(commons.now, rng);
        }
        let limit = Duration::from_millis([10, 100, 3_000][rng.below(3)]);
        let pause = below(limit, rng);
        self.channel.connect(commons.now, pause, rng);
    }

    /// Gives what the engine did a number, and sends it.
    fn publish(&mut self, fate: Fate, commons: &mut Commons) {
        let happenings = self.engine.take_happenings();
        if happenings.is_empty() {
            // Engines publish no empty batches.
            return;
        }
        let is_first = self.process().records().is_empty() && self.processes.len() > 1;
        // What tells a hidden restart is its first batch.
        let is_sure = is_first && self.spec.can_hide;
        let fate = if is_sure { Fate::Sent } else { fate };
        let before = self.published.replace(commons.now);
        let is_quick = before.is_some_and(|before| commons.now < before + QUICK_TIME);
        commons.tally.quick_restarts += u64::from(is_first && is_quick);
        let spec = self.engine.spec();
        let rng = &mut commons.rng;
        let batch = StreamBatch {
            ts: self
                .spec
                .has_ts
                .then_some(1.7e9 + commons.now.0 as f64 / 1e9 + self.clock_offset_s),
            events: self.voice.events(&happenings, spec, &commons.catalog, rng),
            ..StreamBatch::default()
        };
        let introduces = |happening: &Happening| match happening {
            Happening::Stored(place) | Happening::CopyStored(place) => {
                Some(self.voice.introduces(*place, spec))
            }
            _ => None,
        };
        let record = BatchRecord {
            introductions: happenings.iter().filter_map(introduces).collect(),
            happenings,
            damage: Damage::None,
        };
        commons.tally.events += batch.events.len() as u64;
        commons.tally.batches += 1;
        let latest = self.processes.len() - 1;
        let process = &mut self.processes[latest];
        let batch = process.publish(record, batch, fate, rng);
        match &batch {
            Some(batch) if is_sure => self.channel.send_surely(batch, commons.now),
            Some(batch) => self.channel.send(batch, commons.now, rng),
            None => {}
        }
        let last = process.records().len() - 1;
        let record = &process.records()[last];
        let words = || format!("{:?} {fate:?} batch {last}: {record:?}", self.replica);
        commons.note(words);
    }

    /// Draws faults of the connection itself.
    fn trouble(&mut self, commons: &mut Commons) {
        let rng = &mut commons.rng;
        if hits(self.spec.faults.flap, rng) && self.channel.is_connected() {
            self.channel.disconnect(commons.now, rng);
            let limit = Duration::from_millis([10, 1_000, 200_000][rng.below(3)]);
            let pause = below(limit, rng);
            self.channel.connect(commons.now, pause, rng);
        }
        if hits(self.spec.faults.partition, rng) && self.channel.is_connected() {
            commons.tally.partitions += 1;
            let limit = Duration::from_secs([3, 200][rng.below(2)]);
            self.channel.partition(commons.now, below(limit, rng));
        }
        if hits(self.spec.faults.away, rng) && self.channel.is_connected() {
            self.channel.disconnect(commons.now, rng);
            let limit = Duration::from_secs([10, 60, 400][rng.below(3)]);
            let pause = AWAY_TIME_MIN + below(limit, rng);
            self.channel.connect(commons.now, pause, rng);
        }
    }
}

fn fate(habits: Habits, rng: &mut Rng) -> Fate {
    if hits(habits.burn, rng) {
        Fate::Burnt
    } else if hits(habits.damage, rng) {
        Fate::Damaged
    } else if hits(habits.unreadable, rng) {
        Fate::Unreadable
    } else {
        Fate::Sent
    }
}
