//! Counts of whole numbers in bins that grow with the number: exact below 128, then within 1.6 %.
//!
//! Source: the layout of Gil Tene's HdrHistogram, with 64 bins to a doubling.

use serde::Serialize;

/// Bins to a doubling, as a power of two.
const BITS: u32 = 6;

/// Summary of a distribution. Percentiles are exact below 128 units of the histogram they come from
/// and within 1.6 % above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Number of values.
    pub count: u64,
    /// Arithmetic mean, exact.
    pub mean: f64,
    /// Standard deviation of the values themselves (not of a sample).
    pub sd: f64,
    /// 10th percentile, by nearest rank, as the next ones.
    pub p10: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// The largest, exact.
    pub max: f64,
}

/// Weighted counts of whole numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    bins: Vec<u64>,
    count: u64,
    sum: f64,
    squares: f64,
    max: u64,
}

impl Histogram {
    /// Counts `value` as often as `times` says.
    pub fn add(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        let bin = bin(BITS, value);
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, 0);
        }
        self.bins[bin] += times;
        self.count += times;
        let (value_f, times) = (value as f64, times as f64);
        self.sum += value_f * times;
        // A square of a large value does not fit 64 bits.
        self.squares += value_f * value_f * times;
        self.max = self.max.max(value);
    }

    /// Values counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The bins that have values, in order: middle, largest value, how many.
    pub fn iter(&self) -> impl Iterator<Item = (f64, u64, u64)> + '_ {
        let bins = self.bins.iter().enumerate();
        let full = bins.filter(|(_, times)| **times > 0);
        full.map(|(bin, &times)| {
            let (first, last) = (first(BITS, bin), first(BITS, bin + 1) - 1);
            let middle = first as f64 + (last - first) as f64 / 2.0;
            (middle, last, times)
        })
    }

    /// The value at `share` of all, by nearest rank: the middle of its bin; 0 when empty.
    #[must_use]
    pub fn percentile(&self, share: f64) -> f64 {
        // A share of 0 asks for the smallest value, whose rank is 1.
        let rank = ((share * self.count as f64).ceil() as u64).max(1);
        let mut below = 0;
        for (middle, last, times) in self.iter() {
            below += times;
            if below >= rank {
                // The middle of the last bin may lie above the largest value.
                return if last >= self.max { self.max as f64 } else { middle };
            }
        }
        0.0
    }

    /// Summarizes the values, each times `unit`.
    #[must_use]
    pub fn spread(&self, unit: f64) -> Spread {
        if self.count == 0 {
            return Spread::default();
        }
        let count = self.count as f64;
        let mean = self.sum / count;
        Spread {
            count: self.count,
            mean: mean * unit,
            // Rounding can leave a difference slightly below zero.
            sd: (self.squares / count - mean * mean).max(0.0).sqrt() * unit,
            p10: self.percentile(0.10) * unit,
            p50: self.percentile(0.50) * unit,
            p90: self.percentile(0.90) * unit,
            p99: self.percentile(0.99) * unit,
            max: self.max as f64 * unit,
        }
    }
}

/// The bin of `value` in a histogram of `1 << bits` bins a doubling.
pub(super) fn bin(bits: u32, value: u64) -> usize {
    let digits = u64::BITS - value.leading_zeros();
    // Small values have no bits to drop, so each one has a bin of its own.
    let shift = digits.saturating_sub(bits + 1);
    ((u64::from(shift) << bits) + (value >> shift)) as usize
}

/// The smallest value of a bin.
pub(super) fn first(bits: u32, bin: usize) -> u64 {
    let bin = bin as u64;
    let shift = (bin >> bits).saturating_sub(1);
    // The end of the last bin is 2^64, which needs the wider type.
    let mantissa = u128::from(bin - (shift << bits)) << shift;
    u64::try_from(mantissa).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_narrow_and_without_gaps() {
        for value in (0..5000).chain([1 << 40, (1 << 40) + 12345, u64::MAX - 1]) {
            let bin = bin(BITS, value);
            let (from, until) = (first(BITS, bin), first(BITS, bin + 1));
            assert!(from <= value && value < until, "{value}: {from} {until}");
            assert!((until - from) as f64 <= 1.0 + value as f64 / 63.0, "{value}");
        }
    }

    #[test]
    fn percentiles_are_nearest_rank() {
        let mut histogram = Histogram::default();
        for value in 1..=100 {
            histogram.add(value, 2);
        }
        let spread = histogram.spread(0.5);
        assert_eq!((spread.count, spread.mean), (200, 25.25));
        assert_eq!((spread.p10, spread.p50, spread.p99), (5.0, 25.0, 49.5));
        assert_eq!(spread.max, 50.0);
        assert!((spread.sd - 14.433).abs() < 1e-3, "{}", spread.sd);
        assert_eq!(Histogram::default().spread(1.0), Spread::default());
    }
}
