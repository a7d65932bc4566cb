//! Figures that live fleet, simulator and benchmarks report, defined once.
//!
//! - **TTFT**: client's send to first token, queueing included.
//! - **TPOT**: (E2E − TTFT) / (output tokens − 1).
//! - **E2E**: client's send to last token.
//! - **Hit rate**: cached prompt tokens / prompt tokens. *Block* hit rate: matched blocks /
//!   looked-up blocks. Always said which.

/// Matches against look-ups, in whatever unit the holder names (blocks or tokens).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitCount {
    /// Asked for.
    pub lookups: u64,
    /// Found.
    pub hits: u64,
}

impl HitCount {
    /// Adds one request's share.
    pub fn record(&mut self, lookups: usize, hits: usize) {
        debug_assert!(hits <= lookups);
        self.lookups += lookups as u64;
        self.hits += hits as u64;
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: Self) {
        self.lookups += other.lookups;
        self.hits += other.hits;
    }

    /// `hits / lookups`; 0 before the first look-up.
    #[must_use]
    pub fn rate(self) -> f64 {
        if self.lookups == 0 { 0.0 } else { self.hits as f64 / self.lookups as f64 }
    }
}

/// Percentiles of a sample, by nearest rank, in the sample's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Number of values.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
}

impl Summary {
    /// Summarizes `values` (sorted in place); all zero when empty.
    #[must_use]
    pub fn of(values: &mut [f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        values.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            // Nearest rank: the value is always one of the sample, never a mean of two.
            let rank = (share * values.len() as f64).ceil() as usize;
            values[rank.clamp(1, values.len()) - 1]
        };
        Self {
            count: values.len(),
            mean: values.iter().sum::<f64>() / values.len() as f64,
            p50: rank(0.50),
            p90: rank(0.90),
            p99: rank(0.99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_rank() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let summary = Summary::of(&mut values);
        assert_eq!((summary.p50, summary.p90, summary.p99), (50.0, 90.0, 99.0));
        assert_eq!(summary.mean, 50.5);
        assert_eq!(Summary::of(&mut [3.0]).p99, 3.0);
        assert_eq!(Summary::of(&mut []), Summary::default());
    }

    #[test]
    fn hit_rate_of_nothing_is_zero() {
        let mut count = HitCount::default();
        assert_eq!(count.rate(), 0.0);
        count.record(4, 1);
        assert_eq!(count.rate(), 0.25);
    }
}
