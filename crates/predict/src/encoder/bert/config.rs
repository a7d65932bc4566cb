//! The model's configuration from a folder's JSON files, and the models that are refused.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::EncoderError;
use super::forward::TokenPooling;
use super::ops::Activation;

/// Tokens of a text at most, whatever the model could take: what these encoders are trained for.
const MAX_TOKENS: usize = 512;

/// The prefix that encoders of the E5 family are trained with for questions and prompts.
const E5_PREFIX: &str = "query: ";

/// A model's shape and the treatment of its texts.
#[derive(Clone, Debug)]
pub(super) struct BertConfig {
    pub(super) hidden: usize,
    pub(super) num_layers: usize,
    pub(super) num_heads: usize,
    pub(super) intermediate: usize,
    pub(super) vocab: usize,
    pub(super) positions: usize,
    pub(super) token_types: usize,
    pub(super) norm_eps: f32,
    pub(super) activation: Activation,
    pub(super) pooling: TokenPooling,
    /// The folder's prefix for each text.
    pub(super) prefix: String,
    pub(super) lowercase: bool,
}

impl BertConfig {
    /// Reads `config.json` and, where they exist, the files of `sentence-transformers`.
    pub(super) fn read(folder: &Path) -> Result<Self, EncoderError> {
        let model = Json::read(folder.join("config.json"))?;
        model.refuse_other_architectures()?;
        let (hidden, num_heads) =
            (model.count("hidden_size")?, model.count("num_attention_heads")?);
        // Each head takes an equal part of the features.
        if hidden % num_heads != 0 {
            let reason = format!("hidden_size {hidden} is no multiple of {num_heads} heads");
            return Err(EncoderError::malformed(&model.path, reason));
        }
        let modules = Json::read_if_any(folder.join("modules.json"))?;
        modules.refuse_other_modules()?;
        let pooling = Json::read_if_any(folder.join("1_Pooling/config.json"))?;
        let transformer = Json::read_if_any(folder.join("sentence_bert_config.json"))?;
        let prompts = Json::read_if_any(folder.join("config_sentence_transformers.json"))?;
        Ok(Self {
            hidden,
            num_heads,
            num_layers: model.count("num_hidden_layers")?,
            intermediate: model.count("intermediate_size")?,
            vocab: model.count("vocab_size")?,
            positions: model.count("max_position_embeddings")?,
            token_types: model.count("type_vocab_size")?,
            // BERT's own value, where the file names none.
            norm_eps: model.value["layer_norm_eps"].as_f64().unwrap_or(1e-12) as f32,
            activation: model.activation()?,
            pooling: pooling.pooling()?,
            prefix: prompts.prompt().unwrap_or_else(|| family_prefix(folder, &model)),
            lowercase: transformer.value["do_lower_case"] == true,
        })
    }

    /// Tokens of a text at most, special ones included.
    pub(super) fn max_tokens(&self) -> usize {
        self.positions.min(MAX_TOKENS)
    }
}

/// The prefix by the model's name, where the folder has no list of prompts: hub folders of the E5
/// family have none.
fn family_prefix(folder: &Path, model: &Json) -> String {
    let name = model.value["_name_or_path"].as_str().unwrap_or("");
    // models--intfloat--multilingual-e5-small/snapshots/<revision>
    let of_folder = folder.iter().rev().take(3).filter_map(|part| part.to_str());
    let mut words = of_folder.chain([name]).flat_map(|name| {
        let words = name.split(|c: char| !c.is_ascii_alphanumeric());
        words.map(str::to_ascii_lowercase)
    });
    let is_e5 = words.any(|word| word == "e5");
    String::from(if is_e5 { E5_PREFIX } else { "" })
}

/// A JSON file; null if an optional file is missing.
struct Json {
    path: PathBuf,
    value: Value,
}

impl Json {
    fn read(path: PathBuf) -> Result<Self, EncoderError> {
        let bytes = super::read(&path)?;
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Self { path, value }),
            Err(error) => Err(EncoderError::malformed(&path, error)),
        }
    }

    fn read_if_any(path: PathBuf) -> Result<Self, EncoderError> {
        if path.exists() {
            return Self::read(path);
        }
        let value = Value::Null;
        Ok(Self { path, value })
    }

    fn unsupported<T>(&self, what: String) -> Result<T, EncoderError> {
        Err(EncoderError::unsupported(&self.path, what))
    }

    /// A whole number from 1 on.
    fn count(&self, key: &str) -> Result<usize, EncoderError> {
        let count = self.value[key].as_u64().and_then(|count| u32::try_from(count).ok());
        match count {
            Some(count) if count > 0 => Ok(count as usize),
            _ => {
                let reason =
                    format!("`{key}` should be a whole number from 1 on, not {}", self.value[key]);
                Err(EncoderError::malformed(&self.path, reason))
            }
        }
    }

    fn refuse_other_architectures(&self) -> Result<(), EncoderError> {
        if self.value["model_type"] != "bert" {
            return self.unsupported(format!("model_type {}", self.value["model_type"]));
        }
        let architecture = self.value["architectures"][0].as_str();
        // A folder may name no architecture. The weights are checked by name and shape later.
        if architecture.is_some_and(|name| !name.starts_with("Bert")) {
            return self.unsupported(format!("architecture {}", self.value["architectures"][0]));
        }
        let positions = &self.value["position_embedding_type"];
        if !positions.is_null() && positions != "absolute" {
            return self.unsupported(format!("position_embedding_type {positions}"));
        }
        for flag in ["is_decoder", "add_cross_attention"] {
            if self.value[flag] == true {
                return self.unsupported(format!("{flag}: true"));
            }
        }
        Ok(())
    }

    fn activation(&self) -> Result<Activation, EncoderError> {
        let name = &self.value["hidden_act"];
        match name.as_str().and_then(Activation::from_name) {
            Some(activation) => Ok(activation),
            None => self.unsupported(format!("hidden_act {name}")),
        }
    }

    /// Refuses what `sentence-transformers` would run behind the pooling, but for a scaling to
    /// length 1, which is always done here.
    fn refuse_other_modules(&self) -> Result<(), EncoderError> {
        for module in self.value.as_array().into_iter().flatten() {
            let kind = module["type"].as_str().unwrap_or("");
            let known = ["Transformer", "Pooling", "Normalize"];
            if !known.contains(&kind.rsplit('.').next().unwrap_or(kind)) {
                return self.unsupported(format!("module {}", module["type"]));
            }
        }
        Ok(())
    }

    fn pooling(&self) -> Result<TokenPooling, EncoderError> {
        if self.value.is_null() {
            // Without a pooling file `sentence-transformers` takes the mean.
            return Ok(TokenPooling::Mean);
        }
        let named = self.value["pooling_mode"].as_str().unwrap_or("");
        let flags = self.value.as_object().into_iter().flatten();
        let set = flags.filter(|(_, value)| **value == true);
        let modes = set.filter_map(|(key, _)| key.strip_prefix("pooling_mode_"));
        let modes: Vec<&str> =
            // Older files set one flag per mode, newer ones name the mode. Several modes at once
            // are refused.
            modes.chain([named].into_iter().filter(|mode| !mode.is_empty())).collect();
        match modes[..] {
            ["mean_tokens" | "mean"] => Ok(TokenPooling::Mean),
            ["cls_token" | "cls"] => Ok(TokenPooling::First),
            _ => self.unsupported(format!("pooling by {modes:?}")),
        }
    }

    /// The prompt for questions, or the default one, where the folder lists prompts.
    fn prompt(&self) -> Option<String> {
        let prompts = self.value["prompts"].as_object()?;
        let default = self.value["default_prompt_name"].as_str().unwrap_or("");
        let prompt = prompts.get("query").or_else(|| prompts.get(default))?;
        prompt.as_str().map(String::from)
    }
}
