//! Quality of yes-or-no predictions.
//!
//! The Matthews correlation coefficient needs a decision, so it is reported at the threshold that
//! is best for the predictions it is measured on, as in the study.

/// Predictions at one threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Quality {
    /// The Matthews correlation coefficient, -1 to 1; 0 where there is nothing to tell apart.
    pub(crate) mcc: f64,
    /// A prediction of at least this much says yes.
    pub(crate) threshold: f64,
}

/// Decisions against the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfusionMatrix {
    /// Said yes, and it was.
    pub(crate) true_yes: u64,
    /// Said yes, and it was not.
    pub(crate) false_yes: u64,
    /// Said no, and it was.
    pub(crate) false_no: u64,
    /// Said no, and it was not.
    pub(crate) true_no: u64,
}

impl ConfusionMatrix {
    /// The Matthews correlation coefficient; 0 where a row or a column is empty.
    #[must_use]
    pub(crate) fn mcc(self) -> f64 {
        let [a, b, c, d] =
            [self.true_yes, self.false_yes, self.false_no, self.true_no].map(|count| count as f64);
        let scale = ((a + b) * (a + c) * (d + b) * (d + c)).sqrt();
        if scale > 0.0 { (a * d - b * c) / scale } else { 0.0 }
    }
}

/// The best threshold for `predictions`, pairs of a probability and the truth. O(n log n).
#[must_use]
pub(crate) fn best_quality(predictions: impl Iterator<Item = (f64, bool)>) -> Quality {
    let mut sorted: Vec<(f64, bool)> = predictions.collect();
    sorted.sort_by(|one, other| other.0.total_cmp(&one.0));
    let yes = sorted.iter().filter(|(_, truth)| *truth).count() as u64;
    let mut said = ConfusionMatrix {
        false_no: yes,
        true_no: sorted.len() as u64 - yes,
        ..ConfusionMatrix::default()
    };
    let mut best = Quality::default();
    for (index, &(p, truth)) in sorted.iter().enumerate() {
        if truth {
            said.true_yes += 1;
            said.false_no -= 1;
        } else {
            said.false_yes += 1;
            said.true_no -= 1;
        }
        // Equal predictions fall on one side of any threshold.
        let is_last = sorted.get(index + 1).is_none_or(|next| next.0 < p);
        if is_last && said.mcc() > best.mcc {
            best = Quality { mcc: said.mcc(), threshold: p };
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(predictions: &[(f64, bool)], mcc: f64, threshold: f64) {
        let quality = best_quality(predictions.iter().copied());
        assert!((quality.mcc - mcc).abs() < 1e-12, "{quality:?}");
        assert_eq!(quality.threshold, threshold);
    }

    #[test]
    fn the_best_threshold_is_found_among_equal_predictions_too() {
        let (yes, no) = (true, false);
        check(&[(0.9, yes), (0.8, yes), (0.2, no)], 1.0, 0.8);
        // At 0.7 one of two is right, at 0.9 no further pair is separated: by hand, 2 of 4.
        check(&[(0.9, yes), (0.7, no), (0.7, yes), (0.1, no)], 1.0 / 3f64.sqrt(), 0.9);
        check(&[(0.5, yes), (0.5, no)], 0.0, 0.0);
        check(&[(0.5, yes), (0.4, yes)], 0.0, 0.0);
        check(&[], 0.0, 0.0);
    }

    #[test]
    fn a_table_by_hand_has_its_coefficient() {
        let table = ConfusionMatrix { true_yes: 6, false_yes: 1, false_no: 2, true_no: 3 };
        assert!((table.mcc() - 16.0 / (7.0 * 8.0 * 4.0 * 5.0f64).sqrt()).abs() < 1e-12);
    }
}
