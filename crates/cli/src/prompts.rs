//! A trace's requests as prompts of token ids, for `trace materialize` and `bench trace`.

use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::exit::usage;
use crate::input::sample;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use headstart_core::{TokenId, TraceRequest};
use headstart_trace::materialize::TokenPrompt;
use headstart_trace::materialize::{Materialization, Materializer, MaterializerConfig, OverLong};
use headstart_trace::{TraceError, TraceInfo};

/// Tokens of an id in a trace that has lengths only.
const DEFAULT_ID_TOKENS: u32 = 16;

/// Longest prompt unless told otherwise, tokens: beyond any model's context, and small enough
/// that a wrong length in a trace fills no memory.
const MAX_PROMPT_TOKENS: u32 = 1 << 20;

/// Options for turning a trace into prompts.
#[derive(Args, Debug)]
#[command(next_help_heading = "Prompts")]
pub(crate) struct PromptOptions {
    /// Share of the sessions to keep
    ///
    /// Sessions are kept or dropped as a whole.
    #[arg(long, default_value_t = 1.0, value_name = "SHARE")]
    scale: f64,
    /// Tokens per block id [default: as in the trace]
    ///
    /// A smaller number shortens the prompts and keeps the block hits.
    #[arg(long, value_name = "N")]
    id_tokens: Option<u32>,
    /// Range of random token ids, without HIGH
    ///
    /// Leave out the model's special tokens.
    #[arg(long, default_value = "512..4093", value_name = "LOW..HIGH")]
    vocab: String,
    /// Length of every answer [default: as in the trace]
    #[arg(long, value_name = "N")]
    output_tokens: Option<u32>,
    /// Maximum prompt length, tokens
    #[arg(long, default_value_t = MAX_PROMPT_TOKENS, value_name = "N")]
    max_prompt_tokens: u32,
    /// Handling of prompts above --max-prompt-tokens
    #[arg(long, default_value = "refuse", value_name = "ACTION")]
    over_long: TooLong,
    /// Seed of the token ids
    ///
    /// Use a new seed for each run against one server: its prompts then miss earlier ones.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    token_seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TooLong {
    /// Stop with an error that names the request
    Refuse,
    /// Cut off the end
    Cut,
}

/// Requests that were not sent as they stand in the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PromptAlterations {
    /// Prompts whose end was left off.
    pub(crate) cut: u64,
    /// Requests without a token, left out.
    pub(crate) empty: u64,
}

/// Prompts, each with the request that it is made of.
pub(crate) struct PromptStream<I> {
    requests: I,
    materializer: Materializer,
    max_prompt_tokens: u32,
    id_tokens: u32,
    altered: PromptAlterations,
}

impl PromptOptions {
    /// The prompts of `requests`, whose trace is as `info` says.
    pub(crate) fn prompts<I>(
        &self,
        info: &TraceInfo,
        requests: I,
    ) -> Result<PromptStream<impl Iterator<Item = Result<TraceRequest, TraceError>> + use<I>>>
    where
        I: Iterator<Item = Result<TraceRequest, TraceError>>,
    {
        let sample = sample(self.scale)?;
        let of_the_trace = match info.block_tokens {
            0 => DEFAULT_ID_TOKENS,
            block_tokens => block_tokens,
        };
        let id_tokens = self.id_tokens.unwrap_or(of_the_trace);
        let materializer = Materializer::new(MaterializerConfig {
            trace_block_tokens: info.block_tokens,
            block_tokens: id_tokens,
            vocabulary: vocabulary(&self.vocab)?,
            seed: self.token_seed,
            max_prompt_tokens: self.max_prompt_tokens,
            over_long: match self.over_long {
                TooLong::Refuse => OverLong::Refuse,
                TooLong::Cut => OverLong::Cut,
            },
            output_tokens: self.output_tokens,
        });
        let wrong = |error| usage(format!("--id-tokens and --vocab: {error}"));
        Ok(PromptStream {
            requests: sample.thin(requests),
            materializer: materializer.map_err(wrong)?,
            max_prompt_tokens: self.max_prompt_tokens,
            id_tokens,
            altered: PromptAlterations::default(),
        })
    }
}

impl<I> PromptStream<I> {
    /// Tokens that each block id gets.
    pub(crate) fn id_tokens(&self) -> u32 {
        self.id_tokens
    }

    /// Counts of altered requests so far.
    pub(crate) fn altered(&self) -> PromptAlterations {
        self.altered
    }
}

impl<I: Iterator<Item = Result<TraceRequest, TraceError>>> Iterator for PromptStream<I> {
    type Item = Result<(TraceRequest, TokenPrompt)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let request = match self.requests.next()? {
                Ok(request) => request,
                Err(error) => return Some(Err(error.into())),
            };
            match self.materializer.next(&request) {
                Materialization::Prompt(prompt) => {
                    self.altered.cut += u64::from(prompt.is_cut);
                    return Some(Ok((request, prompt)));
                }
                Materialization::Empty => self.altered.empty += 1,
                Materialization::TooLong { number, tokens } => {
                    return Some(too_long(number, tokens, self.max_prompt_tokens));
                }
            }
        }
    }
}

fn too_long<T>(number: u64, tokens: u64, limit: u32) -> Result<T> {
    bail!(
        "request {number} (from 0) has a prompt of {tokens} tokens, and --max-prompt-tokens is \
         {limit}; raise it, give ids fewer tokens with --id-tokens, or cut with --over-long cut"
    )
}

impl std::fmt::Display for PromptAlterations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cut, empty } = self;
        write!(f, "{cut} cut to --max-prompt-tokens, {empty} without a token left out")
    }
}

/// Makes other prompts each time, so that nothing of an earlier run is still cached.
pub(crate) fn unseen_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_nanos() as u64)
}

/// A range of token ids, as `LOW..HIGH`.
pub(crate) fn vocabulary(text: &str) -> Result<Range<TokenId>> {
    let range = text.split_once("..").and_then(|(low, high)| {
        let range = low.parse().ok()?..high.parse().ok()?;
        (range.start < range.end).then_some(range)
    });
    let wrong = || usage(format!("--vocab {text}: expected LOW..HIGH, as 512..4093"));
    range.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<Range<TokenId>>) {
        assert_eq!(vocabulary(text).ok(), expected, "{text}");
    }

    #[test]
    fn a_vocabulary_is_a_range() {
        check("512..4093", Some(512..4093));
        check("0..4294967295", Some(0..u32::MAX));
        for wrong in ["", "5", "5..", "..5", "5..5", "6..5", "-1..5", "5..=9", "0..4294967296"] {
            check(wrong, None);
        }
    }
}
