//! Predictions for requests against the actual values.

/// Values that an [`Errors`] keeps for its percentiles: the latest.
const KEPT: usize = 1_024;

/// Errors of a prediction, in its unit: predicted less actual.
#[derive(Clone, Debug, Default)]
pub struct Errors {
    count: u64,
    sum: f64,
    latest: Vec<f64>,
}

impl Errors {
    /// Adds one; what is no number counts for nothing.
    pub fn add(&mut self, predicted: f64, actual: f64) {
        let error = predicted - actual;
        // One infinite error would make the sum useless for good.
        if !error.is_finite() {
            return;
        }
        // The ring is filled in order, so `count` also names the oldest place.
        let place = (self.count % KEPT as u64) as usize;
        match self.latest.get_mut(place) {
            Some(oldest) => *oldest = error,
            None => self.latest.push(error),
        }
        self.count += 1;
        self.sum += error;
    }

    /// Predictions counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean error of all: above 0 where too much was predicted.
    #[must_use]
    pub fn bias(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    /// The absolute error that a share `q` of the latest does not exceed; 0 before the first.
    #[must_use]
    pub fn absolute(&self, q: f64) -> f64 {
        let mut sizes: Vec<f64> = self.latest.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let rank = (q.clamp(0.0, 1.0) * sizes.len() as f64).ceil() as usize;
        // Ranks count from 1, and `ceil` gives 0 for a share of 0.
        sizes.get(rank.max(1) - 1).copied().unwrap_or(0.0)
    }
}

/// All that is predicted for a request, against what came.
#[derive(Clone, Debug, Default)]
pub struct Outlook {
    /// Cached tokens.
    pub cached_tokens: Errors,
    /// Time to the first token, seconds.
    pub ttft_s: Errors,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_bias_and_a_spread() {
        let mut errors = Errors::default();
        assert_eq!((errors.bias(), errors.absolute(0.5)), (0.0, 0.0));
        for actual in 0..100 {
            errors.add(50.0, f64::from(actual));
        }
        errors.add(f64::NAN, 0.0);
        assert_eq!(errors.count(), 100);
        assert!((errors.bias() - 0.5).abs() < 1e-9);
        assert_eq!((errors.absolute(0.5), errors.absolute(1.0)), (25.0, 50.0));
        for _ in 0..KEPT {
            errors.add(1.0, 0.0);
        }
        assert_eq!(errors.absolute(0.9), 1.0, "only the latest count");
    }
}
