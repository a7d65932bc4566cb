//! Servers that a benchmark compares: strategies, eviction policies, or both.

use anyhow::Result;
use clap::Args;
use headstart_router::Profile;

use crate::config::parsed;

/// Strategies compared where the user names neither strategies nor policies.
const DEFAULT_STRATEGIES: &[&str] = &["random", "session", "precise"];

/// Strategies and policies to compare.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Server")]
pub(super) struct Runs {
    /// Strategies [default: random,session,precise]
    ///
    /// With --policies the default is precise.
    #[arg(long = "strategy", id = "strategies", value_name = "S[,S…]", value_delimiter = ',')]
    strategies: Vec<String>,
    /// Eviction policies, as for `serve --policy`
    #[arg(long, value_name = "P[,P…]", value_delimiter = ',')]
    policies: Vec<String>,
}

/// One server to measure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerRun {
    /// Unique name of the run.
    pub(super) name: String,
    /// As for serve; `None` is its default.
    pub(super) strategy: Option<String>,
    /// As for serve; `None` is its default.
    pub(super) policy: Option<String>,
}

impl Runs {
    /// Refuses unknown strategies. Policies are checked by the server that they are for.
    pub(super) fn check(&self) -> Result<()> {
        for strategy in &self.strategies {
            parsed::<Profile>(strategy, "--strategy")?;
        }
        Ok(())
    }

    /// The servers in the order in which they are measured.
    pub(super) fn all(&self) -> Vec<ServerRun> {
        let strategies: Vec<Option<&str>> = match (&self.strategies[..], &self.policies[..]) {
            ([], []) => DEFAULT_STRATEGIES.iter().copied().map(Some).collect(),
            // Policies alone are compared under the server's own strategy.
            ([], _) => vec![None],
            (strategies, _) => strategies.iter().map(|name| Some(&name[..])).collect(),
        };
        let policies: Vec<Option<&str>> = match &self.policies[..] {
            [] => vec![None],
            policies => policies.iter().map(|name| Some(&name[..])).collect(),
        };
        // Every strategy meets every policy; the first varies slowest.
        let pairs = strategies
            .iter()
            .flat_map(|&strategy| policies.iter().map(move |&policy| (strategy, policy)));
        pairs.map(|(strategy, policy)| run(strategy, policy)).collect()
    }
}

fn run(strategy: Option<&str>, policy: Option<&str>) -> ServerRun {
    let parts: Vec<&str> = strategy.into_iter().chain(policy).collect();
    ServerRun {
        name: parts.join(" "),
        strategy: strategy.map(str::to_owned),
        policy: policy.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(strategies: &[&str], policies: &[&str], expected: &[&str]) {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let runs = Runs { strategies: owned(strategies), policies: owned(policies) };
        let names: Vec<String> = runs.all().into_iter().map(|run| run.name).collect();
        assert_eq!(names, expected);
    }

    #[test]
    fn every_strategy_meets_every_policy() {
        check(&[], &[], DEFAULT_STRATEGIES);
        check(&["load"], &[], &["load"]);
        check(&[], &["lru", "lpc:interval=4"], &["lru", "lpc:interval=4"]);
        check(
            &["load", "precise"],
            &["lru", "wa"],
            &["load lru", "load wa", "precise lru", "precise wa"],
        );
    }

    #[test]
    fn policies_alone_leave_the_strategy_to_the_server() {
        let policies = vec!["wa".to_owned()];
        let runs = Runs { policies, ..Runs::default() };
        let all = runs.all();
        assert_eq!(all[0].strategy, None);
        assert_eq!(all[0].policy.as_deref(), Some("wa"));
    }
}
