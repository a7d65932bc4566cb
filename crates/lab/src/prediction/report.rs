//! Report of an experiment, in several formats.
//!
//! [`ExperimentReport`] holds the measurements, run by run. Means, spreads and gains are computed
//! here, where they are shown. The study's published figures are in [`published`].

mod csv;
mod html;
mod json;
mod published;
mod table;
mod winner;

use crate::prediction::chat::{ChatOutcome, ContextBin, Replica, TurnTally};
use crate::prediction::experiment::PredictionSource;
use crate::prediction::workload::ChatWorkload;

pub(crate) use csv::csv;
pub(crate) use html::page;
pub(crate) use json::json_lines;
pub(crate) use table::table;

use super::grid::{RunGroup, SweepAxis, SweepPoint};

/// An oracle that is less than this above LRU leaves no gap to be divided.
const GAP_MIN: f64 = 0.002;

/// Facts for the reader of a report.
#[derive(Debug)]
pub(crate) struct ExperimentFacts {
    /// A sentence about the conversations.
    pub(crate) source: String,
    /// The published data set, if it is one.
    pub(crate) workload: Option<ChatWorkload>,
    pub(crate) replica: Replica,
    pub(crate) minutes: f64,
    pub(crate) warm_up_minutes: f64,
    /// Conversations open at once and seeds, where gaps and starts are drawn.
    pub(crate) drawn: Option<(usize, usize)>,
    /// Predictor for `lpc`.
    pub(crate) predictor: PredictionSource,
}

/// One run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunMeasurements {
    /// Cached prompt tokens of prompt tokens.
    pub(crate) hit_rate: f64,
    pub(crate) requests: u64,
    pub(crate) requests_per_s: f64,
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
    pub(crate) computed_per_s: f64,
    /// MCC of the predicted probabilities, at their best threshold; 0 without predictions.
    pub(crate) mcc: f64,
    pub(crate) preemptions: u64,
    pub(crate) refused: u64,
    pub(crate) turns: Vec<(u16, TurnTally)>,
    pub(crate) contexts: Vec<ContextBin>,
}

/// An experiment.
#[derive(Debug)]
pub(crate) struct ExperimentReport {
    pub(crate) facts: ExperimentFacts,
    /// Groups of runs.
    groups: Vec<RunGroup>,
    /// Groups to show, sweep by sweep.
    shown: Vec<SweepPoint>,
    /// Per group and seed.
    measured: Vec<Vec<RunMeasurements>>,
}

/// An arm at a point of a sweep.
#[derive(Clone, Copy, Debug)]
struct ArmPoint<'a> {
    shown: &'a SweepPoint,
    group: &'a RunGroup,
    runs: &'a [RunMeasurements],
    /// Mean of the seeds.
    hit_rate: f64,
    /// The greatest less the least.
    spread: f64,
    /// The least difference to LRU at the same seed.
    least: f64,
    /// Relative to LRU; `None` where that hits nothing.
    gain: Option<f64>,
    /// Share of the gap between LRU and the oracle; `None` without a gap.
    closed: Option<f64>,
}

impl RunMeasurements {
    /// The figures of a run with blocks of `block_tokens`.
    pub(crate) fn of(outcome: &ChatOutcome, block_tokens: u32) -> Self {
        let per_s = |count: u64| count as f64 / outcome.seconds.max(f64::MIN_POSITIVE);
        Self {
            hit_rate: outcome.tokens.rate(),
            requests: outcome.requests(),
            requests_per_s: per_s(outcome.requests()),
            prompt_tokens: outcome.tokens.lookups,
            cached_tokens: outcome.tokens.hits,
            computed_per_s: per_s(outcome.computed_tokens),
            mcc: outcome.quality().mcc,
            preemptions: outcome.preemptions,
            refused: outcome.refused,
            turns: outcome.turns.iter().map(|(&turn, &times)| (turn, times)).collect(),
            contexts: outcome.contexts(block_tokens),
        }
    }
}

impl ExperimentReport {
    /// Unites what was asked for with what was measured: per group as many runs as seeds.
    pub(crate) fn new(
        facts: ExperimentFacts,
        grid: super::grid::Grid,
        measured: Vec<Vec<RunMeasurements>>,
    ) -> Self {
        Self { facts, groups: grid.groups, shown: grid.shown, measured }
    }

    /// The lines of a sweep, point by point.
    fn lines(&self, sweep: SweepAxis) -> Vec<ArmPoint<'_>> {
        let shown = self.shown.iter().filter(|shown| shown.sweep == sweep);
        shown.map(|shown| self.line(shown)).collect()
    }

    fn line<'a>(&'a self, shown: &'a SweepPoint) -> ArmPoint<'a> {
        let runs = &self.measured[shown.group];
        let hit_rate = mean(runs, |run| run.hit_rate);
        let lru = mean(&self.measured[shown.lru], |run| run.hit_rate);
        let oracle = mean(&self.measured[shown.oracle], |run| run.hit_rate);
        ArmPoint {
            shown,
            group: &self.groups[shown.group],
            runs,
            hit_rate,
            spread: spread(runs),
            least: least(runs, &self.measured[shown.lru]),
            gain: (lru > 0.0).then(|| hit_rate / lru - 1.0),
            closed: (oracle - lru >= GAP_MIN).then(|| (hit_rate - lru) / (oracle - lru)),
        }
    }

    /// The sweeps that were run, in the order of their tables.
    fn sweeps(&self) -> Vec<SweepAxis> {
        let all = [SweepAxis::Size, SweepAxis::Lambda, SweepAxis::Mcc, SweepAxis::Charge];
        let is_shown = |sweep: &SweepAxis| self.shown.iter().any(|shown| shown.sweep == *sweep);
        all.into_iter().filter(is_shown).collect()
    }
}

fn mean(runs: &[RunMeasurements], figure: impl Fn(&RunMeasurements) -> f64) -> f64 {
    runs.iter().map(figure).sum::<f64>() / runs.len().max(1) as f64
}

fn spread(runs: &[RunMeasurements]) -> f64 {
    let rates = runs.iter().map(|run| run.hit_rate);
    let (low, high) = rates.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), rate| {
        (low.min(rate), high.max(rate))
    });
    (high - low).max(0.0)
}

/// Returns the smallest gain in hit rate of `runs` over `others`, paired by seed.
fn least(runs: &[RunMeasurements], others: &[RunMeasurements]) -> f64 {
    let pairs = runs.iter().zip(others);
    let differences = pairs.map(|(run, other)| run.hit_rate - other.hit_rate);
    differences.reduce(f64::min).unwrap_or(0.0)
}

/// The name of a sweep's axis.
fn axis(sweep: SweepAxis) -> &'static str {
    match sweep {
        SweepAxis::Size => "cache size, tokens",
        SweepAxis::Lambda => "mean gap, s",
        SweepAxis::Mcc => "predictor MCC",
        SweepAxis::Charge => "charge, GB",
    }
}

/// The name of a sweep on the command line.
fn sweep_name(sweep: SweepAxis) -> &'static str {
    match sweep {
        SweepAxis::Size => "size",
        SweepAxis::Lambda => "lambda",
        SweepAxis::Mcc => "mcc",
        SweepAxis::Charge => "charge",
    }
}

fn signed(rate: f64) -> String {
    format!("{:+.1} %", rate * 100.0)
}

#[cfg(test)]
mod testing {
    use super::*;
    use crate::prediction::experiment::Arm;
    use crate::prediction::grid::Grid;
    use crate::prediction::workload::WORKLOADS;

    /// A report on LMSys with these arms, sizes and hit rates per seed.
    pub(super) fn report(cells: &[(&str, u32, &[f64])]) -> ExperimentReport {
        let find = |name: &str, size: u32| {
            let mut cells = cells.iter();
            let found = cells.position(|cell| cell.0 == name && cell.1 == size);
            found.expect("LRU and the oracle stand beside")
        };
        let mut grid = Grid::default();
        let mut measured = Vec::new();
        for (group, &(name, size, rates)) in cells.iter().enumerate() {
            grid.groups.push(RunGroup {
                gap: 0,
                size_tokens: size,
                arm: Arm {
                    policy: name.to_owned(),
                    predictor: PredictionSource::Nobody,
                    charge_tokens: 0,
                },
            });
            grid.shown.push(SweepPoint {
                sweep: SweepAxis::Size,
                x: f64::from(size),
                arm: name.to_owned(),
                group,
                lru: find("lru", size),
                oracle: find("oracle", size),
            });
            let run = |&hit_rate: &f64| RunMeasurements {
                hit_rate,
                requests: 10,
                ..RunMeasurements::default()
            };
            measured.push(rates.iter().map(run).collect());
        }
        let facts = ExperimentFacts {
            source: "made up".to_owned(),
            workload: Some(WORKLOADS[0]),
            replica: Replica::lpc(),
            minutes: 20.0,
            warm_up_minutes: 0.0,
            drawn: Some((200, 2)),
            predictor: PredictionSource::Nobody,
        };
        ExperimentReport::new(facts, grid, measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gain_spread_and_the_closed_share_are_of_means() {
        let report = testing::report(&[
            ("lru", 60_000, &[0.1, 0.3]),
            ("lpc", 60_000, &[0.3, 0.3]),
            ("oracle", 60_000, &[0.5, 0.7]),
        ]);
        let lines = report.lines(SweepAxis::Size);
        let close = |got: f64, expected: f64| assert!((got - expected).abs() < 1e-12, "{got}");
        close(lines[1].hit_rate, 0.3);
        close(lines[1].gain.expect("LRU hits"), 0.5);
        close(lines[1].closed.expect("a gap"), 0.25);
        close(lines[0].spread, 0.2);
        close(lines[1].least, 0.0);
        close(lines[2].closed.expect("a gap"), 1.0);
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        let report = testing::report(&[("lru", 6, &[0.0]), ("oracle", 6, &[0.0])]);
        let line = report.lines(SweepAxis::Size)[0];
        assert_eq!((line.gain, line.closed), (None, None));
    }
}
