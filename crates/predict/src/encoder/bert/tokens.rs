//! Texts to token ids.

use std::path::Path;

use tokenizers::{Tokenizer, TruncationParams};

use super::EncoderError;

/// Bytes looked at per token that the model can take. Words, white space included, are shorter
/// but in texts made to be strange; there what lies behind is not read, which bounds the work that
/// a text of megabytes causes.
const BYTES_PER_TOKEN: usize = 64;

/// A tokenizer that cuts at the model's limit.
#[derive(Debug)]
pub(super) struct TruncatingTokenizer {
    tokenizer: Tokenizer,
    prefix: String,
    lowercase: bool,
    most_bytes: usize,
}

/// The folder's settings for texts.
#[derive(Clone, Debug)]
pub(super) struct TextSettings {
    pub(super) prefix: String,
    pub(super) lowercase: bool,
    /// Tokens of a text at most, special ones included.
    pub(super) max_tokens: usize,
}

impl TruncatingTokenizer {
    /// From a tokenizer.json whose ids all lie below `vocab`.
    pub(super) fn new(
        bytes: &[u8],
        path: &Path,
        vocab: usize,
        settings: TextSettings,
    ) -> Result<Self, EncoderError> {
        let malformed = |error: tokenizers::Error| EncoderError::malformed(path, error);
        let mut tokenizer = Tokenizer::from_bytes(bytes).map_err(malformed)?;
        let highest = tokenizer.get_vocab(true).into_values().max().unwrap_or(0);
        // Such an id would read beyond the table of embeddings.
        if highest as usize >= vocab {
            let reason = format!("token id {highest} lies outside the model's {vocab} embeddings");
            return Err(EncoderError::malformed(path, reason));
        }
        tokenizer.with_padding(None);
        // The file's own limit is removed before the special tokens are counted.
        tokenizer.with_truncation(None).map_err(malformed)?;
        let special = tokenizer.encode_fast("", true).map_err(malformed)?.get_ids().len();
        // Truncation must leave room for a token of the text.
        if special >= settings.max_tokens {
            let reason = format!(
                "{special} special tokens leave no room in a model of {} positions",
                settings.max_tokens
            );
            return Err(EncoderError::malformed(path, reason));
        }
        let truncation =
            TruncationParams { max_length: settings.max_tokens, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(malformed)?;
        let tokens = Self {
            tokenizer,
            most_bytes: settings.max_tokens * BYTES_PER_TOKEN,
            prefix: settings.prefix,
            lowercase: settings.lowercase,
        };
        // A vocabulary without a token for the unknown fails on the first strange word.
        tokens.try_ids("a \u{1f9ff} \u{e000}").map_err(malformed)?;
        Ok(tokens)
    }

    /// The ids of `text` behind the prefix, special ones included, cut at the model's limit. None
    /// where the tokenizer fails, which its probe at the start makes unlikely.
    pub(super) fn ids(&self, text: &str) -> Vec<u32> {
        self.try_ids(text).unwrap_or_default()
    }

    fn try_ids(&self, text: &str) -> Result<Vec<u32>, tokenizers::Error> {
        // Cut before tokenizing: only the first `max_tokens` tokens matter, and the rest costs
        // time.
        let text = &text[..text.floor_char_boundary(self.most_bytes)];
        let mut text = format!("{}{text}", self.prefix);
        if self.lowercase {
            text = text.to_lowercase();
        }
        let encoding = self.tokenizer.encode_fast(text, true)?;
        Ok(encoding.get_ids().to_vec())
    }
}
