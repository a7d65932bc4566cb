//! `headstart plan` as users and scripts call it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A committed generated trace of 800 requests.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces/golden.jsonl");

fn plan(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.env("HEADSTART_PROGRESS_AFTER_MS", "3600000");
    command.arg("plan").args(args).stdin(Stdio::null());
    command.output().expect("the binary runs")
}

fn printed(args: &[&str]) -> String {
    let output = plan(args);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {complaint}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn object(args: &[&str]) -> Value {
    serde_json::from_str(&printed(&[args, &["--json"]].concat())).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn more_memory_finds_more_until_all_is_found() {
    let args = [GOLDEN, "--model", "llama2-13b", "--device-gib", "20"];
    let report = object(&args);
    let rows = report["rows"].as_array().expect("rows");
    assert!(rows.len() >= 4, "{report}");
    for pair in rows.windows(2) {
        let rate = |row: &Value| number(&row["token_hit_rate"]);
        assert!(rate(&pair[0]) <= rate(&pair[1]), "{report}");
        let saved = |tier| number(&pair[1]["saved_s_per_hour"][tier]);
        assert!(saved("host") >= saved("disk"), "{report}");
    }
    let last = rows.last().expect("a row");
    let ideal = number(&report["ideal_token_hit_rate"]);
    assert!(number(&last["token_hit_rate"]) >= 0.9999 * ideal, "{report}");
    let enough = number(&report["times_enough"]);
    let rate_at = |times: f64| {
        let row = rows.iter().find(|row| number(&row["times"]) == times);
        number(&row.expect("a row for it")["token_hit_rate"])
    };
    assert!(enough > 1.0 && rate_at(enough) >= 0.99 * ideal, "{report}");
    let all = number(&last["saved_s_per_hour"]["host"]);
    assert!(all > 0.0 && all < number(&report["prefill_s_per_hour"]));

    // A replay with this number of blocks finds the same.
    let blocks = (number(&report["device_blocks"]) * 2.0).to_string();
    let mut replay = Command::new(env!("CARGO_BIN_EXE_headstart"));
    replay.env("HEADSTART_PROGRESS_AFTER_MS", "3600000");
    let replay =
        replay.args(["replay", GOLDEN, "--policy", "lru", "--json", "--capacity", &blocks]);
    let output = replay.output().expect("the binary runs");
    let line: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let steady = &line["steady"]["tokens"];
    let expected = number(&steady["hits"]) / number(&steady["lookups"]);
    assert!((rate_at(2.0) - expected).abs() < 1e-12, "{steady}");

    let table = printed(&args);
    assert!(table.contains("needs") && table.contains("the device memory"), "{table}");
}

#[test]
fn a_folder_needs_to_be_told_what_it_runs_on() {
    let folder: PathBuf =
        std::env::temp_dir().join(format!("headstart-plan-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let config = r#"{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 8, "torch_dtype": "bfloat16"}"#;
    std::fs::write(folder.join("config.json"), config).expect("writes");
    let path = folder.to_str().expect("UTF-8");
    let output = plan(&[GOLDEN, "--model", path]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint.contains("--device-gib"), "{complaint}");
    let report = object(&[GOLDEN, "--model", path, "--device-gib", "0.001"]);
    assert_eq!(number(&report["block_bytes"]) % 128.0, 0.0);
    assert!(report["prefill_s_per_hour"].is_null());
    let costs = "overhead_s = 0.005\nweights_s = 0.001\ntoken_s = 1e-4\npair_s = 1e-10\n\
                 kv_token_s = 1e-10\nmax_batched_tokens = 2048\nkv_tokens = 9000\n";
    let file = folder.join("engine.toml");
    std::fs::write(&file, costs).expect("writes");
    let file = file.to_str().expect("UTF-8");
    let report = object(&[GOLDEN, "--model", path, "--cost-model", file]);
    assert!(number(&report["prefill_s_per_hour"]) > 0.0);
    std::fs::remove_dir_all(&folder).expect("it is there");
}

#[test]
fn what_is_wrong_is_named() {
    let check = |args: &[&str], part: &str| {
        let output = plan(&[&[GOLDEN], args].concat());
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {complaint}");
        assert!(complaint.contains(part), "{args:?}: {complaint}");
    };
    check(&[], "--model");
    check(&["--model", "gpt-x"], "qwen2-7b, llama2-13b, llama3-70b");
    let named = |rest: &[&str], part: &str| check(&[&["--model", "qwen2-7b"], rest].concat(), part);
    named(&["--gpu", "abacus"], "known are l4");
    named(&["--device-gib", "0"], "--device-gib 0.0");
    named(&["--enough", "2"], "--enough 2.0");
    named(&["--disk-gbps", "0"], "--disk-gbps 0.0");
    named(&["--policy", "mru"], "unknown policy `mru`");
    named(&["--cold", "1"], "--cold 1.0");
    named(&["--kv-dtype", "fp8"], "a model folder");
    check(&["--model", "llama3-70b", "--gpus", "1"], "fill 1 a100");
}
