//! Prompts whose stored prefix is loaded in part, beside the engine's steps.

use std::sync::Arc;

use headstart_cache::Tiers;
use headstart_core::Nanos;
use headstart_scheduler::Output;
use headstart_selective::Guard;

use super::{Computer, Engine, hasher};
use crate::importance::{ImportanceConfig, ImportanceLoader, ImportanceReport};

impl Engine {
    /// The same, which loads stored prefixes in part: to be called behind [`Self::with_tiers`],
    /// whose units must have the parts that the probes want
    /// ([`Probes::part_bytes`](crate::kv::Probes::part_bytes)).
    ///
    /// # Panics
    /// When there are no lower tiers, or nothing here is computed.
    #[must_use]
    pub fn with_importance(mut self, importance: ImportanceConfig) -> Self {
        let unit_tokens = self.tiers().map(Tiers::unit_tokens);
        let unit_tokens = unit_tokens.expect("what is loaded in part is in a lower tier");
        let probes = importance.probes.clone();
        self.executor = match self.executor {
            Computer::Cpu(executor) => Computer::Cpu(Box::new(executor.with_probes(&probes))),
            Computer::Other(_) => panic!("who computes nothing needs no importance"),
        };
        let guard = Guard::new(importance.guard);
        let config = &self.config;
        let importance = ImportanceLoader::new(
            importance,
            &self.model.config,
            config.kv_dtype,
            config.block_size,
            unit_tokens,
        );
        // The layout is part of a block's identity, so the hasher changes with it.
        let layout = Some(importance.layout());
        let hasher = hasher(&self.model, &self.name, config, layout, None);
        self.hasher = Arc::new(hasher);
        self.scheduler = self.scheduler.with_partly(importance.when(), guard);
        self.importance = Some(importance);
        self
    }

    /// Cost and savings of partial loading, if it is enabled.
    #[must_use]
    pub fn importance(&self) -> Option<ImportanceReport> {
        let guard = self.scheduler.guard().map(Guard::counts).unwrap_or_default();
        let importance = self.importance.as_ref();
        importance.map(|importance| importance.report(guard))
    }

    pub(super) fn begin_check(&mut self, now: Nanos) {
        if let (Some(importance), Computer::Cpu(executor)) =
            (&mut self.importance, &mut self.executor)
            && let Some(seq) = importance.checks.begin(&mut self.scheduler, now)
        {
            executor.watch(seq);
        }
    }

    pub(super) fn take_outputs(&mut self) -> Vec<Output> {
        let mut outputs = self.scheduler.take_outputs();
        if let (Some(importance), Computer::Cpu(executor)) =
            (&mut self.importance, &mut self.executor)
        {
            let logits = || executor.take_watched();
            importance.checks.take(&mut outputs, &mut self.scheduler, logits);
        }
        outputs
    }

    /// Computes what can be computed of prompts whose prefix is loaded in part, until one of them
    /// has its first token. Whether that was anything. After all else of a step: what is to be
    /// stored was read by then, and their blocks may be overwritten.
    pub(super) fn advance_partly(&mut self, now: Nanos) -> bool {
        let mut has_computed = false;
        loop {
            let (Some(importance), Computer::Cpu(executor), Some(mover)) =
                (&mut self.importance, &mut self.executor, &mut self.mover)
            else {
                return false;
            };
            let advance = importance.advance(&mut self.scheduler, executor, &**mover, now);
            has_computed |= advance.has_computed;
            // Without progress or a new transfer, another round would find the same.
            if !self.tend_partly(now) && !advance.has_computed || advance.has_ended {
                return has_computed;
            }
            // Parts in memory may be available at once.
            self.take_moved(now);
            self.hand_over();
        }
    }

    /// Releases the parts of unwanted prompts, continues packing and submits the queued transfers;
    /// computes nothing. Returns whether there were any.
    pub(super) fn tend_partly(&mut self, now: Nanos) -> bool {
        let (Some(importance), Some(mover)) = (&mut self.importance, &mut self.mover) else {
            return false;
        };
        importance.tend(&self.scheduler, now);
        let transfers = importance.take_transfers();
        let is_any = !transfers.is_empty();
        let transfers = transfers.into_iter();
        transfers.for_each(|transfer| mover.submit(transfer));
        is_any
    }
}
