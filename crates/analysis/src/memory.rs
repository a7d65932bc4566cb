//! Memory of the analysis, and its bounds.
//!
//! Everything that grows with the input has a bound here. What a bound costs is said where it was
//! met: then a figure is an estimate, or a part of the input was not looked at.

use headstart_core::figures::counted;
use headstart_insight::documents::{CHUNKS_MAX, Documents};
use headstart_insight::loss::Memory;
use headstart_insight::text;
use headstart_sim::spread::PIECES_MAX;
use headstart_trace::characterize::{Characterization, RecordLimits};

use crate::results::MemoryEstimate;

/// Upper bounds on the memory.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Requests: their blocks (16 bytes a run) and, of texts, their tokens (4 bytes each) and
    /// characters, bytes.
    pub held_bytes: usize,
    /// Blocks of which the attribution remembers who held them.
    pub blocks: usize,
    /// Tokens of contents that the attribution remembers.
    pub tokens: usize,
    /// Blocks of the replicas' caches together.
    pub fleet_blocks: u64,
    /// Chunks of texts that are looked for behind another prefix.
    pub chunks: usize,
    /// Prompts that others are compared with.
    pub texts: text::NeighbourLimits,
    /// Runs of blocks, sessions and users.
    pub limits: RecordLimits,
}

impl Default for Bounds {
    /// Some 200 million prompt tokens of text, many more of a trace; 16 million blocks.
    fn default() -> Self {
        Self {
            held_bytes: 2 << 30,
            blocks: 1 << 24,
            tokens: 1 << 27,
            fleet_blocks: 1 << 24,
            chunks: CHUNKS_MAX,
            texts: text::NeighbourLimits::default(),
            limits: RecordLimits::default(),
        }
    }
}

/// Of the attribution, bytes: a block, and a token with its share of an anchor.
const BLOCK_BYTES: u64 = 16;
const TOKEN_BYTES: f64 = 2.5;

/// A table forgets some before it is full; a share below this changes no figure that is shown.
const FORGOTTEN_MAX: f64 = 0.01;

/// Of a cache with its policy and its names, bytes a block, estimated.
const CACHE_BLOCK_BYTES: u64 = 80;

/// Of a run of blocks, a session or a user, bytes, estimated.
const PIECE_BYTES: u64 = 100;

/// Of a remembered chunk in its set, bytes.
const CHUNK_BYTES: u64 = 16;

/// Of a word of a sketch with its places in the index, bytes.
const WORD_BYTES: u64 = 24;

/// Requests and texts: `bytes` of them, and whether there were more.
pub(crate) fn requests(bytes: usize, bounds: &Bounds, lost: Option<String>) -> MemoryEstimate {
    MemoryEstimate {
        what: "requests and texts",
        bytes: bytes as u64,
        bytes_max: bounds.held_bytes as u64,
        lost,
    }
}

/// The replicas' caches and what was seen, of block ids.
pub(crate) fn runs(pieces: usize, is_exact: bool) -> MemoryEstimate {
    MemoryEstimate {
        what: "caches of the replicas, and what was seen",
        bytes: pieces as u64 * PIECE_BYTES,
        bytes_max: 2 * PIECES_MAX as u64 * PIECE_BYTES,
        lost: (!is_exact)
            .then(|| "memory limit reached: hits are estimated from a sample of blocks".to_owned()),
    }
}

/// Returns the memory of the attribution: holders of blocks, and seen contents with room for
/// `tokens` tokens.
pub(crate) fn attribution(memory: &Memory, tokens: usize, bounds: &Bounds) -> MemoryEstimate {
    let bytes =
        |blocks: u64, tokens: usize| blocks * BLOCK_BYTES + (tokens as f64 * TOKEN_BYTES) as u64;
    let forgotten = |of: u64, all: u64| of as f64 / all.max(1) as f64;
    let is_full = forgotten(memory.forgotten_blocks, memory.blocks) > FORGOTTEN_MAX
        || forgotten(memory.forgotten_tokens, memory.tokens) > FORGOTTEN_MAX;
    MemoryEstimate {
        what: "who held which block",
        bytes: bytes(memory.capacity_blocks as u64, tokens.next_power_of_two()),
        // Both are powers of two.
        bytes_max: bytes(
            bounds.blocks.next_power_of_two() as u64,
            bounds.tokens.next_power_of_two(),
        ),
        lost: is_full.then(|| {
            "memory limit reached: blocks that were evicted long ago count as new".to_owned()
        }),
    }
}

/// The replicas' caches; `asked` blocks of each were asked for.
pub(crate) fn caches(replicas: usize, blocks: u64, asked: u64, bounds: &Bounds) -> MemoryEstimate {
    let all = replicas as u64 * blocks;
    MemoryEstimate {
        what: "caches of the replicas",
        bytes: all * CACHE_BLOCK_BYTES,
        bytes_max: bounds.fleet_blocks.max(replicas as u64) * CACHE_BLOCK_BYTES,
        lost: (blocks < asked).then(|| {
            format!("memory limit reached: each replica was simulated with {blocks} blocks")
        }),
    }
}

/// The cache under one policy after the other; `asked` blocks were asked for. Such caches have
/// names for blocks that were evicted as well.
pub(crate) fn policies(blocks: u64, asked: u64, bounds: &Bounds) -> MemoryEstimate {
    MemoryEstimate {
        what: "a cache under two policies",
        bytes: blocks * 2 * CACHE_BLOCK_BYTES,
        bytes_max: bounds.fleet_blocks.max(2) * CACHE_BLOCK_BYTES,
        lost: (blocks < asked)
            .then(|| format!("memory limit reached: policies were compared with {blocks} blocks")),
    }
}

/// Returns the memory of the characterization of the traffic.
pub(crate) fn characterization(numbers: &Characterization, bounds: &Bounds) -> MemoryEstimate {
    let sampling = &numbers.sampling;
    // Only the sampled sessions and users are held.
    let sessions = numbers.sessions.count as f64 * sampling.session_rate;
    let users = numbers.users.as_ref().map_or(0, |users| users.count) as f64;
    let kept = sampling.pieces + (sessions + users * sampling.user_rate) as u64;
    let RecordLimits { pieces, sessions, users } = bounds.limits;
    // The remark names the worse of both rates.
    let rate = sampling.session_rate.min(sampling.user_rate);
    MemoryEstimate {
        what: "reuse, sessions and users",
        bytes: kept * PIECE_BYTES,
        bytes_max: (pieces + sessions + users) as u64 * PIECE_BYTES,
        lost: (sampling.block_rate.min(rate) < 1.0).then(|| {
            format!(
                "memory limit reached: figures on traffic are estimated from {:.1} % of the blocks \
                 and {:.1} % of the sessions and users",
                sampling.block_rate * 100.0,
                rate * 100.0
            )
        }),
    }
}

/// Memory of the caches behind random routing.
pub(crate) fn random(pieces: usize, is_exact: bool) -> MemoryEstimate {
    MemoryEstimate {
        what: "caches with random routing",
        bytes: pieces as u64 * PIECE_BYTES,
        bytes_max: PIECES_MAX as u64 * PIECE_BYTES,
        lost: (!is_exact)
            .then(|| "memory limit reached: random routing is estimated from a sample".to_owned()),
    }
}

/// Texts that are looked for behind another prefix.
pub(crate) fn documents(known: &Documents, bounds: &Bounds) -> MemoryEstimate {
    MemoryEstimate {
        what: "texts behind another prefix",
        bytes: known.num_chunks() as u64 * CHUNK_BYTES,
        bytes_max: bounds.chunks as u64 * CHUNK_BYTES,
        lost: (known.num_forgotten() > 0).then(|| {
            "memory limit reached: reuse at any position counts recent prompts only".to_owned()
        }),
    }
}

/// Memory of the prompts that others are compared with: `words_max` words at most at once, after
/// `num_forgotten` prompts had to go. A prompt replaces one that it continues.
pub(crate) fn texts(words_max: usize, num_forgotten: u64, bounds: &Bounds) -> MemoryEstimate {
    MemoryEstimate {
        what: "prompts to compare with",
        bytes: words_max as u64 * WORD_BYTES,
        bytes_max: bounds.texts.words as u64 * WORD_BYTES,
        lost: (num_forgotten > 0).then(|| {
            format!(
                "memory limit reached: {} not compared with later ones",
                counted(num_forgotten, "older prompt")
            )
        }),
    }
}

/// Most memory that this process had so far, bytes; `None` where the system does not say.
pub(crate) fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    // The kernel reports KiB.
    Some(kib << 10)
}
