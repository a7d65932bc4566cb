//! Counts by buckets of time, whose length doubles when there would be too many of them.

use headstart_core::Nanos;

use super::report::Hits;

/// Most buckets: enough for a plot, and half of them are left after doubling.
pub(super) const BUCKETS_MAX: usize = 256;

/// The first length of a bucket, nanoseconds.
const FIRST_NS: u64 = 1_000_000_000;

/// Counters of one bucket of time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BucketCounts {
    pub(super) hits: Hits,
    /// Requests that were followed by another one of their session.
    pub(super) followed: u64,
}

/// Buckets from the start of the trace.
#[derive(Clone, Debug)]
pub(super) struct TimeBuckets {
    bucket_ns: u64,
    buckets: Vec<BucketCounts>,
}

impl Default for TimeBuckets {
    fn default() -> Self {
        Self { bucket_ns: FIRST_NS, buckets: Vec::new() }
    }
}

impl TimeBuckets {
    /// The bucket that `time` falls into.
    pub(super) fn at(&mut self, time: Nanos) -> &mut BucketCounts {
        // One request may lie many lengths beyond the last bucket, hence a loop.
        while self.place(time) >= BUCKETS_MAX {
            self.double();
        }
        let place = self.place(time);
        if place >= self.buckets.len() {
            self.buckets.resize(place + 1, BucketCounts::default());
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

    pub(super) fn buckets(&self) -> &[BucketCounts] {
        &self.buckets
    }

    fn double(&mut self) {
        self.bucket_ns = self.bucket_ns.saturating_mul(2);
        let pairs = self.buckets.chunks(2).map(|pair| {
            let mut both = pair[0];
            if let Some(behind) = pair.get(1) {
                both.hits.add(&behind.hits);
                both.followed += behind.followed;
            }
            both
        });
        self.buckets = pairs.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_double_and_lose_nothing() {
        let mut timeline = TimeBuckets::default();
        let times: Vec<u64> = (0..3000).map(|i| i * i * 700_000).collect();
        for &time in &times {
            timeline.at(Nanos(time)).followed += 1;
        }
        assert!(timeline.buckets().len() <= BUCKETS_MAX);
        for (place, count) in timeline.buckets().iter().enumerate() {
            let here = times.iter().filter(|&&t| timeline.place(Nanos(t)) == place);
            assert_eq!(count.followed, here.count() as u64);
        }
        timeline.at(Nanos(u64::MAX)).followed += 1;
        assert!(timeline.buckets().len() <= BUCKETS_MAX);
        assert_eq!(timeline.buckets().iter().map(|count| count.followed).sum::<u64>(), 3001);
    }
}
