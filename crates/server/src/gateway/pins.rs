//! Replicas that hold stored responses, by response id.
//!
//! An engine keeps the responses of `/v1/responses` in its own memory, so that a request that
//! names one by its id must reach the same engine. The map is bounded: the oldest id goes first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use headstart_core::ReplicaId;

use crate::lock::lock;

/// Most ids that are kept: some 20 MiB with ids as long as engines make them.
const PINS: usize = 65_536;

/// Longest id that is kept, bytes.
const ID_BYTES: usize = 200;

/// Location of a stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The replica that answered.
    pub replica: ReplicaId,
    /// The id of the first response of its chain: the same for all turns of a conversation.
    pub root: Arc<str>,
}

/// A bounded map from the id of a response to its place.
#[derive(Debug, Default)]
pub struct Pins(Mutex<PinMap>);

#[derive(Debug, Default)]
struct PinMap {
    pins: HashMap<Arc<str>, Pin>,
    /// The ids, the oldest first.
    order: VecDeque<Arc<str>>,
}

impl Pins {
    /// Notes that `replica` holds the response `id`, which continues the response `previous`.
    pub fn learn(&self, id: &str, previous: Option<&str>, replica: ReplicaId) {
        // A client or an engine that makes long ids must not fill the memory.
        if id.is_empty() || id.len() > ID_BYTES {
            return;
        }
        let mut map = lock(&self.0);
        let id: Arc<str> = id.into();
        // The chain's root survives as long as its latest turn is known, even after the root's own
        // id was evicted.
        let before = previous.and_then(|previous| map.pins.get(previous));
        let root = before.map_or_else(|| id.clone(), |before| before.root.clone());
        let pin = Pin { replica, root };
        // An id that is learned again keeps its place in the order, so that no id is in it twice.
        if map.pins.insert(id.clone(), pin).is_none() {
            map.order.push_back(id);
        }
        // One id came in, so that removing one keeps the limit.
        if map.order.len() > PINS
            && let Some(oldest) = map.order.pop_front()
        {
            map.pins.remove(&oldest);
        }
    }

    /// Location of the response `id`, if known.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<Pin> {
        lock(&self.0).pins.get(id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_has_one_root_and_the_place_of_its_last_turn() {
        let pins = Pins::default();
        pins.learn("a", None, ReplicaId(1));
        pins.learn("b", Some("a"), ReplicaId(2));
        pins.learn("c", Some("b"), ReplicaId(2));
        let pin = pins.find("c").expect("known");
        assert_eq!((pin.replica, &*pin.root), (ReplicaId(2), "a"));
        assert_eq!(pins.find("a").map(|pin| pin.replica), Some(ReplicaId(1)));
        assert_eq!(pins.find("d"), None);
    }

    #[test]
    fn the_oldest_goes_first_and_long_ids_are_not_kept() {
        let pins = Pins::default();
        for id in 0..=PINS {
            pins.learn(&id.to_string(), None, ReplicaId(0));
            pins.learn(&id.to_string(), None, ReplicaId(0));
        }
        assert_eq!(pins.find("0"), None);
        assert!(pins.find("1").is_some() && pins.find(&PINS.to_string()).is_some());
        let map = lock(&pins.0);
        assert_eq!((map.pins.len(), map.order.len()), (PINS, PINS));
        drop(map);
        let long = "x".repeat(ID_BYTES + 1);
        pins.learn(&long, None, ReplicaId(0));
        assert_eq!(pins.find(&long), None);
    }
}
