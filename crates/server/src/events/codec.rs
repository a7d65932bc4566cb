//! The payload of one message: MessagePack as vLLM's KV events write it.
//!
//! ```text
//! batch   [timestamp, [event, …], rank]                 or a map of the same names
//! event   {"type": "BlockStored", "block_hashes": […], …}      map form, what we write
//!         ["BlockStored", […], …]                              positional form, older engines
//! ```
//!
//! Reading is tolerant, because fleets mix versions and engines: both event forms in one batch,
//! absent trailing elements, unknown keys, hashes as bytes or as (signed) integers, SGLang's salt
//! map and token pairs. An event that cannot be used is reported in [`Batch::skipped`] and never
//! costs its neighbours. Reading is bounded: see [`PAYLOAD_BYTES_MAX`] and [`DEPTH_MAX`].
//!
//! Hashes are opaque handles: the low 128 bits of whatever the engine sent. Only full attention is
//! understood; events of other cache groups are skipped. Keys of images and the like among the
//! extra keys are not part of our keys: a route to the wrong image costs time, never correctness.
//!
//! Source: vLLM `distributed/kv_events.py` (map form since June 2026), SGLang
//! `disaggregation/kv_events.py`.

mod decode;
mod encode;
mod fields;

pub use decode::decode_batch;
pub use encode::encode_batch;

use headstart_core::CacheEvent;

/// Largest payload that is read, in bytes: 1.6 million tokens of five bytes each, far above what
/// one engine step stores. Decoded values take up to 40 times the payload's size for a moment.
pub const PAYLOAD_BYTES_MAX: usize = 8 << 20;

/// Deepest nesting that is read, as rmpv counts: two for an array, three for a string. A batch
/// needs 15; the rest is room for keys that we do not know.
pub const DEPTH_MAX: usize = 64;

/// What one payload said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// The events that were understood, in order.
    pub events: Vec<CacheEvent>,
    /// Those that were not.
    pub skipped: Vec<Skipped>,
    /// The publisher's data-parallel rank.
    pub rank: Option<u32>,
}

/// An event that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its place in the batch.
    pub index: usize,
    /// Why.
    pub reason: SkipReason,
}

/// Why an event was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// Neither an array nor a map with a tag.
    #[error("not an event")]
    NotAnEvent,
    /// A tag that we do not know.
    #[error("unknown kind of event")]
    UnknownTag,
    /// A field is absent.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A field has the wrong type or an impossible value.
    #[error("`{0}` cannot be understood")]
    Invalid(&'static str),
    /// The tokens do not fill the blocks.
    #[error("{tokens} tokens in {blocks} blocks of {block_size}")]
    Length {
        /// Tokens sent.
        tokens: usize,
        /// Hashes sent.
        blocks: usize,
        /// Tokens per block.
        block_size: u32,
    },
    /// It concerns a cache group other than the first.
    #[error("another cache group")]
    OtherGroup,
    /// It concerns a cache of another kind than full attention.
    #[error("not full attention")]
    OtherAttention,
}

/// Nothing of the payload can be used.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Longer than [`PAYLOAD_BYTES_MAX`].
    #[error("payload of {bytes} bytes, more than {PAYLOAD_BYTES_MAX}")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
    },
    /// Not MessagePack, cut off, or nested too deeply.
    #[error("not MessagePack: {0}")]
    Malformed(#[from] rmpv::decode::Error),
    /// MessagePack, but not a timestamp and a list of events.
    #[error("not a batch of events")]
    NotABatch,
}

#[cfg(test)]
mod tests;
