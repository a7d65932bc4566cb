//! Host memory by policies, beside what the ATC'25 study says: table, JSON lines, sentences.

mod json;
mod table;

use crate::host_memory::cell::WildMeasurements;
use crate::host_memory::published::{
    BASELINES, Gain, OVER_BEST, OVER_OTHERS, QTTFT, RangePosition,
};
use headstart_core::stats::{HitCount, Summary};
use headstart_sim::wild::WildModel;

pub(crate) use json::json_lines;
pub(crate) use table::table;

/// Results of a run.
#[derive(Debug)]
pub(crate) struct WildReport {
    pub(crate) facts: WildFacts,
    /// Models × host memory × policies.
    pub(crate) rows: Vec<WildRow>,
}

/// Facts for the reader.
#[derive(Debug)]
pub(crate) struct WildFacts {
    /// The traffic, or the trace's file.
    pub(crate) name: String,
    /// Description of the traffic, in sentences.
    pub(crate) told: Vec<String>,
    pub(crate) block_tokens: u32,
    pub(crate) minutes: f64,
    pub(crate) warm_up_minutes: f64,
    /// Runs of each row.
    pub(crate) seeds: usize,
}

/// One policy with so much host memory.
#[derive(Debug)]
pub(crate) struct WildRow {
    pub(crate) model: WildModel,
    pub(crate) policy: String,
    pub(crate) host_times: f64,
    /// One per seed.
    pub(crate) runs: Vec<WildMeasurements>,
}

impl WildRow {
    /// Blocks of all seeds together.
    fn blocks(&self) -> HitCount {
        sum(self.runs.iter().map(|run| run.blocks))
    }

    fn tokens(&self) -> HitCount {
        sum(self.runs.iter().map(|run| run.tokens))
    }

    /// Share of the tokens that was found on the device.
    fn device_rate(&self) -> f64 {
        let found: u64 = self.runs.iter().map(|run| run.device_tokens).sum();
        found as f64 / self.tokens().lookups.max(1) as f64
    }

    /// Mean over the seeds of a figure of the queued times to the first token.
    fn qttft_s(&self, figure: impl Fn(&Summary) -> f64) -> f64 {
        let seconds: f64 = self.runs.iter().map(|run| figure(&run.qttft_s)).sum();
        seconds / self.runs.len().max(1) as f64
    }

    fn refused(&self) -> u64 {
        self.runs.iter().map(|run| run.refused).sum()
    }

    /// Workload-aware, published or ours.
    fn is_subject(&self) -> bool {
        self.policy.split(':').next() == Some("wa")
    }

    fn is_baseline(&self) -> bool {
        BASELINES.contains(&self.policy.as_str())
    }

    fn is_beside(&self, other: &Self) -> bool {
        self.model == other.model && self.host_times == other.host_times
    }
}

fn sum(counts: impl Iterator<Item = HitCount>) -> HitCount {
    counts.fold(HitCount::default(), |mut all, count| {
        all.add(count);
        all
    })
}

/// Gains of a policy over the baselines, by seed.
#[derive(Debug)]
struct Gains<'a> {
    row: &'a WildRow,
    /// The baseline with the best hit rate, all seeds together.
    best: &'a WildRow,
    by_seed: Vec<Gain>,
}

impl Gains<'_> {
    fn mean(&self, figure: impl Fn(&Gain) -> f64) -> f64 {
        self.by_seed.iter().map(figure).sum::<f64>() / self.by_seed.len() as f64
    }

    /// The least and the greatest.
    fn range(&self, figure: impl Fn(&Gain) -> f64) -> (f64, f64) {
        let figures = self.by_seed.iter().map(figure);
        figures.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), figure| {
            (low.min(figure), high.max(figure))
        })
    }
}

impl WildReport {
    /// Returns the gains of each workload-aware row over the baselines beside it, if any.
    fn gains(&self) -> Vec<Gains<'_>> {
        let subjects = self.rows.iter().filter(|row| row.is_subject());
        subjects.filter_map(|row| self.gains_of(row)).collect()
    }

    fn gains_of<'a>(&'a self, row: &'a WildRow) -> Option<Gains<'a>> {
        let beside = self.rows.iter().filter(|other| other.is_beside(row));
        let baselines: Vec<&WildRow> = beside.filter(|other| other.is_baseline()).collect();
        let rate = |row: &&&WildRow| row.blocks().rate();
        let best = baselines.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
        let figures = |row: &WildRow, seed: usize| {
            let run = &row.runs[seed];
            (run.blocks.rate(), run.qttft_s.mean)
        };
        let of_seed = |seed: usize| {
            let others: Vec<_> = baselines.iter().map(|baseline| figures(baseline, seed)).collect();
            Gain::of(figures(row, seed), &others)
        };
        let by_seed: Option<Vec<Gain>> = (0..row.runs.len()).map(of_seed).collect();
        let by_seed = by_seed.filter(|gains| !gains.is_empty())?;
        Some(Gains { row, best, by_seed })
    }

    /// Compares the gains of each workload-aware policy with the published ranges.
    fn verdicts(&self) -> Vec<String> {
        let gains = self.gains();
        let mut names: Vec<&str> = Vec::new();
        for gain in &gains {
            if !names.contains(&gain.row.policy.as_str()) {
                names.push(&gain.row.policy);
            }
        }
        let mut told = Vec::new();
        for name in names {
            let own: Vec<&Gains<'_>> =
                gains.iter().filter(|gains| gains.row.policy == name).collect();
            told.push(over(name, &own));
            told.push(faster(name, &own));
        }
        told
    }
}

/// Hit rates.
fn over(name: &str, gains: &[&Gains<'_>]) -> String {
    let best: Vec<f64> = gains.iter().map(|gains| gains.mean(|gain| gain.over_best)).collect();
    let worst: Vec<f64> = gains.iter().map(|gains| gains.mean(|gain| gain.over_worst)).collect();
    let count = |beside| {
        let found = best.iter().filter(|gain| RangePosition::of(**gain, &OVER_BEST) == beside);
        found.count()
    };
    let loses = best.iter().filter(|gain| **gain < 0.0).count();
    format!(
        "{name}: block hits over the best baseline {}, published {:+} to {:+} %: below that in {} \
         of {} settings (worse than the baseline in {loses}), within it in {}, above it in {}; \
         over the worst baseline {}, published over the others {:+} to {:+} %",
        spread(&best),
        OVER_BEST.start(),
        OVER_BEST.end(),
        count(RangePosition::Below),
        best.len(),
        count(RangePosition::Within),
        count(RangePosition::Above),
        spread(&worst),
        OVER_OTHERS.start(),
        OVER_OTHERS.end(),
    )
}

/// Times.
fn faster(name: &str, gains: &[&Gains<'_>]) -> String {
    let best: Vec<f64> = gains.iter().map(|gains| gains.mean(|gain| gain.qttft_best)).collect();
    let worst: Vec<f64> = gains.iter().map(|gains| gains.mean(|gain| gain.qttft_worst)).collect();
    let reaches = |values: &[f64]| values.iter().filter(|change| **change <= *QTTFT.end()).count();
    format!(
        "{name}: mean QTTFT against the best baseline {}, against the slowest {}, published {} to \
         {} %: as much or more is saved in {} and in {} of {} settings",
        spread(&best),
        spread(&worst),
        QTTFT.end(),
        QTTFT.start(),
        reaches(&best),
        reaches(&worst),
        best.len(),
    )
}

/// Least and greatest, percent.
fn spread(values: &[f64]) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{least:+.1} to {most:+.1} %")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a run with `hits` of 1,000 blocks hit, and a mean time.
    fn run(hits: usize, mean: f64) -> WildMeasurements {
        let mut measured = WildMeasurements {
            qttft_s: Summary { count: 10, mean, ..Summary::default() },
            ..WildMeasurements::default()
        };
        measured.blocks.record(1_000, hits);
        measured.tokens.record(16_000, hits * 16);
        measured
    }

    fn report() -> WildReport {
        let row = |policy: &str, host_times, runs: Vec<WildMeasurements>| WildRow {
            model: WildModel::ALL[0],
            policy: policy.to_owned(),
            host_times,
            runs,
        };
        let rows = vec![
            row("lru", 0.0, vec![run(400, 2.0), run(420, 2.0)]),
            row("lfu", 0.0, vec![run(200, 8.0), run(210, 8.0)]),
            row("wa", 0.0, vec![run(408, 1.0), run(441, 2.0)]),
            row("sieve", 0.0, vec![run(900, 0.1), run(900, 0.1)]),
            row("lru", 1.0, vec![run(500, 1.0), run(500, 1.0)]),
            row("wa", 1.0, vec![run(490, 1.1), run(490, 1.1)]),
        ];
        WildReport {
            facts: WildFacts {
                name: "wild-consumer".to_owned(),
                told: vec!["made up".to_owned()],
                block_tokens: 16,
                minutes: 10.0,
                warm_up_minutes: 5.0,
                seeds: 2,
            },
            rows,
        }
    }

    #[test]
    fn gains_are_over_the_baselines_of_the_same_setting() {
        let report = report();
        let gains = report.gains();
        let best: Vec<f64> = gains.iter().map(|gains| gains.mean(|gain| gain.over_best)).collect();
        assert!((best[0] - 3.5).abs() < 1e-9 && (best[1] + 2.0).abs() < 1e-9);
        let (low, high) = gains[0].range(|gain| gain.over_best);
        assert!((low - 2.0).abs() < 1e-9 && (high - 5.0).abs() < 1e-9);
        assert_eq!(gains[0].best.policy, "lru", "sieve is no baseline of theirs");
        assert_eq!(gains.len(), 2);
    }

    #[test]
    fn verdicts_say_where_we_differ() {
        let verdicts = report().verdicts();
        assert!(
            verdicts[0].contains("-2.0 to +3.5 %")
                && verdicts[0]
                    .contains("below that in 1 of 2 settings (worse than the baseline in 1)"),
            "{verdicts:?}"
        );
        assert!(verdicts[1].contains("in 0 and in 1 of 2"), "{verdicts:?}");
    }

    #[test]
    fn every_form_holds_every_row() {
        let report = report();
        let table = table(&report);
        for part in ["qwen2-7b", "host ×0", "×1", "sieve", "published"] {
            assert!(table.contains(part), "{part} in {table}");
        }
        let lines = json_lines(&report);
        assert_eq!(lines.lines().count(), 6 + 2);
        let first = lines.lines().next().expect("a line");
        let first: serde_json::Value = serde_json::from_str(first).expect("JSON");
        assert_eq!(first["block_hit_rate"], 0.41);
        assert_eq!(first["qttft_s"]["mean"], 2.0);
    }
}
