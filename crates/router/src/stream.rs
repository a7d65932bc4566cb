//! Order and completeness of one event stream: one replica, one data-parallel rank.
//!
//! An engine numbers its batches 0, 1, 2, … for as long as its process lives and offers a bounded
//! buffer of old ones on request. [`StreamState`] looks at sequence numbers only and says what to
//! do with each batch; whoever owns the sockets keeps the payloads.
//!
//! ```text
//!              resume                            live batch from the future
//!    ┌───────────────────────────┐          ┌───────────────────────────────┐
//!    ▼                           │          │                               ▼
//! Resuming ── replay ended ──▶ Following ◀──┼── replay ended or failed ── Filling
//!    (anything new since the     ▲          │      (next .. until is missing)
//!     last batch we applied?)    │          │
//!                                └── regress: Restart, from any state
//! ```
//!
//! Worked example, with batches 0–4 applied and 5–6 lost on the way:
//!
//! ```text
//! on_batch(7)         Gap { from: 5, missing: 2 }   hold 7, ask for a replay from 5
//! on_batch(8)         Hold                          8 waits behind the replay
//! on_replay_batch(6)  ApplyAfterLoss { lost: 1 }    the publisher's buffer no longer has 5
//! on_replay_batch(7)  Duplicate                     7 is held
//! on_replay_end()     Continue { lost: 0 }
//! on_held(7), (8)     Apply, Apply
//! ```
//!
//! Invariant: batches are applied in strictly growing order within one life of the publisher, and
//! each number below the next expected one was either applied or reported lost.
//!
//! A publisher's socket neither repeats nor re-orders, so a live number below an earlier live one
//! means that the process behind it is another one. Taking a harmless repeat for a restart would
//! cost one replay; taking a restart for a repeat would leave a wrong index: the rule errs on
//! the cheap side. Numbers that a replay already brought are mere duplicates.
//!
//! It does not know payloads. Two lives that reach the same number look alike to it; whoever
//! holds the bytes compares them and calls [`StreamState::restart`]. That is why
//! [`StreamState::resume`] asks for the last applied batch once more.
//!
//! Source: vLLM's publisher (sequence per process, replay socket without an error for evicted
//! starts). Difference from its known consumers: a truncated replay is accepted, not retried.

/// What to do with a batch that arrived live or waited behind a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is the next one: apply it.
    Apply,
    /// Already applied or reported lost: drop it.
    Duplicate,
    /// Batches before it are missing: hold it and ask for a replay.
    Gap {
        /// The first missing batch.
        from: u64,
        /// How many are missing before the batch at hand.
        missing: u64,
    },
    /// A replay runs: hold it, offer it to [`StreamState::on_held`] afterwards.
    Hold,
    /// The publisher started anew: forget all that the replica held, drop held batches and the
    /// running replay, then offer the same batch again.
    Restart,
}

/// What to do with a batch that a replay brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed {
    /// It is the next one: apply it.
    Apply,
    /// Apply it, knowing that batches before it are gone from the publisher's buffer.
    ApplyAfterLoss {
        /// How many are gone.
        lost: u64,
    },
    /// Already applied, or held because it also came live: drop it.
    Duplicate,
}

/// What a completed replay means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayEnd {
    /// Go on: offer the held batches to [`StreamState::on_held`].
    Continue {
        /// Batches that were asked for and did not come.
        lost: u64,
    },
    /// The publisher no longer has the last batch that it sent us, so it is another process:
    /// forget all that the replica held, drop held batches, resume.
    Restart,
}

/// Position in one stream. Starts before batch 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamState {
    /// The first batch neither applied nor given up.
    next: u64,
    /// The latest live batch.
    live: Option<u64>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Following,
    /// A replay was asked for because `next..until` is missing; `until` is held.
    Filling { until: u64 },
    /// A replay was asked for because a connection is new or doubted.
    Resuming {
        /// The publisher still has (or is beyond) the last applied batch.
        confirmed: bool,
        /// The first held batch.
        held_from: Option<u64>,
    },
}

impl StreamState {
    /// A connection was made, or is in doubt: starts a replay. Returns the batch to ask for, the
    /// last applied one (0 at first contact). Batches held so far are forgotten.
    pub fn resume(&mut self) -> u64 {
        self.phase = Phase::Resuming {
            confirmed: false,
            held_from: None,
        };
        self.next.saturating_sub(1)
    }

    /// Places a batch that arrived live.
    pub fn on_batch(&mut self, seq: u64) -> Step {
        if self.live.is_some_and(|live| seq < live) {
            self.restart();
            return Step::Restart;
        }
        self.live = Some(seq);
        if seq < self.next {
            return Step::Duplicate;
        }
        match &mut self.phase {
            Phase::Following => self.place(seq),
            Phase::Filling { .. } => Step::Hold,
            Phase::Resuming { held_from, .. } => {
                held_from.get_or_insert(seq);
                Step::Hold
            }
        }
    }

    /// Places a batch that waited behind a replay. After [`Step::Gap`] it and those behind it
    /// wait again. Never returns [`Step::Hold`] or [`Step::Restart`].
    ///
    /// # Panics
    /// While a replay runs.
    pub fn on_held(&mut self, seq: u64) -> Step {
        assert!(!self.is_replaying(), "held batches wait for the replay");
        self.place(seq)
    }

    /// Places a batch that the replay brought. A replay may start later than asked for.
    pub fn on_replay_batch(&mut self, seq: u64) -> Replayed {
        let held_from = match &mut self.phase {
            Phase::Following => return Replayed::Duplicate,
            Phase::Filling { until } => Some(*until),
            Phase::Resuming {
                confirmed,
                held_from,
            } => {
                *confirmed |= seq.saturating_add(1) >= self.next;
                *held_from
            }
        };
        if seq < self.next || held_from.is_some_and(|held| seq >= held) {
            return Replayed::Duplicate;
        }
        let lost = seq - self.next;
        self.next = seq.saturating_add(1);
        match lost {
            0 => Replayed::Apply,
            lost => Replayed::ApplyAfterLoss { lost },
        }
    }

    /// The replay is complete.
    pub fn on_replay_end(&mut self) -> ReplayEnd {
        match self.phase {
            Phase::Resuming {
                confirmed: false, ..
            } if self.next > 0 => {
                self.restart();
                ReplayEnd::Restart
            }
            _ => ReplayEnd::Continue {
                lost: self.on_replay_failed(),
            },
        }
    }

    /// There is no replay, or it broke off. Returns how many batches are lost; held batches are
    /// due now, as after [`ReplayEnd::Continue`].
    pub fn on_replay_failed(&mut self) -> u64 {
        match std::mem::take(&mut self.phase) {
            Phase::Following | Phase::Resuming { .. } => 0,
            Phase::Filling { until } => {
                let lost = until.saturating_sub(self.next);
                self.next = self.next.max(until);
                lost
            }
        }
    }

    /// Forgets everything: the publisher is known to be another process.
    pub fn restart(&mut self) {
        *self = Self::default();
    }

    /// Whether a replay is wanted and has not ended.
    #[must_use]
    pub fn is_replaying(&self) -> bool {
        self.phase != Phase::Following
    }

    fn place(&mut self, seq: u64) -> Step {
        let from = self.next;
        match seq.cmp(&from) {
            std::cmp::Ordering::Less => Step::Duplicate,
            std::cmp::Ordering::Equal => {
                self.next = seq.saturating_add(1);
                Step::Apply
            }
            std::cmp::Ordering::Greater => {
                self.phase = Phase::Filling { until: seq };
                Step::Gap {
                    from,
                    missing: seq - from,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Out::{Asked, Ended, FromReplay, Lost, Stepped};

    #[derive(Clone, Copy, Debug)]
    enum In {
        Resume,
        Live(u64),
        Held(u64),
        Replay(u64),
        End,
        Fail,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Out {
        Asked(u64),
        Stepped(Step),
        FromReplay(Replayed),
        Ended(ReplayEnd),
        Lost(u64),
    }

    const APPLY: Out = Stepped(Step::Apply);
    const REPEATED: Out = Stepped(Step::Duplicate);
    const HOLD: Out = Stepped(Step::Hold);
    const RESTART: Out = Stepped(Step::Restart);
    const REPLAYED: Out = FromReplay(Replayed::Apply);
    const KNOWN: Out = FromReplay(Replayed::Duplicate);
    const COMPLETE: Out = Ended(ReplayEnd::Continue { lost: 0 });

    fn gap(from: u64, missing: u64) -> Out {
        Stepped(Step::Gap { from, missing })
    }

    fn truncated(lost: u64) -> Out {
        FromReplay(Replayed::ApplyAfterLoss { lost })
    }

    /// Runs a script on a fresh stream that first applies `0..applied` live.
    fn check(applied: u64, script: &[(In, Out)]) {
        let mut state = StreamState::default();
        for seq in 0..applied {
            assert_eq!(state.on_batch(seq), Step::Apply);
        }
        for (index, &(input, expected)) in script.iter().enumerate() {
            let output = match input {
                In::Resume => Asked(state.resume()),
                In::Live(seq) => Stepped(state.on_batch(seq)),
                In::Held(seq) => Stepped(state.on_held(seq)),
                In::Replay(seq) => FromReplay(state.on_replay_batch(seq)),
                In::End => Ended(state.on_replay_end()),
                In::Fail => Lost(state.on_replay_failed()),
            };
            assert_eq!(output, expected, "line {index} of {script:?}");
        }
    }

    #[test]
    fn batches_in_order_are_applied_and_repeats_dropped() {
        let line = [(In::Live(3), APPLY), (In::Live(3), REPEATED)];
        check(3, &line);
        check(3, &[(In::Live(2), REPEATED), (In::Live(3), APPLY)]);
    }

    #[test]
    fn a_gap_at_the_start_asks_for_everything() {
        check(
            0,
            &[
                (In::Live(2), gap(0, 2)),
                (In::Live(3), HOLD),
                (In::Replay(0), REPLAYED),
                (In::Replay(1), REPLAYED),
                (In::Replay(2), KNOWN),
                (In::End, COMPLETE),
                (In::Held(2), APPLY),
                (In::Held(3), APPLY),
                (In::Live(4), APPLY),
            ],
        );
    }

    #[test]
    fn a_truncated_replay_is_accepted_and_its_loss_counted() {
        check(
            2,
            &[
                (In::Live(9), gap(2, 7)),
                (In::Replay(6), truncated(4)),
                (In::Replay(7), REPLAYED),
                (In::End, Ended(ReplayEnd::Continue { lost: 1 })),
                (In::Held(9), APPLY),
                (In::Replay(8), KNOWN),
            ],
        );
    }

    #[test]
    fn a_failed_replay_gives_up_what_it_was_to_bring() {
        check(
            1,
            &[
                (In::Live(4), gap(1, 3)),
                (In::Replay(1), REPLAYED),
                (In::Fail, Lost(2)),
                (In::Held(4), APPLY),
            ],
        );
        check(
            0,
            &[
                (In::Resume, Asked(0)),
                (In::Fail, Lost(0)),
                (In::Live(0), APPLY),
            ],
        );
    }

    #[test]
    fn holes_among_held_batches_are_filled_by_another_replay() {
        check(
            1,
            &[
                (In::Live(3), gap(1, 2)),
                (In::Live(6), HOLD),
                (In::Replay(1), REPLAYED),
                (In::Replay(2), REPLAYED),
                (In::End, COMPLETE),
                (In::Held(3), APPLY),
                (In::Held(6), gap(4, 2)),
                (In::Replay(4), REPLAYED),
                (In::Replay(5), REPLAYED),
                (In::End, COMPLETE),
                (In::Held(6), APPLY),
            ],
        );
    }

    #[test]
    fn a_restart_ends_a_running_replay() {
        check(
            5,
            &[
                (In::Live(8), gap(5, 3)),
                (In::Replay(5), REPLAYED),
                (In::Live(0), RESTART),
                (In::Live(0), APPLY),
                (In::Replay(6), KNOWN),
                (In::Live(1), APPLY),
            ],
        );
    }

    #[test]
    fn a_restart_that_was_joined_late_is_filled_from_zero() {
        check(
            5,
            &[
                (In::Live(2), RESTART),
                (In::Live(2), gap(0, 2)),
                (In::Replay(0), REPLAYED),
                (In::Replay(1), REPLAYED),
                (In::End, COMPLETE),
                (In::Held(2), APPLY),
            ],
        );
    }

    #[test]
    fn numbers_that_a_replay_brought_are_duplicates_when_they_come_live() {
        check(
            0,
            &[
                (In::Resume, Asked(0)),
                (In::Replay(2), truncated(2)),
                (In::Replay(0), KNOWN),
                (In::Replay(1), KNOWN),
                (In::Replay(3), REPLAYED),
                (In::Replay(2), KNOWN),
                (In::Live(1), REPEATED),
                (In::Live(2), REPEATED),
                (In::End, COMPLETE),
                (In::Live(3), REPEATED),
                (In::Live(4), APPLY),
            ],
        );
    }

    #[test]
    fn resuming_asks_for_the_last_batch_to_recognise_the_publisher() {
        let known = [
            (In::Resume, Asked(2)),
            (In::Replay(2), KNOWN),
            (In::Replay(3), REPLAYED),
            (In::End, COMPLETE),
            (In::Live(4), APPLY),
        ];
        check(3, &known);
        let another = [
            (In::Resume, Asked(2)),
            (In::End, Ended(ReplayEnd::Restart)),
            (In::Resume, Asked(0)),
            (In::End, COMPLETE),
            (In::Live(0), APPLY),
        ];
        check(3, &another);
        let moved_on = [
            (In::Resume, Asked(2)),
            (In::Replay(9), truncated(6)),
            (In::End, COMPLETE),
        ];
        check(3, &moved_on);
    }

    #[test]
    fn a_replay_does_not_overtake_held_batches() {
        check(
            3,
            &[
                (In::Resume, Asked(2)),
                (In::Live(4), HOLD),
                (In::Live(5), HOLD),
                (In::Replay(5), KNOWN),
                (In::End, COMPLETE),
                (In::Held(4), gap(3, 1)),
                (In::End, Ended(ReplayEnd::Continue { lost: 1 })),
                (In::Held(4), APPLY),
                (In::Held(5), APPLY),
            ],
        );
    }

    #[test]
    fn the_largest_number_does_not_overflow() {
        check(
            1,
            &[
                (In::Live(u64::MAX), gap(1, u64::MAX - 1)),
                (In::Fail, Lost(u64::MAX - 1)),
                (In::Held(u64::MAX), APPLY),
            ],
        );
    }
}
