//! Attribution of each token of a request to a bucket.
//!
//! ```text
//! arrive(prompt, decision) ──► Pending ──computed (first token)──► ──finish(served)──► Outcome
//!      ▲                         a stack of runs: what each           the front of it is what
//!      │ memory                  token is if it is not served         was served
//! observe(replica, changes)
//! ```
//!
//! When the router has chosen, [`Attributor::arrive`] lays out what every token of the prompt is,
//! *should the engine not serve it*: being computed by another request, expected on the replica,
//! held elsewhere, and so on down [`Bucket::ALL`]. When the answer tells what was served, that
//! covers the front of it. So the buckets sum to the prompt whatever an engine says.
//!
//! What was ever held is a bounded memory ([`Memory`] says how full, and what it forgot): per block
//! who held it last and how that ended, learnt from the replicas' events and from what they
//! computed. It follows one copy of a block, the one that was stored or used last. What was ever
//! *seen*, behind whatever prefix, are the latest texts (`content`). With no room left
//! both forget what is oldest; [`Outcome::certainty`] says what that does to an answer.
//!
//! It does not know clocks, HTTP or which engine it is. Source: ALGORITHMS.md section 8.

mod arrive;
mod content;
mod key;
mod lately;
mod layout;
mod outlook;
mod request;
mod table;
mod tally;

use headstart_core::event::BlockChange;
use headstart_core::{Nanos, ReplicaId, RouteKey, Tier};

use crate::Bucket;
use content::ContentMemory;
use key::NameSecret;
use lately::Lately;
use table::{BlockTable, CopyState, NamespaceTable};

pub use outlook::{Errors, Outlook};
pub use request::{ArrivingRequest, FirstEviction, Memory, Outcome, Pending, ServedTokens};
pub use tally::{HotPrefix, HotPrefixes, WaterfallTally};

/// Resolution of the times of use, nanoseconds. With 32 bits they reach 497 days.
const TICK: u64 = 10_000_000;

/// Replicas that are tracked apart; all those with higher ids share the last place.
const REPLICAS: usize = 4_096;

/// Interval, in blocks, at which a prompt's front is remembered without its namespace. The first
/// `FRONT` blocks are all remembered; contents cover the blocks between later ones.
const FRONT: usize = 4;

/// Blocks stored behind a reset after which it is forgotten: many times what is remembered, and few
/// enough that counters of 32 bits tell before from after.
const RESET_BLOCKS: u32 = 1 << 30;

/// Memory bounds of an [`Attributor`], and its secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributorConfig {
    /// Blocks of which it is remembered who held them, at 16 bytes; fronts of prompts without their
    /// namespace take 2 more.
    pub blocks: usize,
    /// Tokens of contents, at two bytes and a half.
    pub tokens: usize,
    /// Sets its names apart from another's.
    pub secret: u64,
}

impl Default for AttributorConfig {
    /// 58 MiB: a million blocks, 16 million tokens in blocks of 16, and as many of contents.
    fn default() -> Self {
        Self { blocks: 1 << 20, tokens: 1 << 24, secret: 0 }
    }
}

/// Attributes the tokens of requests. Costs one access to memory per block and call; contents are
/// looked at only where blocks are unknown.
#[derive(Clone, Debug)]
pub struct Attributor {
    key: NameSecret,
    blocks: BlockTable,
    /// Fronts of prompts without their namespace, and where they were seen last.
    fronts: NamespaceTable,
    contents: ContentMemory,
    replicas: Vec<ReplicaHistory>,
    lately: Lately,
}

#[derive(Clone, Copy, Debug, Default)]
struct ReplicaHistory {
    /// Blocks that it stored, and once more per reset.
    stored: u32,
    /// `stored` at its last reset, until that is so long ago that the memory has forgotten
    /// whatever was lost then.
    reset_at: Option<u32>,
    /// Whether it says what it stores and removes.
    has_events: bool,
    /// Stands for the model that it serves.
    model: u64,
}

impl ReplicaHistory {
    /// Counts `blocks` more stored blocks, and forgets a reset that lies too far back.
    fn advance(&mut self, blocks: u32) {
        self.stored = self.stored.wrapping_add(blocks);
        // The counter wraps, so distances are compared and never the counters themselves.
        let is_past = |reset_at: &u32| self.stored.wrapping_sub(*reset_at) > RESET_BLOCKS;
        if self.reset_at.as_ref().is_some_and(is_past) {
            self.reset_at = None;
        }
    }
}

impl Attributor {
    /// One that remembers nothing yet.
    #[must_use]
    pub fn new(config: &AttributorConfig) -> Self {
        let key = NameSecret::new(config.secret);
        Self {
            key,
            blocks: BlockTable::new(config.blocks),
            fronts: NamespaceTable::new(config.blocks / FRONT),
            contents: ContentMemory::new(config.tokens, key),
            replicas: Vec::new(),
            lately: Lately::default(),
        }
    }

    /// Says which model a replica serves, by a number that stands for it: blocks of different
    /// models are different blocks.
    pub fn set_model(&mut self, replica: ReplicaId, model: u64) {
        let place = self.place(replica);
        self.replicas[usize::from(place)].model = model;
    }

    /// A request was placed: lays out what its tokens are if they are not served. Of its new part
    /// only that it is being computed is remembered, until [`Attributor::computed`].
    pub fn arrive(&mut self, arrival: &ArrivingRequest<'_>, now: Nanos) -> Pending {
        arrive::arrive(self, arrival, now)
    }

    /// Its first token is out: the prompt is computed, and held where it was sent.
    pub fn computed(&mut self, pending: &mut Pending, now: Nanos) {
        // `finish` calls this as well, and a request counts once however often it is called.
        if !std::mem::replace(&mut pending.is_computing, false) {
            return;
        }
        let place = self.place(pending.replica);
        let replica = &mut self.replicas[usize::from(place)];
        // With events each block counts when its `Stored` event arrives; otherwise this is the only
        // sign.
        if !replica.has_events {
            // `arrive` limits `computes_from` to the number of names.
            let new = pending.names.len() - pending.computes_from;
            replica.advance(new as u32);
        }
        let (at, stored) = (ticks(now), replica.stored);
        // Blocks in front of it were noted on arrival, with their time of use.
        let fresh = pending.fresh_from.min(pending.computes_from);
        self.blocks.fetch(&pending.names[fresh..]);
        for (block, &name) in pending.names.iter().enumerate().skip(fresh) {
            let entry = self.blocks.enter(name);
            if block >= pending.computes_from {
                pending.uncounted.end(block, entry);
                // Where it is, its own events say better, once they are there.
                if entry.state() != CopyState::Held || entry.holder != place {
                    entry.hold(place, Tier::Device);
                }
                (entry.at, entry.stored) = (at, stored);
            }
            // Without tokens the contents were not looked at, so the block stays unread.
            if pending.is_read {
                entry.read();
            }
        }
        let new = &pending.new;
        self.fronts.fetch(&new.fronts);
        for &name in &new.fronts {
            self.fronts.enter(name, new.namespace);
        }
        self.contents.enter(&new.texts);
    }

    /// The answer said what was served. Sums to the prompt whatever it said.
    pub fn finish(&mut self, mut pending: Pending, served: &ServedTokens, now: Nanos) -> Outcome {
        // The caller may not have reported the first token; then the end of the answer counts as
        // it.
        self.computed(&mut pending, now);
        let split = layout::overlay(pending.prompt_tokens, &pending.runs, served);
        // These three rest on memory: a forgotten block would have another bucket.
        let unsure = [Bucket::Namespace, Bucket::Diverged, Bucket::NeverSeen];
        let unsure: u64 = unsure.map(|bucket| u64::from(split.get(bucket))).iter().sum();
        let share = unsure as f32 / split.total().max(1) as f32;
        Outcome {
            split,
            certainty: 1.0 - share * pending.forgotten,
            evicted: pending.evicted.filter(|_| split.get(Bucket::Evicted) > 0),
        }
    }

    /// It ended before its prompt was computed: what is new in it was never seen.
    pub fn abandon(&mut self, pending: &Pending) {
        // Once computed, the blocks are held, and an abandoned answer does not undo that.
        if !pending.is_computing {
            return;
        }
        for (block, &name) in pending.names.iter().enumerate() {
            if block >= pending.computes_from
                // An entry that was forgotten meanwhile has no count to lower, and must not come
                // back.
                && let Some(entry) = self.blocks.find_mut(name)
            {
                pending.uncounted.end(block, entry);
            }
        }
    }

    /// A replica said what changed, in order.
    pub fn observe(&mut self, replica: ReplicaId, changes: &[BlockChange], now: Nanos) {
        let place = self.place(replica);
        // One message suffices. From then on events count stored blocks, and `computed` does not.
        self.replicas[usize::from(place)].has_events = true;
        let keys = changes.iter().filter_map(|change| match *change {
            BlockChange::Stored(key, _) | BlockChange::Removed(key, _) => Some(key),
            BlockChange::Cleared => None,
        });
        // One wait for memory for the whole message instead of one per change.
        self.fetch(place, keys);
        for &change in changes {
            match change {
                BlockChange::Stored(key, tier) => self.stored(replica, key, tier, now),
                BlockChange::Removed(key, tier) => self.removed(replica, key, tier),
                BlockChange::Cleared => self.cleared(replica),
            }
        }
    }

    /// A replica stored a block in a tier.
    pub fn stored(&mut self, replica: ReplicaId, key: RouteKey, tier: Tier, now: Nanos) {
        let place = self.place(replica);
        let replica = &mut self.replicas[usize::from(place)];
        replica.has_events = true;
        // A copy to a lower tier is no new block: it would be counted twice.
        if tier == Tier::Device {
            replica.advance(1);
        }
        let (model, stored) = (replica.model, replica.stored);
        let entry = self.blocks.enter(self.key.of_block(key, model));
        entry.hold(place, tier);
        (entry.at, entry.stored) = (ticks(now), stored);
    }

    /// A replica removed a block from a tier.
    pub fn removed(&mut self, replica: ReplicaId, key: RouteKey, tier: Tier) {
        let place = self.place(replica);
        let model = self.replicas[usize::from(place)].model;
        if let Some(entry) = self.blocks.find_mut(self.key.of_block(key, model)) {
            entry.remove(place, tier);
        }
    }

    /// A replica lost all it held: it cleared its cache or was restarted.
    pub fn cleared(&mut self, replica: ReplicaId) {
        let place = self.place(replica);
        let replica = &mut self.replicas[usize::from(place)];
        // Blocks up to and with this number are lost.
        replica.reset_at = Some(replica.stored);
        // What is stored from now on has a higher number.
        replica.advance(1);
    }

    /// Returns the capacity of the memory, and the counters of entries and forgotten entries.
    #[must_use]
    pub fn memory(&self) -> Memory {
        let ((blocks, forgotten_blocks), (tokens, forgotten_tokens)) =
            (self.blocks.counts(), self.contents.counts());
        Memory {
            capacity_blocks: self.blocks.capacity(),
            blocks,
            forgotten_blocks,
            tokens,
            forgotten_tokens,
        }
    }

    /// Has the lines of blocks come from memory together.
    fn fetch(&self, place: u16, keys: impl Iterator<Item = RouteKey>) {
        let model = self.replicas[usize::from(place)].model;
        let names = keys.map(|key| self.key.of_block(key, model));
        self.blocks.fetch_each(names);
    }

    /// Returns the index of a replica in `replicas`, which grows as needed.
    fn place(&mut self, replica: ReplicaId) -> u16 {
        // A large id must not grow the list without limit.
        let place = (replica.0 as usize).min(REPLICAS - 1);
        if place >= self.replicas.len() {
            self.replicas.resize(place + 1, ReplicaHistory::default());
        }
        place as u16
    }
}

fn ticks(now: Nanos) -> u32 {
    // The cast wraps after 497 days; ages across the wrap then read as 0.
    (now.0 / TICK) as u32
}

#[cfg(test)]
mod tests;
