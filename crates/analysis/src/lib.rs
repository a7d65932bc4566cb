//! Analysis of request logs: the tokens that were recomputed, the causes, the cost and the fixes.
//!
//! ```text
//! logs ─► traffic ─┬─► fleet, characterization ─► analysis ─► results: waterfall, findings
//!                  └─► texts compared with those before ──┘
//! logs ─► walk ─┬─► why: one request beside the nearest earlier one
//!               └─► lint: findings and the stable prefix of all
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`traffic`] | all requests of several logs in order of time, with their texts |
//! | [`analysis`] | the analysis: parameters in, results out |
//! | [`results`] | [`results::Analysis`]: counts, amounts and sentences |
//! | [`headlines`] | the sentences that matter most |
//! | [`served`] | why an engine did not serve what it had computed, by the log's counts |
//! | [`fleet`] | the simulated hits of a fleet, and the reasons for its misses |
//! | [`cost`] | seconds and money of prompt tokens |
//! | [`capacity`] | capacities as people write them, in blocks |
//! | [`kv_bytes`] | bytes of keys and values per token, from a model's `config.json` |
//! | [`memory`] | bounds of the memory, and what reaching one costs |
//! | [`export`] | the traffic as an anonymous trace |
//! | [`input`] | trace files: opening, tokens for their texts, remarks |
//! | [`logs`] | the requests of one log, one after the other |
//! | [`remedy`] | rewritings of requests that undo a cause |
//! | [`repair`] | the worth of each, by replays of the rewritten log |
//! | [`rendering`] | requests as texts and as tokens, by a model's template and tokenizer |
//! | [`walk`] | the prompts of a log, each compared with those before |
//! | [`prompt`] | a prompt as text or as token ids |
//! | [`change`] | the texts around the place where two prompts part |
//! | [`why`] | one request, found and explained |
//! | [`lint`] | the check of all prompts against a baseline |
//! | [`sample_log`] | a generated log to try an analysis on |
//!
//! Findings name a cause by what `headstart_insight` detects, and the replay is `headstart_sim`'s:
//! the live gateway and the simulator run the same code.
//!
//! It reads the files that it is given and computes. It does not know the command line, terminals,
//! JSON reports or pages. Messages name the flags of `headstart`, because their readers type them.

pub mod analysis;
mod attribution;
pub mod capacity;
pub mod change;
pub mod cost;
mod counted_bytes;
mod error;
mod eviction;
pub mod export;
mod findings;
mod fix;
pub mod fleet;
pub mod headlines;
pub mod input;
pub mod kv_bytes;
pub mod lint;
mod logged;
pub mod logs;
pub mod memory;
pub mod prompt;
pub mod remedy;
pub mod rendering;
pub mod repair;
pub mod results;
pub mod sample_log;
pub mod served;
mod structure;
pub mod traffic;
pub mod walk;
pub mod why;

pub use error::AnalysisError;
