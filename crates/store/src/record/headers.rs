//! Verified headers of records, kept for reads of further parts.

use std::collections::{HashMap, VecDeque};

use headstart_core::BlockHash;

use super::VerifiedHeader;

/// Most that they take, bytes: headers of sixteen thousand records of 56 parts.
const MOST_BYTES: usize = 16 << 20;

/// Bytes of a header without its parts, about.
const EACH_BYTES: usize = 256;

/// Bytes of each of its parts.
const PART_BYTES: usize = 16;

/// Headers by name; the oldest go where they become too many.
#[derive(Debug)]
pub(crate) struct Headers {
    known: HashMap<BlockHash, (u64, VerifiedHeader)>,
    /// In which order they came, among others that are gone.
    order: VecDeque<(u64, BlockHash)>,
    last: u64,
    bytes: usize,
    most_bytes: usize,
}

impl Default for Headers {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            order: VecDeque::new(),
            last: 0,
            bytes: 0,
            most_bytes: MOST_BYTES,
        }
    }
}

impl Headers {
    pub(crate) fn get(&self, name: BlockHash) -> Option<&VerifiedHeader> {
        self.known.get(&name).map(|(_, header)| header)
    }

    pub(crate) fn insert(&mut self, name: BlockHash, header: VerifiedHeader) {
        // A header of the same name must not be counted twice.
        self.remove(name);
        self.last += 1;
        self.bytes += bytes_of(&header);
        self.order.push_back((self.last, name));
        self.known.insert(name, (self.last, header));
        while self.bytes > self.most_bytes
            && let Some((number, name)) = self.order.pop_front()
        {
            // The entry of a header that was removed or replaced is only skipped.
            if self.is_there(number, name) {
                self.remove(name);
            }
        }
        // Removals leave entries here. They are swept once they outnumber the headers, so that a
        // call costs O(1) on average.
        if self.order.len() > 64 + 2 * self.known.len() {
            let order = std::mem::take(&mut self.order).into_iter();
            let there = order.filter(|&(number, name)| self.is_there(number, name));
            self.order = there.collect();
        }
    }

    pub(crate) fn remove(&mut self, name: BlockHash) {
        if let Some((_, header)) = self.known.remove(&name) {
            self.bytes -= bytes_of(&header);
        }
    }

    fn is_there(&self, number: u64, name: BlockHash) -> bool {
        let known = self.known.get(&name);
        known.is_some_and(|(known, _)| *known == number)
    }
}

fn bytes_of(header: &VerifiedHeader) -> usize {
    EACH_BYTES + header.header().parts.len() * PART_BYTES
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;
    use crate::arena::Arena;
    use crate::conformance::{record_of, slot_bytes};

    #[test]
    fn they_are_bounded_and_the_last_ones_stay() {
        let arena = Arena::new(slot_bytes(8), 1).expect("memory");
        let slot = arena.take().expect("a slot");
        let header = record_of(1, 8, slot).header();
        const FIT: usize = 20;
        let mut headers = Headers { most_bytes: FIT * bytes_of(&header), ..Headers::default() };
        let mut rng = Rng::new(1);
        let mut right: Vec<u64> = Vec::new();
        for number in 0..20_000 {
            let name = rng.below(2 * FIT) as u64;
            right.retain(|&known| known != name);
            if rng.below(4) == 0 {
                headers.remove(BlockHash::from_u64(name));
            } else {
                headers.insert(BlockHash::from_u64(name), header.clone());
                right.push(name);
                right.drain(..right.len().saturating_sub(FIT));
            }
            for name in 0..2 * FIT as u64 {
                let is_there = headers.get(BlockHash::from_u64(name)).is_some();
                assert_eq!(is_there, right.contains(&name), "{number}: {name}");
            }
            assert_eq!(headers.bytes, right.len() * bytes_of(&header));
            assert!(headers.order.len() <= 65 + 2 * headers.known.len());
        }
    }
}
