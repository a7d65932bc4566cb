//! Bytes on the move: transfers that a cache asks for, and the reports of the mover.
//!
//! A *unit* is what lower tiers store: consecutive blocks of one chain, named by the last of them.
//! Who decides (`headstart-cache`) and who moves (`headstart-store`, or a simulated mover) do not
//! see each other; both speak in these types.
//!
//! ```text
//!   device ──Store──► lower tiers        Load ──► loaded  ──► device blocks ──► Release
//!                     tier ──Demote──► tier below         └──Keep──► tier above
//! ```
//!
//! A tier can also be read part by part ([`Transfer::LoadPart`]), and hold *packs*: copies of one
//! part of many units with the tokens in another order, so that those that are wanted together are
//! read together.

use std::time::Duration;

use crate::{BlockHash, BlockId, IdentityDigest, TenantTag, Tier};

/// Id of a transfer, assigned by the deciding side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub u64);

/// Consecutive blocks of one chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name: that of its last block, which covers all before.
    pub name: BlockHash,
    /// The unit before it; `None` at the start of a prompt.
    pub parent: Option<BlockHash>,
    /// Identity that it was computed with.
    pub identity: IdentityDigest,
    /// The tenant that owns it.
    pub tenant: TenantTag,
}

/// One part of a stored record: of a unit, or of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartName {
    /// The record.
    pub record: BlockHash,
    /// Index of the part in the record.
    pub part: u16,
}

/// One part of consecutive units, their tokens in another order. A record of its own: part 0 says
/// which pack it is, part 1 + c holds tokens `order[c * unit_tokens..]`, laid out as `part` of a
/// unit is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Its name.
    pub name: BlockHash,
    /// The units, in order: a run of one chain.
    pub units: Vec<BlockHash>,
    /// Index of the part of each unit.
    pub part: u16,
    /// The tokens that it holds, counted from the first unit's first, in its order.
    pub order: Vec<u32>,
    /// One more than that of the newest pack that its maker knew: of two packs the newer one stays.
    pub generation: u32,
}

impl Pack {
    /// A pack, with the name that follows from the rest.
    #[must_use]
    pub fn new(units: Vec<BlockHash>, part: u16, order: Vec<u32>, generation: u32) -> Self {
        let name = Self::name_of(&units, part, &order, generation);
        Self { name, units, part, order, generation }
    }

    /// The name of a pack: of what it holds, in its order, and of its generation.
    #[must_use]
    pub fn name_of(units: &[BlockHash], part: u16, order: &[u32], generation: u32) -> BlockHash {
        let mut hasher = blake3::Hasher::new_derive_key("headstart 2026 Pack v2");
        hasher.update(&part.to_le_bytes());
        hasher.update(&generation.to_le_bytes());
        // The count separates the units from the order.
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

/// Something to move or to drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Copies a unit from the device's blocks to tiers. Each part of a block stays as it is only
    /// until the engine's next step comes to that part. Each tier is answered by a
    /// [`TransferReport::Stored`].
    Store {
        /// Its id.
        id: TransferId,
        /// The unit to copy.
        unit: Unit,
        /// Its blocks on the device, in order.
        blocks: Vec<BlockId>,
        /// Destination tiers.
        to: Vec<Tier>,
    },
    /// Copies a unit from a tier to one below. Answered by a [`TransferReport::Stored`].
    Demote {
        /// Its id.
        id: TransferId,
        /// Name of the unit.
        name: BlockHash,
        /// Source tier, which may drop the unit at once.
        from: Tier,
        /// Destination tier.
        to: Tier,
    },
    /// Loads a unit, to be copied into blocks by the engine. Answered by a
    /// [`TransferReport::Loaded`].
    Load {
        /// Its id.
        id: TransferId,
        /// Name of the unit.
        name: BlockHash,
        /// Source tier.
        from: Tier,
    },
    /// Loads one part of a record, which stays loaded until [`Transfer::ReleaseParts`]. Answered by
    /// a [`TransferReport::PartLoaded`].
    LoadPart {
        /// Its id.
        id: TransferId,
        /// Name of the part.
        name: PartName,
        /// Source tier.
        from: Tier,
    },
    /// Loaded parts are needed no more; parts that are not loaded are ignored.
    ReleaseParts {
        /// Names of the parts.
        names: Vec<PartName>,
    },
    /// Writes a pack of units of a tier to the same tier, in the background: loads go first.
    /// Answered by a [`TransferReport::Packed`]. Dropped by [`Transfer::Forget`].
    Pack {
        /// Its id.
        id: TransferId,
        /// The pack to write.
        pack: Pack,
        /// Identity that its units were computed with, and the tenant that owns them.
        origin: (IdentityDigest, TenantTag),
        /// Tier of the units and of the pack.
        tier: Tier,
    },
    /// A loaded unit stays in this tier as well, which is memory.
    Keep {
        /// Name of the unit.
        name: BlockHash,
        /// Tier that keeps it.
        tier: Tier,
    },
    /// A loaded unit is needed no more.
    Release {
        /// Name of the unit.
        name: BlockHash,
    },
    /// The ends of the prompts that were used last, the latest last: to be told again after a
    /// restart ([`TransferReport::Noted`]).
    Note {
        /// The last stored unit of each.
        tails: Vec<BlockHash>,
    },
    /// Units are wanted no more in a tier.
    Forget {
        /// Tier that drops them.
        tier: Tier,
        /// Names of the units.
        names: Vec<BlockHash>,
    },
}

/// Results of transfers, and other reports from tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferReport {
    /// A unit can be read from a tier, also after a crash if the tier outlives one; or not.
    Stored {
        /// The transfer.
        id: TransferId,
        /// The tier.
        tier: Tier,
        /// Whether it is there.
        result: TransferResult,
    },
    /// A unit is loaded and verified; or it is not there any more, or was damaged.
    Loaded {
        /// The transfer.
        id: TransferId,
        /// Whether it is loaded.
        result: TransferResult,
        /// Time since it arrived. The engine looks only between steps; that delay is not
        /// part of the tier's latency.
        ago: Duration,
    },
    /// A part is loaded and verified; or it is not there any more, or was damaged.
    PartLoaded {
        /// The transfer.
        id: TransferId,
        /// Whether it is loaded.
        result: TransferResult,
        /// Time since it arrived.
        ago: Duration,
        /// Time from the request to the tier until the arrival. The request starts when there is
        /// room for the part, which is later than the hand-over. Requests overlap, so the sum is
        /// not the tier's busy time. Zero where the part was loaded already, or did not come.
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
        /// Tier that holds them.
        tier: Tier,
        /// The packs.
        packs: Vec<Pack>,
    },
    /// Units, or packs, cannot be read from a tier any more, though the cache did not drop them.
    Lost {
        /// Tier that lost them.
        tier: Tier,
        /// Names of the units or packs.
        names: Vec<BlockHash>,
    },
    /// Units were found in a tier, those in front of others first.
    Found {
        /// Tier that holds them.
        tier: Tier,
        /// The units.
        units: Vec<FoundUnit>,
    },
    /// Content of the last note before a restart ([`Transfer::Note`]).
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
    /// The tenant that owns it.
    pub tenant: TenantTag,
}

/// Outcome of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferResult {
    /// As it should.
    Done,
    /// It did not; nothing was changed at its destination.
    Failed,
}

/// Moves units between tiers. Nothing waits: transfers are handed over, and looked for later.
///
/// Bytes go to and from the device part by part, as the engine computes. Before it changes a part,
/// it calls [`Self::read`]; after the last part, [`Self::end_reads`], even if nothing was to be
/// stored.
pub trait BlockMover: Send {
    /// Hands over a transfer.
    fn submit(&mut self, transfer: Transfer);

    /// Reads a part of all blocks that are to be stored, as handed over since the last
    /// [`Self::end_reads`]. To be called once for each part of the device.
    fn read(&mut self, part: usize, device: &dyn DevicePart);

    /// All parts that the device has were read: what is to be stored goes its way.
    fn end_reads(&mut self);

    /// Adds what has happened since the last call.
    fn poll(&mut self, moved: &mut Vec<TransferReport>);

    /// The bytes of a part of a loaded unit, as [`DevicePart::read`] gave them, block by block.
    fn part(&self, name: BlockHash, part: usize) -> Option<&[u8]>;

    /// The bytes of a part that was loaded by itself ([`Transfer::LoadPart`]).
    fn loaded_part(&self, name: PartName) -> Option<&[u8]>;
}

/// Layout of a unit's tokens in a part, for code that reorders tokens without other knowledge.
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
