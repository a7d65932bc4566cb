//! The walk of [`super::walk`] for fleets whose replicas are all alike, which most are: what is
//! found goes into the answer at once, and nothing has to be looked up of a replica.

use headstart_core::{Nanos, ReplicaId};

use super::KeyChain;
use super::holders::Share;
use super::lengths::{Lengths, OverlapLength};
use super::piece::{PromptPiece, piece};
use super::standing::BlockPlace;
use super::view::View;

/// Answers one chain, by ascending replica, in place of what `found` has.
pub(super) fn walk(view: &View, chain: &KeyChain, now: Nanos, found: &mut Lengths) {
    let Some(first) = piece(view, chain, 0, now) else {
        found.clear();
        return;
    };
    let mut goes_on = begin(view, chain.shape.size, first, now, found);
    let mut depth = first.matched;
    while goes_on && let Some(piece) = piece(view, chain, depth, now) {
        goes_on = step(view, chain.shape.size, piece, now, found);
        depth += piece.matched;
    }
}

/// Finds the holders of the prompt's first run. Returns whether one of them holds all of it.
fn begin(
    view: &View,
    block_size: u32,
    piece: PromptPiece,
    now: Nanos,
    found: &mut Lengths,
) -> bool {
    let holders = view.run(piece.run).holders();
    found.uneven.clear();
    fill(&mut found.all, holders.shares(), piece.matched, block_size);
    let mut leads = holders.shares().iter();
    // A share without a lead never counts here; the others are added below.
    let goes_on = leads.any(|share| share.lead >= piece.matched);
    if holders.has_others() {
        add_others(view, block_size, piece, now, found) | goes_on
    } else {
        goes_on
    }
}

/// Says of all what a number says. Over the last answer and without a branch, so that several are
/// done at once: there may be thousands.
fn fill(lengths: &mut Vec<OverlapLength>, shares: &[Share], matched: u32, block_size: u32) {
    lengths.resize(shares.len(), OverlapLength::default());
    for (length, share) in lengths.iter_mut().zip(shares) {
        // Slots are replica numbers here: `View::uniform_shape` asks for that.
        *length =
            OverlapLength { replica: share.slot, tokens: share.lead.min(matched) * block_size };
    }
}

/// Adds those of whom more is to be said than a number. Returns whether one of them holds all of
/// the piece.
#[cold]
fn add_others(
    view: &View,
    block_size: u32,
    piece: PromptPiece,
    now: Nanos,
    found: &mut Lengths,
) -> bool {
    let (mut goes_on, mut is_left_out) = (false, false);
    let mut at = 0;
    for holder in view.run(piece.run).holders().others() {
        at += found.all[at..].partition_point(|length| length.replica < holder.slot);
        let reach = holder.reach(BlockPlace::USUAL.group, piece.matched, now);
        goes_on |= reach.any_tier == piece.matched;
        is_left_out |= reach.any_tier == 0;
        // `fill` has put each holder in, so `at` is this one's place.
        found.set(at, reach.overlap(ReplicaId(holder.slot), block_size));
    }
    // Its assumption or its doubts are over, so it holds nothing now.
    if is_left_out {
        found.all.retain(|length| length.tokens > 0);
    }
    goes_on
}

/// Extends the overlap of the replicas that reach up to `piece`. Returns whether one reaches its
/// end.
fn step(view: &View, block_size: u32, piece: PromptPiece, now: Nanos, found: &mut Lengths) -> bool {
    let depth = piece.depth * block_size;
    let holders = view.run(piece.run).holders();
    let mut goes_on = false;
    // Holders and answers are both by ascending replica.
    let mut at = 0;
    for share in holders.shares() {
        at += found.all[at..].partition_point(|length| length.replica < share.slot);
        let Some(&length) = found.all.get(at) else {
            break;
        };
        if length.replica != share.slot || length.tokens != depth {
            continue;
        }
        // An even answer plus a plain lead stays even: one addition instead of three lengths.
        let blocks = if share.lead > 0 && found.is_even(length) {
            let blocks = share.lead.min(piece.matched);
            found.all[at].tokens += blocks * block_size;
            blocks
        } else {
            go_on(view, block_size, piece, now, LengthEntry { lengths: found, at })
        };
        goes_on |= blocks == piece.matched;
    }
    goes_on
}

/// One of the lengths.
struct LengthEntry<'a> {
    lengths: &'a mut Lengths,
    at: usize,
}

/// Lets the one of `entry` go on. Returns by how many blocks.
#[cold]
fn go_on(
    view: &View,
    block_size: u32,
    piece: PromptPiece,
    now: Nanos,
    entry: LengthEntry<'_>,
) -> u32 {
    let LengthEntry { lengths: found, at } = entry;
    let depth = piece.depth * block_size;
    let length = found.all[at];
    let Some(holder) = view.run(piece.run).holders().get(length.replica) else {
        return 0;
    };
    let reach = holder.reach(BlockPlace::USUAL.group, piece.matched, now);
    let mut overlap = found.overlap(length);
    if overlap.device_tokens == depth {
        overlap.device_tokens += reach.device * block_size;
    }
    if overlap.trusted_tokens == depth {
        overlap.trusted_tokens += reach.trusted * block_size;
    }
    overlap.any_tier_tokens += reach.any_tier * block_size;
    found.set(at, overlap);
    reach.any_tier
}
