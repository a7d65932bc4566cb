//! Counts by buckets of time, whose length doubles when there would be too many of them.

use headstart_core::Nanos;

/// Most buckets: enough for a plot, and half of them are left after doubling.
pub(super) const BUCKETS_MAX: usize = 256;

/// The first length of a bucket, nanoseconds.
const FIRST_NS: u64 = 1_000_000_000;

/// A counter per bucket of time.
pub(super) trait BucketCounter: Clone + Default {
    /// Adds what the bucket behind this one counted.
    fn merge(&mut self, behind: &Self);
}

/// Buckets from the start of the trace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TimeBuckets<T> {
    bucket_ns: u64,
    buckets: Vec<T>,
}

impl<T> Default for TimeBuckets<T> {
    fn default() -> Self {
        Self { bucket_ns: FIRST_NS, buckets: Vec::new() }
    }
}

impl<T: BucketCounter> TimeBuckets<T> {
    /// The bucket that `time` falls into.
    pub(super) fn at(&mut self, time: Nanos) -> &mut T {
        // One request may lie many lengths beyond the last bucket, hence a loop.
        while self.place(time) >= BUCKETS_MAX {
            self.double();
        }
        let place = self.place(time);
        if place >= self.buckets.len() {
            self.buckets.resize(place + 1, T::default());
        }
        &mut self.buckets[place]
    }

    /// The number of the bucket that `time` falls into.
    pub(super) fn place(&self, time: Nanos) -> usize {
        // On a 32-bit machine a far time must not wrap into an early bucket.
        usize::try_from(time.0 / self.bucket_ns).unwrap_or(usize::MAX)
    }

    pub(super) fn bucket_s(&self) -> f64 {
        self.bucket_ns as f64 / 1e9
    }

    pub(super) fn buckets(&self) -> &[T] {
        &self.buckets
    }

    fn double(&mut self) {
        self.bucket_ns = self.bucket_ns.saturating_mul(2);
        let pairs = self.buckets.chunks(2).map(|pair| {
            let mut both = pair[0].clone();
            pair.get(1).into_iter().for_each(|behind| both.merge(behind));
            both
        });
        self.buckets = pairs.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl BucketCounter for u64 {
        fn merge(&mut self, behind: &Self) {
            *self += behind;
        }
    }

    #[test]
    fn buckets_double_and_lose_nothing() {
        let mut timeline = TimeBuckets::<u64>::default();
        let times: Vec<u64> = (0..3000).map(|i| i * i * 700_000).collect();
        for &time in &times {
            *timeline.at(Nanos(time)) += 1;
        }
        assert!(timeline.buckets().len() <= BUCKETS_MAX);
        for (place, count) in timeline.buckets().iter().enumerate() {
            let here = times.iter().filter(|&&t| timeline.place(Nanos(t)) == place);
            assert_eq!(*count, here.count() as u64);
        }
        *timeline.at(Nanos(u64::MAX)) += 1;
        assert!(timeline.buckets().len() <= BUCKETS_MAX);
        assert_eq!(timeline.buckets().iter().sum::<u64>(), 3001);
    }
}
