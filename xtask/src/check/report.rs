//! Results of the steps, as lines of text.

use std::fmt;
use std::time::Duration;

use super::Outcome;

/// One step's end.
#[derive(Debug)]
pub(super) struct Report {
    /// The step.
    pub(super) name: &'static str,
    /// The step's result.
    pub(super) outcome: Outcome,
    /// Wall time of the step.
    pub(super) elapsed: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verdict, note) = match &self.outcome {
            Outcome::Passed(note) => ("ok", note.as_str()),
            Outcome::Failed(note) => ("FAILED", note.as_str()),
            Outcome::Skipped(note) => ("SKIPPED", note.as_str()),
            Outcome::NotRun => ("NOT RUN", "an earlier step failed"),
        };
        let (name, seconds) = (self.name, self.elapsed.as_secs_f64());
        let line = format!("{verdict:<7}  {name:<8}  {seconds:>6.1} s  {note}");
        formatter.write_str(line.trim_end())
    }
}

/// Whether any step has failed.
pub(super) fn has_failure(reports: &[Report]) -> bool {
    reports.iter().any(|report| matches!(report.outcome, Outcome::Failed(_)))
}

/// All lines once more, since test output lies between them, and a verdict naming what failed.
/// Steps run beside one another, so their times add up to more than `elapsed`.
pub(super) fn summary(reports: &[Report], elapsed: Duration) -> String {
    let mut lines: Vec<String> = reports.iter().map(Report::to_string).collect();
    let seconds = elapsed.as_secs_f64();
    let failed = names(reports, |outcome| matches!(outcome, Outcome::Failed(_)));
    let skipped = names(reports, |outcome| matches!(outcome, Outcome::Skipped(_)));
    lines.push(match (failed.as_str(), skipped.as_str()) {
        ("", "") => format!("check: all steps passed in {seconds:.1} s"),
        ("", skipped) => format!("check: passed in {seconds:.1} s, except SKIPPED: {skipped}"),
        (failed, _) => format!("check: FAILED after {seconds:.1} s: {failed}"),
    });
    lines.join("\n")
}

fn names(reports: &[Report], wanted: impl Fn(&Outcome) -> bool) -> String {
    let chosen = reports.iter().filter(|report| wanted(&report.outcome));
    chosen.map(|report| report.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(outcomes: Vec<(&'static str, Outcome)>, expected: &[&str]) {
        let elapsed = Duration::from_millis(1500);
        let reports: Vec<Report> =
            outcomes.into_iter().map(|(name, outcome)| Report { name, outcome, elapsed }).collect();
        assert_eq!(summary(&reports, 2 * elapsed).lines().collect::<Vec<_>>(), expected);
    }

    fn passed() -> Outcome {
        Outcome::Passed(String::new())
    }

    #[test]
    fn success_is_one_sentence() {
        check(
            vec![("tidy", passed()), ("fmt", passed())],
            &[
                "ok       tidy         1.5 s",
                "ok       fmt          1.5 s",
                "check: all steps passed in 3.0 s",
            ],
        );
    }

    #[test]
    fn a_skipped_step_is_not_a_passed_one() {
        check(
            vec![("fmt", Outcome::Skipped("rustfmt is not installed".to_owned()))],
            &[
                "SKIPPED  fmt          1.5 s  rustfmt is not installed",
                "check: passed in 3.0 s, except SKIPPED: fmt",
            ],
        );
    }

    #[test]
    fn failures_are_named() {
        check(
            vec![
                ("tidy", Outcome::Failed("violations: 2, listed above".to_owned())),
                ("fmt", Outcome::NotRun),
                ("test", Outcome::Failed("exit status: 101".to_owned())),
            ],
            &[
                "FAILED   tidy         1.5 s  violations: 2, listed above",
                "NOT RUN  fmt          1.5 s  an earlier step failed",
                "FAILED   test         1.5 s  exit status: 101",
                "check: FAILED after 3.0 s: tidy, test",
            ],
        );
    }
}
