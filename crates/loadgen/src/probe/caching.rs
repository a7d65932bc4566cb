//! The caching probe: does an engine reuse prefixes at all, in which steps, and does it keep salts
//! apart.
//!
//! ```text
//! first      W            → its tokens, its time
//! repeated   W            → cached tokens: nearly all of them
//! cut        W[..k] + X   → cached tokens: a multiple of the block size, for some k
//! salted     W, new salt  → cached tokens: none
//! ```

use std::time::Duration;

use headstart_trace::format::conversation::Role;

use super::words::TextGenerator;
use super::{run_id, said};
use crate::{ApiClient, ChatApiRequest, Completion, LoadgenError};

/// Words of the prompt: more tokens than the largest block and the least lengths of providers.
const WORDS: usize = 1500;

/// Words for a model whose context is too short for those.
const FEW_WORDS: usize = 150;

/// Shares of the prompt that the cut ones begin with, in hundredths.
const CUTS: [usize; 6] = [21, 34, 47, 62, 75, 88];

/// Answers of the probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CachingProbe {
    /// Length of the prompt, tokens.
    pub prompt_tokens: u32,
    /// Cached tokens of its first request.
    pub first: u32,
    /// Cached tokens of its second.
    pub repeated: u32,
    /// Cached tokens under another salt.
    pub salted: u32,
    /// Cached tokens of prompts that begin with a part of it.
    pub cut: Vec<u32>,
    /// Time to the first token of the first request.
    pub ttft_first: Duration,
    /// The same of the second.
    pub ttft_repeated: Duration,
}

impl CachingProbe {
    /// Sends the requests, one after the other.
    ///
    /// # Errors
    /// The first request that brings no answer.
    pub async fn run(client: &ApiClient) -> Result<Self, LoadgenError> {
        match Self::of_length(client, WORDS).await {
            Err(error) if error.is_context_overflow() => Self::of_length(client, FEW_WORDS).await,
            other => other,
        }
    }

    async fn of_length(client: &ApiClient, words: usize) -> Result<Self, LoadgenError> {
        let run = run_id();
        let mut generator = TextGenerator::new(run as u64);
        let text = generator.text(words);
        let salt = format!("caching-{run:x}");
        let first = ask(client, &text, &salt).await?;
        let repeated = ask(client, &text, &salt).await?;
        let mut cut = Vec::new();
        let (all, tail) = (text.split(' ').collect::<Vec<_>>(), generator.text(words / 20));
        for share in CUTS {
            let front = all[..all.len() * share / 100].join(" ");
            let answer = ask(client, &format!("{front} {share} {tail}"), &salt).await?;
            cut.push(answer.cached_tokens);
        }
        let salted = ask(client, &text, &format!("{salt}-other")).await?;
        Ok(Self {
            prompt_tokens: first.prompt_tokens,
            first: first.cached_tokens,
            repeated: repeated.cached_tokens,
            salted: salted.cached_tokens,
            cut,
            ttft_first: first.ttft,
            ttft_repeated: repeated.ttft,
        })
    }

    /// The greatest length of which all counts are multiples, tokens; 0 without hits. It is the
    /// block size or a multiple of it.
    #[must_use]
    pub fn step(&self) -> u32 {
        let counts = self.cut.iter().chain([&self.repeated]);
        counts.fold(0, |step, &count| crate::validation::gcd(step, count))
    }
}

async fn ask(client: &ApiClient, text: &str, salt: &str) -> Result<Completion, LoadgenError> {
    let messages = [said(Role::User, text.to_owned())];
    let request = ChatApiRequest { messages: &messages, max_tokens: 1, cache_salt: Some(salt) };
    client.chat(&request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_step_is_the_common_divisor_of_the_counts() {
        let probe = |repeated, cut: &[u32]| CachingProbe {
            repeated,
            cut: cut.to_vec(),
            ..CachingProbe::default()
        };
        assert_eq!(probe(320, &[64, 96, 160]).step(), 32);
        assert_eq!(probe(0, &[]).step(), 0);
        assert_eq!(probe(1500, &[300, 451]).step(), 1, "an engine that matches token by token");
    }
}
