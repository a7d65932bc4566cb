//! Load on an OpenAI-compatible endpoint, and what prompt reuse makes of it.
//!
//! ```text
//! conversations.jsonl ─ script ─ chat (N at once) ─ client ── POST /v1/chat/completions
//!                                  │                  └ sse ─ answer ─ Completion
//!                                  └ report: per turn hit rate and TTFT
//! made-up words ──────────────── probe (one at a time) ─ the same client
//! materialized trace ─ trace (one at a time, or as it came) ─ POST /v1/completions
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`script`] | a recorded conversation as the requests that it makes |
//! | [`chat`] | the closed loop: many conversations at once, turn after turn |
//! | [`think`] | how long users think, and when their conversations begin |
//! | [`record`] | a run without its text, so that a simulator can repeat it |
//! | [`probe`] | the same prompt with and without its cached prefix, in pairs |
//! | [`timing`] | times that tell what an engine's steps cost |
//! | [`trace`] | a trace's prompts in file order, one at a time or at their arrivals |
//! | [`validation`] | reported hits beside predicted ones, each difference with its reason |
//! | [`client`] | one streamed completion, timed |
//! | [`fetch()`] | a document that a server offers, piece by piece |
//! | [`sse`] | server-sent events out of bytes |
//! | [`observed`] | the requests and endings that one run saw |
//! | [`report`] | per-turn figures as Markdown and JSON |
//! | [`error`] | [`LoadgenError`]: what went wrong with one request, and what to do |
//!
//! This crate sees an endpoint as any client does: it knows `usage` and one response header,
//! and nothing of the server's insides. Token counts are the server's; nothing is tokenized
//! here. TTFT, E2E and hit rate are those of [`headstart_core::stats`].

mod answer;
pub mod chat;
pub mod client;
pub mod error;
mod fetch;
pub mod observed;
pub mod probe;
pub mod record;
pub mod report;
pub mod script;
pub mod sse;
pub mod think;
pub mod timing;
pub mod trace;
pub mod validation;
mod wire;

pub use chat::{Answers, ChatBench, ChatProgress, Starts};
pub use client::{ApiClient, ChatApiRequest, Completion};
pub use error::LoadgenError;
pub use fetch::fetch;
pub use observed::ChatObservations;
pub use probe::{CachingProbe, ProbeReport, ReuseProbe};
pub use record::ChatRecord;
pub use report::{ChatReport, compare};
pub use script::read_conversations;
pub use think::Think;
pub use timing::{TimingPlan, TimingSample};
pub use trace::{Pace, TraceObserved, TraceReport, TraceSample};
pub use validation::{ValidatedRequest, Validation};
