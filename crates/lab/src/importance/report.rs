//! Report of the benchmark: rows and sentences.

use headstart_core::figures::{counted, percent_to_tenths};
use headstart_terminal::aligned;
use serde_json::{Value, json};

use super::ImportanceBench;
use super::arm::FullComputeComparison;
use super::sweep::ImportanceRow;
use super::variants::Variant;
use super::workload::DocumentWorkload;

fn ms(time: std::time::Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// A row of what was asked for as JSON.
pub(super) fn json(bench: &ImportanceBench, row: &ImportanceRow, document_tokens: usize) -> Value {
    let setting = json!({
        "variant": row.variant.name(),
        "ratio": row.ratio,
        "spared": row.ratio.map(|_| bench.spared),
        "merge": bench.merge,
        "chunk": row.chunk_tokens,
        "device_cache": bench.device_cache,
        "host_cache": bench.host_cache,
        "documents": bench.documents,
        "document_tokens": document_tokens,
        "warm_up": bench.warm_up,
        "bytes_per_s": row.bytes_per_s,
    });
    let told = [setting, loaded(row, document_tokens), answered(row)];
    let objects = told.into_iter().filter_map(|part| match part {
        Value::Object(object) => Some(object),
        _ => None,
    });
    // The parts share no key, so their order does not matter.
    objects.flatten().collect()
}

/// Returns the loaded bytes of a row, by source, as JSON.
fn loaded(row: &ImportanceRow, document_tokens: usize) -> Value {
    let tally = &row.tally;
    // A row without answers shows zeros instead of NaN, which JSON cannot hold.
    let per_answer = |count: u64| count as f64 / row.answers.len().max(1) as f64;
    let parts: u64 = tally.parts.iter().sum();
    let hit = |place: usize| tally.parts[place] as f64 / parts.max(1) as f64;
    json!({
        "whole_bytes": per_answer(row.whole_bytes()),
        "loaded_bytes": per_answer(row.loaded_bytes()),
        "probe_bytes": per_answer(tally.probe_bytes),
        "disk_bytes": per_answer(row.disk_bytes()),
        "disk_busy_ms": per_answer(row.disk_bytes()) / row.bytes_per_s * 1e3,
        "loaded_share": row.loaded_share(),
        "disk_share": row.disk_share(),
        "bound_share": row.is_partly().then(|| row.bound(document_tokens)),
        "selected_share": row.selected_share(document_tokens),
        "parts": per_answer(parts),
        "read_amplification": tally.read_amplification(),
        "device_hits": hit(0),
        "host_hits": hit(1),
        "disk_reads": hit(2),
        "shared": hit(3),
        "packs": row.packs,
    })
}

/// Returns the latency and quality of a row's answers, as JSON.
fn answered(row: &ImportanceRow) -> Value {
    let (tally, compared) = (&row.tally, &row.compared);
    let of_layer = |sum: f64| sum / tally.layers.max(1) as f64;
    json!({
        "ttft_ms": row.answers.iter().map(|answer| ms(answer.ttft)).collect::<Vec<_>>(),
        "io_ms": row.answers.iter().map(|answer| ms(answer.io)).collect::<Vec<_>>(),
        "ttft_gain": row.gain().map(|(ttft, _)| ttft),
        "io_gain": row.gain().map(|(_, io)| io),
        "full_layers": of_layer(tally.full_layers as f64),
        "missed": of_layer(tally.missed),
        "probe_agreement": of_layer(tally.agreement),
        "asked": row.answers.len(),
        "fell_back": tally.failed + tally.late + tally.left,
        "known": row.known,
        "right": row.right,
        "compared": compared.compared,
        "top1_agreed": compared.agreed,
        "kl_mean": compared.kl_mean(),
        "kl_max": compared.kl_max,
        "kl_infinite": compared.infinite,
    })
}

/// A row as a line, while the others are still measured.
pub(super) fn progress(row: &ImportanceRow, document_tokens: usize) -> String {
    let cells = cells(row, document_tokens);
    let head = HEAD.iter().zip(&cells).skip(1);
    let words: Vec<String> = head.map(|(head, cell)| format!("{head} {cell}")).collect();
    format!("{}: {}", cells[0], words.join(", "))
}

const HEAD: [&str; 18] = [
    "variant",
    "ratio",
    "MB/s",
    "TTFT ms",
    "I/O ms",
    "TTFT ×",
    "I/O ×",
    "loaded",
    "disk",
    "bound",
    "chunks",
    "ampl.",
    "dev/host",
    "agree",
    "full",
    "missed",
    "right",
    "top-1, KL",
];

fn cells(row: &ImportanceRow, document_tokens: usize) -> Vec<String> {
    let is_computed = row.variant == Variant::Recompute;
    let tally = &row.tally;
    // A dash says that a figure does not apply; a zero would look measured.
    let unless = |is_none: bool, text: String| if is_none { "–".to_owned() } else { text };
    let parts = tally.parts.iter().sum::<u64>().max(1) as f64;
    let layers = tally.layers.max(1) as f64;
    let (ttft_gain, io_gain) = row.gain().unwrap_or_default();
    let unless_whole = |text: String| unless(!row.is_partly(), text);
    vec![
        row.variant.name().to_owned(),
        row.ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio}")),
        unless(is_computed, format!("{:.0}", row.bytes_per_s / 1e6)),
        format!("{:.0}", ms(row.ttft())),
        unless(is_computed, format!("{:.0}", ms(row.io()))),
        unless(ttft_gain == 0.0, format!("{ttft_gain:.2}")),
        // A row without waiting has no finite gain.
        unless(io_gain == 0.0 || !io_gain.is_finite() || is_computed, format!("{io_gain:.2}")),
        unless(is_computed, percent_to_tenths(row.loaded_share())),
        unless(is_computed, percent_to_tenths(row.disk_share())),
        unless_whole(percent_to_tenths(row.bound(document_tokens))),
        unless_whole(format!("{:.0}", chunks(row))),
        unless_whole(format!("{:.2}", tally.read_amplification())),
        unless_whole(format!(
            "{:.0}/{:.0} %",
            tally.parts[0] as f64 / parts * 100.0,
            tally.parts[1] as f64 / parts * 100.0
        )),
        unless_whole(format!("{:.2}", tally.agreement / layers)),
        unless_whole(format!("{:.0} %", tally.full_layers as f64 / layers * 100.0)),
        unless_whole(percent_to_tenths(tally.missed / layers)),
        unless(row.known == 0, format!("{}/{}", row.right, row.known)),
        likeness(&row.compared),
    ]
}

/// Returns the agreement and mean divergence from full computation, as text.
fn likeness(compared: &FullComputeComparison) -> String {
    let told = format!("{}/{}, {:.1e}", compared.agreed, compared.compared, compared.kl_mean());
    match (compared.compared, compared.infinite) {
        (0, _) => "–".to_owned(),
        (_, 0) => told,
        (_, infinite) => format!("{told} but {infinite} infinite"),
    }
}

/// Chunks that were used for a question, wherever they were, beside the probes' keys.
fn chunks(row: &ImportanceRow) -> f64 {
    let answers = row.answers.len().max(1) as f64;
    row.tally.chunks as f64 / answers
}

/// All rows, and what they mean.
pub(super) fn text(workload: &DocumentWorkload, rows: &[ImportanceRow]) -> String {
    let mut table = vec![HEAD.map(str::to_owned).to_vec()];
    table.extend(rows.iter().map(|row| cells(row, workload.tokens())));
    format!(
        "{}, {} of {} tokens\n{}\n\
         Medians; × is the full load's, which was measured beside it, over the row's. I/O: \
         exposed waiting, time with nothing to compute until the first token, not the time that \
         the disk is busy (much of which computing hides). Units: as serve without importance, \
         always from the disk. Loaded: of the stored bytes, from anywhere; disk: that it read, \
         whole pages; bound: probes' keys and as many tokens as were selected; whole chunks may \
         bring the same attention with fewer. Chunks: used for a question, wherever they were, \
         over all layers. Ampl.: tokens of these for each selected. Dev/host: parts that were on \
         the device and in host memory. Agree: mean Jaccard index of the probes' sets; full: \
         layers in which all was loaded because of it. Missed: by how much less attention what is \
         kept gets than what was selected, neighbours counted, the mean over probes and layers. \
         Right: answers known to be right. Top-1, KL: against a full computation of the same \
         question; the mean of those that are finite.\n",
        workload.name,
        counted(workload.documents.len() as u64, "document"),
        workload.tokens(),
        aligned(&table),
    )
}
