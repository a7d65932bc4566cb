//! OpenTelemetry spans of requests: `prompt`, `route`, `queue`, `load`, `prefill`, `decode`.
//!
//! ```text
//! request ├─ prompt ─┼ route ┼─ queue ───┼─ prefill ──────┼─ decode ───────────┤
//!                            └─ load ──┘
//! ```
//!
//! A request's spans are made when it is over, from the marks of its [`RequestTimeline`]: nothing
//! is sent while it runs, and without a collector nothing is noted at all. `load` lies beside
//! `queue`: what is loaded for a prompt is asked for while it waits. Of an upstream engine a
//! gateway sees no more than when the answer began: its `prefill` holds the engine's queue and
//! loads.
//!
//! Spans say lengths, times and who computed. They hold no text, no token and no salt.

mod collector;
mod timeline;

pub use collector::{Spans, SpansError};
pub use timeline::{Facts, Mark, RequestTimeline};
