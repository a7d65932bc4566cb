//! `headstart analyze` and `headstart demo`, as users and scripts call them.

mod headlines;
mod page;
use crate::support;

use std::path::Path;

use serde_json::{Value, json};
use support::{output, text};

/// A log in a folder of its own, analyzed with `args`; what is printed.
fn analyzed(folder: &Path, log: &str, args: &[&str]) -> String {
    let file = folder.join("requests.jsonl");
    std::fs::write(&file, log).expect("writes");
    let file = file.display().to_string();
    let args: Vec<&str> = ["analyze", &file].into_iter().chain(args.iter().copied()).collect();
    let output = output(args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("one JSON object")
}

/// Requests that share everything but a clock at the start of a long system prompt.
fn clocked(requests: usize) -> String {
    let rules: Vec<String> = (0..80)
        .map(|rule| format!("Rule {rule}: the keeper of key {rule} answers for door {rule}."))
        .collect();
    let line = |number: usize| {
        let system = format!("It is 2026-03-02 09:{number:02}:17 now. {}", rules.join(" "));
        json!({
            "request_id": format!("q{number}"),
            "model": "m",
            "user": format!("secret-user-{}", number % 3),
            "created": 1_772_442_000 + number * 60,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": format!("Which door is number {number}?")},
            ],
        })
        .to_string()
    };
    (0..requests).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_clock_is_found_first_and_its_text_shown_only_when_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = clocked(30);
    let hidden = analyzed(folder.path(), &log, &["--json"]);
    assert!(!hidden.contains("09:01:17") && !hidden.contains("keeper"), "{hidden}");
    assert!(!hidden.contains("secret-user"), "{hidden}");
    let report = parsed(&hidden);
    let finding = &report["findings"][0];
    assert_eq!(finding["cause"], "clock");
    assert_eq!(finding["requests"], 29);
    assert!(finding["example"]["old"].is_null());
    assert!(finding["tokens"].as_u64() > Some(10_000), "{finding}");
    let headline = report["headlines"][0].as_str().expect("a sentence");
    assert!(headline.contains("a date or time that changes"), "{headline}");
    let shown = parsed(&analyzed(folder.path(), &log, &["--json", "--show-text"]));
    let example = &shown["findings"][0]["example"];
    assert!(example["new"].as_str().is_some_and(|new| new.contains("09:")), "{example}");
}

/// The number is what a fixed log hits more.
#[test]
fn a_finding_says_what_its_fix_saves() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = clocked(30);
    let minute = |number: usize| format!(" 09:{number:02}:17 ");
    let fixed = (1..30).fold(log.clone(), |log, number| log.replace(&minute(number), &minute(0)));
    let args = ["--json", "--replicas", "1"];
    let [log, fixed] = [log, fixed].map(|log| parsed(&analyzed(folder.path(), &log, &args)));
    let computed = |report: &Value| -> u64 {
        let steps = report["waterfall"].as_array().expect("buckets").iter();
        let computed = steps.filter(|step| step["is_served"] == false);
        computed.map(|step| step["tokens"].as_u64().expect("a count")).sum()
    };
    let finding = &log["findings"][0];
    let saved = finding["fix_saves_tokens"].as_u64().expect("a count");
    assert_eq!(saved, computed(&log) - computed(&fixed), "{finding}");
    assert_eq!(fixed["findings"], json!([]));
}

#[test]
fn the_waterfall_sums_to_the_prompt_and_has_its_money() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = ["--json", "--gpu-hour", "2.5", "--kv-bytes", "1000", "--capacity", "1MB"];
    let report = parsed(&analyzed(folder.path(), &clocked(12), &args));
    let steps = report["waterfall"].as_array().expect("steps");
    let tokens: u64 = steps.iter().filter_map(|step| step["tokens"].as_u64()).sum();
    assert_eq!(Some(tokens), report["trace"]["prompt_tokens"].as_u64());
    assert!(steps.iter().any(|step| step["money"].as_f64() > Some(0.0)));
    assert_eq!(report["fleet"]["capacity_blocks"], 62, "a megabyte in blocks of 16,000 bytes");
    assert_eq!(report["routing"]["replicas"], 4);
    for part in ["ceiling", "curve", "documents", "characterization", "knee"] {
        assert!(report.get(part).is_some(), "{part}");
    }
}

/// The money of some models' tokens is not shown as that of all.
#[test]
fn without_a_price_for_every_model_no_sum_has_money() {
    let folder = tempfile::tempdir().expect("a folder");
    let prices = folder.path().join("prices.toml");
    let table = "currency = \"EUR\"\n[models.m]\ncache_miss = 1\ncache_hit = 0.1\noutput = 2\n";
    std::fs::write(&prices, table).expect("writes");
    let prices = prices.display().to_string();
    // Tokens with money and without, and how many the remark says are of unpriced models.
    let told = |log: &str| {
        let args = ["--json", "--price-table", &prices];
        let report = parsed(&analyzed(folder.path(), log, &args));
        let steps = report["waterfall"].as_array().expect("steps");
        let tokens = |has_money: bool| -> u64 {
            let some = steps.iter().filter(|step| step["money"].is_number() == has_money);
            some.filter_map(|step| step["tokens"].as_u64()).sum()
        };
        let remarks = report["trace"]["remarks"].as_array().expect("remarks");
        let mut said = remarks.iter().filter_map(Value::as_str);
        let remark =
            said.find_map(|remark| remark.split_once(" of the prompt tokens are for models"));
        let unpriced = remark.map(|(count, _)| count.replace(',', ""));
        let unpriced = unpriced.map(|count| count.parse::<u64>().expect("a number"));
        let money = &report["findings"][0]["money"];
        (tokens(true), tokens(false), unpriced, money.is_number())
    };
    let log = clocked(12);
    let (all, none, unpriced, has_money) = told(&log);
    assert_eq!((none, unpriced, has_money), (0, None, true));
    assert!(all > 10_000, "{all}");
    // Every request of another model: nothing has a price.
    let other = log.replace("\"model\":\"m\"", "\"model\":\"n\"");
    assert_eq!(told(&other), (0, all, Some(all), false));
    // Both: at least the tails of either are in one bucket.
    let (priced, without, unpriced, _) = told(&format!("{log}\n{other}"));
    assert_eq!(priced + without, 2 * all);
    assert_eq!(unpriced, Some(all));
    assert!(without > all, "{without} of {}", 2 * all);
}

#[test]
fn what_the_log_says_was_cached_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let usage = ", \"usage\": {\"prompt_tokens\": 1000, \"prompt_tokens_details\": \
                 {\"cached_tokens\": 250}}}";
    let plain = clocked(8);
    let log = plain.lines().map(|line| line.trim_end_matches('}').to_owned() + usage);
    let log: Vec<_> = log.collect();
    let report = parsed(&analyzed(folder.path(), &log.join("\n"), &["--json"]));
    assert_eq!(report["fleet"]["requests_with_own_cached_tokens"], 8);
    let device = &report["waterfall"][0];
    let share = device["share"].as_f64().expect("a share");
    assert!((share - 0.25).abs() < 0.01, "{share}");
}

/// `requests` copies of one long prompt, each with what `more` says of it.
fn copies(requests: usize, more: impl Fn(usize) -> Value) -> String {
    let rules = (0..120).map(|rule| format!("Rule {rule} is on page {}.", rule * 7));
    let line = |number: usize| {
        let mut line = json!({"model": "m", "prompt": rules.clone().collect::<Vec<_>>().join(" ")});
        for (name, value) in more(number).as_object().expect("fields") {
            line[name] = value.clone();
        }
        line.to_string()
    };
    (0..requests).map(line).collect::<Vec<_>>().join("\n")
}

fn tokens_in(report: &Value, bucket: &str) -> u64 {
    let steps = report["waterfall"].as_array().expect("steps");
    let step = steps.iter().find(|step| step["bucket"] == bucket);
    step.and_then(|step| step["tokens"].as_u64()).unwrap_or(0)
}

/// The engine's cache is unknown: no token counts as evicted, and the first headline says that
/// nothing was served.
#[test]
fn an_engine_that_serves_nothing_is_told_first_and_nothing_is_invented() {
    let folder = tempfile::tempdir().expect("a folder");
    let usage = json!({"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 0}});
    let log = copies(30, |number| json!({"usage": usage, "created": 1_772_442_000 + 60 * number}));
    let report = parsed(&analyzed(folder.path(), &log, &["--json"]));
    for invented in ["evicted", "held-elsewhere", "device"] {
        assert_eq!(tokens_in(&report, invented), 0, "{invented}");
    }
    assert!(tokens_in(&report, "index-wrong") > 10_000);
    assert_eq!(report["logged"]["served_tokens"], 0);
    assert!(report["logged"]["replayed_share"].as_f64() > Some(0.9));
    let first = report["headlines"][0].as_str().expect("a sentence");
    assert!(first.contains("served nothing from its cache"), "{first}");
    assert!(first.contains("30 requests"), "{first}");
}

#[test]
fn what_is_asked_at_once_is_in_flight_where_times_tell() {
    let folder = tempfile::tempdir().expect("a folder");
    let at_once = copies(
        24,
        |number| json!({"timestamp": 1_772_442_000.0 + (number / 8 * 60) as f64, "ttft_ms": 400}),
    );
    let report = parsed(&analyzed(folder.path(), &at_once, &["--json"]));
    let (burst, found) = (tokens_in(&report, "in-flight"), tokens_in(&report, "device"));
    // Seven of the first eight find the prompt being computed; of the others all find it.
    assert!(burst > 0 && found > 2 * burst && found < 3 * burst, "{burst} {found}");
    let undated = copies(24, |_| json!({}));
    let report = parsed(&analyzed(folder.path(), &undated, &["--json"]));
    assert_eq!(tokens_in(&report, "in-flight"), 0);
}

#[test]
fn a_log_without_times_says_nothing_of_durations() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = copies(24, |_| json!({}));
    let report = parsed(&analyzed(folder.path(), &log, &["--json"]));
    assert!(report["trace"]["span_s"].is_null());
    for timed in ["over_time", "reuse", "lifespan", "next_turn"] {
        assert!(report["characterization"][timed].is_null(), "{timed}");
    }
    let text = analyzed(folder.path(), &log, &[]);
    assert!(!text.contains("time to reuse"), "{text}");
    assert!(text.contains("the requests have no times"), "{text}");
}

#[test]
fn one_request_claims_nothing_and_few_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = analyzed(folder.path(), &copies(1, |_| json!({})), &[]);
    assert!(text.contains("1 request, 1 session"), "{text}");
    assert!(text.contains("1. One request alone has no earlier prefix"), "{text}");
    assert!(!text.contains("\n2. "), "{text}");
    let text = analyzed(folder.path(), &copies(3, |_| json!({})), &[]);
    assert!(text.contains("1. Only 3 requests"), "{text}");
}

/// Prompts of one tenant cannot serve another, in whatever order.
#[test]
fn advice_on_order_stays_within_a_salt() {
    let folder = tempfile::tempdir().expect("a folder");
    let added = |salts: usize| {
        let log = copies(24, |number| {
            let prompt = format!("{number} is who asks. {}", "One of many rules. ".repeat(300));
            json!({"prompt": prompt, "cache_salt": format!("tenant {}", number % salts)})
        });
        let report = parsed(&analyzed(folder.path(), &log, &["--json"]));
        report["documents"]["order_free_tokens"].as_u64().expect("texts")
    };
    assert!(added(1) > 10_000);
    assert_eq!(added(24), 0);
}

/// The mean of many draws, not one: of two requests one in four finds the other's replica.
#[test]
fn random_routing_is_a_mean() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = parsed(&analyzed(folder.path(), &copies(2, |_| json!({})), &["--json"]));
    let random = &report["routing"]["random"];
    let (mean, best) = (&random["tokens"], &report["routing"]["precise"]["tokens"]);
    assert!(random["draws"].as_u64() >= Some(32), "{random}");
    let share = mean.as_f64().expect("tokens") / best.as_f64().expect("tokens");
    assert!((0.05..0.5).contains(&share), "{share}");
}

#[test]
fn a_page_goes_to_standard_output_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = analyzed(folder.path(), &clocked(5), &["--html", "-"]);
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    let log = folder.path().join("requests.jsonl").display().to_string();
    check_refused(&["analyze", &log, "--html", "-", "--json"], 2, "--html - --json");
    check_refused(&["analyze", &log, "--export", "-"], 2, "name a file");
}

#[test]
fn an_export_says_the_same_and_names_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let export = folder.path().join("export.jsonl");
    let export_name = export.display().to_string();
    let log = clocked(10);
    let report = parsed(&analyzed(folder.path(), &log, &["--json", "--export", &export_name]));
    let written = std::fs::read_to_string(&export).expect("written");
    for secret in ["secret-user", "keeper", "q1", "\"m\""] {
        assert!(!written.contains(secret), "{secret} in {written}");
    }
    let output = output(["analyze", &export_name, "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let again = parsed(&text(&output.stdout));
    for part in ["ceiling", "curve", "knee"] {
        assert_eq!(again[part], report[part], "{part}");
    }
    // Ids name whole prefixes: a new prompt and a changed front look the same.
    assert_eq!(tokens_in(&again, "never-seen") + tokens_in(&again, "diverged"), 0);
    assert!(tokens_in(&again, "new-or-changed") > 0);
    assert_eq!(tokens_in(&again, "device"), tokens_in(&report, "device"));
}

#[test]
fn the_demo_needs_nothing_and_finds_what_was_put_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("demo.html");
    let output = output(["demo", "--json", "--html", &page.display().to_string()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = parsed(&text(&output.stdout));
    let findings = report["findings"].as_array().expect("findings");
    let causes: Vec<_> = findings.iter().filter_map(|finding| finding["cause"].as_str()).collect();
    assert_eq!(causes, ["clock", "document-order", "tool-order"]);
    let headlines = report["headlines"].as_array().expect("headlines");
    assert!((3..=5).contains(&headlines.len()), "{headlines:?}");
    let names_a_file = |headline: &Value| headline.to_string().contains("headstart why");
    assert!(!headlines.iter().any(names_a_file), "there is none: {headlines:?}");
    let page = std::fs::read_to_string(page).expect("written");
    for resource in ["http:", "https:", "src=", "href=", "url(", "@import", "fetch("] {
        assert!(!page.contains(resource), "{resource} in the page");
    }
    assert!(page.contains("default-src 'none'") && page.contains("document-order"));
    assert!(text(&output.stderr).contains("headstart analyze requests.jsonl"));
}

fn check_refused(args: &[&str], code: i32, part: &str) {
    let output = output(args);
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {complaint}");
    assert!(complaint.contains(part), "{args:?}: {complaint}");
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log.jsonl");
    std::fs::write(&log, "{\"prompt\": \"x\"}\n{\"model\": 1}\n").expect("writes");
    let log = log.display().to_string();
    check_refused(&["analyze"], 2, "FILE");
    check_refused(&["analyze", "./absent.jsonl"], 2, "cannot open ./absent.jsonl");
    check_refused(&["analyze", &log], 2, "line 2: no prompt");
    check_refused(&["analyze", &log, "--skip-bad"], 2, "no request has a whole block");
    check_refused(&["analyze", &log, "--skip-bad", "--html", &log], 2, "is an input");
    check_refused(&["analyze", &log, "--replicas", "-1"], 2, "expected 1 to 1024");
    check_refused(&["analyze", &log, "--arrivals", "5"], 2, "agent sessions only");
    let azure = folder.path().join("azure.csv");
    let rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,0,10\n";
    std::fs::write(&azure, rows).expect("writes");
    check_refused(&["analyze", &azure.display().to_string()], 2, "lengths and times only");
    std::fs::write(folder.path().join("good.jsonl"), copies(3, |_| json!({}))).expect("writes");
    let good = folder.path().join("good.jsonl").display().to_string();
    check_refused(&["analyze", &good, "--gpu-hour", "-5"], 2, "dollars from 0");
    check_refused(&["analyze", &log, "--format", "parquet"], 2, "known: mooncake");
    check_refused(&["analyze", &log, "--gpu-hour", "1", "--price-table", "x"], 2, "--price-table");
}

#[test]
fn a_demo_replaces_its_own_log_and_no_other_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (log, page) = (at("requests.jsonl"), at("page.html"));
    let run = || output(["demo", "--log", &log, "--html", &page]);
    for _ in 0..2 {
        assert_eq!(run().status.code(), Some(0));
    }
    let own = std::fs::read(&log).expect("a log");
    for other in [&b"my notes"[..], &vec![b'x'; own.len()]] {
        std::fs::write(&log, other).expect("writes");
        let refused = run();
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).contains("is another file"));
        assert_eq!(std::fs::read(&log).expect("reads"), other);
    }
}
