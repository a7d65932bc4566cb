//! A publisher, a channel that does it no favours, and what a follower makes of them.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, Rng, Tier};
use headstart_router::stream::{
    Damage, Follower, FollowerConfig, HELD_BATCHES_MAX, ReplayId, StreamBatch, StreamEffect,
    StreamStatus, StreamUpdate,
};

/// Settings of one seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) can_replay: bool,
    pub(super) has_times: bool,
    /// Whether a restart breaks the connection, as it does unless a proxy hides it.
    pub(super) breaks: bool,
    /// Batches that the publisher keeps.
    pub(super) reach: usize,
    pub(super) burns: bool,
    pub(super) damages: bool,
}

/// One number of one life: what was sent, if it was, and what was held afterwards.
struct Published {
    sent: Option<StreamBatch>,
    truth: BTreeSet<u64>,
}

enum Reply {
    Batch(StreamBatch),
    End,
}

pub(super) struct World {
    rules: Rules,
    rng: Rng,
    now: Nanos,
    lives: Vec<Vec<Published>>,
    truth: BTreeSet<u64>,
    next_block: u64,
    is_connected: bool,
    on_the_way: VecDeque<StreamBatch>,
    asked: Option<(ReplayId, u64)>,
    replies: VecDeque<(ReplayId, Reply)>,
    follower: Follower,
    known: Known,
}

/// Sum of the effects.
#[derive(Default)]
struct Known {
    confirmed: BTreeSet<u64>,
    doubtful: BTreeSet<u64>,
    /// Blocks of the last doubt, without those that something was said about since.
    last_doubted: BTreeSet<u64>,
    trusts: u64,
    /// Life and number of the last applied batch, since the last clear.
    last: Option<(usize, u64)>,
    restarts: u64,
}

const LIFE: u64 = 1 << 32;

impl World {
    /// Plays one history and brings it to rest. Returns what the stream says of itself then, and
    /// how often a doubt was taken back.
    pub(super) fn play(seed: u64, rules: Rules) -> (StreamStatus, u64) {
        let mut world = Self::new(seed, rules);
        for _ in 0..world.rng.below(300) {
            world.step();
        }
        let status = world.heal();
        let last = world.lives.len() - 1;
        let newest = world.lives[last].len() as u64 - 1;
        assert_eq!(world.known.last, Some((last, newest)));
        assert!(world.known.confirmed.is_subset(&world.truth));
        if status == StreamStatus::Complete {
            assert_eq!(world.known.confirmed, world.truth);
        }
        (status, world.known.trusts)
    }

    fn new(seed: u64, rules: Rules) -> Self {
        let config = FollowerConfig { can_replay: rules.can_replay, rank: None };
        Self {
            rules,
            rng: Rng::new(seed),
            now: Nanos(0),
            lives: vec![vec![]],
            truth: BTreeSet::new(),
            next_block: 0,
            is_connected: false,
            on_the_way: VecDeque::new(),
            asked: None,
            replies: VecDeque::new(),
            follower: Follower::new(config),
            known: Known::default(),
        }
    }

    /// One more batch: one new block always, sometimes a removal or a clear.
    fn publish(&mut self) {
        let life = self.lives.len() - 1;
        let seq = self.lives[life].len() as u64;
        let block = life as u64 * LIFE + self.next_block;
        self.next_block += 1;
        let mut events = vec![stored(block)];
        match self.rng.below(12) {
            0 => events.insert(0, CacheEvent::Cleared),
            1..6 => events.extend(self.pick_held().map(removed)),
            _ => {}
        }
        events.iter().for_each(|event| apply(&mut self.truth, event));
        let stamp = self.next_block as f64;
        let mut batch = StreamBatch {
            seq,
            ts: Some(stamp).filter(|_| self.rules.has_times),
            fingerprint: u128::from(block),
            events,
            ..StreamBatch::default()
        };
        if self.rules.damages && self.rng.below(15) == 0 {
            self.damage(&mut batch);
        }
        let is_burnt = self.rules.burns && self.rng.below(15) == 0;
        let sent = Some(batch).filter(|_| !is_burnt);
        if self.is_connected {
            self.on_the_way.extend(sent.clone());
        }
        let truth = self.truth.clone();
        self.lives[life].push(Published { sent, truth });
    }

    fn damage(&mut self, batch: &mut StreamBatch) {
        let may_have_removed = batch.events.len() > 1;
        if may_have_removed && self.rng.below(2) == 0 {
            let last = batch.events.pop();
            let is_removal = !matches!(last, Some(CacheEvent::Stored(_)));
            let reasons = vec![("lost", 1)];
            batch.damage = Damage::Skipped { reasons, may_have_removed: is_removal };
            if !is_removal {
                // A clear alone does not tell the life: so it goes too.
                batch.events.clear();
                batch.damage = Damage::Unreadable;
            }
        } else {
            batch.events.clear();
            batch.ts = None;
            batch.damage = Damage::Unreadable;
        }
    }

    fn pick_held(&mut self) -> Option<u64> {
        let count = self.truth.len();
        let at = self.rng.below(count.max(1));
        self.truth.iter().nth(at).copied()
    }

    fn restart(&mut self) {
        self.lives.push(vec![]);
        self.truth.clear();
        self.asked = None;
        if self.rules.breaks {
            self.disconnect();
        }
    }

    fn connect(&mut self) {
        if !self.is_connected {
            self.is_connected = true;
            self.tell(|follower, now, effects| follower.on_connected(now, effects));
        }
    }

    fn disconnect(&mut self) {
        self.on_the_way.clear();
        self.is_connected = false;
        self.tell(|follower, now, effects| follower.on_disconnected(now, effects));
    }

    /// Stays disconnected until all is doubted.
    fn stay_away(&mut self) {
        self.disconnect();
        let time = [2, 2, 31, 400][self.rng.below(4)];
        self.pass(Duration::from_secs(time));
        if self.rng.below(2) == 0 {
            self.publish();
        }
        self.connect();
    }

    /// Something on the way arrives, is lost or repeated; mostly the oldest.
    fn deliver(&mut self) {
        if self.on_the_way.is_empty() || !self.is_connected {
            return;
        }
        let reach = if self.rng.below(4) == 0 { 5 } else { 1 };
        let at = self.rng.below(self.on_the_way.len().min(reach));
        let fate = self.rng.below(10);
        let batch = match fate {
            0 => self.on_the_way.get(at).cloned(),
            _ => self.on_the_way.remove(at),
        };
        if fate != 1 {
            self.on_live(batch.expect("within bounds"));
        }
    }

    fn on_live(&mut self, batch: StreamBatch) {
        self.tell(|follower, now, effects| follower.on_live(batch, now, effects));
    }

    /// The publisher answers what was asked last, with what it has now.
    fn answer(&mut self) {
        let Some((replay, from)) = self.asked.take() else {
            return;
        };
        let life = self.lives.last().expect("a life");
        let sent = life.iter().filter_map(|published| published.sent.clone());
        let kept = sent.clone().count().saturating_sub(self.rules.reach);
        let kept = sent.skip(kept).filter(|batch| batch.seq >= from).map(Reply::Batch);
        self.replies.extend(kept.chain([Reply::End]).map(|reply| (replay, reply)));
    }

    fn reply(&mut self) {
        let Some((replay, reply)) = self.replies.pop_front() else {
            return;
        };
        self.tell(|follower, now, effects| match reply {
            Reply::Batch(batch) => follower.on_reply(replay, batch, now, effects),
            Reply::End => follower.on_replay_end(replay, now, effects),
        });
    }

    fn break_off(&mut self) {
        self.replies.clear();
        self.asked = None;
        if let Some(replay) = self.follower.replay() {
            self.tell(|follower, now, effects| follower.on_replay_failed(replay, now, effects));
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.tell(|follower, now, effects| follower.on_time(now, effects));
    }

    fn tell(&mut self, input: impl FnOnce(&mut Follower, Nanos, &mut Vec<StreamEffect>)) {
        let mut effects = Vec::new();
        input(&mut self.follower, self.now, &mut effects);
        for effect in effects {
            match effect {
                StreamEffect::Ask { replay, from } => self.asked = Some((replay, from)),
                StreamEffect::Reconnect
                | StreamEffect::Update(StreamUpdate::Skipped { .. })
                | StreamEffect::Update(StreamUpdate::Status(_)) => {}
                known => self.known.take(known),
            }
        }
        self.check();
    }

    /// Asserts what holds at any moment.
    fn check(&self) {
        self.follower.check();
        let (report, known) = (self.follower.report(), &self.known);
        assert_eq!(report.epoch, known.restarts);
        assert!(report.held_batches <= HELD_BATCHES_MAX);
        if !self.rules.breaks {
            return;
        }
        let nothing = BTreeSet::new();
        let truth =
            known.last.map_or(&nothing, |(life, seq)| &self.lives[life][seq as usize].truth);
        assert!(known.confirmed.is_subset(truth), "{report:?}");
        if report.status == StreamStatus::Complete {
            let next = known.last.map_or(0, |(_, seq)| seq + 1);
            assert_eq!(report.next_seq, next, "{report:?}");
            assert!(known.doubtful.is_empty() && known.confirmed == *truth, "{report:?}");
        }
    }

    /// The channel is good again and everything is said. Returns the final status.
    fn heal(&mut self) -> StreamStatus {
        self.break_off();
        if !self.rules.breaks {
            // Lives that were mixed up behind a proxy come apart at a restart that is seen.
            self.restart();
        }
        if self.is_connected {
            self.disconnect();
        }
        self.connect();
        for _ in 0..3 {
            self.publish_sound();
            while let Some(batch) = self.on_the_way.pop_front() {
                self.on_live(batch);
            }
            self.rest();
        }
        self.follower.status()
    }

    fn publish_sound(&mut self) {
        let rules = self.rules;
        self.rules = Rules { burns: false, damages: false, ..rules };
        self.publish();
        self.rules = rules;
    }

    /// Until nothing is asked for and nothing waits.
    fn rest(&mut self) {
        for _ in 0..1000 {
            self.answer();
            while !self.replies.is_empty() {
                self.reply();
            }
            if self.follower.status() != StreamStatus::Replaying {
                return;
            }
            let due = self.follower.due().expect("whoever replays waits for a time");
            self.pass(due.since(self.now));
        }
        panic!("it never comes to rest: {:?}", self.follower.report());
    }

    fn step(&mut self) {
        match self.rng.below(60) {
            0 => self.restart(),
            1 => self.disconnect(),
            2 => self.break_off(),
            3..6 => self.connect(),
            6 => self.stay_away(),
            7..22 => self.publish(),
            22..37 => self.deliver(),
            37..42 => self.answer(),
            42..57 => self.reply(),
            _ => {
                let time = [1, 50, 300, 3_000, 31_000][self.rng.below(5)];
                self.pass(Duration::from_millis(time));
            }
        }
        self.now = self.now + Duration::from_millis(1);
    }
}

impl Known {
    fn take(&mut self, effect: StreamEffect) {
        match effect {
            StreamEffect::Update(StreamUpdate::Events { seq, events }) => {
                let life = events.iter().find_map(life_of).expect("a new block in each batch");
                let last = self.last.replace((life, seq));
                assert!(last.is_none_or(|(_, last)| last < seq), "{seq} after {last:?}");
                for event in &events {
                    apply(&mut self.confirmed, event);
                    forget(&mut self.doubtful, event);
                    forget(&mut self.last_doubted, event);
                }
            }
            StreamEffect::Update(StreamUpdate::Clear) => {
                *self = Self { restarts: self.restarts + 1, trusts: self.trusts, ..Self::default() }
            }
            StreamEffect::Update(StreamUpdate::Doubt { .. }) => {
                self.last_doubted.clone_from(&self.confirmed);
                self.doubtful.append(&mut self.confirmed);
            }
            StreamEffect::Update(StreamUpdate::Trust) => {
                self.trusts += 1;
                for block in std::mem::take(&mut self.last_doubted) {
                    if self.doubtful.remove(&block) {
                        self.confirmed.insert(block);
                    }
                }
            }
            other => panic!("{other:?} says nothing of blocks"),
        }
    }
}

fn stored(block: u64) -> CacheEvent {
    CacheEvent::Stored(StoredBlocks {
        blocks: vec![BlockHash::from_u64(block)],
        parent: None,
        tokens: vec![],
        block_size: 16,
        extras: vec![],
        tier: Tier::Device,
        group: CacheGroup::default(),
        salt: None,
        adapter: None,
    })
}

fn removed(block: u64) -> CacheEvent {
    let blocks = vec![BlockHash::from_u64(block)];
    CacheEvent::Removed { blocks, tier: Tier::Device, group: 0 }
}

fn number(block: &BlockHash) -> u64 {
    u128::from_be_bytes(block.0) as u64
}

fn life_of(event: &CacheEvent) -> Option<usize> {
    match event {
        CacheEvent::Stored(stored) => Some((number(&stored.blocks[0]) / LIFE) as usize),
        _ => None,
    }
}

fn apply(blocks: &mut BTreeSet<u64>, event: &CacheEvent) {
    match event {
        CacheEvent::Stored(stored) => blocks.extend(stored.blocks.iter().map(number)),
        CacheEvent::Removed { blocks: gone, .. } => {
            blocks.retain(|block| !gone.iter().any(|gone| number(gone) == *block));
        }
        CacheEvent::Cleared => blocks.clear(),
    }
}

/// Removes what `event` confirms or takes away: it is no longer doubtful.
fn forget(doubtful: &mut BTreeSet<u64>, event: &CacheEvent) {
    match event {
        CacheEvent::Stored(stored) => {
            let stored: BTreeSet<_> = stored.blocks.iter().map(number).collect();
            doubtful.retain(|block| !stored.contains(block));
        }
        taken => apply(doubtful, taken),
    }
}
