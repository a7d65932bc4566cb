//! Checks that a script makes, on the binary that the tests have built. A script fetches nothing
//! then: what is not there is named, with what fetches it. Its own file tells the exit codes.
//!
//! | script | what it checks |
//! |---|---|
//! | `tools/browser/run` | the dashboard and the HTML reports in a real browser |
//! | `python/check` | the wheel, its tests, and the contracts of engines' plug-in interfaces |

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};

use super::{Outcome, binary};
use crate::cargo::Cargo;

/// A script ends so where something that it needs is not there.
const NOT_THERE: i32 = 3;

/// Lines at the end of what a failed run said that are the reason in short.
const CLOSING: &str = " checks passed in ";

/// Builds the binary and runs `script`, a path below the root, where what it needs is there.
pub(super) fn run(script: &str, root: &Path, cargo: &Cargo) -> Result<Outcome> {
    let ready = Command::new(root.join(script))
        .arg("--ready")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{script} did not start"))?;
    if let Some(outcome) = unless_ready(script, &ready) {
        return Ok(outcome);
    }
    if let Some(failed) = binary::build(cargo)? {
        return Ok(failed);
    }
    let (code, said) = binary::run_script(script, root)?;
    Ok(concluded(script, code, &said))
}

/// Returns the outcome if the checks cannot run, in the script's words.
fn unless_ready(script: &str, ready: &Output) -> Option<Outcome> {
    let said = String::from_utf8_lossy(&ready.stdout).trim().to_owned();
    match ready.status.code() {
        Some(0) => None,
        Some(NOT_THERE) => Some(Outcome::Skipped(said)),
        _ => {
            let why = String::from_utf8_lossy(&ready.stderr);
            let (why, status) = (why.trim(), ready.status);
            Some(Outcome::Failed(format!("{script} --ready ended with {status}: {why}")))
        }
    }
}

/// Judges the checks by exit code and closing line.
fn concluded(script: &str, code: Option<i32>, said: &str) -> Outcome {
    let closing = said.lines().rev().find(|line| line.contains(CLOSING));
    match (code, closing) {
        (Some(0), Some(closing)) => Outcome::Passed(closing.to_owned()),
        // A script without a closing line has checked nothing.
        (Some(0), None) => Outcome::Failed(format!("{script} does not say what it checked")),
        (_, Some(closing)) => Outcome::Failed(closing.to_owned()),
        (code, None) => Outcome::Failed(match code {
            Some(code) => format!("{script} ended with exit code {code}"),
            None => format!("{script} was killed"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    const SCRIPT: &str = "tools/check";

    fn ready(code: i32, stdout: &str) -> Option<Outcome> {
        unless_ready(
            SCRIPT,
            &Output {
                status: ExitStatus::from_raw(code << 8),
                stdout: stdout.into(),
                stderr: b"oh".to_vec(),
            },
        )
    }

    #[test]
    fn without_a_browser_the_step_is_skipped_by_name() {
        assert_eq!(ready(0, ""), None);
        let said = "no Chromium; `tools/browser/run --install` fetches what is missing\n";
        let skipped = Outcome::Skipped(said.trim().to_owned());
        assert_eq!(ready(NOT_THERE, said), Some(skipped));
        let failed = ready(1, "").expect("it is not ready");
        assert!(matches!(&failed, Outcome::Failed(why) if why.ends_with(": oh")));
    }

    /// The script's own deadline. What it started, and what that started, has the same output: so
    /// this waits for all that outlive it, and reads what they say.
    #[test]
    fn a_check_that_hangs_fails_by_name_and_leaves_nothing() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/browser");
        let script = "import subprocess, deadline\n\
                      limit = deadline.Deadline(one_s=1)\n\
                      limit.began('a page', '1 of 2 checks passed in 1 s')\n\
                      subprocess.run(['sh', '-c', 'echo begun; sleep 30; echo outlived'])\n\
                      subprocess.run(['sh', '-c', 'sleep 30; echo outlived'])\n";
        let ran = Command::new("python3").args(["-B", "-c", script]).current_dir(folder).output();
        let Ok(ran) = ran else {
            eprintln!("skipped: no python3");
            return;
        };
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(said.contains("FAILED  a page: it hangs"), "{said}{ran:?}");
        assert!(!said.contains("outlived"), "{said}");
        let closing = "1 of 2 checks passed in 1 s".to_owned();
        assert_eq!(concluded(SCRIPT, ran.status.code(), &said), Outcome::Failed(closing));
    }

    #[test]
    fn only_checks_that_were_made_pass() {
        let closing = "12 of 12 checks passed in 55 s; screenshots: s";
        let said = format!("ok     it loads\n{closing}\n");
        assert_eq!(concluded(SCRIPT, Some(0), &said), Outcome::Passed(closing.to_owned()));
        assert_eq!(concluded(SCRIPT, Some(1), &said), Outcome::Failed(closing.to_owned()));
        for code in [Some(0), Some(1), Some(NOT_THERE), None] {
            assert!(matches!(concluded(SCRIPT, code, ""), Outcome::Failed(_)));
        }
    }
}
