//! The replicas as they really are: which blocks each holds, in order of last use.
//!
//! Like vLLM's pool: a request keeps the blocks that it finds, evicts the least recently used for
//! the others, and gives all back last block first, so that the end of a prompt goes before its
//! beginning. Invariant: a replica that holds a block holds all before it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

const NONE: u32 = u32::MAX;

/// All replicas of one cell.
#[derive(Debug)]
pub(crate) struct Fleet {
    replicas: Vec<Lru>,
}

/// Effect of one request on its replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// Leading blocks that were there.
    pub(crate) hits: usize,
    /// Evicted blocks, in order: one for each new block from the first that found no room on.
    pub(crate) evicted: Vec<u64>,
    /// New blocks that found room before something had to go.
    pub(crate) free: usize,
}

impl Fleet {
    /// Empty replicas with room for `capacity` blocks each.
    pub(crate) fn new(replicas: u32, capacity: usize) -> Self {
        let empty = || Lru::new(capacity);
        Self {
            replicas: (0..replicas).map(|_| empty()).collect(),
        }
    }

    /// Serves a prompt of these blocks, as many of them as there is room for.
    pub(crate) fn serve(&mut self, replica: u32, chain: &[u64]) -> Served {
        self.replicas[replica as usize].serve(chain)
    }

    /// Leading blocks of `chain` that `replica` holds.
    pub(crate) fn overlap(&self, replica: u32, chain: &[u64]) -> usize {
        let slots = &self.replicas[replica as usize].slots;
        chain
            .iter()
            .take_while(|hash| slots.contains_key(*hash))
            .count()
    }

    /// Returns how many leading blocks of `chain` each replica holds, without the zeros.
    pub(crate) fn overlaps(&self, chain: &[u64]) -> Vec<(u32, u32)> {
        let replicas = 0..self.replicas.len() as u32;
        let overlap = |replica| (replica, self.overlap(replica, chain) as u32);
        replicas
            .map(overlap)
            .filter(|&(_, blocks)| blocks > 0)
            .collect()
    }

    /// (Block, replica) pairs.
    pub(crate) fn pairs(&self) -> usize {
        self.replicas
            .iter()
            .map(|replica| replica.slots.len())
            .sum()
    }

    /// Counts the different blocks that the replicas hold.
    pub(crate) fn distinct(&self) -> usize {
        let all = self
            .replicas
            .iter()
            .flat_map(|replica| replica.slots.keys());
        let mut hashes: Vec<u64> = all.copied().collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes.len()
    }

    /// Blocks that a replica has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.replicas.first().map_or(0, |replica| replica.capacity)
    }
}

/// One replica: a hash table of slots, linked in order of use.
#[derive(Debug)]
struct Lru {
    capacity: usize,
    slots: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
    links: Vec<Link>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    hash: u64,
    older: u32,
    newer: u32,
}

impl Lru {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            slots: HashMap::default(),
            links: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
        }
    }

    fn serve(&mut self, chain: &[u64]) -> Served {
        let chain = &chain[..chain.len().min(self.capacity)];
        let mut pinned = Vec::with_capacity(chain.len());
        for hash in chain {
            let Some(&slot) = self.slots.get(hash) else {
                break;
            };
            self.unlink(slot);
            pinned.push(slot);
        }
        let mut served = Served {
            hits: pinned.len(),
            ..Served::default()
        };
        for &hash in &chain[served.hits..] {
            if self.slots.len() == self.capacity {
                served.evicted.push(self.evict());
            } else {
                served.free += 1;
            }
            pinned.push(self.insert(hash));
        }
        for &slot in pinned.iter().rev() {
            self.link(slot);
        }
        served
    }

    fn insert(&mut self, hash: u64) -> u32 {
        let link = Link {
            hash,
            older: NONE,
            newer: NONE,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.links.push(link);
            self.links.len() as u32 - 1
        });
        self.links[slot as usize] = link;
        let before = self.slots.insert(hash, slot);
        assert!(
            before.is_none(),
            "a block behind a hole: its prefix went before it"
        );
        slot
    }

    fn evict(&mut self) -> u64 {
        let slot = self.oldest;
        assert!(
            slot != NONE,
            "a request fits its replica, so something else can go"
        );
        self.unlink(slot);
        let hash = self.links[slot as usize].hash;
        self.slots.remove(&hash);
        self.free.push(slot);
        hash
    }

    /// Makes `slot` the most recently used.
    fn link(&mut self, slot: u32) {
        self.links[slot as usize].older = self.newest;
        self.links[slot as usize].newer = NONE;
        match self.newest {
            NONE => self.oldest = slot,
            newest => self.links[newest as usize].newer = slot,
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Link { older, newer, .. } = self.links[slot as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
    }
}

/// One multiplication, folded: enough for hashes, and for ids that differ in their high bits only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        let wide = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = wide ^ (wide >> 32);
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;

    /// Obvious: one list, most recent last.
    fn reference(held: &mut Vec<u64>, capacity: usize, chain: &[u64]) -> Served {
        let chain = &chain[..chain.len().min(capacity)];
        let hits = chain.iter().take_while(|hash| held.contains(hash)).count();
        held.retain(|hash| !chain[..hits].contains(hash));
        let mut served = Served {
            hits,
            ..Served::default()
        };
        for new in hits..chain.len() {
            if held.len() + new == capacity {
                served.evicted.push(held.remove(0));
            } else {
                served.free += 1;
            }
        }
        held.extend(chain.iter().rev());
        served
    }

    #[test]
    fn blocks_go_in_the_order_of_a_plain_list() {
        let mut rng = Rng::new(1);
        let mut fleet = Fleet::new(1, 20);
        let mut held = Vec::new();
        let mut evicted = 0;
        for _ in 0..3000 {
            // A trie of branching 2 by construction: a block's name is its path.
            let len = 1 + rng.below(25);
            let mut name = 1u64;
            let chain: Vec<u64> = (0..len)
                .map(|depth| {
                    let branch = if depth % 4 == 0 {
                        rng.below(2) as u64
                    } else {
                        0
                    };
                    name = name.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(7) ^ branch;
                    name
                })
                .collect();
            let served = fleet.serve(0, &chain);
            evicted += served.evicted.len();
            assert_eq!(served, reference(&mut held, 20, &chain));
            assert_eq!(fleet.pairs(), held.len());
            assert_eq!(fleet.overlap(0, &chain), chain.len().min(20));
        }
        assert!(evicted > 1000, "{evicted} evictions test little");
    }
}
