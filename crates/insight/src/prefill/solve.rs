//! Least squares of relative errors, with no coefficient below 0.

use super::{PrefillModel, PrefillSample};

/// Terms of the model.
const TERMS: usize = 3;

/// Smallest pivot, relative to the diagonal, at which terms can be told apart.
const PIVOT_MIN: f64 = 1e-10;

/// Returns the model with the least sum of squared relative errors whose coefficients are 0 or
/// above: the best of all subsets of terms whose own solution has none below 0. `None` without any.
pub(super) fn solve(samples: &[PrefillSample]) -> Option<PrefillModel> {
    let normal = Normal::of(samples);
    let solved = (1..1u32 << TERMS).filter_map(|subset| {
        let solution = normal.solve(subset)?;
        // A negative time makes no sense, and a clamped coefficient would not be the best fit of
        // the others.
        let is_positive = solution.iter().all(|&coefficient| coefficient >= 0.0);
        is_positive.then(|| (normal.loss(&solution), solution))
    });
    // The subsets are few, so trying all of them is exact where projection methods are not.
    let best = solved.min_by(|one, other| one.0.total_cmp(&other.0));
    best.map(|(_, [fixed, per_token, per_pair])| PrefillModel {
        fixed,
        // Back from the units of the matrix to seconds.
        per_token: per_token * TOKENS,
        per_pair: per_pair * PAIRS,
    })
}

/// Units in which all terms are of a size.
const TOKENS: f64 = 1e-3;
const PAIRS: f64 = 1e-7;

/// The normal equations.
struct Normal {
    matrix: [[f64; TERMS]; TERMS],
    right: [f64; TERMS],
    count: f64,
}

impl Normal {
    fn of(samples: &[PrefillSample]) -> Self {
        let mut normal = Self {
            matrix: [[0.0; TERMS]; TERMS],
            right: [0.0; TERMS],
            count: samples.len() as f64,
        };
        for sample in samples {
            let (cached, uncached) = (f64::from(sample.cached), f64::from(sample.uncached));
            // A new token attends to all before it, on average to half of the new ones.
            let pairs = uncached * (cached + uncached / 2.0);
            // Divided by the observed time: the sum should be 1.
            let row = [1.0, uncached * TOKENS, pairs * PAIRS].map(|term| term / sample.seconds);
            for one in 0..TERMS {
                for other in 0..TERMS {
                    normal.matrix[one][other] += row[one] * row[other];
                }
                normal.right[one] += row[one];
            }
        }
        normal
    }

    /// The best coefficients of a subset of terms, by elimination; the others are 0.
    fn solve(&self, subset: u32) -> Option<[f64; TERMS]> {
        let terms: Vec<usize> = (0..TERMS).filter(|term| subset & (1 << term) != 0).collect();
        // One equation a row, its right side at the end.
        let row = |&term: &usize| {
            let left = terms.iter().map(|&other| self.matrix[term][other]);
            left.chain([self.right[term]]).collect::<Vec<f64>>()
        };
        let mut rows: Vec<Vec<f64>> = terms.iter().map(row).collect();
        for (place, &term) in terms.iter().enumerate() {
            let (upper, lower) = rows.split_at_mut(place + 1);
            let pivot = &upper[place];
            // What is no number is refused too.
            let is_regular = pivot[place] > PIVOT_MIN * self.matrix[term][term];
            // Samples of one prompt length cannot tell the terms apart; the pivot is then rounding
            // noise.
            if !is_regular {
                return None;
            }
            for row in lower {
                let factor = row[place] / pivot[place];
                for (value, above) in row.iter_mut().zip(pivot) {
                    *value -= factor * above;
                }
            }
        }
        let mut solution = [0.0; TERMS];
        // The last row has one unknown; each row in front adds one.
        for (place, &term) in terms.iter().enumerate().rev() {
            let later = terms.iter().enumerate().skip(place + 1);
            let known = later.map(|(column, &term)| rows[place][column] * solution[term]);
            let right = rows[place][terms.len()] - known.sum::<f64>();
            solution[term] = right / rows[place][place];
        }
        Some(solution)
    }

    /// The sum of squared relative errors.
    fn loss(&self, solution: &[f64; TERMS]) -> f64 {
        // Expanded square: the sum of (1 − row · solution)² from the stored sums, without the
        // samples.
        let mut loss = self.count;
        for one in 0..TERMS {
            loss -= 2.0 * solution[one] * self.right[one];
            for other in 0..TERMS {
                loss += solution[one] * self.matrix[one][other] * solution[other];
            }
        }
        loss
    }
}
