//! A page with plots that opens without a network: the JSON of the analysis, key figures, and what
//! to do first.

use headstart_analysis::headlines::{MATERIAL, causes, is_again};
use headstart_analysis::results::{Amount, Analysis};
use headstart_core::figures::{duration, money, percent, thousands};
use headstart_insight::Bucket;
use serde_json::{Value, json};

use super::{HIDDEN, json};
use headstart_page::{ReportPage, ReportProvenance};

const PAGE: ReportPage = ReportPage {
    kind: "Prefix cache analysis",
    body: include_str!("page.html"),
    script: include_str!("page.js"),
};

/// A log that spans less is not scaled to a day.
const SPAN_MIN_S: f64 = 60.0;

const DAY_S: f64 = 86_400.0;

/// The whole page.
pub fn page(analysis: &Analysis, made: &ReportProvenance) -> String {
    let mut data = json(analysis);
    data["tiles"] = tiles(analysis).map(tile).to_vec().into();
    data["first"] = first(analysis);
    data["causes"] = causes_with_shares(analysis);
    data["hidden"] = HIDDEN.into();
    for (finding, row) in analysis.findings.iter().enumerate() {
        data["findings"][finding]["saving"] = row.saving().into();
    }
    PAGE.with(made, &data)
}

/// A key figure: its name, its value, and a line below.
type KeyFigure = [String; 3];

fn tile([name, value, under]: KeyFigure) -> Value {
    json!({"name": name, "value": value, "under": under})
}

fn tiles(analysis: &Analysis) -> [KeyFigure; 4] {
    [hit_rate(analysis), possible(analysis), wasted(analysis), top_cause(analysis)]
}

fn hit_rate(analysis: &Analysis) -> KeyFigure {
    let served = analysis.served_tokens();
    let from = match analysis.own.requests {
        0 => format!("Simulated on {}", analysis.fleet()),
        all if all == analysis.characterization.requests => "Reported by the log".to_owned(),
        some => format!("{} reported by the log, others simulated", thousands(some)),
    };
    ["Hit rate now".to_owned(), percent(analysis.share(served)), from]
}

/// The most that any cache could serve: of whole prefixes, or of parts at any position.
fn possible(analysis: &Analysis) -> KeyFigure {
    let unlimited = analysis.characterization.ideal.hit_tokens;
    let share = percent(analysis.share(unlimited));
    match analysis.order_free_tokens.filter(|&more| more > 0) {
        Some(more) => [
            "Hit rate with reuse at any position".to_owned(),
            percent(analysis.share(unlimited + more)),
            format!("At most. With an unlimited prefix cache: {share}"),
        ],
        None => [
            "Hit rate with an unlimited cache".to_owned(),
            share,
            "Every prefix stays cached, on all replicas".to_owned(),
        ],
    }
}

/// Builds the tile of the recomputation cost, per day if the log is long enough.
fn wasted(analysis: &Analysis) -> KeyFigure {
    let mut amount = Amount::default();
    let again = analysis.waterfall.iter().filter(|step| is_again(step.bucket));
    again.for_each(|step| amount.add(&step.amount));
    let span_s = analysis.span_s.filter(|&span_s| span_s > SPAN_MIN_S);
    let factor = span_s.map_or(1.0, |span_s| DAY_S / span_s);
    let (name, scaled) = match span_s {
        Some(span_s) => ("Wasted per day", format!(", scaled from {}", duration(span_s))),
        None => ("Wasted in this log", String::new()),
    };
    let mut value = duration(amount.seconds * factor);
    if let (Some(currency), Some(paid)) = (&analysis.currency, amount.money) {
        value += &format!(" · {}", money(currency, paid * factor));
    }
    let tokens = thousands((amount.tokens as f64 * factor) as u64);
    let under = format!("Prefill of {tokens} recomputed tokens{scaled}");
    [name.to_owned(), value, under]
}

fn top_cause(analysis: &Analysis) -> KeyFigure {
    let name = "Top cause of recomputation".to_owned();
    match causes(analysis).first() {
        Some(cause) => {
            let share = percent(analysis.share(cause.tokens));
            [name, share, format!("{} (of all prompt tokens)", upper(&cause.name))]
        }
        None => [name, "–".to_owned(), "No token was recomputed".to_owned()],
    }
}

/// Returns the first recommendation: the fix of the most expensive mistake, or else of the largest
/// loss.
fn first(analysis: &Analysis) -> Value {
    let finding = analysis.findings.first();
    if let Some(it) = finding.filter(|finding| analysis.share(finding.amount.tokens) >= MATERIAL) {
        let share = percent(analysis.share(it.amount.tokens));
        let mut why = format!(
            "{}: {share} of the prompt tokens, {} of prefill.",
            upper(&it.title),
            duration(it.amount.seconds)
        );
        if let Some(saving) = it.saving() {
            why += &format!(" {saving}");
        }
        return json!({"cause": it.cause, "fix": format!("{}.", it.fix), "why": why});
    }
    let all = causes(analysis);
    let cause = all.iter().find(|cause| cause.bucket.is_some());
    let cause = cause.filter(|cause| analysis.share(cause.tokens) >= MATERIAL);
    let (fix, why) = match cause.and_then(|cause| Some((cause, cause.bucket?))) {
        Some((cause, bucket)) => {
            let share = percent(analysis.share(cause.tokens));
            let why = format!("{}: {share} of the prompt tokens.", upper(&cause.name));
            (advice(bucket), why)
        }
        None => (
            "Nothing to fix.",
            "No cause of recomputation reaches 2 % of the prompt tokens.".to_owned(),
        ),
    };
    json!({"cause": null, "fix": fix, "why": why})
}

/// Returns the advice against tokens in a bucket.
fn advice(bucket: Bucket) -> &'static str {
    match bucket {
        Bucket::Evicted => {
            "Give each replica more KV capacity; the chart \"Hit rate by cache size\" shows the \
             gain."
        }
        Bucket::HeldElsewhere => {
            "Route each request to the replica that holds its prefix; `headstart serve` does."
        }
        Bucket::InFlight => "Send requests with the same prefix one after the other.",
        Bucket::IndexWrong => {
            "Check that the engine's prefix cache is on, and that it reports cached tokens."
        }
        Bucket::Reset => "Avoid restarts and cache resets, or keep KV in host memory or on disk.",
        Bucket::Namespace => {
            "Share prompts between tenants, adapters or models where that is safe."
        }
        Bucket::LoadFailed => "Check the storage tier: loads fail, or take longer than prefill.",
        _ => "Compare the prompts: `headstart lint FILE --show-text` shows what differs.",
    }
}

fn causes_with_shares(analysis: &Analysis) -> Value {
    let causes = causes(analysis);
    let causes = causes.iter().map(|cause| {
        json!({
            "name": cause.name,
            "tokens": cause.tokens,
            "share": analysis.share(cause.tokens),
            "is_mistake": cause.bucket.is_none(),
        })
    });
    causes.collect()
}

/// With a capital letter in front.
fn upper(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
