//! One situation after the other, as scripts. `tests/suite/stream` plays random ones.

mod bounds;
mod gaps;
mod lateness;
mod lives;

use std::time::Duration;

use headstart_core::{BlockHash, CacheEvent, Tier};

use super::*;
use crate::stream::{
    Damage, HELD_BATCHES_MAX, HELD_BYTES_MAX, LATE_TIME_MAX, REPLAY_TRIES_MAX, REPLY_TIME_MAX,
    SETTLE_TIME, SILENCE_TIME_MAX,
};
use In::{Bad, Down, End, Fail, Live, LiveOf, Reply, ReplyOf, Tick, Up};
use Out::{Apply, Ask, Clear, Doubt, Reconnect, Skipped, Status, Trust};
use StreamStatus::{Complete, Partial, Replaying};

/// Inputs of a script. Batches are stamped with their number, above the stamps of earlier lives.
#[derive(Clone, Copy, Debug)]
enum In {
    Up,
    Down,
    Live(u64),
    Reply(u64),
    /// Life and number.
    LiveOf(u64, u64),
    ReplyOf(u64, u64),
    End,
    Fail,
    Bad,
    /// So much time passes.
    Tick(Duration),
}

/// [`StreamEffect`] in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    Apply(u64),
    Clear,
    Doubt(u64),
    Trust,
    Skipped(u64),
    Ask(u64),
    Reconnect,
    Status(StreamStatus),
}

struct Script {
    follower: Follower,
    now: Nanos,
    has_times: bool,
    last_replay: Option<ReplayId>,
}

impl Script {
    /// A connected stream of which `0..applied` came live, and whose subscription is in place.
    fn new(config: FollowerConfig, applied: u64) -> Self {
        let mut script = Self {
            follower: Follower::new(config),
            now: Nanos(0),
            has_times: true,
            last_replay: None,
        };
        script.play(Up);
        script.play(End);
        (0..applied).for_each(|seq| drop(script.play(Live(seq))));
        let settled = if applied > 0 { Complete } else { script.follower.status() };
        assert_eq!(script.follower.status(), settled);
        // Far enough from the first replay for the next one to be asked for at once.
        script.now = script.now + (SILENCE_TIME_MAX - QUIET);
        script
    }

    fn batch(&self, life: u64, seq: u64) -> StreamBatch {
        let stamp = 1.0 + (life * 1000) as f64 + seq as f64;
        StreamBatch {
            seq,
            ts: Some(stamp).filter(|_| self.has_times),
            fingerprint: u128::from(life * 1000) + u128::from(seq),
            events: vec![removed(seq)],
            ..StreamBatch::default()
        }
    }

    fn play(&mut self, input: In) -> Vec<Out> {
        let (now, mut effects) = (self.now, Vec::new());
        let last = self.last_replay.unwrap_or(ReplayId(0));
        let replay = self.follower.replay().unwrap_or(last);
        self.last_replay = Some(replay);
        let follower = &mut self.follower;
        match input {
            Up => follower.on_connected(now, &mut effects),
            Down => follower.on_disconnected(now, &mut effects),
            Live(seq) => return self.play(LiveOf(0, seq)),
            Reply(seq) => return self.play(ReplyOf(0, seq)),
            LiveOf(life, seq) => {
                let batch = self.batch(life, seq);
                self.follower.on_live(batch, now, &mut effects);
            }
            ReplyOf(life, seq) => {
                let batch = self.batch(life, seq);
                self.follower.on_reply(replay, batch, now, &mut effects);
            }
            End => follower.on_replay_end(replay, now, &mut effects),
            Fail => follower.on_replay_failed(replay, now, &mut effects),
            Bad => follower.on_bad_message(now, &mut effects),
            Tick(time) => {
                self.now = now + time;
                follower.on_time(self.now, &mut effects);
                let due = follower.due();
                assert!(due.is_none_or(|due| due > self.now), "{due:?} is left");
            }
        }
        self.follower.check();
        effects.iter().map(in_short).collect()
    }

    fn check(&mut self, lines: &[(In, &[Out])]) {
        for (index, &(input, expected)) in lines.iter().enumerate() {
            assert_eq!(self.play(input), expected, "line {index}: {input:?}");
        }
    }

    fn report(&self) -> StreamReport {
        self.follower.report()
    }
}

fn removed(number: u64) -> CacheEvent {
    CacheEvent::Removed { blocks: vec![BlockHash::from_u64(number)], tier: Tier::Device, group: 0 }
}

fn in_short(effect: &StreamEffect) -> Out {
    match effect {
        StreamEffect::Update(StreamUpdate::Events { seq, .. }) => Apply(*seq),
        StreamEffect::Update(StreamUpdate::Clear) => Clear,
        StreamEffect::Update(StreamUpdate::Doubt { batches }) => Doubt(*batches),
        StreamEffect::Update(StreamUpdate::Trust) => Trust,
        StreamEffect::Update(StreamUpdate::Skipped { count, .. }) => Skipped(*count),
        StreamEffect::Ask { from, .. } => Ask(*from),
        StreamEffect::Reconnect => Reconnect,
        StreamEffect::Update(StreamUpdate::Status(status)) => Status(*status),
    }
}

/// Silence that is left at the start of a [`Script`] before it becomes suspicious.
const QUIET: Duration = Duration::from_secs(10);

const REPLAYED: FollowerConfig = FollowerConfig { can_replay: true, rank: None };
const LIVE_ONLY: FollowerConfig = FollowerConfig { can_replay: false, rank: None };

/// Runs a script on a stream that has applied `0..applied`.
fn check(applied: u64, lines: &[(In, &[Out])]) -> Script {
    let mut script = Script::new(REPLAYED, applied);
    script.check(lines);
    script
}

fn check_live_only(applied: u64, lines: &[(In, &[Out])]) -> Script {
    let mut script = Script::new(LIVE_ONLY, applied);
    script.check(lines);
    script
}

fn check_without_times(applied: u64, lines: &[(In, &[Out])]) {
    for config in [REPLAYED, LIVE_ONLY] {
        let mut script = Script::new(config, 0);
        script.has_times = false;
        (0..applied).for_each(|seq| drop(script.play(Live(seq))));
        let lines = lines.iter().map(|(input, out)| {
            let can_ask = |out: &&Out| config.can_replay || !matches!(out, Ask(_));
            (*input, out.iter().filter(can_ask).copied().collect::<Vec<_>>())
        });
        for (index, (input, expected)) in lines.enumerate() {
            let mut seen = script.play(input);
            seen.retain(|out| !matches!(out, Status(_)));
            assert_eq!(seen, expected, "{config:?}, line {index}: {input:?}");
        }
    }
}
