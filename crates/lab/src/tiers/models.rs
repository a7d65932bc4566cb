//! Models of the benchmark: the built-in one in three sizes, or a real one.

use std::sync::Arc;

use anyhow::Result;
use headstart_core::UsageError;
use headstart_engine::kv::Dtype;
use headstart_engine::model::{GenerationDefaults, toy};
use headstart_engine::{LanguageModel, ModelConfig};

use super::arm::NEW_TOKENS;
use headstart::parts::{UNIT_TOKENS, load_model};

/// A model and what it is called.
pub(super) struct NamedModel {
    pub(super) name: String,
    pub(super) model: Arc<LanguageModel>,
}

impl NamedModel {
    /// Refuses prefixes that are no whole units, and those that the model does not compute.
    pub(super) fn must_hold(&self, prefix_tokens: usize) -> Result<()> {
        let most = self.model.config.max_context.saturating_sub(NEW_TOKENS + 1);
        // Prefixes are whole units, so the limit is rounded down to one.
        let most = most / UNIT_TOKENS * UNIT_TOKENS;
        let is_whole = prefix_tokens.is_multiple_of(UNIT_TOKENS);
        if is_whole && (UNIT_TOKENS..=most).contains(&prefix_tokens) {
            Ok(())
        } else {
            Err(UsageError(format!(
                "--prefix {prefix_tokens}: expected multiples of {UNIT_TOKENS}, at most {most} \
                 for {}",
                self.name
            ))
            .into())
        }
    }
}

/// The model that `spec` names.
pub(super) fn load(spec: &str, dtype: Dtype) -> Result<NamedModel> {
    let model = match built_in(spec) {
        Some(config) => {
            let defaults = GenerationDefaults::default();
            Arc::new(toy::with_config(config, defaults, dtype))
        }
        None => load_model(spec, dtype)?.model,
    };
    let name = spec.trim_end_matches('/').rsplit('/').next();
    Ok(NamedModel { name: name.unwrap_or(spec).to_owned(), model })
}

/// The toy, and one of about a quarter and one of about three times its cost per token.
fn built_in(spec: &str) -> Option<ModelConfig> {
    let (hidden, intermediate, num_layers, num_heads) = match spec {
        "toy-small" => (256, 512, 6, 4),
        "toy" => return Some(toy::config()),
        "toy-large" => (768, 2_048, 10, 12),
        _ => return None,
    };
    Some(ModelConfig { hidden, intermediate, num_layers, num_heads, ..toy::config() })
}
