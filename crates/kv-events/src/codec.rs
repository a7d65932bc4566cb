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
//! map and token pairs. An event that cannot be used is counted in [`StreamBatch::damage`] and
//! never costs its neighbours.
//!
//! Reading is bounded: payloads by [`PAYLOAD_BYTES_MAX`], the work by the payload's length, memory
//! by [`MEMORY_FACTOR_MAX`] times that. The bytes are read where they lie, nesting is skipped by
//! counting, and a length that a header claims is believed only as far as there are bytes.
//!
//! Hashes are opaque handles: the low 128 bits of whatever the engine sent. Of several cache
//! groups each event names its own; a group that keeps only some blocks of a prompt names them
//! without tokens of their own, and its events come out without any.
//!
//! | file | does |
//! |---|---|
//! | `cursor` | MessagePack, read where it lies |
//! | `fields` | the two forms of an event, and hashes and tokens |
//! | `decode` | batches and events |
//! | `extras` | adapter, salt, images |
//! | `encode` | the way back |
//!
//! It keeps no state: a removal may name blocks that were never stored. Golden messages of every
//! dialect: `data/kv-events`. Fuzzing: `crates/kv-events/fuzz`.
//!
//! Source: vLLM `distributed/kv_events.py` (map form since June 2026), SGLang
//! `disaggregation/kv_events.py`.

mod cursor;
mod decode;
mod encode;
mod extras;
mod fields;
mod lookahead;

pub use decode::{decode_and_tell, decode_batch};
pub use encode::encode_batch;

#[cfg(doc)]
use headstart_router::stream::StreamBatch;

/// Largest payload that is read, in bytes: 1.6 million tokens of five bytes each, far above what
/// one engine step stores.
pub const PAYLOAD_BYTES_MAX: usize = 8 << 20;

/// Bytes of memory that decoding takes at most for each byte of payload, beside a fixed few
/// kilobytes. What engines send takes two; this is for hashes of one byte, each with a place for
/// an image of its own.
pub const MEMORY_FACTOR_MAX: usize = 40;

/// Characters of an unknown type's name that are kept: twice what any known one has.
pub const TYPE_CHARS_MAX: usize = 32;

/// An event that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkippedEvent {
    /// Its place in the batch.
    pub index: usize,
    /// Why.
    pub reason: SkipReason,
    /// Whether it may have been a removal or a clear of what other events stored: then all that
    /// is known of the replica is in doubt.
    pub may_have_removed: bool,
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
    /// The tokens do not fill the blocks, and the group keeps all of them.
    #[error("{tokens} tokens in {blocks} blocks of {block_size}")]
    Length {
        /// Tokens sent.
        tokens: usize,
        /// Hashes sent.
        blocks: usize,
        /// Tokens per block.
        block_size: u32,
    },
    /// It concerns a tier that we do not know.
    #[error("unknown tier")]
    UnknownTier,
    /// It concerns a cache group with a number above 255.
    #[error("a cache group above 255")]
    OtherGroup,
    /// It concerns a cache that says nothing of prefixes: an encoder's, or of what it encoded.
    #[error("not attention to a prefix")]
    OtherAttention,
}

impl SkipReason {
    /// The reason in a word, without figures and names: for counters.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::NotAnEvent => "not_an_event",
            Self::UnknownTag => "unknown_type",
            Self::Missing(_) => "missing_field",
            Self::Invalid(_) => "invalid_field",
            Self::Length { .. } => "length",
            Self::UnknownTier => "unknown_tier",
            Self::OtherGroup => "group",
            Self::OtherAttention => "attention",
        }
    }
}

/// Nothing of the payload can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Longer than [`PAYLOAD_BYTES_MAX`].
    #[error("payload of {bytes} bytes, more than {PAYLOAD_BYTES_MAX}")]
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
    },
    /// It ends in the middle of a value, or is not MessagePack.
    #[error("cut off, or not MessagePack")]
    CutOff,
    /// MessagePack, but not a timestamp and a list of events.
    #[error("not a batch of events")]
    NotABatch,
}

impl From<cursor::CutOff> for DecodeError {
    fn from(_: cursor::CutOff) -> Self {
        Self::CutOff
    }
}

#[cfg(test)]
mod tests;
