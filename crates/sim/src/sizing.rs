//! Cache sizes that pay off for a trace, beyond device memory: hits by size, and time saved.
//!
//! ```text
//! size     one cache of N blocks: what a device and a lower tier hold together, if nothing
//!          is held twice
//! saved    per request: computing behind what the device holds, less the best plan of loading
//!          and computing (the plan that serves: headstart_cache::tiers::plan)
//! ```
//!
//! Requests follow one another, as in [`crate::replay`]: no queue, and loads of others are not
//! waited for. What a lower tier holds is what the larger cache hits behind what the small one
//! does; under LRU the larger one holds all that the small one holds, under other policies nearly.

use std::ops::Range;

use headstart_cache::policy::{self, PolicyError};
use headstart_cache::tiers::{AssumedSpeed, Question, TierRun, plan};
use headstart_core::cost::Work;
use headstart_core::stats::HitCount;
use headstart_core::{EngineModel, TraceRequest};
use headstart_trace::characterize::prompt_tokens;

use crate::{Replay, ReplayConfig};

/// Most steps of a grid: sizes up to some thousand times the device's.
const STEPS_MAX: usize = 24;

/// A trace and a device.
#[derive(Clone, Copy, Debug)]
pub struct Sizing<'a> {
    /// The requests, in order of arrival.
    pub requests: &'a [TraceRequest],
    /// Number of first requests that fill the cache and are not counted.
    pub cold_requests: usize,
    /// Tokens a block.
    pub block_tokens: u32,
    /// Blocks that fit the device.
    pub device_blocks: u64,
}

/// A lower tier.
#[derive(Clone, Copy, Debug)]
pub struct Lower {
    /// Assumed speed of the tier.
    pub speed: AssumedSpeed,
    /// Bytes of a block.
    pub block_bytes: f64,
}

impl Sizing<'_> {
    /// Counts the leading blocks of each request that a cache of `blocks` blocks hits.
    ///
    /// # Errors
    /// When there is no such policy.
    ///
    /// # Panics
    /// When it is 2^32 - 2 blocks or more.
    pub fn hits(&self, policy: &str, blocks: u64) -> Result<Vec<u32>, PolicyError> {
        let capacity = usize::try_from(blocks).unwrap_or(usize::MAX);
        let setting = policy::Setting { capacity, block_tokens: self.block_tokens };
        let config = ReplayConfig { capacity, block_tokens: self.block_tokens, cold_requests: 0 };
        let mut replay = Replay::with_config(config, policy::by_name(policy, setting)?);
        let hits = self.requests.iter();
        let hits = hits.map(|request| replay.serve(request) as u32).collect();
        replay.check();
        Ok(hits)
    }

    /// Tokens looked up and found, of the requests that count.
    #[must_use]
    pub fn tokens(&self, hits: &[u32]) -> HitCount {
        let mut count = HitCount::default();
        for (request, &hits) in self.requests.iter().zip(hits).skip(self.cold_requests) {
            let tokens = self.prompt(request);
            count.record(tokens, (hits as usize * self.block_tokens as usize).min(tokens));
        }
        count
    }

    /// Seconds that it takes to compute what the device does not hold, of the requests that count.
    #[must_use]
    pub fn computed_s(&self, device_hits: &[u32], engine: &EngineModel) -> f64 {
        let requests = self.requests.iter().zip(device_hits);
        let seconds = requests.skip(self.cold_requests).map(|(request, &hits)| {
            let tokens = self.prompt(request);
            let held = self.held(hits, tokens);
            engine.prefill_steps_s(held, tokens - held, Work::default())
        });
        seconds.sum()
    }

    /// Seconds of these that a lower tier saves which holds what `hits` says beyond what the device
    /// does.
    #[must_use]
    pub fn saved_s(
        &self,
        device_hits: &[u32],
        hits: &[u32],
        engine: &EngineModel,
        lower: &Lower,
    ) -> f64 {
        let both = device_hits.iter().zip(hits);
        let requests = self.requests.iter().zip(both).skip(self.cold_requests);
        let seconds = requests.map(|(request, (&device, &all))| {
            let tokens = self.prompt(request);
            self.saved_of(tokens, [device, all], engine, lower)
        });
        seconds.sum()
    }

    fn saved_of(
        &self,
        tokens: usize,
        [device, all]: [u32; 2],
        engine: &EngineModel,
        lower: &Lower,
    ) -> f64 {
        let block_tokens = self.block_tokens as usize;
        let held = self.held(device, tokens);
        let first_unit = held / block_tokens;
        // The larger cache may hold less of a prompt under policies other than LRU.
        let units = (self.held(all, tokens) / block_tokens).saturating_sub(first_unit);
        if units == 0 {
            return 0.0;
        }
        let run = TierRun {
            units,
            start_s: lower.speed.latency_s,
            unit_s: lower.block_bytes / lower.speed.bytes_per_s,
        };
        let best = plan(&Question {
            device_tokens: held,
            runs: &[run],
            unit_tokens: block_tokens,
            first_unit,
            prompt_tokens: tokens,
            engine,
            beside: Work::default(),
        });
        best.computed_s - best.total_s
    }

    fn prompt(&self, request: &TraceRequest) -> usize {
        prompt_tokens(request, self.block_tokens) as usize
    }

    /// Tokens of whole blocks before the prompt's last token, which is always computed.
    fn held(&self, hits: u32, tokens: usize) -> usize {
        let block_tokens = self.block_tokens as usize;
        // The last token's block is always computed, however much is cached.
        let most = tokens.saturating_sub(1) / block_tokens;
        (hits as usize).min(most) * block_tokens
    }
}

/// Sizes to look at, in multiples of the device's, up to the one that holds all blocks.
#[must_use]
pub fn grid(device_blocks: u64, distinct_blocks: u64) -> Vec<u64> {
    let all = distinct_blocks.div_ceil(device_blocks.max(1)).max(1);
    // 1, 2, 3, 4, 6, 8, 12, 16, …
    let mut grid = vec![1];
    let mut power = 1_u64;
    while grid.len() < STEPS_MAX && power < all {
        grid.push(power * 2);
        if power > 1 {
            grid.insert(grid.len() - 1, power + power / 2);
        }
        power *= 2;
    }
    // Multiples beyond all blocks say nothing new, but the one that holds all is of interest.
    grid.retain(|&times| times < all);
    grid.push(all);
    grid
}

/// The least of the whole numbers above `bounds.start`, up to `bounds.end`, that `reaches`, where
/// all from some one on do, `bounds.end` among them. O(log) calls.
///
/// # Errors
/// What `reaches` fails with.
pub fn least<E>(
    bounds: Range<u64>,
    mut reaches: impl FnMut(u64) -> Result<bool, E>,
) -> Result<u64, E> {
    let Range { start: mut low, end: mut high } = bounds;
    while high - low > 1 {
        // Without overflow, however large the sizes are.
        let middle = low + (high - low) / 2;
        if reaches(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wild::WildModel;
    use headstart_core::Nanos;

    /// Three conversations of ten blocks each, in turn, three times.
    fn requests() -> Vec<TraceRequest> {
        let request = |number: u64| TraceRequest {
            arrival: Nanos(number),
            blocks: (number % 3 * 100..number % 3 * 100 + 10).collect(),
            input_tokens: Some(155),
            ..TraceRequest::default()
        };
        (0..9).map(request).collect()
    }

    fn sizing(requests: &[TraceRequest]) -> Sizing<'_> {
        Sizing { requests, cold_requests: 3, block_tokens: 16, device_blocks: 10 }
    }

    #[test]
    fn hits_and_tokens_are_those_of_a_cache_of_that_size() {
        let requests = requests();
        let sizing = sizing(&requests);
        let small = sizing.hits("lru", 10).expect("a policy");
        let large = sizing.hits("lru", 30).expect("a policy");
        assert_eq!(small, [0; 9]);
        assert_eq!(large, [0, 0, 0, 10, 10, 10, 10, 10, 10]);
        let count = sizing.tokens(&large);
        assert_eq!((count.lookups, count.hits), (6 * 155, 6 * 155));
        assert!(sizing.hits("mru", 10).is_err());
    }

    #[test]
    fn a_fast_tier_saves_nearly_all_and_a_slow_one_nothing() {
        let requests = requests();
        let sizing = sizing(&requests);
        let (none, all) = (vec![0; 9], vec![10; 9]);
        let engine = WildModel::ALL[1].engine();
        let lower = |bytes_per_s| Lower {
            speed: AssumedSpeed { latency_s: 0.0, bytes_per_s },
            block_bytes: 16.0 * WildModel::ALL[1].shape.kv_token_bytes(),
        };
        let computed = sizing.computed_s(&none, &engine);
        let fast = sizing.saved_s(&none, &all, &engine, &lower(1e15));
        // 144 of 155 tokens are loaded; what is left takes a step.
        let left = 6.0 * engine.prefill_steps_s(144, 11, Work::default());
        assert!((computed - fast - left).abs() < 1e-6, "{computed} {fast}");
        assert_eq!(sizing.saved_s(&none, &all, &engine, &lower(1e3)), 0.0);
        assert_eq!(sizing.saved_s(&all, &all, &engine, &lower(1e15)), 0.0);
    }

    #[test]
    fn grids_end_where_all_fits() {
        let check = |device, distinct, expected: &[u64]| {
            assert_eq!(grid(device, distinct), expected, "{device} {distinct}");
        };
        check(10, 5, &[1]);
        check(10, 30, &[1, 2, 3]);
        check(10, 61, &[1, 2, 3, 4, 6, 7]);
        check(10, 160, &[1, 2, 3, 4, 6, 8, 12, 16]);
        assert!(grid(1, u64::MAX).len() <= STEPS_MAX + 2);
    }

    #[test]
    fn the_least_that_reaches_is_found() {
        for answer in 3..=40 {
            let reaches = |times| Ok::<_, ()>(times >= answer);
            assert_eq!(least(2..40, reaches), Ok(answer));
        }
    }
}
