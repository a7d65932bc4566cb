//! `cargo x check`: the steps that CI runs, cheapest first, with their wall times.
//!
//! A step that cannot run here (a missing rustup component or server) is reported as SKIPPED with
//! what to install, a step after a failure as NOT RUN: neither is ever counted as passed. This
//! module orders and reports; [`step`] knows what the steps are.

mod binary;
mod commands;
mod examples;
mod fetching;
mod report;
mod scripted;
mod services;
mod step;
mod test_binaries;

use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cargo::Cargo;
use report::Report;
use step::{STEPS, Step};

/// Treatment of the remaining steps once one has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// Leave them.
    Stop,
    /// Run them, to list everything that is wrong.
    KeepGoing,
}

/// Treatment of programs that tests need beside cargo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Services {
    /// Their tests run where they are installed, and are skipped otherwise.
    IfThere,
    /// They are installed where they are not there; their tests must run.
    Required,
}

/// Options of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// `--keep-going`.
    pub(crate) on_failure: OnFailure,
    /// `--services`.
    pub(crate) services: Services,
    /// `--clients`, `--engines`.
    pub(crate) opt_ins: OptIns,
    /// `--only`.
    pub(crate) only: Option<&'static str>,
}

/// The name of a step, if there is one of that name.
pub(crate) fn step_named(name: &str) -> Option<&'static str> {
    let mut names = STEPS.iter().map(|step| step.name);
    names.find(|known| *known == name)
}

/// Steps that fetch packages, and run last if they are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptIns {
    /// API clients' own packages.
    pub(crate) clients: bool,
    /// Real engines.
    pub(crate) engines: bool,
}

impl OptIns {
    const ALL: Self = Self { clients: true, engines: true };

    fn has(self, step: &Step) -> bool {
        match step.name {
            "clients" => self.clients,
            "engines" => self.engines,
            _ => false,
        }
    }
}

/// Result of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// All is well; the note says what was looked at, where that is not obvious.
    Passed(String),
    /// Something is wrong, in one line. Details were printed before.
    Failed(String),
    /// The step cannot run on this machine, and how to change that.
    Skipped(String),
    /// An earlier step failed.
    NotRun,
}

/// Runs the steps in the workspace at `root` and prints one line per step and a summary.
pub(crate) fn run(root: &Path, options: Options) -> Result<ExitCode> {
    let (cargo, started) = (Cargo::new(root), Instant::now());
    let is_wanted = |step: &&Step| options.only.is_none_or(|only| only == step.name);
    let steps = match options.only {
        Some(_) => steps(OptIns::ALL),
        None => steps(options.opt_ins),
    };
    let reports = run_steps(steps.filter(is_wanted), options.on_failure, |step| {
        let started = Instant::now();
        let outcome = step.run(root, &cargo, options.services)?;
        let report = Report { name: step.name, outcome, elapsed: started.elapsed() };
        println!("{report}");
        Ok(report)
    })?;
    println!("\n{}", report::summary(&reports, started.elapsed()));
    Ok(if report::has_failure(&reports) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn steps(opt_ins: OptIns) -> impl Iterator<Item = &'static Step> {
    let wanted = move |step: &&Step| !step.is_opt_in() || opt_ins.has(step);
    STEPS.iter().filter(wanted)
}

fn run_steps<'a>(
    steps: impl Iterator<Item = &'a Step>,
    on_failure: OnFailure,
    run: impl Fn(&Step) -> Result<Report> + Sync,
) -> Result<Vec<Report>> {
    let steps: Vec<_> = steps.collect();
    let mut reports = Vec::new();
    for together in steps.chunk_by(|_, next| next.runs_beside_the_one_before()) {
        if on_failure == OnFailure::Stop && report::has_failure(&reports) {
            reports.extend(together.iter().map(|step| Report {
                name: step.name,
                outcome: Outcome::NotRun,
                elapsed: Duration::ZERO,
            }));
            continue;
        }
        let run = &run;
        let done: Vec<_> = thread::scope(|scope| {
            let started: Vec<_> =
                together.iter().map(|step| scope.spawn(move || run(step))).collect();
            let ended = started.into_iter().map(|step| step.join().expect("a step returns"));
            ended.collect()
        });
        for report in done {
            reports.push(report?);
        }
    }
    Ok(reports)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Runs all steps, `failing` ones failing, and compares the names of those that were run.
    fn check(on_failure: OnFailure, failing: &[&str], expected: &[&str]) {
        let ran = Mutex::new(Vec::new());
        let reports = run_steps(steps(OptIns::default()), on_failure, |step| {
            ran.lock().expect("no step panics").push(step.name);
            let outcome = if failing.contains(&step.name) {
                Outcome::Failed("on purpose".to_owned())
            } else {
                Outcome::Passed(String::new())
            };
            Ok(Report { name: step.name, outcome, elapsed: Duration::ZERO })
        });
        let mut ran = ran.into_inner().expect("no step panics");
        // Steps that run beside one another begin in any order.
        ran.sort_by_key(|name| STEPS.iter().position(|step| step.name == *name));
        assert_eq!(ran, expected);
        let reports = reports.expect("these steps return no error");
        assert_eq!(
            reports.len(),
            steps(OptIns::default()).count(),
            "each step is reported, run or not"
        );
        assert_eq!(report::has_failure(&reports), !failing.is_empty());
    }

    #[test]
    fn all_steps_run_while_they_pass() {
        check(
            OnFailure::Stop,
            &[],
            &[
                "tidy", "fmt", "clippy", "services", "test", "doc", "examples", "commands",
                "browser", "python",
            ],
        );
    }

    #[test]
    fn clients_and_engines_are_steps_if_asked_for() {
        let names = |opt_ins| steps(opt_ins).map(|step| step.name).collect::<Vec<_>>();
        let (none, all) = (names(OptIns::default()), names(OptIns::ALL));
        assert_eq!(all, [none.clone(), vec!["clients", "engines"]].concat());
        let engines = names(OptIns { engines: true, ..OptIns::default() });
        assert_eq!(engines, [none, vec!["engines"]].concat());
    }

    #[test]
    fn a_failure_stops_the_rest() {
        check(OnFailure::Stop, &["fmt"], &["tidy", "fmt"]);
    }

    #[test]
    fn keep_going_runs_the_rest() {
        let all = [
            "tidy", "fmt", "clippy", "services", "test", "doc", "examples", "commands", "browser",
            "python",
        ];
        check(OnFailure::KeepGoing, &["tidy", "test"], &all);
    }
}
