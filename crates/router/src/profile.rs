//! Profiles: ways to choose, as data, by name.
//!
//! | profile | score | picker |
//! |---|---|---|
//! | `random` | – | any |
//! | `round-robin` | – | in turn |
//! | `load` | fewest requests in flight, then fewest prompt tokens to compute | best |
//! | `power-of-two` | the same, of two drawn at random | the better |
//! | `session` | – | rendezvous hash of the session, bounded load |
//! | `approximate` | as `precise`, with an index that is guessed ([`IndexKind`]) | best |
//! | `precise` | 8 · home + 3 · prefix + 2 · queue + 2 · free KV memory | best |
//! | `cost` | − predicted TTFT ([`crate::score::Cost`]) | any best |
//! | `llm-d-load` | reported queue + free KV memory | best |
//! | `llm-d-approximate` | leading prefix + reported queue + free KV memory | best |
//! | `llm-d-precise` | 3 · prefix + 2 · reported queue + 2 · free KV memory | best |
//!
//! All filter for health and exclusion first. Of equals the one chosen least recently is taken;
//! the `llm-d-` ones draw.
//!
//! Source: llm-d's precise-prefix-cache path (weights 3, 2, 2), and its approximate plug-in as of
//! September 2025, when the runs were published that the `llm-d-` profiles are to be compared
//! with: they see of the load what replicas report and nothing else, and the approximate one
//! matches the first 4,096 tokens. Our own profiles count the router's reservations too, so that
//! a cold burst spreads. The prefix goes first: queues are scored by their order
//! ([`crate::score`]), so the queue alone weighs 2 and never outweighs a match of more than two
//! thirds. Ours, too, is the home: a conversation stays on its replica until that is saturated.
//! Without it, one request in front moves a conversation to a replica that holds what all share.

mod parts;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use crate::filter::{Filter, Healthy, NotExcluded};
use crate::index::{ApproximateConfig, PrefixIndex};
use crate::pipeline::{Pipeline, WeightedScorer};

pub use parts::{IndexKind, PickerKind, PreferenceKind, ScorerKind, UnknownPart};

/// More than all other scores together: the home decides, unless it is saturated.
const HOME_WEIGHT: f64 = 8.0;

/// Tokens of a prompt that llm-d's approximate plug-in looked at.
const LEADING: usize = 4_096;

/// A way to choose.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// Source of its knowledge of cached prefixes.
    pub index: IndexKind,
    /// Whom it avoids while there are others, in order of importance.
    pub preferences: Vec<PreferenceKind>,
    /// Scorers with their weights.
    pub scorers: Vec<(ScorerKind, f64)>,
    /// The final choice among the scored candidates.
    pub picker: PickerKind,
}

impl Profile {
    /// The names that [`FromStr`] takes, without those of a configuration.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|profile| profile.name)
    }

    /// All that come with the router.
    #[must_use]
    pub fn all() -> Vec<Self> {
        KNOWN.iter().map(KnownProfile::profile).collect()
    }

    /// The published weights over the events of the engines: what serves unless told otherwise.
    #[must_use]
    pub fn precise() -> Self {
        Self::known("precise").expect("it is known")
    }

    /// The index that it reads.
    #[must_use]
    pub fn index(&self, model: &str) -> Arc<dyn PrefixIndex> {
        self.index.make(model)
    }

    /// Its filters, scorers and picker, for requests to `model`.
    #[must_use]
    pub fn pipeline(&self, model: &str) -> Pipeline {
        // Not part of any profile: a replica that is down or has failed the request is never a
        // choice.
        let filters: Vec<Box<dyn Filter>> = vec![Box::new(Healthy), Box::new(NotExcluded)];
        let scorers = self
            .scorers
            .iter()
            .map(|&(kind, weight)| WeightedScorer { weight, scorer: kind.make() });
        Pipeline {
            filters,
            preferences: self.preferences.iter().map(|kind| kind.make()).collect(),
            scorers: scorers.collect(),
            picker: self.picker.make(model),
        }
    }

    /// The one of this name among `own`, which go first, and those that come with the router.
    ///
    /// # Errors
    /// If no profile has this name.
    pub fn find(name: &str, own: &BTreeMap<String, Self>) -> Result<Self, UnknownProfile> {
        // A configuration may replace a profile of the router by one of the same name.
        let found = own.get(name).cloned().or_else(|| Self::known(name));
        found.ok_or_else(|| UnknownProfile {
            name: name.to_owned(),
            known: own.keys().cloned().chain(Self::names().map(str::to_owned)).collect(),
        })
    }

    fn known(name: &str) -> Option<Self> {
        KNOWN.iter().find(|profile| profile.name == name).map(KnownProfile::profile)
    }
}

/// A profile that comes with the router.
struct KnownProfile {
    name: &'static str,
    index: IndexKind,
    scorers: &'static [(ScorerKind, f64)],
    picker: PickerKind,
}

impl KnownProfile {
    fn profile(&self) -> Profile {
        Profile {
            name: self.name.to_owned(),
            index: self.index,
            preferences: Vec::new(),
            scorers: self.scorers.to_vec(),
            picker: self.picker,
        }
    }
}

const fn known(
    name: &'static str,
    scorers: &'static [(ScorerKind, f64)],
    picker: PickerKind,
) -> KnownProfile {
    KnownProfile { name, index: IndexKind::Events, scorers, picker }
}

const PREFIX: ScorerKind = ScorerKind::Prefix { at_most: None };
const LEADING_PREFIX: ScorerKind = ScorerKind::Prefix { at_most: Some(LEADING) };

/// `precise`, and `approximate`, which reads another index.
const OURS: &[(ScorerKind, f64)] = &[
    (ScorerKind::Home, HOME_WEIGHT),
    (PREFIX, 3.0),
    (ScorerKind::Queue, 2.0),
    (ScorerKind::KvFree, 2.0),
];

/// The profiles that come with the router.
const KNOWN: &[KnownProfile] = &[
    known("random", &[], PickerKind::AtRandom),
    known("round-robin", &[], PickerKind::RoundRobin),
    known("load", &[(ScorerKind::InFlight, 1.0)], PickerKind::Best),
    known("power-of-two", &[(ScorerKind::InFlight, 1.0)], PickerKind::PowerOfTwo),
    known("session", &[], PickerKind::Session),
    KnownProfile {
        index: IndexKind::Approximate(ApproximateConfig::USUAL),
        ..known("approximate", OURS, PickerKind::Best)
    },
    known("precise", OURS, PickerKind::Best),
    known("cost", &[(ScorerKind::Cost, 1.0)], PickerKind::AnyBest),
    known(
        "llm-d-load",
        &[(ScorerKind::ReportedQueue, 1.0), (ScorerKind::KvFree, 1.0)],
        PickerKind::AnyBest,
    ),
    KnownProfile {
        index: IndexKind::Approximate(ApproximateConfig::EARLY),
        ..known(
            "llm-d-approximate",
            &[(LEADING_PREFIX, 1.0), (ScorerKind::ReportedQueue, 1.0), (ScorerKind::KvFree, 1.0)],
            PickerKind::AnyBest,
        )
    },
    known(
        "llm-d-precise",
        &[(PREFIX, 3.0), (ScorerKind::ReportedQueue, 2.0), (ScorerKind::KvFree, 2.0)],
        PickerKind::AnyBest,
    ),
];

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        Self::find(name, &BTreeMap::new())
    }
}

/// Error: no profile has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownProfile {
    name: String,
    known: Vec<String>,
}

impl std::fmt::Display for UnknownProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, known) = (&self.name, self.known.join(", "));
        write!(f, "unknown strategy `{name}`; known: {known}")
    }
}

impl std::error::Error for UnknownProfile {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_profile() {
        for profile in Profile::all() {
            assert_eq!(profile.to_string().parse(), Ok(profile));
        }
    }

    #[test]
    fn ones_own_go_first() {
        let mine = Profile { picker: PickerKind::AtRandom, ..Profile::precise() };
        let own = BTreeMap::from([("precise".to_owned(), mine.clone())]);
        assert_eq!(Profile::find("precise", &own), Ok(mine));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = "best".parse::<Profile>().unwrap_err().to_string();
        assert!(error.contains("`best`"));
        assert!(Profile::names().all(|name| error.contains(name)), "{error}");
    }
}
