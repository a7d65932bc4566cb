//! `headstart analyze` and `headstart demo`, as users and scripts call them.

mod support;

use std::path::Path;

use serde_json::{Value, json};
use support::{output, text};

/// A log in a folder of its own, analyzed with `args`; what is printed.
fn analyzed(folder: &Path, log: &str, args: &[&str]) -> String {
    let file = folder.join("requests.jsonl");
    std::fs::write(&file, log).expect("writes");
    let file = file.display().to_string();
    let args: Vec<&str> = ["analyze", &file]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
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
        let system = format!(
            "It is 2026-03-02 09:{number:02}:17 now. {}",
            rules.join(" ")
        );
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
    assert!(
        !hidden.contains("09:01:17") && !hidden.contains("keeper"),
        "{hidden}"
    );
    assert!(!hidden.contains("secret-user"), "{hidden}");
    let report = parsed(&hidden);
    let finding = &report["findings"][0];
    assert_eq!(finding["cause"], "clock");
    assert_eq!(finding["requests"], 29);
    assert!(finding["example"]["old"].is_null());
    assert!(finding["tokens"].as_u64() > Some(10_000), "{finding}");
    let headline = report["headlines"][0].as_str().expect("a sentence");
    assert!(
        headline.contains("a date or time that changes"),
        "{headline}"
    );
    let shown = parsed(&analyzed(folder.path(), &log, &["--json", "--show-text"]));
    let example = &shown["findings"][0]["example"];
    assert!(
        example["new"]
            .as_str()
            .is_some_and(|new| new.contains("09:")),
        "{example}"
    );
}

#[test]
fn the_waterfall_sums_to_the_prompt_and_has_its_money() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = [
        "--json",
        "--gpu-hour",
        "2.5",
        "--kv-bytes",
        "1000",
        "--capacity",
        "1MB",
    ];
    let report = parsed(&analyzed(folder.path(), &clocked(12), &args));
    let steps = report["waterfall"].as_array().expect("steps");
    let tokens: u64 = steps
        .iter()
        .filter_map(|step| step["tokens"].as_u64())
        .sum();
    assert_eq!(Some(tokens), report["trace"]["prompt_tokens"].as_u64());
    assert!(steps.iter().any(|step| step["money"].as_f64() > Some(0.0)));
    assert_eq!(
        report["fleet"]["capacity_blocks"], 62,
        "a megabyte in blocks of 16,000 bytes"
    );
    assert_eq!(report["routing"]["replicas"], 4);
    for part in ["ceiling", "curve", "documents", "characterization", "knee"] {
        assert!(report.get(part).is_some(), "{part}");
    }
}

#[test]
fn what_the_log_says_was_cached_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let usage = ", \"usage\": {\"prompt_tokens\": 1000, \"prompt_tokens_details\": \
                 {\"cached_tokens\": 250}}}";
    let plain = clocked(8);
    let log = plain
        .lines()
        .map(|line| line.trim_end_matches('}').to_owned() + usage);
    let log: Vec<_> = log.collect();
    let report = parsed(&analyzed(folder.path(), &log.join("\n"), &["--json"]));
    assert_eq!(report["fleet"]["requests_with_own_cached_tokens"], 8);
    let device = &report["waterfall"][0];
    let share = device["share"].as_f64().expect("a share");
    assert!((share - 0.25).abs() < 0.01, "{share}");
}

#[test]
fn an_export_says_the_same_and_names_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let export = folder.path().join("export.jsonl");
    let export_name = export.display().to_string();
    let log = clocked(10);
    let report = parsed(&analyzed(
        folder.path(),
        &log,
        &["--json", "--export", &export_name],
    ));
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
}

#[test]
fn the_demo_needs_nothing_and_finds_what_was_put_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("demo.html");
    let output = output(["demo", "--json", "--html", &page.display().to_string()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = parsed(&text(&output.stdout));
    let findings = report["findings"].as_array().expect("findings");
    let causes: Vec<_> = findings
        .iter()
        .filter_map(|it| it["cause"].as_str())
        .collect();
    assert_eq!(causes, ["clock", "document-order", "tool-order"]);
    let headlines = report["headlines"].as_array().expect("headlines");
    assert!((3..=5).contains(&headlines.len()), "{headlines:?}");
    let page = std::fs::read_to_string(page).expect("written");
    for resource in [
        "http:", "https:", "src=", "href=", "url(", "@import", "fetch(",
    ] {
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
    check_refused(
        &["analyze", "./absent.jsonl"],
        1,
        "cannot open ./absent.jsonl",
    );
    check_refused(&["analyze", &log], 1, "line 2: no prompt");
    check_refused(
        &["analyze", &log, "--skip-bad"],
        1,
        "no request has a whole block",
    );
    check_refused(
        &["analyze", &log, "--skip-bad", "--html", &log],
        2,
        "is an input",
    );
    check_refused(
        &["analyze", &log, "--format", "parquet"],
        2,
        "known: mooncake",
    );
    check_refused(
        &["analyze", &log, "--gpu-hour", "1", "--price-table", "x"],
        2,
        "--price-table",
    );
}
