//! One replica: its engine, the process that publishes, the way, and the follower at its end.
//!
//! What the follower wants is carried out here as the gateway does it, and nothing is decided.

use std::time::Duration;

use headstart_core::{CacheEvent, Nanos, ReplicaId, Rng};
use headstart_router::index::Update;
use headstart_router::stream::{Damage, Effect, Follower, StreamBatch};
use headstart_router::{PrefixIndex, RunIndex};

use super::announce::Voice;
use super::catalog::{BLOCK_SIZES, Catalog};
use super::channel::{Channel, Delivery, Faults, below, hits};
use super::engine::{Engine, Happening};
use super::publisher::{Fate, Process, ProcessNo, Record, unmark};
use super::scenario::{Habits, StationSpec};
use super::tally::Tally;
use super::texts::Texts;
use super::truth::Truth;

/// Most batches that a new process makes at once to pass its predecessor.
const PASSED_MAX: usize = 40;

/// Steps in a row that may bring nothing new, where something new is wanted.
const TRIES_MAX: usize = 50;

/// What all stations of a simulation share.
#[derive(Debug)]
pub struct Commons {
    /// All that is random.
    pub rng: Rng,
    /// Virtual time.
    pub now: Nanos,
    /// All blocks.
    pub catalog: Catalog,
    /// What is asked.
    pub texts: Texts,
    /// What is under test.
    pub index: RunIndex,
    /// What has happened.
    pub tally: Tally,
    /// What has happened, in words, where somebody wants to know.
    pub log: Option<Vec<String>>,
    /// What all hashes start from, if it is the same everywhere.
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
    /// What it is like.
    pub spec: StationSpec,
    /// What its engine held after the last applied batch.
    pub truth: Truth,
    /// What decides.
    pub follower: Follower,
    /// When its engine does something next.
    pub next_step: Nanos,
    /// Until when prompts are assumed to be there.
    pub assumed_until: Nanos,
    engine: Engine,
    voice: Voice,
    /// All that ever lived; the last one lives unless `is_down`.
    processes: Vec<Process>,
    is_down: bool,
    channel: Channel,
    clock_offset_s: f64,
    /// Steps to be taken in a hurry.
    hurry: usize,
}

impl Station {
    /// A replica whose engine has just been started, and whom nobody follows yet.
    pub fn new(replica: ReplicaId, spec: StationSpec, commons: &mut Commons) -> Self {
        let configured = Update::Track {
            block_size: spec.configured_size,
        };
        commons.index.update(replica, configured, commons.now);
        let mut station = Self {
            replica,
            truth: Truth::default(),
            follower: Follower::new(spec.follower),
            next_step: commons.now,
            assumed_until: Nanos(0),
            engine: Engine::new(spec.engine.clone()),
            voice: Voice {
                hash_seed: 0,
                tells_all_tokens: spec.tells_all_tokens,
                tells_host_tokens: spec.tells_host_tokens,
            },
            processes: Vec::new(),
            is_down: true,
            channel: Channel::default(),
            clock_offset_s: 0.0,
            hurry: 0,
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

    /// Tokens per block of the process whose batches are applied.
    #[must_use]
    pub fn applied_block_size(&self) -> Option<u32> {
        let process = self.truth.process()?;
        Some(self.processes[process.0].block_size)
    }

    /// Nothing goes wrong any more.
    pub fn heal(&mut self, commons: &mut Commons) {
        self.spec.habits = Habits::default();
        self.spec.faults = Faults::default();
        self.channel.faults = Faults::default();
        self.hurry = 0;
        if self.is_down {
            self.start(commons);
        } else {
            self.channel.disconnect(commons.now, &mut commons.rng);
        }
        let pause = Duration::from_millis(100);
        self.channel.connect(commons.now, pause, &mut commons.rng);
    }

    /// What is due at `now`: one thing of each kind. Returns whether the follower had anything
    /// carried out that changes what is known.
    pub fn advance(&mut self, commons: &mut Commons) -> Result<bool, String> {
        if self.next_step <= commons.now {
            self.step(commons);
        }
        let mut is_told = false;
        if let Some(delivery) = self.channel.receive(commons.now) {
            is_told |= self.deliver(delivery, commons)?;
        }
        if self.follower.due().is_some_and(|due| due <= commons.now) {
            is_told |= self.tell(commons, Follower::on_time)?;
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
    pub fn crash(&mut self, commons: &mut Commons) {
        commons.note(|| format!("{:?} dies", self.replica));
        commons.tally.restarts += 1;
        self.is_down = true;
        self.channel.disconnect(commons.now, &mut commons.rng);
        let limit = Duration::from_millis([10, 500, 5_000][commons.rng.below(3)]);
        self.next_step = commons.now + below(limit, &mut commons.rng);
        if self.spec.habits.hurries {
            self.hurry = self.process().records().len() + commons.rng.below(5);
        }
    }

    /// The process ends, and before anybody is connected again another one has passed its number.
    pub fn replace(&mut self, commons: &mut Commons) {
        let last = self.process().records().len();
        self.crash(commons);
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
            return self.crash(commons);
        }
        if hits(habits.set_clock, &mut commons.rng) {
            self.clock_offset_s -= commons.rng.next_f64() * 100.0 - 20.0;
        }
        for _ in 0..1 + commons.rng.below(2) * commons.rng.below(2) {
            if hits(habits.clear, &mut commons.rng) {
                self.engine.clear();
            }
            let text = commons.texts.prompt(&mut commons.rng);
            let chain = commons.catalog.chain(&text, self.engine.spec().block_size);
            self.engine
                .serve(&chain, &commons.catalog, &mut commons.rng);
            if commons.rng.below(8) == 0 {
                self.assume(&text, commons);
            }
        }
        let fate = fate(habits, &mut commons.rng);
        self.publish(fate, commons);
        self.trouble(commons);
    }

    fn assume(&mut self, text: &super::catalog::Text, commons: &mut Commons) {
        let keys = commons.index.hash(Texts::question(text));
        commons
            .index
            .update(self.replica, Update::Assume(&keys), commons.now);
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
            None if is_idle => Duration::from_secs([15, 100, 500][rng.below(3)]),
            None => commons.pace,
        };
        self.next_step = commons.now + below(limit, rng) + Duration::from_nanos(1);
    }

    fn start(&mut self, commons: &mut Commons) {
        let number = ProcessNo(self.processes.len());
        commons.note(|| format!("{:?} starts as {number:?}", self.replica));
        let rng = &mut commons.rng;
        if number.0 > 0 && self.spec.habits.resizes {
            self.spec.engine.block_size = BLOCK_SIZES[rng.below(BLOCK_SIZES.len())];
        }
        self.engine = Engine::new(self.spec.engine.clone());
        self.voice.hash_seed = commons.hash_seed.unwrap_or_else(|| rng.next_u64());
        let block_size = self.spec.engine.block_size;
        self.processes
            .push(Process::new(number, block_size, self.spec.buffer_max));
        self.is_down = false;
        let limit = Duration::from_millis([10, 100, 3_000][rng.below(3)]);
        let pause = below(limit, rng);
        self.channel.connect(commons.now, pause, rng);
    }

    /// Gives what the engine did a number, and sends it.
    fn publish(&mut self, fate: Fate, commons: &mut Commons) {
        let happenings = self.engine.take_happenings();
        if happenings.is_empty() {
            return;
        }
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
        let record = Record {
            introductions: happenings.iter().filter_map(introduces).collect(),
            happenings,
            damage: Damage::None,
        };
        commons.tally.events += batch.events.len() as u64;
        commons.tally.batches += 1;
        let latest = self.processes.len() - 1;
        let process = &mut self.processes[latest];
        let batch = process.publish(record, batch, fate, rng);
        if let Some(batch) = &batch {
            self.channel.send(batch, commons.now, rng);
        }
        let last = process.records().len() - 1;
        let record = &process.records()[last];
        let words = || format!("{:?} {fate:?} batch {last}: {record:?}", self.replica);
        commons.note(words);
    }

    /// What happens to the connection by itself.
    fn trouble(&mut self, commons: &mut Commons) {
        let rng = &mut commons.rng;
        if hits(self.spec.faults.flap, rng) && self.channel.is_connected() {
            self.channel.disconnect(commons.now, rng);
            let limit = Duration::from_millis([10, 1_000, 60_000][rng.below(3)]);
            let pause = below(limit, rng);
            self.channel.connect(commons.now, pause, rng);
        }
    }

    fn deliver(&mut self, delivery: Delivery, commons: &mut Commons) -> Result<bool, String> {
        commons.note(|| format!("{:?} ▶ {}", self.replica, words(&delivery)));
        self.tell(commons, |follower, now, effects| match delivery {
            Delivery::Connected => follower.on_connected(now, effects),
            Delivery::Disconnected => follower.on_disconnected(now, effects),
            Delivery::Live(batch) => follower.on_live(batch, now, effects),
            Delivery::Reply(replay, batch) => follower.on_reply(replay, batch, now, effects),
            Delivery::End(replay) => follower.on_replay_end(replay, now, effects),
            Delivery::Failed(replay) => follower.on_replay_failed(replay, now, effects),
        })
    }

    fn tell(
        &mut self,
        commons: &mut Commons,
        event: impl FnOnce(&mut Follower, Nanos, &mut Vec<Effect>),
    ) -> Result<bool, String> {
        let mut effects = Vec::new();
        event(&mut self.follower, commons.now, &mut effects);
        self.follower.check();
        let mut is_told = false;
        for effect in effects {
            is_told |= !matches!(effect, Effect::Ask { .. } | Effect::Skipped { .. });
            self.carry_out(effect, commons)?;
        }
        Ok(is_told)
    }

    fn carry_out(&mut self, effect: Effect, commons: &mut Commons) -> Result<(), String> {
        let now = commons.now;
        match effect {
            Effect::Apply { seq, mut events } => {
                let position = unmark(&mut events).filter(|position| position.seq == seq);
                let position = position.ok_or("a batch was changed on its way")?;
                commons.note(|| format!("{:?} applies {position:?}", self.replica));
                commons.tally.applied += 1;
                let process = &self.processes[position.process.0];
                let context = (&commons.catalog, now);
                self.truth.apply(position, process.records(), context)?;
                commons
                    .index
                    .update(self.replica, Update::Events(&events), now);
            }
            Effect::Clear => {
                commons.note(|| format!("{:?} forgets everything", self.replica));
                commons.tally.clears += 1;
                self.truth.forget();
                let cleared = [CacheEvent::Cleared];
                commons
                    .index
                    .update(self.replica, Update::Events(&cleared), now);
            }
            Effect::Doubt { batches } => {
                commons.note(|| format!("{:?} doubts, {batches} lost", self.replica));
                commons.tally.doubts += 1;
                self.truth.doubt(now);
                commons.index.update(self.replica, Update::Doubt, now);
            }
            Effect::Ask { replay, from } => {
                commons.note(|| format!("{:?} asks from {from}", self.replica));
                commons.tally.replays += 1;
                let process = &self.processes[self.processes.len() - 1];
                let replies = process.replay(from).filter(|_| !self.is_down).cloned();
                self.channel.ask(replay, replies, now, &mut commons.rng);
            }
            Effect::Reconnect => {
                commons.note(|| format!("{:?} reconnects", self.replica));
                commons.tally.reconnects += 1;
                self.channel.disconnect(now, &mut commons.rng);
                if !self.is_down {
                    let pause = Duration::from_millis(50);
                    self.channel.connect(now, pause, &mut commons.rng);
                }
            }
            Effect::Skipped { .. } | Effect::Status(_) => {}
        }
        Ok(())
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

fn words(delivery: &Delivery) -> String {
    match delivery {
        Delivery::Live(batch) => format!("live {} at {:?}", batch.seq, batch.ts),
        Delivery::Reply(replay, batch) => format!("{replay:?} reply {}", batch.seq),
        other => format!("{other:?}"),
    }
}
