//! One JSON object a line: every arm at every point, then the published figures.

use serde_json::{Value, json};

use super::published::{self, PublishedFigure};
use super::table::medians;
use super::{ArmPoint, ExperimentReport, RunMeasurements, mean, sweep_name};

/// One line per point and arm, one per published figure.
pub(crate) fn json_lines(report: &ExperimentReport) -> String {
    let sweeps = report.sweeps().into_iter();
    let lines = sweeps.flat_map(|sweep| report.lines(sweep));
    let lines = lines.map(|line| point(report, &line));
    let figures = published::figures(report).into_iter().map(figure);
    let all: Vec<String> = lines.chain(figures).map(|line| line.to_string()).collect();
    all.join("\n")
}

fn point(report: &ExperimentReport, line: &ArmPoint<'_>) -> Value {
    let contexts = medians(line).into_iter().map(|bin| {
        json!({
            "context_from": bin.from_tokens,
            "hits": bin.hits,
            "hit_ttft_s": bin.hit_s,
            "misses": bin.misses,
            "miss_ttft_s": bin.miss_s,
        })
    });
    json!({
        "traffic": report.facts.source,
        "minutes": report.facts.minutes,
        "sweep": sweep_name(line.shown.sweep),
        "x": line.shown.x,
        "arm": line.shown.arm,
        "policy": line.group.arm.policy,
        "cache_tokens": line.group.size_tokens,
        "charge_tokens": line.group.arm.charge_tokens,
        "token_hit_rate": line.hit_rate,
        "spread": line.spread,
        "least_over_lru_at_a_seed": line.least,
        "gain_over_lru": line.gain,
        "gap_closed": line.closed,
        "mcc": mean(line.runs, |run| run.mcc),
        "computed_tokens_per_s": mean(line.runs, |run| run.computed_per_s),
        "requests_per_s": mean(line.runs, |run| run.requests_per_s),
        "contexts": contexts.collect::<Vec<_>>(),
        "runs": line.runs.iter().map(run).collect::<Vec<_>>(),
    })
}

fn run(run: &RunMeasurements) -> Value {
    let turns = run.turns.iter().map(|(turn, tally)| {
        json!({
            "turn": turn,
            "requests": tally.requests,
            "prompt_tokens": tally.tokens.lookups,
            "cached_tokens": tally.tokens.hits,
        })
    });
    json!({
        "token_hit_rate": run.hit_rate,
        "requests": run.requests,
        "prompt_tokens": run.prompt_tokens,
        "cached_tokens": run.cached_tokens,
        "mcc": run.mcc,
        "preemptions": run.preemptions,
        "refused": run.refused,
        "turns": turns.collect::<Vec<_>>(),
    })
}

fn figure(figure: PublishedFigure) -> Value {
    json!({
        "figure": figure.name,
        "published": figure.published,
        "ours": figure.ours,
        "source": published::SOURCES,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn a_line_holds_means_and_every_run() {
        let report = testing::report(&[("lru", 6, &[0.25, 0.75]), ("oracle", 6, &[1.0])]);
        let text = json_lines(&report);
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines[0]["token_hit_rate"], 0.5);
        assert_eq!(lines[0]["spread"], 0.5);
        assert_eq!(lines[0]["runs"][1]["token_hit_rate"], 0.75);
        assert_eq!(lines[1]["gain_over_lru"], 1.0);
        assert_eq!(lines[2]["published"], "13 to 38 %");
    }
}
