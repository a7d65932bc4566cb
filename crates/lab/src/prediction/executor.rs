//! Executor that spends the time of a [`CostModel`] instead of computing.

use std::time::Duration;

use headstart_core::{CostModel, TokenId};
use headstart_scheduler::{Batch, Copies, Executor};
use headstart_sim::cost::step;
use headstart_sim::tokens;

/// Computes nothing, takes the time that the model says, and answers with made-up tokens.
#[derive(Clone, Debug)]
pub(crate) struct VirtualExecutor {
    cost: CostModel,
    step: Duration,
}

impl VirtualExecutor {
    /// An executor whose steps cost what `cost` says.
    #[must_use]
    pub(crate) fn new(cost: CostModel) -> Self {
        Self { cost, step: Duration::ZERO }
    }

    /// Returns the duration of the last batch.
    #[must_use]
    pub(crate) fn last_step(&self) -> Duration {
        self.step
    }
}

impl Executor for VirtualExecutor {
    fn execute(&mut self, batch: &Batch, _: Option<Copies<'_>>) -> Vec<TokenId> {
        self.step = step(&self.cost, batch);
        // Only entries that end a prompt, or decode, give a token.
        let sampled = batch.entries.iter().filter(|entry| entry.sampling.is_some());
        sampled
            .map(|entry| tokens::of_sequence(entry.seq, entry.start + entry.tokens.len()))
            .collect()
    }

    fn copy(&mut self, _: Copies<'_>) {}
}
