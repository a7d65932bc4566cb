//! Report of hit rates by multiple of device memory, as table, JSON and sentences.

use headstart_core::figures::{counted, percent_to_hundredths, thousands};
use headstart_core::stats::HitCount;
use headstart_sim::knee;
use headstart_terminal::{aligned, colour, headings};
use serde_json::{Value, json};

use crate::TraceFacts;

const GIB: f64 = (1_u64 << 30) as f64;

/// A trace on a device, by size.
#[derive(Debug)]
pub struct PlanReport {
    /// The trace.
    pub trace: TraceFacts,
    /// The model and its engine, in a sentence.
    pub device: String,
    /// Bytes of a block's keys and values.
    pub block_bytes: f64,
    /// Blocks that fit the device.
    pub device_blocks: u64,
    /// Eviction policy of device and lower tier.
    pub policy: String,
    /// Bandwidth of host and disk, GB/s.
    pub gbps: [f64; 2],
    /// Seconds of prefill of the requests that count, with the device alone; `None` if the cost of
    /// computing is unknown.
    pub computed_s: Option<f64>,
    /// The share of the ideal that is enough.
    pub enough: f64,
    /// Hits of a cache that never evicts.
    pub ideal: HitCount,
    /// By growing size; the first is the device alone.
    pub rows: Vec<PlanRow>,
}

/// Device and lower tier together, as a multiple of the device.
#[derive(Debug)]
pub struct PlanRow {
    /// Size of device and lower tier, in multiples of the device.
    pub times: u64,
    /// Hits of the requests that count, in tokens.
    pub tokens: HitCount,
    /// Seconds of prefill saved beside the device alone, by host and by disk.
    pub saved_s: Option<[f64; 2]>,
}

/// Gain of a row over the one before, per additional multiple of device memory.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Marginal {
    /// Of the token hit rate.
    rate: f64,
    saved_s: Option<[f64; 2]>,
}

impl PlanReport {
    fn marginal(&self, index: usize) -> Option<Marginal> {
        let (row, before) = (&self.rows[index], self.rows.get(index.checked_sub(1)?)?);
        let more = (row.times - before.times) as f64;
        let saved_s = row.saved_s.zip(before.saved_s).map(|(row, before)| {
            let both = [0, 1].map(|tier| (row[tier] - before[tier]) / more);
            both.map(|saved| self.an_hour(saved))
        });
        Some(Marginal { rate: (row.tokens.rate() - before.tokens.rate()) / more, saved_s })
    }

    /// Seconds in an hour of the part that counts, where requests come evenly; as they are where
    /// the trace has no times.
    fn an_hour(&self, seconds: f64) -> f64 {
        let counted = self.trace.requests.saturating_sub(self.trace.cold_requests as usize);
        let share = counted as f64 / self.trace.requests.max(1) as f64;
        match self.trace.seconds * share {
            span if span > 0.0 => seconds * 3_600.0 / span,
            _ => seconds,
        }
    }

    fn per(&self) -> &'static str {
        if self.trace.seconds > 0.0 { "per hour" } else { "in the trace" }
    }

    /// The least multiple that is enough.
    fn least(&self) -> Option<&PlanRow> {
        let enough = self.ideal.rate() * self.enough;
        self.rows.iter().find(|row| row.tokens.rate() >= enough)
    }

    fn knee(&self) -> Option<&PlanRow> {
        let points = self.rows.iter().map(|row| (row.times, row.tokens.rate()));
        knee::knee(&points.collect::<Vec<_>>()).map(|index| &self.rows[index])
    }

    fn device_bytes(&self) -> f64 {
        self.device_blocks as f64 * self.block_bytes
    }
}

/// The table, and what it says.
pub fn table(report: &PlanReport) -> String {
    let mut text = facts(report);
    text += &format!("\n{}{}\n", aligned(&rows(report)), legend(report));
    text + &words(report).join("\n")
}

/// Legend of the columns.
fn legend(report: &PlanReport) -> String {
    let mut text = "cache: device memory and the lower tier together, in multiples of device \
                    memory\n\
                    lower: size of the lower tier, in host memory or on disk\n\
                    hit rate: cached prompt tokens over prompt tokens\n\
                    of max.: share of the hit rate of a cache that never evicts\n\
                    per +1×: gain per added multiple of device memory (pp: points)\n"
        .to_owned();
    if report.computed_s.is_some() {
        text += &format!(
            "host, disk: prefill time that a lower tier in host memory or on disk saves {}\n",
            report.per()
        );
    }
    text
}

fn facts(report: &PlanReport) -> String {
    let trace = &report.trace;
    let mut text = format!(
        "{}: {} over {} s, the first {} not counted as warm-up; {} of {}\n",
        trace.name,
        counted(trace.requests as u64, "request"),
        thousands(trace.seconds as u64),
        thousands(trace.cold_requests),
        counted(trace.distinct_blocks, "different block"),
        counted(trace.info.block_tokens.into(), "token"),
    );
    for remark in &trace.remarks {
        text += &format!("{remark}\n");
    }
    text + &format!(
        "{}: {} of device memory for KV, {}; policy {}; host {:.1} GB/s, disk {:.1} GB/s\n",
        report.device,
        size(report.device_bytes()),
        counted(report.device_blocks, "block"),
        report.policy,
        report.gbps[0],
        report.gbps[1],
    )
}

fn rows(report: &PlanReport) -> Vec<Vec<String>> {
    let mut head = vec!["cache", "lower", "hit rate", "of max.", "per +1×"];
    if report.computed_s.is_some() {
        head.extend(["host", "per +1×", "disk", "per +1×"]);
    }
    let mut lines = vec![headings(&head)];
    lines.extend((0..report.rows.len()).map(|index| line(report, index)));
    lines
}

fn line(report: &PlanReport, index: usize) -> Vec<String> {
    let row = &report.rows[index];
    let marginal = report.marginal(index);
    let below = report.device_bytes() * (row.times - 1) as f64;
    let share = row.tokens.rate() / report.ideal.rate().max(f64::MIN_POSITIVE);
    let shown = |value: Option<f64>, shown: fn(f64) -> String| value.map_or("–".to_owned(), shown);
    let mut line = vec![
        format!("{}×", row.times),
        size(below),
        colour::hit(&percent_to_hundredths(row.tokens.rate())),
        percent_to_hundredths(share),
        shown(marginal.map(|gain| gain.rate), |rate| format!("{:.2} pp", rate * 100.0)),
    ];
    for tier in [0, 1] {
        let Some(saved_s) = row.saved_s else { break };
        let more = marginal.and_then(|gain| gain.saved_s).map(|saved_s| saved_s[tier]);
        line.push(seconds(report.an_hour(saved_s[tier])));
        line.push(shown(more, seconds));
    }
    line
}

/// Sentences, one a line.
fn words(report: &PlanReport) -> Vec<String> {
    let alone = &report.rows[0];
    let (have, ideal) = (alone.tokens.rate(), report.ideal.rate());
    let mut words = vec![format!(
        "The device alone has a hit rate of {}. The maximum is {}, if nothing is ever evicted.",
        percent_to_hundredths(have),
        percent_to_hundredths(ideal)
    )];
    if ideal == 0.0 {
        return vec!["No prefix in this trace comes twice: no cache size helps.".to_owned()];
    }
    words.extend(report.least().map(|least| needed(report, least)));
    if let Some(knee) = report.knee() {
        words.push(format!(
            "The knee of the curve is at {}× (hit rate {}): more memory gains less.",
            knee.times,
            percent_to_hundredths(knee.tokens.rate())
        ));
    }
    words.extend(worth(report));
    words
}

/// Describes the size that is enough.
fn needed(report: &PlanReport, least: &PlanRow) -> String {
    let share = percent_to_hundredths(report.enough);
    if least.times == 1 {
        return format!(
            "The device alone reaches {share} of the maximum (--enough): a lower tier gains almost \
             nothing."
        );
    }
    let below = size(report.device_bytes() * (least.times - 1) as f64);
    format!(
        "{share} of the maximum (--enough) needs {}× the device memory: add {below} of host memory \
         or disk.",
        least.times
    )
}

/// Describes the gain of the first and of the last multiple.
fn worth(report: &PlanReport) -> Option<String> {
    let computed_s = report.computed_s?;
    let of = |index: usize| {
        let marginal = report.marginal(index)?;
        let [host, disk] = marginal.saved_s?;
        let (before, row) = (&report.rows[index - 1], &report.rows[index]);
        Some(format!(
            "From {}× to {}×, each +1× adds {} and saves {} of prefill {} in host memory, {} on \
             disk.",
            before.times,
            row.times,
            points(marginal.rate),
            seconds(host),
            report.per(),
            seconds(disk)
        ))
    };
    let least = report.least()?.times;
    let last = report.rows.iter().position(|row| row.times == least)?;
    let ends = match last {
        0 => return None,
        1 => vec![of(1)?],
        _ => vec![of(1)?, of(last)?],
    };
    Some(format!(
        "The device alone spends {} of prefill {}. {}",
        seconds(report.an_hour(computed_s)),
        report.per(),
        ends.join(" ")
    ))
}

/// The report as one object.
pub fn json(report: &PlanReport) -> String {
    let rows = (0..report.rows.len()).map(|index| row_json(report, index));
    let trace = &report.trace;
    json!({
        "trace": {
            "file": trace.name,
            "requests": trace.requests,
            "seconds": trace.seconds,
            "block_tokens": trace.info.block_tokens,
            "distinct_blocks": trace.distinct_blocks,
            "remarks": trace.remarks,
        },
        "device": report.device,
        "device_bytes": report.device_bytes(),
        "device_blocks": report.device_blocks,
        "block_bytes": report.block_bytes,
        "policy": report.policy,
        "cold_requests": trace.cold_requests,
        "host_gbps": report.gbps[0],
        "disk_gbps": report.gbps[1],
        "ideal_token_hit_rate": report.ideal.rate(),
        "enough": report.enough,
        "times_enough": report.least().map(|row| row.times),
        "times_knee": report.knee().map(|row| row.times),
        "prefill_s_per_hour": report.computed_s.map(|computed_s| report.an_hour(computed_s)),
        "rows": rows.collect::<Vec<_>>(),
        "words": words(report),
    })
    .to_string()
}

fn row_json(report: &PlanReport, index: usize) -> Value {
    let row = &report.rows[index];
    let marginal = report.marginal(index);
    let saved =
        |values: Option<[f64; 2]>| values.map(|[host, disk]| json!({"host": host, "disk": disk}));
    json!({
        "times": row.times,
        "below_bytes": report.device_bytes() * (row.times - 1) as f64,
        "token_hit_rate": row.tokens.rate(),
        "marginal_token_hit_rate": marginal.map(|gain| gain.rate),
        "saved_s_per_hour": saved(row.saved_s.map(|tiers| tiers.map(|time| report.an_hour(time)))),
        "marginal_saved_s_per_hour": saved(marginal.and_then(|gain| gain.saved_s)),
    })
}

fn size(bytes: f64) -> String {
    match bytes / GIB {
        gib if gib >= 100.0 => format!("{} GiB", thousands(gib.round() as u64)),
        gib if gib >= 1.0 || gib == 0.0 => format!("{gib:.1} GiB"),
        gib => format!("{:.1} MiB", gib * 1_024.0),
    }
}

fn points(rate: f64) -> String {
    format!("{:.2} points", rate * 100.0)
}

fn seconds(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{} s", thousands(value.round().max(0.0) as u64)),
        large if large >= 1.0 => format!("{value:.1} s"),
        _ => format!("{value:.3} s"),
    }
}

#[cfg(test)]
mod tests {
    use headstart_trace::TraceInfo;

    use super::*;

    fn row(times: u64, hits: usize, saved: f64) -> PlanRow {
        let mut tokens = HitCount::default();
        tokens.record(1_000, hits);
        PlanRow { times, tokens, saved_s: Some([saved, saved / 2.0]) }
    }

    fn report(rows: Vec<PlanRow>) -> PlanReport {
        let mut ideal = HitCount::default();
        ideal.record(1_000, 600);
        PlanReport {
            trace: TraceFacts {
                name: "made-up".to_owned(),
                remarks: Vec::new(),
                info: TraceInfo::new(16),
                requests: 100,
                cold_requests: 50,
                distinct_blocks: 700,
                seconds: 7_200.0,
            },
            device: "a model".to_owned(),
            block_bytes: GIB / 100.0,
            device_blocks: 100,
            policy: "lru".to_owned(),
            gbps: [16.0, 3.0],
            computed_s: Some(1_000.0),
            enough: 0.99,
            ideal,
            rows,
        }
    }

    #[test]
    fn marginals_are_for_each_multiple_and_hour() {
        let report = report(vec![row(1, 300, 0.0), row(2, 400, 100.0), row(4, 600, 200.0)]);
        assert_eq!(report.marginal(0), None);
        let last = report.marginal(2).expect("one before");
        assert!((last.rate - 0.1).abs() < 1e-12);
        // Half of two hours counts.
        assert_eq!(last.saved_s, Some([50.0, 25.0]));
        let told = words(&report).join("\n");
        assert!(
            told.contains("needs 4× the device memory: add 3.0 GiB of host memory or disk"),
            "{told}"
        );
        assert!(told.contains("each +1× adds 10.00 points and saves 100 s"), "{told}");
        assert!(!told.contains("knee"), "three points have no shape");
        let table = table(&report);
        assert!(table.contains("1.0 GiB of device memory"), "{table}");
        assert!(table.contains("per +1×: gain per added"), "{table}");
        let object: Value = serde_json::from_str(&json(&report)).expect("JSON");
        assert_eq!(object["times_enough"], 4);
        assert_eq!(object["rows"][1]["marginal_saved_s_per_hour"]["disk"], 50.0);
    }

    #[test]
    fn a_device_that_finds_all_needs_nothing_below() {
        let told = words(&report(vec![row(1, 598, 0.0)])).join("\n");
        assert!(told.contains("a lower tier gains almost nothing"), "{told}");
    }

    #[test]
    fn what_computing_costs_may_be_unknown() {
        let mut rows = vec![row(1, 300, 0.0), row(2, 600, 0.0)];
        rows.iter_mut().for_each(|row| row.saved_s = None);
        let report = PlanReport { computed_s: None, ..report(rows) };
        let table = table(&report);
        assert!(!table.contains("host, disk:"), "{table}");
        let object: Value = serde_json::from_str(&json(&report)).expect("JSON");
        assert!(object["rows"][1]["saved_s_per_hour"].is_null());
    }
}
