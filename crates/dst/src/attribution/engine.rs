//! One replica of the world: a real prefix cache, and one lower tier whose loads may fail.
//!
//! What the device evicts goes down; what goes down too long ago is dropped. A request takes what
//! the device holds, then what the lower tier holds behind that, and computes the rest.

use std::collections::{HashMap, VecDeque};

use headstart_cache::policy::Lru;
use headstart_cache::prefix::{Commit, Grow};
use headstart_cache::{Effect, Lease, PrefixCache};
use headstart_core::{Access, BlockHash, Nanos, Tier};

use super::oracle::{End, Node, Oracle};

/// The prefix cache and lower tier of one replica.
pub struct ReplicaEngine {
    replica: usize,
    cache: PrefixCache,
    lower: LowerTier,
    /// Changes of the device and the lower tier since they were last drained, in order.
    changes: Vec<ResidencyChange>,
}

/// A change of what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidencyChange {
    /// A block is there.
    Stored(Node, Tier),
    /// It is no longer.
    Removed(Node, Tier),
    /// Nothing is left.
    Cleared,
}

/// A request on it.
pub struct Running {
    lease: Lease,
    /// Blocks of the prompt that it found on the device.
    pub device: usize,
    /// Behind them, those that it loaded.
    pub loaded: usize,
    /// Behind them, those that it could not load.
    pub failed: usize,
}

/// A lower tier: first in, first out, but what is used counts as new.
struct LowerTier {
    tier: Tier,
    capacity: usize,
    order: VecDeque<(Node, u64)>,
    /// The latest entry of each in `order`.
    held: HashMap<Node, u64>,
    next: u64,
}

impl ReplicaEngine {
    /// An empty one of `blocks` on the device and `lower_blocks` in `tier`.
    #[must_use]
    pub fn new(replica: usize, blocks: usize, tier: Tier, lower_blocks: usize) -> Self {
        Self {
            replica,
            cache: PrefixCache::new(blocks, Box::new(Lru::new(blocks))),
            lower: LowerTier {
                tier,
                capacity: lower_blocks,
                order: VecDeque::new(),
                held: HashMap::new(),
                next: 0,
            },
            changes: Vec::new(),
        }
    }

    /// The tier below the device.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.lower.tier
    }

    /// Takes a prompt of which the first `usable` blocks may be served. `loads`: whether the lower
    /// tier's loads succeed this time.
    pub fn take(
        &mut self,
        nodes: &[Node],
        usable: usize,
        loads: bool,
        oracle: &mut Oracle,
        now: Nanos,
    ) -> Running {
        // Only usable blocks are looked up: an engine always computes the block of the last token.
        let mut lease = self.cache.acquire(&hashes(&nodes[..usable]));
        let device = lease.matched();
        let below = nodes[device..usable].iter();
        // A load continues the device's prefix, so a hole in the lower tier ends it.
        let below = below.take_while(|node| self.lower.held.contains_key(node)).count();
        let (loaded, failed) = if loads { (below, 0) } else { (0, below) };
        // Blocks that could not be loaded are computed like all that were missing.
        for &node in &nodes[device + loaded..] {
            oracle.computes(node);
        }
        // Loaded blocks need room on the device, too.
        self.grow(&mut lease, nodes.len() - device, now);
        self.settle(End::Evicted, oracle);
        Running { lease, device, loaded, failed }
    }

    /// Its prompt is computed.
    pub fn computed(
        &mut self,
        running: &mut Running,
        nodes: &[Node],
        oracle: &mut Oracle,
        now: Nanos,
    ) {
        for &node in &nodes[running.device + running.loaded..] {
            oracle.computed(node);
        }
        self.commit(running, nodes, oracle, now);
    }

    /// It ends before its prompt is computed: of `nodes`, `upto` are computed by now and stay.
    pub fn cancel(
        &mut self,
        mut running: Running,
        nodes: &[Node],
        upto: usize,
        oracle: &mut Oracle,
        now: Nanos,
    ) {
        // All of them are withdrawn, computed or not: this request computes none of them any more.
        for &node in &nodes[running.device + running.loaded..] {
            oracle.computed(node);
        }
        self.commit(&mut running, &nodes[..upto], oracle, now);
        self.cache.release(running.lease, &Access::at(now));
    }

    /// It ends while it is answered: what is computed stays.
    pub fn stop(&mut self, running: Running, now: Nanos) {
        self.cache.release(running.lease, &Access::at(now));
    }

    /// Its answer is complete: `nodes` are prompt and answer.
    pub fn done(&mut self, mut running: Running, nodes: &[Node], oracle: &mut Oracle, now: Nanos) {
        let held = running.lease.blocks().len();
        self.grow(&mut running.lease, nodes.len().saturating_sub(held), now);
        self.settle(End::Evicted, oracle);
        self.commit(&mut running, nodes, oracle, now);
        self.cache.release(running.lease, &Access::at(now));
    }

    /// Loses everything and says so; nothing runs here any more.
    pub fn clear(&mut self, oracle: &mut Oracle, now: Nanos) {
        self.lose(oracle, now);
        self.changes.push(ResidencyChange::Cleared);
    }

    /// Ends the process without an event; no request runs here any more.
    pub fn crash(&mut self, oracle: &mut Oracle, now: Nanos) {
        self.lose(oracle, now);
        // Changes that were not sent yet die with the process.
        self.changes.clear();
    }

    fn lose(&mut self, oracle: &mut Oracle, now: Nanos) {
        self.cache.clear(now);
        // The cache reports evictions here, but the process lost all blocks at once.
        for effect in self.cache.drain_effects() {
            if let Effect::Evicted { hash, .. } = effect {
                oracle.ended(self.replica, node_of(hash), End::Reset);
            }
        }
        for (node, _) in self.lower.held.drain() {
            oracle.ended(self.replica, node, End::Reset);
        }
        self.lower.order.clear();
    }

    /// Takes the changes since the last call.
    pub fn drain_changes(&mut self) -> Vec<ResidencyChange> {
        std::mem::take(&mut self.changes)
    }

    /// As many more blocks as there are, up to `count`.
    fn grow(&mut self, lease: &mut Lease, count: usize, now: Nanos) {
        if let Grow::Short { available } = self.cache.grow(lease, count, now) {
            // The rest of the request stays without blocks, as on an engine whose cache is in use.
            let grown = self.cache.grow(lease, available, now);
            assert_eq!(grown, Grow::Done, "that many are available");
        }
    }

    fn commit(&mut self, running: &mut Running, nodes: &[Node], oracle: &mut Oracle, now: Nanos) {
        let upto = nodes.len().min(running.lease.blocks().len());
        let committed = running.lease.committed();
        for &node in nodes.iter().take(upto).skip(committed) {
            let hash = hash_of(node);
            let outcome = self.cache.commit(&mut running.lease, hash, &Access::at(now));
            debug_assert!(matches!(outcome, Commit::Stored | Commit::Adopted));
        }
        self.settle(End::Evicted, oracle);
    }

    /// Takes over what the device did.
    fn settle(&mut self, end: End, oracle: &mut Oracle) {
        let effects: Vec<Effect> = self.cache.drain_effects().collect();
        for effect in effects {
            match effect {
                Effect::Stored { hash, .. } => {
                    oracle.stored(self.replica, node_of(hash));
                    self.changes.push(ResidencyChange::Stored(node_of(hash), Tier::Device));
                }
                Effect::Evicted { hash, .. } => {
                    // First down, then away: at no moment are there zero copies, which would count
                    // as an end.
                    self.demote(node_of(hash), oracle);
                    oracle.ended(self.replica, node_of(hash), end);
                    self.changes.push(ResidencyChange::Removed(node_of(hash), Tier::Device));
                }
            }
        }
    }

    fn demote(&mut self, node: Node, oracle: &mut Oracle) {
        if self.lower.capacity == 0 {
            return;
        }
        if self.lower.enter(node) {
            oracle.stored(self.replica, node);
            self.changes.push(ResidencyChange::Stored(node, self.lower.tier));
        }
        while let Some(dropped) = self.lower.drop_oldest() {
            oracle.ended(self.replica, dropped, End::Evicted);
            self.changes.push(ResidencyChange::Removed(dropped, self.lower.tier));
        }
    }
}

impl LowerTier {
    /// Whether it is new there.
    fn enter(&mut self, node: Node) -> bool {
        self.next += 1;
        // An older entry of the block stays in the queue, and its number shows that it is out of
        // date.
        self.order.push_back((node, self.next));
        self.held.insert(node, self.next).is_none()
    }

    /// The oldest one, where there are too many.
    fn drop_oldest(&mut self) -> Option<Node> {
        while self.held.len() > self.capacity {
            let (node, entry) = self.order.pop_front()?;
            // Entries that were renewed since are passed over.
            if self.held.get(&node) == Some(&entry) {
                self.held.remove(&node);
                return Some(node);
            }
        }
        None
    }
}

/// An engine's name of a block.
#[must_use]
pub fn hash_of(node: Node) -> BlockHash {
    BlockHash::from_u64(node)
}

fn node_of(hash: BlockHash) -> Node {
    u128::from_be_bytes(hash.0) as Node
}

fn hashes(nodes: &[Node]) -> Vec<BlockHash> {
    nodes.iter().copied().map(hash_of).collect()
}
