//! From requests to what the replicas publish: placement, residency, small chained events.
//!
//! ```text
//! request ─ tokens ─ engine's hashes ─ replica ─ LRU ─▶ messages of Removed and Stored events
//! ```
//!
//! A request goes where the longest known part of its prompt is, if that is at least half of it,
//! and else anywhere; one in ten that could stay is sent elsewhere, as a router under load does.
//! Engines name blocks as Dynamo's own do, because its positional index finds no others; to all
//! other indexes these names are as good as any.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use anyhow::{Result, bail};
use dynamo_kv_router::protocols::{
    BlockHashOptions, compute_block_hash_for_seq, compute_seq_hash_for_block,
};
use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, Rng, Tier, TokenId, TraceRequest};
use headstart_trace::materialize::{
    Materialization, Materializer, MaterializerConfig, OverLong, TokenPrompt,
};

use crate::fleet::{Fleet, Mixed, Served};
use crate::workload::Workload;

/// One in this many requests that could stay with their conversation is placed at random.
const SPILL: usize = 10;

/// Token ids are drawn below this: a usual vocabulary.
const VOCABULARY: TokenId = 128_000;

/// Events that one replica publishes at once.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The sender.
    pub(crate) replica: u32,
    /// The time of sending.
    pub(crate) now: Nanos,
    /// Its events, in order.
    pub(crate) events: Vec<CacheEvent>,
}

/// Settings by which requests become messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayConfig {
    /// Fleet size.
    pub(crate) replicas: u32,
    /// Tokens per block.
    pub(crate) block_size: u32,
    /// Blocks that a replica has room for.
    pub(crate) capacity: usize,
    /// Times that the workload is played at once, with ids of its own each time.
    pub(crate) copies: u64,
    /// Blocks per event at most.
    pub(crate) event_blocks: usize,
    /// Events per message at most.
    pub(crate) message_events: usize,
    /// Seed of tokens and placement.
    pub(crate) seed: u64,
}

/// A prompt that has arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    request: TraceRequest,
    prompt: TokenPrompt,
}

impl Arrived {
    /// Its tokens.
    pub(crate) fn tokens(&self) -> &[TokenId] {
        &self.prompt.tokens
    }
}

/// Plays one workload on one fleet.
pub(crate) struct Replay<'a> {
    workload: &'a Workload,
    config: ReplayConfig,
    materializer: Materializer,
    rng: Rng,
    homes: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
    fleet: Fleet,
    next: usize,
    ahead: VecDeque<Arrived>,
}

impl<'a> Replay<'a> {
    /// Before the first request.
    pub(crate) fn new(workload: &'a Workload, config: ReplayConfig) -> Result<Self> {
        let materializer = Materializer::new(MaterializerConfig {
            trace_block_tokens: workload.id_tokens,
            block_tokens: workload.id_tokens,
            vocabulary: 0..VOCABULARY,
            seed: config.seed,
            max_prompt_tokens: u32::MAX,
            over_long: OverLong::Refuse,
            output_tokens: Some(1),
        })?;
        Ok(Self {
            workload,
            config,
            materializer,
            rng: Rng::new(config.seed),
            homes: HashMap::default(),
            fleet: Fleet::new(config.replicas, config.capacity),
            next: 0,
            ahead: VecDeque::new(),
        })
    }

    /// Requests in all.
    pub(crate) fn num_requests(&self) -> usize {
        self.workload.requests.len() * self.config.copies as usize
    }

    /// The replicas as they are now.
    pub(crate) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The next `count` prompts, without serving them.
    pub(crate) fn look_ahead(&mut self, count: usize) -> Result<impl Iterator<Item = &Arrived>> {
        while self.ahead.len() < count {
            match self.arrive()? {
                Some(arrived) => self.ahead.push_back(arrived),
                None => break,
            }
        }
        Ok(self.ahead.iter().take(count))
    }

    /// Serves the next request and adds what its replica publishes; `false` after the last one.
    pub(crate) fn serve(&mut self, messages: &mut Vec<Message>) -> Result<bool> {
        let arrived = match self.ahead.pop_front() {
            Some(arrived) => Some(arrived),
            None => self.arrive()?,
        };
        let Some(arrived) = arrived else {
            return Ok(false);
        };
        let chain = engine_hashes(arrived.tokens(), self.config.block_size);
        let replica = self.place(&arrived.request);
        let served = self.fleet.serve(replica, &chain);
        let events = self.events(arrived.tokens(), &chain, &served);
        let now = arrived.request.arrival;
        for events in events.chunks(self.config.message_events) {
            let events = events.to_vec();
            messages.push(Message {
                replica,
                now,
                events,
            });
        }
        Ok(true)
    }

    fn arrive(&mut self) -> Result<Option<Arrived>> {
        while self.next < self.num_requests() {
            let copies = self.config.copies as usize;
            let (index, copy) = (self.next / copies, self.next % copies);
            self.next += 1;
            let request = self.workload.request(index, copy as u64);
            match self.materializer.next(&request) {
                Materialization::Prompt(prompt) => return Ok(Some(Arrived { request, prompt })),
                Materialization::Empty => {}
                Materialization::TooLong { number, tokens } => {
                    bail!(
                        "request {number} of {} has {tokens} tokens",
                        self.workload.name
                    )
                }
            }
        }
        Ok(None)
    }

    fn place(&mut self, request: &TraceRequest) -> u32 {
        let ids: Vec<u64> = request.blocks.iter().collect();
        let known = ids.iter().rposition(|id| self.homes.contains_key(id));
        let is_spilled = self.rng.below(SPILL) == 0;
        let home = match known {
            Some(at) if !is_spilled && 2 * (at + 1) >= ids.len() => self.homes[&ids[at]],
            _ => self.rng.below(self.config.replicas as usize) as u32,
        };
        for id in ids {
            self.homes.insert(id, home);
        }
        home
    }

    /// New blocks a few at a time, each time after what had to go for them.
    fn events(&self, tokens: &[TokenId], chain: &[u64], served: &Served) -> Vec<CacheEvent> {
        let ReplayConfig {
            block_size,
            event_blocks,
            ..
        } = self.config;
        let size = block_size as usize;
        let end = served.hits + served.free + served.evicted.len();
        let mut events = Vec::new();
        let (mut from, mut gone) = (served.hits, 0);
        while from < end {
            let to = (from + event_blocks).min(end);
            let must_go = to.saturating_sub(served.hits + served.free);
            if must_go > gone {
                events.push(removed(&served.evicted[gone..must_go]));
                gone = must_go;
            }
            events.push(CacheEvent::Stored(StoredBlocks {
                blocks: chain[from..to].iter().map(|&hash| named(hash)).collect(),
                parent: from.checked_sub(1).map(|parent| named(chain[parent])),
                tokens: tokens[from * size..to * size].to_vec(),
                block_size,
                extras: Vec::new(),
                tier: Tier::Device,
                group: CacheGroup::default(),
                salt: None,
                adapter: None,
            }));
            from = to;
        }
        events
    }
}

fn removed(hashes: &[u64]) -> CacheEvent {
    CacheEvent::Removed {
        blocks: hashes.iter().map(|&hash| named(hash)).collect(),
        tier: Tier::Device,
        group: 0,
    }
}

/// The engine's hashes of all full blocks.
pub(crate) fn engine_hashes(tokens: &[TokenId], block_size: u32) -> Vec<u64> {
    let local = compute_block_hash_for_seq(tokens, block_size, BlockHashOptions::default());
    compute_seq_hash_for_block(&local)
}

/// An engine's hash in an event.
fn named(hash: u64) -> BlockHash {
    BlockHash::from_u64(hash)
}

/// The 64 bits of an engine's hash.
pub(crate) fn engine_hash(block: BlockHash) -> u64 {
    u128::from_be_bytes(block.0) as u64
}

/// Blocks that an event stores or removes.
pub(crate) fn num_blocks(event: &CacheEvent) -> usize {
    match event {
        CacheEvent::Stored(stored) => stored.blocks.len(),
        CacheEvent::Removed { blocks, .. } => blocks.len(),
        CacheEvent::Cleared => 0,
    }
}
