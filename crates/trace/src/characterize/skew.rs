//! Skew of a quantity over its owners.
//!
//! Source: Lorenz 1905 for the curve, Gini 1912 for the number.

use std::collections::BTreeMap;

use super::report::Skew;

/// Points of a Lorenz curve.
const POINTS: usize = 50;

/// Number of owners by amount.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OwnerHistogram(BTreeMap<u64, u64>);

impl OwnerHistogram {
    /// Adds `owners` owners with `amount` each.
    pub(super) fn add(&mut self, amount: u64, owners: u64) {
        if owners > 0 {
            *self.0.entry(amount).or_insert(0) += owners;
        }
    }

    pub(super) fn skew(&self) -> Skew {
        let owners: u64 = self.0.values().sum();
        let total: u64 = self.0.iter().map(|(amount, owners)| amount * owners).sum();
        // The shares of nothing would be 0 / 0.
        if total == 0 {
            return Skew { owners, ..Skew::default() };
        }
        let corners = self.corners(owners, total);
        let mut area = 0.0;
        // Trapezoids are exact here, because the curve consists of straight lines.
        for pair in corners.windows(2) {
            area += (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0;
        }
        let lorenz = (0..=POINTS).map(|point| {
            let share = point as f64 / POINTS as f64;
            (share, at(&corners, share))
        });
        Skew {
            owners,
            total,
            // Rounding can make equal amounts slightly negative.
            gini: (1.0 - 2.0 * area).max(0.0),
            top_1_percent: 1.0 - at(&corners, 0.99),
            top_10_percent: 1.0 - at(&corners, 0.90),
            lorenz: lorenz.collect(),
        }
    }

    /// Returns the corners of the Lorenz curve: owners of one amount are a straight line.
    fn corners(&self, owners: u64, total: u64) -> Vec<(f64, f64)> {
        let mut corners = vec![(0.0, 0.0)];
        let (mut owners_below, mut total_below) = (0, 0);
        for (amount, number) in &self.0 {
            owners_below += number;
            total_below += amount * number;
            let share = |part: u64, of: u64| part as f64 / of as f64;
            corners.push((share(owners_below, owners), share(total_below, total)));
        }
        corners
    }
}

/// The curve's height at a share of owners.
fn at(corners: &[(f64, f64)], share: f64) -> f64 {
    let right = corners.partition_point(|corner| corner.0 < share);
    if right == 0 {
        return 0.0;
    }
    let Some(&(x1, y1)) = corners.get(right) else {
        return 1.0;
    };
    // Corner `right` is the first at or beyond `share`, so `x0 < share <= x1`.
    let (x0, y0) = corners[right - 1];
    y0 + (y1 - y0) * (share - x0) / (x1 - x0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(amounts: &[u64], gini: f64, top_10_percent: f64) {
        let mut owners = OwnerHistogram::default();
        amounts.iter().for_each(|&amount| owners.add(amount, 1));
        let skew = owners.skew();
        assert_eq!(skew.owners, amounts.len() as u64);
        assert!((skew.gini - gini).abs() < 1e-9, "{skew:?}");
        assert!((skew.top_10_percent - top_10_percent).abs() < 1e-9, "{skew:?}");
        // The definition: the mean difference of all pairs, over twice the mean.
        let pairs = amounts.iter().flat_map(|a| amounts.iter().map(|b| a.abs_diff(*b)));
        let differences = pairs.sum::<u64>() as f64;
        let total = amounts.iter().sum::<u64>() as f64;
        if total > 0.0 {
            let slow = differences / (2.0 * amounts.len() as f64 * total);
            assert!((skew.gini - slow).abs() < 1e-9);
        }
    }

    #[test]
    fn equal_shares_have_no_skew_and_one_owner_of_all_has_most() {
        check(&[3; 20], 0.0, 0.1);
        check(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 7], 0.9, 1.0);
        check(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 0.3, 10.0 / 55.0);
        check(&[], 0.0, 0.0);
        check(&[0, 0], 0.0, 0.0);
    }
}
