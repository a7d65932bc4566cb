//! The knee of a hit-rate curve: where more room begins to pay less.
//!
//! Source: Satopää, Albrecht, Irwin and Raghavan, "Finding a 'Kneedle' in a Haystack: Detecting
//! Knee Points in System Behavior", ICDCS workshops 2011, in its offline form with the
//! sensitivity one. The horizontal axis is the logarithm of the capacity, as hit-rate curves are
//! drawn. Two differences: nothing is smoothed, because counts have no noise; and of several
//! knees the one farthest above the diagonal is reported.
//!
//! ```text
//! rate │        ·──────·   knee: the point highest above the line from
//!      │     ●             the first point to the last
//!      │   ·
//!      └───────────────    log capacity
//! ```
//!
//! A knee is relative to the sizes looked at: a curve that continues to twice the room may have
//! another. Does not know what a block costs or what a hit is worth.

/// Fewer points than this show no shape.
pub const POINTS_MIN: usize = 5;

/// A curve that rises by less than this share of all look-ups is flat.
pub const RISE_MIN: f64 = 0.01;

/// The paper's S: how far a curve must fall below its knee, in mean distances between points.
const SENSITIVITY: f64 = 1.0;

/// The point of `curve`, (capacity, hit rate) by growing capacity, at which it bends; `None`
/// for a curve that is flat, has too few points or does not bend. O(points²).
///
/// # Panics
/// When capacities do not grow from above 0.
#[must_use]
pub fn knee(curve: &[(u64, f64)]) -> Option<usize> {
    let grows = curve.windows(2).all(|pair| pair[0].0 < pair[1].0);
    assert!(grows && curve.first().is_none_or(|first| first.0 > 0), "capacities grow from above 0");
    let points = curve.iter().map(|&(capacity, rate)| (capacity as f64, rate));
    let points: Vec<_> = points.map(|(x, y)| (x.ln(), y)).collect();
    let (low, high) = bounds(points.iter().map(|point| point.1));
    (points.len() >= POINTS_MIN && high - low >= RISE_MIN).then(|| kneedle(&points)).flatten()
}

/// The paper's detection on points with growing x that are not all of one height.
fn kneedle(points: &[(f64, f64)]) -> Option<usize> {
    let (left, right) = bounds(points.iter().map(|point| point.0));
    let (low, high) = bounds(points.iter().map(|point| point.1));
    let above: Vec<f64> = points
        .iter()
        .map(|(x, y)| (y - low) / (high - low) - (x - left) / (right - left))
        .collect();
    // The paper's threshold: the mean distance of points on an axis from 0 to 1.
    let fall = SENSITIVITY / (points.len() - 1) as f64;
    let inner = 1..points.len() - 1;
    inner
        .filter(|&index| is_peak(&above, index) && falls_by(&above[index..], fall))
        // Of several knees the one highest above the diagonal.
        .max_by(|&one, &two| above[one].total_cmp(&above[two]))
}

fn is_peak(above: &[f64], index: usize) -> bool {
    above[index] > 0.0 && above[index] > above[index - 1] && above[index] >= above[index + 1]
}

/// Whether values fall by more than `fall` below the first before they rise again.
fn falls_by(values: &[f64], fall: f64) -> bool {
    let descent = values.windows(2).take_while(|pair| pair[1] <= pair[0]);
    descent.last().is_some_and(|pair| values[0] - pair[1] > fall)
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rates: &[f64], expected: Option<usize>) {
        let curve: Vec<_> =
            (0u32..).zip(rates).map(|(index, &rate)| (1_000 << index, rate)).collect();
        assert_eq!(knee(&curve), expected, "{rates:?}");
    }

    #[test]
    fn the_bend_is_found() {
        check(&[0.1, 0.3, 0.4, 0.42, 0.43, 0.43], Some(2));
        // S-shaped: below the diagonal first.
        check(&[0.0, 0.01, 0.02, 0.2, 0.35, 0.36, 0.36, 0.36], Some(4));
        // Two bends: the one farther above the diagonal.
        check(&[0.0, 0.2, 0.2, 0.2, 0.5, 0.5, 0.5, 0.5], Some(4));
    }

    #[test]
    fn what_does_not_bend_has_no_knee() {
        check(&[], None);
        check(&[0.1, 0.5, 0.5, 0.5], None);
        check(&[0.1, 0.2, 0.3, 0.4, 0.5], None);
        check(&[0.1, 0.1, 0.1, 0.3, 0.6], None);
        check(&[0.4, 0.404, 0.405, 0.406, 0.406], None);
        check(&[0.3; 6], None);
    }

    /// The paper's example, y = 5 - 1 / (x + 0.1) at ten points from 0 to 1.
    #[test]
    fn the_example_of_the_paper_bends_where_it_says() {
        let xs = (0..10).map(|index| f64::from(index) / 9.0);
        let points: Vec<_> = xs.map(|x| (x, 5.0 - 1.0 / (x + 0.1))).collect();
        let knee = kneedle(&points).expect("it bends");
        assert!((points[knee].0 - 0.22).abs() < 0.01);
    }
}
