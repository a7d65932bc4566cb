//! One run of the evaluation: a model, so much host memory, a policy for device and host.

use std::time::Duration;

use headstart_cache::policy::{self, PolicyError};
use headstart_cache::tiers::{
    Admission, AssumedSpeed, LoadWhen, Shares, TierConfig, TierCounts, Tiers, TiersConfig,
    WriteWhen,
};
use headstart_cache::{Policy, PrefixCache};
use headstart_core::stats::{HitCount, Summary};
use headstart_core::{Access, Nanos, Tier, TokenId, TraceRequest};
use headstart_scheduler::{QueueOrder, SchedulerConfig};
use headstart_trace::materialize::{Materialization, Materializer, MaterializerConfig, OverLong};

use headstart_sim::wild::WildModel;
use headstart_sim::{Channel, SimMover, TieredOutcome, TieredReplica, TieredRequest};

/// Most sequences at once: vLLM's default on the study's GPUs.
const MAX_SEQUENCES: usize = 256;

/// Most requests that wait: some hundred megabytes of prompts in ours.
const MAX_WAITING: usize = 1 << 14;

/// Longest prompt, tokens: what an agent's longest takes.
const MAX_PROMPT_TOKENS: u32 = 1 << 20;

/// Seconds until the first byte over PCIe.
const PCIE_LATENCY_S: f64 = 20e-6;

/// Tokens a unit between device and host should have: what serve stores at once. With units of
/// one block the limit of transfers under way (256 stores) would lose some of what the device
/// evicts in one step, where a long prompt comes back from the host.
const UNIT_TOKENS: u32 = 64;

/// Settings common to all cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WildSettings {
    /// Tokens a block.
    pub(crate) block_tokens: u32,
    /// Requests that arrive before this are served and not counted.
    pub(crate) warm_up: Nanos,
}

/// A model, a policy and a size of the host memory: one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WildCell<'a> {
    /// The model on its GPUs.
    pub(crate) model: WildModel,
    /// The policy of device and host, with its options.
    pub(crate) policy: &'a str,
    /// Host memory over the device's; 0 for none.
    pub(crate) host_times: f64,
}

/// Measurements of the requests that count.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WildMeasurements {
    /// Blocks of prompts, and those not computed.
    pub(crate) blocks: HitCount,
    /// Tokens of prompts, and those not computed.
    pub(crate) tokens: HitCount,
    /// Tokens of these that were found on the device.
    pub(crate) device_tokens: u64,
    /// From arrival to the first token, seconds: queueing and prefill.
    pub(crate) qttft_s: Summary,
    /// Requests that were not served: longer than the device's memory, or the queue was full.
    pub(crate) refused: u64,
    /// Counters of the host tier over the whole run.
    pub(crate) host: TierCounts,
}

impl WildCell<'_> {
    /// Blocks that fit the device.
    #[must_use]
    pub(crate) fn device_blocks(&self, block_tokens: u32) -> usize {
        self.model.engine().kv_tokens / block_tokens as usize
    }

    /// Serves `requests`, which come in order of arrival.
    ///
    /// # Errors
    /// When there is no such policy.
    ///
    /// # Panics
    /// When a block has fewer than three tokens, too few to tell blocks apart.
    pub(crate) fn run(
        &self,
        requests: &[TraceRequest],
        setting: &WildSettings,
    ) -> Result<WildMeasurements, PolicyError> {
        let mut replica = self.replica(setting)?;
        let mut materializer = Materializer::new(MaterializerConfig {
            trace_block_tokens: setting.block_tokens,
            block_tokens: setting.block_tokens,
            vocabulary: 0..TokenId::MAX,
            seed: 1,
            max_prompt_tokens: MAX_PROMPT_TOKENS,
            // Cut: a trace's longest prompts must not end the run.
            over_long: OverLong::Cut,
            // As in the study's code, requests only prefill.
            output_tokens: Some(1),
        })
        .expect("blocks differ");
        let mut arrivals = Vec::new();
        let served = requests.iter().filter_map(|request| {
            let served = prefill_only(&mut materializer, request)?;
            arrivals.push(request.arrival);
            Some(served)
        });
        let outcomes = replica.serve_each(served);
        let counted = arrivals.iter().zip(&outcomes);
        let counted = counted.filter(|(arrival, _)| **arrival >= setting.warm_up);
        let counted = counted.map(|(_, outcome)| outcome);
        let host = replica.tiers().summary();
        let host = host.first().map_or_else(TierCounts::default, |tier| tier.counts);
        Ok(WildMeasurements::of(counted, setting.block_tokens, host))
    }

    fn replica(&self, setting: &WildSettings) -> Result<TieredReplica, PolicyError> {
        let engine = self.model.engine();
        let block_tokens = setting.block_tokens as usize;
        let blocks = self.device_blocks(setting.block_tokens);
        let scheduler = SchedulerConfig {
            max_batched_tokens: engine.max_batched_tokens,
            max_sequences: MAX_SEQUENCES,
            max_waiting: MAX_WAITING,
            // Room for the one token of the answer.
            max_context: MAX_PROMPT_TOKENS as usize + 1,
            block_size: block_tokens,
            order: QueueOrder::FirstCome,
        };
        // A unit has at least one block, also where blocks are larger than units.
        let unit_blocks = (UNIT_TOKENS / setting.block_tokens).max(1) as usize;
        let token_bytes = self.model.shape.kv_token_bytes();
        let unit_bytes = (token_bytes * (block_tokens * unit_blocks) as f64) as u64;
        let config = TiersConfig {
            unit_blocks,
            block_tokens,
            unit_bytes,
            most_at_hand: blocks / unit_blocks,
            engine,
            load: LoadWhen::Faster,
        };
        // Whole units, rounded down: the host has no room for a part of one.
        let units = (blocks as f64 * self.host_times) as usize / unit_blocks;
        let bytes_per_s = self.model.host_bytes_per_s();
        let mut tiers = Vec::new();
        if units > 0 {
            tiers.push(TierConfig {
                tier: Tier::Host,
                capacity_units: units,
                policy: self.policy(units, setting.block_tokens * unit_blocks as u32)?,
                admission: Admission::Always,
                // The host takes in what the device evicts.
                write: WriteWhen::Back,
                shares: Shares::default(),
                assumed: AssumedSpeed { latency_s: PCIE_LATENCY_S, bytes_per_s },
            });
        }
        let channel = Channel { latency: Duration::from_secs_f64(PCIE_LATENCY_S), bytes_per_s };
        let cache = PrefixCache::new(blocks, self.policy(blocks, setting.block_tokens)?);
        Ok(TieredReplica::new(
            scheduler,
            cache,
            engine.cost,
            Tiers::new(config, tiers),
            SimMover::new(unit_bytes, &[(Tier::Host, channel)]),
        ))
    }

    fn policy(&self, capacity: usize, block_tokens: u32) -> Result<Box<dyn Policy>, PolicyError> {
        let setting = policy::Setting { capacity, block_tokens };
        policy::by_name(self.policy, setting)
    }
}

/// The request with tokens and one token of answer; none for one without tokens.
fn prefill_only(
    materializer: &mut Materializer,
    request: &TraceRequest,
) -> Option<(TieredRequest, Access)> {
    let Materialization::Prompt(prompt) = materializer.next(request) else {
        return None;
    };
    let served = TieredRequest {
        arrival: request.arrival,
        prompt: prompt.tokens,
        answer_tokens: 1,
        session: request.session,
    };
    let access = Access {
        request_type: request.request_type,
        turn: request.turn,
        session: request.session,
        p_continue: request.p_continue,
        ..Access::default()
    };
    Some((served, access))
}

impl WildMeasurements {
    fn of<'a>(
        outcomes: impl Iterator<Item = &'a TieredOutcome>,
        block_tokens: u32,
        host: TierCounts,
    ) -> Self {
        let block_tokens = block_tokens as usize;
        let mut measured = Self { host, ..Self::default() };
        let mut qttft_s = Vec::new();
        for outcome in outcomes {
            // A refused request has no time to its first token. It is counted apart.
            if !outcome.is_answered {
                measured.refused += 1;
                continue;
            }
            let loaded: usize = outcome.loaded_tokens.values().sum();
            let hits = outcome.device_tokens + loaded;
            // A partial last block is a block of the prompt, which never hits.
            let prompt_blocks = outcome.prompt_tokens.div_ceil(block_tokens);
            measured.blocks.record(prompt_blocks, hits / block_tokens);
            measured.tokens.record(outcome.prompt_tokens, hits);
            measured.device_tokens += outcome.device_tokens as u64;
            qttft_s.push(outcome.ttft.as_secs_f64());
        }
        measured.qttft_s = Summary::of(&mut qttft_s);
        measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_memory::traffic::{BLOCK_TOKENS, LoadTarget, WildTraffic};

    const ASKED: LoadTarget = LoadTarget { load: 1.0, seconds: 600.0, warm_up_s: 300.0 };

    fn run(policy: &str, host_times: f64) -> WildMeasurements {
        let model = WildModel::find("llama2-13b").expect("one of the three");
        let cell = WildCell { model, policy, host_times };
        let setting = WildSettings {
            block_tokens: BLOCK_TOKENS,
            warm_up: Nanos::from_secs_f64(ASKED.warm_up_s),
        };
        let requests = WildTraffic::ALL[0].draw(&model, &ASKED, 1);
        let requests = requests.expect("it is long enough");
        cell.run(&requests, &setting).expect("a known policy")
    }

    #[test]
    fn host_memory_is_another_place_to_find_things_and_saves_time() {
        let (none, much) = (run("lru", 0.0), run("lru", 4.0));
        assert_eq!((none.host.stored, none.host.loaded), (0, 0));
        assert_eq!(none.tokens.hits, none.device_tokens);
        assert!(much.host.loaded > 0 && much.tokens.hits > much.device_tokens);
        assert_eq!(none.tokens.lookups, much.tokens.lookups);
        assert!(much.blocks.rate() > none.blocks.rate());
        assert!(much.qttft_s.mean < none.qttft_s.mean);
        assert_eq!(much, run("lru", 4.0), "the same again");
    }

    #[test]
    fn policies_reach_device_and_host() {
        let rate = |policy| run(policy, 2.0).blocks.rate();
        assert_ne!(rate("lru"), rate("lfu"));
        let unknown = WildCell { model: WildModel::ALL[0], policy: "mru", host_times: 0.0 };
        let setting = WildSettings { block_tokens: BLOCK_TOKENS, warm_up: Nanos::default() };
        assert!(unknown.run(&[], &setting).is_err());
    }

    #[test]
    fn prompts_beyond_the_memory_are_refused_and_counted() {
        let model = WildModel::find("llama2-13b").expect("one of the three");
        let request = |tokens: u32| TraceRequest {
            blocks: (0..u64::from(tokens.div_ceil(16))).collect(),
            input_tokens: Some(tokens),
            ..TraceRequest::default()
        };
        let setting = WildSettings { block_tokens: BLOCK_TOKENS, warm_up: Nanos::default() };
        let cell = WildCell { model, policy: "lru", host_times: 1.0 };
        let requests = [request(1_000), request(90_000), request(0)];
        let measured = cell.run(&requests, &setting).expect("a known policy");
        assert_eq!((measured.refused, measured.qttft_s.count), (1, 1));
    }
}
