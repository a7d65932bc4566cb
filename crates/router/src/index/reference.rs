//! The same index without hashes: per replica, the set of whole token prefixes that it holds.
//!
//! It remembers every event's tokens and parent for ever and answers by walking back to the root,
//! so it needs neither keys nor counts, and no block waits for anything: a block whose parent is
//! unknown simply has no prefix yet. Slow and unbounded; for tests.
//!
//! Source: ours, by the definition of overlap.

use std::collections::{BTreeMap, BTreeSet};

use headstart_core::block::Namespace;
use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, CacheEvent, Nanos, ReplicaId, Tier, TokenId};

use super::{ASSUMPTION_TTL, IndexStats, Overlap, PrefixIndex, Prompt};

/// A [`PrefixIndex`] that is obviously right. It counts entries and nothing else.
#[derive(Debug, Default)]
pub struct ReferenceIndex {
    replicas: BTreeMap<ReplicaId, Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    block_size: Option<u32>,
    links: BTreeMap<BlockHash, Link>,
    residents: BTreeSet<(BlockHash, Tier)>,
    assumed: Vec<(Prefix, Nanos)>,
}

/// What introduced a block: its tokens and what they follow.
#[derive(Clone, Debug)]
struct Link {
    before: Before,
    tokens: Vec<TokenId>,
}

#[derive(Clone, Debug)]
enum Before {
    /// The prompt's start.
    Start {
        adapter: Option<String>,
        salt: Option<String>,
    },
    Block(BlockHash),
}

/// A block and all before it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Prefix {
    adapter: Option<String>,
    salt: Option<String>,
    tokens: Vec<TokenId>,
}

impl Prefix {
    fn new(namespace: Namespace<'_>, tokens: &[TokenId]) -> Self {
        Self {
            adapter: namespace.adapter.map(str::to_owned),
            salt: namespace.salt.map(str::to_owned),
            tokens: tokens.to_vec(),
        }
    }
}

impl Contents {
    fn of(block_size: Option<u32>) -> Self {
        Self {
            block_size,
            ..Self::default()
        }
    }

    fn apply(&mut self, event: &CacheEvent) {
        match event {
            CacheEvent::Stored(stored) => self.store(stored),
            CacheEvent::Removed { blocks, tier } => {
                for &block in blocks {
                    self.residents.remove(&(block, *tier));
                }
            }
            CacheEvent::Cleared => *self = Self::of(self.block_size),
        }
        let on_device = self.prefixes(|tier| tier == Tier::Device);
        self.assumed
            .retain(|(prefix, _)| !on_device.contains(prefix));
    }

    fn store(&mut self, stored: &StoredBlocks) {
        let block_size = stored.block_size as usize;
        if !stored.tokens.is_empty() {
            if block_size == 0 || stored.tokens.len() != stored.blocks.len() * block_size {
                return;
            }
            if self.block_size != Some(stored.block_size) {
                if !self.prefixes(|_| true).is_empty() {
                    return;
                }
                *self = Self::of(Some(stored.block_size));
            }
            self.link(stored);
        }
        let residents = stored.blocks.iter().map(|&block| (block, stored.tier));
        self.residents.extend(residents);
    }

    fn link(&mut self, stored: &StoredBlocks) {
        let mut before = match stored.parent {
            Some(parent) => Before::Block(parent),
            None => Before::Start {
                adapter: stored.adapter.as_deref().map(str::to_owned),
                salt: stored.salt.as_deref().map(str::to_owned),
            },
        };
        let tokens = stored.tokens.chunks_exact(stored.block_size as usize);
        for (&block, tokens) in stored.blocks.iter().zip(tokens) {
            let tokens = tokens.to_vec();
            self.links.entry(block).or_insert(Link { before, tokens });
            before = Before::Block(block);
        }
    }

    /// Walks back from `block` to the prompt's start; none if a block before it is unknown.
    fn prefix_of(&self, block: BlockHash) -> Option<Prefix> {
        let mut pieces = Vec::new();
        let mut link = self.links.get(&block)?;
        // A longer walk than there are links goes in a circle.
        for _ in 0..self.links.len() {
            pieces.push(&link.tokens);
            match &link.before {
                Before::Block(parent) => link = self.links.get(parent)?,
                Before::Start { adapter, salt } => {
                    return Some(Prefix {
                        adapter: adapter.clone(),
                        salt: salt.clone(),
                        tokens: pieces.into_iter().rev().flatten().copied().collect(),
                    });
                }
            }
        }
        None
    }

    fn prefixes(&self, is_asked: impl Fn(Tier) -> bool) -> BTreeSet<Prefix> {
        let residents = self.residents.iter().filter(|&&(_, tier)| is_asked(tier));
        residents
            .filter_map(|&(block, _)| self.prefix_of(block))
            .collect()
    }

    /// Tokens of the longest leading run of `prompt` whose every block is in one of the tiers or
    /// assumed.
    fn run(&self, prompt: Prompt<'_>, now: Nanos, is_asked: impl Fn(Tier) -> bool) -> usize {
        let Some(block_size) = self.block_size.map(|size| size as usize) else {
            return 0;
        };
        let mut present = self.prefixes(is_asked);
        let assumed = self.assumed.iter().filter(|&&(_, until)| now < until);
        present.extend(assumed.map(|(prefix, _)| prefix.clone()));
        let ends = (1..=prompt.tokens.len() / block_size).map(|blocks| blocks * block_size);
        ends.take_while(|&end| {
            present.contains(&Prefix::new(prompt.namespace, &prompt.tokens[..end]))
        })
        .last()
        .unwrap_or(0)
    }
}

impl PrefixIndex for ReferenceIndex {
    fn track(&mut self, replica: ReplicaId, block_size: Option<u32>) {
        let block_size = block_size.filter(|&size| size > 0);
        self.replicas.insert(replica, Contents::of(block_size));
    }

    fn forget(&mut self, replica: ReplicaId) {
        self.replicas.remove(&replica);
    }

    fn apply(&mut self, replica: ReplicaId, event: &CacheEvent) {
        if let Some(contents) = self.replicas.get_mut(&replica) {
            contents.apply(event);
        }
    }

    fn assume(&mut self, replica: ReplicaId, prompt: Prompt<'_>, now: Nanos) {
        let Some(contents) = self.replicas.get_mut(&replica) else {
            return;
        };
        let block_size = contents.block_size.unwrap_or(u32::MAX) as usize;
        let on_device = contents.prefixes(|tier| tier == Tier::Device);
        for blocks in 1..=prompt.tokens.len() / block_size {
            let prefix = Prefix::new(prompt.namespace, &prompt.tokens[..blocks * block_size]);
            if !on_device.contains(&prefix) {
                contents.assumed.push((prefix, now + ASSUMPTION_TTL));
            }
        }
    }

    fn overlaps(&self, prompt: Prompt<'_>, now: Nanos) -> Vec<Overlap> {
        let overlaps = self.replicas.iter().map(|(&replica, contents)| Overlap {
            replica,
            device_tokens: contents.run(prompt, now, |tier| tier == Tier::Device),
            any_tier_tokens: contents.run(prompt, now, |_| true),
        });
        overlaps
            .filter(|overlap| overlap.any_tier_tokens > 0)
            .collect()
    }

    fn stats(&self) -> IndexStats {
        let entries = self
            .replicas
            .values()
            .map(|contents| contents.prefixes(|_| true).len());
        IndexStats {
            entries: entries.sum(),
            ..IndexStats::default()
        }
    }
}
