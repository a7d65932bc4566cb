//! The edge: an OpenAI-compatible HTTP gateway over embedded replicas and upstream engines.
//!
//! ```text
//! HTTP ─ api ─ openai (parse) ─ gateway ─ prompt (tokens) ─ route ─┬─ replica (thread, Engine)
//!                                  ▲                               └─ upstream (HTTP proxy)
//!                                  └── index ◄── kv-events (ZeroMQ) ◄── every replica
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | what to serve, and every limit |
//! | [`server`] | [`serve`]: sockets, connections, shutdown |
//! | [`api`] | the HTTP routes |
//! | [`openai`] | request and response bodies of OpenAI's chat and completions, errors |
//! | [`anthropic`] | those of Anthropic's Messages API |
//! | [`responses`] | those of OpenAI's Responses API, and earlier responses |
//! | [`conversation`] | a prompt as chat templates get it, whichever API it came by |
//! | [`shape`] | how an API writes an answer |
//! | [`gateway`] | one request's way to a replica, with one retry |
//! | [`dashboard`] | what a page or a terminal is shown once a second |
//! | [`replica`] | an embedded engine on its thread |
//! | [`prediction`] | will the conversation go on: asked beside each chat request's way |
//! | [`upstream`] | an engine behind HTTP |
//! | [`answer`] | tokens to text: detokenizing and stop strings |
//! | [`insight`] | what became of requests, and why |
//! | [`drift`] | whether engines make the same tokens of a prompt |
//! | [`request_shape`] | which parts a request has that change its prompt |
//! | [`prompt_tokens`] | text to tokens, of what is new in a prompt |
//! | [`message_keys`] | names of a conversation's turns, whether or not its tokens are known |
//! | [`text_tokens`] | numbers that stand for a prompt whose tokens are not known |
//! | [`timed_index`] | the router's index with a stopwatch |
//! | [`kept`] | an answer that many ask for, made once a second |
//! | [`metrics`] | Prometheus metrics, all names in one place |
//!
//! It reads clocks and sockets, and decides nothing: who serves is `router`'s decision, what
//! stays is `cache`'s.

pub mod answer;
pub mod anthropic;
pub mod api;
pub mod config;
pub mod conversation;
pub mod dashboard;
pub mod drift;
mod emulator;
pub mod gateway;
pub mod insight;
pub mod kept;
pub mod learned_tables;
mod lock;
pub mod message_keys;
pub mod metrics;
pub mod observers;
pub mod openai;
pub mod prediction;
pub mod prompt_tokens;
pub mod replica;
pub mod request_shape;
mod request_type;
pub mod responses;
mod serve_error;
pub mod server;
pub mod shadow;
pub mod shape;
pub mod spans;
pub mod text_tokens;
pub mod timed_index;
pub mod upstream;

pub use config::{
    Cors, Edge, EdgeLimits, EmbeddedFleet, EngineBackend, ServeConfig, UpstreamConfig,
};
pub use server::{RunningServer, ServeError, serve};
