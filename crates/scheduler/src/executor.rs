//! Who computes a batch.

use headstart_core::TokenId;
use headstart_core::transfer::DeviceBlocks;

use crate::Batch;

/// Computes keys and values of a batch's tokens into its blocks, and samples.
pub trait Executor {
    /// Computes `batch`. Returns one token per entry that asked for one, in order.
    fn execute(&mut self, batch: &Batch) -> Vec<TokenId>;

    /// The blocks that it computes into, as bytes; `None` where it keeps none.
    fn device(&mut self) -> Option<&mut dyn DeviceBlocks>;
}

/// Computes nothing: every sampled token repeats the entry's last. For tests and dry runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Executor for Echo {
    fn execute(&mut self, batch: &Batch) -> Vec<TokenId> {
        let sampled = batch
            .entries
            .iter()
            .filter(|entry| entry.sampling.is_some());
        sampled
            .map(|entry| *entry.tokens.last().expect("entries have tokens"))
            .collect()
    }

    fn device(&mut self) -> Option<&mut dyn DeviceBlocks> {
        None
    }
}
