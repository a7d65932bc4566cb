//! The embedded engine: decoder-only transformers on the CPU.
//!
//! ```text
//! Engine::step ─► Scheduler::schedule ─► Batch ─► CpuExecutor ─► tokens ─► Scheduler::complete
//!                                                 │ embed, layers, head
//!                                                 └ KvPool: paged keys and values
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`engine`] | [`Engine`]: submit, cancel, step |
//! | [`config`] | [`ModelConfig`] from `config.json`; refuses what is not supported, by name |
//! | [`model`] | weights as they are computed with; loading and the built-in toy |
//! | [`executor`] | [`CpuExecutor`]: a batch through the layers |
//! | [`importance`] | stored prefixes of which only what matters is loaded |
//! | [`kv`] | the paged pool of keys and values |
//! | [`cpu`] | kernels: matrix products, fused attention, element-wise passes |
//! | [`sampler`] | from logits to a token |
//!
//! It sees token ids, never text, and no clock: `now` is an argument. Families: Llama, Qwen2,
//! Qwen3. Arithmetic is f32; weights and KV are stored as f32 or bf16.
//!
//! No tensor library underneath: with the fused attention over paged KV written here, what is
//! left are three matrix products (from `gemm`) and passes of a few lines.

pub mod config;
pub mod cpu;
pub mod engine;
pub mod executor;
pub mod importance;
pub mod kv;
pub mod model;
pub mod sampler;

pub use config::{ConfigError, ModelConfig};
pub use engine::{BoundedExecutor, Engine, EngineConfig};
pub use executor::CpuExecutor;
pub use kv::Dtype;
pub use model::{GenerationDefaults, LanguageModel, LoadError};

pub use headstart_scheduler::{
    Arrival, Batch, Copies, Entry, Executor, FinishReason, Output, QueueOrder, Sampling,
    SchedulerLoad, Submission, Submit,
};
