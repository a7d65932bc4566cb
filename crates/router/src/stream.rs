//! One event stream, put in order: one replica, one data-parallel rank.
//!
//! An engine numbers its batches 0, 1, 2, … for as long as its process lives (an *epoch*), and
//! offers a bounded buffer of old ones on request. Between the engine and us batches get lost, come
//! late, twice or out of order; the process restarts and counts from 0 again; replays are cut
//! short, break off or bring the wrong process. [`Follower`] takes what arrives and returns
//! [`StreamEffect`]s, which the owner of the sockets carries out.
//!
//! ```text
//!                    ┌──────────────────────────┐
//! connected, gone ──▶│                          ├─▶ Apply   the next batch
//! live batch ───────▶│         Follower         ├─▶ Clear   another process: forget all
//! reply, end, fail ─▶│                          ├─▶ Doubt   something is lost for good
//! on_time ──────────▶│ life · held · replays    ├─▶ Trust   nothing is, after all
//!                    │                          ├─▶ Ask     for a replay from batch n
//!                    └──────────────┬───────────┘   Reconnect, Skipped, Status
//!                                   └─▶ due(): when to call on_time
//! ```
//!
//! Worked example, with batches 0–4 applied, 5–6 lost on the way, and 5 no longer kept:
//!
//! ```text
//! live 7     Ask { from: 4 }      7 is held; 4 is asked for once more, to know the publisher by
//! live 8                          held
//! reply 4                         the very same: no restart
//! reply 6    Doubt { 1 }          replies come in order, so 5 is lost
//!            Apply 6, 7, 8
//! reply 7                         known
//! end        Status(Partial)      until the engine clears its cache or restarts
//! ```
//!
//! Something late for a second is a doubt too, and the only one that is taken back: a gap that
//! stays, a lost connection, an unanswered question. Batches 0–4 are applied:
//!
//! ```text
//! gone       Status(Down)
//! on_time    Doubt { 0 }          after a second: what the engine does meanwhile is unknown
//! connected  Ask { from: 4 }
//! live 7                          waits
//! reply 4                         the very same
//! reply 5                         waits too: what is late is applied as a whole
//! reply 6    Trust, Apply 5, 6, 7
//! ```
//!
//! A batch in which the engine clears its cache waits for nothing, if it has a timestamp: what is
//! missing before it says nothing about what is held behind it.
//!
//! # Kinds of batches, and how they are recognised
//!
//! | a batch is | because |
//! |---|---|
//! | the next one, or fills a hole | its number says so, and its timestamp fits its neighbours |
//! | repeated | number and fingerprint are known |
//! | a restart | a lower or the same number has a newer timestamp; without any: a lower number, |
//! | | or the same with another payload |
//! | stale: of an earlier life | a higher number has an older timestamp, or a restart a newer one |
//! | burnt: numbered, never sent | a replay that reached beyond it did not bring it |
//!
//! Timestamps are the publisher's clock, which may be set back. So a batch that should come later
//! and is older is asked about, or doubted without a replay socket. Timestamps are never believed
//! against a replay: the process that answers a replay is the one that lives now. A replay that
//! brings nothing speaks of a restart only if an earlier one brought something: some publishers
//! keep nothing. Taking a repeat for a restart costs a replay; taking a restart for a repeat leaves
//! a wrong index: where nothing decides, the cheap error is made.
//!
//! # Invariants
//!
//! * Batches are applied in strictly growing order within an epoch; each number below the next
//!   expected one was either applied or counted as lost ([`Follower::check`]).
//! * While [`StreamStatus::Complete`] is claimed, the effects add up to exactly what the
//!   publisher held after the last applied batch.
//! * What is lost while something is held is followed by [`StreamUpdate::Doubt`]; a loss before the
//!   first applied batch is not: nothing that is known can be wrong by it.
//! * Nothing stays out of doubt for longer than [`LATE_TIME_MAX`] while a batch is known to be
//!   missing, the connection is gone, or the publisher is asked whether it is still the same and
//!   answers nothing; nor, where it used to answer, for that much longer than
//!   [`SILENCE_TIME_MAX`] while it says nothing at all. What is missing is then applied as a
//!   whole, or, where that is given up or does not fit, with a doubt.
//! * [`StreamUpdate::Trust`] takes the last [`StreamUpdate::Doubt`] back, with nothing applied
//!   between them, and only where that was told of something late.
//! * What was known before a follower began is cleared before batch 0 is applied
//!   ([`Follower::resumed`]).
//! * Whatever comes, memory stays within [`HELD_BATCHES_MAX`] and [`HELD_BYTES_MAX`], nothing
//!   waits longer than [`HELD_TIME_MAX`], and nothing panics.
//!
//! It does not know sockets, payloads or clocks: batches come decoded, with a fingerprint of
//! their bytes, and `now` is an argument. A restart is assumed to break the connection: behind a
//! proxy that hides that, one whose first batches are lost is noticed late.
//!
//! Source: vLLM's publisher (numbers per process, replay socket without an error for evicted
//! starts, numbers burnt by batches that fail to serialize). Differences from its known
//! consumers: truncated replays are accepted and marked, not retried for ever; restarts are seen
//! without a replay socket as well; late batches are no restarts.

mod batch;
mod doubt;
mod effect;
mod follower;
mod held;
mod life;
mod link;
mod replays;
mod report;

pub use batch::{Damage, StreamBatch};
pub use doubt::{LATE_TIME_MAX, TRUST_TIME_MAX};
pub use effect::{StreamEffect, StreamUpdate};
pub use follower::{Follower, FollowerConfig, STALE_BATCHES_MAX};
pub use held::{HELD_BATCHES_MAX, HELD_BYTES_MAX, HELD_TIME_MAX, REORDER_TIME_MAX};
pub use link::{SETTLE_TIME, SILENCE_TIME_MAX};
pub use replays::{
    CALM_TIME, REPLAY_TIME_MAX, REPLAY_TRIES_MAX, REPLIES_SAFE, REPLY_TIME_MAX, RETRY_PAUSE_MAX,
    RETRY_PAUSE_MIN, ReplayId,
};
pub use report::{StreamReport, StreamStatus};
