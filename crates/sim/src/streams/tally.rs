//! What has happened in simulations, to show that they were about something.

/// Counts, over any number of seeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Batches that engines made, burnt ones included.
    pub batches: u64,
    /// Events in them.
    pub events: u64,
    /// Batches that were applied, repeated replays included.
    pub applied: u64,
    /// Ends of processes.
    pub restarts: u64,
    /// Times that everything was forgotten because a stream said so.
    pub clears: u64,
    /// Times that everything was doubted.
    pub doubts: u64,
    /// Replays asked for.
    pub replays: u64,
    /// Connections given up because they were silent.
    pub reconnects: u64,
    /// Comparisons with a stream that claims to be complete: everything must be equal.
    pub complete_checks: u64,
    /// Comparisons with one that does not.
    pub partial_checks: u64,
    /// Residents that were reported as confirmed, and were there.
    pub confirmed: u64,
    /// Residents that were reported as doubtful.
    pub doubtful: u64,
    /// Residents that nobody could know of.
    pub excused: u64,
    /// Overlaps that were equal to those of the truth.
    pub questions: u64,
    /// Streams that ended complete before anything was cleared.
    pub ended_complete: u64,
    /// Streams that ended partial.
    pub ended_partial: u64,
}

impl Tally {
    /// Adds another one's counts.
    pub fn add(&mut self, other: &Self) {
        let Self {
            batches,
            events,
            applied,
            restarts,
            clears,
            doubts,
            replays,
            reconnects,
            complete_checks,
            partial_checks,
            confirmed,
            doubtful,
            excused,
            questions,
            ended_complete,
            ended_partial,
        } = other;
        self.batches += batches;
        self.events += events;
        self.applied += applied;
        self.restarts += restarts;
        self.clears += clears;
        self.doubts += doubts;
        self.replays += replays;
        self.reconnects += reconnects;
        self.complete_checks += complete_checks;
        self.partial_checks += partial_checks;
        self.confirmed += confirmed;
        self.doubtful += doubtful;
        self.excused += excused;
        self.questions += questions;
        self.ended_complete += ended_complete;
        self.ended_partial += ended_partial;
    }
}
