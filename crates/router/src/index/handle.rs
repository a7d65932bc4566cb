//! One block hash of an engine, and the queues in which those stand that count for nothing yet, or
//! no more.

use std::collections::BTreeMap;

use headstart_core::{BlockHash, RouteKey, TokenId};

use super::tiers::TierSet;

/// What is known of one block. The default is a block never heard of.
#[derive(Debug, Default)]
pub(super) struct Handle {
    pub(super) name: Name,
    pub(super) tiers: TierSet,
    pub(super) seat: Seat,
}

/// What the block stands for.
#[derive(Debug, Default)]
pub(super) enum Name {
    Placed(RouteKey),
    Waiting {
        parent: BlockHash,
        tokens: Box<[TokenId]>,
    },
    #[default]
    Nameless,
}

/// In which queue a handle stands, with its ticket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Seat {
    #[default]
    Unqueued,
    Held(u64),
    Departed(u64),
}

impl Handle {
    pub(super) fn placed(&self) -> Option<(RouteKey, TierSet)> {
        match self.name {
            Name::Placed(key) => Some((key, self.tiers)),
            Name::Waiting { .. } | Name::Nameless => None,
        }
    }

    pub(super) fn is_resident(&self) -> bool {
        self.placed().is_some() && !self.tiers.is_empty()
    }

    pub(super) fn is_departed(&self) -> bool {
        self.placed().is_some() && self.tiers.is_empty()
    }

    /// A nameless block in no tier is nothing at all.
    pub(super) fn is_held(&self) -> bool {
        match self.name {
            Name::Placed(_) => false,
            Name::Waiting { .. } => true,
            Name::Nameless => !self.tiers.is_empty(),
        }
    }
}

/// First come, first dropped; leaving from the middle is cheap.
#[derive(Debug, Default)]
pub(super) struct Queue(BTreeMap<u64, BlockHash>);

impl Queue {
    /// Puts `block` at the end. Returns its ticket.
    pub(super) fn push(&mut self, block: BlockHash) -> u64 {
        let ticket = self.0.last_key_value().map_or(0, |(last, _)| last + 1);
        self.0.insert(ticket, block);
        ticket
    }

    pub(super) fn has(&self, ticket: u64, block: BlockHash) -> bool {
        self.0.get(&ticket) == Some(&block)
    }

    pub(super) fn leave(&mut self, ticket: u64) {
        self.0.remove(&ticket);
    }

    pub(super) fn oldest(&self) -> BlockHash {
        *self.0.values().next().expect("a full queue is not empty")
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
