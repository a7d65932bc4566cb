//! The latest batches, kept for replay.

use std::collections::VecDeque;

use crate::wire::SequencedPayload;

/// Most bytes of payload kept, 64 MiB: some 6 KiB for each of the usual 10,000 batches. The
/// latest batch is kept whatever its size, because subscribers recognise a publisher by it.
const RING_BYTES_MAX: usize = 64 << 20;

/// Bounded in steps and in bytes. Numbers grow but may have holes, where the queue before the
/// ring was full.
#[derive(Debug)]
pub(super) struct ReplayBuffer {
    batches: VecDeque<SequencedPayload>,
    bytes: usize,
    steps_max: usize,
}

impl ReplayBuffer {
    /// Keeps the latest `steps_max` batches, at least one.
    pub(super) fn new(steps_max: usize) -> Self {
        Self { batches: VecDeque::new(), bytes: 0, steps_max: steps_max.max(1) }
    }

    /// Adds the next batch and drops old ones to stay within the limits.
    pub(super) fn push(&mut self, batch: SequencedPayload) {
        self.bytes += batch.payload.len();
        self.batches.push_back(batch);
        while self.is_over() {
            let oldest = self.batches.pop_front();
            // The sum covers every batch in the ring, so the subtraction cannot underflow.
            self.bytes -= oldest.map_or(0, |oldest| oldest.payload.len());
        }
    }

    /// All batches from number `start` on, in order. Shares their bytes.
    pub(super) fn since(&self, start: u64) -> Vec<SequencedPayload> {
        // Numbers grow, though with holes, so a search by halves finds the first one wanted.
        let first = self.batches.partition_point(|batch| batch.seq < start);
        self.batches.range(first..).cloned().collect()
    }

    fn is_over(&self) -> bool {
        let over = self.batches.len() > self.steps_max || self.bytes > RING_BYTES_MAX;
        over && self.batches.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    /// Pushes `(number, bytes)` and asks for everything from `start` on.
    fn check(steps_max: usize, pushed: &[(u64, usize)], start: u64, expected: &[u64]) {
        let mut ring = ReplayBuffer::new(steps_max);
        for &(seq, bytes) in pushed {
            let payload = Bytes::from(vec![0; bytes]);
            ring.push(SequencedPayload { seq, payload });
            let kept: usize = ring.batches.iter().map(|batch| batch.payload.len()).sum();
            assert_eq!(ring.bytes, kept);
        }
        let numbers: Vec<_> = ring.since(start).iter().map(|batch| batch.seq).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn the_latest_batches_are_kept_within_both_limits() {
        let pushed = [(0, 1), (1, 1), (4, 1), (5, 1)];
        check(3, &pushed, 0, &[1, 4, 5]);
        check(3, &pushed, 2, &[4, 5]);
        check(3, &pushed, 6, &[]);
        check(0, &pushed, 0, &[5]);
        let half = RING_BYTES_MAX / 2;
        check(9, &[(0, half), (1, half), (2, 1)], 0, &[1, 2]);
        check(9, &[(0, 1), (1, RING_BYTES_MAX + 1)], 0, &[1]);
    }
}
