//! Scenario of one seed: engines, their faults, and the faults on the way to them.
//!
//! Most faults are absent from most scenarios, so that each is also met alone: a fault that is
//! always there hides what another one does.

use std::time::Duration;

use headstart_core::Rng;
use headstart_core::event::{Attention, CacheGroup};
use headstart_router::stream::FollowerConfig;

use super::catalog::BLOCK_SIZES;
use super::channel::{FaultRates, hits};
use super::engine::{CopyPolicy, Demotion, EngineSpec, Eviction, GroupSpec};

/// Most engines in a scenario.
const STATIONS_MAX: usize = 3;

/// Fewest and most steps of each engine while things go wrong.
const STEPS: std::ops::Range<usize> = 10..40;

/// Most steps between a dump and its use.
const DUMP_AGE: usize = 6;

/// Parameters that are fixed before the simulation starts.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The engines.
    pub stations: Vec<StationSpec>,
    /// Common seed of all hashes; `None`: each process has its own seed.
    pub hash_seed: Option<u64>,
    /// Steps of each engine while things go wrong.
    pub num_steps: usize,
    /// Steps of all engines together until the index is dumped, and until the followers restart
    /// with that dump.
    pub restore: Option<(usize, usize)>,
    /// Longest pause between two steps of an engine, most of the time.
    pub pace: Duration,
}

/// One engine and the way to it.
#[derive(Clone, Debug)]
pub struct StationSpec {
    /// The engine.
    pub engine: EngineSpec,
    /// The block size that the router is configured with, right or wrong.
    pub configured_size: Option<u32>,
    /// Configuration of its follower.
    pub follower: FollowerConfig,
    /// See [`super::announce::Voice`].
    pub tells_all_tokens: bool,
    /// See [`super::announce::Voice`].
    pub tells_host_tokens: bool,
    /// Whether its batches have timestamps.
    pub has_ts: bool,
    /// Batches that it keeps for replays.
    pub buffer_max: usize,
    /// Whether its restarts may break no connection. Only its clock tells then what is late.
    pub can_hide: bool,
    /// Whether a new process keeps other cache groups, or blocks of other sizes.
    pub changes: bool,
    /// Frequencies of its own faults.
    pub habits: Habits,
    /// Frequencies of faults on the way.
    pub faults: FaultRates,
}

/// Frequencies of an engine's faults, in percent of its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// Its process ends, and another one begins.
    pub restart: usize,
    /// It forgets everything.
    pub clear: usize,
    /// A batch's number is used and never sent.
    pub burn: usize,
    /// An event is not understood.
    pub damage: usize,
    /// A batch is not understood.
    pub unreadable: usize,
    /// Its clock is set, mostly back.
    pub set_clock: usize,
    /// It is idle for long.
    pub idle: usize,
    /// Whether a new process soon is beyond its predecessor's number.
    pub hurries: bool,
}

impl Scenario {
    /// The one of these draws.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> Self {
        let num_stations = [1, 1, 2, STATIONS_MAX][rng.below(4)];
        let num_steps = STEPS.start + rng.below(STEPS.len());
        let restored = rng.below(num_steps * num_stations);
        let dumped = restored - rng.below(restored.min(DUMP_AGE) + 1);
        Self {
            stations: (0..num_stations).map(|_| StationSpec::draw(rng)).collect(),
            hash_seed: (rng.below(2) == 0).then(|| rng.next_u64()),
            num_steps,
            restore: hits(20, rng).then_some((dumped, restored)),
            pace: Duration::from_millis([20, 200, 2000][rng.below(3)]),
        }
    }
}

impl StationSpec {
    fn draw(rng: &mut Rng) -> Self {
        let engine = draw_engine(rng);
        let can_replay = rng.below(5) > 0;
        let has_ts = rng.below(5) > 0;
        let habits = Habits::draw(has_ts, rng);
        let faults = FaultRates::draw(rng);
        let tells_all_tokens = rng.below(2) == 0;
        Self {
            configured_size: [None, Some(engine.block_size()), Some(2)][rng.below(3)],
            engine,
            // Only the clock shows an unnoticed restart, so it must be right then.
            can_hide: has_ts && habits.set_clock == 0,
            changes: rng.below(3) == 0,
            follower: FollowerConfig { can_replay, rank: None },
            tells_all_tokens,
            tells_host_tokens: rng.below(2) == 0,
            has_ts,
            // From no replay at all to one that always reaches back.
            buffer_max: [0, 1, 2 + rng.below(20), 20 + rng.below(20), usize::MAX][rng.below(5)],
            habits,
            faults,
        }
    }
}

impl Habits {
    fn draw(has_ts: bool, rng: &mut Rng) -> Self {
        Self {
            restart: rarely(10, rng),
            clear: rarely(6, rng),
            burn: rarely(10, rng),
            damage: rarely(10, rng),
            unreadable: rarely(6, rng),
            set_clock: if has_ts { rarely(4, rng) / 2 } else { 0 },
            idle: rarely(8, rng),
            hurries: rng.below(3) == 0,
        }
    }
}

impl FaultRates {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            drop: rarely(40, rng),
            repeat: rarely(30, rng),
            delay: rarely(30, rng),
            slow_join: rarely(100, rng),
            flap: rarely(20, rng),
            // Twice, since few absences are without other losses.
            away: rarely(30, rng).max(rarely(30, rng)),
            deaf: rarely(20, rng),
            partition: rarely(30, rng),
            replay_fail: rarely(60, rng),
            replay_silent: rarely(40, rng),
            replay_cut: rarely(60, rng),
            replay_late: rarely(50, rng),
            leftovers: rarely(100, rng),
        }
    }
}

/// Mostly nothing, else up to `percent_max`.
fn rarely(percent_max: usize, rng: &mut Rng) -> usize {
    if hits(35, rng) { 1 + rng.below(percent_max) } else { 0 }
}

fn draw_engine(rng: &mut Rng) -> EngineSpec {
    EngineSpec {
        groups: draw_groups(rng),
        device_blocks: 4 + rng.below(32),
        host_blocks: rng.below(2) * (2 + rng.below(16)),
        eviction: [Eviction::TailFirst, Eviction::TailFirst, Eviction::AnyOrder][rng.below(3)],
        copies: match rng.below(6) {
            0 => CopyPolicy::EachAnnounced,
            1 => CopyPolicy::LastAnnounced,
            _ => CopyPolicy::One,
        },
        demotion: [Demotion::Together, Demotion::Apart][rng.below(2)],
    }
}

fn draw_groups(rng: &mut Rng) -> Vec<GroupSpec> {
    let window = Attention::Window { tokens: 1 + rng.below(6) as u32 };
    let kinds = match rng.below(6) {
        0 => vec![Attention::Full, window],
        1 => vec![Attention::State, Attention::Full],
        2 => vec![Attention::Full, Attention::State, window],
        _ => vec![Attention::Full],
    };
    let (size, is_mixed) = (draw_size(rng), rng.below(2) == 0);
    let groups = kinds.into_iter().zip(0..).map(|(attention, index)| GroupSpec {
        group: CacheGroup { index, attention, lookahead: 0 },
        block_size: if is_mixed { draw_size(rng) } else { size },
    });
    groups.collect()
}

fn draw_size(rng: &mut Rng) -> u32 {
    BLOCK_SIZES[rng.below(BLOCK_SIZES.len())]
}

/// Replaces an engine by another one, or by itself with blocks of another size.
pub fn change_engine(engine: &mut EngineSpec, rng: &mut Rng) {
    if rng.below(2) == 0 {
        return *engine = draw_engine(rng);
    }
    let size = draw_size(rng);
    engine.groups.iter_mut().for_each(|group| group.block_size = size);
}
