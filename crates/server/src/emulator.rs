//! An engine that computes nothing and takes the time that a cost model says: a fleet on a laptop,
//! with the real scheduler, cache, events and API.
//!
//! A step sleeps for what it would take, less what deciding it took. The tokens of an answer are
//! words that follow from the prompt's last token and the position: the same again for the same
//! request, and never a stop token.

use std::time::{Duration, Instant};

use headstart_core::cost::Work;
use headstart_core::{EngineModel, TokenId};
use headstart_engine::{Batch, Copies, Entry, Executor};

/// Takes time in place of computing.
#[derive(Debug)]
pub(crate) struct Emulator {
    engine: EngineModel,
    /// Tokens that answers are made of.
    alphabet: Vec<TokenId>,
    /// When the step before ended.
    ended: Instant,
}

impl Emulator {
    /// One whose steps cost what `engine` says, and whose answers consist of `alphabet`, which has
    /// at least one token.
    #[must_use]
    pub(crate) fn new(engine: EngineModel, alphabet: Vec<TokenId>) -> Self {
        assert!(!alphabet.is_empty(), "answers consist of something");
        Self { engine, alphabet, ended: Instant::now() }
    }

    fn step(&self, batch: &Batch) -> Duration {
        let mut work = Work::default();
        batch.add_work(&mut work, &self.engine.cost);
        Duration::from_secs_f64(self.engine.cost.step_s(work))
    }

    fn token(&self, entry: &Entry) -> TokenId {
        let last = entry.tokens.last().copied().unwrap_or(0) as usize;
        let position = entry.start + entry.tokens.len();
        // Any walk through the alphabet that depends on both will do.
        self.alphabet[(last.wrapping_mul(31) + position.wrapping_mul(17)) % self.alphabet.len()]
    }
}

impl Executor for Emulator {
    fn execute(&mut self, batch: &Batch, _: Option<Copies<'_>>) -> Vec<TokenId> {
        let began = Instant::now();
        // What scheduling took since the last step is part of this one, unless nothing was asked.
        let step = self.step(batch);
        let since = began.duration_since(self.ended).min(step);
        let ends = if since < SCHEDULING { self.ended + step } else { began + step };
        std::thread::sleep(ends.saturating_duration_since(Instant::now()));
        self.ended = Instant::now();
        let sampled = batch.entries.iter().filter(|entry| entry.sampling.is_some());
        sampled.map(|entry| self.token(entry)).collect()
    }

    fn copy(&mut self, _: Copies<'_>) {}
}

/// Longest pause between two steps that counts as scheduling and not as having had nothing to do.
const SCHEDULING: Duration = Duration::from_millis(5);
