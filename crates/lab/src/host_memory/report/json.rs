//! One JSON object a line: every row, then every gain beside the published ranges.

use crate::host_memory::published::{Gain, OVER_BEST, OVER_OTHERS, QTTFT};
use serde_json::{Value, json};

use super::{Gains, WildReport, WildRow};

/// All lines.
pub(crate) fn json_lines(report: &WildReport) -> String {
    let rows = report.rows.iter().map(|row| line(report, row));
    let gains = report.gains();
    let gains = gains.iter().map(|gains| gain(report, gains));
    let lines: Vec<String> = rows.chain(gains).map(|line| line.to_string()).collect();
    lines.join("\n")
}

fn head(report: &WildReport, row: &WildRow) -> Value {
    json!({
        "traffic": report.facts.name,
        "model": row.model.shape.name,
        "gpus": row.model.gpus,
        "host_times": row.host_times,
        "policy": row.policy,
    })
}

fn line(report: &WildReport, row: &WildRow) -> Value {
    let mut line = head(report, row);
    let seeds = row.runs.iter().map(|run| {
        json!({
            "block_hit_rate": run.blocks.rate(),
            "token_hit_rate": run.tokens.rate(),
            "qttft_s_mean": run.qttft_s.mean,
            "requests": run.qttft_s.count,
            "refused": run.refused,
            "host_units_stored": run.host.stored,
            "host_units_loaded": run.host.loaded,
            "host_units_evicted": run.host.evicted,
        })
    });
    line["block_hit_rate"] = json!(row.blocks().rate());
    line["token_hit_rate"] = json!(row.tokens().rate());
    line["device_token_hit_rate"] = json!(row.device_rate());
    line["qttft_s"] = json!({
        "mean": row.qttft_s(|qttft| qttft.mean),
        "p50": row.qttft_s(|qttft| qttft.p50),
        "p90": row.qttft_s(|qttft| qttft.p90),
        "p99": row.qttft_s(|qttft| qttft.p99),
    });
    line["refused"] = json!(row.refused());
    line["block_tokens"] = json!(report.facts.block_tokens);
    line["minutes"] = json!(report.facts.minutes);
    line["warm_up_minutes"] = json!(report.facts.warm_up_minutes);
    line["runs"] = seeds.collect();
    line
}

fn gain(report: &WildReport, gains: &Gains<'_>) -> Value {
    let mut line = head(report, gains.row);
    line["best_baseline"] = json!(gains.best.policy);
    let figure = |figure: fn(&Gain) -> f64| {
        let (least, most) = gains.range(figure);
        json!({"mean": gains.mean(figure), "least": least, "most": most})
    };
    line["over_best_percent"] = figure(|gain| gain.over_best);
    line["over_worst_percent"] = figure(|gain| gain.over_worst);
    line["qttft_against_best_percent"] = figure(|gain| gain.qttft_best);
    line["qttft_against_slowest_percent"] = figure(|gain| gain.qttft_worst);
    line["published"] = json!({
        "over_best_percent": [OVER_BEST.start(), OVER_BEST.end()],
        "over_others_percent": [OVER_OTHERS.start(), OVER_OTHERS.end()],
        "qttft_percent": [QTTFT.start(), QTTFT.end()],
    });
    line
}
