//! Programs that tests need beside cargo: today a Redis or Valkey server.
//!
//! Looks for one, and installs it where that is wanted and can be done: by apt-get, without a
//! question and without sudo. The tests start it themselves, each its own; one that the package
//! starts, as it may where there is systemd, is used by nobody here.

use std::process::{Command, Stdio};

use super::{Outcome, Services};

/// Either will do; the first is what [`PACKAGE`] brings.
const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];

/// Debian's package.
const PACKAGE: &str = "redis-server";

/// What is lost without a server.
const SKIPPED: &str = "the tests of the shared index are skipped";

/// Looks for a server, and installs one if it must be there.
pub(super) fn run(services: Services) -> Outcome {
    outcome(services, found, install)
}

fn outcome(
    services: Services,
    found: impl Fn() -> Option<&'static str>,
    install: impl FnOnce() -> Result<(), String>,
) -> Outcome {
    let missing = format!("neither {} nor {} is installed", SERVERS[0], SERVERS[1]);
    match (found(), services) {
        (Some(server), _) => Outcome::Passed(format!("{server} is there")),
        (None, Services::IfThere) => Outcome::Skipped(format!(
            "{missing}, {SKIPPED}; `cargo x check --services` installs one"
        )),
        (None, Services::Required) => match install() {
            Err(reason) => Outcome::Failed(format!("{missing}, and {reason}")),
            Ok(()) => match found() {
                Some(server) => Outcome::Passed(format!("{server} was installed")),
                None => Outcome::Failed(format!("{missing}, though {PACKAGE} is")),
            },
        },
    }
}

fn found() -> Option<&'static str> {
    let runs = |server: &&str| {
        let version = Command::new(server).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    SERVERS.into_iter().find(runs)
}

/// Installs the package; the error says what to do by hand.
fn install() -> Result<(), String> {
    let by_hand = format!("install {PACKAGE} by hand");
    for arguments in [
        &["update", "--quiet"][..],
        &[
            "install",
            "--quiet",
            "--yes",
            "--no-install-recommends",
            PACKAGE,
        ],
    ] {
        let line = format!("apt-get {}", arguments.join(" "));
        let status = Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(format!("`{line}` ended with {status}; {by_hand}")),
            Err(error) => return Err(format!("`{line}` did not start ({error}); {by_hand}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A machine with or without a server, where installing works or not.
    fn check(services: Services, is_there: bool, installs: bool, expected: &str) {
        let there = Cell::new(is_there);
        let found = || there.get().then_some("redis-server");
        let install = || {
            there.set(installs);
            installs.then_some(()).ok_or("no apt-get".to_owned())
        };
        let outcome = format!("{:?}", outcome(services, found, install));
        assert!(outcome.starts_with(expected), "{outcome}");
    }

    #[test]
    fn a_server_that_is_there_is_used() {
        check(Services::IfThere, true, false, "Passed(\"redis-server is");
        check(Services::Required, true, false, "Passed(\"redis-server is");
    }

    #[test]
    fn one_that_is_not_there_is_skipped_or_installed_and_never_forgotten() {
        check(Services::IfThere, false, true, "Skipped(");
        check(Services::Required, false, true, "Passed(\"redis-server was");
        check(Services::Required, false, false, "Failed(");
    }
}
