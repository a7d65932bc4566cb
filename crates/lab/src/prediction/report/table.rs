//! Tables for a terminal.

use crate::prediction::chat::ContextBin;
use crate::prediction::experiment::PredictionSource;
use headstart_core::figures::{counted, percent_to_hundredths, thousands};
use headstart_terminal::aligned;

use super::published::{self, PublishedFigure};
use super::{ArmPoint, ExperimentReport, axis, mean, signed, winner};
use crate::prediction::grid::SweepAxis;

/// Legend of the columns.
const LEGEND: &str = "\
hit rate: cached prompt tokens over prompt tokens, average of the seeds
spread: greatest minus least hit rate; worst seed: least difference to lru, points
over LRU: gain relative to lru; gap closed: share of the gap from lru to oracle
MCC: quality of the predictor, 1 is perfect; prefill tok/s: computed prompt tokens
";

/// Requests below which a median says nothing.
const COUNT_MIN: usize = 10;

/// One table per sweep, TTFT by context, and the published figures beside ours.
pub(crate) fn table(report: &ExperimentReport) -> String {
    let mut text = facts(report);
    for sweep in report.sweeps() {
        text += &format!("\n{}", aligned(&sweep_rows(report, sweep)));
    }
    text += &format!("\n{LEGEND}");
    if let Some((title, rows)) = contexts(report) {
        text += &format!("\n{title}\n{}", aligned(&rows));
    }
    let figures = published::figures(report);
    if !figures.is_empty() {
        let sources = published::SOURCES;
        text += &format!("\npublished and ours ({sources})\n{}", aligned(&beside(&figures)));
    }
    format!("{}\n\n{}", text.trim_end(), winner::sentences(report).join(" "))
}

pub(super) fn facts(report: &ExperimentReport) -> String {
    let facts = &report.facts;
    let cost = &facts.replica.cost;
    let mut text = format!("{}\n", facts.source);
    let minutes = (facts.minutes * 10.0).round() / 10.0;
    text += &format!(
        "{minutes} minute{}, the first {} not counted as warm-up",
        if minutes == 1.0 { "" } else { "s" },
        facts.warm_up_minutes,
    );
    text += &match facts.drawn {
        Some((slots, seeds)) => format!(
            "; {} open; {} of the gaps: means, spread (greatest less least), worst difference to \
             LRU at the same seed\n",
            counted(slots as u64, "conversation"),
            counted(seeds as u64, "seed")
        ),
        None => ", with starts and gaps as recorded: one run\n".to_owned(),
    };
    text += &format!("predictor of lpc: {}\n", teller(facts.predictor));
    text += &format!(
        "an engine step takes {:.2} ms, plus the larger of {:.2} ms and {:.1} µs per token for \
         layers, plus the larger of {:.2} ns per token pair and {:.1} ns per cached token for \
         attention, plus {:.1} µs per sampled token\n",
        cost.overhead_s * 1e3,
        cost.weights_s * 1e3,
        cost.token_s * 1e6,
        cost.pair_s * 1e9,
        cost.kv_token_s * 1e9,
        cost.sequence_s * 1e6,
    );
    text
}

fn teller(predictor: PredictionSource) -> String {
    match predictor {
        PredictionSource::Nobody => "none".to_owned(),
        PredictionSource::TurnCount => "shares of continued conversations by turn".to_owned(),
        PredictionSource::Noisy { channel, mcc } => format!(
            "a noisy oracle ({} noise) with MCC {mcc}, except where the sweep sets MCC",
            channel.name()
        ),
        PredictionSource::Model => "the model".to_owned(),
        PredictionSource::Truth => "the truth".to_owned(),
    }
}

fn sweep_rows(report: &ExperimentReport, sweep: SweepAxis) -> Vec<Vec<String>> {
    let header = [
        "policy",
        axis(sweep),
        "hit rate",
        "spread",
        "over LRU",
        "worst seed",
        "gap closed",
        "MCC",
        "prefill tok/s",
        "req/s",
        "preempted",
    ];
    let rows = report.lines(sweep).into_iter().map(|line| row(&line));
    std::iter::once(header.map(str::to_owned).to_vec()).chain(rows).collect()
}

fn row(line: &ArmPoint<'_>) -> Vec<String> {
    let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "–".to_owned());
    let mcc = mean(line.runs, |run| run.mcc);
    vec![
        line.shown.arm.clone(),
        position(line),
        percent_to_hundredths(line.hit_rate),
        format!("{:.4}", line.spread),
        or_dash(line.gain.map(signed)),
        format!("{:+.1} pp", line.least * 100.0),
        or_dash(line.closed.map(|closed| format!("{:.0} %", closed * 100.0))),
        or_dash((mcc > 0.0).then(|| format!("{mcc:.3}"))),
        format!("{:.0}", mean(line.runs, |run| run.computed_per_s)),
        format!("{:.2}", mean(line.runs, |run| run.requests_per_s)),
        thousands(mean(line.runs, |run| run.preemptions as f64).round() as u64),
    ]
}

fn position(line: &ArmPoint<'_>) -> String {
    match line.shown.sweep {
        SweepAxis::Size => thousands(line.shown.x as u64),
        _ => line.shown.x.to_string(),
    }
}

/// TTFT of hits and misses under LRU with the largest cache, by the length of the context.
fn contexts(report: &ExperimentReport) -> Option<(String, Vec<Vec<String>>)> {
    let line = largest(report, "lru")?;
    let title = format!(
        "median TTFT under lru with {}, by what earlier turns left in the cache",
        counted(line.shown.x as u64, "token")
    );
    let header = ["context, tokens", "hits", "ms", "misses", "ms", "a hit saves"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let ms = |count: usize, seconds: f64| match count {
        0 => "–".to_owned(),
        _ => format!("{:.1}", seconds * 1e3),
    };
    for bin in medians(&line) {
        let saves = bin.saved().map(|saved| format!("{:.0} %", saved * 100.0));
        rows.push(vec![
            format!("from {}", thousands(u64::from(bin.from_tokens))),
            thousands(bin.hits as u64),
            ms(bin.hits, bin.hit_s),
            thousands(bin.misses as u64),
            ms(bin.misses, bin.miss_s),
            saves.unwrap_or_else(|| "–".to_owned()),
        ]);
    }
    (rows.len() > 1).then_some((title, rows))
}

/// The line of `arm` with the largest cache of the size sweep.
pub(super) fn largest<'a>(report: &'a ExperimentReport, arm: &str) -> Option<ArmPoint<'a>> {
    let lines = report.lines(SweepAxis::Size).into_iter();
    let lines = lines.filter(|line| line.shown.arm == arm);
    lines.max_by(|one, other| one.shown.x.total_cmp(&other.shown.x))
}

/// TTFT at one context length, all seeds together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Median {
    pub(super) from_tokens: u32,
    pub(super) hits: usize,
    pub(super) misses: usize,
    /// Mean over the seeds of the medians, seconds; 0 where there are none.
    pub(super) hit_s: f64,
    pub(super) miss_s: f64,
}

impl Median {
    /// The share of the TTFT that a hit saves, where there are enough of both.
    pub(super) fn saved(&self) -> Option<f64> {
        let enough = self.hits.min(self.misses) >= COUNT_MIN;
        enough.then(|| 1.0 - self.hit_s / self.miss_s)
    }
}

pub(super) fn medians(line: &ArmPoint<'_>) -> Vec<Median> {
    let bins = line.runs.first().map_or(0, |run| run.contexts.len());
    let bin = |index: usize| {
        let bins: Vec<&ContextBin> = line.runs.iter().map(|run| &run.contexts[index]).collect();
        let median = |of: &dyn Fn(&ContextBin) -> (usize, f64)| {
            let counted: Vec<_> =
                bins.iter().map(|bin| of(bin)).filter(|counted| counted.0 > 0).collect();
            let sum = counted.iter().fold(0.0, |sum, bin| sum + bin.1);
            let count = counted.iter().map(|bin| bin.0).sum();
            (count, sum / counted.len().max(1) as f64)
        };
        let (hits, hit_s) = median(&|bin| (bin.hit.count, bin.hit.p50));
        let (misses, miss_s) = median(&|bin| (bin.miss.count, bin.miss.p50));
        Median { from_tokens: bins[0].from_tokens, hits, misses, hit_s, miss_s }
    };
    (0..bins).map(bin).filter(|median| median.hits + median.misses > 0).collect()
}

fn beside(figures: &[PublishedFigure]) -> Vec<Vec<String>> {
    let header = ["figure", "published", "ours"].map(str::to_owned).to_vec();
    let rows = figures.iter().map(|figure| {
        let ours = figure.ours.clone();
        vec![
            figure.name.clone(),
            figure.published.to_owned(),
            ours.unwrap_or_else(|| format!("not run; {}", figure.needs)),
        ]
    });
    std::iter::once(header).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn a_row_holds_the_means_and_what_they_are_measured_by() {
        let report = testing::report(&[
            ("lru", 60_000, &[0.19, 0.21]),
            ("lpc", 60_000, &[0.25, 0.25]),
            ("oracle", 60_000, &[0.40, 0.40]),
        ]);
        let text = table(&report);
        let line = text.lines().find(|line| line.starts_with("lpc ") && line.contains("60,000"));
        let words: Vec<_> = line.expect("a row").split_whitespace().collect();
        assert_eq!(
            words[..9],
            ["lpc", "60,000", "25.00", "%", "0.0000", "+25.0", "%", "+4.0", "pp"]
        );
        assert!(text.contains("13 to 38 %") && text.contains("not run; --sweep lambda"));
    }
}
