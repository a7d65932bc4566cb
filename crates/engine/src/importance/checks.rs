//! Checks of partial loading: prompts recomputed in full while the engine is idle, to measure how
//! the output changed.
//!
//! Checks have ids of the engine's own, and their outputs are reported to no caller. Their
//! computation is exact, so their blocks are committed and stored like all others.

use std::collections::VecDeque;

use headstart_core::{BlockHash, Nanos, SeqId};
use headstart_scheduler::{FullComputation, Output, Scheduler, Submit};
use headstart_selective::{Guard, Verdict, divergence};

/// Most prompts waiting for a check; further ones are skipped.
const MOST: usize = 8;

/// Sequences from here on are checks: callers' numbers never come so far.
const FIRST_ID: u64 = u64::MAX - (1 << 32);

/// A prompt that was loaded in part.
struct Check {
    full: FullComputation,
    /// Logits of its first token.
    logits: Vec<f32>,
}

/// Queue of checks, with the running one.
#[derive(Default)]
pub(crate) struct Checks {
    waiting: VecDeque<Check>,
    running: Option<Check>,
    begun: u64,
    /// Prefixes that were barred.
    pub(super) barred: BarredPrefixes,
}

/// Prefixes that were barred: a guard forgets some again, so it cannot be counted there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BarredPrefixes {
    /// Number of barred prefixes so far.
    pub prefixes: u64,
    /// The unit that the last of them ends with.
    pub last: Option<BlockHash>,
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
        seq: SeqId,
        place: u64,
        logits: Vec<f32>,
    ) {
        let is_wanted = scheduler.guard_mut().is_some_and(Guard::samples);
        if !is_wanted || self.waiting.len() >= MOST {
            return;
        }
        // Wraps after 2^32 checks, when the ids that it meets again have long ended.
        let id = SeqId(FIRST_ID + self.begun % (1 << 32));
        self.begun += 1;
        if let Some(full) = scheduler.in_full(seq, place, id) {
            self.waiting.push_back(Check { full, logits });
        }
    }

    /// Whether one waits or is computed.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_none()
    }

    /// Begins with the next one where nothing else is to be done. The sequence whose logits are
    /// wanted.
    pub(crate) fn begin(&mut self, scheduler: &mut Scheduler, now: Nanos) -> Option<SeqId> {
        // A check begins only while no request waits or runs, because it must not delay one.
        if self.running.is_some() || !scheduler.is_idle() {
            return None;
        }
        let check = self.waiting.pop_front()?;
        let FullComputation { new, hasher, .. } = check.full.clone();
        let id = new.id;
        // One that does not fit any more is left out.
        if scheduler.submit(new, hasher, now) != Submit::Queued {
            return None;
        }
        self.running = Some(check);
        Some(id)
    }

    /// Takes its own outputs out; `logits` are those of the check that has its token.
    pub(crate) fn take(
        &mut self,
        outputs: &mut Vec<Output>,
        scheduler: &mut Scheduler,
        logits: impl FnOnce() -> Option<Vec<f32>>,
    ) {
        let is_done =
            |output: &Output| matches!(output, Output::Token { seq, .. } if Self::is_one(*seq));
        // The search precedes the removal of the check's outputs.
        let has_token = outputs.iter().any(is_done);
        outputs.retain(|output| !Self::is_one(output.seq()));
        if !has_token {
            return;
        }
        // All three are evaluated, so the check has ended even if something is missing.
        if let (Some(check), Some(full), Some(guard)) =
            (self.running.take(), logits(), scheduler.guard_mut())
        {
            self.judge(&check, &full, guard);
        }
    }

    /// Both ways of computing a prompt are compared. Others that were under way when its prefix was
    /// barred bar it no second time; but they may bar what is in front of it.
    fn judge(&mut self, check: &Check, full: &[f32], guard: &mut Guard) {
        let front = &check.full.units[..check.full.units.len().min(1)];
        // The guard is asked before the comparison, which may bar these prefixes.
        let was_allowed = [front, &check.full.units].map(|units| guard.allows(units));
        let verdict = guard.compared(&check.full.units, divergence(full, &check.logits));
        let Verdict::FullFromNowOn { unit } = verdict else {
            return;
        };
        let [front_was_allowed, all_was_allowed] = was_allowed;
        let is_news = if front.contains(&unit) { front_was_allowed } else { all_was_allowed };
        if is_news {
            self.barred.prefixes += 1;
            self.barred.last = Some(unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use headstart_core::{BlockHasher, BlockIdentity};
    use headstart_scheduler::Submission;
    use headstart_selective::GuardOptions;

    fn check_of(units: &[u64], logits: [f32; 2]) -> Check {
        let identity = BlockIdentity {
            model: "checks",
            weights_revision: "1",
            kv_dtype: "f32",
            kv_layout: "blocks",
            adapter: None,
            salt: None,
            block_size: 16,
        };
        let full = FullComputation {
            new: Submission::greedy(SeqId(FIRST_ID), vec![1], 1),
            hasher: Arc::new(BlockHasher::new(&identity)),
            units: units.iter().map(|unit| BlockHash::from_u64(*unit)).collect(),
        };
        Check { full, logits: logits.to_vec() }
    }

    /// A guard that remembers one prefix counts one barred, however many were.
    #[test]
    fn each_prefix_that_is_barred_is_told_once() {
        let options = GuardOptions { most_prefixes: 1, ..GuardOptions::default() };
        let (mut guard, mut checks) = (Guard::new(options), Checks::default());
        let full = [4.0, 0.0];
        for (units, logits, barred, last) in [
            (&[1, 2], full, 0, None),
            (&[1, 2], [4.0, 3.9], 1, Some(2)),
            // It was under way already.
            (&[1, 2], [4.0, 3.9], 1, Some(2)),
            (&[7, 8], [4.0, 3.9], 2, Some(8)),
        ] {
            checks.judge(&check_of(units, logits), &full, &mut guard);
            let expected = BarredPrefixes { prefixes: barred, last: last.map(BlockHash::from_u64) };
            assert_eq!(checks.barred, expected);
        }
        assert_eq!(guard.counts().barred, 1);
    }

    /// All prompts behind the first unit: more than what was told of its tail.
    #[test]
    fn what_is_barred_in_front_of_a_barred_prefix_is_told_as_well() {
        let (mut guard, mut checks) = (Guard::new(GuardOptions::default()), Checks::default());
        for (units, barred, last) in [
            (&[1, 2][..], 1, 2),
            (&[1, 2], 1, 2),
            // The third of them that disagrees; further ones bar nothing more.
            (&[1, 2], 2, 1),
            (&[1, 2], 2, 1),
            (&[1, 3], 2, 1),
            // First and last at once.
            (&[7], 3, 7),
            (&[7], 3, 7),
            (&[7], 3, 7),
        ] {
            checks.judge(&check_of(units, [0.0, 4.0]), &[4.0, 0.0], &mut guard);
            let last = Some(BlockHash::from_u64(last));
            let expected = BarredPrefixes { prefixes: barred, last };
            assert_eq!(checks.barred, expected, "{units:?}");
        }
    }
}
