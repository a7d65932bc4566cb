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
    /// Units cannot be read from a tier any more, though nobody dropped them.
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
