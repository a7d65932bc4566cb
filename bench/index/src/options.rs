//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Replays traces as KV events into several prefix indexes and times them side by side.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// Folder of Mooncake's traces; what is not there is skipped, and said to be.
    #[arg(long, default_value = "../shared/data/mooncake-fast25")]
    pub(crate) data: PathBuf,
    /// Workloads to replay.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "conversation,synthetic,chat"
    )]
    pub(crate) workload: Vec<Source>,
    /// Fleet sizes.
    #[arg(long, value_delimiter = ',', default_value = "16,256,4096")]
    pub(crate) replicas: Vec<u32>,
    /// Tokens per block.
    #[arg(long, value_delimiter = ',', default_value = "16,64,512")]
    pub(crate) block_size: Vec<u32>,
    /// Indexes to measure; all where none is named.
    #[arg(long, value_delimiter = ',')]
    pub(crate) index: Vec<String>,
    /// Times that everything is timed; tables have the medians.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Requests replayed at most per cell; 0 is without limit.
    #[arg(long, default_value_t = 0)]
    pub(crate) requests: usize,
    /// Prompts that are looked up.
    #[arg(long, default_value_t = 1000)]
    pub(crate) lookups: usize,
    /// Prompts of which all answers are compared with what the replicas really hold.
    #[arg(long, default_value_t = 100)]
    pub(crate) checks: usize,
    /// Shortest time that one timing of look-ups takes, milliseconds.
    #[arg(long, default_value_t = 60)]
    pub(crate) pass_ms: u64,
    /// Capacity of a replica, tokens; otherwise 2^21 over the square root of their number.
    #[arg(long)]
    pub(crate) capacity_tokens: Option<u32>,
    /// Blocks per event at most.
    #[arg(long, default_value_t = 4)]
    pub(crate) event_blocks: usize,
    /// Events per message of a replica at most: what one engine step publishes.
    #[arg(long, default_value_t = 8)]
    pub(crate) message_events: usize,
    /// Events per second of the writer beside the reader.
    #[arg(long, default_value_t = 20_000)]
    pub(crate) writes_per_second: u32,
    /// Longest time that the writer writes beside the reader, per round, milliseconds.
    #[arg(long, default_value_t = 200)]
    pub(crate) beside_ms: u64,
    /// Seed of tokens, placement and the made-up workload.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Writes all figures there, as JSON.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

/// Source of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Source {
    /// Mooncake's trace of a chat service.
    Conversation,
    /// Mooncake's trace of long-context data sets.
    Synthetic,
    /// Made up here: applications with a system prompt each and chats of several turns.
    Chat,
}

impl Source {
    /// As tables have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Conversation => "conversation",
            Self::Synthetic => "synthetic",
            Self::Chat => "chat",
        }
    }
}
