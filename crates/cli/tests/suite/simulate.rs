//! `headstart simulate` as users and scripts call it.

mod fleet;

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn simulate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.env("HEADSTART_PROGRESS_AFTER_MS", "3600000");
    command.arg("simulate").args(args).stdin(Stdio::null());
    command.output().expect("the binary runs")
}

fn printed(args: &[&str]) -> String {
    let output = simulate(args);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {complaint}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn lines(args: &[&str]) -> Vec<Value> {
    let parsed = |line: &str| serde_json::from_str(line).expect("JSON");
    printed(args).lines().map(parsed).collect()
}

fn scratch(name: &str, contents: &str) -> PathBuf {
    let name = format!("headstart-simulate-{}-{name}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, contents).expect("writes");
    path
}

#[test]
fn what_is_missing_is_named() {
    let output = simulate(&["fleet"]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("--preset"), "{complaint}");
}
