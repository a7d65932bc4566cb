//! The index by definition: per replica, the blocks that its events told of, and for every
//! question a walk from each of them back to its prompt's start.
//!
//! An engine's hash is a *handle*: it means what the event that introduced it says, its tokens
//! behind its parent. From these the block's [`RouteKey`] is derived again, so neither the
//! engine's hash function nor its seed matters. It remembers every event's tokens and parent until
//! the replica is cleared, so no block waits for anything: one whose parent is unknown simply has
//! no prefix yet. Slow and unbounded; for tests.
//!
//! What is defined here and must hold for every index:
//!
//! - A handle means what the first event that brought its tokens says, until the replica is
//!   cleared. A block behind one of another size has no prefix.
//! - A block is held per (cache group, tier). A removal of one that was stored again since makes
//!   it doubtful first: engines report several copies of a block in either way.
//! - Blocks of the sizes that a replica's groups last reported count; before its first event, and
//!   after it was cleared, those of the configured size: what comes next may be another engine.
//!
//! Source: the dual keys of llm-d. Differences: events with an unknown parent or without tokens
//! wait instead of being dropped, and every handle covers exactly one block.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headstart_core::block::{BlockShape, Namespace};
use headstart_core::event::{Attention, StoredBlocks};
use headstart_core::{
    BlockHash, CacheEvent, Nanos, ReplicaId, RouteHasher, RouteIdentity, RouteKey, Tier,
};
use headstart_router::index::{ASSUMPTION_TTL, DOUBT_TTL, ResidentBlock, TierTokens, Update};
use headstart_router::{IndexStats, Overlap, Overlaps, PrefixIndex, Prompt, PromptKeys};

/// A [`PrefixIndex`] that is obviously right. It counts entries and nothing else.
#[derive(Debug)]
pub struct ReferenceIndex {
    model: String,
    replicas: Mutex<BTreeMap<ReplicaId, Contents>>,
    /// The shapes of blocks last in use.
    last_shapes: Mutex<BTreeSet<BlockShape>>,
}

#[derive(Debug, Default)]
struct Contents {
    configured_size: Option<u32>,
    groups: BTreeMap<u8, Group>,
    links: BTreeMap<BlockHash, BlockIntroduction>,
    held: BTreeMap<(u8, Tier, BlockHash), HandleStanding>,
    assumed: Vec<PromptAssumption>,
    /// Since when that is doubtful which was doubted last, all at once.
    doubted: Option<Nanos>,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    attention: Attention,
    shape: BlockShape,
}

/// Tokens and predecessor that introduced a block.
#[derive(Clone, Debug)]
struct BlockIntroduction {
    parent: Option<BlockHash>,
    /// Adapter and salt of the prompt.
    start: (Option<String>, Option<String>),
    block_size: u32,
    tokens: Vec<u32>,
    extra: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandleStanding {
    Confirmed { again: bool },
    Doubtful { since: Nanos },
}

#[derive(Clone, Debug)]
struct PromptAssumption {
    keys: BTreeSet<RouteKey>,
    until: Nanos,
}

/// Filter for the blocks that a question counts.
#[derive(Clone, Copy)]
struct OverlapLevel {
    /// The farthest tier that counts.
    within: Tier,
    with_doubtful: bool,
}

impl ReferenceIndex {
    /// An index of the replicas of `model`.
    #[must_use]
    pub fn new(model: impl Into<String>) -> Self {
        Self { model: model.into(), replicas: Mutex::default(), last_shapes: Mutex::default() }
    }

    fn last_shapes(&self) -> MutexGuard<'_, BTreeSet<BlockShape>> {
        let last = self.last_shapes.lock();
        last.unwrap_or_else(PoisonError::into_inner)
    }

    fn shapes_in_use(replicas: &BTreeMap<ReplicaId, Contents>) -> BTreeSet<BlockShape> {
        replicas.values().flat_map(Contents::shapes).collect()
    }

    /// Takes note of the shapes in use, if there are any.
    fn note_shapes(&self, replicas: &BTreeMap<ReplicaId, Contents>) {
        let in_use = Self::shapes_in_use(replicas);
        if !in_use.is_empty() {
            *self.last_shapes() = in_use;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ReplicaId, Contents>> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hasher(&self, block_size: u32) -> RouteHasher {
        RouteHasher::new(&RouteIdentity { model: &self.model, block_size })
    }

    /// Walks back from `block` to the prompt's start; none if a block before it is unknown or of
    /// another size.
    fn key_of(&self, contents: &Contents, block: BlockHash) -> Option<RouteKey> {
        let mut links = vec![contents.links.get(&block)?];
        while let Some(parent) = links[links.len() - 1].parent {
            let link = contents.links.get(&parent)?;
            // A longer walk than there are links goes in a circle.
            if link.block_size != links[0].block_size || links.len() > contents.links.len() {
                return None;
            }
            links.push(link);
        }
        let hasher = self.hasher(links[0].block_size);
        let (adapter, salt) = &links[links.len() - 1].start;
        let root = hasher.root(Namespace { adapter: adapter.as_deref(), salt: salt.as_deref() });
        let next = |key, link: &&BlockIntroduction| {
            hasher.next_with(key, &link.tokens, link.extra.as_deref())
        };
        Some(links.iter().rev().fold(root, next))
    }

    /// All that a replica holds at `now`, by group and key: per tier, whether it is doubtful.
    fn holdings(&self, contents: &Contents, now: Nanos) -> Holdings {
        let mut holdings = Holdings::new();
        for (&(group, tier, block), &standing) in &contents.held {
            let is_doubtful = match standing {
                HandleStanding::Confirmed { .. } => false,
                HandleStanding::Doubtful { since } if now < since + DOUBT_TTL => true,
                HandleStanding::Doubtful { .. } => continue,
            };
            if let Some(key) = self.key_of(contents, block) {
                let doubt = holdings.entry((group, key, tier)).or_insert(is_doubtful);
                *doubt &= is_doubtful;
            }
        }
        holdings
    }
}

/// Whether a block that some group holds in some tier is doubtful.
type Holdings = BTreeMap<(u8, RouteKey, Tier), bool>;

impl Contents {
    /// Takes over an update of a replica that stays tracked.
    fn update(&mut self, update: Update<'_>, now: Nanos) {
        match update {
            Update::Events(events) => events.iter().for_each(|event| self.apply(event, now)),
            Update::Doubt => self.doubt(now),
            Update::Trust => self.trust(now),
            Update::Assume(prompt) => self.assume(prompt, now),
            Update::Track { .. } | Update::Forget => {}
        }
    }

    fn apply(&mut self, event: &CacheEvent, now: Nanos) {
        match event {
            CacheEvent::Stored(stored) => self.store(stored),
            CacheEvent::Removed { blocks, tier, group } => {
                for &block in blocks {
                    self.remove((*group, *tier, block), now);
                }
            }
            CacheEvent::Cleared => {
                self.groups.clear();
                self.links.clear();
                self.held.clear();
                self.assumed.clear();
                self.doubted = None;
            }
        }
    }

    fn store(&mut self, stored: &StoredBlocks) {
        if !stored.tokens.is_empty() {
            if !stored.is_filled() {
                return;
            }
            self.link(stored);
        }
        self.learn(stored);
        for &block in &stored.blocks {
            let place = (stored.group.index, stored.tier, block);
            let again = matches!(self.held.get(&place), Some(HandleStanding::Confirmed { .. }));
            self.held.insert(place, HandleStanding::Confirmed { again });
        }
    }

    /// Events without tokens say nothing new of a group that is known.
    fn learn(&mut self, stored: &StoredBlocks) {
        let group = stored.group;
        let is_known = self.groups.contains_key(&group.index);
        if stored.block_size > 0 && (!stored.tokens.is_empty() || !is_known) {
            let known = Group {
                attention: group.attention,
                shape: BlockShape { size: stored.block_size, lookahead: group.lookahead },
            };
            self.groups.insert(group.index, known);
        }
    }

    fn link(&mut self, stored: &StoredBlocks) {
        let mut parent = stored.parent;
        let name = |name: &Option<Arc<str>>| name.as_deref().map(str::to_owned);
        let tokens = stored.tokens.chunks_exact(stored.block_size as usize);
        for (index, (&block, tokens)) in stored.blocks.iter().zip(tokens).enumerate() {
            let extra = stored.extras.get(index).cloned().flatten();
            self.links.entry(block).or_insert(BlockIntroduction {
                parent,
                start: (name(&stored.adapter), name(&stored.salt)),
                block_size: stored.block_size,
                tokens: tokens.to_vec(),
                extra: extra.map(|extra| extra.to_vec()),
            });
            parent = Some(block);
        }
    }

    fn remove(&mut self, place: (u8, Tier, BlockHash), now: Nanos) {
        match self.held.get_mut(&place) {
            Some(standing) if *standing == (HandleStanding::Confirmed { again: true }) => {
                // An even time: no trust takes it back.
                let since = Nanos(now.0 & !1);
                *standing = HandleStanding::Doubtful { since };
            }
            _ => {
                self.held.remove(&place);
            }
        }
    }

    fn doubt(&mut self, now: Nanos) {
        // An odd time, and unlike any doubt before it: trust takes back the last one only.
        let since = Nanos(now.0 | 1);
        let since = self.doubted.map_or(since, |last| since.max(Nanos(last.0 + 2)));
        self.doubted = Some(since);
        for standing in self.held.values_mut() {
            if matches!(standing, HandleStanding::Confirmed { .. }) {
                *standing = HandleStanding::Doubtful { since };
            }
        }
    }

    fn trust(&mut self, now: Nanos) {
        let doubted = self.doubted.take();
        let Some(since) = doubted.filter(|&since| now < since + DOUBT_TTL) else {
            return;
        };
        for standing in self.held.values_mut() {
            if *standing == (HandleStanding::Doubtful { since }) {
                *standing = HandleStanding::Confirmed { again: false };
            }
        }
    }

    fn assume(&mut self, prompt: &PromptKeys, now: Nanos) {
        let shapes = self.shapes().into_iter();
        for shape in shapes.filter(|_| prompt.are_in_use()) {
            let keys = prompt.of(shape).iter().copied().collect();
            let until = now + ASSUMPTION_TTL;
            self.assumed.push(PromptAssumption { keys, until });
        }
    }

    fn shapes(&self) -> BTreeSet<BlockShape> {
        let shapes = self.groups.values().map(|group| group.shape);
        let configured = self.configured_size.filter(|_| self.groups.is_empty());
        shapes.chain(configured.map(BlockShape::of_size)).collect()
    }

    /// Returns the cache groups that a prefix must satisfy. A replica without events has one group
    /// of the usual kind.
    fn requirements(&self) -> Vec<(u8, Group)> {
        let attention = Attention::Full;
        let configured = self.configured_size.map(|size| {
            let shape = BlockShape::of_size(size);
            (0, Group { attention, shape })
        });
        let known = self.groups.iter().map(|(&index, &group)| (index, group));
        if self.groups.is_empty() { configured.into_iter().collect() } else { known.collect() }
    }

    /// Tokens of the longest prefix that all groups can go on behind.
    fn run(&self, question: &OverlapQuery<'_>, level: OverlapLevel) -> usize {
        let requirements = self.requirements();
        if requirements.is_empty() {
            return 0;
        }
        let mut tokens = question.prompt.num_tokens();
        loop {
            let before = tokens;
            for &(index, group) in &requirements {
                tokens = self.run_of(question, level, index, group, tokens);
            }
            if tokens == before {
                return tokens;
            }
        }
    }

    /// The same for one group, at most `limit`.
    fn run_of(
        &self,
        question: &OverlapQuery<'_>,
        level: OverlapLevel,
        index: u8,
        group: Group,
        limit: usize,
    ) -> usize {
        let block_size = group.shape.size as usize;
        let keys = question.prompt.of(group.shape);
        let is_there = |&key: &RouteKey| {
            let tiers = |tier| question.holdings.get(&(index, key, tier));
            let counting = TIERS.iter().filter(|&&tier| tier <= level.within);
            let mut held = counting.filter_map(|&tier| tiers(tier));
            held.any(|&is_doubtful| level.with_doubtful || !is_doubtful)
                || self.assumed.iter().any(|assumed| assumed.holds(key, question.now))
        };
        let needed = |blocks: usize| match group.attention {
            Attention::Full => 0..blocks,
            Attention::State => blocks.saturating_sub(1)..blocks,
            Attention::Window { tokens } => {
                let covering = (tokens.saturating_sub(1) as usize).div_ceil(block_size);
                blocks.saturating_sub(covering)..blocks
            }
        };
        let can_go_on = |&blocks: &usize| keys[needed(blocks)].iter().all(is_there);
        let most = (limit / block_size).min(keys.len());
        (0..=most).rev().find(can_go_on).unwrap_or(0) * block_size
    }
}

/// All tiers, nearest first.
const TIERS: [Tier; 4] = [Tier::Device, Tier::Host, Tier::Disk, Tier::Remote];

/// One prompt, asked of one replica.
struct OverlapQuery<'a> {
    prompt: &'a PromptKeys,
    holdings: &'a Holdings,
    now: Nanos,
}

impl PromptAssumption {
    fn holds(&self, key: RouteKey, now: Nanos) -> bool {
        now < self.until && self.keys.contains(&key)
    }
}

impl PrefixIndex for ReferenceIndex {
    fn update(&self, replica: ReplicaId, update: Update<'_>, now: Nanos) {
        let mut replicas = self.lock();
        match update {
            Update::Track { block_size } => {
                let contents = Contents {
                    configured_size: block_size.filter(|&size| size > 0),
                    ..Contents::default()
                };
                replicas.insert(replica, contents);
            }
            Update::Forget => {
                replicas.remove(&replica);
            }
            _ => {
                if let Some(contents) = replicas.get_mut(&replica) {
                    contents.update(update, now);
                }
            }
        }
        self.note_shapes(&replicas);
    }

    fn hash(&self, prompt: Prompt<'_>) -> PromptKeys {
        let shapes = self.last_shapes().clone();
        let hasher = |shape: BlockShape| self.hasher(shape.size).with_lookahead(shape.lookahead);
        let hashers: Vec<_> = shapes.into_iter().map(hasher).collect();
        let keys = PromptKeys::new(prompt, &hashers);
        if Self::shapes_in_use(&self.lock()).is_empty() { keys.past() } else { keys }
    }

    fn overlaps(&self, prompt: &PromptKeys, now: Nanos, answer: &mut Overlaps) {
        answer.clear();
        for (&replica, contents) in self.lock().iter() {
            let holdings = self.holdings(contents, now);
            let question = OverlapQuery { prompt, holdings: &holdings, now };
            let run = |within, with_doubtful| {
                contents.run(&question, OverlapLevel { within, with_doubtful })
            };
            let overlap = Overlap {
                replica,
                device_tokens: run(Tier::Device, true) as u32,
                any_tier_tokens: run(Tier::Remote, true) as u32,
                trusted_tokens: run(Tier::Remote, false) as u32,
            };
            if overlap.any_tier_tokens > 0 {
                answer.push(overlap);
            }
        }
    }

    fn tier_tokens(&self, prompt: &PromptKeys, replica: ReplicaId, now: Nanos) -> TierTokens {
        let replicas = self.lock();
        let Some(contents) = replicas.get(&replica) else {
            return TierTokens::default();
        };
        let holdings = self.holdings(contents, now);
        let question = OverlapQuery { prompt, holdings: &holdings, now };
        TierTokens::new(TIERS.map(|within| {
            contents.run(&question, OverlapLevel { within, with_doubtful: true }) as u32
        }))
    }

    fn residents(&self, now: Nanos, visit: &mut dyn FnMut(ResidentBlock)) {
        for (&replica, contents) in self.lock().iter() {
            for ((group, key, tier), is_doubtful) in self.holdings(contents, now) {
                visit(ResidentBlock { replica, key, group, tier, is_doubtful });
            }
        }
    }

    fn stats(&self) -> IndexStats {
        let replicas = self.lock();
        let holdings = replicas.values().map(|contents| self.holdings(contents, Nanos(0)));
        IndexStats {
            entries: holdings.map(|holdings| holdings.len()).sum(),
            ..IndexStats::default()
        }
    }
}
