//! Arms by name: a policy with options, or one of three that are `lpc` and a predictor.

use crate::prediction::experiment::{Arm, PredictionSource};
use headstart_cache::policy::{self, Setting};

/// The arms that are compared where none is named.
pub(crate) const DEFAULT_ARMS: &str = "lru,s3fifo,wa,turn-only,lpc,oracle";

/// Settings of arms that predict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Predicting {
    /// Predictor for `lpc`.
    pub(crate) predictor: PredictionSource,
    /// Cache capacity that the predictor costs, tokens.
    pub(crate) charge_tokens: u32,
    /// Mean time between turns, seconds; the default `interval` of `lpc`.
    pub(crate) interval_s: f64,
}

/// The arm `name`, `lpc:no-decay` or `oracle` for instance.
///
/// # Errors
/// A sentence that says which part is not known.
pub(crate) fn arm(name: &str, predicting: Predicting) -> Result<Arm, String> {
    let (base, options) = match name.split_once(':') {
        Some((base, options)) => (base, format!(":{options}")),
        None => (name, String::new()),
    };
    // An interval in the options is the user's; the traffic's mean gap is the default.
    let interval = if options.contains(":interval=") {
        String::new()
    } else {
        format!(":interval={}", predicting.interval_s)
    };
    let (policy, predictor, charge_tokens) = match base {
        // The turn count and the truth cost no memory, so they are not charged.
        "turn-only" => (format!("lpc{options}{interval}"), PredictionSource::TurnCount, 0),
        "oracle" => (format!("lpc{options}{interval}"), PredictionSource::Truth, 0),
        "lpc" => {
            let policy = format!("lpc{options}{interval}");
            (policy, predicting.predictor, predicting.charge_tokens)
        }
        _ => (name.to_owned(), PredictionSource::Nobody, 0),
    };
    let arm = Arm { policy, predictor, charge_tokens };
    check(&arm).map(|()| arm)
}

fn check(arm: &Arm) -> Result<(), String> {
    let setting = Setting { capacity: 1, block_tokens: 16 };
    // The charge belongs to the arm and not to the policy, which would refuse it.
    let (spec, _) = policy::split_charge(&arm.policy, 16).map_err(|error| error.to_string())?;
    policy::by_name(&spec, setting)
        .map(drop)
        .map_err(|error| format!("{error}; or turn-only, oracle"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREDICTING: Predicting =
        Predicting { predictor: PredictionSource::Model, charge_tokens: 4_000, interval_s: 50.0 };

    fn check(name: &str, policy: &str, predictor: PredictionSource, charge_tokens: u32) {
        let expected = Arm { policy: policy.to_owned(), predictor, charge_tokens };
        assert_eq!(arm(name, PREDICTING), Ok(expected));
    }

    #[test]
    fn an_arm_is_a_policy_and_a_predictor() {
        check("lru", "lru", PredictionSource::Nobody, 0);
        check("lpc", "lpc:interval=50", PredictionSource::Model, 4_000);
        check("lpc:interval=9", "lpc:interval=9", PredictionSource::Model, 4_000);
        check("turn-only", "lpc:interval=50", PredictionSource::TurnCount, 0);
        let flat = "lpc:no-decay:interval=50";
        check("oracle:no-decay", flat, PredictionSource::Truth, 0);
    }

    #[test]
    fn what_is_not_known_is_named() {
        let error = arm("mru", PREDICTING).expect_err("unknown");
        assert!(error.contains("unknown policy `mru`") && error.contains("turn-only"));
        assert!(arm("lpc:often", PREDICTING).is_err());
        assert!(arm("belady", PREDICTING).is_err());
    }
}
