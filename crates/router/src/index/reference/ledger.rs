//! Compaction of one replica's updates into fewer updates with the same effect on any index.
//!
//! ```text
//! updates ──► Ledger ──► write_out ──► updates ──► an index that comes late
//! ```
//!
//! What an update means is said by the obvious index, whose contents a ledger is made of; here
//! is only the way back. It does not know keys, prompts or other replicas, and it takes the time
//! and the memory of the obvious index: for now and then, not for look-ups.
//!
//! Invariant: an index that applies what is written out answers from then on as one that applied
//! everything, with two exceptions. It does not know the handles that
//! [`DepartedHandles::Dropped`] leaves out, nor which doubt came last: [`Update::Trust`] then finds
//! none.

use std::collections::{BTreeMap, BTreeSet};

use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, Tier};

use super::{BlockIntroduction, Contents, DOUBT_TTL, HandleStanding, Update};

/// Blocks of one written event at most: some tens of kilobytes on the wire.
const EVENT_BLOCKS_MAX: usize = 512;

/// Largest block size, tokens, that is written with tokens: no engine fills larger blocks.
const SIZE_TOKENS_MAX: u32 = 1 << 16;

/// Treatment of handles whose block is nowhere held and precedes no held block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartedHandles {
    /// They are written out as well: for comparisons.
    Kept,
    /// They are left out: an event without tokens that names one later waits for ever.
    Dropped,
}

/// The sum of one replica's updates.
#[derive(Debug, Default)]
pub struct Ledger {
    contents: Contents,
}

/// Cache group and tier.
type GroupTier = (u8, Tier);

impl Ledger {
    /// Takes over an update. Assumptions are each router's own and are left out.
    pub fn apply(&mut self, update: Update<'_>, now: Nanos) {
        match update {
            Update::Track { .. } | Update::Forget => self.contents = Contents::default(),
            Update::Assume(_) => {}
            _ => self.contents.update(update, now),
        }
    }

    /// Handles that are remembered: what a ledger's memory and time go with.
    #[must_use]
    pub fn num_handles(&self) -> usize {
        self.contents.links.len().max(self.contents.held.len())
    }

    /// Updates for an index that has just begun to track the replica, each with its time.
    #[must_use]
    pub fn write_out(&self, departed: DepartedHandles, now: Nanos) -> Vec<(Nanos, CacheEvent)> {
        let mut writer = EventWriter::new(&self.contents, now);
        for block in writer.leaves_first(departed) {
            writer.introduce(block);
        }
        writer.place_all();
        writer.end_groups();
        writer.events
    }
}

/// Events under way.
struct EventWriter<'a> {
    contents: &'a Contents,
    /// Held blocks, without expired doubts.
    held: BTreeMap<BlockHash, Vec<(GroupTier, HandleStanding)>>,
    introduced: BTreeSet<BlockHash>,
    /// Introduced where they are not: to be removed again.
    surplus: BTreeMap<GroupTier, Vec<BlockHash>>,
    now: Nanos,
    events: Vec<(Nanos, CacheEvent)>,
}

impl<'a> EventWriter<'a> {
    fn new(contents: &'a Contents, now: Nanos) -> Self {
        let mut held: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (&(group, tier, block), &standing) in &contents.held {
            let is_over =
                matches!(standing, HandleStanding::Doubtful { since } if now >= since + DOUBT_TTL);
            if !is_over {
                held.entry(block).or_default().push(((group, tier), standing));
            }
        }
        Self {
            contents,
            held,
            introduced: BTreeSet::new(),
            surplus: BTreeMap::new(),
            now,
            events: Vec::new(),
        }
    }

    /// The blocks to begin with on the way back to their prompts' starts: the longer the ways, the
    /// fewer the events.
    fn leaves_first(&self, departed: DepartedHandles) -> Vec<BlockHash> {
        let links = &self.contents.links;
        let parents: BTreeSet<_> = links.values().filter_map(|link| link.parent).collect();
        let is_wanted =
            |block: &&BlockHash| departed == DepartedHandles::Kept || self.held.contains_key(block);
        let wanted = links.keys().filter(is_wanted).copied();
        let (inner, mut leaves): (Vec<_>, Vec<_>) =
            wanted.partition(|block| parents.contains(block));
        leaves.extend(inner);
        leaves
    }

    /// Writes what introduced `block` and all before it, parents first.
    fn introduce(&mut self, block: BlockHash) {
        let mut way = Vec::new();
        let mut next = Some(block);
        while let Some(block) = next {
            let Some(link) = self.contents.links.get(&block) else {
                // Its parent was never introduced: the block waits for it in the new index as well.
                break;
            };
            if !self.introduced.insert(block) {
                // The rest of its way to the start is written already.
                break;
            }
            way.push((block, link, self.first_place(block)));
            next = link.parent;
        }
        way.reverse();
        let is_one =
            |a: &PathStep<'_>, b: &PathStep<'_>| (a.1.block_size, a.2) == (b.1.block_size, b.2);
        for run in way.chunk_by(is_one) {
            for piece in run.chunks(EVENT_BLOCKS_MAX) {
                let event = self.stored(piece);
                self.events.push((self.now, CacheEvent::Stored(event)));
            }
        }
    }

    /// Returns the place where a block is introduced: one that holds it in a known group, else one
    /// that it is removed from again.
    fn first_place(&mut self, block: BlockHash) -> GroupTier {
        let groups = &self.contents.groups;
        let places = self.held.get(&block).map_or(&[][..], Vec::as_slice);
        let known = places.iter().find(|((group, _), _)| groups.contains_key(group));
        if let Some(&(place, _)) = known {
            return place;
        }
        let group = groups.keys().next().copied().unwrap_or_default();
        let place = (group, Tier::Device);
        self.surplus.entry(place).or_default().push(block);
        place
    }

    fn stored(&self, piece: &[PathStep<'_>]) -> StoredBlocks {
        let (_, first, (group, tier)) = piece[0];
        let (adapter, salt) = &first.start;
        let name = |name: &Option<String>| name.as_deref().map(Into::into);
        let has_extras = piece.iter().any(|(_, link, _)| link.extra.is_some());
        let extra = |(_, link, _): &PathStep<'_>| link.extra.as_deref().map(Into::into);
        StoredBlocks {
            blocks: piece.iter().map(|&(block, ..)| block).collect(),
            parent: first.parent,
            tokens: piece.iter().flat_map(|(_, link, _)| link.tokens.iter().copied()).collect(),
            block_size: first.block_size,
            extras: if has_extras { piece.iter().map(extra).collect() } else { Vec::new() },
            tier,
            group: self.group(group),
            salt: name(salt),
            adapter: name(adapter),
        }
    }

    fn group(&self, index: u8) -> CacheGroup {
        let known = self.contents.groups.get(&index);
        let attention = known.map(|group| group.attention).unwrap_or_default();
        CacheGroup { index, attention, lookahead: known.map_or(0, |group| group.shape.lookahead) }
    }

    /// Writes what else is held where, and how it stands.
    fn place_all(&mut self) {
        let mut stored: BTreeMap<GroupTier, Vec<BlockHash>> = BTreeMap::new();
        let mut doubts: BTreeMap<(Nanos, GroupTier), Vec<BlockHash>> = BTreeMap::new();
        for (&block, places) in &self.held {
            let groups = &self.contents.groups;
            let known = places.iter().position(|((group, _), _)| groups.contains_key(group));
            let introduced = known.filter(|_| self.introduced.contains(&block));
            for (at, &(place, standing)) in places.iter().enumerate() {
                let times = match standing {
                    HandleStanding::Confirmed { again } => 1 + usize::from(again),
                    HandleStanding::Doubtful { since } => {
                        doubts.entry((since, place)).or_default().push(block);
                        // Stored twice and removed once, the block is doubtful.
                        2
                    }
                };
                let left = times - usize::from(introduced == Some(at));
                let list = stored.entry(place).or_default();
                list.extend(std::iter::repeat_n(block, left));
            }
        }
        let surplus = std::mem::take(&mut self.surplus);
        for (place, blocks) in surplus {
            self.removed(place, &blocks, self.now);
        }
        for (place, blocks) in stored {
            self.stored_again(place, &blocks);
        }
        // A removal of what was stored twice is a doubt from then on.
        for ((since, place), blocks) in doubts {
            self.removed(place, &blocks, since);
        }
    }

    fn stored_again(&mut self, place: GroupTier, blocks: &[BlockHash]) {
        let (group, tier) = place;
        let known = self.contents.groups.get(&group);
        for piece in blocks.chunks(EVENT_BLOCKS_MAX) {
            let event = StoredBlocks {
                blocks: piece.to_vec(),
                parent: None,
                tokens: Vec::new(),
                block_size: known.map_or(0, |group| group.shape.size),
                extras: Vec::new(),
                tier,
                group: self.group(group),
                salt: None,
                adapter: None,
            };
            self.events.push((self.now, CacheEvent::Stored(event)));
        }
    }

    fn removed(&mut self, place: GroupTier, blocks: &[BlockHash], at: Nanos) {
        let (group, tier) = place;
        for piece in blocks.chunks(EVENT_BLOCKS_MAX) {
            let event = CacheEvent::Removed { blocks: piece.to_vec(), tier, group };
            self.events.push((at, event));
        }
    }

    /// Writes what each group last said of itself, by a block that comes and goes.
    fn end_groups(&mut self) {
        for (&index, group) in &self.contents.groups {
            let size = group.shape.size;
            // No engine's hash: those that are this large are digests, which are well mixed.
            let block = BlockHash::from_u64(u64::MAX - u64::from(size));
            let tokens = match size {
                ..=SIZE_TOKENS_MAX => vec![0; size as usize],
                _ => Vec::new(),
            };
            let event = StoredBlocks {
                blocks: vec![block],
                parent: None,
                tokens,
                block_size: size,
                extras: Vec::new(),
                tier: Tier::Device,
                group: self.group(index),
                salt: None,
                adapter: None,
            };
            self.events.push((self.now, CacheEvent::Stored(event)));
            self.removed((index, Tier::Device), &[block], self.now);
        }
    }
}

/// A block on the way from a prompt's start, what introduced it, and where it is written.
type PathStep<'a> = (BlockHash, &'a BlockIntroduction, GroupTier);
