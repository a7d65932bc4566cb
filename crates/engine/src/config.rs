//! The fields of `config.json` that this engine needs, parsed and checked.
//!
//! Source: the configuration classes of Hugging Face `transformers` (4.x wrote `rope_theta` and
//! `rope_scaling`, 5.x writes `rope_parameters`; both are read).

use serde_json::Value;

/// Shape and constants of a supported model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Family, which selects the decoder's variations.
    pub family: Family,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward layers.
    pub intermediate: usize,
    /// Decoder layers.
    pub num_layers: usize,
    /// Query heads.
    pub num_heads: usize,
    /// Key-value heads; each serves `num_heads / num_kv_heads` query heads.
    pub num_kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
    /// Vocabulary entries.
    pub vocab: usize,
    /// Longest sequence, tokens.
    pub max_context: usize,
    /// Added to the mean square in every RMS norm.
    pub rms_eps: f32,
    /// Rotary embedding.
    pub rope: Rope,
    /// Whether the output head is the embedding.
    pub tied: bool,
}

/// A supported family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// No biases, no head norms.
    Llama,
    /// Biases on queries, keys and values.
    Qwen2,
    /// RMS norm on every query and key head.
    Qwen3,
}

/// Rotary position embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies.
    pub theta: f32,
    /// Llama 3's stretching of long wavelengths.
    pub llama3: Option<Llama3Rope>,
}

/// Llama 3's rotary scaling: wavelengths beyond `original_context / low` are stretched by
/// `factor`, those within `original_context / high` are kept, between them blended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Rope {
    /// Stretch of long wavelengths.
    pub factor: f32,
    /// `low_freq_factor`.
    pub low: f32,
    /// `high_freq_factor`.
    pub high: f32,
    /// The context that the model was trained with first, tokens.
    pub original_context: f32,
}

/// A model that this engine does not compute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Another architecture.
    #[error(
        "architecture `{0}` is not supported by the embedded engine (supported: \
         LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM); serve it with vLLM or SGLang \
         and name that engine with --upstream"
    )]
    Architecture(String),
    /// A supported architecture with a feature that is not computed.
    #[error(
        "config.json: `{field}` is {value}, which the embedded engine does not compute ({why})"
    )]
    Feature {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The supported values.
        why: &'static str,
    },
    /// A field is missing or of the wrong kind.
    #[error("config.json: `{0}` is missing or not what it should be")]
    Field(&'static str),
}

impl ModelConfig {
    /// Reads a parsed `config.json`.
    ///
    /// # Errors
    /// [`ConfigError`], by the name of what is missing or not supported.
    pub fn from_json(json: &Value) -> Result<Self, ConfigError> {
        let family = family(json)?;
        refuse_unsupported(json)?;
        let hidden = positive(json, "hidden_size")?;
        let num_heads = positive(json, "num_attention_heads")?;
        // Without the field, each query head has keys of its own.
        let num_kv_heads = optional(json, "num_key_value_heads")?.unwrap_or(num_heads);
        let head_dim = optional(json, "head_dim")?.unwrap_or(hidden / num_heads);
        let eps = json["rms_norm_eps"].as_f64().ok_or(ConfigError::Field("rms_norm_eps"))?;
        let config = Self {
            family,
            hidden,
            intermediate: positive(json, "intermediate_size")?,
            num_layers: positive(json, "num_hidden_layers")?,
            num_heads,
            num_kv_heads,
            head_dim,
            vocab: positive(json, "vocab_size")?,
            max_context: positive(json, "max_position_embeddings")?,
            rms_eps: eps as f32,
            rope: rope(json)?,
            tied: json["tie_word_embeddings"].as_bool().unwrap_or(false),
        };
        config.check_shape()?;
        Ok(config)
    }

    /// Query heads per key-value head.
    #[must_use]
    pub fn group(&self) -> usize {
        self.num_heads / self.num_kv_heads
    }

    /// Bytes of keys and values of one token, at `element_bytes` an element.
    #[must_use]
    pub fn kv_bytes_per_token(&self, element_bytes: usize) -> usize {
        2 * self.num_layers * self.num_kv_heads * self.head_dim * element_bytes
    }

    fn check_shape(&self) -> Result<(), ConfigError> {
        // Otherwise the last query heads would have no keys.
        if !self.num_heads.is_multiple_of(self.num_kv_heads) {
            return Err(ConfigError::Field("num_key_value_heads"));
        }
        // The attention kernel works on whole vectors of up to 16 values. Without the field a head
        // of a hidden size that is too small has none.
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(16) {
            return Err(ConfigError::Feature {
                field: "head_dim",
                value: self.head_dim.to_string(),
                why: "a positive multiple of 16 is",
            });
        }
        Ok(())
    }
}

fn family(json: &Value) -> Result<Family, ConfigError> {
    let name = json["architectures"][0].as_str().ok_or(ConfigError::Field("architectures"))?;
    match name {
        "LlamaForCausalLM" => Ok(Family::Llama),
        "Qwen2ForCausalLM" => Ok(Family::Qwen2),
        "Qwen3ForCausalLM" => Ok(Family::Qwen3),
        other => Err(ConfigError::Architecture(other.to_owned())),
    }
}

fn refuse_unsupported(json: &Value) -> Result<(), ConfigError> {
    let refuse =
        |field, why| Err(ConfigError::Feature { field, value: json[field].to_string(), why });
    if json["hidden_act"].as_str().unwrap_or("silu") != "silu" {
        return refuse("hidden_act", "`silu` is");
    }
    for field in ["attention_bias", "mlp_bias", "use_sliding_window"] {
        if json[field].as_bool().unwrap_or(false) {
            return refuse(field, "`false` is");
        }
    }
    if !json["quantization_config"].is_null() {
        return refuse("quantization_config", "unquantized f32, bf16 and f16 weights are");
    }
    Ok(())
}

fn rope(json: &Value) -> Result<Rope, ConfigError> {
    let new_form = &json["rope_parameters"];
    // `transformers` 5.x writes `rope_parameters`, 4.x writes `rope_scaling`.
    let scaling = if new_form.is_null() { &json["rope_scaling"] } else { new_form };
    let theta = scaling["rope_theta"].as_f64().or(json["rope_theta"].as_f64()).unwrap_or(1e4);
    // `type` is the older name of the field.
    let kind = scaling["rope_type"].as_str().or(scaling["type"].as_str()).unwrap_or("default");
    let llama3 = match kind {
        "default" => None,
        "llama3" => Some(llama3_rope(scaling)?),
        other => {
            return Err(ConfigError::Feature {
                field: "rope_type",
                value: other.to_owned(),
                why: "`default` and `llama3` are",
            });
        }
    };
    Ok(Rope { theta: theta as f32, llama3 })
}

fn llama3_rope(scaling: &Value) -> Result<Llama3Rope, ConfigError> {
    let number = |field| scaling[field].as_f64().ok_or(ConfigError::Field(field));
    Ok(Llama3Rope {
        factor: number("factor")? as f32,
        low: number("low_freq_factor")? as f32,
        high: number("high_freq_factor")? as f32,
        original_context: number("original_max_position_embeddings")? as f32,
    })
}

fn optional(json: &Value, field: &'static str) -> Result<Option<usize>, ConfigError> {
    if json[field].is_null() { Ok(None) } else { positive(json, field).map(Some) }
}

/// Largest number that a shape may hold; keeps products of three of them within 64 bits.
const SHAPE_LIMIT: u64 = 1 << 24;

fn positive(json: &Value, field: &'static str) -> Result<usize, ConfigError> {
    match json[field].as_u64() {
        // Never 0, because heads and widths divide others.
        Some(number @ 1..SHAPE_LIMIT) => Ok(number as usize),
        _ => Err(ConfigError::Field(field)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn base() -> Value {
        json!({
            "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
            "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100,
            "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
        })
    }

    fn check(change: &[(&str, Value)], expected: Result<(), &str>) {
        let mut json = base();
        for (field, value) in change {
            json[*field] = value.clone();
        }
        match (ModelConfig::from_json(&json), expected) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err(part)) => {
                let error = error.to_string();
                assert!(error.contains(part), "{error}");
            }
            (got, expected) => panic!("{got:?} against {expected:?}"),
        }
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        check(&[], Ok(()));
        check(&[("architectures", json!(["MambaForCausalLM"]))], Err("MambaForCausalLM"));
        check(&[("hidden_act", json!("gelu"))], Err("hidden_act"));
        check(&[("use_sliding_window", json!(true))], Err("use_sliding_window"));
        check(&[("rope_scaling", json!({"rope_type": "yarn"}))], Err("yarn"));
        check(&[("rope_scaling", json!({"rope_type": "llama3"}))], Err("factor"));
        check(&[("quantization_config", json!({"bits": 4}))], Err("quantization_config"));
        check(&[("head_dim", json!(20))], Err("head_dim"));
        // Fewer values than heads: a head would have none.
        check(&[("hidden_size", json!(3))], Err("`head_dim` is 0"));
        check(&[("vocab_size", json!(0))], Err("vocab_size"));
        check(&[("hidden_size", Value::Null)], Err("hidden_size"));
        check(&[("num_key_value_heads", json!(3))], Err("num_key_value_heads"));
    }

    #[test]
    fn both_forms_of_rope_are_read() {
        let mut old = base();
        old["rope_theta"] = json!(5e5);
        let mut new = base();
        new["rope_parameters"] = json!({"rope_type": "default", "rope_theta": 5e5});
        assert_eq!(ModelConfig::from_json(&old), ModelConfig::from_json(&new));
    }
}
