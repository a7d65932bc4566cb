//! Text to tokens and back: chat templates, tokenizers, streaming text, stop strings.
//!
//! ```text
//! messages ─ ChatTemplate ─ text ─ Tokenizer ─ tokens ─▶ engine
//!                                                          │
//! client ◀─ StopMatcher ─ text ─ Detokenizer ◀─ one token ─┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`model`] | [`PromptModel`], all of this for one model, from its directory |
//! | [`chat`] | [`ChatText`], the text that an engine makes of a chat request |
//! | [`dialect`] | [`Dialect`], a request as an engine hands it to the template |
//! | [`template`] | [`ChatTemplate`], a conversation as the text that the model was trained on |
//! | [`tokenizer`] | [`Tokenizer`], text to tokens by the fastest implementation that agrees |
//! | [`prefix_tokens`] | [`PrefixTokens`], the same with what earlier prompts already cost |
//! | [`detokenizer`] | [`Detokenizer`], one token at a time to text |
//! | [`stop`] | [`StopMatcher`], the end of an answer at a stop string |
//! | [`normalize`] | [`Normalizers`], requests that mean the same made to share their front |
//! | [`error`] | [`PromptError`] |
//!
//! This crate knows nothing of HTTP, routing or caches. It reads the model files that it is
//! given, at start, and nothing else: no clock (templates that print the date receive the
//! time), no network, no output.
//!
//! The prefix cache stands on this crate: one token that differs at the start of a prompt loses
//! everything behind it. Hence the two rules that its tests enforce: templates render byte for
//! byte as `transformers` does, and tokens are those of `tokenizers`, whatever computes them.

pub mod chat;
pub mod detokenizer;
pub mod dialect;
pub mod error;
mod json_dumps;
mod limited_filters;
pub mod model;
pub mod normalize;
pub mod prefix_tokens;
mod probe;
mod python_compat;
mod python_format;
mod python_number;
mod python_operators;
mod python_repr;
mod python_surrogate;
mod python_value;
mod size_limit;
pub mod stop;
mod syntax_tree;
pub mod template;
pub mod tokenizer;

pub use chat::{ChatText, KeptTokens};
pub use detokenizer::Detokenizer;
pub use dialect::{Api, Dialect, EngineConversation, NoExactTokens, VllmVersion};
pub use error::PromptError;
pub use model::PromptModel;
pub use normalize::{Normalizer, Normalizers};
pub use prefix_tokens::{BoundaryKind, PrefixTokens, PrefixTokensStats};
pub use python_number::read_json;
pub use stop::{StopMatcher, StopOutcome};
pub use template::{ChatTemplate, GenerationPrompt, RenderInput, SpecialTokens};
pub use tokenizer::{SpecialTokensIn, SpecialTokensOut, Tokenizer};
