//! What a stable prefix was when all was well: its length and a keyed hash, no text.

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::config::UsageError;

/// The file.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Baseline {
    /// Length in tokens.
    pub(super) stable_prefix_tokens: u64,
    /// Whose tokens these are.
    tokenizer: String,
    /// Length in bytes.
    stable_prefix_bytes: usize,
    /// The hash's key: another one for each file, so that files tell nothing about one another.
    key: String,
    /// The text's hash, under the key.
    hash: String,
}

impl Baseline {
    /// Of a prefix that is as it should be, counted by `tokenizer`.
    pub(super) fn of(prefix: &str, tokens: u64, tokenizer: String) -> Self {
        let random = RandomState::new();
        let key = (0u64..4).map(|part| format!("{:016x}", random.hash_one(part)));
        let key: String = key.collect();
        Self {
            stable_prefix_tokens: tokens,
            tokenizer,
            stable_prefix_bytes: prefix.len(),
            hash: hash(&key, prefix),
            key,
        }
    }

    /// Reads one that was written with `tokenizer`.
    ///
    /// # Errors
    /// A usage error for a file that is none, and for lengths in another tokenizer's tokens.
    pub(super) fn read(path: &Path, tokenizer: &str) -> Result<Self> {
        let wrong = |error: &dyn std::fmt::Display| {
            UsageError(format!(
                "--baseline {}: {error}; write one with --write-baseline",
                path.display()
            ))
        };
        let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
        let baseline: Self = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
        if baseline.tokenizer != tokenizer {
            let other = format!(
                "its lengths are in tokens of another tokenizer ({}, here {tokenizer}); give the \
                 same --tokenizer",
                baseline.tokenizer
            );
            return Err(wrong(&other).into());
        }
        Ok(baseline)
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Whether `prefix` begins with the text that this was written of.
    pub(super) fn begins(&self, prefix: &str) -> bool {
        let front = prefix.get(..self.stable_prefix_bytes);
        front.is_some_and(|front| hash(&self.key, front) == self.hash)
    }
}

fn hash(key: &str, text: &str) -> String {
    let key = blake3::derive_key("headstart 2026 lint baseline v1", key.as_bytes());
    blake3::keyed_hash(&key, text.as_bytes())
        .to_hex()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_baseline_knows_its_text_again_and_does_not_hold_it() {
        let baseline = Baseline::of("You are helpful.", 4, "toy".to_owned());
        assert!(baseline.begins("You are helpful."));
        assert!(baseline.begins("You are helpful. And kind."));
        assert!(!baseline.begins("You are helpless. "));
        assert!(!baseline.begins("You"));
        let text = serde_json::to_string(&baseline).expect("JSON");
        assert!(!text.contains("helpful"));
        assert_ne!(
            baseline.hash,
            Baseline::of("You are helpful.", 4, "toy".to_owned()).hash
        );
        assert_eq!(
            serde_json::from_str::<Baseline>(&text).expect("reads"),
            baseline
        );
    }
}
