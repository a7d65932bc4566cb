//! Metric names of the load gauges, as engines and this gateway export them.

/// Requests that wait to be scheduled: vLLM's name, and ours.
pub(crate) const WAITING: &str = "vllm:num_requests_waiting";

/// Requests that run.
pub(crate) const RUNNING: &str = "vllm:num_requests_running";

/// Share of the KV memory in use.
pub(crate) const KV_USAGE: &str = "vllm:kv_cache_usage_perc";

/// vLLM's name of the same gauge before version 0.11.
pub(crate) const KV_USAGE_EARLY: &str = "vllm:gpu_cache_usage_perc";

/// Cached prompt tokens by where the engine found them.
pub(crate) const CACHED_BY_SOURCE: &str = "vllm:prompt_tokens_cached_by_source_total";

/// Capacity of the KV memory, in labels.
pub(crate) const KV_CAPACITY: &str = "vllm:cache_config_info";
