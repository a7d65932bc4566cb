//! Selection counts of tokens in stored units, and the packs that are worth making.
//!
//! A *node* is a maximal run of stored units along which all prompts go the same way:
//!
//! ```text
//!   ┌ system prompt ┐  ┌ document 1 ─┐
//!   u1 ──── u2 ──── u3 ── u4 ── u5 ── u6    one node each: packs never straddle a branch, nor
//!                   └──── v4 ── v5          where a prompt ended in front of known units
//! ```
//!
//! For each unit and layer there is a byte a token: how often it was selected (7 bits; all are
//! halved when one is full and when they are packed, so that what mattered long ago fades), and
//! whether it is in the pack. That is `unit_tokens · layers` bytes a unit: 2 KiB at 64 and 32.
//!
//! Units are bounded; the leaf that was used longest ago is forgotten first, so that what is
//! tracked is always whole prefixes. It does not know what is on the disk: who drops a pack says
//! so ([`Nodes::unpacked`]).
//!
//! Source: IMPRESS (FAST '25), section 4.3: reordering in the background inside one radix node.
//! We differ in that a node is packed again only where its pack would change, and that tokens
//! always kept (the first, the recent) need no rule: they are selected each time, so they lead.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use headstart_core::{BlockHash, Nanos};

/// The bit that says that a token is in the pack; the others count.
const PACKED: u8 = 0x80;
const COUNT: u8 = 0x7f;
/// A pack of one unit saves nothing: it is one chunk beside one part.
const LEAST_UNITS: usize = 2;

/// Limits and thresholds of node packing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeOptions {
    /// Tokens of a unit.
    pub unit_tokens: usize,
    /// Units tracked at most; longer prompts are tracked as far.
    pub most_units: usize,
    /// Time between two looks.
    pub interval: Duration,
    /// Uses of a node since it was last looked at from which it may be worth packing.
    pub least_uses: u32,
    /// Share of a node's tokens that a pack holds at most, 0 to 1.
    pub most_share: f64,
    /// Share of a pack's tokens that must be new, 0 to 1.
    pub least_change: f64,
    /// Units of a pack at most: longer nodes are packed piece by piece.
    pub most_pack_units: usize,
}

impl Default for NodeOptions {
    /// Ten minutes are published. The rest is our choice: three uses, because a pack costs about
    /// one reading of the node and a half writing; half of the tokens, twice the largest ratio
    /// that is much used; 65,536 tokens a pack of 64 each.
    fn default() -> Self {
        Self {
            unit_tokens: 64,
            most_units: 65_536,
            interval: Duration::from_secs(600),
            least_uses: 3,
            most_share: 0.5,
            least_change: 0.02,
            most_pack_units: 1_024,
        }
    }
}

/// A node that is worth packing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its units, in order.
    pub units: Vec<BlockHash>,
    /// Layers whose pack would change, each with the tokens to pack, counted from the first unit's
    /// first: what was selected most often first.
    pub layers: Vec<(usize, Vec<u32>)>,
}

/// Units that prompts went through, as a forest.
#[derive(Debug)]
pub struct Nodes {
    options: NodeOptions,
    units: Vec<Option<TrackedUnit>>,
    free: Vec<u32>,
    names: HashMap<BlockHash, u32>,
    /// Units without children, by last use.
    leaves: BTreeSet<(u64, u32)>,
    /// Prompts so far: the logical clock of the uses.
    clock: u64,
    num_packings: u64,
    next_look: Nanos,
}

#[derive(Debug)]
struct TrackedUnit {
    name: BlockHash,
    parent: Option<u32>,
    children: Vec<u32>,
    /// Whether a prompt ended here that could have gone on through a child.
    is_end: bool,
    last_use: u64,
    /// Since it was last looked at.
    uses: u32,
    /// The packing that it was part of, and of how many units that was.
    packing: Option<(u64, usize)>,
    /// Per layer: nothing, or a byte a token.
    layers: Vec<Vec<u8>>,
}

impl Nodes {
    /// Nothing tracked.
    #[must_use]
    pub fn new(options: NodeOptions) -> Self {
        Self {
            options,
            units: Vec::new(),
            free: Vec::new(),
            names: HashMap::new(),
            leaves: BTreeSet::new(),
            clock: 0,
            num_packings: 0,
            next_look: Nanos(0),
        }
    }

    /// A prompt went through these stored units, in order, and through no other stored one behind
    /// them. Best told from the prompt's first unit on, those on the device included. O(units ·
    /// log tracked).
    pub fn used(&mut self, units: &[BlockHash]) {
        self.clock += 1;
        let mut before = None;
        for &name in units {
            let known = self.names.get(&name).copied();
            let Some(id) = known.or_else(|| self.track(name)) else {
                // Only whole prefixes are tracked: a unit without the one before it is worth
                // nothing.
                return;
            };
            self.link(before, id);
            self.touch(id);
            before = Some(id);
        }
        if let Some(last) = before {
            let unit = self.unit_mut(last);
            // A prompt ended in front of known units, so no pack may span this place.
            unit.is_end |= !unit.children.is_empty();
        }
    }

    /// A layer of a prompt that went through these units selected these tokens: sorted, counted
    /// from the first of the first unit. What is not tracked is not counted. O(tokens).
    ///
    /// # Panics
    /// When a token lies behind the last unit.
    pub fn selected(&mut self, units: &[BlockHash], layer: usize, tokens: &[u32]) {
        let unit_tokens = self.options.unit_tokens;
        let of_one_unit =
            |one: &u32, other: &u32| *one as usize / unit_tokens == *other as usize / unit_tokens;
        for tokens in tokens.chunk_by(of_one_unit) {
            let at = tokens[0] as usize / unit_tokens;
            let Some(&id) = self.names.get(&units[at]) else {
                continue;
            };
            let counts = self.unit_mut(id).counts(layer, unit_tokens);
            for &token in tokens {
                let count = token as usize % unit_tokens;
                // Halving all counts of the unit keeps their order and makes room for one more.
                if counts[count] & COUNT == COUNT {
                    counts.iter_mut().for_each(halve);
                }
                counts[count] += 1;
            }
        }
    }

    /// Whether it is time to look.
    #[must_use]
    pub fn is_time(&self, now: Nanos) -> bool {
        now >= self.next_look
    }

    /// Returns nodes to pack, the most used first: at most `most` per call, and once per interval
    /// all that are worth it. They count as packed from now on. When it is time, O(units tracked)
    /// and the tokens, by layers, of the nodes that were used enough; else O(1).
    pub fn due(&mut self, now: Nanos, most: usize) -> Vec<Job> {
        if !self.is_time(now) {
            return Vec::new();
        }
        let mut runs = self.runs();
        let uses = |run: &Vec<u32>| self.unit(run[0]).uses;
        // Prompts enter a run at its first unit, so that unit's uses count for the run.
        runs.retain(|run| run.len() >= LEAST_UNITS && uses(run) >= self.options.least_uses);
        runs.sort_by_key(|run| std::cmp::Reverse(uses(run)));
        let mut jobs = Vec::new();
        for run in runs {
            if jobs.len() == most {
                // The rest is looked at right away.
                return jobs;
            }
            let job = self.job(&run);
            // A run without a job was looked at as well: the next look waits for new uses.
            run.iter().for_each(|id| self.unit_mut(*id).uses = 0);
            if let Some(job) = job {
                self.pack(&run, &job);
                jobs.push(job);
            }
        }
        let interval = u64::try_from(self.options.interval.as_nanos()).unwrap_or(u64::MAX);
        self.next_look = Nanos(now.0.saturating_add(interval));
        jobs
    }

    /// A layer of these units is in no pack: it could not be made, or is gone.
    pub fn unpacked(&mut self, units: &[BlockHash], layer: usize) {
        for name in units {
            let Some(&id) = self.names.get(name) else {
                continue;
            };
            let counts = self.unit_mut(id).layers.get_mut(layer);
            counts.into_iter().flatten().for_each(|count| *count &= COUNT);
        }
    }

    /// Units tracked.
    #[must_use]
    pub fn num_units(&self) -> usize {
        self.names.len()
    }

    /// # Panics
    /// When the units do not form a forest.
    pub fn check(&self) {
        assert!(self.names.len() <= self.options.most_units, "bounded");
        assert_eq!(self.names.len() + self.free.len(), self.units.len());
        let mut num_leaves = 0;
        for (name, &id) in &self.names {
            let unit = self.unit(id);
            assert_eq!(unit.name, *name, "names lead to their units");
            if let Some(parent) = unit.parent {
                let children = self.unit(parent).children.iter();
                assert_eq!(children.filter(|child| **child == id).count(), 1, "linked once");
            }
            if unit.children.is_empty() {
                assert!(self.leaves.contains(&(unit.last_use, id)) && !unit.is_end);
                num_leaves += 1;
            }
        }
        assert_eq!(num_leaves, self.leaves.len(), "leaves have no children");
    }

    fn unit(&self, id: u32) -> &TrackedUnit {
        let unit = self.units[id as usize].as_ref();
        unit.expect("what is linked is tracked")
    }

    fn unit_mut(&mut self, id: u32) -> &mut TrackedUnit {
        let unit = self.units[id as usize].as_mut();
        unit.expect("what is linked is tracked")
    }

    /// Tracks a unit, in the place of the coldest leaf where there is no other; `None` where all
    /// that is tracked is the prompt's own.
    fn track(&mut self, name: BlockHash) -> Option<u32> {
        if self.names.len() >= self.options.most_units {
            let &(last_use, coldest) = self.leaves.first()?;
            // Forgetting a unit of this very prompt would tear its own prefix apart.
            if last_use == self.clock {
                return None;
            }
            self.forget(coldest);
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.units.push(None);
            self.units.len() as u32 - 1
        });
        self.units[id as usize] = Some(TrackedUnit {
            name,
            parent: None,
            children: Vec::new(),
            is_end: false,
            last_use: self.clock,
            uses: 0,
            packing: None,
            layers: Vec::new(),
        });
        self.names.insert(name, id);
        self.leaves.insert((self.clock, id));
        Some(id)
    }

    /// Forgets a leaf.
    fn forget(&mut self, id: u32) {
        let gone = self.units[id as usize].take().expect("a leaf is tracked");
        self.leaves.remove(&(gone.last_use, id));
        self.names.remove(&gone.name);
        self.free.push(id);
        let Some(parent) = gone.parent else {
            return;
        };
        let unit = self.unit_mut(parent);
        unit.children.retain(|child| *child != id);
        if unit.children.is_empty() {
            // A leaf ends every prompt through it, which needs no mark.
            unit.is_end = false;
            let last_use = unit.last_use;
            self.leaves.insert((last_use, parent));
        }
    }

    /// Makes a unit the child of the one before it, where its parent was not known.
    fn link(&mut self, before: Option<u32>, id: u32) {
        // A name covers its whole prefix, so a known parent does not change.
        let (Some(before), None) = (before, self.unit(id).parent) else {
            return;
        };
        self.unit_mut(id).parent = Some(before);
        let parent = self.unit_mut(before);
        parent.children.push(id);
        // It is no leaf any more.
        let place = (parent.last_use, before);
        self.leaves.remove(&place);
    }

    fn touch(&mut self, id: u32) {
        let clock = self.clock;
        let unit = self.unit_mut(id);
        let before = std::mem::replace(&mut unit.last_use, clock);
        unit.uses = unit.uses.saturating_add(1);
        if unit.children.is_empty() {
            self.leaves.remove(&(before, id));
            self.leaves.insert((clock, id));
        }
    }

    /// Whether prompts part behind a unit, or all end there.
    fn is_last(&self, unit: &TrackedUnit) -> bool {
        unit.children.len() != 1 || unit.is_end
    }

    /// All nodes, cut to the length of a pack.
    fn runs(&self) -> Vec<Vec<u32>> {
        let mut runs = Vec::new();
        for (id, unit) in (0u32..).zip(&self.units) {
            let Some(unit) = unit else {
                continue;
            };
            // A unit in the middle of a node: the node is built from its first unit.
            if unit.parent.is_some_and(|parent| !self.is_last(self.unit(parent))) {
                continue;
            }
            let next = |id: &u32| {
                let unit = self.unit(*id);
                (!self.is_last(unit)).then(|| unit.children[0])
            };
            let node: Vec<u32> = std::iter::successors(Some(id), next).collect();
            // At least two units a piece; the caller drops a shorter rest, which is worth no pack.
            let pieces = node.chunks(self.options.most_pack_units.max(LEAST_UNITS));
            runs.extend(pieces.map(<[u32]>::to_vec));
        }
        runs
    }

    /// Returns the packing job of a run; `None` if no layer is worth packing.
    fn job(&self, run: &[u32]) -> Option<Job> {
        let straddles = self.straddles(run);
        // Layers come into being with their first selection, so units may have fewer.
        let num_layers = run.iter().map(|id| self.unit(*id).layers.len()).max()?;
        let orders = (0..num_layers).map(|layer| (layer, self.order(run, layer)));
        let is_worth_it = |(layer, order): &(usize, Vec<u32>)| {
            let is_new = |token: &&u32| !self.is_packed(run, *layer, **token);
            let num_new = order.iter().filter(is_new).count();
            !order.is_empty()
                // Prompts part within an old pack now, so it is replaced even by the same tokens.
                && (straddles || num_new as f64 >= self.options.least_change * order.len() as f64)
        };
        let job = Job {
            layers: orders.filter(is_worth_it).collect(),
            units: run.iter().map(|id| self.unit(*id).name).collect(),
        };
        (!job.layers.is_empty()).then_some(job)
    }

    /// Whether these units were packed as part of a larger node.
    fn straddles(&self, run: &[u32]) -> bool {
        let mut packings: BTreeMap<u64, (usize, usize)> = BTreeMap::new();
        for (packing, num_units) in run.iter().filter_map(|id| self.unit(*id).packing) {
            packings.entry(packing).or_insert((0, num_units)).0 += 1;
        }
        packings.values().any(|(here, num_units)| here < num_units)
    }

    /// The tokens of a run that were selected most often, as many as a pack holds; ties to the
    /// earlier. O(tokens of the run).
    fn order(&self, run: &[u32], layer: usize) -> Vec<u32> {
        let unit_tokens = self.options.unit_tokens;
        let mut by_count: Vec<Vec<u32>> = vec![Vec::new(); usize::from(COUNT) + 1];
        for (at, id) in run.iter().enumerate() {
            let counts = self.unit(*id).layers.get(layer).into_iter().flatten();
            for (count, token) in counts.zip((at * unit_tokens) as u32..) {
                by_count[usize::from(count & COUNT)].push(token);
            }
        }
        let most = self.options.most_share * (run.len() * unit_tokens) as f64;
        // Tokens that were never selected are in no pack.
        let selected = by_count.into_iter().skip(1).rev().flatten();
        selected.take(most as usize).collect()
    }

    fn is_packed(&self, run: &[u32], layer: usize, token: u32) -> bool {
        let [at, token] = [usize::div_euclid, usize::rem_euclid]
            .map(|split| split(token as usize, self.options.unit_tokens));
        self.unit(run[at]).layers[layer][token] & PACKED != 0
    }

    /// Counts a run as packed.
    fn pack(&mut self, run: &[u32], job: &Job) {
        self.num_packings += 1;
        let packing = Some((self.num_packings, run.len()));
        for id in run {
            let unit = self.unit_mut(*id);
            unit.packing = packing;
            for (layer, _) in &job.layers {
                let counts = unit.layers.get_mut(*layer).into_iter().flatten();
                // Halved, so that old selections fade; the bit of the old pack goes as well.
                counts.for_each(|count| *count = (*count & COUNT) >> 1);
            }
        }
        let unit_tokens = self.options.unit_tokens;
        for (layer, order) in &job.layers {
            for &token in order {
                let unit = self.unit_mut(run[token as usize / unit_tokens]);
                unit.layers[*layer][token as usize % unit_tokens] |= PACKED;
            }
        }
    }
}

impl TrackedUnit {
    fn counts(&mut self, layer: usize, unit_tokens: usize) -> &mut [u8] {
        if self.layers.len() <= layer {
            self.layers.resize_with(layer + 1, Vec::new);
        }
        let counts = &mut self.layers[layer];
        if counts.is_empty() {
            *counts = vec![0; unit_tokens];
        }
        counts
    }
}

/// Halves the count, whether packed or not.
fn halve(count: &mut u8) {
    *count = *count & PACKED | (*count & COUNT) >> 1;
}

#[cfg(test)]
mod tests;
