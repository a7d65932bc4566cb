//! Engines by their data sheets: what a model's shape and a GPU's two roofs allow.
//!
//! Derived, not measured: shares of the roofs that engines reach are our choice, the same for all,
//! and overhead is a guess. Good for orders of magnitude and for comparing; `headstart calibrate`
//! measures. Sources: models, their `config.json` and cards; GPUs, NVIDIA's and AMD's data sheets
//! (dense bfloat16, SXM or OAM where there are several).

use super::{CostModel, EngineModel};

/// A transformer, as far as its cost goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelShape {
    /// By which it is known here.
    pub name: &'static str,
    /// Parameters that a token meets: of a mixture of experts those that are active.
    pub active_parameters: f64,
    /// Parameters in memory.
    pub parameters: f64,
    /// Layers.
    pub layers: f64,
    /// Query heads.
    pub query_heads: f64,
    /// Heads of keys and values.
    pub kv_heads: f64,
    /// Values per head.
    pub head_values: f64,
    /// Bytes of a parameter; keys and values have two a value.
    pub parameter_bytes: f64,
}

/// A GPU's roofs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    /// By which it is known here.
    pub name: &'static str,
    /// FLOP per second, dense, bfloat16.
    pub flops: f64,
    /// Memory bandwidth, bytes per second.
    pub bandwidth: f64,
    /// Memory, bytes.
    pub memory: f64,
    /// Whether it computes with eight-bit numbers, at twice the rate.
    pub has_fp8: bool,
}

/// Shares of the roofs that engines reach.
const FLOPS_SHARE: f64 = 0.4;
const BANDWIDTH_SHARE: f64 = 0.8;

/// Share of the memory that vLLM takes unless told otherwise.
const MEMORY_SHARE: f64 = 0.9;

/// PCIe 5 with 16 lanes, half of it reached, bytes per second.
const HOST_BANDWIDTH: f64 = 32e9;

/// A step's own time: scheduling and launching. Our guess.
const OVERHEAD_S: f64 = 5e-3;

/// Most tokens that a step computes: vLLM's defaults on large GPUs and on others.
const MAX_BATCHED_TOKENS: usize = 8_192;
const MAX_BATCHED_TOKENS_SMALL: usize = 2_048;

/// Bandwidth of a large GPU at least, bytes per second: an H100's.
const LARGE: f64 = 3e12;

/// Bytes of a key's or a value's number.
const KV_BYTES: f64 = 2.0;

impl ModelShape {
    /// Models that are known by name.
    pub const KNOWN: [Self; 7] = [
        Self::dense("llama-3.1-8b", 8.03e9, 32.0, 32.0, 8.0),
        Self::dense("llama-3.1-70b", 70.6e9, 80.0, 64.0, 8.0),
        Self::dense("qwen3-8b", 8.2e9, 36.0, 32.0, 8.0),
        Self::dense("qwen3-14b", 14.8e9, 40.0, 40.0, 8.0),
        Self::dense("qwen3-32b", 32.8e9, 64.0, 64.0, 8.0),
        Self {
            name: "qwen3-32b-fp8",
            parameter_bytes: 1.0,
            ..Self::dense("", 32.8e9, 64.0, 64.0, 8.0)
        },
        Self {
            name: "qwen3-30b-a3b",
            active_parameters: 3.3e9,
            kv_heads: 4.0,
            ..Self::dense("", 30.5e9, 48.0, 32.0, 4.0)
        },
    ];

    /// A model that is not of experts, whose parameters have 16 bits.
    const fn dense(
        name: &'static str,
        parameters: f64,
        layers: f64,
        query_heads: f64,
        kv_heads: f64,
    ) -> Self {
        Self {
            name,
            active_parameters: parameters,
            parameters,
            layers,
            query_heads,
            kv_heads,
            head_values: 128.0,
            parameter_bytes: 2.0,
        }
    }

    /// Bytes of the keys and values of one token.
    #[must_use]
    pub fn kv_token_bytes(&self) -> f64 {
        2.0 * self.layers * self.kv_heads * self.head_values * KV_BYTES
    }

    /// The one of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::KNOWN.into_iter().find(|shape| shape.name == name)
    }
}

impl Gpu {
    /// GPUs that are known by name.
    pub const KNOWN: [Self; 7] = [
        Self::new("l4", 121e12, 0.30e12, 24e9),
        Self::new("l40s", 362e12, 0.864e12, 48e9),
        Self { has_fp8: false, ..Self::new("a100", 312e12, 2.039e12, 80e9) },
        Self::new("h100", 989e12, 3.35e12, 80e9),
        Self::new("h200", 989e12, 4.8e12, 141e9),
        Self::new("b200", 2_250e12, 8.0e12, 180e9),
        Self::new("mi300x", 1_307e12, 5.3e12, 192e9),
    ];

    const fn new(name: &'static str, flops: f64, bandwidth: f64, memory: f64) -> Self {
        Self { name, flops, bandwidth, memory, has_fp8: true }
    }

    /// The one of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::KNOWN.into_iter().find(|gpu| gpu.name == name)
    }
}

impl EngineModel {
    /// `model` on `gpus` GPUs, at least one, that share each layer (tensor parallelism, without the
    /// cost of its exchange). `None` if the weights alone fill the memory.
    #[must_use]
    pub fn derived(model: &ModelShape, gpu: &Gpu, gpus: u32) -> Option<Self> {
        let gpus = f64::from(gpus.max(1));
        let bandwidth = gpu.bandwidth * BANDWIDTH_SHARE * gpus;
        let attention_flops = gpu.flops * FLOPS_SHARE * gpus;
        // Eight-bit weights double the rate of layers. Attention is in sixteen bits either way.
        let flops = if gpu.has_fp8 {
            attention_flops * (2.0 / model.parameter_bytes)
        } else {
            attention_flops
        };
        // Beyond one head each, GPUs keep the same keys and values.
        let kv_bytes = model.kv_token_bytes() * (gpus / model.kv_heads).max(1.0);
        // Query times key and weight times value, a multiplication and an addition each.
        let pair_flop = 4.0 * model.layers * model.query_heads * model.head_values;
        let weights = model.parameters * model.parameter_bytes;
        let left = gpu.memory * gpus * MEMORY_SHARE - weights;
        // Negative where the weights do not fit; the condition below refuses that.
        let kv_tokens = (left / kv_bytes).floor();
        (kv_tokens >= 1.0).then(|| Self {
            cost: CostModel {
                overhead_s: OVERHEAD_S,
                // Of a mixture of experts, the weights that one token reads. Larger batches read
                // more, which is ignored here.
                weights_s: model.active_parameters * model.parameter_bytes / bandwidth,
                token_s: 2.0 * model.active_parameters / flops,
                pair_s: pair_flop / attention_flops,
                kv_token_s: kv_bytes / bandwidth,
                sequence_s: 0.0,
            },
            max_batched_tokens: if gpu.bandwidth >= LARGE {
                MAX_BATCHED_TOKENS
            } else {
                MAX_BATCHED_TOKENS_SMALL
            },
            kv_tokens: kv_tokens as usize,
            load_token_s: kv_bytes / (HOST_BANDWIDTH * gpus),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Work;
    use super::*;

    fn derived(model: &str, gpu: &str, gpus: u32) -> Option<EngineModel> {
        let model = ModelShape::find(model).expect("a known model");
        EngineModel::derived(&model, &Gpu::find(gpu).expect("a known GPU"), gpus)
    }

    #[test]
    fn the_roofs_give_what_the_data_sheets_say() {
        let engine = derived("llama-3.1-8b", "h100", 1).expect("it fits");
        // 16 GB at 2.68 TB/s; 16 GFLOP at 396 TFLOP/s; 131,072 bytes a token.
        assert!((engine.cost.weights_s - 5.99e-3).abs() < 2e-5);
        assert!((engine.cost.token_s - 40.6e-6).abs() < 2e-7);
        assert!((engine.cost.kv_token_s - 48.9e-9).abs() < 2e-10);
        assert!((420_000..430_000).contains(&engine.kv_tokens));
        let halves = derived("llama-3.1-8b", "h100", 2).expect("it fits");
        assert_eq!(halves.cost.token_s, engine.cost.token_s / 2.0);
        let eight = derived("qwen3-32b-fp8", "h100", 1).expect("it fits");
        let sixteen = derived("qwen3-32b", "h100", 1).expect("it fits");
        assert_eq!(eight.cost.token_s * 2.0, sixteen.cost.token_s);
        assert_eq!(eight.cost.pair_s, sixteen.cost.pair_s);
    }

    #[test]
    fn all_that_fit_are_cost_models() {
        for (model, gpu) in ModelShape::KNOWN
            .iter()
            .flat_map(|model| Gpu::KNOWN.iter().map(move |gpu| (model, gpu)))
        {
            let Some(engine) = EngineModel::derived(model, gpu, 8) else {
                panic!("{} fits eight {}", model.name, gpu.name);
            };
            assert_eq!(engine.cost.check(), Ok(()), "{} {}", model.name, gpu.name);
            let step_s = engine.prefill_s(0, 8_192, engine.base_s(Work::default()));
            assert!(step_s < 60.0, "{} {}: {step_s}", model.name, gpu.name);
        }
        assert_eq!(derived("llama-3.1-70b", "h100", 1), None);
    }
}
