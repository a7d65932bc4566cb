//! A running server's record of a request: sources of its prompt's tokens, and reasons for the
//! misses.

use anyhow::{Result, bail, ensure};
use headstart_core::figures::thousands;
use headstart_insight::{Bucket, Cause};
use headstart_terminal::{self as output, aligned, colour};
use serde_json::Value;

use crate::exit::usage;
use crate::server::{ServerOptions, one_line};

/// Longest answer that is read: one request and all replicas that it could have gone to.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Buckets that a gateway fills by what it was told.
const OF_A_GATEWAY: [Bucket; 3] = [Bucket::IndexWrong, Bucket::HeldElsewhere, Bucket::NoTokens];

/// Asks a server about `request` and tells.
pub(super) fn run(server: &ServerOptions, request: &str, as_json: bool) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if request.is_empty() || !request.bytes().all(is_plain) {
        bail!(usage(format!("{request}: an id has letters, figures and -_.: only")));
    }
    let path = format!("/debug/requests/{request}");
    let record = server.json(&path, ANSWER_BYTES_MAX)?;
    ensure!(
        record["prompt_tokens"].is_u64(),
        "{} did not answer as a Headstart server does",
        server.url
    );
    output::line(&if as_json { record.to_string() } else { output::fitted(&told(&record)) })
}

/// For people: one headline, then tokens by bucket.
fn told(record: &Value) -> String {
    let tokens = |name: &str| record[name].as_u64().map(thousands);
    let all = tokens("prompt_tokens").unwrap_or_default();
    let cached = match tokens("cached_tokens") {
        Some(cached) => format!("{cached} of {all} prompt tokens were cached"),
        None => format!("{all} prompt tokens, without a cached-token count from the engine"),
    };
    let mut lines = vec![colour::heading(&format!(
        "Request {}: {cached}, on replica {}.",
        visible(&record["id"]),
        record["replica"]
    ))];
    let buckets = record["buckets"].as_object().into_iter().flatten();
    let rows = buckets.filter_map(|(name, tokens)| {
        let bucket: Bucket = name.parse().ok()?;
        let tokens = thousands(tokens.as_u64()?);
        let tokens = match bucket {
            Bucket::NeverSeen => tokens,
            served if served.is_served() => colour::hit(&tokens),
            _ => colour::loss(&tokens),
        };
        let meaning = bucket.meaning().to_owned();
        Some(vec![format!("  {bucket}"), tokens, meaning])
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        lines.push(String::new());
        lines.push(aligned(&rows).trim_end().to_owned());
    }
    if let Some(age_s) = record["evicted"]["age_s"].as_f64() {
        lines.push(format!("evicted {age_s:.0} s after its last use"));
    }
    if OF_A_GATEWAY.iter().any(|bucket| record["buckets"][bucket.name()].is_u64()) {
        lines.push(
            "A gateway sees its own routing and KV events only: its engine may put the same \
             tokens into other buckets."
                .to_owned(),
        );
    }
    let cause = record["cause"].as_str().and_then(|name| name.parse().ok());
    let is_again = [Bucket::Diverged, Bucket::NoTokens];
    match cause {
        Some(cause) => lines.extend(because(record, cause)),
        None if is_again.iter().any(|kind| record["buckets"][kind.name()].is_u64()) => lines.push(
            "The server found no cause. `headstart why REQUEST FILE` compares the prompts of a \
             request log."
                .to_owned(),
        ),
        None => {}
    }
    lines.join("\n")
}

/// The cause that a server found, which it does within a budget only. An older server names it and
/// no more.
fn because(record: &Value, cause: Cause) -> [String; 3] {
    let told = |field: &str, known: &str| match &record[field] {
        Value::String(text) => one_line(text),
        _ => known.to_owned(),
    };
    let neighbour = visible(&record["neighbour"]["request"]);
    [
        format!("nearest earlier request: {neighbour}"),
        format!("cause  {cause}: {}", told("title", cause.title())),
        format!("fix    {}", colour::fix(&told("fix", cause.fix()))),
    ]
}

/// A server's text, as a terminal may have it.
fn visible(text: &Value) -> String {
    one_line(text.as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_is_told_by_its_buckets() {
        let text = told(&json!({
            "id": "chatcmpl-1\u{1b}[0m",
            "replica": 2,
            "prompt_tokens": 4310,
            "cached_tokens": 4096,
            "buckets": {"device": 4096, "diverged": 200, "block-floor": 14, "later": 1},
            "evicted": null,
        }));
        let headline =
            "Request chatcmpl-1\\u{1b}[0m: 4,096 of 4,310 prompt tokens were cached, on replica 2.";
        assert!(text.starts_with(headline), "{text}");
        assert!(text.contains("seen after another prefix"), "{text}");
        assert!(!text.contains("later"), "{text}");
        assert!(text.contains("found no cause"), "{text}");
    }

    #[test]
    fn a_cause_that_the_server_found_is_told_with_its_fix() {
        let text = told(&json!({
            "id": "b", "replica": 0, "prompt_tokens": 100, "cached_tokens": 0,
            "buckets": {"diverged": 100}, "neighbour": {"request": "a"}, "cause": "clock",
        }));
        assert!(text.contains("request: a\ncause  clock: a date"), "{text}");
        assert!(text.contains("fix    move the date"), "{text}");
        let text = told(&json!({
            "id": "b", "replica": 0, "prompt_tokens": 100, "cached_tokens": 0,
            "buckets": {"no-tokens": 100}, "neighbour": {"request": "a"}, "cause": "clock",
            "title": "a date or time was inserted", "fix": "send it always",
        }));
        let cause = "cause  clock: a date or time was inserted\nfix    send it always";
        assert!(text.contains(cause), "{text}");
        assert!(text.contains("its engine may put"), "{text}");
    }
}
