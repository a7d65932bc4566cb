//! `headstart validate` and `headstart doctor` against a running server: equal hits, differences
//! with their reason, checks that pass, and complaints.

use crate::support;

use serde_json::{Value, json};
use support::{Scratch, Served, output, text};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces/golden.jsonl");

/// Requests of the golden trace with short prompts.
const SHORT: [&str; 8] =
    ["--requests", "60", "--id-tokens", "16", "--output-tokens", "1", "--tolerance", "0.5"];

/// Runs the command with `--json`; returns its exit code and the object.
fn validated(file: &str, server: &Served, more: &[&str]) -> (Option<i32>, Value) {
    let url = server.url();
    let output = output([&["validate", file, "--url", &url, "--json"], more].concat());
    let complaint = text(&output.stderr);
    let told = serde_json::from_slice(&output.stdout);
    (output.status.code(), told.unwrap_or_else(|error| panic!("{error}: {complaint}")))
}

#[test]
fn the_hits_of_a_trace_are_those_that_are_predicted() {
    let policy = ["--model", "toy-tiny", "--replicas", "1", "--policy", "lru"];
    let large = Served::start([&policy[..], &["--cache-blocks", "8000"]].concat());
    let (code, told) = validated(GOLDEN, &large, &[&SHORT[..], &["--policy", "lru"]].concat());
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(told["validation"]["requests"], 60, "{told}");
    assert_eq!(told["validation"]["equal"], 60, "{told}");
    assert_eq!(told["cache_blocks"], 8000, "by the server's metrics");
    assert_eq!(told["metrics"]["hits"], told["validation"]["reported_tokens"]);
    assert!(told["hit_rate"]["reported"].as_f64() > Some(0.0), "{told}");
    // A second run has another salt and finds nothing of the first.
    let (code, told) = validated(GOLDEN, &large, &[&SHORT[..], &["--policy", "lru"]].concat());
    assert_eq!((code, &told["validation"]["equal"]), (Some(0), &60.into()), "{told}");
}

#[test]
fn a_wrong_setting_is_a_difference_with_a_reason() {
    let server = Served::start([
        "--model",
        "toy-tiny",
        "--replicas",
        "1",
        "--cache-blocks",
        "120",
        "--policy",
        "lru",
    ]);
    let wrong = ["--policy", "lru", "--cache-blocks", "8000", "--tolerance", "0"];
    let (code, told) = validated(GOLDEN, &server, &[&SHORT[..6], &wrong].concat());
    assert_eq!(code, Some(1), "{told}");
    let reasons = told["validation"]["differences"].as_array().expect("a list");
    assert!(reasons.iter().any(|row| row["reason"] == "lost"), "{told}");
}

#[test]
fn the_prompts_of_a_log_become_tokens_by_the_engine() {
    let scratch = Scratch::new("validate");
    let line = |id: usize, question: &str| {
        let system = "You answer questions about the time table. ".repeat(20);
        let messages = json!([
            {"role": "system", "content": system},
            {"role": "user", "content": question},
        ]);
        json!({"id": format!("r{id}"), "messages": messages}).to_string()
    };
    let log: Vec<String> = (0..6).map(|id| line(id, &format!("Question {id}?"))).collect();
    let log = scratch.write("log.jsonl", (log.join("\n") + "\n").as_bytes());
    let server = Served::start(["--model", "toy-tiny", "--replicas", "1"]);
    let (code, told) = validated(&log, &server, &[]);
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(told["validation"]["equal"], 6, "{told}");
    assert!(told["hit_rate"]["reported"].as_f64() > Some(0.5), "{told}");
}

#[test]
fn several_caches_and_no_server_are_errors() {
    let server = Served::start(["--model", "toy-tiny", "--replicas", "2"]);
    let refused = output(["validate", GOLDEN, "--url", &server.url()]);
    let complaint = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("2 caches"), "{complaint}");
    let refused = output(["validate", GOLDEN, "--url", "http://127.0.0.1:9"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("did not answer"), "{}", text(&refused.stderr));
}

#[test]
fn the_doctor_finds_a_working_cache() {
    let server = Served::start(["--model", "toy-tiny", "--replicas", "2"]);
    let output = output(["doctor", "--url", &server.url(), "--json"]);
    let complaint = text(&output.stderr);
    let told: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {complaint}"));
    assert_eq!(output.status.code(), Some(0), "{told} {complaint}");
    let checks = told["checks"].as_array().expect("a list");
    for name in ["prefix caching", "block size", "cache_salt", "KV memory", "replicas"] {
        let found = checks.iter().find(|check| check["name"] == name);
        assert_eq!(found.map(|check| &check["verdict"]), Some(&"passed".into()), "{name}: {told}");
    }
    assert_eq!(told["probe"]["step"].as_u64().expect("a number") % 16, 0, "{told}");
}
