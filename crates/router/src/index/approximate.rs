//! The index that hears nothing: what each replica holds is guessed from what was sent there.
//!
//! A prompt's blocks are noted where it went, and the least recently used ones are forgotten
//! beyond a fixed number per replica. Nothing tells what a replica really kept: a block that it
//! evicted is believed in until enough others were sent there.
//!
//! Source: llm-d's approximate prefix plug-in, with its figures. Differences: blocks are named by
//! chained route keys; a prompt counts once it is routed.

mod lru;

use std::collections::BTreeMap;
use std::sync::Mutex;

use headstart_core::{CacheEvent, Nanos, ReplicaId, RouteHasher, RouteIdentity, RouteKey, Tier};

use super::lengths::OverlapLength;
use super::{
    IndexStats, Overlaps, PrefixIndex, Prompt, PromptKeys, ResidentBlock, TierTokens, Update,
};
use lru::LruKeys;

/// Block size and limits of an approximate index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApproximateConfig {
    /// Tokens per block.
    pub block_size: u32,
    /// Blocks that are remembered of each replica.
    pub blocks_max: usize,
    /// Leading blocks of a prompt that are looked at.
    pub match_max: usize,
}

impl ApproximateConfig {
    /// As llm-d's plug-in was when the published runs were made: 4,096 tokens of a prompt are
    /// looked at, half a million are remembered.
    pub const EARLY: Self = Self { block_size: 16, blocks_max: 31_250, match_max: 256 };

    /// As it became later: 16,384 tokens of a prompt, two million remembered.
    pub const USUAL: Self = Self { block_size: 64, ..Self::EARLY };

    /// For the texts of prompts whose tokens are not known, four bytes a token: two megabytes of a
    /// prompt are looked at, eight of each replica remembered.
    pub const TEXT: Self = Self { block_size: 16, blocks_max: 131_072, match_max: 32_768 };
}

impl Default for ApproximateConfig {
    fn default() -> Self {
        Self::USUAL
    }
}

/// A [`PrefixIndex`] without events. Costs 40 bytes per block. Unlike the index in production its
/// readers wait for each other and for writers, for as long as one prompt takes.
#[derive(Debug)]
pub struct ApproximateIndex {
    config: ApproximateConfig,
    hasher: RouteHasher,
    replicas: Mutex<BTreeMap<ReplicaId, LruKeys>>,
}

impl ApproximateIndex {
    /// An index without replicas.
    #[must_use]
    pub fn new(model: &str, config: ApproximateConfig) -> Self {
        let hasher = RouteHasher::new(&RouteIdentity { model, block_size: config.block_size });
        Self { config, hasher, replicas: Mutex::default() }
    }

    fn leading<'a>(&self, prompt: &'a PromptKeys) -> &'a [RouteKey] {
        let keys = prompt.of_size(self.config.block_size);
        &keys[..keys.len().min(self.config.match_max)]
    }

    fn known_tokens(&self, held: &LruKeys, keys: &[RouteKey]) -> u32 {
        let known = keys.iter().take_while(|key| held.contains(**key)).count() as u32;
        known * self.config.block_size
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<ReplicaId, LruKeys>> {
        self.replicas.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl PrefixIndex for ApproximateIndex {
    fn update(&self, replica: ReplicaId, update: Update<'_>, _now: Nanos) {
        let mut replicas = self.lock();
        match update {
            Update::Track { .. } => {
                replicas.insert(replica, LruKeys::new(self.config.blocks_max));
            }
            Update::Forget => {
                replicas.remove(&replica);
            }
            Update::Events(events) if events.contains(&CacheEvent::Cleared) => {
                if let Some(held) = replicas.get_mut(&replica) {
                    held.clear();
                }
            }
            Update::Assume(prompt) => {
                if let Some(held) = replicas.get_mut(&replica) {
                    // The first ones last: what all begin with is forgotten last.
                    self.leading(prompt).iter().rev().for_each(|&key| held.touch(key));
                }
            }
            Update::Events(_) | Update::Doubt | Update::Trust => {}
        }
    }

    fn hash(&self, prompt: Prompt<'_>) -> PromptKeys {
        PromptKeys::new(prompt, std::slice::from_ref(&self.hasher))
    }

    fn overlaps(&self, prompt: &PromptKeys, _now: Nanos, answer: &mut Overlaps) {
        answer.clear();
        let keys = self.leading(prompt);
        for (&replica, held) in self.lock().iter() {
            let tokens = self.known_tokens(held, keys);
            // The trait leaves out replicas without any overlap.
            if tokens > 0 {
                let length = OverlapLength { replica: replica.0, tokens };
                answer.lengths.push(length.even());
            }
        }
    }

    fn tier_tokens(&self, prompt: &PromptKeys, replica: ReplicaId, _now: Nanos) -> TierTokens {
        let replicas = self.lock();
        let held = replicas.get(&replica);
        let tokens = held.map_or(0, |held| self.known_tokens(held, self.leading(prompt)));
        // Without events there are no tiers.
        TierTokens::on_device(tokens)
    }

    fn residents(&self, _now: Nanos, visit: &mut dyn FnMut(ResidentBlock)) {
        for (&replica, held) in self.lock().iter() {
            for key in held.keys() {
                visit(ResidentBlock {
                    replica,
                    key,
                    group: 0,
                    tier: Tier::Device,
                    is_doubtful: true,
                });
            }
        }
    }

    fn stats(&self) -> IndexStats {
        let entries = self.lock().values().map(LruKeys::len).sum();
        IndexStats {
            entries,
            doubtful: entries,
            bytes: entries * lru::ENTRY_BYTES,
            ..IndexStats::default()
        }
    }
}
