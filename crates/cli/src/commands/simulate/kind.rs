//! Which kind of simulation is asked for, and whether all options belong to it.

use clap::Args;
use headstart_sim::fleet::Preset;
use headstart_sim::wild::Traffic;

use super::fleet::FleetOptions;
use super::wild::WildOptions;
use crate::config::UsageError;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Learned prefix caching on one replica.
    Experiment,
    /// A fleet.
    Fleet(Preset),
    /// Host memory by policies; the traffic, or none for a trace.
    Wild(Option<Traffic>),
}

/// What is for all.
const COMMON: [&str; 3] = ["preset", "threads", "json"];

/// What is for fleets as well as for the experiment.
const WITH_FLEETS: [&str; 1] = ["html"];

/// What is for the evaluation of host memory as well as for the experiment.
const WITH_WILD: [&str; 4] = ["policies", "minutes", "warm_up", "seeds"];

/// Refuses options of `given` that another kind of simulation has.
pub(super) fn check(kind: Kind, given: &[&str]) -> Result<(), UsageError> {
    match given.iter().find(|id| !fits(kind, id)) {
        None => Ok(()),
        Some(wrong) => Err(UsageError(refusal(kind, wrong))),
    }
}

fn fits(kind: Kind, id: &str) -> bool {
    if COMMON.contains(&id) {
        return true;
    }
    let (of_fleets, of_wild) = (has::<FleetOptions>(id), has::<WildOptions>(id));
    match kind {
        Kind::Fleet(_) => of_fleets || WITH_FLEETS.contains(&id),
        Kind::Wild(_) => of_wild || WITH_WILD.contains(&id),
        Kind::Experiment => !of_fleets && !of_wild,
    }
}

fn has<Options: Args>(id: &str) -> bool {
    let command = Options::augment_args(clap::Command::new("options"));
    command.get_arguments().any(|it| it.get_id() == id)
}

fn refusal(kind: Kind, id: &str) -> String {
    let option = id.replace('_', "-");
    let what = match kind {
        Kind::Fleet(preset) => format!("{} is a fleet, see `Fleets` in --help", preset.name()),
        Kind::Wild(traffic) => {
            let name = traffic.map_or("--wild-trace", |it| it.name);
            format!("{name} is about host memory, see `Host memory` in --help")
        }
        Kind::Experiment => String::new(),
    };
    let of = match (kind, has::<FleetOptions>(id), has::<WildOptions>(id)) {
        (_, true, _) => "fleets: --preset llm-d-73, llm-d-37, laptop, or --fleet-trace",
        (_, _, true) => "host memory: --preset wild-consumer, wild-business, or --wild-trace",
        _ => "experiments with one replica",
    };
    match what.is_empty() {
        true => format!("--{option} is for {of}"),
        false => format!("--{option} is for {of}; {what}"),
    }
}
