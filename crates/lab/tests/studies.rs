//! The simulated studies of `headstart-lab`, as a script calls them.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A small experiment.
const SMALL: &[&str] = &[
    "--minutes",
    "2",
    "--seeds",
    "2",
    "--slots",
    "40",
    "--lambda",
    "20",
    "--sizes",
    "8K,16K",
    "--policies",
    "lru,lpc,oracle",
];

fn lab(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart-lab"));
    command.env("HEADSTART_PROGRESS_AFTER_MS", "3600000");
    command.args(args).stdin(Stdio::null());
    command.output().expect("the binary runs")
}

fn printed(args: &[&str]) -> String {
    let output = lab(args);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {complaint}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn lines(args: &[&str]) -> Vec<Value> {
    let parsed = |line: &str| serde_json::from_str(line).expect("JSON");
    printed(args).lines().map(parsed).collect()
}

fn scratch(name: &str, contents: &str) -> PathBuf {
    let name = format!("headstart-lab-{}-{name}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, contents).expect("writes");
    path
}

#[test]
fn a_preset_runs_and_stands_beside_what_was_published() {
    let args = [&["prediction", "--preset", "lpc-lmsys"], SMALL].concat();
    let table = printed(&args);
    assert!(table.contains("lpc-lmsys: ") && table.contains("22 to 30 %"), "{table}");
    assert_eq!(table, printed(&args), "the same bytes again");
    let lines = lines(&[&args[..], &["--json"]].concat());
    let rate = |arm: &str, size: u64| {
        let is_it = |line: &&Value| line["arm"] == arm && line["cache_tokens"] == size;
        let line = lines.iter().find(is_it).expect("a line for each arm and size");
        line["token_hit_rate"].as_f64().expect("a rate")
    };
    for size in [8_000, 16_000] {
        let others = rate("lru", size).max(rate("lpc", size));
        assert!(rate("oracle", size) > others, "{size}");
    }
    let csv = printed(&[&args[..], &["--csv"]].concat());
    assert_eq!(csv.lines().count(), 1 + 2 * 3 * 2);
}

#[test]
fn conversations_and_a_record_are_read() {
    let text = r#"{"turns": [{"role": "user", "text": "What is the capital of this country here?"},
        {"role": "assistant", "text": "It depends on which one you mean, of course."},
        {"role": "user", "text": "The one that we are in, if you please, my friend."}]}"#;
    let chats = scratch("chats.jsonl", &format!("{}\n", text.replace('\n', " ")));
    let file = chats.to_str().expect("UTF-8");
    let small = ["prediction", "--conversations", file, "--template-tokens", "20", "--json"];
    let lines_of = lines(&[&small, SMALL].concat());
    assert!(lines_of[0]["token_hit_rate"].as_f64().expect("a rate") > 0.1);

    let record = concat!(
        r#"{"record":"headstart-chat","version":1,"run":"lru","answers":"generated","#,
        r#""conversations":1}"#,
        "\n",
        r#"{"conversation":0,"start_s":0.0,"shared":null,"turns":["#,
        r#"{"think_s":0,"prompt_tokens":64,"new_tokens":64,"answer_tokens":17,"cached_tokens":0,"#,
        r#""sent_s":0,"ttft_s":0.1,"e2e_s":1},"#,
        r#"{"think_s":3,"prompt_tokens":100,"new_tokens":19,"answer_tokens":8,"cached_tokens":80,"#,
        r#""sent_s":4,"ttft_s":0.1,"e2e_s":1}]}"#,
        "\n"
    );
    let record = scratch("run.jsonl", record);
    let file = record.to_str().expect("UTF-8");
    let recorded = ["prediction", "--record", file, "--sizes", "4K", "--policies", "lru"];
    let lines_of = lines(&[&recorded[..], &["--json"]].concat());
    let run = &lines_of[0]["runs"][0];
    assert_eq!((&run["prompt_tokens"], &run["cached_tokens"]), (&164.into(), &80.into()));
    // Long lines are broken.
    let told = printed(&recorded);
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("with starts and gaps as recorded: one run"), "{told}");
    let output = lab(&[&recorded[..], &["--warm-up", "60"]].concat());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("--warm-up 60.0: the run has 0.1 minutes"), "{complaint}");
    for path in [chats, record] {
        std::fs::remove_file(path).expect("it is there");
    }
}

#[test]
fn host_memory_stands_beside_what_the_study_says() {
    let args = [
        "host-memory",
        "--preset",
        "wild-consumer",
        "--models",
        "llama2-13b",
        "--host",
        "0,2",
        "--policies",
        "lru,wa",
        "--minutes",
        "10",
        "--seeds",
        "2",
    ];
    let table = printed(&args);
    let verdict = "wa: block hits over the best baseline";
    assert!(table.contains("llama2-13b on 1 A800") && table.contains(verdict), "{table}");
    assert_eq!(table, printed(&args), "the same bytes again");
    let lines = lines(&[&args[..], &["--json"]].concat());
    assert_eq!(lines.len(), 2 * 2 + 2, "cells, and what wa gains in two of them");
    let rate = |line: &Value, name: &str| line[name].as_f64().expect("a rate");
    for (none, some) in [(0, 2), (1, 3)] {
        let (none, some) = (&lines[none], &lines[some]);
        assert_eq!(none["policy"], some["policy"]);
        assert_eq!(rate(none, "token_hit_rate"), rate(none, "device_token_hit_rate"));
        assert!(rate(some, "token_hit_rate") > rate(some, "device_token_hit_rate"));
    }
    assert_eq!(lines[4]["published"]["over_best_percent"][0], 1.5);

    let trace = scratch("wild.jsonl", &bailian(200));
    let file = trace.to_str().expect("UTF-8");
    let told = printed(&["host-memory", "--trace", file, "--models", "qwen2-7b", "--host", "1"]);
    assert!(told.contains("wild.jsonl") && told.contains("1 draw"), "{told}");
    std::fs::remove_file(trace).expect("it is there");

    let long = concat!(
        r#"{"headstart_trace":1,"block_tokens":2000000,"types":["unknown"],"#,
        r#""sessions":"given","turns":"given","types_from":"given"}"#,
        "\n",
        r#"{"arrival_ns":1,"type":0,"session":0,"turn":1,"output_tokens":1,"blocks":[[0,1]]}"#,
        "\n"
    );
    let trace = scratch("long-blocks.jsonl", long);
    let output = lab(&["host-memory", "--trace", trace.to_str().expect("UTF-8")]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("2000000 tokens, more than"), "{complaint}");
    std::fs::remove_file(trace).expect("it is there");
}

#[test]
fn a_trace_without_times_is_no_load() {
    let lines = bailian(8);
    let at_once = lines.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).expect("JSON");
        line["timestamp"] = 0.into();
        format!("{line}\n")
    });
    let trace = scratch("at-once.jsonl", &at_once.collect::<String>());
    let output = lab(&["host-memory", "--trace", trace.to_str().expect("UTF-8"), "--host", "1"]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("arrive at 0 s") && output.stdout.is_empty(), "{complaint}");
    std::fs::remove_file(trace).expect("it is there");
}

/// Conversations of four requests each, a second apart.
fn bailian(requests: u64) -> String {
    let line = |number: u64| {
        let (chat, turn) = (number / 4, number % 4);
        let ids: Vec<u64> = (chat * 100..chat * 100 + 20 * (turn + 1)).collect();
        let parent = if turn == 0 { -1 } else { number as i64 - 1 };
        format!(
            "{{\"chat_id\": {number}, \"parent_chat_id\": {parent}, \"timestamp\": {number}, \
             \"input_length\": {}, \"output_length\": 9, \"type\": \"text\", \"turn\": {}, \
             \"hash_ids\": {ids:?}}}\n",
            ids.len() * 16,
            turn + 1
        )
    };
    (0..requests).map(line).collect()
}

#[test]
fn what_is_wrong_is_named_before_anything_runs() {
    let check = |args: &[&str], part: &str| {
        let output = lab(args);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {complaint}");
        assert!(complaint.contains(part), "{args:?}: {complaint}");
    };
    check(&["prediction", "--preset", "lpc-mine"], "lpc-lmsys, lpc-sharegpt, lpc-arena");
    let preset = |rest: &[&str], part: &str| {
        check(&[&["prediction", "--preset", "lpc-lmsys"], rest].concat(), part);
    };
    preset(&["--policies", "mru"], "unknown policy `mru`");
    preset(&["--host", "2"], "unexpected argument '--host'");
    let wild = |rest: &[&str], part: &str| {
        check(&[&["host-memory", "--preset", "wild-business"], rest].concat(), part);
    };
    wild(&["--models", "gpt-x"], "qwen2-7b, llama2-13b, llama3-70b");
    wild(&["--policies", "mru"], "unknown policy `mru`");
    wild(&["--host", "99"], "--host 99.0");
    wild(&["--load", "0"], "--load 0.0");
    wild(&["--minutes", "0.0001"], "no request arrives");
    wild(&["--minutes", "5", "--warm-up", "5"], "the run has 5.0 minutes");
    wild(&["--gateways", "2"], "unexpected argument '--gateways'");
    preset(&["--sizes", "many"], "160K");
    preset(&["--mcc", "2"], "--mcc 2");
    preset(&["--oracle", "delphi"], "flips, logit or confident");
    preset(&["--predictor", "model"], "carry no predictions");
    preset(&["--engine", "fast"], "qwen3-32b-h100");
    preset(&["--gaps", "uniform"], "lognormal:SIGMA");
    preset(&["--minutes", "0"], "--minutes 0");
    preset(&["--minutes", "1", "--warm-up", "1"], "the run has 1.0 minutes");
    preset(&["--minutes=-1"], "--minutes -1");
    preset(&["--lambda", "1e300"], "--lambda 1e300: ");
    let texts = "give it with --conversations FILE";
    for option in ["--limit", "--template-tokens", "--answer-tokens", "--model"] {
        preset(&[option, "1"], texts);
        check(&["prediction", "--record", "./absent", option, "1"], texts);
    }
    for option in ["--gaps", "--slots", "--answer-ms", "--shared-tokens", "--minutes", "--seeds"] {
        check(&["prediction", "--record", "./absent", option, "1"], "cannot be used with");
    }
    preset(&["--tokenizer", "."], texts);
    let alone =
        scratch("alone.jsonl", "{\"turns\": [{\"role\": \"user\", \"text\": \"Hello.\"}]}\n");
    let file = alone.to_str().expect("UTF-8");
    let small = ["--minutes", "1", "--seeds", "1", "--policies", "lru"];
    let alone_args =
        [&["prediction", "--conversations", file, "--sizes", "8K"], &small[..]].concat();
    check(&alone_args, "all have one turn, so nothing spaces");
    let timed = [&alone_args[..], &["--answer-ms", "10"]];
    let told = printed(&timed.concat());
    assert!(told.contains("\n1 minute, ") && told.contains("; 1 seed of"), "{told}");
    std::fs::remove_file(alone).expect("it is there");
    preset(&["--html", "/nonexistent/page.html"], "no such folder");
    check(&["prediction", "--record", "Cargo.toml", "--html", "Cargo.toml"], "is an input");
}
