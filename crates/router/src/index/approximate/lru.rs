//! The most recently used keys, up to a number of them.

use headstart_core::RouteKey;

use crate::lookup::StableMap;

/// Memory of a key, bytes, about: its node, and its place in the map.
pub(super) const ENTRY_BYTES: usize = size_of::<LruNode>() + 2 * size_of::<(RouteKey, u32)>();

/// No node.
const NONE: u32 = u32::MAX;

/// Keys in the order of their last use: a ring of nodes, found by a map.
#[derive(Debug)]
pub(super) struct LruKeys {
    places: StableMap<RouteKey, u32>,
    nodes: Vec<LruNode>,
    newest: u32,
    oldest: u32,
    capacity: usize,
}

#[derive(Clone, Copy, Debug)]
struct LruNode {
    key: RouteKey,
    newer: u32,
    older: u32,
}

impl LruKeys {
    /// Room for `capacity` keys, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            places: StableMap::default(),
            nodes: Vec::new(),
            newest: NONE,
            oldest: NONE,
            capacity: capacity.clamp(1, NONE as usize - 1),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn contains(&self, key: RouteKey) -> bool {
        self.places.contains_key(&key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = RouteKey> {
        self.nodes.iter().map(|node| node.key)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.capacity);
    }

    /// Uses `key`; where it is new and there is no room, in place of the one used longest ago.
    pub(super) fn touch(&mut self, key: RouteKey) {
        let place = match self.places.get(&key) {
            Some(&place) => {
                self.unlink(place);
                place
            }
            None => self.room_for(key),
        };
        self.link(place);
    }

    fn room_for(&mut self, key: RouteKey) -> u32 {
        let node = LruNode { key, newer: NONE, older: NONE };
        let place = if self.nodes.len() < self.capacity {
            self.nodes.push(node);
            self.nodes.len() as u32 - 1
        } else {
            // The node is used again in its place, so the places of all others stay valid.
            let place = self.oldest;
            self.unlink(place);
            let gone = std::mem::replace(&mut self.nodes[place as usize], node);
            self.places.remove(&gone.key);
            place
        };
        self.places.insert(key, place);
        place
    }

    fn link(&mut self, place: u32) {
        let node = &mut self.nodes[place as usize];
        (node.newer, node.older) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = place,
            newest => self.nodes[newest as usize].newer = place,
        }
        self.newest = place;
    }

    fn unlink(&mut self, place: u32) {
        let LruNode { newer, older, .. } = self.nodes[place as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    #[test]
    fn the_same_keys_as_in_a_list() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let capacity = 1 + rng.below(12);
            let (mut lru, mut list) = (LruKeys::new(capacity), Vec::<RouteKey>::new());
            for _ in 0..300 {
                let key = RouteKey(rng.below(20) as u64);
                if rng.below(100) == 0 {
                    lru.clear();
                    list.clear();
                }
                lru.touch(key);
                list.retain(|known| *known != key);
                list.push(key);
                if list.len() > capacity {
                    list.remove(0);
                }
                let mut keys: Vec<_> = lru.keys().collect();
                let mut expected = list.clone();
                keys.sort_unstable();
                expected.sort_unstable();
                assert_eq!(keys, expected, "seed {seed}");
                assert!(expected.iter().all(|key| lru.contains(*key)) && lru.len() == keys.len());
            }
        }
    }
}
