//! Tables for a terminal: strategies side by side, then each by itself.

use headstart_sim::fleet::RungOutcome;

use super::super::table::aligned;
use super::{Report, StrategyRun, agreement};

/// Throughput and TTFT beside the published ones, then all figures of each strategy.
pub(crate) fn table(report: &Report) -> String {
    let mut text = report.facts().join("\n");
    text += &format!(
        "\n\noutput tokens/s, until the last answer of the rung (published)\n{}",
        aligned(&compared(
            report,
            |rung| format!("{:.0}", rung.tokens_s),
            |it| { format!("{:.0}", it.0) }
        ))
    );
    text += &format!(
        "\nTTFT p90, seconds (published)\n{}",
        aligned(&compared(
            report,
            |rung| format!("{:.3}", rung.ttft.p90),
            |it| { format!("{:.3}", it.1) }
        ))
    );
    for run in &report.runs {
        text += &format!("\n{}\n{}", run.label(), aligned(&details(run)));
        run.recoveries()
            .for_each(|line| text += &format!("{line}\n"));
    }
    if let Some(agreement) = agreement::table(report) {
        text += &format!("\n{agreement}");
    }
    text.trim_end().to_owned()
}

fn compared(
    report: &Report,
    ours: impl Fn(&RungOutcome) -> String,
    theirs: impl Fn((f64, f64)) -> String,
) -> Vec<Vec<String>> {
    let names = report.runs.iter().map(|run| run.label());
    let mut rows = vec![
        std::iter::once("requests/s".to_owned())
            .chain(names)
            .collect(),
    ];
    for (at, first) in report.runs[0].rungs().enumerate() {
        let cells = report.runs.iter().map(|run| {
            let rung = &run.outcome.rungs[at];
            let published = report
                .published(&run.name, rung.rate)
                .filter(|_| at >= report.warm_up());
            match published {
                Some(published) => format!("{} ({})", ours(rung), theirs(published)),
                None => ours(rung),
            }
        });
        rows.push(
            std::iter::once(first.rate.to_string())
                .chain(cells)
                .collect(),
        );
    }
    let all = report.runs.iter().map(|run| ours(&run.outcome.all));
    rows.push(std::iter::once("all".to_owned()).chain(all).collect());
    rows
}

fn details(run: &StrategyRun) -> Vec<Vec<String>> {
    let head = [
        "requests/s",
        "requests",
        "refused",
        "failed",
        "TTFT mean",
        "p50",
        "p90",
        "p99",
        "service p90",
        "TPOT p50",
        "p90",
        "E2E p50",
        "p90",
        "tokens/s",
        "in window",
        "goodput/s",
        "hit rate",
        "cached tokens/s",
        "waiting",
        "running",
        "KV used",
        "preempted",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(run.rungs().map(|rung| detail(&rung.rate.to_string(), rung)));
    rows.push(detail("all", &run.outcome.all));
    rows
}

fn detail(name: &str, rung: &RungOutcome) -> Vec<String> {
    let seconds = |value: f64| format!("{value:.3}");
    vec![
        name.to_owned(),
        rung.answered.to_string(),
        rung.refused.to_string(),
        rung.failed.to_string(),
        seconds(rung.ttft.mean),
        seconds(rung.ttft.p50),
        seconds(rung.ttft.p90),
        seconds(rung.ttft.p99),
        known(rung.service_ttft.map(|it| it.p90), seconds),
        format!("{:.4}", rung.tpot.p50),
        format!("{:.4}", rung.tpot.p90),
        format!("{:.1}", rung.e2e.p50),
        format!("{:.1}", rung.e2e.p90),
        format!("{:.0}", rung.tokens_s),
        format!("{:.0}", rung.window_tokens_s),
        format!("{:.2}", rung.goodput),
        format!("{:.1} %", rung.hits.rate() * 100.0),
        format!("{:.0}", rung.cached_tokens_s),
        known(rung.waiting, |it| format!("{it:.1}")),
        known(rung.running, |it| format!("{it:.1}")),
        known(rung.kv_usage, |it| format!("{:.1} %", it * 100.0)),
        known(rung.preemptions, |it| it.to_string()),
    ]
}

fn known<T>(value: Option<T>, shown: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), shown)
}
