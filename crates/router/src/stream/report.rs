//! Reports of a stream, for metrics and for debugging a route.

/// Reliability of the state that a stream reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StreamStatus {
    /// There is no connection.
    #[default]
    Down,
    /// Something is missing, or may be, and is being asked for.
    Replaying,
    /// The known state is correct except for doubts, but incomplete: batches are lost, or were gone
    /// before the connection. Ends with the next clear or restart of the engine.
    Partial,
    /// The known state equals the engine's after the last applied batch.
    Complete,
}

impl StreamStatus {
    /// All of them, from the worst.
    pub const ALL: [Self; 4] = [Self::Down, Self::Replaying, Self::Partial, Self::Complete];

    /// Its name in metrics and answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Replaying => "replaying",
            Self::Partial => "partial",
            Self::Complete => "complete",
        }
    }
}

/// Position of a stream, with counts over all epochs since its first follower was created.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StreamReport {
    /// Reliability of the stream.
    pub status: StreamStatus,
    /// Restarts of the publisher that were noticed.
    pub epoch: u64,
    /// The number of the next batch of this epoch.
    pub next_seq: u64,
    /// Number of the last applied batch that has a timestamp.
    pub last_seq: Option<u64>,
    /// Timestamp of the last applied batch that has one: the publisher's clock, seconds since 1970.
    pub last_ts: Option<f64>,
    /// Batches applied.
    pub applied_batches: u64,
    /// Batches that never came, or that came and could not be read.
    pub lost_batches: u64,
    /// Batches that came again, and replies to questions that were no longer asked.
    pub duplicate_batches: u64,
    /// Live batches dropped because they contradicted what is known: of an earlier process, or
    /// later than anybody waited.
    pub stale_batches: u64,
    /// Batches that found no place to wait: they are asked for again, where anybody can be asked.
    pub overflown_batches: u64,
    /// Applied batches of which something was skipped.
    pub damaged_batches: u64,
    /// Messages that were no batch.
    pub bad_messages: u64,
    /// Batches that named another rank than the configured one.
    pub rank_mismatches: u64,
    /// Batches that wait for others now.
    pub held_batches: usize,
    /// Memory that they take, bytes.
    pub held_bytes: usize,
    /// Replays asked for.
    pub replays_asked: u64,
    /// Replays that came to their end, whatever they brought.
    pub replays_completed: u64,
    /// Replays that broke off or took too long.
    pub replays_failed: u64,
}

/// Position of an earlier follower of the same publisher.
#[derive(Clone, Copy, Debug)]
pub(super) struct PriorPosition {
    pub(super) seq: u64,
    pub(super) ts: f64,
}

impl PriorPosition {
    /// None where nothing was applied that could be known again.
    pub(super) fn of(report: &StreamReport) -> Option<Self> {
        let (seq, ts) = report.last_seq.zip(report.last_ts)?;
        Some(Self { seq, ts })
    }
}
