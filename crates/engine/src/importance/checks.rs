//! Prompts that are computed again in full, when nothing else is to be done, to see what loading
//! their prefix in part has changed.
//!
//! Their numbers are the engine's own, and what becomes of them is told nobody. What they compute
//! is exact, so it is committed and stored like all else.

use std::collections::VecDeque;

use headstart_cache::importance::{Guard, divergence};
use headstart_core::{BlockHash, Nanos, SeqId};
use headstart_scheduler::{NewSequence, Output, Scheduler, Submit};

/// Prompts that wait to be computed again; further ones are not.
const MOST: usize = 8;

/// Sequences from here on are checks: callers' numbers never come so far.
const FIRST_ID: u64 = u64::MAX - (1 << 32);

/// A prompt that was loaded in part.
struct Check {
    new: NewSequence,
    /// Its stored units from the first on.
    units: Vec<BlockHash>,
    /// What its first token was chosen by.
    logits: Vec<f32>,
}

/// Prompts that are computed again.
#[derive(Default)]
pub(super) struct Checks {
    waiting: VecDeque<Check>,
    running: Option<Check>,
    begun: u64,
}

impl Checks {
    /// Whether a prompt is a check.
    pub(super) fn is_one(seq: SeqId) -> bool {
        seq.0 >= FIRST_ID
    }

    /// Takes note of a prompt that has its first token, if the guard wants to know.
    pub(super) fn consider(
        &mut self,
        scheduler: &mut Scheduler,
        (seq, place): (SeqId, u64),
        logits: Vec<f32>,
    ) {
        let is_wanted = scheduler.guard_mut().is_some_and(Guard::samples);
        if !is_wanted || self.waiting.len() >= MOST {
            return;
        }
        let id = SeqId(FIRST_ID + self.begun % (1 << 32));
        self.begun += 1;
        if let Some((new, units)) = scheduler.in_full(seq, place, id) {
            self.waiting.push_back(Check { new, units, logits });
        }
    }

    /// Whether one waits or is computed.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_none()
    }

    /// Begins with the next one where nothing else is to be done. The sequence whose logits are
    /// wanted.
    pub(super) fn begin(&mut self, scheduler: &mut Scheduler, now: Nanos) -> Option<SeqId> {
        if self.running.is_some() || !scheduler.is_idle() {
            return None;
        }
        let check = self.waiting.pop_front()?;
        let id = check.new.id;
        // One that does not fit any more is left out.
        if scheduler.submit(check.new.clone(), now) != Submit::Queued {
            return None;
        }
        self.running = Some(check);
        Some(id)
    }

    /// Takes its own outputs out; `logits` are those of the check that has its token.
    pub(super) fn take(
        &mut self,
        outputs: &mut Vec<Output>,
        scheduler: &mut Scheduler,
        logits: impl FnOnce() -> Option<Vec<f32>>,
    ) {
        let is_done =
            |output: &Output| matches!(output, Output::Token { seq, .. } if Self::is_one(*seq));
        let has_token = outputs.iter().any(is_done);
        outputs.retain(|output| !Self::is_one(output.seq()));
        if !has_token {
            return;
        }
        if let (Some(check), Some(full), Some(guard)) =
            (self.running.take(), logits(), scheduler.guard_mut())
        {
            guard.compared(&check.units, divergence(&full, &check.logits));
        }
    }
}
