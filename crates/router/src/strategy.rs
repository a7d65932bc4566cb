//! The published ways to choose, by name.
//!
//! | name | scores | picker |
//! |---|---|---|
//! | `random` | – | any |
//! | `round-robin` | – | in turn |
//! | `load` | fewest requests in flight, then fewest prompt tokens to compute | best |
//! | `session` | – | rendezvous hash of the session, bounded load |
//! | `precise` | 3 · prefix + 2 · queue + 2 · free KV memory | best |
//!
//! All filter for health and exclusion first. Of equals the one chosen least recently is taken.
//!
//! Source: the weights of `precise` are those of llm-d's published capacity runs. With them a
//! replica that holds the whole prompt is left only when queue *and* KV memory speak against it;
//! the queue alone weighs 2 and never outweighs a match of more than two thirds.

use std::str::FromStr;

use crate::filter::{Filter, Healthy, NotExcluded};
use crate::pick::{AtRandom, Best, Picker, RoundRobin, SessionHash};
use crate::pipeline::{Pipeline, Weighted};
use crate::score::{InFlight, KvFree, Prefix, QueueDepth, Scorer};

/// How to choose a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// Any replica.
    Random,
    /// Each in turn.
    RoundRobin,
    /// The least busy.
    Load,
    /// The same one for the same conversation.
    Session,
    /// The one that holds most of the prompt, weighed against its load.
    Precise,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Random,
        Self::RoundRobin,
        Self::Load,
        Self::Session,
        Self::Precise,
    ];

    /// The names that [`FromStr`] takes, in the order of [`Strategy::ALL`].
    pub const NAMES: [&str; 5] = ["random", "round-robin", "load", "session", "precise"];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The strategy's filters, scorers and picker, for requests to `model`.
    #[must_use]
    pub fn pipeline(self, model: &str) -> Pipeline {
        let filters: Vec<Box<dyn Filter>> = vec![Box::new(Healthy), Box::new(NotExcluded)];
        let scorers = match self {
            Self::Random | Self::RoundRobin | Self::Session => Vec::new(),
            Self::Load => vec![weighted(1.0, InFlight)],
            Self::Precise => vec![
                weighted(3.0, Prefix),
                weighted(2.0, QueueDepth),
                weighted(2.0, KvFree),
            ],
        };
        let picker: Box<dyn Picker> = match self {
            Self::Random => Box::new(AtRandom),
            Self::RoundRobin => Box::new(RoundRobin::default()),
            Self::Session => Box::new(SessionHash::new(model)),
            Self::Load | Self::Precise => Box::new(Best::default()),
        };
        Pipeline {
            filters,
            scorers,
            picker,
        }
    }
}

fn weighted(weight: f64, scorer: impl Scorer + 'static) -> Weighted {
    let scorer = Box::new(scorer);
    Weighted { weight, scorer }
}

impl std::fmt::Display for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        let known = Self::ALL
            .into_iter()
            .find(|strategy| strategy.name() == name);
        known.ok_or_else(|| UnknownStrategy {
            name: name.to_owned(),
        })
    }
}

/// A strategy name that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownStrategy {
    name: String,
}

impl std::fmt::Display for UnknownStrategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "unknown strategy `{}`; known: {}",
            self.name,
            Strategy::NAMES.join(", ")
        )
    }
}

impl std::error::Error for UnknownStrategy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_strategy() {
        for strategy in Strategy::ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = "best".parse::<Strategy>().unwrap_err().to_string();
        assert!(error.contains("`best`"));
        assert!(
            Strategy::NAMES.iter().all(|name| error.contains(name)),
            "{error}"
        );
    }
}
