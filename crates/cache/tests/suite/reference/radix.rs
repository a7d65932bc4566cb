//! The same cache as a radix tree, LRU built in: SGLang's structure at block granularity.
//!
//! Edges carry runs of blocks; a match walks them, an insertion splits an edge where prompts
//! part, an eviction takes the tail block of the leaf whose tail was released least recently.
//!
//! Source: Zheng et al., "SGLang", NeurIPS'24, section 3. There a whole leaf *node* is evicted;
//! here only its tail block, so that it can be compared with the hash chain block by block.

use std::collections::{BTreeSet, HashMap};

use headstart_core::BlockHash;

const ROOT: usize = 0;

/// A prefix cache over a radix tree. Holders name what they hold by `(chain, length)`.
#[derive(Debug)]
pub(crate) struct RadixCache {
    nodes: Vec<RadixNode>,
    unused: Vec<usize>,
    capacity: usize,
    num_resident: usize,
    num_in_flight: usize,
    clock: u64,
    /// Leaves with an unpinned tail, by the tail's time of release.
    candidates: BTreeSet<(u64, usize)>,
    evicted: Vec<BlockHash>,
}

#[derive(Debug, Default)]
struct RadixNode {
    parent: usize,
    run: Vec<RadixEntry>,
    children: HashMap<BlockHash, usize>,
}

#[derive(Clone, Copy, Debug)]
struct RadixEntry {
    hash: BlockHash,
    pins: u32,
    released: u64,
}

/// A place in the tree: the first `depth` entries of `node` are matched.
#[derive(Clone, Copy, Debug)]
struct RadixPosition {
    node: usize,
    depth: usize,
}

impl RadixCache {
    /// An empty tree that holds at most `capacity` blocks.
    #[must_use]
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            nodes: vec![RadixNode::default()],
            unused: Vec::new(),
            capacity,
            num_resident: 0,
            num_in_flight: 0,
            clock: 0,
            candidates: BTreeSet::new(),
            evicted: Vec::new(),
        }
    }

    /// Pins the longest resident prefix of `chain` and returns its length.
    pub(crate) fn acquire(&mut self, chain: &[BlockHash]) -> usize {
        let mut place = RadixPosition { node: ROOT, depth: 0 };
        for (length, hash) in chain.iter().enumerate() {
            let Some(next) = self.step(place, *hash) else {
                return length;
            };
            place = next;
            self.pin(place);
        }
        chain.len()
    }

    /// Reserves room for one block, evicting if need be.
    pub(crate) fn grow(&mut self) -> bool {
        if self.num_resident + self.num_in_flight == self.capacity && !self.evict() {
            return false;
        }
        self.num_in_flight += 1;
        true
    }

    /// Stores, pinned, the block `chain[length]` behind the held `chain[..length]`.
    pub(crate) fn commit(&mut self, chain: &[BlockHash], length: usize) {
        let place = self.find(&chain[..length]);
        self.num_in_flight -= 1;
        // Another holder stored the same block meanwhile.
        if let Some(present) = self.step(place, chain[length]) {
            self.pin(present);
            return;
        }
        self.num_resident += 1;
        let entry = RadixEntry { hash: chain[length], pins: 1, released: 0 };
        let node = &self.nodes[place.node];
        let at_end = place.depth == node.run.len();
        // The run of a leaf grows in place; elsewhere a new edge begins.
        if place.node != ROOT && at_end && node.children.is_empty() {
            self.nodes[place.node].run.push(entry);
            return;
        }
        if !at_end {
            self.split(place);
        }
        let child = self.new_node(RadixNode {
            parent: place.node,
            run: vec![entry],
            ..RadixNode::default()
        });
        self.nodes[place.node].children.insert(entry.hash, child);
    }

    /// Lets go of the held `chain[..length]`, tail first, and of `in_flight` reservations.
    pub(crate) fn release(&mut self, chain: &[BlockHash], length: usize, in_flight: usize) {
        self.num_in_flight -= in_flight;
        let mut places = Vec::with_capacity(length);
        let mut place = RadixPosition { node: ROOT, depth: 0 };
        for hash in &chain[..length] {
            place = self.step(place, *hash).expect("what is held is resident");
            places.push(place);
        }
        for place in places.into_iter().rev() {
            self.clock += 1;
            let clock = self.clock;
            let entry = self.entry(place);
            entry.pins -= 1;
            entry.released = clock;
            self.offer(place.node);
        }
    }

    /// Names evicted since the last call, in order.
    pub(crate) fn take_evicted(&mut self) -> Vec<BlockHash> {
        std::mem::take(&mut self.evicted)
    }

    /// The runs below the root as nested lists, for the tests' pictures: `[1 2 [3] [4 5]]`.
    #[must_use]
    pub(crate) fn picture(&self) -> String {
        let mut children: Vec<_> = self.nodes[ROOT].children.values().collect();
        children.sort_by_key(|&&child| self.nodes[child].run[0].hash);
        children.iter().map(|&&child| self.picture_of(child)).collect::<Vec<_>>().join(" ")
    }

    fn picture_of(&self, node: usize) -> String {
        let node = &self.nodes[node];
        let number = |entry: &RadixEntry| u128::from_be_bytes(entry.hash.0).to_string();
        let mut parts: Vec<_> = node.run.iter().map(number).collect();
        let mut children: Vec<_> = node.children.values().collect();
        children.sort_by_key(|&&child| self.nodes[child].run[0].hash);
        parts.extend(children.iter().map(|&&child| self.picture_of(child)));
        format!("[{}]", parts.join(" "))
    }

    /// The place one block further along `hash`, if resident.
    fn step(&self, place: RadixPosition, hash: BlockHash) -> Option<RadixPosition> {
        let node = &self.nodes[place.node];
        match node.run.get(place.depth) {
            Some(entry) if entry.hash == hash => {
                Some(RadixPosition { depth: place.depth + 1, ..place })
            }
            Some(_) => None,
            None => node.children.get(&hash).map(|&child| RadixPosition { node: child, depth: 1 }),
        }
    }

    fn find(&self, chain: &[BlockHash]) -> RadixPosition {
        chain.iter().fold(RadixPosition { node: ROOT, depth: 0 }, |place, &hash| {
            self.step(place, hash).expect("what is held is resident")
        })
    }

    fn entry(&mut self, place: RadixPosition) -> &mut RadixEntry {
        &mut self.nodes[place.node].run[place.depth - 1]
    }

    fn pin(&mut self, place: RadixPosition) {
        // The entry among the candidates is found by the state before the change.
        self.withdraw(place.node);
        self.entry(place).pins += 1;
        self.offer(place.node);
    }

    /// Cuts `place.node` behind `place.depth`; the rest becomes its only child.
    fn split(&mut self, place: RadixPosition) {
        self.withdraw(place.node);
        let node = &mut self.nodes[place.node];
        let run = node.run.split_off(place.depth);
        let children = std::mem::take(&mut node.children);
        let first = run[0].hash;
        let lower = self.new_node(RadixNode { parent: place.node, run, children });
        // The lower half took the children, so their parent has changed.
        let grandchildren: Vec<_> = self.nodes[lower].children.values().copied().collect();
        for child in grandchildren {
            self.nodes[child].parent = lower;
        }
        self.nodes[place.node].children.insert(first, lower);
        self.offer(lower);
    }

    fn new_node(&mut self, node: RadixNode) -> usize {
        if let Some(index) = self.unused.pop() {
            self.nodes[index] = node;
            return index;
        }
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The candidate entry of `node` if it is a leaf with an unpinned tail.
    fn candidate(&self, node: usize) -> Option<(u64, usize)> {
        let tail = self.nodes[node].run.last()?;
        let is_leaf = self.nodes[node].children.is_empty();
        (is_leaf && tail.pins == 0).then_some((tail.released, node))
    }

    fn offer(&mut self, node: usize) {
        if let Some(candidate) = self.candidate(node) {
            self.candidates.insert(candidate);
        }
    }

    fn withdraw(&mut self, node: usize) {
        if let Some(candidate) = self.candidate(node) {
            self.candidates.remove(&candidate);
        }
    }

    fn evict(&mut self) -> bool {
        let Some((_, index)) = self.candidates.pop_first() else {
            return false;
        };
        let node = &mut self.nodes[index];
        let entry = node.run.pop().expect("a candidate has a tail");
        let parent = node.parent;
        self.evicted.push(entry.hash);
        self.num_resident -= 1;
        if self.nodes[index].run.is_empty() {
            // The run was one block long, so the edge's key is the evicted name.
            self.nodes[parent].children.remove(&entry.hash);
            self.unused.push(index);
            self.offer(parent);
        } else {
            self.offer(index);
        }
        true
    }
}
