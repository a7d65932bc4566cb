//! Computation of batches.

use headstart_core::TokenId;

use crate::{Batch, Copies};

/// Computes keys and values of a batch's tokens into its blocks, and samples.
pub trait Executor {
    /// Computes `batch`. Returns one token per entry that asked for one, in order. Each part of its
    /// blocks is copied as `copies` say before anything is computed in it; who keeps no bytes
    /// copies nothing.
    fn execute(&mut self, batch: &Batch, copies: Option<Copies<'_>>) -> Vec<TokenId>;

    /// Copies where nothing is computed.
    fn copy(&mut self, copies: Copies<'_>);
}

/// Computes nothing: every sampled token repeats the entry's last. For tests and dry runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Executor for Echo {
    fn execute(&mut self, batch: &Batch, _: Option<Copies<'_>>) -> Vec<TokenId> {
        let sampled = batch.entries.iter().filter(|entry| entry.sampling.is_some());
        sampled.map(|entry| *entry.tokens.last().expect("entries have tokens")).collect()
    }

    fn copy(&mut self, _: Copies<'_>) {}
}
