//! A chain of numbered blocks, as runs of consecutive numbers.
//!
//! Traces number blocks as they first appear, so a prompt of two thousand blocks is a few runs:
//! a hundredth of the memory, and a reader that never expands what the file had compressed.

/// The blocks of one prompt in order, by a trace's own ids: equal id, equal block and prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockRuns {
    runs: Vec<Run>,
    len: usize,
}

/// `count` consecutive ids from `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// The first id.
    pub start: u64,
    /// Number of ids; never 0 in a [`BlockRuns`].
    pub count: u32,
}

impl BlockRuns {
    /// Blocks in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The maximal runs, in order.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The ids, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let ids = |run: &Run| run.start..run.start + u64::from(run.count);
        self.runs.iter().flat_map(ids)
    }

    /// Adds one block at the end.
    pub fn push(&mut self, id: u64) {
        self.push_run(Run { start: id, count: 1 });
    }

    /// Adds `run` at the end, joined to the last one where it continues it.
    ///
    /// # Panics
    /// When an id of the run does not fit 64 bits.
    pub fn push_run(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        // `iter` adds start and count, so an overflow is refused here, once.
        let end = run.start.checked_add(u64::from(run.count));
        assert!(end.is_some(), "block ids fit 64 bits");
        self.len += run.count as usize;
        // A run of more than 2^32 - 1 blocks is split, because its count does not fit.
        if let Some(last) = self.runs.last_mut()
            && last.start + u64::from(last.count) == run.start
            && let Some(count) = last.count.checked_add(run.count)
        {
            last.count = count;
            return;
        }
        self.runs.push(run);
    }

    /// The first `len` blocks, or all where there are fewer.
    #[must_use]
    pub fn prefix(&self, len: usize) -> Self {
        let mut prefix = Self::default();
        for run in &self.runs {
            // `prefix.len` is at most `len`: the loop ends when they are equal.
            let room = u32::try_from(len - prefix.len).unwrap_or(u32::MAX);
            prefix.push_run(Run { start: run.start, count: run.count.min(room) });
            if prefix.len == len {
                break;
            }
        }
        prefix
    }
}

impl FromIterator<u64> for BlockRuns {
    fn from_iter<I: IntoIterator<Item = u64>>(ids: I) -> Self {
        let mut runs = Self::default();
        ids.into_iter().for_each(|id| runs.push(id));
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ids: &[u64], num_runs: usize) {
        let runs: BlockRuns = ids.iter().copied().collect();
        assert_eq!(runs.iter().collect::<Vec<_>>(), ids);
        assert_eq!((runs.len(), runs.runs().len()), (ids.len(), num_runs));
        for len in 0..=ids.len() + 1 {
            let prefix = runs.prefix(len);
            assert_eq!(prefix.iter().collect::<Vec<_>>(), ids[..len.min(ids.len())]);
            assert_eq!(prefix, prefix.iter().collect());
        }
    }

    #[test]
    fn runs_are_the_ids() {
        check(&[], 0);
        check(&[7], 1);
        check(&[1, 2, 3, 9, 10, 4], 3);
        check(&[3, 2, 1], 3);
        check(&[5, 5, 6], 2);
    }

    #[test]
    fn runs_join_where_they_meet() {
        let mut runs = BlockRuns::default();
        runs.push_run(Run { start: 4, count: 2 });
        runs.push_run(Run { start: 6, count: 0 });
        runs.push_run(Run { start: 6, count: 3 });
        assert_eq!(runs, (4..9).collect());
    }
}
