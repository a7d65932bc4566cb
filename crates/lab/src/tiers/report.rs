//! Report of the benchmark: a table and a sentence.

use serde_json::{Value, json};

use headstart_terminal::aligned;

use super::sweep::TierSweepCell;

/// A gain below this is noise.
const GAIN: f64 = 0.95;

/// A row as JSON.
pub(super) fn json(cell: &TierSweepCell) -> Value {
    let ttft_ms = |arm: usize| -> Vec<f64> {
        let answers = cell.answers[arm].iter();
        answers.map(|answer| (answer.ttft.as_secs_f64() * 1e6).round() / 1e3).collect()
    };
    json!({
        "model": cell.model,
        "prefix_tokens": cell.prefix_tokens,
        "prefix_bytes": cell.prefix_bytes,
        // JSON has no infinity: a missing rate means the disk itself.
        "bytes_per_s": cell.bytes_per_s.is_finite().then_some(cell.bytes_per_s),
        "load_ttft_ms": ttft_ms(0),
        "compute_ttft_ms": ttft_ms(1),
        "plan_ttft_ms": ttft_ms(2),
        "plan_loaded_share": cell.loaded_share(),
        "ratio": cell.ratio(),
    })
}

/// A row as a line, while the others are still measured.
pub(super) fn progress(cell: &TierSweepCell) -> String {
    let [_, prefix, rate, load, compute, plan, _, ratio] = row(cell);
    format!(
        "{}, {prefix} tokens, {rate} MB/s: load {load} ms, compute {compute} ms, plan {plan} ms \
         ({ratio})",
        cell.model
    )
}

/// All rows, and what they come to.
pub(super) fn text(cells: &[TierSweepCell]) -> String {
    let head = ["model", "prefix", "MB/s", "load ms", "compute ms", "plan ms", "loaded", "ratio"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(cells.iter().map(|cell| row(cell).to_vec()));
    let ratios = cells.iter().map(TierSweepCell::ratio);
    let (best, worst) = ratios
        .fold((f64::INFINITY, 0.0_f64), |(best, worst), ratio| (best.min(ratio), worst.max(ratio)));
    let faster = cells.iter().filter(|cell| cell.ratio() < GAIN).count();
    format!(
        "{}\nMedian times to the first token, with the prefix on the tier and nowhere else. Ratio: \
         the plan's over the better of both.\nWorst {worst:.2}, best {best:.2}; in {faster} of {} \
         rows the plan is more than 5 % faster than both.\n",
        aligned(&rows),
        cells.len(),
    )
}

fn row(cell: &TierSweepCell) -> [String; 8] {
    let ms = |arm: usize| format!("{:.1}", cell.ttft(arm).as_secs_f64() * 1e3);
    [
        cell.model.clone(),
        cell.prefix_tokens.to_string(),
        if cell.bytes_per_s.is_finite() {
            format!("{:.1}", cell.bytes_per_s / 1e6)
        } else {
            "disk".to_owned()
        },
        ms(0),
        ms(1),
        ms(2),
        format!("{:.0} %", cell.loaded_share() * 100.0),
        format!("{:.2}", cell.ratio()),
    ]
}
