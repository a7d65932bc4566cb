//! Entries of bounded tables in the last hour, and the share of them that is forgotten.

use std::time::Duration;

use headstart_core::Nanos;

/// Period over which forgetting is reported. Older entries are not expected to be known.
const LATELY: Duration = Duration::from_secs(3600);

/// Marks in that time: it is an hour, and up to five minutes more.
const MARKS: usize = 12;

/// Entries into two tables since about an hour ago.
#[derive(Clone, Debug, Default)]
pub(super) struct Lately {
    /// Total entries of both tables at the start of each span, the latest span last.
    marks: Vec<[u64; 2]>,
    span: u64,
}

impl Lately {
    /// The larger share that is forgotten of what was entered lately, 0 to 1: tables of so much
    /// room into which so much was entered in all, and which forget what is oldest.
    pub(super) fn forgotten(&mut self, tables: [(usize, u64); 2], now: Nanos) -> f32 {
        let span = now.0 / (LATELY.as_nanos() as u64 / MARKS as u64);
        let entered = tables.map(|(_, entered)| entered);
        if self.marks.is_empty() {
            (self.span, self.marks) = (span, vec![[0; 2]]);
        }
        // An earlier `now` adds no mark. After a long idle time one full set of marks suffices.
        let passed = span.saturating_sub(self.span).min(MARKS as u64 + 1);
        self.span = self.span.max(span);
        self.marks.extend((0..passed).map(|_| entered));
        let gone = self.marks.len().saturating_sub(MARKS + 1);
        self.marks.drain(..gone);
        let share = |table: usize| {
            // The first mark always exists: the first call adds one, and the drain keeps the latest
            // ones.
            let lately = entered[table].saturating_sub(self.marks[0][table]);
            let forgotten = lately.saturating_sub(tables[table].0 as u64);
            forgotten as f32 / lately.max(1) as f32
        };
        // An answer rests on both tables, so the worse one decides.
        share(0).max(share(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of 1,000 into which 100 are entered a minute holds ten minutes of the hour; one
    /// that was busy long ago and is not any more has forgotten nothing of late.
    #[test]
    fn only_the_last_hour_counts() {
        let minute = |minute: u64| Nanos(minute * 60_000_000_000 + 7);
        let mut lately = Lately::default();
        let mut told = 0.0;
        for at in 0..600 {
            told = lately.forgotten([(1_000, at * 100), (10, 0)], minute(at));
            assert!(at > 9 || told == 0.0, "{at}: {told}");
        }
        let truth = 1.0 - 1_000.0 / 6_000.0;
        assert!((told - truth).abs() < 0.02, "{told} for {truth}");
        assert_eq!(lately.forgotten([(1_000, 60_000), (10, 0)], minute(700)), 0.0);
        assert_eq!(lately.forgotten([(1_000, 60_000), (10, 5)], minute(701)), 0.0);
    }
}
