//! Bytes on the move: what is asked of whoever moves them, and what they say.
//!
//! A *unit* is what lower tiers store: consecutive blocks of one chain, named by the last of them.
//! Who decides (`headstart-cache`) and who moves (`headstart-store`, or a simulated mover) do not
//! see each other; both speak in these types.
//!
//! ```text
//!   device ──Store──► lower tiers        Load ──► at hand ──► device blocks ──► Release
//!                     tier ──Demote──► tier below         └──Keep──► tier above
//! ```
//!
//! A tier can also be read part by part ([`Transfer::LoadPart`]), and hold *packs*: copies of one
//! part of many units with the tokens in another order, so that those that are wanted together are
//! read together.

use std::time::Duration;

use crate::{BlockHash, BlockId, IdentityDigest, TenantTag, Tier};

/// Names a transfer; given by whoever decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub u64);

/// Consecutive blocks of one chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name: that of its last block, which covers all before.
    pub name: BlockHash,
    /// The unit before it; `None` at the start of a prompt.
    pub parent: Option<BlockHash>,
    /// How it was computed.
    pub identity: IdentityDigest,
    /// Whose it is.
    pub tenant: TenantTag,
}

/// One part of a stored record: of a unit, or of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartName {
    /// The record.
    pub record: BlockHash,
    /// Which of its parts.
    pub part: u16,
}

/// One part of consecutive units, their tokens in another order. A record of its own: part 0 says
/// what it is ([`FoundPack`]), part 1 + c holds tokens `order[c * unit_tokens..]`, laid out as
/// `part` of a unit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Its name.
    pub name: BlockHash,
    /// The units, in order: a run of one chain.
    pub units: Vec<BlockHash>,
    /// How they were computed.
    pub identity: IdentityDigest,
    /// Whose they are.
    pub tenant: TenantTag,
    /// Which part of each.
    pub part: u16,
    /// The tokens that it holds, counted from the first unit's first, in its order.
    pub order: Vec<u32>,
    /// One more than that of the newest pack that whoever made it had heard of: of two packs the
    /// newer one stays.
    pub generation: u32,
}

impl Pack {
    /// The name of a pack: of what it holds, in its order, and of its generation.
    #[must_use]
    pub fn name_of(
        units: &[BlockHash],
        part: u16,
        (order, generation): (&[u32], u32),
    ) -> BlockHash {
        let mut hasher = blake3::Hasher::new_derive_key("headstart 2026 Pack v2");
        hasher.update(&part.to_le_bytes());
        hasher.update(&generation.to_le_bytes());
        hasher.update(&(units.len() as u64).to_le_bytes());
        units.iter().for_each(|unit| {
            hasher.update(&unit.0);
        });
        order.iter().for_each(|token| {
            hasher.update(&token.to_le_bytes());
        });
        let mut name = [0; 16];
        hasher.finalize_xof().fill(&mut name);
        BlockHash(name)
    }
}

/// A pack that is in a tier already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPack {
    /// Its name.
    pub name: BlockHash,
    /// Its units, in order.
    pub units: Vec<BlockHash>,
    /// Which part of each.
    pub part: u16,
    /// The tokens that it holds, in its order.
    pub order: Vec<u32>,
    /// Of two the one with more is newer.
    pub generation: u32,
}

/// Something to move or to drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Copies a unit from the device's blocks to tiers. Each part of a block stays as it is only
    /// until the engine's next step comes to that part. Each tier is answered by a
    /// [`Moved::Stored`].
    Store {
        /// Its id.
        id: TransferId,
        /// What.
        unit: Unit,
        /// Where it is on the device, in order.
        blocks: Vec<BlockId>,
        /// Where to.
        to: Vec<Tier>,
    },
    /// Copies a unit from a tier to one below. Answered by a [`Moved::Stored`].
    Demote {
        /// Its id.
        id: TransferId,
        /// What.
        name: BlockHash,
        /// Where from; it may be forgotten there at once.
        from: Tier,
        /// Where to.
        to: Tier,
    },
    /// Brings a unit to hand, from where the engine copies it into its blocks. Answered by a
    /// [`Moved::Loaded`].
    Load {
        /// Its id.
        id: TransferId,
        /// What.
        name: BlockHash,
        /// Where from.
        from: Tier,
    },
    /// Brings one part of a record to hand, where it stays until [`Transfer::ReleaseParts`].
    /// Answered by a [`Moved::PartLoaded`].
    LoadPart {
        /// Its id.
        id: TransferId,
        /// What.
        name: PartName,
        /// Where from.
        from: Tier,
    },
    /// Parts at hand are needed there no more; those that are not there are ignored.
    ReleaseParts {
        /// What.
        names: Vec<PartName>,
    },
    /// Writes a pack of units of a tier to the same tier, in the background: whoever loads goes
    /// first. Answered by a [`Moved::Packed`]. Dropped by [`Transfer::Forget`].
    Pack {
        /// Its id.
        id: TransferId,
        /// What.
        pack: Pack,
        /// Where.
        tier: Tier,
    },
    /// A unit at hand stays in this tier as well, which is memory.
    Keep {
        /// What.
        name: BlockHash,
        /// Where.
        tier: Tier,
    },
    /// A unit at hand is needed there no more.
    Release {
        /// What.
        name: BlockHash,
    },
    /// The ends of the prompts that were used last, the latest last: to be told again after a
    /// restart ([`Moved::Noted`]).
    Note {
        /// The last stored unit of each.
        tails: Vec<BlockHash>,
    },
    /// Units are wanted no more in a tier.
    Forget {
        /// Where.
        tier: Tier,
        /// What.
        names: Vec<BlockHash>,
    },
}

/// What became of transfers, and what happened otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// A unit can be read from a tier, also after a crash if the tier outlives one; or not.
    Stored {
        /// The transfer.
        id: TransferId,
        /// The tier.
        tier: Tier,
        /// Whether it is there.
        result: TransferResult,
    },
    /// A unit is at hand, verified; or it is not there any more, or was damaged.
    Loaded {
        /// The transfer.
        id: TransferId,
        /// Whether it is at hand.
        result: TransferResult,
        /// How long ago that was: whoever computes looks between steps only, and a tier is not as
        /// slow as steps are.
        ago: Duration,
    },
    /// A part is at hand, verified; or it is not there any more, or was damaged.
    PartLoaded {
        /// The transfer.
        id: TransferId,
        /// Whether it is at hand.
        result: TransferResult,
        /// How long ago that was.
        ago: Duration,
        /// How long before that its tier was asked for it: when room for it was free, which is
        /// later than when it was handed over. Tiers are asked for several at once, so that these
        /// spans overlap: their sum is not how long the tier was busy. Zero where it was at hand
        /// already, or did not come.
        took: Duration,
    },
    /// A pack can be read from its tier, also after a crash; or it could not be made.
    Packed {
        /// The transfer.
        id: TransferId,
        /// Whether it is there.
        result: TransferResult,
    },
    /// Packs were found in a tier.
    FoundPacks {
        /// Where.
        tier: Tier,
        /// What.
        packs: Vec<FoundPack>,
    },
    /// Units, or packs, cannot be read from a tier any more, though nobody dropped them.
    Lost {
        /// Where.
        tier: Tier,
        /// What.
        names: Vec<BlockHash>,
    },
    /// Units were found in a tier, those in front of others first.
    Found {
        /// Where.
        tier: Tier,
        /// What.
        units: Vec<FoundUnit>,
    },
    /// What was noted last before a restart ([`Transfer::Note`]).
    Noted {
        /// The last stored unit of each prompt, the latest last.
        tails: Vec<BlockHash>,
    },
}

/// A unit that is in a tier already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundUnit {
    /// Its name.
    pub name: BlockHash,
    /// The unit before it; `None` at the start of a prompt, or where that is not known.
    pub parent: Option<BlockHash>,
    /// Whose it is.
    pub tenant: TenantTag,
}

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferResult {
    /// As it should.
    Done,
    /// It did not; nothing was changed at its destination.
    Failed,
}

/// Moves units between tiers. Nothing waits: transfers are handed over, and looked for later.
///
/// Bytes go to and from the device part by part, when whoever computes says so: before anything is
/// changed in a part, [`Self::read`]; after the last part, [`Self::end_reads`], also where nothing
/// was to be stored.
pub trait BlockMover: Send {
    /// Hands over a transfer.
    fn submit(&mut self, transfer: Transfer);

    /// Reads a part of all blocks that are to be stored, as handed over since the last
    /// [`Self::end_reads`]. To be called once for each part of the device.
    fn read(&mut self, part: usize, device: &dyn DevicePart);

    /// All parts that the device has were read: what is to be stored goes its way.
    fn end_reads(&mut self);

    /// Adds what has happened since the last call.
    fn poll(&mut self, moved: &mut Vec<Moved>);

    /// The bytes of a part of a unit at hand: what [`DevicePart::read`] gave, block by block.
    fn part(&self, name: BlockHash, part: usize) -> Option<&[u8]>;

    /// The bytes of a part that was brought to hand by itself ([`Transfer::LoadPart`]).
    fn loaded_part(&self, name: PartName) -> Option<&[u8]>;
}

/// How the tokens of a unit lie in a part: for whoever lays them in another order and knows no more
/// of them.
pub trait TokenFormat: Send + Sync {
    /// Copies token `at` of `from` to the place of token `to_at` of `to`; both are parts of a unit.
    fn copy_token(&self, from: &[u8], at: usize, to: &mut [u8], to_at: usize);
}

/// One part (a layer) of all of a device's blocks, as bytes: each block has as many.
pub trait DevicePart {
    /// Bytes of a block.
    fn block_bytes(&self) -> usize;

    /// Copies a block to `bytes`, which are as long.
    fn read(&self, block: BlockId, bytes: &mut [u8]);

    /// Copies `bytes` to a block, which is as long.
    fn write(&mut self, block: BlockId, bytes: &[u8]);
}
