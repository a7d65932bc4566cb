//! Baseline of a stable prefix: its length and keyed hashes, no text.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use serde::{Deserialize, Serialize};

use headstart_core::UsageError;

use crate::prompt::PromptBody;

/// Most parts of the prefix behind which its beginning is hashed: they tell where another one
/// parts.
const PARTS_MAX: usize = 16;

/// Shortest part, bytes: so much text cannot be guessed from two hashes.
const PART_BYTES_MIN: usize = 256;

/// The file of a baseline.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Baseline {
    /// Length in tokens.
    pub stable_prefix_tokens: u64,
    /// Tokenizer of the token count.
    tokenizer: String,
    /// Length in bytes.
    stable_prefix_bytes: usize,
    /// The hash's key: another one for each file, so that files tell nothing about one another.
    key: String,
    /// The text's hash, under the key.
    hash: String,
    /// The same of its beginnings, up to the end of each equal part but the last.
    #[serde(default)]
    hashes: Vec<String>,
}

/// Comparison of the stable prefix with a baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Begins {
    /// With all of the baseline's.
    AsBefore,
    /// With another text, of which at least this share is the baseline's.
    Otherwise {
        /// From 0 to 1.
        shared: f64,
    },
}

impl Baseline {
    /// Of a prefix that is as it should be, counted by `tokenizer`.
    pub(super) fn of(prefix: &PromptBody, tokens: u64, tokenizer: String) -> Self {
        let prefix = &*prefix.bytes();
        let parts = (prefix.len() / PART_BYTES_MIN).clamp(1, PARTS_MAX);
        // The standard library seeds it from the operating system, so no generator of random
        // numbers is needed.
        let random = RandomState::new();
        // Each of the four hashes is 64 bits: the key has 256.
        let key = (0u64..4).map(|part| format!("{:016x}", random.hash_one(part)));
        let key: String = key.collect();
        Self {
            stable_prefix_tokens: tokens,
            tokenizer,
            stable_prefix_bytes: prefix.len(),
            hash: hash(&key, prefix),
            // The last part ends with the prefix, whose hash is above.
            hashes: (1..parts)
                .map(|part| hash(&key, &prefix[..prefix.len() * part / parts]))
                .collect(),
            // The key goes last into the struct because the hashes above borrow it.
            key,
        }
    }

    /// Reads one that was written with `tokenizer`.
    ///
    /// # Errors
    /// A usage error for a file that is not a baseline, or is in another tokenizer's tokens.
    pub(super) fn read(path: &Path, tokenizer: &str) -> Result<Self, UsageError> {
        let wrong = |error: &dyn std::fmt::Display| {
            UsageError(format!(
                "--baseline {}: {error}; write one with --write-baseline",
                path.display()
            ))
        };
        let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
        let baseline: Self = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
        // Counts of two tokenizers cannot be compared: a shorter text may have more tokens.
        if baseline.tokenizer != tokenizer {
            let other = format!(
                "its lengths are in tokens of another tokenizer ({}, here {tokenizer}); give the \
                 same --tokenizer",
                baseline.tokenizer
            );
            return Err(wrong(&other));
        }
        Ok(baseline)
    }

    /// Returns the text of the file, as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("texts and numbers are JSON") + "\n"
    }

    /// Whether `prefix` begins with what this was written of.
    pub(super) fn begins(&self, prefix: &PromptBody) -> Begins {
        let (bytes, prefix) = (self.stable_prefix_bytes, &*prefix.bytes());
        let is_same = |front: &[u8], expected: &str| hash(&self.key, front) == expected;
        // The prefix may be shorter than the baseline's; then no slice of that length exists.
        let whole = prefix.get(..bytes);
        // The whole is compared first: a longer prefix that begins alike is no change.
        if whole.is_some_and(|front| is_same(front, &self.hash)) {
            return Begins::AsBefore;
        }
        let parts = self.hashes.len() + 1;
        // The bounds are those with which the file was written.
        let is_part = |(part, expected): &(usize, &String)| {
            let front = prefix.get(..bytes * part / parts);
            front.is_some_and(|front| is_same(front, expected))
        };
        // Each hash is of a beginning, so after the first that differs all others differ as well.
        let same = (1..parts).zip(&self.hashes).take_while(is_part).count();
        Begins::Otherwise { shared: same as f64 / parts as f64 }
    }
}

fn hash(key: &str, bytes: &[u8]) -> String {
    let key = blake3::derive_key("headstart 2026 lint baseline v1", key.as_bytes());
    blake3::keyed_hash(&key, bytes).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> PromptBody {
        PromptBody::Text(text.to_owned())
    }

    fn baseline(prefix: &PromptBody) -> Baseline {
        Baseline::of(prefix, 4, "toy".to_owned())
    }

    #[test]
    fn a_baseline_knows_its_text_again_and_does_not_hold_it() {
        let baseline = baseline(&text("You are helpful."));
        let begins = |prefix: &str| baseline.begins(&text(prefix));
        assert_eq!(begins("You are helpful."), Begins::AsBefore);
        assert_eq!(begins("You are helpful. And kind."), Begins::AsBefore);
        let otherwise = |shared| Begins::Otherwise { shared };
        assert_eq!(begins("You are helpless. "), otherwise(0.0), "too short for parts");
        let file = serde_json::to_string(&baseline).expect("JSON");
        assert!(!file.contains("helpful"));
        let another = Baseline::of(&text("You are helpful."), 4, "toy".to_owned());
        assert_ne!(baseline.hash, another.hash);
        assert_eq!(serde_json::from_str::<Baseline>(&file).expect("reads"), baseline);
    }

    #[test]
    fn another_beginning_is_told_by_how_much_of_it_is_the_same() {
        let ids = |changed: usize| {
            let id = |at: usize| if at == changed { 7 } else { 1_000 + at as u32 };
            PromptBody::Ids((0..1024).map(id).collect())
        };
        // 4,096 bytes in sixteen parts.
        let baseline = baseline(&ids(5_000));
        assert_eq!(baseline.begins(&ids(5_000)), Begins::AsBefore);
        for (changed, shared) in [(0, 0.0), (63, 0.0), (64, 1.0 / 16.0), (1023, 15.0 / 16.0)] {
            let expected = Begins::Otherwise { shared };
            assert_eq!(baseline.begins(&ids(changed)), expected, "{changed}");
        }
    }
}
