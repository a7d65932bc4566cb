//! The way from a ledger back to events.

use std::collections::{BTreeMap, BTreeSet};

use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Nanos, Tier, TokenId};

use super::{BlockIntroduction, Ledger};
use crate::index::standing::{BlockPlace, HoldingRecord};

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

impl Ledger {
    /// Updates for an index that has just begun to track the replica, each with its time.
    #[must_use]
    pub fn write_out(&self, departed: DepartedHandles, now: Nanos) -> Vec<(Nanos, CacheEvent)> {
        let mut writer = EventWriter::new(self, now);
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
    ledger: &'a Ledger,
    /// Held blocks, without expired doubts.
    held: BTreeMap<BlockHash, Vec<(BlockPlace, HoldingRecord)>>,
    introduced: BTreeSet<BlockHash>,
    /// Introduced where they are not: to be removed again.
    surplus: BTreeMap<BlockPlace, Vec<BlockHash>>,
    now: Nanos,
    events: Vec<(Nanos, CacheEvent)>,
}

impl<'a> EventWriter<'a> {
    fn new(ledger: &'a Ledger, now: Nanos) -> Self {
        let mut held: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (&(place, block), &record) in &ledger.held {
            if record.is_left(now) {
                held.entry(block).or_default().push((place, record));
            }
        }
        Self {
            ledger,
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
        let links = &self.ledger.links;
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
            let Some(link) = self.ledger.links.get(&block) else {
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
    fn first_place(&mut self, block: BlockHash) -> BlockPlace {
        let groups = &self.ledger.groups;
        let places = self.held.get(&block).map_or(&[][..], Vec::as_slice);
        let known = places.iter().find(|(place, _)| groups.contains_key(&place.group));
        if let Some(&(place, _)) = known {
            return place;
        }
        let group = groups.keys().next().copied().unwrap_or_default();
        let place = BlockPlace { group, tier: Tier::Device };
        self.surplus.entry(place).or_default().push(block);
        place
    }

    fn stored(&self, piece: &[PathStep<'_>]) -> StoredBlocks {
        let (_, first, place) = piece[0];
        let has_extras = piece.iter().any(|(_, link, _)| link.extra.is_some());
        let extra = |(_, link, _): &PathStep<'_>| link.extra.clone();
        StoredBlocks {
            blocks: piece.iter().map(|&(block, ..)| block).collect(),
            parent: first.parent,
            tokens: piece.iter().flat_map(|(_, link, _)| link.tokens.iter().copied()).collect(),
            block_size: first.block_size,
            extras: if has_extras { piece.iter().map(extra).collect() } else { Vec::new() },
            tier: place.tier,
            group: self.group(place.group),
            salt: first.salt.clone(),
            adapter: first.adapter.clone(),
        }
    }

    fn group(&self, index: u8) -> CacheGroup {
        let known = self.ledger.groups.get(&index);
        let attention = known.map(|group| group.attention).unwrap_or_default();
        CacheGroup { index, attention, lookahead: known.map_or(0, |group| group.shape.lookahead) }
    }

    /// Writes what else is held where, and how it stands.
    fn place_all(&mut self) {
        let mut stored: BTreeMap<BlockPlace, Vec<BlockHash>> = BTreeMap::new();
        let mut doubts: BTreeMap<(Nanos, BlockPlace), Vec<BlockHash>> = BTreeMap::new();
        for (&block, places) in &self.held {
            let groups = &self.ledger.groups;
            let known = places.iter().position(|(place, _)| groups.contains_key(&place.group));
            let introduced = known.filter(|_| self.introduced.contains(&block));
            for (at, &(place, record)) in places.iter().enumerate() {
                let times = match record {
                    HoldingRecord::Confirmed { again } => 1 + usize::from(again),
                    HoldingRecord::Doubtful { since } => {
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

    fn stored_again(&mut self, place: BlockPlace, blocks: &[BlockHash]) {
        let known = self.ledger.groups.get(&place.group);
        let block_size = known.map_or(0, |group| group.shape.size);
        for piece in blocks.chunks(EVENT_BLOCKS_MAX) {
            self.store(place, piece.to_vec(), block_size, Vec::new());
        }
    }

    /// Stores blocks in a place, behind no others.
    fn store(
        &mut self,
        place: BlockPlace,
        blocks: Vec<BlockHash>,
        block_size: u32,
        tokens: Vec<TokenId>,
    ) {
        let event = StoredBlocks {
            blocks,
            parent: None,
            tokens,
            block_size,
            extras: Vec::new(),
            tier: place.tier,
            group: self.group(place.group),
            salt: None,
            adapter: None,
        };
        self.events.push((self.now, CacheEvent::Stored(event)));
    }

    fn removed(&mut self, place: BlockPlace, blocks: &[BlockHash], at: Nanos) {
        let BlockPlace { group, tier } = place;
        for piece in blocks.chunks(EVENT_BLOCKS_MAX) {
            let event = CacheEvent::Removed { blocks: piece.to_vec(), tier, group };
            self.events.push((at, event));
        }
    }

    /// Writes what each group last said of itself, by a block that comes and goes.
    fn end_groups(&mut self) {
        for (&index, group) in &self.ledger.groups {
            let size = group.shape.size;
            // No engine's hash: those that are this large are digests, which are well mixed.
            let block = BlockHash::from_u64(u64::MAX - u64::from(size));
            let tokens = match size {
                ..=SIZE_TOKENS_MAX => vec![0; size as usize],
                _ => Vec::new(),
            };
            let place = BlockPlace { group: index, tier: Tier::Device };
            self.store(place, vec![block], size, tokens);
            self.removed(place, &[block], self.now);
        }
    }
}

/// A block on the way from a prompt's start, what introduced it, and where it is written.
type PathStep<'a> = (BlockHash, &'a BlockIntroduction, BlockPlace);
