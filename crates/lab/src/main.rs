//! `headstart-lab`: studies that reproduce published methods, and measurements of one mechanism.
//!
//! Users of `headstart` need none of them, so the package does not install this binary. Policies,
//! tiers and models are those that serve.

#[cfg(test)]
#[allow(dead_code)] // The tests of the store use the rest.
#[path = "../../store/tests/suite/conformance.rs"]
mod backend_conformance;
#[cfg(test)]
#[path = "../../store/tests/suite/reference.rs"]
mod backend_reference;
mod counted;
mod hazard;
mod host_memory;
mod importance;
mod one_by_one;
mod prediction;
mod priors;
mod shared_policy;
mod throttled;
mod tier_policies;
mod tiers;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use headstart_terminal as output;

/// Longest simulated run, minutes: a day.
const MINUTES_MAX: f64 = 1_440.0;

/// Reproduce published studies, and measure single mechanisms.
#[derive(Debug, Parser)]
#[command(name = "headstart-lab", version)]
#[command(after_help = "Examples:
  cargo run --release -p headstart-lab -- tiers
  cargo run --release -p headstart-lab -- prediction --preset lpc-lmsys --minutes 5 --seeds 1")]
struct Lab {
    #[command(subcommand)]
    study: Study,
}

#[derive(Debug, Subcommand)]
enum Study {
    /// Measure whether loading a prefix is faster than recomputing it.
    Tiers(tiers::TiersBench),
    /// Measure what loading part of a prefix saves, and what it changes.
    Importance(Box<importance::ImportanceBench>),
    /// Simulate sizes of host memory and eviction policies.
    HostMemory(Box<host_memory::HostMemory>),
    /// Show the chances of return that the policy `hazard` learns from a trace.
    Hazard(hazard::HazardCurves),
    /// Measure what tables learned on one trace are worth on another.
    Priors(priors::Priors),
    /// Compare eviction policies of host memory and disk.
    TierPolicies(tier_policies::TierPolicies),
    /// Simulate eviction policies with predictors on one replica.
    Prediction(Box<prediction::PredictionSimulation>),
}

fn main() -> ExitCode {
    output::colour::start();
    let matches = Lab::command().max_term_width(output::COLUMNS).get_matches();
    let lab = Lab::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match lab.study {
        Study::Tiers(bench) => tiers::run(&bench),
        Study::Importance(bench) => importance::run(&bench),
        Study::HostMemory(study) => host_memory::run(&study),
        Study::Hazard(study) => hazard::run(&study),
        Study::Priors(study) => priors::run(&study),
        Study::TierPolicies(study) => tier_policies::run(&study),
        Study::Prediction(study) => prediction::run(&study),
    };
    headstart::ended(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Lab::command().debug_assert();
    }
}
