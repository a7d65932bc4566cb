//! The steps of `cargo x check`: what each runs, and what it needs to run.

use std::path::Path;

use anyhow::{Context, Result};

use super::{Outcome, Services, commands, examples, fetching, scripted, services, test_binaries};
use crate::cargo::Cargo;
use crate::tidy;

/// All steps, in the order in which they begin: seconds before minutes, so that a typo is known
/// early.
pub(super) const STEPS: [Step; 12] = [
    Step { name: "tidy", work: Work::Tidy },
    Step { name: "fmt", work: Work::Cargo(&FMT) },
    Step { name: "clippy", work: Work::Cargo(&CLIPPY) },
    Step { name: "services", work: Work::Services },
    Step { name: "test", work: Work::Test },
    Step { name: "doc", work: Work::Cargo(&DOC) },
    Step { name: "examples", work: Work::Examples },
    Step { name: "commands", work: Work::Commands },
    Step { name: "browser", work: Work::Script("tools/browser/run") },
    Step { name: "python", work: Work::Script("python/check") },
    Step { name: "clients", work: Work::Fetching("tools/clients/run") },
    Step { name: "engines", work: Work::Fetching("bench/engines/check") },
];

const FMT: CargoCall = CargoCall {
    arguments: &["fmt", "--all", "--check"],
    variables: &[],
    component: Some("rustfmt"),
};

const CLIPPY: CargoCall = CargoCall {
    arguments: &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"],
    variables: &[],
    component: Some("clippy"),
};

const DOC: CargoCall = CargoCall {
    arguments: &["doc", "--workspace", "--no-deps", "--locked"],
    variables: &[("RUSTDOCFLAGS", "-D warnings")],
    component: None,
};

/// One named step.
#[derive(Debug)]
pub(super) struct Step {
    /// As it stands in the report.
    pub(super) name: &'static str,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Tidy,
    Cargo(&'static CargoCall),
    Services,
    Test,
    Examples,
    Commands,
    Script(&'static str),
    Fetching(&'static str),
}

#[derive(Debug)]
struct CargoCall {
    arguments: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    /// The rustup component that brings this subcommand, where cargo itself does not.
    component: Option<&'static str>,
}

impl Step {
    /// Whether an option must ask for the step: it fetches packages.
    pub(super) fn is_opt_in(&self) -> bool {
        matches!(self.work, Work::Fetching(_))
    }

    /// Whether the step runs at the same time as the one before it: each uses one core for the most
    /// part.
    pub(super) fn runs_beside_the_one_before(&self) -> bool {
        matches!(self.work, Work::Commands | Work::Script(_))
    }

    /// Runs the step. An error means that it could not even be tried.
    pub(super) fn run(&self, root: &Path, cargo: &Cargo, services: Services) -> Result<Outcome> {
        match self.work {
            Work::Tidy => run_tidy(root),
            Work::Cargo(call) => call.run(cargo),
            Work::Services => Ok(services::run(root, services)),
            // With the variable, tests that lack a service fail.
            Work::Test => match services {
                Services::IfThere => test_binaries::run(cargo, &[]),
                Services::Required => test_binaries::run(cargo, &[("HEADSTART_SERVICES", "1")]),
            },
            Work::Examples => examples::run(root, cargo),
            Work::Commands => commands::run(root, cargo),
            Work::Script(script) => scripted::run(script, root, cargo),
            Work::Fetching(script) => fetching::run(script, root, cargo),
        }
    }
}

impl CargoCall {
    fn run(&self, cargo: &Cargo) -> Result<Outcome> {
        let subcommand = self.arguments[0];
        if let Some(component) = self.component.filter(|_| !cargo.has(subcommand)) {
            return Ok(Outcome::Skipped(format!(
                "{component} is not installed; `rustup component add {component}` installs it"
            )));
        }
        let line = format!("cargo {}", self.arguments.join(" "));
        let status = cargo
            .run(self.arguments, self.variables)
            .with_context(|| format!("`{line}` did not start"))?;
        Ok(if status.success() {
            Outcome::Passed(String::new())
        } else {
            Outcome::Failed(format!("`{line}` ended with {status}"))
        })
    }
}

fn run_tidy(root: &Path) -> Result<Outcome> {
    let violations = tidy::run(root)?;
    for violation in &violations {
        println!("{violation}");
    }
    Ok(if violations.is_empty() {
        Outcome::Passed(String::new())
    } else {
        Outcome::Failed(format!("violations: {}, listed above", violations.len()))
    })
}
