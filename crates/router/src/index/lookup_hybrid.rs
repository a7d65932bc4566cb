//! The same question for replicas with several cache groups, or with one that needs less than the
//! whole prefix.
//!
//! A group can continue after N blocks if the last ones of them are present; its attention says how
//! many. All groups together can continue after the longest prefix that each accepts, found by
//! letting them cut it in turn. A group may not need the prompt's start, so the walk does not end
//! at the first key that no replica has: it tries every place of the prompt.

use headstart_core::event::Attention;
use headstart_core::{Nanos, ReplicaId};

use super::holder::Reach;
use super::lengths::{Lengths, Overlap};
use super::piece::{PromptPiece, piece};
use super::slot_profile::{Need, Needs};
use super::view::View;
use super::{KeyChain, PromptKeys};

/// Memory of a question.
#[derive(Clone, Debug, Default)]
pub(super) struct MixedScratch {
    /// The prompt's pieces, chain by chain.
    paths: Vec<Vec<PromptPiece>>,
    /// Per need and block: how many blocks up to it, and with it, are usable without a hole.
    usable: Vec<Vec<Reach>>,
}

impl MixedScratch {
    pub(super) fn ask(
        &mut self,
        view: &View,
        prompt: &PromptKeys,
        now: Nanos,
        found: &mut Lengths,
    ) {
        // Never shorter, so that the inner vectors keep their memory.
        self.paths.resize(self.paths.len().max(prompt.chains().len()), Vec::new());
        for (path, chain) in self.paths.iter_mut().zip(prompt.chains()) {
            find_path(view, chain, now, path);
        }
        for (slot, profile) in view.replicas().iter().enumerate() {
            if let (Some(id), Needs::Mixed(needs)) = (profile.id, &profile.needs) {
                self.find_usable(view, prompt, slot as u32, needs, now);
                let overlap = self.overlap(prompt, id, needs);
                if overlap.any_tier_tokens > 0 {
                    found.push(overlap);
                }
            }
        }
    }

    fn find_usable(
        &mut self,
        view: &View,
        prompt: &PromptKeys,
        slot: u32,
        needs: &[Need],
        now: Nanos,
    ) {
        self.usable.resize(self.usable.len().max(needs.len()), Vec::new());
        for (usable, need) in self.usable.iter_mut().zip(needs) {
            let is_meant = |chain: &KeyChain| chain.shape == need.shape;
            usable.clear();
            // Without keys of its shape the need accepts no block.
            let Some(at) = prompt.chains().iter().position(is_meant) else {
                continue;
            };
            usable.resize(prompt.chains()[at].keys.len(), Reach::default());
            for piece in &self.paths[at] {
                let Some(holder) = view.run(piece.run).holder(slot) else {
                    continue;
                };
                for offset in 0..piece.matched {
                    let block = (piece.depth + offset) as usize;
                    usable[block] = holder.usable(need.group, offset, now);
                }
            }
            add_up(usable);
        }
    }

    fn overlap(&self, prompt: &PromptKeys, replica: ReplicaId, needs: &[Need]) -> Overlap {
        let tokens = |level: fn(&Reach) -> u32| {
            longest(prompt.num_tokens(), needs, &self.usable, level) as u32
        };
        Overlap {
            replica,
            device_tokens: tokens(|usable| usable.device),
            any_tier_tokens: tokens(|usable| usable.any_tier),
            trusted_tokens: tokens(|usable| usable.trusted),
        }
    }
}

/// Tokens of the longest prefix that all groups can go on behind. `usable` has a list for each
/// need; `level` reads an entry of it.
pub(super) fn longest<T>(
    num_tokens: usize,
    needs: &[Need],
    usable: &[Vec<T>],
    level: impl Fn(&T) -> u32,
) -> usize {
    // Each group may only shorten the prefix, so the loop ends.
    let mut tokens = num_tokens;
    loop {
        let before = tokens;
        for (need, usable) in needs.iter().zip(usable) {
            let size = need.shape.size as usize;
            let most = (tokens / size).min(usable.len());
            let can_go_on = |&blocks: &usize| {
                let last = blocks.checked_sub(1).map_or(0, |last| level(&usable[last]));
                last as usize >= needed(need, blocks)
            };
            tokens = (0..=most).rev().find(can_go_on).unwrap_or(0) * size;
        }
        if tokens == before {
            return tokens;
        }
    }
}

/// Returns the number of last blocks that a group needs to continue behind `blocks` blocks.
fn needed(need: &Need, blocks: usize) -> usize {
    match need.attention {
        Attention::Full => blocks,
        Attention::State => blocks.min(1),
        Attention::Window { tokens } => {
            // The window includes the next token, which is not part of the prefix.
            let before = tokens.saturating_sub(1) as usize;
            blocks.min(before.div_ceil(need.shape.size as usize))
        }
    }
}

/// The pieces of all of the prompt, also of those behind a hole.
pub(super) fn find_path(view: &View, chain: &KeyChain, now: Nanos, path: &mut Vec<PromptPiece>) {
    path.clear();
    let mut depth = 0;
    while (depth as usize) < chain.keys.len() {
        match piece(view, chain, depth, now) {
            Some(piece) => {
                depth += piece.matched;
                path.push(piece);
            }
            // A window may follow blocks that no replica has, so the path continues after a
            // hole.
            None => depth += 1,
        }
    }
}

/// From 1 and 0 to the length of the row of ones that ends there.
fn add_up(usable: &mut [Reach]) {
    let mut before = Reach::default();
    for here in usable {
        // A 0 breaks the row: the product then drops all that came before.
        here.device += here.device * before.device;
        here.any_tier += here.any_tier * before.any_tier;
        here.trusted += here.trusted * before.trusted;
        before = *here;
    }
}
