//! The question: how much of a prompt each replica holds, all of them in one pass.
//!
//! The prompt's keys lead from run to run. On each, a replica whose prefix reaches up to it
//! continues with what it holds there; the walk ends at the first run that no replica reaches. So a
//! question costs one search per run and one step per holder, whatever the length of the prompt.
//!
//! Replicas that need more than leading blocks are asked by [`super::lookup_hybrid`].

use headstart_core::block::BlockShape;
use headstart_core::{Nanos, ReplicaId};

use super::holder::Reach;
use super::lookup_hybrid::MixedScratch;
use super::lookup_single_group;
use super::overlaps::{Lengths, Overlap, Overlaps};
use super::view::View;
use super::{KeyChain, PromptKeys};

/// Memory of a question, used again by the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// Replicas that hold the start of the prompt, by ascending slot.
    candidates: Vec<WalkCandidate>,
    mixed: MixedScratch,
}

/// Reach of one replica into the prompt, in blocks.
#[derive(Clone, Copy, Debug)]
struct WalkCandidate {
    slot: u32,
    replica: ReplicaId,
    reach: Reach,
}

/// A piece of the prompt that is a run's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptPiece {
    pub(super) run: u32,
    /// Keys of the prompt before it.
    pub(super) depth: u32,
    /// Keys of the run that are the prompt's.
    pub(super) matched: u32,
}

/// Answers `prompt` from `view`.
pub(super) fn overlaps(view: &View, prompt: &PromptKeys, now: Nanos, answer: &mut Overlaps) {
    // One shape in the usual group, as in most fleets: no profile is read per holder.
    if let Some(shape) = view.uniform_shape() {
        let mut chains = prompt.chains().iter();
        match chains.find(|chain| chain.shape == shape) {
            Some(chain) => lookup_single_group::walk(view, chain, now, &mut answer.lengths),
            None => answer.clear(),
        }
        return;
    }
    answer.clear();
    let Overlaps { lengths, scratch } = answer;
    for chain in prompt.chains() {
        walk(view, chain, now, &mut scratch.candidates);
        collect(chain.shape.size, &scratch.candidates, lengths);
    }
    if view.has_mixed() {
        scratch.mixed.ask(view, prompt, now, lengths);
    }
    // Chains and mixed replicas come one after the other, not by replica.
    lengths.sort();
}

/// The run that continues the prompt at `depth`.
pub(super) fn piece(view: &View, chain: &KeyChain, depth: u32, now: Nanos) -> Option<PromptPiece> {
    let keys = chain.keys.get(depth as usize..).filter(|keys| !keys.is_empty())?;
    let id = view.head(keys[0])?;
    let run = view.run(id);
    // Block sizes have keys of their own, so this is a collision.
    if run.block_size != chain.shape.size {
        return None;
    }
    run.touch(now);
    Some(PromptPiece { run: id, depth, matched: run.matched(keys) })
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
    let overlap = |&WalkCandidate { replica, reach, .. }: &WalkCandidate| Overlap {
        replica,
        device_tokens: reach.device * block_size,
        any_tier_tokens: reach.any_tier * block_size,
        trusted_tokens: reach.trusted * block_size,
    };
    candidates.iter().map(overlap).for_each(|overlap| found.push(overlap));
}
