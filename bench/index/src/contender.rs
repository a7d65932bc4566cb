//! The operations of every index, and their timing.
//!
//! | file | index |
//! |---|---|
//! | [`ours`] | `headstart_router::RunIndex` |
//! | [`radix_tree`] | `dynamo_kv_router::RadixTree`, which one thread owns |
//! | [`thread_pool`] | `dynamo_kv_router::ThreadPoolIndexer` over its two concurrent indexes |
//! | [`chain`] | `kv_index::ChainIndex`, in shards of 1,024 replicas |
//!
//! Each does what its own project does per request and event, by the shortest public way, and
//! nothing that could be done before the clock starts.

mod beside;
mod chain;
mod ours;
mod radix_tree;
mod router_event;
mod thread_pool;

use std::time::{Duration, Instant};

use headstart_core::TokenId;

pub(crate) use beside::{Beside, Pace};

use crate::replay::Message;

/// One cell's fleet, as far as an index has to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetShape {
    /// Its size.
    pub(crate) replicas: u32,
    /// Tokens per block.
    pub(crate) block_size: u32,
}

/// An index under measurement.
pub(crate) trait Contender {
    /// Turns events into what [`Self::apply`] takes: hashing, and nothing else that could be
    /// done without the index.
    fn prepare(&mut self, messages: &[Message]);

    /// Applies the next message, which was prepared.
    fn apply(&mut self, message: &Message);

    /// Waits until all that was applied can be found.
    fn settle(&mut self) {}

    /// Whether [`Self::apply`] hashes tokens itself. Then [`Self::prepare`] does the same work
    /// for its time only, which is to be taken off.
    fn hashes_in_apply(&self) -> bool {
        false
    }

    /// Hashes these prompts, which are from now on what is looked up.
    fn hash(&mut self, prompts: &[&[TokenId]]);

    /// Before each pass: makes again what looking up used up.
    fn ready(&mut self) {}

    /// Looks every prompt up once.
    fn look_up_all(&mut self) -> Duration;

    /// The same, with the time of each in nanoseconds.
    fn look_up_each(&mut self, nanos: &mut Vec<u64>);

    /// Looks up all the time while these prepared messages are applied.
    fn look_up_beside(&mut self, messages: &[Message], pace: Pace) -> Beside;

    /// Returns how many leading blocks of a prompt each replica holds, without the zeros.
    fn overlaps(&mut self, prompt: usize) -> Vec<(u32, u32)>;

    /// Prompts that were hashed last.
    fn num_prompts(&self) -> usize;

    /// Gives back what it keeps only to be measured.
    fn trim(&mut self) {}

    /// Bytes that it asked the allocator for and never wrote to, as far as it tells.
    fn untouched_bytes(&self) -> usize {
        0
    }
}

/// Name and constructor of an index.
pub(crate) struct Kind {
    /// As tables have it.
    pub(crate) name: &'static str,
    /// Makes it, empty.
    pub(crate) make: fn(FleetShape) -> Box<dyn Contender>,
}

/// All indexes, ours first.
pub(crate) const KINDS: [Kind; 5] = [
    Kind {
        name: "headstart",
        make: |fleet| Box::new(ours::Ours::new(fleet)),
    },
    Kind {
        name: "dynamo-radix",
        make: |fleet| Box::new(radix_tree::Owned::new(fleet)),
    },
    Kind {
        name: "dynamo-crtc",
        make: |fleet| Box::new(thread_pool::Pooled::compressed(fleet)),
    },
    Kind {
        name: "dynamo-positional",
        make: |fleet| Box::new(thread_pool::Pooled::positional(fleet)),
    },
    Kind {
        name: "kv-index",
        make: |fleet| Box::new(chain::Sharded::new(fleet)),
    },
];

fn time_all(num_prompts: usize, mut look_up: impl FnMut(usize)) -> Duration {
    let start = Instant::now();
    for prompt in 0..num_prompts {
        look_up(prompt);
    }
    start.elapsed()
}

fn time_each(num_prompts: usize, nanos: &mut Vec<u64>, mut look_up: impl FnMut(usize)) {
    for prompt in 0..num_prompts {
        let start = Instant::now();
        look_up(prompt);
        nanos.push(start.elapsed().as_nanos() as u64);
    }
}
