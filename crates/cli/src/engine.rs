//! An engine's own words about itself: its model, its prefix cache and the counters of its hits.
//!
//! ```text
//! GET /v1/models         model, context, owner        all
//! GET /metrics           blocks, block size, hits     vLLM, Headstart; tokens and hits: SGLang
//! GET /get_server_info   page size, radix cache       SGLang
//! ```

use headstart_loadgen::{LoadgenError, fetch};
use serde_json::Value;

use crate::exposition::{MetricSample, samples};

/// Longest page that is read.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Kinds of engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EngineKind {
    /// This project's server: its embedded engine, or its gateway.
    Headstart,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// Another one.
    #[default]
    Other,
}

/// The pages of an engine that say what it is.
#[derive(Debug, Default)]
pub(crate) struct EnginePages {
    models: Value,
    metrics: String,
    info: Value,
}

/// The contents of those pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EngineFacts {
    pub(crate) kind: EngineKind,
    /// The first model.
    pub(crate) model: Option<String>,
    /// Longest sequence, tokens.
    pub(crate) max_model_len: Option<u32>,
    /// Tokens of a KV block.
    pub(crate) block_size: Option<u32>,
    /// KV blocks of one cache.
    pub(crate) blocks: Option<usize>,
    /// Whether the prefix cache is on.
    pub(crate) prefix_caching: Option<bool>,
    /// Caches behind the address: replicas, or ranks.
    pub(crate) caches: usize,
    /// Tokens that SGLang's memory holds.
    pub(crate) max_tokens: Option<usize>,
}

/// Counters of prompt tokens since the engine's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CacheCounters {
    /// Prompt tokens that were looked up.
    pub(crate) queries: u64,
    /// Of these, found.
    pub(crate) hits: u64,
}

impl CacheCounters {
    /// The counts since an earlier look. An engine that restarted counts from 0.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            queries: self.queries.saturating_sub(before.queries),
            hits: self.hits.saturating_sub(before.hits),
        }
    }
}

impl EngineKind {
    /// Its name in sentences.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Headstart => "Headstart",
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::Other => "the engine",
        }
    }
}

impl EnginePages {
    /// Reads the pages of the server at `url`. One that it refuses is empty.
    ///
    /// # Errors
    /// When no server answers there.
    pub(crate) async fn read(url: &str, api_key: Option<&str>) -> Result<Self, LoadgenError> {
        let models = page(url, "/v1/models", api_key).await?;
        let metrics = page(url, "/metrics", api_key).await?;
        let is_sglang = metrics.contains("sglang:") || models.contains("\"sglang\"");
        // Others may take long to say that they have no such page.
        let info =
            if is_sglang { page(url, "/get_server_info", api_key).await? } else { String::new() };
        let json = |text: &str| serde_json::from_str(text).unwrap_or_default();
        Ok(Self { models: json(&models), info: json(&info), metrics })
    }

    /// Pages with these metrics.
    #[cfg(test)]
    pub(crate) fn of_metrics(metrics: &str) -> Self {
        Self { metrics: metrics.to_owned(), ..Self::default() }
    }

    /// Their contents.
    pub(crate) fn facts(&self) -> EngineFacts {
        let model = &self.models["data"][0];
        let mut facts = EngineFacts {
            model: model["id"].as_str().map(str::to_owned),
            max_model_len: number(&model["max_model_len"]),
            ..EngineFacts::default()
        };
        let owner = model["owned_by"].as_str().unwrap_or_default();
        for sample in samples(&self.metrics) {
            match sample.name {
                "vllm:cache_config_info" => {
                    facts.caches += 1;
                    facts.block_size = sample.label("block_size").parse().ok();
                    facts.blocks = sample.label("num_gpu_blocks").parse().ok();
                    // Headstart's own metrics have no such label: its cache is always on.
                    facts.prefix_caching = match sample.label("enable_prefix_caching") {
                        "True" => Some(true),
                        "False" => Some(false),
                        _ => None,
                    };
                    facts.kind = EngineKind::Vllm;
                }
                "sglang:max_total_num_tokens" => {
                    facts.max_tokens = Some(sample.value as usize);
                    facts.kind = EngineKind::Sglang;
                }
                _ => {}
            }
        }
        if owner == "headstart" {
            facts.kind = EngineKind::Headstart;
        } else if owner == "sglang" || !self.info.is_null() {
            facts.kind = EngineKind::Sglang;
            facts.caches = facts.caches.max(1);
            facts.block_size = number(&self.info["page_size"]);
            facts.prefix_caching = self.info["disable_radix_cache"].as_bool().map(|off| !off);
            let tokens = number(&self.info["max_total_num_tokens"]).map(|tokens| tokens as usize);
            facts.max_tokens = tokens.or(facts.max_tokens);
            let block_size = facts.block_size.map(|size| size.max(1) as usize);
            facts.blocks = facts.max_tokens.zip(block_size).map(|(tokens, size)| tokens / size);
        } else if owner == "vllm" {
            facts.kind = EngineKind::Vllm;
        }
        facts
    }

    /// The counters of all caches together, if the engine has some.
    pub(crate) fn counters(&self) -> Option<CacheCounters> {
        let mut counters = CacheCounters::default();
        let mut has_some = false;
        for sample in samples(&self.metrics) {
            let counter = match sample.name {
                "vllm:prefix_cache_queries_total" | "sglang:prompt_tokens_total" => {
                    &mut counters.queries
                }
                "vllm:prefix_cache_hits_total" | "sglang:cached_tokens_total" => &mut counters.hits,
                _ => continue,
            };
            *counter += sample.value.max(0.0) as u64;
            has_some = true;
        }
        has_some.then_some(counters)
    }

    /// The samples of a metric, each with the label that tells its states apart: `state` or
    /// `outcome`.
    pub(crate) fn values(&self, name: &str) -> Vec<(String, f64)> {
        let named = samples(&self.metrics).filter(|sample| sample.name == name);
        let label = |sample: &MetricSample<'_>| {
            let labels = ["state", "outcome"].map(|label| sample.label(label).to_owned());
            labels.concat()
        };
        named.map(|sample| (label(&sample), sample.value)).collect()
    }

    /// The sum of a metric's samples; `None` where there are none.
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        let values = samples(&self.metrics).filter(|sample| sample.name == name);
        values.map(|sample| sample.value).reduce(|one, other| one + other)
    }
}

impl EngineFacts {
    /// Tokens that fit the KV memory of one cache.
    pub(crate) fn kv_tokens(&self) -> Option<usize> {
        // A product beyond the type is no size of a memory.
        let of_blocks = || self.blocks?.checked_mul(self.block_size? as usize);
        self.max_tokens.or_else(of_blocks)
    }
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

/// Reads a page; an engine that refuses it has an empty one.
async fn page(url: &str, path: &str, api_key: Option<&str>) -> Result<String, LoadgenError> {
    let mut page = Vec::new();
    let write = |bytes: &[u8]| {
        if page.len() + bytes.len() > PAGE_BYTES_MAX {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        page.extend_from_slice(bytes);
        Ok(())
    };
    match fetch(url, path, api_key, write).await {
        Err(LoadgenError::Refused { .. }) => Ok(String::new()),
        Err(error) => Err(error),
        Ok(()) => Ok(String::from_utf8_lossy(&page).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pages(owner: &str, metrics: &str, info: Value) -> EnginePages {
        let models = json!({"data": [{"id": "m", "owned_by": owner, "max_model_len": 4096}]});
        EnginePages { models, metrics: metrics.to_owned(), info }
    }

    #[test]
    fn engines_say_their_caches() {
        let vllm = "vllm:cache_config_info{block_size=\"16\",enable_prefix_caching=\"False\",\
                    num_gpu_blocks=\"2000\"} 1.0";
        let facts = pages("vllm", vllm, Value::Null).facts();
        assert_eq!((facts.kind, facts.kv_tokens()), (EngineKind::Vllm, Some(32_000)));
        assert_eq!((facts.prefix_caching, facts.caches), (Some(false), 1));
        assert_eq!((facts.model.as_deref(), facts.max_model_len), (Some("m"), Some(4096)));
        let most = vllm.replace("2000", &usize::MAX.to_string());
        assert_eq!(pages("vllm", &most, Value::Null).facts().kv_tokens(), None);
        let ours = format!("{vllm}\n{vllm}");
        let facts = pages("headstart", &ours, Value::Null).facts();
        assert_eq!((facts.kind, facts.caches), (EngineKind::Headstart, 2));
        let sglang = "# HELP x\nsglang:max_total_num_tokens{model_name=\"m\"} 123456.0";
        let facts = pages("x", sglang, Value::Null).facts();
        assert_eq!((facts.kind, facts.kv_tokens()), (EngineKind::Sglang, Some(123_456)));
        let info = json!({"page_size": 64, "disable_radix_cache": false});
        let facts = pages("sglang", sglang, info).facts();
        assert_eq!((facts.block_size, facts.blocks), (Some(64), Some(1929)));
        assert_eq!(EnginePages::default().facts(), EngineFacts::default());
    }

    #[test]
    fn counters_are_sums_over_the_caches() {
        let page = "vllm:prefix_cache_queries_total{engine=\"0\"} 100\n\
                    vllm:prefix_cache_queries_total{engine=\"1\"} 50\n\
                    vllm:prefix_cache_hits_total{engine=\"0\"} 60\n";
        let counters = pages("vllm", page, Value::Null).counters();
        assert_eq!(counters, Some(CacheCounters { queries: 150, hits: 60 }));
        assert_eq!(pages("vllm", "x 1\n", Value::Null).counters(), None);
    }
}
