//! The measurements of `headstart-lab`, at their smallest.

use std::process::{Command, Stdio};

/// Runs a measurement and checks that its lines fit a terminal.
fn check(args: &str, part: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart-lab"));
    command.env("HEADSTART_PROGRESS_AFTER_MS", "3600000");
    let output = command.args(args.split(' ')).stdin(Stdio::null()).output().expect("runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args}: {complaint}");
    let told = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(told.contains(part), "{args}: {told}");
    assert!(told.lines().all(|line| line.chars().count() <= 80), "{args}: {told}");
}

#[test]
fn tiers_and_importance_print_a_table() {
    check("tiers --prefix 64 --rounds 1 --mb-per-s 100", "toy");
    let small = "--prefix 320 --documents 1 --questions 1 --warm-up 1 --variant full";
    check(&format!("importance {small}"), "full");
}

#[test]
fn hazard_prints_a_curve() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces/golden.jsonl");
    check(&format!("hazard {golden} --blocks 2000"), "seconds");
}

#[test]
fn help_fits_a_terminal() {
    for study in ["tiers", "importance", "hazard", "host-memory", "prediction"] {
        check(&format!("{study} --help"), "Usage: headstart-lab");
    }
}
