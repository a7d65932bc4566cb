//! Traces made up from a seed: several streams of requests at once, merged by arrival.
//!
//! | module | holds |
//! |---|---|
//! | [`workload`] | [`SynthWorkload`]: what to generate; [`RequestGenerator`]: the requests |
//! | [`preset`] | ready-made workloads by name, with the source of every number |
//! | [`stream`] | [`Stream`]: the three kinds below as one |
//! | [`conversations`] | turns, shared system prompts × users |
//! | [`agents`] | tool steps, pauses, forks |
//! | [`bursts`] | API bursts around one template |
//! | [`planted`] | conversations as text that tells whether they go on |
//! | [`draw`] | distributions of gaps and lengths |
//! | [`prompt`] | prompts as chains of blocks; [`Opening`]: what sessions share |
//!
//! **Open loop.** A session's next request comes a gap after the *arrival* of the one before it,
//! as traces record it. How long an answer takes is not known here.
//!
//! **Blocks.** Ids count up as blocks first appear, so that equal ids mean equal blocks behind
//! equal prefixes. A turn's prompt is the previous prompt, the previous answer and new tokens. The
//! answer's blocks appear first in the next prompt. A partial last block has an id of its own.
//!
//! **Bits.** The same workload gives the same requests on every machine whose `f64` is IEEE 754's:
//! nothing of the platform's mathematics is called. A test pins a committed trace to its bytes.

pub mod agents;
pub mod bursts;
mod classes;
pub mod conversations;
pub mod draw;
mod limits;
mod math;
pub mod planted;
pub mod preset;
pub mod prompt;
mod setting;
pub mod stream;
mod timeline;
pub mod workload;

pub use agents::Agents;
pub use bursts::Bursts;
pub use conversations::{Conversations, Labels, RequestType, Step};
pub use draw::{Gap, Length};
pub use planted::PlantedConfig;
pub use preset::{PRESETS, Preset, UnknownPreset};
pub use prompt::Opening;
pub use stream::Stream;
pub use workload::{InvalidWorkload, RequestGenerator, SynthWorkload};
