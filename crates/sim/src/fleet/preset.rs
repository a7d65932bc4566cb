//! Published runs, to stand beside ours: llm-d's two capacity runs; and one for a laptop.
//!
//! | | 73 % | 37 % |
//! |---|---|---|
//! | model | Qwen3-32B | Llama 3.1 70B |
//! | replicas | 8 of two H100 | 4 of four H100 |
//! | system prompts × questions | 150 × 5 | 83 × 3 |
//! | tokens | 6,000 + 1,200 in, 1,000 out | 8,000 + 1,000 in, 1,000 out |
//! | arrivals | Poisson | evenly spaced |
//! | weights (prefix, queue, KV) | precise 3, 2, 2; approximate 1, 1, 1 | 2, 1, 1 |
//!
//! The engine is calibrated once, on two rungs of one strategy of the first run; the second run's
//! engine is derived from it by the data sheets.
//!
//! The laptop's is the first run made small, so that an emulated fleet can serve it for real: all
//! lengths and the memory are divided by 12.5, what a token costs is multiplied by it, so that a
//! prompt takes as long as before. All system prompts together take three times the memory of a
//! replica, all prompts together six times.

mod published;

use std::time::Duration;

use headstart_core::{CostModel, EngineModel, Rng};
use headstart_router::Profile;
use headstart_router::profile::ScorerKind;
use headstart_scheduler::{QueueOrder, SchedulerConfig};

use super::config::{FleetConfig, Network, Slo};
use super::ladder::{Ladder, Order, RequestPacing};
use super::replica::ReplicaSpec;
use super::workload::FleetWorkload;
use crate::cost::qwen3_32b_fp8_on_h100;

pub use published::PublishedRung;

/// A published run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetPreset {
    /// llm-d's "73 %" capacity run.
    LlmD73,
    /// llm-d's "37 %" capacity run.
    LlmD37,
    /// The 73 % run, small enough to be served by an emulated fleet on a laptop.
    Laptop,
}

/// Tokens per block in both runs.
const BLOCK_SIZE: usize = 64;

/// vLLM's defaults on an H100.
const MAX_BATCHED_TOKENS: usize = 8_192;
const MAX_SEQUENCES: usize = 1_024;

/// No request is refused for the queue's length.
const MAX_WAITING: usize = 1 << 20;

/// Pause of the load generator between two rungs.
const PAUSE: Duration = Duration::from_secs(1);

/// Constants fitted to the precise run's rungs of 20 and 60 requests/s, without any other rung or
/// strategy: `cargo run --release -p headstart-sim --example fit_fleet -- 400 1.1`.
///
/// These rungs do not determine the memory: from 1.0 to 1.25 times the published one the other four
/// fit them equally well (error 0.067 to 0.078). It is the one with which the precise run as a
/// whole uses as much of it as was published, 59.3 % on average; ours then uses 60.5 %.
pub mod fitted {
    /// Seconds for the layers of one token.
    pub const TOKEN_S: f64 = 72.1e-6;
    /// Seconds of overhead per step.
    pub const OVERHEAD_S: f64 = 17.05e-3;
    /// Seconds for reading the keys and values of one token.
    pub const KV_TOKEN_S: f64 = 23.96e-9;
    /// Seconds that a request takes beside the engine, on average.
    pub const LATENCY_S: f64 = 0.281;
    /// Memory of a replica over the published one.
    pub const MEMORY: f64 = 1.1;
}

impl FleetPreset {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::LlmD73, Self::LlmD37, Self::Laptop];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LlmD73 => "llm-d-73",
            Self::LlmD37 => "llm-d-37",
            Self::Laptop => "laptop",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }

    /// Draws the preset's requests from a seed.
    #[must_use]
    pub fn workload(self, seed: u64) -> FleetWorkload {
        self.ladder().draw(&mut Rng::new(seed))
    }

    /// Returns the prompts and request rates. The first rung fills the caches.
    #[must_use]
    pub fn ladder(self) -> Ladder {
        match self {
            Self::LlmD73 => Ladder {
                groups: 150,
                prompts: 5,
                system_tokens: 6_000,
                question_tokens: 1_200,
                answer_tokens: 1_000,
                order: Order::InTurn,
                pacing: RequestPacing::Poisson,
                rungs: vec![
                    (15.0, 50.0),
                    (3.0, 20.0),
                    (10.0, 20.0),
                    (15.0, 20.0),
                    (20.0, 38.0),
                    (22.0, 34.0),
                    (25.0, 30.0),
                    (30.0, 25.0),
                    (35.0, 21.0),
                    (40.0, 38.0),
                    (43.0, 36.0),
                    (46.0, 33.0),
                    (49.0, 30.0),
                    (52.0, 29.0),
                    (55.0, 27.0),
                    (57.0, 26.0),
                    (60.0, 25.0),
                ],
            },
            Self::LlmD37 => Ladder {
                groups: 83,
                prompts: 3,
                system_tokens: 8_000,
                question_tokens: 1_000,
                answer_tokens: 1_000,
                order: Order::InTurn,
                pacing: RequestPacing::Even,
                rungs: vec![
                    (9.0, 30.0),
                    (3.0, 210.0),
                    (4.0, 180.0),
                    (5.0, 120.0),
                    (6.0, 120.0),
                    (8.0, 90.0),
                    (10.0, 70.0),
                    (12.0, 60.0),
                    (15.0, 50.0),
                    (20.0, 50.0),
                ],
            },
            Self::Laptop => Ladder {
                system_tokens: 480,
                question_tokens: 96,
                answer_tokens: 80,
                rungs: vec![(8.0, 60.0), (4.0, 60.0), (6.0, 60.0), (9.0, 60.0)],
                ..Self::LlmD73.ladder()
            },
        }
    }

    /// The strategies that are run: those of the published runs, as they were configured there
    /// (precise, approximate, load, random).
    #[must_use]
    pub fn profiles(self) -> Vec<Profile> {
        let names = ["llm-d-precise", "llm-d-approximate", "llm-d-load", "random"];
        let known = names.map(|name| name.parse::<Profile>().expect("a known profile"));
        let mut profiles = known.to_vec();
        if self == Self::LlmD37 {
            // The first two score prefixes: precise and approximate.
            for profile in &mut profiles[..2] {
                for (kind, weight) in &mut profile.scorers {
                    let is_prefix = matches!(kind, ScorerKind::Prefix { .. });
                    *weight = if is_prefix { 2.0 } else { 1.0 };
                }
            }
        }
        profiles
    }

    /// Returns the published figures of all rungs but the first.
    #[must_use]
    pub fn published(self) -> &'static [PublishedRung] {
        match self {
            Self::LlmD73 => &published::RUN_73,
            Self::LlmD37 => &published::RUN_37,
            Self::Laptop => &[],
        }
    }

    /// Returns the cost model of the engine's steps by the data sheets alone.
    #[must_use]
    pub fn roofline(self) -> CostModel {
        let base = qwen3_32b_fp8_on_h100();
        match self {
            // Twice the bytes of weights on twice the GPUs, and the same keys and values.
            Self::LlmD73 => {
                CostModel { pair_s: base.pair_s / 2.0, kv_token_s: base.kv_token_s / 2.0, ..base }
            }
            Self::LlmD37 => CostModel {
                weights_s: base.weights_s * LLAMA_WEIGHTS,
                token_s: base.token_s * LLAMA_WEIGHTS,
                // Two GPUs share the pairs of the base, and Llama has more of them.
                pair_s: base.pair_s / 2.0 * LLAMA_PAIRS,
                kv_token_s: base.kv_token_s / 2.0 * LLAMA_KV,
                ..base
            },
            Self::Laptop => small(Self::LlmD73.roofline()),
        }
    }

    /// Returns the calibrated cost model of the engine's steps.
    #[must_use]
    pub fn cost(self) -> CostModel {
        let (layers, kv) = match self {
            Self::LlmD73 => (1.0, 1.0),
            Self::LlmD37 => (LLAMA_WEIGHTS, LLAMA_KV),
            Self::Laptop => return small(Self::LlmD73.cost()),
        };
        CostModel {
            token_s: fitted::TOKEN_S * layers,
            overhead_s: fitted::OVERHEAD_S,
            kv_token_s: fitted::KV_TOKEN_S * kv,
            ..self.roofline()
        }
    }

    /// Tokens that fit the KV memory of a replica, as published.
    #[must_use]
    pub fn published_kv_tokens(self) -> f64 {
        match self {
            Self::LlmD73 => 307_328.0,
            Self::LlmD37 => 461_376.0,
            Self::Laptop => LAPTOP_KV_TOKENS as f64,
        }
    }

    /// Tokens that fit the KV memory of a replica.
    #[must_use]
    pub fn kv_tokens(self) -> usize {
        if self == Self::Laptop {
            return LAPTOP_KV_TOKENS;
        }
        // Fitted memory: the published figure does not explain the published usage.
        (self.published_kv_tokens() * fitted::MEMORY) as usize
    }

    /// Returns the model of one of its engines, for predictions.
    #[must_use]
    pub fn engine(self) -> EngineModel {
        self.replica().engine()
    }

    /// One of its replicas.
    fn replica(self) -> ReplicaSpec {
        let is_small = self == Self::Laptop;
        let block_size = if is_small { 16 } else { BLOCK_SIZE };
        ReplicaSpec {
            cost: self.cost(),
            scheduler: SchedulerConfig {
                // Smaller by the factor of the prompts, so that a prompt takes as many steps as
                // before.
                max_batched_tokens: if is_small {
                    (MAX_BATCHED_TOKENS as f64 / SMALLER) as usize
                } else {
                    MAX_BATCHED_TOKENS
                },
                max_sequences: if is_small { LAPTOP_SEQUENCES } else { MAX_SEQUENCES },
                max_waiting: MAX_WAITING,
                max_context: if is_small { LAPTOP_KV_TOKENS } else { 40_960 },
                block_size,
                order: QueueOrder::FirstCome,
            },
            capacity_blocks: self.kv_tokens() / block_size,
        }
    }

    /// Returns the preset's replicas and gateways.
    #[must_use]
    pub fn fleet(self, profile: Profile) -> FleetConfig {
        let (replicas, latency_s) = match self {
            Self::LlmD73 => (8, fitted::LATENCY_S),
            Self::LlmD37 => (4, fitted::LATENCY_S),
            Self::Laptop => (4, LAPTOP_LATENCY_S),
        };
        FleetConfig {
            replicas: vec![self.replica(); replicas],
            gateways: 1,
            // As the engines of the published runs.
            policy: "lru".to_owned(),
            profile,
            seed: 1,
            network: Network {
                request_latency: Duration::from_secs_f64(latency_s),
                ..Network::default()
            },
            pause: PAUSE,
            slo: Slo::default(),
            faults: Vec::new(),
        }
    }
}

/// Factor by which the laptop's run is smaller.
const SMALLER: f64 = 12.5;

/// A third of its system prompts: 150 of 480 tokens.
const LAPTOP_KV_TOKENS: usize = 24_000;

/// Fewer than the tokens of a step, so that all can decode in one.
const LAPTOP_SEQUENCES: usize = 256;

/// Time of a request beside an emulated engine on the same machine, seconds.
const LAPTOP_LATENCY_S: f64 = 0.003;

/// Scales the costs to [`SMALLER`] times fewer tokens.
fn small(cost: CostModel) -> CostModel {
    CostModel {
        token_s: cost.token_s * SMALLER,
        pair_s: cost.pair_s * SMALLER * SMALLER,
        kv_token_s: cost.kv_token_s * SMALLER,
        ..cost
    }
}

/// Llama 3.1 70B on four GPUs against Qwen3-32B on two, per GPU: parameters (70.6 G / 4 over
/// 32.8 G / 2), bytes of keys and values (80 layers over 64, as many heads, half the share per
/// GPU), pairs (as many query heads, 80 layers over 64, half the share).
const LLAMA_WEIGHTS: f64 = 70.6 / 4.0 / (32.8 / 2.0);
const LLAMA_KV: f64 = 80.0 / 64.0 / 2.0;
const LLAMA_PAIRS: f64 = 80.0 / 64.0 / 2.0;
