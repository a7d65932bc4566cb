//! Clients' own packages against real servers: `tools/clients/run`, on the binary that the tests
//! have built. It fetches packages of PyPI and npm; where it cannot, it says which scripts it left.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::{Outcome, binary};
use crate::cargo::Cargo;

/// The scripts' runner, below the repository's root. Its own file tells the exit codes.
const SCRIPT: &str = "tools/clients/run";

/// It ends so where some packages cannot be had.
const NOT_ALL: i32 = 3;

/// Part of the last line of a run that came to its end.
const CLOSING: &str = " scripts passed in ";

/// Builds the binary and runs the scripts, where there is Python.
pub(super) fn run(root: &Path, cargo: &Cargo) -> Result<Outcome> {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|python| python.status.success()) {
        let why = format!("no python3, which {SCRIPT} needs");
        return Ok(Outcome::Skipped(why));
    }
    if let Some(failed) = binary::build(cargo)? {
        return Ok(failed);
    }
    let done = Command::new("python3")
        .arg(root.join(SCRIPT))
        .arg("--headstart")
        .arg(binary::path()?)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{SCRIPT} did not start"))?;
    let said = String::from_utf8_lossy(&done.stdout);
    print!("{said}");
    Ok(concluded(done.status.code(), &said))
}

/// Judges the scripts by exit code and closing line.
fn concluded(code: Option<i32>, said: &str) -> Outcome {
    let closing = said.lines().last().filter(|line| line.contains(CLOSING));
    match (code, closing) {
        (Some(0), Some(closing)) => Outcome::Passed(closing.to_owned()),
        (Some(NOT_ALL), Some(closing)) => Outcome::Skipped(closing.to_owned()),
        (_, Some(closing)) => Outcome::Failed(closing.to_owned()),
        (Some(code), None) => Outcome::Failed(format!("{SCRIPT} ended with exit code {code}")),
        (None, None) => Outcome::Failed(format!("{SCRIPT} was killed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_left_nothing_passes() {
        let closing = "6 of 6 scripts passed in 9 s; skipped: no npm";
        let said = format!("ok      embedded: openai_chat.py\n{closing}\n");
        let text = closing.to_owned();
        assert_eq!(concluded(Some(0), &said), Outcome::Passed(text.clone()));
        assert_eq!(concluded(Some(NOT_ALL), &said), Outcome::Skipped(text.clone()));
        assert_eq!(concluded(Some(1), &said), Outcome::Failed(text));
        for code in [Some(0), Some(1), Some(NOT_ALL), None] {
            assert!(matches!(
                concluded(code, "ok      embedded: openai_chat.py\n"),
                Outcome::Failed(_)
            ));
        }
    }
}
