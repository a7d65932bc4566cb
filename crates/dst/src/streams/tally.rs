//! Counts of events in simulations, to show that these covered something.

/// Defines the counts once, for all that is done with each of them.
macro_rules! tally {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts, over any number of seeds.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CoverageTally {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl CoverageTally {
            /// All of them, by name.
            #[must_use]
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }

            /// Adds another one's counts.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// One for each that is not 0: added up over seeds, the seeds in which it happened.
            #[must_use]
            pub fn seen(&self) -> Self {
                Self { $($name: self.$name.min(1)),* }
            }
        }
    };
}

tally! {
    /// Batches that engines made, burnt ones included.
    batches,
    /// Events in them.
    events,
    /// Batches that were applied, repeated replays included.
    applied,
    /// Ends of processes.
    restarts,
    /// Restarts that broke no connection.
    hidden_restarts,
    /// Processes whose first batch was made less than a second after their predecessor's last.
    quick_restarts,
    /// Processes that keep other cache groups, or blocks of other sizes, than their predecessor.
    changed_engines,
    /// The same where groups are only ever announced without tokens.
    changed_in_silence,
    /// Live messages of a process that arrived after one of its successor.
    late_lives,
    /// Live messages that arrived after one with a higher number of the same process.
    late_batches,
    /// Times that everything was forgotten because a stream said so.
    clears,
    /// Times that everything was doubted.
    doubts,
    /// Times that a stream was cut off for so long that everything was doubted.
    absences,
    /// Times that nothing came through for a while, though every connection stayed open.
    partitions,
    /// Times that such a doubt was taken back.
    trusts,
    /// Replays asked for.
    replays,
    /// Replays whose first batch came too late: it was not kept any more.
    truncated_replays,
    /// Replays from a publisher that keeps nothing of what it sent.
    empty_replays,
    /// Replays that broke off or stopped.
    cut_replays,
    /// Connections given up because they were silent.
    reconnects,
    /// Indexes that were dumped, and restored for streams that start over.
    restores,
    /// Blocks that were restored, one for each place that may hold them.
    restored,
    /// Comparisons with a stream that has been cut off or unanswered for more than a second.
    unanswered_checks,
    /// Comparisons with one in which a batch is missing for more than a second.
    behind_checks,
    /// Comparisons with a silent stream whose publisher has answered before.
    silent_checks,
    /// Comparisons with a stream that claims to be complete: everything must be equal.
    complete_checks,
    /// Comparisons with one that does not.
    partial_checks,
    /// Residents that were reported as confirmed, and were there.
    confirmed,
    /// Residents that were reported as doubtful.
    doubtful,
    /// Residents that no subscriber could know of.
    excused,
    /// Overlaps that were equal to those of the truth.
    questions,
    /// Overlaps above 0 of replicas whose groups have blocks of several sizes.
    mixed_questions,
    /// Streams that ended complete before anything was cleared.
    ended_complete,
    /// Streams that ended partial.
    ended_partial,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_are_seen_once() {
        let mut tally = CoverageTally { restarts: 3, ..CoverageTally::default() };
        tally.add(&tally.clone());
        assert_eq!((tally.restarts, tally.seen().restarts), (6, 1));
        let counts = tally.seen().counts();
        assert!(counts.contains(&("restarts", 1)) && counts.contains(&("clears", 0)));
    }
}
