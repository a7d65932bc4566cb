//! The policy with the most hits and its lead, in one or two sentences.

use headstart_core::figures::{percent_to_hundredths, thousands};

use super::{ArmPoint, ExperimentReport, axis};
use crate::prediction::grid::SweepAxis;

/// The arm that knows what comes: a bound, no rival.
const BOUND: &str = "oracle";

/// Rates that are closer to each other are called equal.
const ALIKE: f64 = 0.001;

/// The winner at the last point of the first sweep; none where nothing was run.
pub(super) fn sentences(report: &ExperimentReport) -> Vec<String> {
    let Some(&sweep) = report.sweeps().first() else {
        return Vec::new();
    };
    let mut lines = report.lines(sweep);
    let last = lines.iter().map(|line| line.shown.x).reduce(f64::max);
    lines.retain(|line| Some(line.shown.x) == last);
    lines.sort_by(|one, other| other.hit_rate.total_cmp(&one.hit_rate));
    let (bounds, rivals): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.shown.arm == BOUND);
    let mut sentences = Vec::new();
    if let Some((best, others)) = rivals.split_first() {
        sentences.push(format!("At {}, {}.", place(sweep, best), verdict(best, others)));
    }
    if let Some(bound) = bounds.first() {
        let rate = percent_to_hundredths(bound.hit_rate);
        sentences.push(format!("The oracle, an upper bound, has {rate}."));
    }
    sentences
}

fn place(sweep: SweepAxis, line: &ArmPoint<'_>) -> String {
    match sweep {
        SweepAxis::Size => format!("{} cache tokens", thousands(line.shown.x as u64)),
        _ => format!("{} {}", axis(sweep), line.shown.x),
    }
}

fn verdict(best: &ArmPoint<'_>, others: &[ArmPoint<'_>]) -> String {
    let (arm, rate) = (&best.shown.arm, percent_to_hundredths(best.hit_rate));
    let Some(next) = others.first() else {
        return format!("{arm} has a hit rate of {rate}");
    };
    let more = best.hit_rate - next.hit_rate;
    if more < ALIKE {
        let other = &next.shown.arm;
        return format!("{arm} and {other} have the same hit rate, {rate}");
    }
    let points = format!("{:.1} points above {}", more * 100.0, next.shown.arm);
    format!("{arm} wins with a hit rate of {rate}, {points}")
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[track_caller]
    fn check(cells: &[(&str, u32, &[f64])], expected: &[&str]) {
        assert_eq!(sentences(&testing::report(cells)), expected);
    }

    #[test]
    fn the_policy_with_the_best_hit_rate_at_the_largest_cache_wins() {
        check(
            &[
                ("lru", 60_000, &[0.9]),
                ("lpc", 60_000, &[0.1]),
                ("oracle", 60_000, &[0.9]),
                ("lru", 80_000, &[0.2]),
                ("lpc", 80_000, &[0.2, 0.3]),
                ("oracle", 80_000, &[0.4]),
            ],
            &[
                "At 80,000 cache tokens, lpc wins with a hit rate of 25.00 %, 5.0 points above \
                 lru.",
                "The oracle, an upper bound, has 40.00 %.",
            ],
        );
    }

    #[test]
    fn equal_and_single_policies_win_nothing() {
        check(
            &[("lru", 6, &[0.2]), ("lpc", 6, &[0.2]), ("oracle", 6, &[0.4])],
            &[
                "At 6 cache tokens, lru and lpc have the same hit rate, 20.00 %.",
                "The oracle, an upper bound, has 40.00 %.",
            ],
        );
        check(
            &[("lru", 6, &[0.2]), ("oracle", 6, &[0.4])],
            &[
                "At 6 cache tokens, lru has a hit rate of 20.00 %.",
                "The oracle, an upper bound, has 40.00 %.",
            ],
        );
    }
}
