//! Commands that take long show progress on a terminal.
//!
//! The terminal is that of `script` (util-linux); where it is not there, nothing is checked.

mod support;

use std::process::{Command, Stdio};
use std::time::Duration;

/// Returns the terminal output of a command within `seconds`.
fn shown(args: &str, seconds: u64) -> Option<String> {
    let line = format!(
        "timeout {seconds} {} {args}",
        env!("CARGO_BIN_EXE_headstart")
    );
    let output = Command::new("script")
        .args(["-qefc", &line, "/dev/null"])
        .env("COLUMNS", "80")
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null())
        .output();
    Some(support::text(&output.ok()?.stdout))
}

fn check(args: &str, part: &str) {
    let Some(text) = shown(args, Duration::from_secs(6).as_secs()) else {
        eprintln!("skipped: no `script`");
        return;
    };
    assert!(text.contains(part), "{args}: {text:?}");
}

#[test]
fn long_commands_show_how_far_they_are() {
    check("simulate fleet --preset llm-d-73", "eta");
    check(
        "simulate host-memory --preset wild-consumer --seeds 1",
        "eta",
    );
    check("simulate prediction --preset lpc-lmsys", "eta");
    check("calibrate", "measuring");
}
