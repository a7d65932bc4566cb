//! One JSON object a line: a rung of a strategy, then all of them together.

use headstart_core::stats::Summary;
use headstart_sim::fleet::{Fault, Recovery, RungOutcome};
use serde_json::{Value, json};

use super::{FigureOrigin, FleetReport, StrategyRun, agreement};

/// All lines.
pub fn json_lines(report: &FleetReport) -> String {
    let lines = report.runs.iter().flat_map(|run| lines(report, run));
    let lines = lines.chain(agreement::json_lines(report));
    let lines: Vec<String> = lines.map(|line| line.to_string()).collect();
    lines.join("\n")
}

fn lines(report: &FleetReport, run: &StrategyRun) -> Vec<Value> {
    let head = |rung: &RungOutcome| {
        let mut line = figures(rung);
        line["asked"] = json!(report.asked.name);
        line["strategy"] = json!(&run.name);
        line["origin"] = json!(run.origin.name());
        line
    };
    let mut lines: Vec<Value> = Vec::new();
    for (at, rung) in run.rungs().enumerate() {
        let mut line = head(rung);
        line["rung"] = json!(at);
        let published = report.published(&run.name, rung.rate).filter(|_| at >= report.warm_up());
        line["published"] = json!(published.map(|(tokens_s, ttft_p90_s)| {
            json!({"output_tokens_per_s": tokens_s, "ttft_p90_s": ttft_p90_s})
        }));
        lines.push(line);
    }
    let mut all = head(&run.outcome.all);
    all["rung"] = json!("all");
    // No client sees steps.
    let steps = Some(run.outcome.steps).filter(|_| run.origin == FigureOrigin::Simulated);
    all["steps"] = json!(steps);
    all["recoveries"] = run.outcome.recoveries.iter().map(recovery).collect();
    lines.push(all);
    lines
}

/// Returns the recovery from one fault, as JSON.
fn recovery(recovery: &Recovery) -> Value {
    let (what, number, at) = match recovery.fault {
        Fault::Crash { replica, at, .. } => ("replica", replica, at),
        Fault::GatewayRestart { gateway, at, .. } => ("gateway", gateway, at),
    };
    json!({
        "died": what,
        "number": number,
        "at_s": at.as_secs_f64(),
        "hit_rate_before": recovery.before.rate(),
        "hit_rate_after": recovery.after.rate(),
        "back_s": recovery.back_s,
    })
}

/// The figures of a rung; times in seconds.
pub(super) fn figures(rung: &RungOutcome) -> Value {
    json!({
        "rate": rung.rate,
        "seconds": rung.seconds,
        "answered": rung.answered,
        "refused": rung.refused,
        "failed": rung.failed,
        "retried": rung.retried,
        "ttft_s": summary(&rung.ttft),
        "service_ttft_s": rung.service_ttft.as_ref().map(summary),
        "tpot_s": summary(&rung.tpot),
        "e2e_s": summary(&rung.e2e),
        "output_tokens_per_s": rung.tokens_s,
        "output_tokens_per_s_in_window": rung.window_tokens_s,
        "goodput_per_s": rung.goodput,
        "hit_rate": rung.hits.rate(),
        "lost_share": rung.lost_share,
        "cached_tokens_per_s": rung.cached_tokens_s,
        "waiting": rung.waiting,
        "running": rung.running,
        "kv_usage": rung.kv_usage,
        "preemptions": rung.preemptions,
    })
}

fn summary(summary: &Summary) -> Value {
    json!({"mean": summary.mean, "p50": summary.p50, "p90": summary.p90, "p99": summary.p99})
}
