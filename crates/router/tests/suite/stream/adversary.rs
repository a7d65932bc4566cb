//! A sender of anything at all.

use std::time::Duration;

use headstart_core::{CacheEvent, Nanos, Rng};
use headstart_router::stream::{
    Damage, Follower, FollowerConfig, HELD_BATCHES_MAX, ReplayId, StreamBatch, StreamEffect,
    StreamUpdate,
};

pub(super) struct Adversary {
    follower: Follower,
    rng: Rng,
    now: Nanos,
    last: Option<u64>,
}

impl Adversary {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let config = FollowerConfig { can_replay: rng.below(3) > 0, rank: Some(0) };
        Self {
            follower: Follower::new(config),
            now: Nanos(rng.next_u64() >> (1 + rng.below(60))),
            last: None,
            rng,
        }
    }

    pub(super) fn play(mut self) {
        (0..400).for_each(|_| self.step());
    }

    fn step(&mut self) {
        let mut effects = Vec::new();
        let (now, batch) = (self.now, self.batch());
        let replay = self.follower.replay().unwrap_or(ReplayId(self.rng.next_u64()));
        let replay = ReplayId(replay.0.wrapping_add((self.rng.below(10) == 0).into()));
        let (follower, effects_of) = (&mut self.follower, &mut effects);
        match self.rng.below(40) {
            0 => follower.on_connected(now, effects_of),
            1 => follower.on_disconnected(now, effects_of),
            2 => follower.on_bad_message(now, effects_of),
            3..5 => follower.on_replay_end(replay, now, effects_of),
            5..7 => follower.on_replay_failed(replay, now, effects_of),
            7..11 => {
                let time = Duration::from_millis(1 << self.rng.below(16));
                self.now = now + time;
                follower.on_time(self.now, effects_of);
            }
            11 => self.wait(&mut effects),
            12..24 => follower.on_reply(replay, batch, now, effects_of),
            _ => follower.on_live(batch, now, effects_of),
        }
        self.follower.check();
        let before = self.follower.report();
        assert!(before.held_batches <= HELD_BATCHES_MAX);
        self.check_order(&effects);
    }

    /// Does as [`Follower::due`] says, up to an hour: a bounded number of times.
    fn wait(&mut self, effects: &mut Vec<StreamEffect>) {
        let until = self.now + Duration::from_secs(3600);
        for _ in 0..5_000 {
            match self.follower.due() {
                Some(due) if due < until => {
                    self.now = self.now.max(due);
                    self.follower.on_time(self.now, effects);
                }
                _ => return,
            }
        }
        panic!("time is asked for without an end: {:?}", self.follower);
    }

    fn check_order(&mut self, effects: &[StreamEffect]) {
        for effect in effects {
            match effect {
                StreamEffect::Update(StreamUpdate::Clear) => self.last = None,
                StreamEffect::Update(StreamUpdate::Events { seq, .. }) => {
                    assert!(self.last.is_none_or(|last| last < *seq), "{effects:?}");
                    self.last = Some(*seq);
                }
                _ => {}
            }
        }
    }

    fn batch(&mut self) -> StreamBatch {
        let rng = &mut self.rng;
        let next = self.follower.report().next_seq;
        let seq = match rng.below(8) {
            0 => rng.next_u64() >> rng.below(64),
            1 => u64::MAX - rng.below(3) as u64,
            2 => rng.below(10) as u64,
            _ => next.saturating_add(rng.below(8) as u64).saturating_sub(3),
        };
        let times = [f64::NAN, f64::INFINITY, -1.0, 0.0, f64::MAX, f64::MIN_POSITIVE];
        let ts = match rng.below(4) {
            0 => None,
            1 => Some(times[rng.below(times.len())]),
            _ => Some(rng.below(20) as f64 + seq as f64),
        };
        let reasons = vec![("x", 1)];
        let damage = match rng.below(20) {
            0 => Damage::Unreadable,
            1 => Damage::Skipped { reasons, may_have_removed: rng.below(2) == 0 },
            _ => Damage::None,
        };
        StreamBatch {
            seq,
            ts,
            fingerprint: u128::from(seq) ^ (rng.below(10) / 9) as u128,
            rank: Some(rng.below(2) as u32),
            events: vec![CacheEvent::Cleared; rng.below(2)],
            damage,
            unknown_type: None,
        }
    }
}
