//! `RunIndex`, behind the trait that the router asks.
//!
//! It takes engines' events as they are and hashes their tokens while it applies them.

use std::hint::black_box;
use std::time::Duration;

use headstart_core::block::Namespace;
use headstart_core::{CacheEvent, Nanos, ReplicaId, RouteHasher, RouteIdentity, RouteKey, TokenId};
use headstart_router::index::{Overlaps, PrefixIndex, Prompt, PromptKeys, RunIndex, Update};

use super::beside::two_threads;
use super::{Beside, Contender, FleetShape, Pace, time_all, time_each};
use crate::replay::Message;

const MODEL: &str = "model";

pub(super) struct Ours {
    index: RunIndex,
    hasher: RouteHasher,
    prompts: Vec<PromptKeys>,
    /// Time of the last message: look-ups happen then.
    now: Nanos,
}

impl Ours {
    pub(super) fn new(fleet: FleetShape) -> Self {
        let index = RunIndex::new(MODEL);
        let block_size = Some(fleet.block_size);
        for replica in 0..fleet.replicas {
            index.update(ReplicaId(replica), Update::Track { block_size }, Nanos(0));
        }
        let hasher = RouteHasher::new(&RouteIdentity {
            model: MODEL,
            block_size: fleet.block_size,
        });
        Self {
            index,
            hasher,
            prompts: Vec::new(),
            now: Nanos(0),
        }
    }

    fn look_up(&self) -> impl FnMut(usize) + Send + '_ {
        let mut answer = Overlaps::default();
        move |prompt| {
            self.index
                .overlaps(&self.prompts[prompt], self.now, &mut answer);
            black_box(&answer);
        }
    }
}

impl Contender for Ours {
    fn prepare(&mut self, messages: &[Message]) {
        for event in messages.iter().flat_map(|message| &message.events) {
            if let CacheEvent::Stored(stored) = event {
                let mut key = RouteKey(0);
                for block in stored.tokens.chunks_exact(stored.block_size as usize) {
                    key = self.hasher.next(key, block);
                }
                black_box(key);
            }
        }
    }

    fn apply(&mut self, message: &Message) {
        self.now = message.now;
        let update = Update::Events(&message.events);
        self.index
            .update(ReplicaId(message.replica), update, message.now);
    }

    fn hashes_in_apply(&self) -> bool {
        true
    }

    fn hash(&mut self, prompts: &[&[TokenId]]) {
        let namespace = Namespace::default();
        let hash = |&tokens: &&[TokenId]| {
            self.index.hash(Prompt {
                tokens,
                namespace,
                ..Prompt::default()
            })
        };
        self.prompts = prompts.iter().map(hash).collect();
    }

    fn look_up_all(&mut self) -> Duration {
        time_all(self.prompts.len(), self.look_up())
    }

    fn look_up_each(&mut self, nanos: &mut Vec<u64>) {
        time_each(self.prompts.len(), nanos, self.look_up());
    }

    fn look_up_beside(&mut self, messages: &[Message], pace: Pace) -> Beside {
        let apply = |due: &[Message]| {
            for message in due {
                let update = Update::Events(&message.events);
                self.index
                    .update(ReplicaId(message.replica), update, message.now);
            }
        };
        let num_prompts = self.prompts.len();
        let beside = two_threads(messages, pace, num_prompts, self.look_up(), apply);
        self.now = messages.last().map_or(self.now, |message| message.now);
        beside
    }

    fn num_prompts(&self) -> usize {
        self.prompts.len()
    }

    fn overlaps(&mut self, prompt: usize) -> Vec<(u32, u32)> {
        let mut answer = Overlaps::default();
        self.index
            .overlaps(&self.prompts[prompt], self.now, &mut answer);
        let block_size = self.hasher.block_size() as u32;
        let blocks = |tokens: u32| tokens / block_size;
        let found = answer.iter();
        found
            .map(|overlap| (overlap.replica.0, blocks(overlap.device_tokens)))
            .collect()
    }
}
