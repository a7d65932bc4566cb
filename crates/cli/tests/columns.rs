//! The output of commands fits a terminal of 80 columns.

mod support;

use std::path::Path;

/// Columns of a usual terminal.
const COLUMNS: usize = 80;

fn printed(folder: &Path, args: &[&str]) -> String {
    let output = support::headstart(args)
        .current_dir(folder)
        .output()
        .expect("the binary runs");
    let complaint = support::text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {complaint}");
    support::text(&output.stdout) + &complaint
}

/// Lines of a command that are too wide.
fn wide(folder: &Path, args: &[&str]) -> Vec<String> {
    let text = printed(folder, args);
    assert!(!text.trim().is_empty(), "{args:?} prints something");
    let wide = text.lines().filter(|line| line.chars().count() > COLUMNS);
    wide.map(|line| format!("{}: {line}", args[0])).collect()
}

#[test]
fn what_commands_print_fits_80_columns() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/traces/golden.jsonl");
    std::fs::copy(golden, folder.join("golden.jsonl")).expect("copies");
    let mut all = Vec::new();
    let mut check = |args: &[&str]| all.extend(wide(folder, args));
    check(&["demo", "--log", "requests.jsonl"]);
    check(&["analyze", "requests.jsonl", "--full", "--show-text"]);
    check(&["why", "r0004", "requests.jsonl"]);
    check(&["replay", "golden.jsonl", "--per-class"]);
    check(&["plan", "golden.jsonl", "--model", "llama3-70b"]);
    check(&[
        "calibrate",
        "--derive",
        "qwen3-32b",
        "--gpu",
        "h100",
        "--gpus",
        "2",
    ]);
    check(&["trace", "synth", "--list"]);
    check(&["config", "init", "-o", "-"]);
    check(&["config", "show", "--replicas", "3"]);
    let fleet = ["simulate", "fleet", "--preset", "laptop", "--rates", "4,9"];
    check(&[&fleet[..], &["--rung-seconds", "10"]].concat());
    let prediction = [
        "simulate",
        "prediction",
        "--preset",
        "lpc-lmsys",
        "--minutes",
        "2",
    ];
    let small = [
        "--seeds",
        "1",
        "--sizes",
        "60K,80K",
        "--policies",
        "lru,lpc,oracle",
    ];
    check(&[&prediction[..], &small].concat());
    let host = ["simulate", "host-memory", "--preset", "wild-consumer"];
    let small = [
        "--models",
        "qwen2-7b",
        "--host",
        "0,1",
        "--minutes",
        "4",
        "--seeds",
        "1",
    ];
    check(&[&host[..], &small].concat());
    assert!(all.is_empty(), "{all:#?}");
}
