//! Why a folder cannot serve as an encoder.

use std::path::{Path, PathBuf};

/// Why a model folder was refused.
#[derive(Debug, thiserror::Error)]
pub enum EncoderError {
    /// A file is missing or unreadable.
    #[error(
        "cannot read {}: {source}. An encoder's folder holds config.json, tokenizer.json and \
         model.safetensors (one file; other weight formats are not read)",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file that is not what its name says.
    #[error("{} is malformed: {reason}. Was the download complete?", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// A model that is not computed here.
    #[error(
        "{}: {what} is not supported. BERT encoders with absolute positions and mean or \
         first-token pooling are",
        path.display()
    )]
    Unsupported {
        /// The file that says so.
        path: PathBuf,
        /// The unsupported setting.
        what: String,
    },
    /// A tensor that the architecture needs.
    #[error("the weights hold no tensor `{0}`, which a BERT encoder of this config.json needs")]
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
    #[error("tensor `{name}` is {dtype}; F32, F16 and BF16 are read")]
    TensorType {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: String,
    },
    /// A tensor with a NaN or an infinity.
    #[error("tensor `{0}` holds values that are no finite numbers: the weights are damaged")]
    NotFinite(String),
}

impl EncoderError {
    pub(super) fn malformed(path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::Malformed { path: path.to_owned(), reason: reason.to_string() }
    }

    pub(super) fn unsupported(path: &Path, what: impl Into<String>) -> Self {
        Self::Unsupported { path: path.to_owned(), what: what.into() }
    }
}
