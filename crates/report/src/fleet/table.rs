//! Tables for a terminal: strategies side by side, then each by itself.

use headstart_sim::fleet::RungOutcome;
use headstart_terminal::aligned;

use super::{FleetReport, StrategyRun, agreement, winner};

/// Legend of rows and columns.
const LEGEND: &str = "\
requests/s: rate at which requests arrive, one row per step of the run
warm-up: the first step, which fills the caches; all: the other steps together
TTFT: time to first token, s; TPOT: time per output token, s; E2E: to the end, s
service: TTFT without the wait in the queue
tokens/s: output until the last answer; in window: output while requests arrive
goodput/s: requests per second within the latency limits
waiting, running: requests per replica, on average; KV used: share of KV memory
";

/// Throughput and TTFT beside the published ones, then all figures of each strategy.
pub fn table(report: &FleetReport) -> String {
    let mut text = report.facts().join("\n");
    let published = match report.asked.published {
        Some(_) => " (published)",
        None => "",
    };
    text += &format!(
        "\n\noutput tokens/s, until the last answer of each step{published}\n{}",
        aligned(&compared(
            report,
            |rung| format!("{:.0}", rung.tokens_s),
            |figures| { format!("{:.0}", figures.0) }
        ))
    );
    text += &format!(
        "\nTTFT p90, seconds{published}\n{}",
        aligned(&compared(
            report,
            |rung| seconds(rung, rung.ttft.p90, 3),
            |figures| { format!("{:.3}", figures.1) }
        ))
    );
    for run in &report.runs {
        let rows = details(run, report.warm_up());
        text += &format!("\n{}\n{}", run.label(), aligned(&rows));
        run.recoveries().for_each(|line| text += &format!("{line}\n"));
    }
    text += &format!("\n{LEGEND}");
    if let Some(agreement) = agreement::table(report) {
        text += &format!("\n{agreement}");
    }
    format!("{}\n\n{}", text.trim_end(), winner::sentences(report).join(" "))
}

fn compared(
    report: &FleetReport,
    ours: impl Fn(&RungOutcome) -> String,
    theirs: impl Fn((f64, f64)) -> String,
) -> Vec<Vec<String>> {
    let names = report.runs.iter().map(|run| run.label());
    let mut rows = vec![std::iter::once("requests/s".to_owned()).chain(names).collect()];
    for (at, first) in report.runs[0].rungs().enumerate() {
        let cells = report.runs.iter().map(|run| {
            let rung = &run.outcome.rungs[at];
            let published =
                report.published(&run.name, rung.rate).filter(|_| at >= report.warm_up());
            match published {
                Some(published) => format!("{} ({})", ours(rung), theirs(published)),
                None => ours(rung),
            }
        });
        let name = step(at, first, report.warm_up());
        rows.push(std::iter::once(name).chain(cells).collect());
    }
    let all = report.runs.iter().map(|run| ours(&run.outcome.all));
    rows.push(std::iter::once("all".to_owned()).chain(all).collect());
    rows
}

/// A column of the details: its name, and the cell of a step.
type Column = (&'static str, fn(&RungOutcome) -> String);

const DETAILS: [Column; 21] = [
    ("requests", |rung| rung.answered.to_string()),
    ("refused", |rung| rung.refused.to_string()),
    ("failed", |rung| rung.failed.to_string()),
    ("TTFT mean", |rung| seconds(rung, rung.ttft.mean, 3)),
    ("p50", |rung| seconds(rung, rung.ttft.p50, 3)),
    ("p90", |rung| seconds(rung, rung.ttft.p90, 3)),
    ("p99", |rung| seconds(rung, rung.ttft.p99, 3)),
    ("service p90", |rung| known(rung.service_ttft, |ttft| seconds(rung, ttft.p90, 3))),
    ("TPOT p50", |rung| seconds(rung, rung.tpot.p50, 4)),
    ("p90", |rung| seconds(rung, rung.tpot.p90, 4)),
    ("E2E p50", |rung| seconds(rung, rung.e2e.p50, 1)),
    ("p90", |rung| seconds(rung, rung.e2e.p90, 1)),
    ("tokens/s", |rung| format!("{:.0}", rung.tokens_s)),
    ("in window", |rung| format!("{:.0}", rung.window_tokens_s)),
    ("goodput/s", |rung| format!("{:.2}", rung.goodput)),
    ("hit rate", |rung| format!("{:.1} %", rung.hits.rate() * 100.0)),
    ("cached tokens/s", |rung| format!("{:.0}", rung.cached_tokens_s)),
    ("waiting", |rung| known(rung.waiting, |waiting| format!("{waiting:.1}"))),
    ("running", |rung| known(rung.running, |running| format!("{running:.1}"))),
    ("KV used", |rung| known(rung.kv_usage, |usage| format!("{:.1} %", usage * 100.0))),
    ("preempted", |rung| known(rung.preemptions, |count| count.to_string())),
];

fn details(run: &StrategyRun, warm_up: usize) -> Vec<Vec<String>> {
    let detail = |name: String, rung: &RungOutcome| {
        std::iter::once(name).chain(DETAILS.map(|(_, cell)| cell(rung))).collect()
    };
    let head = DETAILS.map(|(name, _)| name.to_owned());
    let mut rows = vec![std::iter::once("requests/s".to_owned()).chain(head).collect()];
    let rungs = run.rungs().enumerate();
    rows.extend(rungs.map(|(at, rung)| detail(step(at, rung, warm_up), rung)));
    rows.push(detail("all".to_owned(), &run.outcome.all));
    rows
}

/// The name of a step: its rate, and whether it only fills the caches.
fn step(at: usize, rung: &RungOutcome, warm_up: usize) -> String {
    if at < warm_up { format!("{} (warm-up)", rate(rung)) } else { rate(rung) }
}

/// Requests per second, as far as one wants to read them.
fn rate(rung: &RungOutcome) -> String {
    let text = format!("{:.3}", rung.rate);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats a time of the rung's requests; a dash if none of them was answered.
fn seconds(rung: &RungOutcome, value: f64, digits: usize) -> String {
    match rung.answered {
        0 => known(None::<f64>, |value| value.to_string()),
        _ => format!("{value:.digits$}"),
    }
}

fn known<T>(value: Option<T>, shown: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), shown)
}
