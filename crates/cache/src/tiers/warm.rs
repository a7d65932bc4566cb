//! A warm start: the prompts that were used last are known again after a restart, in their order,
//! and the latest of them are brought to host memory before anybody asks.
//!
//! A prompt is remembered by its last stored unit, from which the units before it are found. The
//! list is handed out for saving ([`Transfer::Note`]) every [`NOTE_EVERY`] prompts, so that a crash
//! loses little of it.

use std::collections::{BTreeMap, HashMap, HashSet};

use headstart_core::transfer::Transfer;
use headstart_core::{Access, BlockHash, Nanos, Tier};

use super::Tiers;
use super::level::Link;

/// Prompts that are remembered: 16 KiB of names.
const MOST: usize = 1024;

/// Prompts between two notes under steady load.
const NOTE_EVERY: u32 = 64;

/// Limit on concurrent loads ahead of need: requests come first.
const AT_ONCE: usize = 8;

/// The most recently used prompts, and the units wanted in host memory.
#[derive(Debug, Default)]
pub(super) struct Warm {
    used: HashMap<BlockHash, u64>,
    order: BTreeMap<u64, BlockHash>,
    clock: u64,
    since_note: u32,
    /// Units to bring to host memory, the first of them last.
    wanted: Vec<Link>,
    /// Whether they are not all there yet.
    is_filling: bool,
}

impl Warm {
    /// The ends of prompts, the latest last.
    pub(super) fn tails(&self) -> Vec<BlockHash> {
        self.order.values().copied().collect()
    }

    fn put(&mut self, tail: BlockHash) {
        self.clock += 1;
        if let Some(before) = self.used.insert(tail, self.clock) {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, tail);
        if self.order.len() > MOST
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used.remove(&oldest);
        }
    }
}

impl Tiers {
    /// A prompt was used whose units are these.
    pub(super) fn remember(&mut self, names: &[BlockHash]) {
        // Units after that one are in no tier, so a restart could not find them.
        let is_known = |name: &&BlockHash| self.knows(**name);
        let Some(&tail) = names.iter().rfind(is_known) else {
            return;
        };
        self.warm.put(tail);
        self.warm.since_note += 1;
        if self.warm.since_note >= NOTE_EVERY {
            self.note_used();
        }
    }

    /// Notes the recent uses while the engine is idle, in case this is the end.
    pub fn rest(&mut self) {
        if self.warm.since_note > 0 {
            self.note_used();
        }
    }

    fn note_used(&mut self) {
        self.warm.since_note = 0;
        let tails = self.warm.tails();
        self.transfers.push(Transfer::Note { tails });
    }

    /// These prompts were used last, the latest last, as far as they are still there.
    pub(super) fn recall(&mut self, tails: &[BlockHash], now: Nanos) {
        let access = Access::at(now);
        let mut chains = Vec::new();
        // The list is in order of use: of one that is too long, the latest are kept.
        for &tail in tails.iter().rev().take(MOST).rev() {
            let chain = self.chain(tail);
            if chain.is_empty() {
                continue;
            }
            let names: Vec<BlockHash> = chain.iter().map(|link| link.name).collect();
            for shelf in &mut self.shelves {
                shelf.level.touch(&names, &access);
            }
            self.warm.put(tail);
            chains.push(chain);
        }
        self.want(chains);
        self.load_wanted(now);
    }

    /// The units of a prompt that are in lower tiers, from its start on; nothing where one is not,
    /// or where they are more than a prompt has: parents are as they were stored, and a ring of
    /// them has no end.
    fn chain(&self, tail: BlockHash) -> Vec<Link> {
        let find = |name| self.shelves.iter().find_map(|shelf| shelf.level.link(name));
        let mut chain = Vec::new();
        let mut next = Some(tail);
        while let Some(name) = next {
            let is_long = chain.len() >= self.config.most_at_hand;
            let Some(link) = find(name).filter(|_| !is_long) else {
                return Vec::new();
            };
            next = link.parent;
            chain.push(link);
        }
        chain.reverse();
        chain
    }

    /// Chains, the latest last, shall be in host memory, as far as that has room.
    fn want(&mut self, chains: Vec<Vec<Link>>) {
        let Some(host) = self.shelves.first().filter(|shelf| shelf.tier == Tier::Host) else {
            return;
        };
        let (room, _) = host.level.size();
        let mut seen = HashSet::new();
        let latest_first = chains.into_iter().rev().flatten();
        // Prompts share prefixes, and each unit is loaded once.
        let new = latest_first.filter(|link| seen.insert(link.name));
        let mut wanted: Vec<Link> = new.take(room).collect();
        // Units are taken from the end: the first unit of the latest prompt comes first.
        wanted.reverse();
        self.warm.wanted = wanted;
        self.warm.is_filling = true;
    }

    /// Loads the wanted units into host memory, while few other loads are under way, and only into
    /// free room.
    pub(super) fn load_wanted(&mut self, now: Nanos) {
        if !self.warm.is_filling {
            return;
        }
        // `want` starts to fill only where the nearest tier is host memory.
        let (room, units) = self.shelves[0].level.size();
        // A share of the limit only: requests come first.
        let few = self.config.most_at_hand.div_ceil(4).min(AT_ONCE);
        let most = few.min(room.saturating_sub(units));
        while self.loads.under_way() < most
            && let Some(link) = self.warm.wanted.pop()
        {
            if self.shelves[0].level.knows(link.name) {
                continue;
            }
            if let Some(claim) = self.fetch_link(link, now) {
                // No request waits for it: its arrival puts it into host memory.
                self.release(claim);
            }
        }
        if self.loads.under_way() == 0 {
            self.warm.is_filling = false;
            self.warm.wanted.clear();
            self.put_in_order(now);
        }
    }

    /// The latest prompts came first, and would go first.
    fn put_in_order(&mut self, now: Nanos) {
        // Oldest first, so that the latest prompt ends as the most recently used one.
        for tail in self.warm.tails() {
            let names: Vec<BlockHash> = self.chain(tail).iter().map(|link| link.name).collect();
            self.shelves[0].level.touch(&names, &Access::at(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_prompts_are_remembered_in_their_order() {
        let mut warm = Warm::default();
        let name = |id: usize| BlockHash::from_u64(id as u64);
        for id in 0..MOST + 10 {
            warm.put(name(id));
        }
        warm.put(name(20));
        let order: Vec<BlockHash> = warm.order.values().copied().collect();
        assert_eq!((order.len(), warm.used.len()), (MOST, MOST));
        assert_eq!((order[0], order[MOST - 1]), (name(10), name(20)));
        assert!(!order[..MOST - 1].contains(&name(20)));
    }
}
