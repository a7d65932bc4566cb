//! The replica in a slot, as far as overlaps depend on it: its id, and what its prefixes need.

use std::sync::Arc;

use headstart_core::ReplicaId;
use headstart_core::block::BlockShape;
use headstart_core::event::Attention;

use super::standing::BlockPlace;

/// Properties of a replica that overlaps depend on.
#[derive(Clone, Debug)]
pub(super) struct SlotProfile {
    /// `None` for a free slot.
    pub(super) id: Option<ReplicaId>,
    pub(super) needs: Needs,
}

/// Conditions that a prefix must satisfy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Needs {
    /// Nothing is known yet, so nothing is held.
    #[default]
    Unknown,
    /// One group, all of whose blocks are needed.
    Plain { group: u8, shape: BlockShape },
    /// Anything else.
    Mixed(Arc<[Need]>),
}

/// The cache group of a replica with [`Needs::Plain`]; without a block size for all others.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlainGroup {
    pub(super) id: ReplicaId,
    pub(super) shape: BlockShape,
    pub(super) group: u8,
}

/// Condition of one cache group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) group: u8,
    pub(super) attention: Attention,
    pub(super) shape: BlockShape,
}

/// The replica id of a free slot. No replica has it, since slots end far below.
pub(super) const NOBODY: ReplicaId = ReplicaId(u32::MAX);

impl PlainGroup {
    pub(super) fn of(profile: &SlotProfile) -> Self {
        let (group, shape) = match profile.needs {
            Needs::Plain { group, shape } => (group, shape),
            Needs::Unknown | Needs::Mixed(_) => (0, BlockShape::default()),
        };
        Self { id: profile.id.unwrap_or(NOBODY), shape, group }
    }

    /// Whether more is to be known of the replica than its block size: it does not have one group,
    /// of the usual number and kind, in the slot of its own number.
    pub(super) fn is_odd(&self, slot: usize) -> bool {
        let is_usual = self.shape.size > 0 && self.group == BlockPlace::USUAL.group;
        !is_usual || self.id.0 as usize != slot
    }
}
