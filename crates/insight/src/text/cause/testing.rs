//! Test helpers for detectors: the cause between two prompts, with the words that changed.

use crate::text::explain;
use crate::text::testing::sketch;

/// The cause that is found between two prompts, with the texts that show it.
pub(super) fn found<'a>(old: &'a str, new: &'a str) -> Option<(&'static str, &'a str, &'a str)> {
    let explanation = explain(&sketch(old), &sketch(new), 0)?;
    let evidence = explanation.evidence?;
    let (one, other) = (&old[evidence.old], &new[evidence.new]);
    Some((evidence.cause.name(), one, other))
}

/// Asserts what is found between two prompts.
pub(super) fn check(old: &str, new: &str, expected: Option<(&str, &str, &str)>) {
    assert_eq!(found(old, new), expected, "\n--- old\n{old}\n--- new\n{new}");
}
