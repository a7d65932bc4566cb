//! The end of the way: what arrives goes to the follower, and what it wants is carried out.

use std::time::Duration;

use headstart_core::{CacheEvent, Nanos};
use headstart_router::PrefixIndex;
use headstart_router::index::Update;
use headstart_router::stream::{Follower, StreamBatch, StreamEffect, StreamStatus, StreamUpdate};

use super::{Commons, Station};
use crate::streams::channel::{Delivery, ReplayAnswer};
use crate::streams::publisher::{BatchPosition, position_of, unmark};
use crate::streams::tally::CoverageTally;

impl Station {
    /// Something arrives.
    pub(super) fn deliver(
        &mut self,
        delivery: Delivery,
        commons: &mut Commons,
    ) -> Result<bool, String> {
        commons.note(|| format!("{:?} ▶ {}", self.replica, words(&delivery)));
        let is_asked = match &delivery {
            Delivery::Live(batch) => {
                self.count_late(position_of(&batch.events), &mut commons.tally);
                false
            }
            Delivery::Reply(replay, _) | Delivery::End(replay) => {
                // Asked before the follower hears of it, because the end of a replay ends the
                // question.
                self.follower.replay() == Some(*replay)
            }
            _ => false,
        };
        self.lateness.on_delivery(&delivery, is_asked, commons.now);
        self.tell(commons, |follower, now, effects| match delivery {
            Delivery::Connected => follower.on_connected(now, effects),
            Delivery::Disconnected => follower.on_disconnected(now, effects),
            Delivery::Live(batch) => follower.on_live(batch, now, effects),
            Delivery::Reply(replay, batch) => follower.on_reply(replay, batch, now, effects),
            Delivery::End(replay) => follower.on_replay_end(replay, now, effects),
            Delivery::Failed(replay) => follower.on_replay_failed(replay, now, effects),
        })
    }

    fn count_late(&mut self, arrives: Option<BatchPosition>, tally: &mut CoverageTally) {
        let late = self.arrived.zip(arrives).filter(|(last, position)| position < last);
        if let Some((last, position)) = late {
            tally.late_lives += u64::from(position.process < last.process);
            tally.late_batches += u64::from(position.process == last.process);
        }
        self.arrived = self.arrived.max(arrives);
    }

    /// Reports an event to the follower and executes its effects. Returns whether anything changed.
    pub(super) fn tell(
        &mut self,
        commons: &mut Commons,
        event: impl FnOnce(&mut Follower, Nanos, &mut Vec<StreamEffect>),
    ) -> Result<bool, String> {
        let mut effects = Vec::new();
        event(&mut self.follower, commons.now, &mut effects);
        // The follower's invariants hold after every event, not only at the end.
        self.follower.check();
        let mut is_told = false;
        for effect in effects {
            is_told |= !matches!(
                effect,
                StreamEffect::Ask { .. } | StreamEffect::Update(StreamUpdate::Skipped { .. })
            );
            let is_absent = self.follower.status() == StreamStatus::Down;
            let is_doubt = matches!(effect, StreamEffect::Update(StreamUpdate::Doubt { .. }));
            commons.tally.absences += u64::from(is_absent && is_doubt);
            self.carry_out(effect, commons)?;
        }
        Ok(is_told)
    }

    fn carry_out(&mut self, effect: StreamEffect, commons: &mut Commons) -> Result<(), String> {
        let now = commons.now;
        match effect {
            StreamEffect::Update(StreamUpdate::Events { seq, mut events }) => {
                // A follower may reorder batches, but must name each by its own number.
                let position = unmark(&mut events).filter(|position| position.seq == seq);
                let position = position.ok_or("a batch was changed on its way")?;
                commons.note(|| format!("{:?} applies {position:?}", self.replica));
                commons.tally.applied += 1;
                let process = &self.processes[position.process.0];
                self.truth.apply(position, process.records(), &commons.catalog, now)?;
                self.lateness.on_applied(position, now);
                commons.index.update(self.replica, Update::Events(&events), now);
            }
            StreamEffect::Update(StreamUpdate::Clear) => {
                commons.note(|| format!("{:?} forgets everything", self.replica));
                commons.tally.clears += 1;
                self.truth.forget();
                self.lateness.on_forgotten();
                let cleared = [CacheEvent::Cleared];
                commons.index.update(self.replica, Update::Events(&cleared), now);
            }
            StreamEffect::Update(StreamUpdate::Doubt { batches }) => {
                commons.note(|| format!("{:?} doubts, {batches} lost", self.replica));
                commons.tally.doubts += 1;
                self.truth.doubt(now);
                commons.index.update(self.replica, Update::Doubt, now);
            }
            StreamEffect::Update(StreamUpdate::Trust) => {
                commons.note(|| format!("{:?} takes its doubt back", self.replica));
                commons.tally.trusts += 1;
                self.truth.trust(now)?;
                commons.index.update(self.replica, Update::Trust, now);
            }
            StreamEffect::Ask { replay, from } => {
                commons.note(|| format!("{:?} asks from {from}", self.replica));
                let replies = self.replies(from);
                let first = replies.as_ref().and_then(|replies| replies.first());
                let is_truncated = first.is_some_and(|first| first.seq > from);
                let is_empty = replies.is_some() && self.process().keeps_nothing();
                let answer = self.channel.ask(replay, replies, now, &mut commons.rng);
                let is_truncated = is_truncated && answer == ReplayAnswer::Whole;
                commons.tally.replays += 1;
                commons.tally.truncated_replays += u64::from(is_truncated);
                commons.tally.empty_replays += u64::from(is_empty);
                commons.tally.cut_replays += u64::from(answer == ReplayAnswer::Cut);
            }
            StreamEffect::Reconnect => {
                commons.note(|| format!("{:?} reconnects", self.replica));
                commons.tally.reconnects += 1;
                self.channel.disconnect(now, &mut commons.rng);
                if !self.is_down {
                    let pause = Duration::from_millis(50);
                    self.channel.connect(now, pause, &mut commons.rng);
                }
            }
            StreamEffect::Update(StreamUpdate::Skipped { .. })
            | StreamEffect::Update(StreamUpdate::Status(_)) => {}
        }
        Ok(())
    }

    /// Returns the live process's answer to a replay, if there is one. If clocks cannot tell
    /// processes apart, none answers before the end of its predecessor is known.
    fn replies(&self, from: u64) -> Option<Vec<StreamBatch>> {
        let is_early = self.channel.is_ending() && !self.spec.can_hide;
        // A dead process answers nothing.
        let process = Some(self.process()).filter(|_| !self.is_down && !is_early)?;
        Some(process.replay(from).cloned().collect())
    }
}

fn words(delivery: &Delivery) -> String {
    match delivery {
        Delivery::Live(batch) => format!("live {} at {:?}", batch.seq, batch.ts),
        Delivery::Reply(replay, batch) => format!("{replay:?} reply {}", batch.seq),
        other => format!("{other:?}"),
    }
}
