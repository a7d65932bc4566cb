//! `headstart replay` as users and scripts call it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A committed generated trace of 800 requests.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces/golden.jsonl");

/// Ten requests of two conversations that take turns; five distinct blocks each.
const SMALL: &str = r#"{"timestamp": 0, "hash_ids": [0], "input_length": 400}
{"timestamp": 1000, "hash_ids": [10], "input_length": 400}
{"timestamp": 2000, "hash_ids": [0, 1], "input_length": 1000}
{"timestamp": 3000, "hash_ids": [10, 11], "input_length": 1000}
{"timestamp": 4000, "hash_ids": [0, 1, 2], "input_length": 1500}
{"timestamp": 5000, "hash_ids": [10, 11, 12], "input_length": 1500}
{"timestamp": 6000, "hash_ids": [0, 1, 2, 3], "input_length": 2000}
{"timestamp": 7000, "hash_ids": [10, 11, 12, 13], "input_length": 2000}
{"timestamp": 8000, "hash_ids": [0, 1, 2, 3, 4], "input_length": 2500}
{"timestamp": 9000, "hash_ids": [10, 11, 12, 13, 14], "input_length": 2500}
"#;

/// A file that goes when the test is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, contents: &str) -> Self {
        let name = format!("headstart-replay-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, contents).expect("writes");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a name in UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn replay(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.env("HEADSTART_PROGRESS_AFTER_MS", "3600000");
    command.arg("replay").args(args).stdin(Stdio::null());
    command.output().expect("the binary runs")
}

/// Returns the output of a replay, which must succeed and write nothing to standard error.
fn printed(args: &[&str]) -> String {
    let output = replay(args);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {complaint}");
    assert_eq!(complaint, "", "{args:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(args: &[&str]) -> Vec<Value> {
    let text = printed(&[args, &["--json"]].concat());
    let line = |line: &str| serde_json::from_str(line).expect("JSON");
    text.lines().map(line).collect()
}

fn number(line: &Value, pointer: &str) -> u64 {
    let found = line.pointer(pointer).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("{pointer} in {line}"))
}

fn check_error(args: &[&str], code: i32, part: &str) {
    let output = replay(args);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {complaint}");
    assert!(complaint.contains(part), "{args:?}: {complaint}");
    assert!(!complaint.contains("panicked"), "{args:?}: {complaint}");
}

#[test]
fn a_line_counts_blocks_and_tokens_cold_and_steady() {
    let trace = Scratch::new("small.jsonl", SMALL);
    let lines = json(&[trace.path(), "--policy", "lru", "--capacity", "10"]);
    let [line] = &lines[..] else {
        panic!("one line: {lines:?}");
    };
    let check = |pointer: &str, expected: u64| {
        assert_eq!(number(line, pointer), expected, "{pointer} in {line}");
    };
    check("/lookups", 30);
    check("/hits", 20);
    check("/requests", 10);
    // A prompt of 400 tokens fills its only block in part; each next turn finds the turns before.
    check("/tokens/lookups", 2 * (400 + 1000 + 1500 + 2000 + 2500));
    check("/tokens/hits", 2 * 512 * (1 + 2 + 3 + 4));
    check("/cold/requests", 2);
    check("/cold/blocks/hits", 0);
    check("/steady/blocks/lookups", 28);
    check("/insertions", 10);
    check("/evictions", 0);
    check("/infinite/blocks/hits", 20);
    check("/trace/distinct_blocks", 10);
    assert_eq!(line["full_at"], Value::Null);
    assert_eq!(line["trace"]["sessions"], "inferred");
    assert_eq!(line["trace"]["seconds"], 9.0);
    let classes = line["classes"].as_array().expect("classes");
    let sum = |pointer: &str| -> u64 { classes.iter().map(|class| number(class, pointer)).sum() };
    assert_eq!((sum("/requests"), sum("/blocks/hits")), (10, 20));
    let file = line["trace"]["file"].as_str().expect("a name");
    assert!(trace.path().ends_with(file) && !file.contains('/'), "{file}");
}

#[test]
fn alone_it_shows_the_curves_of_lru_hazard_and_the_optimum() {
    let lines = json(&[GOLDEN]);
    let (lru, rest) = lines.split_at(12);
    let (hazard, belady) = rest.split_at(12);
    assert!(hazard.iter().all(|line| line["policy"] == "hazard"), "{hazard:?}");
    assert_eq!(belady.len(), 12);
    for (lru, belady) in lru.iter().zip(belady) {
        assert_eq!((&lru["policy"], &belady["policy"]), (&"lru".into(), &"belady".into()));
        assert_eq!(lru["capacity_blocks"], belady["capacity_blocks"]);
        assert!(number(lru, "/hits") <= number(belady, "/hits"), "{lru} {belady}");
    }
    let last = &lru[11];
    assert_eq!(last["capacity_blocks"], last["trace"]["distinct_blocks"]);
    assert_eq!(last["hits"], last["infinite"]["blocks"]["hits"]);
    let text = printed(&[GOLDEN]);
    for part in ["block hit rate", "token hit rate", "cold: the first 160 requests (20 %)"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // A wide table is several, one below the other.
    let mut tables = text.split("\n\n");
    let table = tables.find(|part| part.contains("\npolicy")).expect("a table");
    let rows: Vec<_> = table.lines().filter(|line| line.contains(" %")).collect();
    assert_eq!(rows.len(), 37, "{text}");
    assert!(rows[36].starts_with("infinite"), "{text}");
    assert!(text.contains("lru: the knee is at"), "{text}");
    assert!(text.contains("The largest gap to Belady is at"), "{text}");
}

#[test]
fn every_policy_runs_and_the_number_of_threads_changes_nothing() {
    let csv = |threads: &str| {
        let all = [GOLDEN, "--policy", "all", "--capacity", "100,5%", "--csv"];
        let output = replay(&[&all[..], &["--threads", threads]].concat());
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{complaint}");
        // The trace has no predictions, and nothing else is to be said.
        let is_known = complaint.contains("so lpc evicts as lru does");
        assert!(is_known && complaint.lines().count() == 2, "{complaint}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let (one, five) = (csv("1"), csv("5"));
    assert_eq!(one, five);
    let names = headstart_cache::policy::NAMES;
    let bounds = headstart_cache::policy::OFFLINE_NAMES;
    assert_eq!(one.lines().count(), 1 + 2 * (names.len() + bounds.len()));
    for name in names.iter().chain(bounds) {
        assert!(one.contains(&format!("\n{name},100,800,")), "{name} in {one}");
    }
}

#[test]
fn classes_add_up_to_their_cell() {
    let args = [GOLDEN, "--policy", "lru", "--capacity", "500", "--csv"];
    let (cells, classes) = (printed(&args), printed(&[&args[..], &["--per-class"]].concat()));
    let sum = |text: &str, first: usize| -> Vec<u64> {
        let mut sums = vec![0; 5];
        for line in text.lines().skip(1) {
            let numbers = line.split(',').skip(first);
            for (sum, number) in sums.iter_mut().zip(numbers) {
                *sum += number.parse::<u64>().expect("a number");
            }
        }
        sums
    };
    assert_eq!(sum(&cells, 2), sum(&classes, 4));
    assert!(classes.starts_with("policy,capacity_blocks,type,turn,requests,"));
    assert!(classes.contains("\nlru,500,chat,1,"), "{classes}");
    let table = printed(&[GOLDEN, "--capacity", "500", "--per-class"]);
    assert!(table.contains("agent") && table.contains("10+"), "{table}");
}

#[test]
fn capacities_come_in_blocks_tokens_shares_and_bytes() {
    let trace = Scratch::new("units.jsonl", SMALL);
    let config = r#"{"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64,
        "num_key_value_heads": 2, "torch_dtype": "bfloat16"}"#;
    let model = Scratch::new("config.json", config);
    // A token takes 2 × 2 × 2 × 16 × 2 = 256 bytes, a block of 512 tokens 128 KiB.
    let args = [
        trace.path(),
        "--policy",
        "lru",
        "--model",
        model.path(),
        "--capacity",
        "3,0.005k,2048tok,50%,1MiB,99G",
    ];
    let lines = json(&args);
    let blocks = lines.iter().map(|line| number(line, "/capacity_blocks"));
    assert_eq!(blocks.collect::<Vec<_>>(), [3, 5, 4, 5, 8, 99_000_000_000]);
    assert_eq!(number(&lines[4], "/capacity_bytes"), 1 << 20);
    assert_eq!(lines[4]["capacity"], "1MiB");
    assert_eq!(number(&lines[5], "/hits"), 20);
    let text = printed(&args);
    assert!(text.contains("256 bytes (2 layers × 2 × 2 heads × 16, bf16)"), "{text}");
    assert!(text.contains("1MiB = 8"), "{text}");
    let halved = json(&[&args[..], &["--kv-dtype", "fp8"]].concat());
    assert_eq!(number(&halved[4], "/capacity_blocks"), 16);
}

#[test]
fn the_page_names_the_file_only_and_holds_every_point() {
    let (trace, page) = (Scratch::new("page.jsonl", SMALL), Scratch::new("page.html", ""));
    let text = printed(&[trace.path(), "--capacity", "2,4,8", "--html", page.path()]);
    assert!(text.contains("infinite"));
    let html = std::fs::read_to_string(&page.0).expect("the page is written");
    let data = html.lines().find_map(|line| line.strip_prefix("const data = "));
    let data = data.expect("the data").trim_end_matches(';');
    let data: Value = serde_json::from_str(data).expect("JSON");
    let policies = data["policies"].as_array().expect("policies");
    let names: Vec<_> = policies.iter().map(|policy| &policy["name"]).collect();
    assert_eq!(names, ["lru", "hazard", "belady"]);
    assert_eq!(policies[2]["points"].as_array().map(Vec::len), Some(3));
    assert_eq!(data["provenance"]["turns"], "inferred");
    let folder = Path::new(trace.path()).parent().expect("a folder");
    assert!(!html.contains(&format!("{}/", folder.display())));
    assert!(html.contains("page.jsonl"));
}

#[test]
fn a_scale_keeps_whole_sessions_and_says_so() {
    let text = printed(&[GOLDEN, "--capacity", "100", "--scale", "0.5"]);
    assert!(text.contains("--scale 0.5: ") && text.contains(" of 800 requests"), "{text}");
    check_error(&[GOLDEN, "--scale", "0"], 2, "--scale 0");
    check_error(&[GOLDEN, "--scale", "1e-9"], 2, "larger --scale");
}

#[test]
fn a_trace_may_come_by_a_pipe() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .env("HEADSTART_PROGRESS_AFTER_MS", "3600000")
        .args(["replay", "-", "--capacity", "10"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(SMALL.as_bytes()).expect("takes the trace");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("standard input: 10 requests over 9 s"), "{text}");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .env("HEADSTART_PROGRESS_AFTER_MS", "3600000")
        .args(["replay", GOLDEN, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn what_is_wrong_with_the_arguments_is_said() {
    let usage = |args: &[&str], part: &str| check_error(&[&[GOLDEN], args].concat(), 2, part);
    usage(&["--policy", "magic"], "unknown policy `magic`; known: lru, fifo");
    usage(&["--policy", "lru:life=5"], "`lru` does not take `life=5`");
    usage(&["--capacity", "0"], "a cache holds at least one block");
    usage(&["--capacity", "6000,many"], "`many` is no capacity; write 6000 or 6k");
    usage(&["--capacity", "5parsec"], "`5parsec` is no capacity");
    usage(&["--capacity", "100tok"], "one takes 128 tokens");
    usage(&["--capacity", "40GiB"], "bytes need --model");
    usage(&["--capacity", "40GiB", "--model", "./absent"], "--model ./absent");
    usage(&["--kv-dtype", "fp8"], "--model");
    usage(&["--cold", "1"], "--cold 1");
    usage(&["--threads", "0"], "--threads");
    usage(&["--json", "--csv"], "--csv");
    let model = Scratch::new("no-kv.json", "{\"hidden_size\": 8}");
    let kv = ["--kv-dtype", "fp8", "--model", model.path()];
    usage(&kv, "`num_hidden_layers` or");
    let window = r#"{"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64,
        "sliding_window": 4096, "torch_dtype": "bfloat16"}"#;
    let model = Scratch::new("window.json", window);
    usage(&["--model", model.path()], "`sliding_window` tells of");
}

#[test]
fn a_trace_that_cannot_be_replayed_says_what_to_do() {
    let refused = |name: &str, contents: &str, part: &str| {
        let trace = Scratch::new(name, contents);
        check_error(&[trace.path()], 2, part);
    };
    refused("empty.jsonl", "", "the input is empty");
    let azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n";
    refused("lengths.csv", azure, "lengths only");
    refused("no-blocks.jsonl", "{\"hash_ids\": []}\n", "lengths only");
    refused("bad.jsonl", "{\"hash_ids\": [1]}\nnot json\n", "line 2");
    check_error(&["absent.jsonl"], 2, "absent.jsonl");
    let page = "/nonexistent/page.html";
    check_error(&[GOLDEN, "--html", page], 2, "no such folder");
    let trace = Scratch::new("same.jsonl", "");
    check_error(&[trace.path(), "--html", trace.path()], 2, "is an input");
}
