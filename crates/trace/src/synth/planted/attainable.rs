//! The best score that a predictor can reach, from the true probabilities.

use headstart_core::Probability;

/// Bins of the true probability: finer than what a predictor can tell apart.
const BINS: usize = 4096;

/// Turns with their true probability and what became of them, counted by that probability.
///
/// Memory is fixed; the order of the turns is forgotten.
#[derive(Clone, Debug)]
pub struct Attainable {
    /// Turns that ended and turns that went on, per bin of the probability.
    bins: Vec<[u64; 2]>,
}

impl Default for Attainable {
    fn default() -> Self {
        Self { bins: vec![[0; 2]; BINS] }
    }
}

impl Attainable {
    /// Counts a turn.
    pub fn add(&mut self, p: Probability, has_continued: bool) {
        let bin = (p.value() * BINS as f64) as usize;
        // A probability of 1 belongs to the last bin.
        self.bins[bin.min(BINS - 1)][usize::from(has_continued)] += 1;
    }

    /// Turns counted.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.bins.iter().flatten().sum()
    }

    /// Share of them that went on; 0 where there are none.
    #[must_use]
    pub fn share(&self) -> f64 {
        let continued: u64 = self.bins.iter().map(|[_, continued]| continued).sum();
        continued as f64 / self.turns().max(1) as f64
    }

    /// Returns the highest Matthews correlation coefficient of any rule "continues if p is at least
    /// a threshold" on these turns. As p is all that the outcome was drawn from, nothing that is
    /// known before does better, but for chance. 0 where no rule tells anything.
    #[must_use]
    pub fn best_mcc(&self) -> f64 {
        let sum =
            |[ended, continued]: [u64; 2], bin: &[u64; 2]| [ended + bin[0], continued + bin[1]];
        let all = self.bins.iter().fold([0; 2], sum);
        let mut below = [0; 2];
        let mut best = 0.0;
        // Each bin's end is a threshold, so one pass over running sums tries all of them.
        for bin in &self.bins {
            below = sum(below, bin);
            best = f64::max(best, mcc(below, all));
        }
        best
    }
}

/// MCC of calling the turns counted in `below` ended and the others of `all` continuing.
fn mcc(below: [u64; 2], all: [u64; 2]) -> f64 {
    let [ended_right, ended_wrong] = below.map(|count| count as f64);
    let [ended, continued] = all.map(|count| count as f64);
    let [above_wrong, above_right] = [ended - ended_right, continued - ended_wrong];
    let product = (ended_right + ended_wrong) * (above_right + above_wrong) * ended * continued;
    // Without turns on one side the coefficient is undefined, and 0 by convention.
    if product == 0.0 {
        return 0.0;
    }
    (above_right * ended_right - above_wrong * ended_wrong) / product.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns as (p, ended, continued).
    fn check(turns: &[(f64, u64, u64)], expected: f64) {
        let mut attainable = Attainable::default();
        for &(p, ended, continued) in turns {
            let p = Probability::new(p).expect("a number");
            (0..ended).for_each(|_| attainable.add(p, false));
            (0..continued).for_each(|_| attainable.add(p, true));
        }
        let got = attainable.best_mcc();
        assert!((got - expected).abs() < 1e-9, "{turns:?}: {got}");
    }

    #[test]
    fn the_best_threshold_is_found() {
        check(&[], 0.0);
        check(&[(0.5, 3, 7)], 0.0);
        check(&[(0.0, 5, 0), (1.0, 0, 5)], 1.0);
        // Two by two: (8 · 8 − 2 · 2) / (10 · 10 · 10 · 10)^½.
        check(&[(0.2, 8, 2), (0.8, 2, 8)], 0.6);
        // A third level in between belongs to the side that it resembles.
        check(&[(0.2, 8, 2), (0.7, 1, 4), (0.8, 1, 4)], 0.6);
        // Worse than chance is not made better by calling it the other way round.
        check(&[(0.2, 2, 8), (0.8, 8, 2)], 0.0);
    }

    #[test]
    fn turns_and_their_share_are_counted() {
        let mut attainable = Attainable::default();
        assert_eq!((attainable.turns(), attainable.share()), (0, 0.0));
        (0..4).for_each(|turn| attainable.add(Probability::EVEN, turn == 0));
        assert_eq!((attainable.turns(), attainable.share()), (4, 0.25));
    }
}
