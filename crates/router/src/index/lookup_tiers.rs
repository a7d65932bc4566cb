//! The question for one replica: how much of a prompt each of its tiers holds.
//!
//! It is asked of the chosen replica only, and only where its device does not hold all of the
//! overlap. So it may cost more than the look-ups of all replicas, which know no tiers apart from
//! the device.

use headstart_core::{Nanos, ReplicaId};

use super::lookup_hybrid::{find_path, longest};
use super::piece::piece;
use super::slot_profile::{Need, Needs};
use super::tier_tokens::{ByTier, TIERS, TierTokens};
use super::view::View;
use super::{KeyChain, PromptKeys};

/// Answers `prompt` for `replica` from `view`.
pub(super) fn tier_tokens(
    view: &View,
    prompt: &PromptKeys,
    replica: ReplicaId,
    now: Nanos,
) -> TierTokens {
    let Some(slot) = slot_of(view, replica) else {
        return TierTokens::default();
    };
    let within = match &view.replicas()[slot as usize].needs {
        Needs::Unknown => ByTier::default(),
        Needs::Plain { group, shape } => {
            let mut chains = prompt.chains().iter();
            let chain = chains.find(|chain| chain.shape == *shape);
            let blocks = chain.map(|chain| leading(view, chain, slot, *group, now));
            blocks.unwrap_or_default().map(|blocks| blocks * shape.size)
        }
        Needs::Mixed(needs) => {
            let rows: Vec<_> =
                needs.iter().map(|need| rows(view, prompt, slot, need, now)).collect();
            std::array::from_fn(|tier| {
                longest(prompt.num_tokens(), needs, &rows, |row: &ByTier| row[tier]) as u32
            })
        }
    };
    TierTokens::new(within)
}

fn slot_of(view: &View, replica: ReplicaId) -> Option<u32> {
    let replicas = view.replicas();
    let usual = replica.0 as usize;
    // Most replicas are in the slot of their own number.
    if replicas.get(usual).is_some_and(|profile| profile.id == Some(replica)) {
        return Some(replica.0);
    }
    let slot = replicas.iter().position(|profile| profile.id == Some(replica))?;
    Some(slot as u32)
}

/// Leading blocks of a replica that needs all of them, of one group.
fn leading(view: &View, chain: &KeyChain, slot: u32, group: u8, now: Nanos) -> ByTier {
    let mut blocks = ByTier::default();
    let mut depth = 0;
    while let Some(piece) = piece(view, chain, depth, now)
        && let Some(holder) = view.run(piece.run).holder(slot)
    {
        let here = holder.reach_by_tier(group, piece.matched, now);
        for (blocks, here) in blocks.iter_mut().zip(here) {
            // A hole in an earlier run ended the prefix within this tier.
            if *blocks == depth {
                *blocks += here;
            }
        }
        depth += piece.matched;
        // The last tier counts all others, so no prefix continues where this one ends.
        if blocks[TIERS.len() - 1] != depth {
            break;
        }
    }
    blocks
}

/// Per block of the prompt: how many blocks up to it, and with it, `need` can use without a hole.
fn rows(view: &View, prompt: &PromptKeys, slot: u32, need: &Need, now: Nanos) -> Vec<ByTier> {
    let mut chains = prompt.chains().iter();
    // Without keys of its shape the need accepts no block.
    let Some(chain) = chains.find(|chain| chain.shape == need.shape) else {
        return Vec::new();
    };
    let mut path = Vec::new();
    find_path(view, chain, now, &mut path);
    let mut rows = vec![ByTier::default(); chain.keys.len()];
    for piece in path {
        let Some(holder) = view.run(piece.run).holder(slot) else {
            continue;
        };
        for offset in 0..piece.matched {
            let block = (piece.depth + offset) as usize;
            rows[block] = holder.usable_by_tier(need.group, offset, now);
        }
    }
    let mut before = ByTier::default();
    for row in &mut rows {
        for (here, before) in row.iter_mut().zip(before) {
            // A 0 breaks the row: the product then drops all that came before.
            *here += *here * before;
        }
        before = *row;
    }
    rows
}
