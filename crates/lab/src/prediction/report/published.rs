//! Published figures of the study, and ours beside them.
//!
//! Source: Yang, Li, Li, Lloyd, "Learned Prefix Caching for Efficient LLM Inference", NeurIPS
//! 2025, as third parties' reading cards give its tables, and its authors' code. Its curves were
//! not to be had: only ranges over their points are published.

use crate::prediction::experiment::CHARGE_TOKENS;
use crate::prediction::saturation::Saturation;

use super::table::{largest, medians};
use super::{ArmPoint, ExperimentReport};
use crate::prediction::grid::{SweepAxis, kilo};

/// Source of the figures.
pub(super) const SOURCES: &str = "Learned Prefix Caching, NeurIPS 2025";

/// One published figure.
#[derive(Clone, Debug)]
pub(super) struct PublishedFigure {
    pub(super) name: String,
    pub(super) published: &'static str,
    /// `None` where what it needs was not run.
    pub(super) ours: Option<String>,
    /// Options or context that produce ours.
    pub(super) needs: &'static str,
}

/// Published figures of one data set.
struct PublishedResults {
    name: &'static str,
    gain: &'static str,
    closed: &'static str,
    saved: &'static str,
    predictor: &'static str,
    turn_count: &'static str,
}

const PUBLISHED: [PublishedResults; 3] = [
    PublishedResults {
        name: "lmsys",
        gain: "13 to 38 %",
        closed: "22 to 30 %",
        saved: "up to 18 %",
        predictor: "0.36 to 0.39",
        turn_count: "0.35",
    },
    PublishedResults {
        name: "sharegpt",
        gain: "14 to 98 %",
        closed: "28 to 64 %",
        saved: "up to 30 %",
        predictor: "0.28",
        turn_count: "0.00",
    },
    PublishedResults {
        name: "arena",
        gain: "15 to 30 %",
        closed: "25 to 28 %",
        saved: "43 % (85 K for 150 K)",
        predictor: "0.29 (another source: 0.37)",
        turn_count: "0.08",
    },
];

/// All figures of the data set; none where the conversations are others.
pub(super) fn figures(report: &ExperimentReport) -> Vec<PublishedFigure> {
    let Some(workload) = report.facts.workload else {
        return Vec::new();
    };
    let published = PUBLISHED.iter().find(|figures| figures.name == workload.name);
    let published = published.expect("every data set has its figures");
    let mut figures = by_size(report, published);
    figures.push(PublishedFigure {
        name: "hit rate over LRU, gaps varied, 40 GB".to_owned(),
        published: "5 to 18 %",
        ours: range(&of(report, SweepAxis::Lambda, "lpc"), |line| line.gain),
        needs: "--sweep lambda --lambda 50,100,200",
    });
    figures.extend([("40 GB", 160_000, "0.6 to 2.4 %"), ("16 GB", 64_000, "2.3 to 8.1 %")].map(
        |(name, size, published)| PublishedFigure {
            name: format!("hit rate lost by charging 1 GB of {name}"),
            published,
            ours: charged(report, size),
            needs: "--sweep charge --at 64K,160K",
        },
    ));
    figures.extend(engine(report));
    figures
}

fn by_size(report: &ExperimentReport, published: &PublishedResults) -> Vec<PublishedFigure> {
    let lpc = of(report, SweepAxis::Size, "lpc");
    let needs = "--sweep size --policies lru,turn-only,lpc,oracle";
    let figure = |name: &str, published, ours| PublishedFigure {
        name: name.to_owned(),
        published,
        ours,
        needs,
    };
    let mcc = |arm: &str| {
        let lines = of(report, SweepAxis::Size, arm);
        let line = lines.last()?;
        Some(format!("{:.3}", super::mean(line.runs, |run| run.mcc)))
    };
    let everything = report.lines(SweepAxis::Size);
    let spreads = everything.iter().map(|line| line.spread);
    let spread = spreads.reduce(f64::max).map(|spread| format!("at most {spread:.4}"));
    vec![
        figure("hit rate over LRU, sizes varied", published.gain, range(&lpc, |point| point.gain)),
        figure(
            "share of the gap to the oracle",
            published.closed,
            range(&lpc, |point| point.closed),
        ),
        figure("cache saved at LRU's hit rate", published.saved, saved(report)),
        figure("MCC of the predictor", published.predictor, mcc("lpc")),
        figure("MCC of the turn count", published.turn_count, mcc("turn-only")),
        figure("greatest less least of the seeds", "below 0.013", spread),
    ]
}

/// Returns the figures that depend only on the engine: throughput by hit rate, and TTFT.
fn engine(report: &ExperimentReport) -> Vec<PublishedFigure> {
    let replica = &report.facts.replica;
    let rate = |hit_rate| {
        let load = Saturation::published(hit_rate, replica.scheduler.block_size);
        Some(load.run(replica)?.requests_per_s)
    };
    let rates = rate(0.35).zip(rate(0.42));
    let hits = largest(report, "lru").map(|line| medians(&line)).unwrap_or_default();
    let saved: Vec<f64> = hits.iter().filter_map(super::table::Median::saved).collect();
    vec![
        PublishedFigure {
            name: "prefills per second, 35 to 42 % hits".to_owned(),
            published: "10.01 to 11.11 (+11.1 %)",
            ours: rates.map(|(few, many)| {
                let more = (many / few - 1.0) * 100.0;
                format!("{few:.2} to {many:.2} ({more:+.1} %), calibrated on it")
            }),
            needs: "a context of 1,051 tokens",
        },
        PublishedFigure {
            name: "TTFT less on a hit, by context length".to_owned(),
            published: "42 to 75 %",
            ours: bounds(saved.into_iter()),
            needs: "--sweep size --policies lru",
        },
    ]
}

/// The lines of `arm` in a sweep; other sweeps than that of sizes name the size too.
fn of<'a>(report: &'a ExperimentReport, sweep: SweepAxis, arm: &str) -> Vec<ArmPoint<'a>> {
    let at_size = format!("{arm} at ");
    let is_arm =
        |line: &ArmPoint<'_>| line.shown.arm == arm || line.shown.arm.starts_with(&at_size);
    report.lines(sweep).into_iter().filter(is_arm).collect()
}

fn range(lines: &[ArmPoint<'_>], figure: impl Fn(&ArmPoint<'_>) -> Option<f64>) -> Option<String> {
    bounds(lines.iter().filter_map(figure))
}

fn bounds(figures: impl Iterator<Item = f64>) -> Option<String> {
    let (low, high) = figures.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), figure| {
        (low.min(figure), high.max(figure))
    });
    let whole = |share: f64| format!("{:.0}", share * 100.0);
    (low <= high).then(|| format!("{} to {} %", whole(low), whole(high)))
}

/// The most of LRU's cache that `lpc` does without at an equal hit rate, with straight lines
/// between the sizes.
fn saved(report: &ExperimentReport) -> Option<String> {
    let curve = |arm: &str| {
        let lines = of(report, SweepAxis::Size, arm);
        let mut curve: Vec<_> = lines.iter().map(|line| (line.shown.x, line.hit_rate)).collect();
        curve.sort_by(|one, other| one.0.total_cmp(&other.0));
        curve
    };
    let (lru, lpc) = (curve("lru"), curve("lpc"));
    let saved = lru.iter().filter_map(|&(size, rate)| {
        let enough = size_for(&lpc, rate)?;
        Some((1.0 - enough / size, enough, size))
    });
    let (share, enough, size) = saved.max_by(|one, other| one.0.total_cmp(&other.0))?;
    Some(format!(
        "up to {:.0} % ({} for {})",
        share * 100.0,
        kilo((enough / 1e3).round() as u32 * 1_000),
        kilo(size as u32)
    ))
}

/// The size at which `curve` reaches `rate`; `None` where it does so below or above all sizes.
fn size_for(curve: &[(f64, f64)], rate: f64) -> Option<f64> {
    let pair = curve.windows(2).find(|pair| pair[0].1 <= rate && rate <= pair[1].1)?;
    let (below, above) = (pair[0], pair[1]);
    let rise = above.1 - below.1;
    let share = if rise > 0.0 { (rate - below.1) / rise } else { 0.0 };
    Some(below.0 + share * (above.0 - below.0))
}

/// The share of the hit rate that a charge of 1 GB costs at a size.
fn charged(report: &ExperimentReport, size: u32) -> Option<String> {
    let rate = |charge_tokens: u32| {
        let lines = of(report, SweepAxis::Charge, "lpc");
        let mut lines = lines.iter().filter(|line| line.group.size_tokens == size);
        let line = lines.find(|line| line.group.arm.charge_tokens == charge_tokens)?;
        Some(line.hit_rate)
    };
    let (free, charged) = (rate(0)?, rate(CHARGE_TOKENS)?);
    Some(format!("{:.1} %", (1.0 - charged / free) * 100.0))
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn a_size_is_found_between_two_points() {
        let curve = [(60.0, 0.1), (80.0, 0.2), (100.0, 0.2)];
        let check = |rate, expected| assert_eq!(size_for(&curve, rate), expected, "{rate}");
        check(0.1, Some(60.0));
        check(0.2, Some(80.0));
        check(0.05, None);
        check(0.3, None);
        let half = size_for(&curve, 0.15).expect("between");
        assert!((half - 70.0).abs() < 1e-9);
    }

    #[test]
    fn every_published_figure_is_listed_whether_it_was_run_or_not() {
        let report = testing::report(&[
            ("lru", 60_000, &[0.2]),
            ("oracle", 60_000, &[0.4]),
            ("lpc", 60_000, &[0.25]),
            ("lru", 80_000, &[0.3]),
            ("oracle", 80_000, &[0.5]),
            ("lpc", 80_000, &[0.35]),
        ]);
        let figures = figures(&report);
        assert_eq!(figures.len(), 11);
        let ours = |index: usize| figures[index].ours.as_deref();
        assert_eq!(ours(0), Some("17 to 25 %"));
        assert_eq!(ours(1), Some("25 to 25 %"));
        assert_eq!(ours(2), Some("up to 12 % (70K for 80K)"));
        assert_eq!(ours(6), None);
        assert!(ours(9).is_some_and(|ours| ours.starts_with("10.0")));
    }
}
