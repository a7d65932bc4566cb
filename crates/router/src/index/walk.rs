//! The look-up for replicas that need all leading blocks of one cache group, all of them in one
//! pass.
//!
//! The prompt's keys lead from run to run. On each, a replica whose prefix reaches up to it
//! continues with what it holds there; the walk ends at the first run that no replica reaches. So a
//! question costs one search per run and one step per holder, whatever the length of the prompt.

use headstart_core::block::BlockShape;
use headstart_core::{Nanos, ReplicaId};

use super::KeyChain;
use super::holder::Reach;
use super::lengths::Lengths;
use super::piece::{PromptPiece, piece};
use super::view::View;

/// Memory of a walk, used again by the next.
#[derive(Clone, Debug, Default)]
pub(super) struct WalkScratch {
    /// Replicas that hold the start of the prompt, by ascending slot.
    candidates: Vec<WalkCandidate>,
}

/// Reach of one replica into the prompt, in blocks.
#[derive(Clone, Copy, Debug)]
struct WalkCandidate {
    slot: u32,
    replica: ReplicaId,
    reach: Reach,
}

impl WalkScratch {
    /// Adds what the replicas with blocks of the chain's shape hold of it.
    pub(super) fn ask(&mut self, view: &View, chain: &KeyChain, now: Nanos, found: &mut Lengths) {
        walk(view, chain, now, &mut self.candidates);
        collect(chain.shape.size, &self.candidates, found);
    }
}

fn walk(view: &View, chain: &KeyChain, now: Nanos, candidates: &mut Vec<WalkCandidate>) {
    candidates.clear();
    let Some(first) = piece(view, chain, 0, now) else {
        return;
    };
    let mut goes_on = begin(view, chain.shape, first, now, candidates);
    let mut depth = first.matched;
    // A run that no replica holds to its end ends the walk: nothing after it is a prefix.
    while goes_on && let Some(piece) = piece(view, chain, depth, now) {
        goes_on = step(view, piece, now, candidates);
        depth += piece.matched;
    }
}

/// Finds the holders of the prompt's first run. Returns whether one of them holds all of it.
fn begin(
    view: &View,
    shape: BlockShape,
    piece: PromptPiece,
    now: Nanos,
    candidates: &mut Vec<WalkCandidate>,
) -> bool {
    let mut most = 0;
    let groups = view.groups();
    let holders = view.run(piece.run).holders();
    candidates.reserve(holders.len());
    for holder in holders.iter() {
        let plain = groups[holder.slot as usize];
        if plain.shape != shape {
            continue;
        }
        let reach = holder.reach(plain.group, piece.matched, now);
        if reach.any_tier > 0 {
            most = most.max(reach.any_tier);
            candidates.push(WalkCandidate { slot: holder.slot, replica: plain.id, reach });
        }
    }
    most == piece.matched
}

/// Extends the reach of the replicas that reach up to `piece`. Returns whether one reaches its end.
fn step(view: &View, piece: PromptPiece, now: Nanos, candidates: &mut [WalkCandidate]) -> bool {
    let mut goes_on = false;
    // Holders and candidates are both in the order of slots.
    let mut rest = candidates;
    for holder in view.run(piece.run).holders().iter() {
        let before = rest.partition_point(|candidate| candidate.slot < holder.slot);
        rest = &mut rest[before..];
        let Some(candidate) = rest.first_mut() else {
            break;
        };
        let reach = &mut candidate.reach;
        // A hole in an earlier run ended its prefix.
        if candidate.slot != holder.slot || reach.any_tier != piece.depth {
            continue;
        }
        let group = view.groups()[holder.slot as usize].group;
        let here = holder.reach(group, piece.matched, now);
        if reach.device == piece.depth {
            reach.device += here.device;
        }
        if reach.trusted == piece.depth {
            reach.trusted += here.trusted;
        }
        reach.any_tier += here.any_tier;
        goes_on |= here.any_tier == piece.matched;
    }
    goes_on
}

/// Moves what was found into the answer.
fn collect(block_size: u32, candidates: &[WalkCandidate], found: &mut Lengths) {
    let overlap = |known: &WalkCandidate| known.reach.overlap(known.replica, block_size);
    candidates.iter().map(overlap).for_each(|overlap| found.push(overlap));
}
