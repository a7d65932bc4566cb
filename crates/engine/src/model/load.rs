//! Reading a Hugging Face folder: `config.json`, `*.safetensors` (sharded or not),
//! `generation_config.json`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::{SafeTensors, tensor::TensorView};
use serde_json::Value;

use super::{DecoderLayer, GenerationDefaults, LanguageModel, transpose_into};
use crate::config::Family;
use crate::cpu::linear::Linear;
use crate::kv::{Dtype, Numbers};
use crate::{ConfigError, ModelConfig};

/// Why a model folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file is missing or unreadable.
    #[error(
        "cannot read {path}: {source} (a model folder holds config.json, *.safetensors and \
         tokenizer.json)"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A JSON file that is not JSON.
    #[error("{path} is not valid JSON: {source}")]
    Json {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// The model is not one that is computed here.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No weights in the folder.
    #[error("{0} holds no *.safetensors file; other weight formats are not read")]
    NoWeights(PathBuf),
    /// A weights file that is not one.
    #[error("{path} is not a safetensors file: {reason} (was the download complete?)")]
    Weights {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A tensor that the architecture needs.
    #[error("the weights hold no tensor `{0}`, which the architecture needs")]
    MissingTensor(String),
    /// A tensor that does not fit `config.json`.
    #[error("tensor `{name}` has shape {found:?}, config.json implies {expected:?}")]
    Shape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that the configuration implies.
        expected: Vec<usize>,
    },
    /// An element type that is not read.
    #[error("tensor `{name}` is {dtype}; f32, bf16 and f16 are read")]
    TensorType {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: String,
    },
}

impl LanguageModel {
    /// Loads the folder `dir`, storing weights as `dtype`.
    ///
    /// # Errors
    /// [`LoadError`], saying which file or tensor and what is wrong.
    pub fn load(dir: &Path, dtype: Dtype) -> Result<Self, LoadError> {
        let json = read_json(&dir.join("config.json"))?;
        let config = ModelConfig::from_json(&json)?;
        // Optional: without it, `config.json` names the tokens that end an answer.
        let generation = match dir.join("generation_config.json") {
            path if path.exists() => read_json(&path)?,
            _ => Value::Null,
        };
        let generation = GenerationDefaults::from_json(&generation, &json);
        let (mut tensors, digest) = TensorFiles::read(dir)?;
        // Weights that are rounded otherwise give other keys and values.
        let revision = format!("{digest}-{}", dtype.name());
        let (hidden, vocab) = (config.hidden, config.vocab);
        let table = |values| Numbers::from_f32(dtype, values);
        let embedding = table(tensors.take("model.embed_tokens.weight", &[vocab, hidden])?);
        // A tied head is the embedding; its files need not hold one.
        let head = if config.tied {
            None
        } else {
            Some(table(tensors.take("lm_head.weight", &[vocab, hidden])?))
        };
        let layers = (0..config.num_layers).map(|index| {
            let mut reader = LayerReader { tensors: &mut tensors, config: &config, dtype, index };
            reader.layer()
        });
        let layers = layers.collect::<Result<_, _>>()?;
        let final_norm = tensors.take("model.norm.weight", &[hidden])?;
        Ok(Self { config, revision, generation, embedding, layers, final_norm, head })
    }
}

struct LayerReader<'a> {
    tensors: &'a mut TensorFiles,
    config: &'a ModelConfig,
    dtype: Dtype,
    index: usize,
}

impl LayerReader<'_> {
    fn layer(&mut self) -> Result<DecoderLayer, LoadError> {
        let config = self.config;
        let (hidden, wide) = (config.hidden, config.intermediate);
        let (q, kv) = (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim);
        let qkv = [("self_attn.q_proj", q), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv)];
        let head_norms = match config.family {
            Family::Qwen3 => Some((
                self.vector("self_attn.q_norm.weight", config.head_dim)?,
                self.vector("self_attn.k_norm.weight", config.head_dim)?,
            )),
            Family::Llama | Family::Qwen2 => None,
        };
        Ok(DecoderLayer {
            attention_norm: self.vector("input_layernorm.weight", hidden)?,
            qkv: self.linear(hidden, &qkv, config.family == Family::Qwen2)?,
            head_norms,
            output: self.linear(q, &[("self_attn.o_proj", hidden)], false)?,
            feed_forward_norm: self.vector("post_attention_layernorm.weight", hidden)?,
            gate_up: self.linear(
                hidden,
                &[("mlp.gate_proj", wide), ("mlp.up_proj", wide)],
                false,
            )?,
            down: self.linear(wide, &[("mlp.down_proj", hidden)], false)?,
        })
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let name = format!("model.layers.{}.{name}", self.index);
        self.tensors.take(&name, &[len])
    }

    /// Several projections of the same input side by side, `[k, Σ n]`.
    fn linear(
        &mut self,
        k: usize,
        parts: &[(&str, usize)],
        has_bias: bool,
    ) -> Result<Linear, LoadError> {
        let stride = parts.iter().map(|part| part.1).sum();
        let mut weight = vec![0.0; k * stride];
        let mut bias = Vec::new();
        let mut first = 0;
        for (name, n) in parts {
            let path = format!("model.layers.{}.{name}", self.index);
            let rows = self.tensors.take(&format!("{path}.weight"), &[*n, k])?;
            transpose_into(&rows, k, &mut weight, first, stride);
            if has_bias {
                bias.extend(self.tensors.take(&format!("{path}.bias"), &[*n])?);
            }
            first += n;
        }
        let weight = Numbers::from_f32(self.dtype, weight);
        Ok(Linear::new(weight, k, stride, has_bias.then_some(bias)))
    }
}

/// The bytes of all weight files and where each tensor is.
struct TensorFiles {
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Name to file.
    at: HashMap<String, usize>,
}

impl TensorFiles {
    /// All tensors of `dir`, and a content hash of its weight files.
    fn read(dir: &Path) -> Result<(Self, String), LoadError> {
        let mut hasher = blake3::Hasher::new();
        let mut tensors = Self { files: Vec::new(), at: HashMap::new() };
        // In the order of names, so that the digest does not depend on the file system.
        for path in weight_files(dir)? {
            let bytes = fs::read(&path).map_err(|source| read_error(&path, source))?;
            hasher.update(&bytes);
            let parsed = parse(&path, &bytes)?;
            let file = tensors.files.len();
            tensors.at.extend(parsed.names().into_iter().map(|name| (name.to_owned(), file)));
            tensors.files.push((path, bytes));
        }
        Ok((tensors, hasher.finalize().to_hex()[..32].to_owned()))
    }

    /// The tensor `name` as f32, which must have `shape`.
    fn take(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LoadError> {
        let missing = || LoadError::MissingTensor(name.to_owned());
        let file = *self.at.get(name).ok_or_else(missing)?;
        let (path, bytes) = &self.files[file];
        // A view borrows the bytes stored beside it, so it is made for each tensor.
        let view = parse(path, bytes)?.tensor(name).map_err(|_| missing())?;
        if view.shape() != shape {
            return Err(LoadError::Shape {
                name: name.to_owned(),
                found: view.shape().to_vec(),
                expected: shape.to_vec(),
            });
        }
        to_f32(name, &view)
    }
}

fn to_f32(name: &str, view: &TensorView<'_>) -> Result<Vec<f32>, LoadError> {
    let data = view.data();
    let halves = || data.as_chunks::<2>().0.iter();
    match view.dtype() {
        safetensors::Dtype::F32 => {
            Ok(data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
        }
        safetensors::Dtype::BF16 => {
            Ok(halves().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect())
        }
        safetensors::Dtype::F16 => {
            Ok(halves().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect())
        }
        other => Err(LoadError::TensorType { name: name.to_owned(), dtype: format!("{other:?}") }),
    }
}

fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>, LoadError> {
    SafeTensors::deserialize(bytes)
        .map_err(|error| LoadError::Weights { path: path.to_owned(), reason: error.to_string() })
}

/// The weight files, sorted by name: those of the index where there is one, so that a second
/// copy of the weights in the folder is not read.
fn weight_files(dir: &Path) -> Result<Vec<PathBuf>, LoadError> {
    let index = dir.join("model.safetensors.index.json");
    let mut files: Vec<PathBuf> = if index.exists() {
        let json = read_json(&index)?;
        let map = json["weight_map"].as_object();
        let names = map.into_iter().flat_map(|map| map.values()).filter_map(Value::as_str);
        // Only names, so that an index cannot lead out of the folder.
        names.filter_map(|name| Path::new(name).file_name()).map(|name| dir.join(name)).collect()
    } else {
        let entries = fs::read_dir(dir).map_err(|source| read_error(dir, source))?;
        let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        paths.filter(|path| path.extension().is_some_and(|ext| ext == "safetensors")).collect()
    };
    files.sort();
    files.dedup();
    if files.is_empty() {
        return Err(LoadError::NoWeights(dir.to_owned()));
    }
    Ok(files)
}

fn read_json(path: &Path) -> Result<Value, LoadError> {
    let bytes = fs::read(path).map_err(|source| read_error(path, source))?;
    serde_json::from_slice(&bytes)
        .map_err(|source| LoadError::Json { path: path.to_owned(), source })
}

fn read_error(path: &Path, source: std::io::Error) -> LoadError {
    LoadError::Read { path: path.to_owned(), source }
}
