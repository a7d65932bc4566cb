//! One replica's handles: which block each stands for.
//!
//! A block remembers the first handle that anybody had for it, so a replica that uses the same one
//! needs only the block's spot, 8 bytes: the handle is read there. Engines whose hashes start from
//! a random seed all use others; these *aliases* are stored with their spot.
//!
//! Invariants: the block of a direct name has that handle; a handle has one name at most; every
//! name is counted at its block.

use hashbrown::HashTable;

use super::forest::{Land, NO_HANDLE};
use super::view::Spot;
use crate::lookup::Map;
use headstart_core::BlockHash;

/// All names of one replica.
#[derive(Debug, Default)]
pub(super) struct Names {
    direct: HashTable<Spot>,
    aliases: HashTable<(u64, Spot)>,
    /// Some alias of each block that has one.
    alias_at: Map<Spot, u64>,
}

/// Bits of a handle that are kept. With a hundred thousand handles, two of one replica meet once in
/// fifty thousand fleets; then a block is taken for another, which costs a wrong route at most.
const HANDLE_BITS: u32 = 48;

/// The largest handle.
pub(super) const MAX_HANDLE: u64 = u64::MAX >> (u64::BITS - HANDLE_BITS);

/// An engine's hash in [`HANDLE_BITS`] well mixed bits.
pub(super) fn handle(block: BlockHash) -> u64 {
    let wide = u128::from_be_bytes(block.0);
    let mut bits = (wide as u64) ^ ((wide >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // The finalizer of SplitMix64: the same bits for the same number, others for others.
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    match bits >> (u64::BITS - HANDLE_BITS) {
        NO_HANDLE => 1,
        bits => bits,
    }
}

/// A table's hash of a handle: some of its bits at the top, where tables look for them too.
fn spread(handle: u64) -> u64 {
    handle ^ handle << (u64::BITS - HANDLE_BITS)
}

impl Names {
    /// What `handle` stands for.
    pub(super) fn find(&self, land: &Land, handle: u64) -> Option<Spot> {
        let direct = self
            .direct
            .find(spread(handle), |&spot| land.handle(spot) == handle);
        direct.copied().or_else(|| {
            let alias = self
                .aliases
                .find(spread(handle), |(alias, _)| *alias == handle);
            alias.map(|&(_, spot)| spot)
        })
    }

    /// A handle that stands for the block already.
    pub(super) fn occupant(&self, land: &Land, spot: Spot) -> Option<u64> {
        let handle = land.handle(spot);
        let direct = self.direct.find(spread(handle), |&known| known == spot);
        match direct {
            Some(_) => Some(handle),
            None => self.alias_at.get(&spot).copied(),
        }
    }

    /// Lets `handle`, which stands for nothing yet, stand for the block.
    pub(super) fn insert(&mut self, land: &mut Land, handle: u64, spot: Spot) {
        land.name(spot, handle);
        if land.handle(spot) == handle {
            self.direct
                .insert_unique(spread(handle), spot, |&spot| spread(land.handle(spot)));
        } else {
            self.aliases
                .insert_unique(spread(handle), (handle, spot), |(alias, _)| spread(*alias));
            self.alias_at.entry(spot).or_insert(handle);
        }
    }

    /// Forgets `handle`. The end of its block's run may go then: [`super::forest::Forest::trim`].
    pub(super) fn remove(&mut self, land: &mut Land, handle: u64) {
        let known = &*land;
        let direct = self
            .direct
            .find_entry(spread(handle), |&spot| known.handle(spot) == handle);
        let spot = match direct {
            Ok(entry) => entry.remove().0,
            Err(_) => {
                let alias = self
                    .aliases
                    .find_entry(spread(handle), |(alias, _)| *alias == handle);
                let Ok(entry) = alias else {
                    return;
                };
                let ((_, spot), _) = entry.remove();
                if self.alias_at.get(&spot) == Some(&handle) {
                    self.alias_at.remove(&spot);
                }
                spot
            }
        };
        land.unname(spot);
    }

    /// All names.
    pub(super) fn iter<'a>(&'a self, land: &'a Land) -> impl Iterator<Item = (u64, Spot)> + 'a {
        let direct = self.direct.iter().map(|&spot| (land.handle(spot), spot));
        direct.chain(self.aliases.iter().copied())
    }

    pub(super) fn len(&self) -> usize {
        self.direct.len() + self.aliases.len()
    }

    /// The runs that are named, each once, ascending.
    pub(super) fn runs(&self) -> Vec<u32> {
        let aliases = self.aliases.iter().map(|(_, spot)| spot);
        let mut runs: Vec<u32> = self
            .direct
            .iter()
            .chain(aliases)
            .map(|spot| spot.run)
            .collect();
        runs.sort_unstable();
        runs.dedup();
        runs
    }

    /// Memory, bytes.
    pub(super) fn bytes(&self) -> usize {
        let aliases = self.alias_at.capacity() * (size_of::<(Spot, u64)>() + 1);
        self.direct.allocation_size() + self.aliases.allocation_size() + aliases
    }

    /// Gives back memory that half-empty tables take.
    pub(super) fn shrink(&mut self, land: &Land) {
        self.direct.shrink_to_fit(|&spot| spread(land.handle(spot)));
        self.aliases.shrink_to_fit(|(alias, _)| spread(*alias));
        self.alias_at.shrink_to_fit();
    }

    /// Asserts the invariants, and counts every name at its block. O(size).
    pub(super) fn check(&self, land: &Land, counts: &mut Map<Spot, u16>) {
        let mut handles = std::collections::HashSet::new();
        for (handle, spot) in self.iter(land) {
            assert!(handles.insert(handle), "a handle has one name");
            assert_eq!(self.find(land, handle), Some(spot), "names are found");
            *counts.entry(spot).or_default() += 1;
        }
        for (spot, alias) in &self.alias_at {
            assert_eq!(
                self.find(land, *alias),
                Some(*spot),
                "aliases stand for their block"
            );
        }
    }
}
