//! Policies × capacities over one trace in memory.
//!
//! A [`Sweep`] holds what the cells of the table share: the requests, what an infinite cache would
//! hit, and the future for those policies that read it. Each cell is a [`Replay`] of its own, so
//! several threads may each [`run`](Sweep::run) one.

use std::collections::BTreeMap;
use std::sync::Arc;

use headstart_cache::Future;
use headstart_cache::policy::{self, OFFLINE_NAMES, PolicyError, Setting};
use headstart_core::{Probability, Run, TraceRequest};

use crate::{Replay, ReplayConfig, ReplayOutcome};

/// Requests served between two calls of the observer.
const OBSERVED_EVERY: usize = 256;

/// A trace to be replayed many times.
pub struct Sweep<'a> {
    requests: &'a [TraceRequest],
    config: SweepConfig,
    extent: Extent,
    /// Future of the requests, if one of the policies reads it.
    future: Option<Arc<Future>>,
}

/// One cell: a policy at a capacity.
#[derive(Clone, Copy, Debug)]
pub struct SweepCell<'a> {
    /// The policy with its options; `charge=TOKENS` among them is taken off the capacity, see
    /// [`policy::split_charge`].
    pub spec: &'a str,
    /// In blocks.
    pub capacity: u64,
    /// One per request, instead of what the requests carry.
    pub predictions: Option<&'a [Option<Probability>]>,
}

/// Settings of the counts of all cells; see [`ReplayConfig`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepConfig {
    /// Tokens per block.
    pub block_tokens: u32,
    /// Number of first requests that are counted apart, as cold.
    pub cold_requests: u32,
}

/// Distinct blocks of a trace, and its hits in an infinite cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Different blocks.
    pub distinct_blocks: u64,
    /// Hits of a cache that never evicts.
    pub infinite: ReplayOutcome,
}

impl<'a> Sweep<'a> {
    /// Prepares to replay `requests` under the policies that `specs` name.
    ///
    /// # Errors
    /// [`PolicyError`] when one of them cannot be made.
    pub fn new(
        requests: &'a [TraceRequest],
        config: SweepConfig,
        specs: &[String],
    ) -> Result<Self, PolicyError> {
        // All specs are checked first: a sweep takes long, and a typo must not end it late.
        specs.iter().try_for_each(|spec| known(spec))?;
        let is_offline = |spec: &String| OFFLINE_NAMES.contains(&name(spec));
        let reads_future = specs.iter().any(is_offline);
        // Built only if a policy reads it, because it has an entry per reference.
        let future = reads_future.then(|| Arc::new(Future::of(requests)));
        Ok(Self { requests, config, extent: Extent::of(requests, config), future })
    }

    /// Returns the trace's distinct blocks and its hits in an infinite cache.
    #[must_use]
    pub fn extent(&self) -> &Extent {
        &self.extent
    }

    /// The slots that a cache of `capacity` blocks is given: more than there are blocks would
    /// change nothing.
    #[must_use]
    pub fn room(&self, capacity: u64) -> u64 {
        // Slots cost memory, and a trace cannot fill more than it has blocks.
        capacity.min(self.extent.distinct_blocks)
    }

    /// Replays the trace as `arm` says, and tells `observe` every now and then how many more
    /// requests were served.
    ///
    /// # Errors
    /// [`PolicyError`] when the policy was not among those that the sweep was made for.
    ///
    /// # Panics
    /// When the room is 2^32 - 2 blocks or more, or when there are not as many predictions as
    /// requests.
    pub fn run(
        &self,
        arm: SweepCell<'_>,
        mut observe: impl FnMut(usize),
    ) -> Result<ReplayOutcome, PolicyError> {
        let mut replay = self.replay(arm)?;
        let num_predicted = arm.predictions.map(<[_]>::len);
        let is_complete = num_predicted.is_none_or(|number| number == self.requests.len());
        assert!(is_complete, "there is a prediction per request");
        for (chunk, requests) in self.requests.chunks(OBSERVED_EVERY).enumerate() {
            for (index, request) in (chunk * OBSERVED_EVERY..).zip(requests) {
                let told = arm.predictions.map(|predictions| predictions[index]);
                replay.serve_predicted(request, told.unwrap_or(request.p_continue));
            }
            observe(requests.len());
        }
        replay.check();
        Ok(replay.into_outcome())
    }

    /// An empty cache for `arm`, less what the policy is charged.
    fn replay(&self, arm: SweepCell<'_>) -> Result<Replay, PolicyError> {
        let block_tokens = self.config.block_tokens;
        let (spec, charge) = policy::split_charge(arm.spec, block_tokens)?;
        let left = arm.capacity.saturating_sub(charge as u64);
        let capacity = usize::try_from(self.room(left)).unwrap_or(usize::MAX);
        let setting = Setting { capacity, block_tokens };
        let policy = match &self.future {
            Some(future) => policy::offline(&spec, setting, future)?,
            None => policy::by_name(&spec, setting)?,
        };
        let config =
            ReplayConfig { capacity, block_tokens, cold_requests: self.config.cold_requests };
        Ok(Replay::with_config(config, policy))
    }
}

impl Extent {
    /// Reads all requests once, by runs.
    fn of(requests: &[TraceRequest], config: SweepConfig) -> Self {
        let mut seen = SeenIds::default();
        let mut infinite = ReplayOutcome::default();
        for (index, request) in requests.iter().enumerate() {
            // Before the blocks are added: a request does not hit itself.
            let hits = seen.leading(request.blocks.runs());
            request.blocks.runs().iter().for_each(|run| seen.add(run));
            let is_cold = index < config.cold_requests as usize;
            infinite.record(request, hits, config.block_tokens, is_cold);
        }
        let ranges = seen.0.iter();
        let distinct_blocks = ranges.map(|(start, end)| end - start).sum();
        infinite.insertions = distinct_blocks;
        Self { distinct_blocks, infinite }
    }
}

/// Ids that occurred, as disjoint ranges that do not touch: first id → one past the last.
#[derive(Default)]
struct SeenIds(BTreeMap<u64, u64>);

impl SeenIds {
    /// Counts the ids of `runs` that were seen, up to the first one that was not.
    fn leading(&self, runs: &[Run]) -> usize {
        let mut leading = 0;
        for run in runs {
            let end = run.start + u64::from(run.count);
            let range = self.0.range(..=run.start).next_back();
            // A range that starts earlier may end before the run begins.
            let until = range.map_or(run.start, |(_, &until)| until.clamp(run.start, end));
            leading += (until - run.start) as usize;
            if until < end {
                break;
            }
        }
        leading
    }

    fn add(&mut self, run: &Run) {
        let (mut start, mut end) = (run.start, run.start + u64::from(run.count));
        // From the last range to the first that meets the run.
        while let Some((&first, &until)) = self.0.range(..=end).next_back() {
            if until < start {
                break;
            }
            // The run is known already, and nothing changes.
            if first <= start && end <= until {
                return;
            }
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(until));
        }
        self.0.insert(start, end);
    }
}

fn known(spec: &str) -> Result<(), PolicyError> {
    let setting = Setting { capacity: 1, block_tokens: 1 };
    let (spec, _) = policy::split_charge(spec, setting.block_tokens)?;
    policy::offline(&spec, setting, &Arc::default()).map(drop)
}

fn name(spec: &str) -> &str {
    spec.split(':').next().unwrap_or(spec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::{Nanos, Rng};
    use std::collections::HashSet;

    fn requests(seed: u64) -> Vec<TraceRequest> {
        let mut rng = Rng::new(seed);
        let ids = 1 + rng.below(60);
        let request = |index| TraceRequest {
            arrival: Nanos(index),
            blocks: (0..1 + rng.below(4))
                .flat_map(|_| {
                    let start = rng.below(ids) as u64;
                    start..start + 1 + rng.below(5) as u64
                })
                .collect(),
            turn: rng.below(3) as u16,
            ..TraceRequest::default()
        };
        (0..40).map(request).collect()
    }

    fn arm(spec: &str, capacity: u64) -> SweepCell<'_> {
        SweepCell { spec, capacity, predictions: None }
    }

    #[test]
    fn a_charge_is_a_smaller_cache() {
        let config = SweepConfig { block_tokens: 16, cold_requests: 0 };
        let specs = ["lru", "lru:charge=50", "belady:charge=50", "belady"].map(str::to_owned);
        for seed in 0..20 {
            let requests = requests(seed);
            let sweep = Sweep::new(&requests, config, &specs).expect("known policies");
            for name in ["lru", "belady"] {
                let run = |arm| sweep.run(arm, |_| ()).expect("a known policy");
                // 50 tokens are four blocks in part.
                let charged = format!("{name}:charge=50");
                assert_eq!(run(arm(&charged, 20)), run(arm(name, 16)), "seed {seed}");
                assert_eq!(run(arm(&charged, 3)).all().blocks.hits, 0, "seed {seed}");
            }
        }
    }

    #[test]
    fn predictions_stand_for_what_the_requests_carry() {
        let mut differ = 0;
        for seed in 0..20 {
            let mut requests = requests(seed);
            let mut rng = Rng::new(!seed);
            let draw = |_: &_| Probability::new(rng.next_f64());
            let drawn: Vec<_> = requests.iter().map(draw).collect();
            let specs = ["lpc".to_owned(), "lru".to_owned()];
            let run = |requests: &[TraceRequest], spec, predictions| {
                let sweep = Sweep::new(requests, SweepConfig::default(), &specs);
                let arm = SweepCell { predictions, ..arm(spec, 12) };
                sweep.expect("known").run(arm, |_| ()).expect("a known policy")
            };
            let told = run(&requests, "lpc", Some(&drawn));
            assert_eq!(run(&requests, "lpc", None), run(&requests, "lru", None));
            for (request, p_continue) in requests.iter_mut().zip(&drawn) {
                request.p_continue = *p_continue;
            }
            assert_eq!(run(&requests, "lpc", None), told, "seed {seed}");
            assert_eq!(run(&requests, "lru", None), run(&requests, "lru", Some(&drawn)));
            differ += usize::from(told != run(&requests, "lru", None));
        }
        assert!(differ > 10, "{differ} of 20");
    }

    #[test]
    fn an_infinite_cache_is_one_with_room_for_every_block() {
        let config = SweepConfig { block_tokens: 16, cold_requests: 10 };
        for seed in 0..100 {
            let requests = requests(seed);
            let specs = ["lru".to_owned(), "belady".to_owned()];
            let sweep = Sweep::new(&requests, config, &specs).expect("known policies");
            let ids = requests.iter().flat_map(|request| request.blocks.iter());
            let distinct = ids.collect::<HashSet<_>>().len() as u64;
            assert_eq!(sweep.extent().distinct_blocks, distinct, "seed {seed}");
            for (spec, capacity) in [("lru", distinct), ("belady", u64::MAX)] {
                let mut served = 0;
                let outcome = sweep.run(arm(spec, capacity), |more| served += more);
                assert_eq!(outcome.as_ref(), Ok(&sweep.extent().infinite), "seed {seed}");
                assert_eq!(served, requests.len());
            }
        }
    }

    #[test]
    fn a_policy_that_cannot_be_made_is_an_error_before_anything_runs() {
        let check = |spec: &str, is_known: bool| {
            let sweep = Sweep::new(&[], SweepConfig::default(), &[spec.to_owned()]);
            assert_eq!(sweep.is_ok(), is_known, "{spec}");
        };
        check("lru", true);
        check("s3fifo:small=0.2", true);
        check("belady-bypass", true);
        check("mru", false);
        check("s3fifo:small=2", false);
        check("lpc:charge=16000:no-decay", true);
        check("belady:charge=1", true);
        check("lpc:charge=-1", false);
    }
}
