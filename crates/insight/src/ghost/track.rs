//! The blocks that were used last, in order: at what depth of an LRU stack each one is.

use hashbrown::HashTable;

use super::order::FenwickSet;
use super::sampling::{SampleRate, table_hash};

/// Places that there is room for at first.
const PLACES_MIN: usize = 1 << 12;

/// Depth in the LRU stack of a block that is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Number of distinct blocks used since.
    At(u64),
    /// More than is tracked, or never used.
    Unknown,
}

/// An LRU stack down to a depth, sampled.
#[derive(Clone, Debug)]
pub(super) struct Track {
    rate: SampleRate,
    /// Blocks deeper than this are dropped.
    depth_max: u64,
    blocks_max: usize,
    /// Key and place.
    places: HashTable<(u64, u32)>,
    /// By place.
    keys: Vec<u64>,
    order: FenwickSet,
    next: usize,
    /// No place before it is taken.
    oldest: usize,
    /// Kept for its memory.
    sampled: Vec<u64>,
}

impl Track {
    pub(super) fn new(depth_max: u64, blocks_max: usize) -> Self {
        Self {
            rate: SampleRate::default(),
            depth_max,
            blocks_max: blocks_max.max(1),
            places: HashTable::new(),
            keys: vec![0; PLACES_MIN],
            order: FenwickSet::new(PLACES_MIN, 0),
            next: 0,
            oldest: 0,
            sampled: Vec::new(),
        }
    }

    pub(super) fn rate(&self) -> SampleRate {
        self.rate
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Uses a chain: `visit` sees the depth of each sampled block, in order, and for how many
    /// blocks it stands. Of a chain, the head becomes the younger.
    pub(super) fn touch(&mut self, chain: &[u64], mut visit: impl FnMut(Depth, u64)) {
        // The list is taken out of `self` because `make_room` and the loop borrow the other fields.
        let mut sampled = std::mem::take(&mut self.sampled);
        sampled.clear();
        sampled.extend(chain.iter().filter(|&&key| self.rate.keeps(key)));
        // Room is made before the loop: a move in its middle would change the places that it hands
        // out.
        self.make_room(sampled.len());
        let weight = self.rate.weight();
        let (mut deepest, mut is_leading, mut fresh) = (0, true, 0);
        let end = self.next + sampled.len();
        for (step, &key) in sampled.iter().enumerate() {
            // Places count up with youth. The head of the chain gets the last one: a request
            // releases its tail first.
            let place = end - 1 - step;
            let same = |known: &(u64, u32)| known.0 == key;
            let depth = match self.places.find_mut(table_hash(key), same) {
                Some(known) => {
                    let old = std::mem::replace(&mut known.1, place as u32) as usize;
                    // What this chain just used for the first time was not there before.
                    let depth = self.order.behind(old).saturating_sub(fresh) as u64 * weight;
                    self.order.free(old);
                    // A prefix match ends at the first miss, so a block hits only where all before
                    // it do.
                    deepest = depth.max(deepest);
                    Depth::At(deepest)
                }
                None => {
                    let entry = (key, place as u32);
                    let hash = |known: &(u64, u32)| table_hash(known.0);
                    self.places.insert_unique(table_hash(key), entry, hash);
                    fresh += 1;
                    // The first unknown block ends the match at every size.
                    is_leading = false;
                    Depth::Unknown
                }
            };
            self.keys[place] = key;
            self.order.take(place);
            visit(if is_leading { depth } else { Depth::Unknown }, weight);
        }
        self.next = end;
        self.sampled = sampled;
        self.shrink();
    }

    /// Forgets all blocks.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.depth_max, self.blocks_max);
    }

    /// Drops what is deeper than is asked for; then samples less, if there still is too much.
    fn shrink(&mut self) {
        // The followed blocks times `weight` estimate the depth of the whole stack.
        while self.places.len() as u64 * self.rate.weight() > self.depth_max {
            let Some(place) = self.order.first_from(self.oldest) else {
                return;
            };
            self.remove(self.keys[place], place);
            // No place before it is taken any more, so the next search starts here.
            self.oldest = place + 1;
        }
        // The cut comes first: it drops blocks that no size can hit, while halving costs accuracy.
        while self.places.len() > self.blocks_max && self.halve() {}
    }

    /// Follows half as many blocks from now on; whether that was possible.
    pub(super) fn halve(&mut self) -> bool {
        let is_possible = self.rate.halve();
        let (rate, order) = (self.rate, &mut self.order);
        self.places.retain(|&mut (key, place)| {
            let is_kept = rate.keeps(key);
            if !is_kept {
                order.free(place as usize);
            }
            is_kept
        });
        is_possible
    }

    fn remove(&mut self, key: u64, place: usize) {
        if let Ok(entry) = self.places.find_entry(table_hash(key), |known| known.0 == key) {
            entry.remove();
        }
        self.order.free(place);
    }

    /// Makes sure that `count` places follow the youngest: moves the taken ones together.
    fn make_room(&mut self, count: usize) {
        if self.next + count <= self.keys.len() {
            return;
        }
        // Moved together, the blocks keep their order, and depth depends on the order only.
        let live = self.order.total();
        let mut keys = Vec::with_capacity(live);
        let mut from = self.oldest;
        while let Some(place) = self.order.first_from(from) {
            keys.push(self.keys[place]);
            from = place + 1;
        }
        for (place, &key) in keys.iter().enumerate() {
            let same = |known: &(u64, u32)| known.0 == key;
            if let Some(known) = self.places.find_mut(table_hash(key), same) {
                known.1 = place as u32;
            }
        }
        // Twice the live blocks: about as many uses as there are blocks fit before the next move.
        let room = (2 * live + 2 * count).max(PLACES_MIN);
        keys.resize(room, 0);
        self.keys = keys;
        self.order = FenwickSet::new(room, live);
        self.next = live;
        self.oldest = 0;
    }
}
