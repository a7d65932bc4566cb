//! Programs that tests need beside cargo: a Redis or Valkey server, and one that speaks S3.
//!
//! Looks for each, and installs it where that is wanted and can be done. This module decides and
//! reports; [`redis`] and [`moto`] know how it is done. The tests start the servers themselves.

mod moto;
mod redis;

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Outcome, Services};

/// A program that some tests need.
trait Service {
    /// Names of the program and of others that will do.
    fn names(&self) -> String;

    /// Name of the tests that need it.
    fn tests(&self) -> &'static str;

    /// Name of the installed program, if any.
    fn found(&self) -> Option<String>;

    /// Installs it; the error says what to do by hand.
    fn install(&self) -> Result<(), String>;
}

/// Looks for all of them, and installs those that must be there.
pub(super) fn run(root: &Path, services: Services) -> Outcome {
    let wanted: [&dyn Service; 2] = [&redis::Redis, &moto::Moto::below(root)];
    together(wanted.map(|service| outcome(services, service)))
}

fn outcome(services: Services, service: &dyn Service) -> Outcome {
    let (names, tests) = (service.names(), service.tests());
    match (service.found(), services) {
        (Some(name), _) => Outcome::Passed(format!("{name} is there")),
        (None, Services::IfThere) => Outcome::Skipped(format!(
            "no {names}, so {tests} are skipped; `cargo x check --services` installs it"
        )),
        (None, Services::Required) => match service.install() {
            Err(reason) => Outcome::Failed(format!("no {names}, and {reason}")),
            Ok(()) => match service.found() {
                Some(name) => Outcome::Passed(format!("{name} was installed")),
                None => Outcome::Failed(format!("no {names}, though its package is installed")),
            },
        },
    }
}

/// One outcome of several: the worst, with the words of all that say the same or worse.
fn together(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    let (mut passed, mut skipped, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Outcome::Passed(note) => passed.push(note),
            Outcome::Skipped(note) => skipped.push(note),
            Outcome::Failed(note) => failed.push(note),
            Outcome::NotRun => {}
        }
    }
    match (failed.is_empty(), skipped.is_empty()) {
        (false, _) => Outcome::Failed([failed, skipped].concat().join("; ")),
        (true, false) => Outcome::Skipped([skipped, passed].concat().join("; ")),
        (true, true) => Outcome::Passed(passed.join(", ")),
    }
}

/// Whether a program can be started and likes this argument.
fn runs(program: impl AsRef<OsStr>, argument: &str) -> bool {
    let status = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A machine with or without a server, where installing works or not.
    struct Machine {
        is_there: Cell<bool>,
        installs: bool,
    }

    impl Service for Machine {
        fn names(&self) -> String {
            "this-server".to_owned()
        }

        fn tests(&self) -> &'static str {
            "its tests"
        }

        fn found(&self) -> Option<String> {
            self.is_there.get().then(|| self.names())
        }

        fn install(&self) -> Result<(), String> {
            self.is_there.set(self.installs);
            self.installs.then_some(()).ok_or("no pip".to_owned())
        }
    }

    fn check(services: Services, is_there: bool, installs: bool, expected: &str) {
        let is_there = Cell::new(is_there);
        let machine = Machine { is_there, installs };
        let outcome = format!("{:?}", outcome(services, &machine));
        assert!(outcome.starts_with(expected), "{outcome}");
    }

    #[test]
    fn a_server_that_is_there_is_used() {
        check(Services::IfThere, true, false, "Passed(\"this-server is");
        check(Services::Required, true, false, "Passed(\"this-server is");
    }

    #[test]
    fn one_that_is_not_there_is_skipped_or_installed_and_never_forgotten() {
        check(Services::IfThere, false, true, "Skipped(");
        check(Services::Required, false, true, "Passed(\"this-server was");
        check(Services::Required, false, false, "Failed(");
    }

    #[test]
    fn one_missing_server_is_not_hidden_by_another() {
        let (good, bad) = (|| "a is there".to_owned(), || "no b".to_owned());
        let both = |first, second| format!("{:?}", together([first, second]));
        let (passed, skipped) = (Outcome::Passed, Outcome::Skipped);
        assert_eq!(both(passed(good()), skipped(bad())), "Skipped(\"no b; a is there\")");
        assert_eq!(both(skipped(bad()), passed(good())), "Skipped(\"no b; a is there\")");
        assert_eq!(both(passed(good()), Outcome::Failed(bad())), "Failed(\"no b\")");
        assert_eq!(both(passed(good()), passed(good())), "Passed(\"a is there, a is there\")");
    }

    #[test]
    fn what_cannot_be_started_is_not_there() {
        assert!(!runs("no-such-program-anywhere", "--help"));
    }
}
