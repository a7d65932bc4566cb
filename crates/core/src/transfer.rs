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
    /// Copies a unit from the device's blocks, which stay as they are only until the engine's next
    /// step, to tiers. Each tier is answered by a [`Moved::Stored`].
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
pub trait BlockMover: Send {
    /// Hands over a transfer. What it reads from `device` is read before this returns.
    fn submit(&mut self, transfer: Transfer, device: &dyn DeviceBlocks);

    /// Adds what has happened since the last call.
    fn poll(&mut self, moved: &mut Vec<Moved>);

    /// The bytes of a part of a unit at hand: what [`DeviceBlocks::read`] gave, block by block.
    fn part(&self, name: BlockHash, part: usize) -> Option<&[u8]>;
}

/// The device's blocks as bytes: each has the same parts (its layers), each part the same length.
pub trait DeviceBlocks {
    /// How many parts a block has.
    fn num_parts(&self) -> usize;

    /// Bytes of a part of a block.
    fn part_bytes(&self, part: usize) -> usize;

    /// Copies a part of a block to `bytes`, which is as long.
    fn read(&self, block: BlockId, part: usize, bytes: &mut [u8]);

    /// Copies `bytes` to a part of a block, which is as long.
    fn write(&mut self, block: BlockId, part: usize, bytes: &[u8]);
}

/// A device that keeps nothing: zeros of the right length, where nothing is computed.
#[derive(Clone, Debug, Default)]
pub struct BlankDevice {
    /// Bytes of each part of a block.
    pub part_bytes: Vec<usize>,
}

impl DeviceBlocks for BlankDevice {
    fn num_parts(&self) -> usize {
        self.part_bytes.len()
    }

    fn part_bytes(&self, part: usize) -> usize {
        self.part_bytes[part]
    }

    fn read(&self, _: BlockId, _: usize, bytes: &mut [u8]) {
        bytes.fill(0);
    }

    fn write(&mut self, _: BlockId, _: usize, _: &[u8]) {}
}
