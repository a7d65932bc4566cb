//! The question: how much of a prompt each replica holds.
//!
//! Fleets whose replicas are all alike are asked by [`super::lookup_single_group`]. In others
//! [`super::walk`] asks the replicas that need leading blocks of one group, shape by shape, and
//! [`super::lookup_hybrid`] those that need something else.

use headstart_core::Nanos;

use super::PromptKeys;
use super::lookup_single_group;
use super::overlaps::Overlaps;
use super::view::View;

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
        scratch.walk.ask(view, chain, now, lengths);
    }
    if view.has_mixed() {
        scratch.mixed.ask(view, prompt, now, lengths);
    }
    // Chains and mixed replicas come one after the other, not by replica.
    lengths.sort();
}
