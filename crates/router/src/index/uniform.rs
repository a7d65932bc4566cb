//! The walk of [`super::walk`] for fleets whose replicas are all alike, which most are: what is
//! found goes into the answer at once, and nothing has to be looked up of a replica.

use headstart_core::{Nanos, ReplicaId};

use super::holder::{Holder, Reach};
use super::standing::Place;
use super::view::View;
use super::walk::{Piece, piece};
use super::{KeyChain, Overlap};

/// Fills answers that are longer than the last ones.
const NOTHING: Overlap = Overlap {
    replica: ReplicaId(0),
    device_tokens: 0,
    any_tier_tokens: 0,
    trusted_tokens: 0,
};

/// Answers one chain, by ascending replica, in place of what `found` has.
pub(super) fn walk(view: &View, chain: &KeyChain, now: Nanos, found: &mut Vec<Overlap>) {
    let Some(first) = piece(view, chain, 0, now) else {
        found.clear();
        return;
    };
    let mut goes_on = begin(view, chain.block_size, first, now, found);
    let mut depth = first.matched;
    while goes_on && let Some(piece) = piece(view, chain, depth, now) {
        goes_on = step(view, chain.block_size, piece, now, found);
        depth += piece.matched;
    }
}

/// Finds who holds the prompt's first run. Returns whether somebody holds all of it.
fn begin(view: &View, block_size: u32, piece: Piece, now: Nanos, found: &mut Vec<Overlap>) -> bool {
    let holders = view.run(piece.run).holders();
    let (mut most, mut are_plain) = (0, true);
    // Without a branch, and over the last answer: there may be thousands.
    found.resize(holders.len(), NOTHING);
    for (overlap, holder) in found.iter_mut().zip(holders) {
        are_plain &= holder.is_plain();
        let blocks = holder.lead().min(piece.matched);
        most = most.max(blocks);
        let tokens = blocks * block_size;
        *overlap = Overlap {
            replica: ReplicaId(holder.slot),
            device_tokens: tokens,
            any_tier_tokens: tokens,
            trusted_tokens: tokens,
        };
    }
    if !are_plain {
        most = most.max(add_others(holders, block_size, piece, now, found));
    }
    most == piece.matched
}

/// Adds those of whom more is to be said than a number. Returns how many blocks they reach.
#[cold]
fn add_others(
    holders: &[Holder],
    block_size: u32,
    piece: Piece,
    now: Nanos,
    found: &mut Vec<Overlap>,
) -> u32 {
    let mut most = 0;
    for (overlap, holder) in found.iter_mut().zip(holders) {
        if !holder.is_plain() {
            let reach = holder.reach(Place::USUAL.group, piece.matched, now);
            most = most.max(reach.any_tier);
            overlap.device_tokens = reach.device * block_size;
            overlap.any_tier_tokens = reach.any_tier * block_size;
            overlap.trusted_tokens = reach.trusted * block_size;
        }
    }
    found.retain(|overlap| overlap.any_tier_tokens > 0);
    most
}

/// Lets all go on who reach up to `piece`. Returns whether somebody reaches its end.
fn step(view: &View, block_size: u32, piece: Piece, now: Nanos, found: &mut [Overlap]) -> bool {
    let depth = piece.depth * block_size;
    let mut goes_on = false;
    // Holders and answers are both by ascending replica.
    let mut rest = found;
    for holder in view.run(piece.run).holders() {
        let before = rest.partition_point(|overlap| overlap.replica.0 < holder.slot);
        rest = &mut rest[before..];
        let Some(overlap) = rest.first_mut() else {
            break;
        };
        if overlap.replica.0 != holder.slot || overlap.any_tier_tokens != depth {
            continue;
        }
        let Reach {
            device,
            any_tier,
            trusted,
        } = holder.reach(Place::USUAL.group, piece.matched, now);
        if overlap.device_tokens == depth {
            overlap.device_tokens += device * block_size;
        }
        if overlap.trusted_tokens == depth {
            overlap.trusted_tokens += trusted * block_size;
        }
        overlap.any_tier_tokens += any_tier * block_size;
        goes_on |= any_tier == piece.matched;
    }
    goes_on
}
