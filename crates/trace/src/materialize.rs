//! Prompts for a trace without any: every anonymous block gets tokens of its own.
//!
//! ```text
//! trace     ids [ 7 8 9 ], 1,100 tokens in, 30 out          512 tokens an id
//! prompt    tokens of 7 │ tokens of 8 │ first 76 of 9       30 tokens forced
//! ```
//!
//! Equal ids get equal tokens and different ids different ones, so an engine that is sent the
//! prompts finds what a replay of the trace finds; where the two still differ, and by how much,
//! stands in [`held`]. The answer's length is forced, its content is not: in the trace the next
//! turn has blocks of its own where the answer would be, so answers are never found again.
//!
//! **Shrinking.** A trace of 512 tokens an id may be given `block_tokens` 16: the same blocks,
//! the same hits *in blocks*, on a thirty-second of the tokens. A last block that is not full
//! stays so, and one that is stays that. Answers are not shrunk, so they weigh more.
//!
//! Tokens of a prompt beyond its ids (all of them, in a trace of lengths only) are unique and
//! never hit. Tokenizers are unknown here: the caller says which ids are plain tokens.

pub mod held;
mod tokens;

use std::ops::Range;

use headstart_core::{FinishKind, Nanos, Rng, SessionId, TokenId, ToolClass, TraceRequest};

use tokens::BlockTokens;

/// Parameters for turning a trace into prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaterializerConfig {
    /// Tokens an id stands for in the trace; 0 where it has lengths only.
    pub trace_block_tokens: u32,
    /// Tokens it gets; other than the trace's, prompts shrink or grow in proportion.
    pub block_tokens: u32,
    /// Token ids to draw from: within the model's vocabulary, without special tokens.
    pub vocabulary: Range<TokenId>,
    /// Other seeds give other tokens, and find nothing of a run before.
    pub seed: u64,
    /// Longest prompt, tokens: bounds the memory that one request takes.
    pub max_prompt_tokens: u32,
    /// Treatment of longer ones.
    pub over_long: OverLong,
    /// Answer length of every request, in place of the trace's.
    pub output_tokens: Option<u32>,
}

/// Treatment of a prompt beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverLong {
    /// It is not made.
    Refuse,
    /// Its end is left off.
    Cut,
}

/// Why requests cannot be given tokens as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaterializeError {
    /// Too few tokens to choose from.
    #[error("a vocabulary of {len} token(s) cannot tell blocks apart; give it two at least")]
    Vocabulary {
        /// Its size.
        len: u32,
    },
    /// Blocks too short to differ for certain.
    #[error(
        "{block_tokens} token(s) a block, out of {vocabulary}, cannot tell all blocks apart; \
         {needed} a block do, and so does a larger vocabulary"
    )]
    BlockTooShort {
        /// Tokens a block as asked.
        block_tokens: u32,
        /// Tokens needed.
        needed: usize,
        /// Tokens to choose from.
        vocabulary: u32,
    },
}

/// One request to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenPrompt {
    /// Its place among the requests given, from 0.
    pub number: u64,
    /// Arrival, from the start of the trace.
    pub arrival: Nanos,
    /// The conversation, when known.
    pub session: Option<SessionId>,
    /// The prompt, at least one token.
    pub tokens: Vec<TokenId>,
    /// Length of the answer to force, at least one: an engine that prefills makes a token.
    pub output_tokens: u32,
    /// The recorded end of the answer, which a forced answer does not have.
    pub finish: FinishKind,
    /// The tools that the recorded answer called.
    pub tool: ToolClass,
    /// Whether it was longer than the limit.
    pub is_cut: bool,
}

/// Result for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Materialization {
    /// It can be sent.
    Prompt(TokenPrompt),
    /// It has no token, so there is nothing to send.
    Empty,
    /// It is beyond the limit, and [`OverLong::Refuse`] was asked for.
    TooLong {
        /// Its place among the requests given, from 0.
        number: u64,
        /// Tokens that it would have.
        tokens: u64,
    },
}

/// Turns requests into prompts, one at a time, in order.
#[derive(Clone, Debug)]
pub struct Materializer {
    config: MaterializerConfig,
    shared: BlockTokens,
    own: BlockTokens,
    number: u64,
}

impl Materializer {
    /// Ready for the first request.
    ///
    /// # Errors
    /// When blocks of that length, from that vocabulary, could have equal tokens.
    pub fn new(config: MaterializerConfig) -> Result<Self, MaterializeError> {
        let Range { start, end } = config.vocabulary;
        // A reversed range counts as empty and is refused below.
        let len = end.saturating_sub(start);
        if len < 2 {
            return Err(MaterializeError::Vocabulary { len });
        }
        let needed = BlockTokens::digits(len);
        if (config.block_tokens as usize) < needed {
            return Err(MaterializeError::BlockTooShort {
                block_tokens: config.block_tokens,
                needed,
                vocabulary: len,
            });
        }
        // Two keys, because block ids and request numbers may both count from 0.
        let mut keys = Rng::new(config.seed);
        let mut tokens = || BlockTokens::new(keys.next_u64(), config.vocabulary.clone());
        Ok(Self { shared: tokens(), own: tokens(), config, number: 0 })
    }

    /// The prompt of the next request. O(its tokens), which the limit bounds.
    pub fn next(&mut self, request: &TraceRequest) -> Materialization {
        let number = self.number;
        // Refused and empty requests count too: a number is a place in the trace.
        self.number += 1;
        let (tokens, limit) = (self.len(request), u64::from(self.config.max_prompt_tokens));
        if tokens > limit && self.config.over_long == OverLong::Refuse {
            return Materialization::TooLong { number, tokens };
        }
        let len = tokens.min(limit) as usize;
        if len == 0 {
            return Materialization::Empty;
        }
        let output_tokens = self.config.output_tokens.or(request.output_tokens);
        Materialization::Prompt(TokenPrompt {
            number,
            arrival: request.arrival,
            session: request.session,
            tokens: self.tokens(number, request, len),
            output_tokens: output_tokens.unwrap_or(1).max(1),
            finish: request.finish,
            tool: request.tool,
            is_cut: tokens > limit,
        })
    }

    /// Length of the prompt, tokens: the trace's, in proportion; whole blocks where it has none.
    fn len(&self, request: &TraceRequest) -> u64 {
        let [old, new] = [self.config.trace_block_tokens, self.config.block_tokens].map(u64::from);
        match request.input_tokens {
            Some(tokens) if old == 0 => u64::from(tokens),
            Some(tokens) => {
                let (whole, rest) = (u64::from(tokens) / old, u64::from(tokens) % old);
                // What is no whole block must not become one, nor nothing.
                let rest = (rest * new).div_ceil(old).min(new - 1);
                whole * new + rest
            }
            None => request.blocks.len() as u64 * new,
        }
    }

    fn tokens(&self, number: u64, request: &TraceRequest, len: usize) -> Vec<TokenId> {
        let block_tokens = self.config.block_tokens as usize;
        let mut tokens = Vec::with_capacity(len);
        for id in request.blocks.iter() {
            // A trace may list more blocks than its prompt's length fills.
            if tokens.len() == len {
                break;
            }
            let room = block_tokens.min(len - tokens.len());
            tokens.extend(self.shared.of(id, room));
        }
        tokens.extend(self.own.of(number, len - tokens.len()));
        tokens
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn options() -> MaterializerConfig {
        MaterializerConfig {
            trace_block_tokens: 16,
            block_tokens: 16,
            vocabulary: 512..4093,
            seed: 1,
            max_prompt_tokens: 1000,
            over_long: OverLong::Refuse,
            output_tokens: None,
        }
    }

    fn request(ids: &[u64], input: Option<u32>, output: Option<u32>) -> TraceRequest {
        TraceRequest {
            blocks: ids.iter().copied().collect(),
            input_tokens: input,
            output_tokens: output,
            ..TraceRequest::default()
        }
    }

    fn prompt(options: MaterializerConfig, request: &TraceRequest) -> TokenPrompt {
        let mut materializer = Materializer::new(options).expect("valid");
        match materializer.next(request) {
            Materialization::Prompt(prompt) => prompt,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn equal_ids_have_equal_tokens_and_others_differ() {
        let mut materializer = Materializer::new(options()).expect("valid");
        let mut rng = Rng::new(9);
        let mut seen: HashMap<u64, Vec<TokenId>> = HashMap::new();
        for _ in 0..200 {
            let ids: Vec<u64> = (0..rng.below(20)).map(|_| rng.next_u64() % 300).collect();
            let Materialization::Prompt(prompt) = materializer.next(&request(&ids, None, None))
            else {
                assert!(ids.is_empty(), "{ids:?} has tokens");
                continue;
            };
            assert_eq!(prompt.tokens.len(), ids.len() * 16);
            for (id, block) in ids.iter().zip(prompt.tokens.chunks(16)) {
                assert_eq!(seen.entry(*id).or_insert_with(|| block.to_vec()), block);
            }
        }
        let distinct: std::collections::HashSet<_> = seen.values().collect();
        assert!(distinct.len() == seen.len() && seen.len() > 250);
    }

    /// (ids, input tokens) of a trace with `old` tokens an id, with `new` of them: prompt length.
    fn check_len((ids, input): (usize, Option<u32>), (old, new): (u32, u32), expected: usize) {
        let ids: Vec<u64> = (0..ids as u64).collect();
        let options =
            MaterializerConfig { trace_block_tokens: old, block_tokens: new, ..options() };
        let prompt = prompt(options, &request(&ids, input, None));
        assert_eq!(prompt.tokens.len(), expected);
    }

    #[test]
    fn prompts_have_the_length_that_the_trace_says() {
        check_len((3, Some(40)), (16, 16), 40);
        check_len((3, Some(48)), (16, 16), 48);
        check_len((3, None), (16, 16), 48);
        check_len((3, Some(60)), (16, 16), 60);
        check_len((3, Some(20)), (16, 16), 20);
        check_len((0, Some(20)), (16, 16), 20);
        check_len((0, Some(20)), (0, 16), 20);
    }

    #[test]
    fn a_shrunk_block_is_full_when_it_was() {
        check_len((3, Some(1536)), (512, 16), 48);
        check_len((3, Some(1535)), (512, 16), 47);
        check_len((3, Some(1025)), (512, 16), 33);
        check_len((3, Some(1024 + 256)), (512, 16), 40);
        check_len((2, Some(17)), (16, 64), 68);
        check_len((2, None), (512, 16), 32);
    }

    #[test]
    fn tokens_beyond_the_ids_are_the_requests_own() {
        let mut materializer = Materializer::new(options()).expect("valid");
        let request = request(&[1], Some(64), None);
        let mut tokens = || match materializer.next(&request) {
            Materialization::Prompt(prompt) => prompt.tokens,
            other => panic!("{other:?}"),
        };
        let (one, two) = (tokens(), tokens());
        assert_eq!(one[..16], two[..16]);
        assert_ne!(one[16..22], two[16..22]);
    }

    #[test]
    fn the_answer_has_at_least_a_token() {
        for (given, forced, expected) in [
            (Some(7), None, 7),
            (Some(0), None, 1),
            (None, None, 1),
            (Some(7), Some(3), 3),
            (Some(7), Some(0), 1),
        ] {
            let options = MaterializerConfig { output_tokens: forced, ..options() };
            let prompt = prompt(options, &request(&[1], None, given));
            assert_eq!(prompt.output_tokens, expected);
        }
    }

    #[test]
    fn a_long_prompt_is_refused_or_cut() {
        let long = request(&[1, 2], Some(u32::MAX), None);
        let next = |over_long| {
            let options = MaterializerConfig { over_long, ..options() };
            Materializer::new(options).expect("valid").next(&long)
        };
        let tokens = u64::from(u32::MAX);
        let refused = Materialization::TooLong { number: 0, tokens };
        assert_eq!(next(OverLong::Refuse), refused);
        let Materialization::Prompt(prompt) = next(OverLong::Cut) else {
            panic!("a cut prompt is one");
        };
        assert!(prompt.is_cut && prompt.tokens.len() == 1000);
        let empty = Materializer::new(options()).expect("valid").next(&request(&[], None, None));
        assert_eq!(empty, Materialization::Empty);
    }

    fn check_error(block_tokens: u32, vocabulary: Range<TokenId>, part: &str) {
        let options = MaterializerConfig { block_tokens, vocabulary, ..options() };
        let error = Materializer::new(options).expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }

    #[test]
    fn what_cannot_tell_blocks_apart_is_refused() {
        check_error(16, 5..5, "vocabulary of 0");
        check_error(16, 5..6, "vocabulary of 1");
        #[expect(clippy::reversed_empty_ranges, reason = "a caller's mistake")]
        check_error(16, 6..5, "vocabulary of 0");
        check_error(16, 0..8, "22 a block do");
        check_error(5, 512..4093, "6 a block do");
        check_error(0, 512..4093, "6 a block do");
    }
}
