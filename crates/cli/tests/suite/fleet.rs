//! Measured costs of an engine, and measured fleets beside simulated ones.

use crate::support;

use serde_json::{Value, json};
use support::{Scratch, Served, output, text};

/// Steps of 5 ms, 0.2 ms a token: fast enough for a test, far slower than what surrounds it.
const ENGINE: &str = "overhead_s = 0.004\nweights_s = 0.001\ntoken_s = 2e-4\npair_s = 1e-7\n\
    kv_token_s = 1e-6\nmax_batched_tokens = 512\nkv_tokens = 8_192\n";

/// Writes a file and tells where.
fn file(scratch: &Scratch, name: &str, contents: &str) -> String {
    let path = scratch.path(name);
    std::fs::write(&path, contents).expect("writes");
    path
}

fn lines(args: &[&str]) -> Vec<Value> {
    let out = output(args);
    assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
    let lines = text(&out.stdout);
    let parsed = lines.lines().map(serde_json::from_str);
    parsed.map(|line| line.expect("JSON")).collect()
}

/// Six system prompts in turn, in Mooncake's form.
fn trace(requests: usize) -> String {
    let line = |at: usize| {
        let request = json!({
            "timestamp": at * 50,
            "input_length": 1_100,
            "output_length": 4,
            "hash_ids": [at % 6, 100 + at % 6, 1_000 + at],
        });
        format!("{request}\n")
    };
    (0..requests).map(line).collect()
}

#[test]
fn a_fleet_is_measured_beside_what_is_simulated() {
    let scratch = Scratch::new("measured");
    let engine = file(&scratch, "engine.toml", &ENGINE.replace("2e-4", "1e-5"));
    let trace = file(&scratch, "trace.jsonl", &trace(60));
    let page = scratch.path("page.html");
    let args = [
        "bench",
        "fleet",
        "--trace",
        &trace,
        "--cost-model",
        &engine,
        "--replicas",
        "2",
        "--strategies",
        "round-robin,precise",
        "--json",
        "--html",
        &page,
    ];
    let lines = lines(&args);
    let of = |origin: &str, strategy: &str| {
        let is = |line: &&Value| {
            line["origin"] == origin && line["strategy"] == strategy && line["rung"] == "all"
        };
        lines.iter().find(is).unwrap_or_else(|| panic!("{origin} {strategy}"))
    };
    for strategy in ["round-robin", "precise"] {
        let (measured, simulated) = (of("measured", strategy), of("simulated", strategy));
        for key in ["answered", "failed", "refused"] {
            assert_eq!(measured[key], simulated[key], "{strategy}: {key}");
        }
        assert_eq!(measured["answered"], 60);
        // No client sees when a replica began.
        assert!(measured["service_ttft_s"].is_null() && !simulated["service_ttft_s"].is_null());
        let ttft = measured["ttft_s"]["p50"].as_f64().expect("a number");
        assert!(ttft > 0.005, "a step takes so long: {ttft}");
    }
    let agreement = |strategy: &str| {
        let mut found = lines.iter().filter(|line| line["strategy"] == strategy);
        let line = found.find(|line| line["agreement"].is_object());
        line.expect("both ways")["agreement"]["hit_rate_points"].as_f64()
    };
    let points = agreement("precise").expect("a number");
    assert!(points.abs() < 10.0, "{points}");
    let page = std::fs::read_to_string(&page).expect("written");
    assert!(page.contains("precise, measured"));
}

#[test]
fn an_emulated_engine_is_found_by_its_times() {
    let scratch = Scratch::new("found");
    let executor = format!("cost-model={}", file(&scratch, "engine.toml", ENGINE));
    let found = scratch.path("calibrated.toml");
    let server = Served::start(["--executor", &executor, "--replicas", "1"]);
    let args = [
        "calibrate",
        "--url",
        &server.url(),
        "--max-prompt-tokens",
        "1024",
        "--rounds",
        "1",
        "--max-sequences",
        "4",
        "--answer-tokens",
        "8",
        "--max-batched-tokens",
        "512",
        "--output",
        &found,
        "--json",
    ];
    let told = lines(&args).remove(0);
    // Its metrics tell how much fits.
    assert_eq!(told["kv_tokens"], 8_192);
    let near = |key: &str, expected: f64| {
        let ratio = told[key].as_f64().expect("a number") / expected;
        assert!((0.6..1.6).contains(&ratio), "{key}: {ratio} times, {told}");
    };
    near("token_s", 2e-4);
    let step = |model: &Value| {
        ["overhead_s", "weights_s"]
            .map(|key| model[key].as_f64().unwrap_or(0.0))
            .iter()
            .sum::<f64>()
    };
    assert!((0.003..0.009).contains(&step(&told)), "{told}");
    let written = std::fs::read_to_string(&found).expect("written");
    assert!(written.starts_with("# measured: "), "{written}");
}

#[test]
fn a_server_that_does_not_answer_fails_the_run_and_not_the_report() {
    let scratch = Scratch::new("nobody");
    let trace = file(&scratch, "trace.jsonl", &trace(3));
    let nobody = "http://127.0.0.1:9";
    let args = ["bench", "fleet", "--url", nobody, "--trace", &trace, "--json"];
    let out = output(args);
    assert_eq!(out.status.code(), Some(2));
    let complaint = text(&out.stderr);
    assert!(complaint.contains("no request was answered"), "{complaint}");
    let printed = text(&out.stdout);
    let first = printed.lines().next().expect("a line");
    let rung: Value = serde_json::from_str(first).expect("JSON");
    assert_eq!((&rung["failed"], &rung["answered"]), (&json!(3), &json!(0)));
    let out = output(["calibrate", "--url", nobody]);
    assert!(text(&out.stderr).contains("did not answer"), "{}", text(&out.stderr));
}

#[test]
fn a_running_server_is_simulated_as_it_is() {
    let scratch = Scratch::new("running");
    let engine = file(&scratch, "engine.toml", ENGINE);
    let trace = file(&scratch, "trace.jsonl", &trace(3));
    let executor = format!("cost-model={engine}");
    let server =
        Served::start(["--executor", &executor, "--replicas", "3", "--strategy", "round-robin"]);
    let url = server.url();
    let args = ["bench", "fleet", "--url", &url, "--trace", &trace, "--cost-model", &engine];
    let rungs = lines(&[&args[..], &["--json"]].concat());
    let simulated = rungs.iter().find(|line| line["origin"] == "simulated");
    assert_eq!(simulated.expect("simulated")["strategy"], "round-robin");
    let out = output(args);
    let printed = text(&out.stdout);
    assert!(printed.contains("3 replicas with"), "{printed}");
    let nobody = "http://127.0.0.1:9";
    let out = output([&args[..3], &[nobody], &args[4..]].concat());
    let complaint = text(&out.stderr);
    let expected = "reports no known strategy and replicas; give --strategies and --replicas";
    let words: Vec<&str> = complaint.split_whitespace().collect();
    assert!(words.join(" ").contains(expected), "{complaint}");
}

#[test]
fn engines_are_derived_from_data_sheets() {
    let told =
        lines(&["calibrate", "--derive", "qwen3-32b", "--gpu", "h100", "--gpus", "2", "--json"]);
    // 65.6 GB of weights at 5.36 TB/s.
    let weights_s = told[0]["weights_s"].as_f64().expect("a number");
    assert!((weights_s - 12.24e-3).abs() < 1e-4, "{weights_s}");
    assert_eq!(told[0]["error"], Value::Null);
    let refused = |args: &[&str], part: &str| {
        let out = output(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(text(&out.stderr).contains(part), "{}", text(&out.stderr));
    };
    refused(&["calibrate", "--derive", "gpt-9", "--gpu", "h100"], "known are llama-3.1-8b");
    refused(&["calibrate", "--derive", "qwen3-8b", "--gpu", "abacus"], "known are l4");
    refused(&["calibrate", "--derive", "llama-3.1-70b", "--gpu", "h100"], "alone fill 1 h100");
    refused(&["calibrate", "--derive", "qwen3-8b"], "--gpu");
    refused(&["bench", "fleet", "--preset", "best"], "known are llm-d-73");
    refused(&["bench", "fleet", "--strategies", "best"], "--strategies");
    refused(&["calibrate", "--replicas", "2"], "measured alone");
    refused(&["calibrate", "--replicas", "0"], "--replicas");
    let three = ["calibrate", "--derive", "qwen3-8b", "--gpu", "H100", "--gpus", "3"];
    refused(&three, "32 query heads");
    let url = ["bench", "fleet", "--url", "http://127.0.0.1:9"];
    refused(&[&url[..], &["--strategies", "precise,load"]].concat(), "a server at --url has one");
    refused(&["bench", "fleet", "--block-size", "0"], "--block-size");
    refused(&["bench", "fleet", "--users", "5"], "bench chat");
}
