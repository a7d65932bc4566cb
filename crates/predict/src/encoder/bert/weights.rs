//! `model.safetensors` to a [`BertModel`].

use std::path::Path;

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

use super::EncoderError;
use super::config::BertConfig;
use super::forward::{BertModel, Layer};
use super::ops::Norm;
use super::product::PanelLinear;

/// The tensors of a file, under names with or without `bert.` before them.
pub(super) struct Weights<'a> {
    tensors: SafeTensors<'a>,
    prefix: &'static str,
}

impl<'a> Weights<'a> {
    pub(super) fn new(bytes: &'a [u8], path: &Path) -> Result<Self, EncoderError> {
        let tensors = SafeTensors::deserialize(bytes)
            .map_err(|error| EncoderError::malformed(path, error))?;
        // Files of a bare encoder have no prefix, those saved with a head do.
        let bare = tensors.tensor("embeddings.word_embeddings.weight").is_ok();
        let prefix = if bare { "" } else { "bert." };
        Ok(Self { tensors, prefix })
    }

    pub(super) fn model(&self, config: &BertConfig) -> Result<BertModel, EncoderError> {
        let hidden = config.hidden;
        let table = |name: &str, rows| {
            let name = format!("embeddings.{name}_embeddings.weight");
            self.take(&name, &[rows, hidden])
        };
        let mut positions = table("position", config.positions)?;
        let types = table("token_type", config.token_types)?;
        for position in positions.chunks_exact_mut(hidden) {
            // The zip ends after type 0: a single text has no other type.
            for (value, kind) in position.iter_mut().zip(&types) {
                *value += kind;
            }
        }
        let layers = (0..config.num_layers).map(|index| self.layer(index, config));
        Ok(BertModel {
            hidden,
            num_heads: config.num_heads,
            activation: config.activation,
            words: table("word", config.vocab)?,
            positions,
            norm: self.norm("embeddings.LayerNorm", config)?,
            layers: layers.collect::<Result<_, _>>()?,
        })
    }

    fn layer(&self, index: usize, config: &BertConfig) -> Result<Layer, EncoderError> {
        let (hidden, wide) = (config.hidden, config.intermediate);
        let name = |part: &str| format!("encoder.layer.{index}.{part}");
        let linear = |part: &str, n, k| {
            let (weight, bias) = self.dense(&name(part), n, k)?;
            Ok(PanelLinear::new(&weight, bias))
        };
        Ok(Layer {
            qkv: self.qkv(&name("attention.self"), config)?,
            out: linear("attention.output.dense", hidden, hidden)?,
            attention_norm: self.norm(&name("attention.output.LayerNorm"), config)?,
            up: linear("intermediate.dense", wide, hidden)?,
            down: linear("output.dense", hidden, wide)?,
            norm: self.norm(&name("output.LayerNorm"), config)?,
        })
    }

    /// Queries, keys and values as one matrix, `[3 · hidden, hidden]`; the scale of the scores
    /// goes into the queries.
    fn qkv(&self, name: &str, config: &BertConfig) -> Result<PanelLinear, EncoderError> {
        let hidden = config.hidden;
        // Scaled once here, and not each score in each attention.
        let scale = 1.0 / ((hidden / config.num_heads) as f32).sqrt();
        let (mut weight, mut bias) = self.dense(&format!("{name}.query"), hidden, hidden)?;
        for value in weight.iter_mut().chain(&mut bias) {
            *value *= scale;
        }
        // One matrix reads the input once for all three.
        for part in ["key", "value"] {
            let (more, more_bias) = self.dense(&format!("{name}.{part}"), hidden, hidden)?;
            weight.extend(more);
            bias.extend(more_bias);
        }
        Ok(PanelLinear::new(&weight, bias))
    }

    fn dense(&self, name: &str, n: usize, k: usize) -> Result<(Vec<f32>, Vec<f32>), EncoderError> {
        let weight = self.take(&format!("{name}.weight"), &[n, k])?;
        Ok((weight, self.take(&format!("{name}.bias"), &[n])?))
    }

    fn norm(&self, name: &str, config: &BertConfig) -> Result<Norm, EncoderError> {
        Ok(Norm {
            weight: self.take(&format!("{name}.weight"), &[config.hidden])?,
            bias: self.take(&format!("{name}.bias"), &[config.hidden])?,
            eps: config.norm_eps,
        })
    }

    /// A tensor's values; finite, of this shape.
    fn take(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, EncoderError> {
        let name = format!("{}{name}", self.prefix);
        let Ok(tensor) = self.tensors.tensor(&name) else {
            return Err(EncoderError::MissingTensor(name));
        };
        if tensor.shape() != shape {
            return Err(EncoderError::Shape {
                name,
                found: tensor.shape().to_vec(),
                expected: shape.to_vec(),
            });
        }
        // The file's reader has checked that the data fits shape and type, so no byte is left over.
        let pairs = || tensor.data().as_chunks::<2>().0.iter().copied();
        let values: Vec<f32> = match tensor.dtype() {
            Dtype::F32 => {
                let (values, _) = tensor.data().as_chunks::<4>();
                values.iter().copied().map(f32::from_le_bytes).collect()
            }
            Dtype::F16 => pairs().map(|x| f16::from_le_bytes(x).to_f32()).collect(),
            Dtype::BF16 => pairs().map(|x| bf16::from_le_bytes(x).to_f32()).collect(),
            other => {
                let dtype = format!("{other:?}");
                return Err(EncoderError::TensorType { name, dtype });
            }
        };
        // One NaN in the weights would make every vector useless.
        if values.iter().all(|value| value.is_finite()) {
            Ok(values)
        } else {
            Err(EncoderError::NotFinite(name))
        }
    }
}
