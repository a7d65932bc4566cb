//! Models and GPUs of the evaluation of "KVCache Cache in the Wild" (Wang et al., USENIX ATC'25).
//!
//! Sources: the study (which models on how many A800 with 80 GB), the models' `config.json` and
//! cards (shapes), NVIDIA's data sheet: an A800 computes and reads as an A100 does, only its NVLink
//! is slower, which the model ignores.

use headstart_core::EngineModel;
use headstart_core::cost::roofline::{Gpu, ModelShape};

/// A model and the GPUs that it runs on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WildModel {
    /// The model.
    pub shape: ModelShape,
    /// Number of A800 GPUs that share each layer.
    pub gpus: u32,
}

/// PCIe 4 with 16 lanes is 32 GB/s each way; half of it is reached. Bytes a second and GPU.
const PCIE_BYTES_PER_S: f64 = 16e9;

/// Bytes of a parameter, bfloat16.
const PARAMETER_BYTES: f64 = 2.0;

/// Values of a head, of all three.
const HEAD_VALUES: f64 = 128.0;

impl WildModel {
    /// All three of the study.
    pub const ALL: [Self; 3] = [
        Self::of("qwen2-7b", 7.62e9, [28.0, 28.0, 4.0], 1),
        Self::of("llama2-13b", 13.0e9, [40.0, 40.0, 40.0], 1),
        Self::of("llama3-70b", 70.6e9, [80.0, 64.0, 8.0], 4),
    ];

    const fn of(
        name: &'static str,
        parameters: f64,
        [layers, query_heads, kv_heads]: [f64; 3],
        gpus: u32,
    ) -> Self {
        let shape = ModelShape {
            name,
            active_parameters: parameters,
            parameters,
            layers,
            query_heads,
            kv_heads,
            head_values: HEAD_VALUES,
            parameter_bytes: PARAMETER_BYTES,
        };
        Self { shape, gpus }
    }

    /// The one of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.shape.name == name)
    }

    /// Returns the costs and capacity of an engine with it, by the data sheets.
    ///
    /// # Panics
    /// Never: each fits its GPUs.
    #[must_use]
    pub fn engine(&self) -> EngineModel {
        let gpu = Gpu::find("a100").expect("a known GPU");
        let engine = EngineModel::derived(&self.shape, &gpu, self.gpus).expect("it fits");
        EngineModel {
            load_token_s: self.shape.kv_token_bytes() / self.host_bytes_per_s(),
            ..engine
        }
    }

    /// Returns the rate of loads from host memory, bytes per second: each GPU loads its own share.
    #[must_use]
    pub fn host_bytes_per_s(&self) -> f64 {
        // Each GPU has lanes of its own and loads its share of every block.
        PCIE_BYTES_PER_S * f64::from(self.gpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_give_what_the_study_says() {
        let model = |name| WildModel::find(name).expect("one of the three");
        // 0.875 MB for 16 tokens of Qwen2-7B.
        let block = model("qwen2-7b").shape.kv_token_bytes() * 16.0;
        assert_eq!(block / f64::from(1 << 20), 0.875);
        let tokens = |name| model(name).engine().kv_tokens;
        assert!((980_000..1_000_000).contains(&tokens("qwen2-7b")));
        assert!((55_000..57_000).contains(&tokens("llama2-13b")));
        assert!((440_000..450_000).contains(&tokens("llama3-70b")));
        assert_eq!(model("llama3-70b").host_bytes_per_s(), 64e9);
        assert_eq!(WildModel::find("llama"), None);
    }
}
