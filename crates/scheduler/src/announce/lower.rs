//! Events about the contents of lower tiers.
//!
//! Tiers know units by name; events speak of blocks and say what they stand for.
//!
//! ```text
//! unit on the device ──► shown: its blocks and their tokens are known
//!   in a tier as well ──► Stored { tier } ──► … ──► Removed { tier }
//! nowhere any more ──► forgotten
//! ```
//!
//! A tier may turn out to hold units at start, or because another replica stored them. Such a unit
//! is announced once a request has brought it to the device. Until then its tokens are unknown
//! here: they are not stored with it. From then on it is known for as long as the device or a tier
//! has it. Each event brings its tokens: a slow tier stores what left the device long ago, and a
//! listener forgets what is nowhere.
//!
//! Units that begin alike share blocks: a block is announced with the first unit that brings it to
//! a tier, and its removal with the last that leaves. A unit can only be loaded whole, which events
//! of blocks do not say: of a prompt that leaves a unit in its middle a listener takes the blocks
//! before for held, at most a unit's tokens too many.
//!
//! Invariants: of a unit that is known, those tiers are announced that hold it; a removal follows
//! its announcement; what is known is on the device, in a tier, or on its way to one. Memory: of a
//! unit its tokens, and its blocks' names and counts; 600 to 800 bytes where it has four blocks
//! and 64 tokens.

use std::collections::HashMap;
use std::sync::Arc;

use headstart_cache::tiers::{Change, ChangeKind};
use headstart_core::event::StoredBlocks;
use headstart_core::transfer::Unit;
use headstart_core::{BlockHash, CacheEvent, Tier, TokenId};

/// Most blocks of one event: what a listener takes in at once, some tens of kilobytes.
const EVENT_BLOCKS_MAX: usize = 1024;

/// Tiers below the device.
const LOWER_TIERS: usize = 3;

/// The units whose blocks are known.
#[derive(Debug, Default)]
pub(crate) struct LowerTiers {
    units: HashMap<BlockHash, KnownUnit>,
    /// By how many announced units each tier holds a block.
    blocks: HashMap<BlockHash, [u32; LOWER_TIERS]>,
    events: Vec<CacheEvent>,
}

/// A unit.
#[derive(Debug)]
struct KnownUnit {
    /// Its blocks, in order.
    blocks: Box<[BlockHash]>,
    /// Their tokens.
    tokens: Box<[TokenId]>,
    /// The block before them.
    parent: Option<BlockHash>,
    salt: Option<Arc<str>>,
    /// The tiers in which it is announced, a bit each.
    announced: u8,
    is_on_device: bool,
}

/// A unit whose blocks are all on the device, with what it stands for.
pub(crate) struct DeviceUnit<'a> {
    pub(crate) unit: Unit,
    /// Its blocks, in order.
    pub(crate) blocks: &'a [BlockHash],
    /// Their tokens.
    pub(crate) tokens: &'a [TokenId],
    /// Tenant salt.
    pub(crate) salt: Option<&'a Arc<str>>,
}

/// A unit's part of the counts.
fn place(tier: Tier) -> usize {
    match tier {
        Tier::Device => unreachable!("the device is no lower tier"),
        Tier::Host => 0,
        Tier::Disk => 1,
        Tier::Remote => 2,
    }
}

impl LowerTiers {
    /// All of a unit's blocks are on the device; `held` are the lower tiers where it can be read.
    pub(crate) fn shown(&mut self, shown: &DeviceUnit<'_>, held: impl Iterator<Item = Tier>) {
        let name = shown.unit.name;
        let known = self.units.entry(name).or_insert_with(|| KnownUnit {
            blocks: shown.blocks.into(),
            tokens: shown.tokens.into(),
            parent: shown.unit.parent,
            salt: shown.salt.cloned(),
            announced: 0,
            is_on_device: true,
        });
        known.is_on_device = true;
        held.for_each(|tier| self.store(name, tier));
    }

    /// A block has left the device. `is_needed`: it is a unit's name, and some tier has the unit or
    /// will have it.
    pub(crate) fn left_device(&mut self, name: BlockHash, is_needed: bool) {
        if let Some(known) = self.units.get_mut(&name) {
            known.is_on_device = false;
            self.forget_unless(is_needed, name);
        }
    }

    /// A tier has changed; `is_needed` says whether some tier has the unit by now, or will.
    pub(crate) fn changed(&mut self, change: Change, is_needed: bool) {
        let Change { tier, name, kind } = change;
        match kind {
            ChangeKind::Stored => self.store(name, tier),
            ChangeKind::Removed => {
                self.remove(name, tier);
                self.forget_unless(is_needed, name);
            }
            ChangeKind::NotStored => self.forget_unless(is_needed, name),
        }
    }

    /// Takes the events since the last call, in order.
    pub(crate) fn take_events(&mut self) -> impl Iterator<Item = CacheEvent> {
        self.events.drain(..)
    }

    /// Asserts the invariants, given what tiers hold and what is on the device. O(units).
    pub(crate) fn check(
        &self,
        holds: impl Fn(BlockHash, Tier) -> bool,
        is_needed: impl Fn(BlockHash) -> bool,
        is_on_device: impl Fn(BlockHash) -> bool,
    ) {
        let mut blocks: HashMap<BlockHash, [u32; LOWER_TIERS]> = HashMap::new();
        for (&name, known) in &self.units {
            assert_eq!(known.is_on_device, is_on_device(name), "it is where it is");
            let is_somewhere = known.is_on_device || is_needed(name);
            assert!(is_somewhere, "what is nowhere is forgotten");
            for tier in [Tier::Host, Tier::Disk, Tier::Remote] {
                let is_announced = known.announced & (1 << place(tier)) != 0;
                assert_eq!(is_announced, holds(name, tier), "what is held is announced");
                for &block in known.blocks.iter().filter(|_| is_announced) {
                    blocks.entry(block).or_default()[place(tier)] += 1;
                }
            }
        }
        assert_eq!(blocks, self.blocks, "blocks are counted");
        assert!(self.events.is_empty(), "events were taken");
    }

    fn store(&mut self, name: BlockHash, tier: Tier) {
        // The tier held the unit at start, or another replica stored it: its tokens are unknown
        // here.
        let Some(known) = self.units.get_mut(&name) else {
            return;
        };
        let bit = 1 << place(tier);
        // A unit is shown at each return to the device, with tiers that are announced already.
        if known.announced & bit != 0 {
            return;
        }
        known.announced |= bit;
        // Others share a unit's front: what is new is its end.
        let mut shared = 0;
        for &block in &known.blocks {
            let count = &mut self.blocks.entry(block).or_default()[place(tier)];
            shared += usize::from(*count > 0);
            *count += 1;
        }
        if shared < known.blocks.len() {
            known.tell_stored(tier, shared, &mut self.events);
        }
    }

    fn remove(&mut self, name: BlockHash, tier: Tier) {
        let Some(known) = self.units.get_mut(&name) else {
            return;
        };
        let bit = 1 << place(tier);
        if known.announced & bit == 0 {
            return;
        }
        known.announced &= !bit;
        let mut gone = Vec::new();
        // From the end, so that no block is removed while one that follows it is still announced.
        for &block in known.blocks.iter().rev() {
            let counts = self.blocks.get_mut(&block).expect("it was counted");
            counts[place(tier)] -= 1;
            if counts[place(tier)] == 0 {
                gone.push(block);
            }
            if *counts == [0; LOWER_TIERS] {
                self.blocks.remove(&block);
            }
        }
        if !gone.is_empty() {
            self.tell_removed(tier, gone);
        }
    }

    fn forget_unless(&mut self, is_needed: bool, name: BlockHash) {
        let is_idle = |known: &KnownUnit| !known.is_on_device && known.announced == 0;
        if !is_needed && self.units.get(&name).is_some_and(is_idle) {
            self.units.remove(&name);
        }
    }

    fn tell_removed(&mut self, tier: Tier, gone: Vec<BlockHash>) {
        if let Some(CacheEvent::Removed { blocks, tier: last_tier, .. }) = self.events.last_mut()
            && *last_tier == tier
            && blocks.len() + gone.len() <= EVENT_BLOCKS_MAX
        {
            blocks.extend(gone);
            return;
        }
        self.events.push(CacheEvent::Removed { blocks: gone, tier, group: 0 });
    }
}

impl KnownUnit {
    /// Announces the blocks behind the first `shared`, in one event with those before them.
    fn tell_stored(&self, tier: Tier, shared: usize, events: &mut Vec<CacheEvent>) {
        let block_size = self.tokens.len() / self.blocks.len();
        let (before, blocks) = self.blocks.split_at(shared);
        let parent = before.last().copied().or(self.parent);
        let tokens = &self.tokens[shared * block_size..];
        if let Some(CacheEvent::Stored(last)) = events.last_mut()
            && (last.tier, last.blocks.last().copied()) == (tier, parent)
            && last.blocks.len() + blocks.len() <= EVENT_BLOCKS_MAX
        {
            last.blocks.extend(blocks);
            last.tokens.extend(tokens);
            return;
        }
        events.push(CacheEvent::Stored(StoredBlocks {
            blocks: blocks.to_vec(),
            tokens: tokens.to_vec(),
            ..super::empty(tier, parent, block_size, self.salt.clone())
        }));
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::{IdentityDigest, TenantTag};

    use super::*;

    fn name(id: u64) -> BlockHash {
        BlockHash::from_u64(id)
    }

    /// Shows units of two blocks of two tokens each, all behind block 9.
    fn show(tiers: &mut LowerTiers, blocks: [u64; 2], held: &[Tier]) {
        let names = blocks.map(name);
        let tokens = blocks.map(|block| [block as TokenId; 2]).concat();
        let shown = DeviceUnit {
            unit: Unit {
                name: names[1],
                parent: Some(name(9)),
                identity: IdentityDigest::default(),
                tenant: TenantTag::default(),
            },
            blocks: &names,
            tokens: &tokens,
            salt: None,
        };
        tiers.shown(&shown, held.iter().copied());
    }

    fn id(block: &BlockHash) -> u64 {
        u128::from_be_bytes(block.0) as u64
    }

    /// Stored or removed, the blocks, their parent, their tokens.
    type Told = (char, Vec<u64>, Option<u64>, Vec<TokenId>);

    /// Takes the events in short form: `+` or `-`, blocks, and where stored parent and tokens.
    fn told(tiers: &mut LowerTiers) -> Vec<Told> {
        let told = tiers.take_events().map(|event| match event {
            CacheEvent::Stored(stored) => {
                let blocks = stored.blocks.iter().map(id).collect();
                ('+', blocks, stored.parent.as_ref().map(id), stored.tokens)
            }
            CacheEvent::Removed { blocks, .. } => {
                ('-', blocks.iter().map(id).collect(), None, Vec::new())
            }
            CacheEvent::Cleared => panic!("nobody clears"),
        });
        told.collect()
    }

    fn stored(id: u64) -> Change {
        Change { tier: Tier::Disk, name: name(id), kind: ChangeKind::Stored }
    }

    fn removed(id: u64) -> Change {
        Change { tier: Tier::Disk, name: name(id), kind: ChangeKind::Removed }
    }

    #[test]
    fn blocks_that_units_share_come_with_the_first_and_go_with_the_last() {
        let mut tiers = LowerTiers::default();
        show(&mut tiers, [1, 2], &[Tier::Disk]);
        show(&mut tiers, [1, 3], &[]);
        tiers.changed(stored(3), true);
        assert_eq!(
            told(&mut tiers),
            [('+', vec![1, 2], Some(9), vec![1, 1, 2, 2]), ('+', vec![3], Some(1), vec![3, 3]),]
        );
        tiers.changed(removed(2), false);
        tiers.changed(removed(3), false);
        assert_eq!(told(&mut tiers), [('-', vec![2, 3, 1], None, vec![])]);
    }

    #[test]
    fn what_nobody_has_shown_is_not_announced_and_what_is_nowhere_is_forgotten() {
        let mut tiers = LowerTiers::default();
        tiers.changed(stored(2), true);
        tiers.changed(removed(2), false);
        assert_eq!(told(&mut tiers), []);
        show(&mut tiers, [1, 2], &[]);
        // It is being written when it leaves the device; the write fails.
        tiers.left_device(name(2), true);
        let lost = Change { kind: ChangeKind::NotStored, ..stored(2) };
        tiers.changed(lost, false);
        tiers.changed(stored(2), true);
        assert_eq!(told(&mut tiers), []);
        assert!(tiers.units.is_empty() && tiers.blocks.is_empty());
    }
}
