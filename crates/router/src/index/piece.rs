//! The pieces of a prompt that runs begin with: the steps of every look-up.

use headstart_core::Nanos;

use super::KeyChain;
use super::view::View;

/// A piece of the prompt that is a run's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptPiece {
    pub(super) run: u32,
    /// Keys of the prompt before it.
    pub(super) depth: u32,
    /// Keys of the run that are the prompt's.
    pub(super) matched: u32,
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
