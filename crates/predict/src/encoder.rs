//! Text to numbers.

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
