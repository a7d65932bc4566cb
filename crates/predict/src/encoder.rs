//! Text to numbers.

pub mod bert;
pub mod ngram;

use std::path::Path;
use std::sync::Arc;

/// A fixed function from texts to vectors of one length.
pub trait Encoder: Send + Sync {
    /// Names the function: its kind, its settings and a fingerprint of its weights. A classifier
    /// works with the encoder that it was trained with and refuses others.
    fn identity(&self) -> &str;

    /// Values per text.
    fn dims(&self) -> usize;

    /// The vectors of `texts`, one after another: `texts.len() · dims()` finite values, each
    /// vector of length 1 (an empty text may be all zeros). The same text gives the same vector,
    /// whatever stands beside it, but for rounding.
    fn encode(&self, texts: &[&str]) -> Vec<f32>;
}

/// The encoder that `spec` names: `ngram`, or the folder of a BERT-family model.
///
/// # Errors
/// When it is neither; the error says what is missing.
pub fn open(spec: &str) -> Result<Arc<dyn Encoder>, bert::EncoderError> {
    if spec == "ngram" {
        return Ok(Arc::new(ngram::NgramEncoder::new()));
    }
    Ok(Arc::new(bert::BertEncoder::open(Path::new(spec))?))
}
