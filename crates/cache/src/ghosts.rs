//! Names of blocks that were evicted not long ago, in order of eviction.
//!
//! A ghost is a 63-bit fingerprint. Two blocks share one with a chance of about 1 in 10^19 per
//! pair; the cost would be a block treated as a returning one, never a wrong hit.

use hashbrown::HashTable;
use headstart_core::BlockHash;

use crate::slots::{ROOM_TO_REBUILD, spread};

const NONE: u32 = u32::MAX;

/// The bit of a stored fingerprint that tells the list; a table of names uses the lower bits as
/// an index and the upper ones as a tag.
const LIST: u64 = 1 << 50;

/// One or two lists of ghosts over one pool of entries.
#[derive(Debug)]
pub(crate) struct Ghosts {
    expected: usize,
    entries: Vec<GhostEntry>,
    names: HashTable<u32>,
    lists: Vec<List>,
    first_unused: u32,
}

/// Sixteen bytes. `older` is the next unused entry while the entry is unused.
#[derive(Clone, Copy, Debug)]
struct GhostEntry {
    fingerprint: [u32; 2],
    older: u32,
    newer: u32,
}

#[derive(Clone, Copy, Debug)]
struct List {
    oldest: u32,
    newest: u32,
    len: usize,
}

impl Ghosts {
    /// `num_lists` empty lists, that will hold `expected` ghosts together for most of the time.
    pub(crate) fn new(num_lists: usize, expected: usize) -> Self {
        assert!(num_lists <= 2, "one bit tells the list");
        let empty = List { oldest: NONE, newest: NONE, len: 0 };
        Self {
            expected,
            entries: Vec::new(),
            names: HashTable::with_capacity(expected + expected / ROOM_TO_REBUILD),
            lists: vec![empty; num_lists],
            first_unused: NONE,
        }
    }

    pub(crate) fn len(&self, list: usize) -> usize {
        self.lists[list].len
    }

    /// The list that holds the ghost of `hash`.
    pub(crate) fn find(&self, hash: BlockHash) -> Option<usize> {
        let index = self.index_of(fingerprint(hash))?;
        Some(self.entries[index as usize].list())
    }

    /// Adds the ghost of `hash` as the newest of `list`; it must be in none.
    pub(crate) fn push(&mut self, list: usize, hash: BlockHash) {
        let fingerprint = fingerprint(hash);
        // Two names have one fingerprint: the older ghost serves both.
        if self.index_of(fingerprint).is_some() {
            return;
        }
        let newest = self.lists[list].newest;
        let index = self.place(GhostEntry {
            fingerprint: split(fingerprint | (list as u64 * LIST)),
            older: newest,
            newer: NONE,
        });
        match newest {
            NONE => self.lists[list].oldest = index,
            newest => self.entries[newest as usize].newer = index,
        }
        self.lists[list].newest = index;
        self.lists[list].len += 1;
        // With more live ghosts than expected, the table is full of live names and must grow.
        if self.names.len() == self.names.capacity() && self.names.len() <= self.expected {
            self.rebuild_names();
        } else {
            insert(&mut self.names, &self.entries, index);
        }
    }

    /// Takes the ghost of `hash` out of its list, where there is one.
    pub(crate) fn remove(&mut self, hash: BlockHash) -> Option<usize> {
        let index = self.index_of(fingerprint(hash))?;
        Some(self.unlink(index))
    }

    /// Forgets the oldest ghost of `list`.
    pub(crate) fn pop_oldest(&mut self, list: usize) {
        let oldest = self.lists[list].oldest;
        if oldest != NONE {
            self.unlink(oldest);
        }
    }

    fn index_of(&self, fingerprint: u64) -> Option<u32> {
        let is_it = |&index: &u32| self.entries[index as usize].name() == fingerprint;
        self.names.find(fingerprint, is_it).copied()
    }

    /// The table is full of what was removed; left alone it would double.
    fn rebuild_names(&mut self) {
        self.names.clear();
        for list in &self.lists {
            let mut index = list.oldest;
            while let Some(entry) = self.entries.get(index as usize) {
                insert(&mut self.names, &self.entries, index);
                index = entry.newer;
            }
        }
    }

    fn place(&mut self, entry: GhostEntry) -> u32 {
        if self.first_unused == NONE {
            if self.entries.len() == self.entries.capacity() {
                let len = self.entries.len();
                // The pool grows by an eighth and does not double: a policy's memory is accounted
                // for. The last step before `expected` ends exactly there.
                let more = (len / 8).max(16);
                let expected = self.expected.saturating_sub(len);
                let is_last = (1..more).contains(&expected);
                self.entries.reserve_exact(if is_last { expected } else { more });
            }
            self.entries.push(entry);
            return (self.entries.len() - 1) as u32;
        }
        let index = self.first_unused;
        self.first_unused = self.entries[index as usize].older;
        self.entries[index as usize] = entry;
        index
    }

    fn unlink(&mut self, index: u32) -> usize {
        let entry = self.entries[index as usize];
        let GhostEntry { older, newer, .. } = entry;
        let ends = &mut self.lists[entry.list()];
        ends.len -= 1;
        match newer {
            NONE => ends.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => ends.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        self.entries[index as usize].older = self.first_unused;
        self.first_unused = index;
        let name = self.names.find_entry(entry.name(), |&found| found == index);
        name.expect("a ghost has a name").remove();
        entry.list()
    }
}

impl GhostEntry {
    fn name(self) -> u64 {
        join(self.fingerprint) & !LIST
    }

    fn list(self) -> usize {
        usize::from(join(self.fingerprint) & LIST != 0)
    }
}

fn fingerprint(hash: BlockHash) -> u64 {
    spread(hash) & !LIST
}

fn insert(names: &mut HashTable<u32>, entries: &[GhostEntry], index: u32) {
    let name = |&index: &u32| entries[index as usize].name();
    names.insert_unique(name(&index), index, name);
}

fn split(fingerprint: u64) -> [u32; 2] {
    [(fingerprint >> 32) as u32, fingerprint as u32]
}

fn join([high, low]: [u32; 2]) -> u64 {
    (u64::from(high) << 32) | u64::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    #[test]
    fn agrees_with_plain_lists() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut ghosts = Ghosts::new(2, [0, 4, 40][seed as usize % 3]);
            let mut lists = [Vec::new(), Vec::new()];
            for _ in 0..2_000 {
                let hash = BlockHash::from_u64(rng.below(30) as u64);
                let held = (0..2).find(|&list| lists[list].contains(&hash));
                assert_eq!(ghosts.find(hash), held, "seed {seed}");
                let list = rng.below(2);
                match (rng.below(3), held) {
                    (0, _) => {
                        ghosts.pop_oldest(list);
                        if !lists[list].is_empty() {
                            lists[list].remove(0);
                        }
                    }
                    (1, None) => {
                        ghosts.push(list, hash);
                        lists[list].push(hash);
                    }
                    _ => {
                        assert_eq!(ghosts.remove(hash), held, "seed {seed}");
                        lists.iter_mut().for_each(|list| list.retain(|&one| one != hash));
                    }
                }
                for (index, list) in lists.iter().enumerate() {
                    assert_eq!(ghosts.len(index), list.len(), "seed {seed}");
                }
            }
        }
    }
}
