//! Defaults from `generation_config.json`.

use std::sync::Arc;

use headstart_core::TokenId;
use headstart_scheduler::Sampling;
use serde_json::Value;

use crate::sampler::sample;

/// Defaults for requests that do not say otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationDefaults {
    /// Tokens that end an answer.
    pub stop_tokens: Arc<[TokenId]>,
    /// Sampling parameters (the seed comes from the request).
    pub sampling: Sampling,
    /// Most tokens of an answer, where the request names no limit.
    pub max_new_tokens: Option<usize>,
    /// Tokens that are never chosen; ascending, each once.
    pub suppress_tokens: Vec<TokenId>,
}

impl GenerationDefaults {
    /// Reads `generation_config.json`; where it is silent, `config.json` (end tokens) or the
    /// API's own defaults (temperature 1, no other limit) apply.
    #[must_use]
    pub fn from_json(generation: &Value, config: &Value) -> Self {
        let field = if generation["eos_token_id"].is_null() { config } else { generation };
        let number = |name: &str| generation[name].as_f64().map(|number| number as f32);
        let sampling = Sampling {
            temperature: number("temperature").unwrap_or(1.0),
            top_k: generation["top_k"].as_u64().unwrap_or(0) as usize,
            top_p: number("top_p").unwrap_or(1.0),
            seed: 0,
        };
        let mut suppress_tokens = tokens(&generation["suppress_tokens"]);
        // The sampler walks them beside the logits, in order, and stops at one that is there twice.
        suppress_tokens.sort_unstable();
        suppress_tokens.dedup();
        Self {
            stop_tokens: tokens(&field["eos_token_id"]).into(),
            sampling,
            max_new_tokens: generation["max_new_tokens"].as_u64().map(|number| number as usize),
            suppress_tokens,
        }
    }

    /// Chooses the token at `position` of its sequence, see [`sample`]. Where all tokens are
    /// suppressed or have no number for a logit it is the first end token, or 0 without one: a
    /// panic here would end the requests of the whole batch.
    pub(crate) fn choose(&self, logits: &[f32], sampling: &Sampling, position: usize) -> TokenId {
        let chosen = sample(logits, &self.suppress_tokens, sampling, position);
        chosen.unwrap_or_else(|| self.stop_tokens.first().copied().unwrap_or(0))
    }
}

/// One id, a list of them, or nothing.
fn tokens(value: &Value) -> Vec<TokenId> {
    let id = |value: &Value| value.as_u64().and_then(|id| TokenId::try_from(id).ok());
    match value {
        Value::Array(values) => values.iter().filter_map(id).collect(),
        other => id(other).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn end_tokens_come_from_either_file() {
        let both = GenerationDefaults::from_json(
            &json!({"eos_token_id": [7, 8], "temperature": 0.6, "top_k": 20}),
            &json!({"eos_token_id": 2}),
        );
        assert_eq!(*both.stop_tokens, [7, 8]);
        assert_eq!((both.sampling.temperature, both.sampling.top_k), (0.6, 20));
        let one = GenerationDefaults::from_json(&Value::Null, &json!({"eos_token_id": 2}));
        assert_eq!((&*one.stop_tokens, one.sampling.temperature), (&[2][..], 1.0));
    }

    #[test]
    fn a_token_that_is_suppressed_twice_hides_none_behind_it() {
        let generation = json!({"suppress_tokens": [5, 2, 2], "eos_token_id": 7});
        let defaults = GenerationDefaults::from_json(&generation, &Value::Null);
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        let logits = [0.0, 1.0, 9.0, 0.0, 0.0, 8.0];
        assert_eq!(defaults.choose(&logits, &greedy, 0), 1);
    }

    #[test]
    fn an_answer_ends_where_no_token_is_left() {
        let generation = json!({"suppress_tokens": [1, 0], "eos_token_id": [7, 8]});
        let defaults = GenerationDefaults::from_json(&generation, &Value::Null);
        for temperature in [0.0, 1.0] {
            let sampling = Sampling { temperature, ..Sampling::default() };
            assert_eq!(defaults.choose(&[1.0, 2.0], &sampling, 0), 7);
            assert_eq!(defaults.choose(&[f32::NAN; 4], &sampling, 0), 7);
            assert_eq!(GenerationDefaults::default().choose(&[f32::NAN], &sampling, 0), 0);
        }
    }
}
