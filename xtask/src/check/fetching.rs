//! Checks with packages that a script fetches, on the binary that the tests have built. An option
//! must ask for them. The script's closing line says which packages it could not fetch; its own
//! file tells the exit codes.
//!
//! | script | what it checks |
//! |---|---|
//! | `tools/clients/run` | API clients' own packages against the server |
//! | `bench/engines/check` | the plug-ins inside a real vLLM |

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Outcome, binary};
use crate::cargo::Cargo;

/// It ends so where some packages cannot be had.
const NOT_ALL: i32 = 3;

/// Part of the last line of a run that came to its end.
const CLOSING: &str = " scripts passed in ";

/// Builds the binary and runs `script`, a path below the root, where there is Python.
pub(super) fn run(script: &str, root: &Path, cargo: &Cargo) -> Result<Outcome> {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|python| python.status.success()) {
        let why = format!("no python3, which {script} needs");
        return Ok(Outcome::Skipped(why));
    }
    if let Some(failed) = binary::build(cargo)? {
        return Ok(failed);
    }
    let (code, said) = binary::run_script(script, root)?;
    Ok(concluded(script, code, &said))
}

/// Judges the scripts by exit code and closing line.
fn concluded(script: &str, code: Option<i32>, said: &str) -> Outcome {
    let closing = said.lines().last().filter(|line| line.contains(CLOSING));
    match (code, closing) {
        (Some(0), Some(closing)) => Outcome::Passed(closing.to_owned()),
        (Some(NOT_ALL), Some(closing)) => Outcome::Skipped(closing.to_owned()),
        (_, Some(closing)) => Outcome::Failed(closing.to_owned()),
        (Some(code), None) => Outcome::Failed(format!("{script} ended with exit code {code}")),
        (None, None) => Outcome::Failed(format!("{script} was killed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "tools/check";

    #[test]
    fn only_a_run_that_left_nothing_passes() {
        let closing = "6 of 6 scripts passed in 9 s; skipped: no npm";
        let said = format!("ok      embedded: openai_chat.py\n{closing}\n");
        let text = closing.to_owned();
        assert_eq!(concluded(SCRIPT, Some(0), &said), Outcome::Passed(text.clone()));
        assert_eq!(concluded(SCRIPT, Some(NOT_ALL), &said), Outcome::Skipped(text.clone()));
        assert_eq!(concluded(SCRIPT, Some(1), &said), Outcome::Failed(text));
        for code in [Some(0), Some(1), Some(NOT_ALL), None] {
            assert!(matches!(
                concluded(SCRIPT, code, "ok      embedded: openai_chat.py\n"),
                Outcome::Failed(_)
            ));
        }
    }
}
