//! Workload-aware (WA): the block least likely to be used soon goes first, by its own class's
//! distribution of reuse times.
//!
//! ```text
//! uses ──sample──► observer ──every 256 requests──► fit: score[class][age]
//!                                                    │
//! one recency queue per class ──heads──► least score ─┴─► victim ◄── guard: or LRU's?
//! ```
//!
//! A class is a (request type, turn); a block belongs to the class that last used it. Inside a
//! class the least recently used block is taken to be worth least, so only the classes' heads
//! are compared: O(classes) per eviction, plus O(log n) to keep a queue.
//!
//! Source: Wang et al., "KVCache Cache in the Wild", USENIX ATC'25, and the authors' fork of
//! vLLM. `wa:published` is their priority. By default we differ (docs/benchmarks/eviction.md
//! compares): reuse times are taken as observed, not as an exponential; a block's chance is
//! *given* that it has waited for its age; the horizon `life` is the best one for each class and
//! age instead of five seconds; waiting uses are censored observations; turns from the fourth on
//! are one class. And where the fit does not help, LRU evicts.
//!
//! The published tie-break by offset (a tail before its head) is the order of release here, and
//! the cache offers leaves only: it can change nothing, and the ablation shows that.
//!
//! Invariant: before there is a fit, and while the guard does not trust it, this is exactly LRU.
//!
//! When not to use it: where all requests are of one kind it is LRU with book-keeping; below a
//! few thousand requests there is nothing to learn from.

mod ages;
mod fit;
mod guard;
mod observer;

use std::collections::HashMap;

use headstart_core::{Access, BlockHash, BlockId, Nanos};

use super::options::{PolicyError, SpecOptions};
use super::{Newcomer, Policy};
use crate::queues::{Key64, Queues};
use crate::recency::Recency;
use fit::AgeScores;
pub use fit::{Life, Shape};
use guard::{Evictor, FitGuard};
use observer::ReuseObserver;

/// Turns from here on are one class.
const LAST_TURN: u16 = 4;
/// Classes in all; what comes later is counted with the first.
const MAX_CLASSES: usize = 256;
/// `life` in the authors' code.
const PUBLISHED_LIFE_S: f64 = 5.0;
/// Requests between two fits.
const FIT_EVERY: u32 = 256;

/// Options of workload-aware eviction; the default enables all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaOptions {
    /// The model of reuse times.
    pub shape: Shape,
    /// The horizon within which a use counts.
    pub life: Life,
    /// Fits per (type, turn) rather than one for all.
    pub by_class: bool,
    /// Tails before heads among blocks released at the same time.
    pub by_offset: bool,
    /// LRU evicts while the fit loses against it.
    pub guarded: bool,
}

impl Default for WaOptions {
    fn default() -> Self {
        Self {
            shape: Shape::Observed,
            life: Life::Learnt,
            by_class: true,
            by_offset: true,
            guarded: true,
        }
    }
}

impl WaOptions {
    /// Reads `published` (the study's priority, `life=5`), `exponential`, `life=SECONDS`,
    /// `no-life`, `one-class`, `no-offset` and `no-guard`.
    pub(super) fn read(options: &mut SpecOptions<'_>) -> Result<Self, PolicyError> {
        let is_published = options.flag("published");
        let shape = match (is_published, options.flag("exponential")) {
            (true, _) => Shape::Published,
            (_, true) => Shape::Exponential,
            _ => Shape::Observed,
        };
        let default_s = if is_published { PUBLISHED_LIFE_S } else { 0.0 };
        let life_s = options.number("life", default_s, |life| life > 0.0 && life.is_finite())?;
        let life = match (options.flag("no-life"), life_s > 0.0) {
            (true, _) => Life::Unbounded,
            (_, true) => Life::Fixed(life_s),
            _ => Life::Learnt,
        };
        Ok(Self {
            shape,
            life,
            by_class: !options.flag("one-class"),
            by_offset: !options.flag("no-offset"),
            guarded: !options.flag("no-guard"),
        })
    }
}

/// Workload-aware eviction.
#[derive(Debug)]
pub struct WorkloadAware {
    options: WaOptions,
    classes: HashMap<(u16, u16), u16>,
    slots: Vec<WaSlot>,
    recency: Recency,
    /// One queue per class.
    candidates: Queues<Key64>,
    /// The first of each queue.
    heads: Vec<Option<ClassHead>>,
    scores: Vec<AgeScores>,
    /// Of a class that was not there yet when they were fitted; `None` before a fit.
    scores_of_new: Option<AgeScores>,
    observer: ReuseObserver,
    requests: u32,
    guard: FitGuard,
    /// The victims of the fit and of LRU, as last computed.
    choice: Option<VictimPair>,
}

#[derive(Clone, Copy, Debug)]
struct WaSlot {
    used_at: Nanos,
    /// Its last use with the observer.
    place: u32,
    class: u16,
    is_sampled: bool,
    is_in_duel: bool,
}

#[derive(Clone, Copy, Debug)]
struct ClassHead {
    key: Key64,
    block: BlockId,
    used_at: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct VictimPair {
    fit: BlockId,
    lru: BlockId,
}

impl VictimPair {
    fn of(self, evictor: Evictor) -> BlockId {
        match evictor {
            Evictor::Fit => self.fit,
            Evictor::Lru => self.lru,
        }
    }
}

impl WorkloadAware {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize, options: WaOptions) -> Self {
        let empty = WaSlot {
            used_at: Nanos(0),
            place: observer::NONE,
            class: 0,
            is_sampled: false,
            is_in_duel: false,
        };
        Self {
            options,
            classes: HashMap::new(),
            slots: vec![empty; capacity],
            recency: Recency::new(capacity),
            candidates: Queues::new(capacity, 0),
            heads: Vec::new(),
            scores: Vec::new(),
            scores_of_new: None,
            observer: ReuseObserver::new(),
            requests: 0,
            guard: FitGuard::new(capacity),
            choice: None,
        }
    }

    fn class_of(&mut self, access: &Access) -> u16 {
        let key = if self.options.by_class {
            (access.request_type, access.turn.min(LAST_TURN))
        } else {
            (0, 0)
        };
        if let Some(&class) = self.classes.get(&key) {
            return class;
        }
        // Each eviction compares the heads of all classes, so their number is limited.
        if self.heads.len() == MAX_CLASSES {
            return 0;
        }
        let class = self.candidates.add_queue() as u16;
        self.heads.push(None);
        self.classes.insert(key, class);
        class
    }

    fn refit(&mut self, now: Nanos) {
        // One more, without uses: it is judged by all.
        let histograms = self.observer.histograms(self.heads.len() + 1, now);
        self.scores = fit::scores(&histograms, self.options.shape, self.options.life);
        self.scores_of_new = self.scores.pop();
    }

    fn update_head(&mut self, class: u16) {
        let first = self.candidates.first(class.into());
        self.heads[class as usize] = first.map(|(key, block)| ClassHead {
            key,
            block,
            used_at: self.slots[block.index()].used_at,
        });
    }

    /// Computes the victims of the fit and of LRU. O(classes).
    fn choose(&self, now: Nanos) -> Option<VictimPair> {
        let heads = self.heads.iter().enumerate();
        let mut heads = heads.filter_map(|(class, head)| head.map(|head| (class, head)));
        let (class, first) = heads.next()?;
        let (mut fit, mut lru) = (first, first);
        let mut least = self.score(class, &first, now);
        for (class, head) in heads {
            let score = self.score(class, &head, now);
            // Equal scores go to the earlier release: without a fit this is exactly LRU.
            if score < least || (score == least && head.key < fit.key) {
                (fit, least) = (head, score);
            }
            // All keys count one clock, so the least head of all is LRU's victim.
            if head.key < lru.key {
                lru = head;
            }
        }
        Some(VictimPair { fit: fit.block, lru: lru.block })
    }

    /// ln of the chance that the block is used soon; equal for all before there is a fit.
    #[inline]
    fn score(&self, class: usize, head: &ClassHead, now: Nanos) -> f32 {
        match self.scores.get(class).or(self.scores_of_new.as_ref()) {
            Some(scores) => scores[ages::bin(now, head.used_at)],
            None => 0.0,
        }
    }

    fn evictor(&self) -> Evictor {
        if self.options.guarded { self.guard.evictor() } else { Evictor::Fit }
    }

    fn end_duel(&mut self, kept: Option<BlockId>) {
        if let Some(kept) = kept {
            self.slots[kept.index()].is_in_duel = false;
        }
    }

    /// `gone` was evicted; if the two disagreed it is a duel.
    fn open_duel(&mut self, gone: BlockId, hash: BlockHash) {
        let Some(choice) = self.choice.take() else {
            return;
        };
        let evictor = self.evictor();
        let kept = choice.of(evictor.other());
        // `is_due` counts the eviction, so it is asked first, whatever the rest says.
        if self.guard.is_due() && kept != gone && !self.slots[kept.index()].is_in_duel {
            let given_up = self.guard.open(hash, kept, evictor);
            self.end_duel(given_up);
            self.slots[kept.index()].is_in_duel = true;
        }
    }
}

impl Policy for WorkloadAware {
    fn insert(&mut self, block: BlockId, hash: BlockHash, access: &Access) {
        self.recency.forget(block);
        let class = self.class_of(access);
        // The block keeps this answer for its whole stay: the sampling rate may change meanwhile.
        let is_sampled = self.observer.is_sampled(hash);
        let place = if is_sampled { self.observer.came(block, hash) } else { observer::NONE };
        self.slots[block.index()] =
            WaSlot { used_at: access.now, place, class, is_sampled, is_in_duel: false };
        // The block was asked for and was not resident, which decides a duel about it.
        let kept = self.guard.returned(hash);
        self.end_duel(kept);
    }

    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        let class = self.class_of(access);
        self.observer.request(blocks.len());
        if self.options.by_offset {
            self.recency.release(blocks);
        } else {
            self.recency.release_head_first(blocks);
        }
        for &block in blocks {
            let slot = &mut self.slots[block.index()];
            slot.used_at = access.now;
            slot.class = class;
            if slot.is_sampled {
                slot.place = self.observer.used(block, slot.place, class, access.now);
            }
            if slot.is_in_duel {
                slot.is_in_duel = false;
                self.guard.used(block);
            }
        }
        self.requests = self.requests.wrapping_add(1);
        if self.requests.is_multiple_of(FIT_EVERY) {
            self.refit(access.now);
        }
    }

    fn offer(&mut self, block: BlockId) {
        let class = self.slots[block.index()].class;
        let key = self.recency.of(block).into();
        self.candidates.push(class.into(), block, key);
        self.update_head(class);
    }

    fn withdraw(&mut self, block: BlockId) {
        let class = self.slots[block.index()].class;
        self.candidates.remove(class.into(), block);
        self.update_head(class);
    }

    fn victim(&mut self, now: Nanos, _: Option<&Newcomer>) -> Option<BlockId> {
        self.choice = self.choose(now);
        let choice = self.choice?;
        Some(choice.of(self.evictor()))
    }

    fn remove(&mut self, block: BlockId, hash: BlockHash) {
        self.withdraw(block);
        self.open_duel(block, hash);
        self.forget(block, hash);
    }

    fn forget(&mut self, block: BlockId, hash: BlockHash) {
        let slot = self.slots[block.index()];
        if slot.is_in_duel {
            self.guard.went(block);
        }
        if slot.is_sampled {
            self.observer.went(block, hash, slot.place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    /// Every offered block, compared one by one; scores fall with age, as they are published.
    fn obvious(policy: &WorkloadAware, offered: &[BlockId], now: Nanos) -> Option<BlockId> {
        let rank = |&block: &BlockId| {
            let slot = &policy.slots[block.index()];
            let head =
                ClassHead { key: policy.recency.of(block).into(), block, used_at: slot.used_at };
            (policy.score(slot.class.into(), &head, now), head.key)
        };
        let least =
            |a: &BlockId, b: &BlockId| rank(a).partial_cmp(&rank(b)).expect("scores are numbers");
        offered.iter().copied().min_by(least)
    }

    #[test]
    fn heads_are_enough() {
        let options = WaOptions {
            shape: Shape::Published,
            life: Life::Fixed(5.0),
            guarded: false,
            ..WaOptions::default()
        };
        for seed in 0..8 {
            let mut rng = Rng::new(seed);
            let mut policy = WorkloadAware::new(32, options);
            let mut offered = Vec::new();
            let mut held = Vec::new();
            let mut now = Nanos(0);
            for step in 0..6_000 {
                let class = rng.below(5) as u16;
                now.0 += (rng.below(1 + 400 * class as usize) * 1_000_000) as u64;
                let access = Access { request_type: class, ..Access::at(now) };
                if offered.len() + held.len() < 32 {
                    let used = |block: &BlockId| offered.contains(block) || held.contains(block);
                    let mut free = (0..32).map(BlockId).filter(|block| !used(block));
                    let block = free.next().expect("a slot is free");
                    policy.insert(block, BlockHash::from_u64(rng.below(90) as u64), &access);
                    held.push(block);
                } else if rng.below(2) == 0 && !held.is_empty() {
                    let block = held.swap_remove(rng.below(held.len()));
                    policy.release(&[block], &access);
                    policy.offer(block);
                    offered.push(block);
                } else if rng.below(2) == 0 && !offered.is_empty() {
                    let block = offered.swap_remove(rng.below(offered.len()));
                    policy.withdraw(block);
                    held.push(block);
                } else {
                    let victim = policy.victim(now, None);
                    let expected = obvious(&policy, &offered, now);
                    assert_eq!(victim, expected, "seed {seed}, step {step}");
                    if let Some(victim) = victim {
                        policy.remove(victim, BlockHash::from_u64(rng.below(90) as u64 + 90));
                        offered.retain(|&block| block != victim);
                    }
                }
            }
            assert!(!policy.scores.is_empty(), "there was a fit");
        }
    }
}
