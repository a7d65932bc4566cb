//! The parts of a profile, by name: `name`, or `name:option` where it has one.

use std::str::FromStr;
use std::sync::Arc;

use crate::filter::{Filter, SaturationFilter};
use crate::index::{ApproximateConfig, ApproximateIndex, PrefixIndex, RunIndex};
use crate::pick::{AnyBest, AtRandom, Best, Picker, PowerOfTwo, RoundRobin, SessionHash};
use crate::score::{Cost, Home, InFlightScorer, KvFree, Prefix, QueueDepth, ReportedQueue, Scorer};

/// Source of a profile's knowledge of cached prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexKind {
    /// From the engines' events.
    Events,
    /// From what was sent to them.
    Approximate(ApproximateConfig),
}

/// Kinds of scorer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScorerKind {
    /// [`Prefix`].
    Prefix {
        /// Leading tokens of the prompt that count; all of them without.
        at_most: Option<usize>,
    },
    /// [`QueueDepth`].
    Queue,
    /// [`ReportedQueue`].
    ReportedQueue,
    /// [`KvFree`].
    KvFree,
    /// [`InFlightScorer`].
    InFlight,
    /// [`Cost`].
    Cost,
    /// [`Home`].
    Home,
}

/// Kinds of picker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickerKind {
    /// [`Best`].
    Best,
    /// [`AnyBest`].
    AnyBest,
    /// [`PowerOfTwo`].
    PowerOfTwo,
    /// [`AtRandom`].
    AtRandom,
    /// [`RoundRobin`].
    RoundRobin,
    /// [`SessionHash`].
    Session,
}

/// Kinds of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreferenceKind {
    /// Avoids the replicas that [`SaturationFilter`] rejects.
    Unsaturated,
}

impl IndexKind {
    /// An empty index of this kind.
    #[must_use]
    pub fn make(self, model: &str) -> Arc<dyn PrefixIndex> {
        match self {
            Self::Events => Arc::new(RunIndex::new(model)),
            Self::Approximate(config) => Arc::new(ApproximateIndex::new(model, config)),
        }
    }

    /// The same for one thread, with less work for updates.
    #[must_use]
    pub fn make_alone(self, model: &str) -> Arc<dyn PrefixIndex> {
        match self {
            Self::Events => Arc::new(RunIndex::alone(model)),
            Self::Approximate(_) => self.make(model),
        }
    }
}

/// Indexes by the name that a configuration uses.
const INDEXES: &[(&str, IndexKind)] = &[
    ("events", IndexKind::Events),
    ("approximate", IndexKind::Approximate(ApproximateConfig::USUAL)),
    ("approximate:early", IndexKind::Approximate(ApproximateConfig::EARLY)),
];

/// Pickers by the name that a configuration uses.
const PICKERS: &[(&str, PickerKind)] = &[
    ("best", PickerKind::Best),
    ("any-best", PickerKind::AnyBest),
    ("power-of-two", PickerKind::PowerOfTwo),
    ("random", PickerKind::AtRandom),
    ("round-robin", PickerKind::RoundRobin),
    ("session", PickerKind::Session),
];

/// Scorers by the name that a configuration uses.
const SCORERS: &[(&str, ScorerKind)] = &[
    ("prefix", ScorerKind::Prefix { at_most: None }),
    ("queue", ScorerKind::Queue),
    ("reported-queue", ScorerKind::ReportedQueue),
    ("kv-free", ScorerKind::KvFree),
    ("in-flight", ScorerKind::InFlight),
    ("cost", ScorerKind::Cost),
    ("home", ScorerKind::Home),
];

impl ScorerKind {
    /// The scorer.
    #[must_use]
    pub fn make(self) -> Box<dyn Scorer> {
        match self {
            Self::Prefix { at_most } => Box::new(Prefix { at_most: at_most.unwrap_or(usize::MAX) }),
            Self::Queue => Box::new(QueueDepth),
            Self::ReportedQueue => Box::new(ReportedQueue),
            Self::KvFree => Box::new(KvFree),
            Self::InFlight => Box::new(InFlightScorer),
            Self::Cost => Box::new(Cost),
            Self::Home => Box::new(Home),
        }
    }
}

impl PickerKind {
    /// The picker, for requests to `model`.
    #[must_use]
    pub fn make(self, model: &str) -> Box<dyn Picker> {
        match self {
            Self::Best => Box::new(Best::default()),
            Self::AnyBest => Box::new(AnyBest),
            Self::PowerOfTwo => Box::new(PowerOfTwo),
            Self::AtRandom => Box::new(AtRandom),
            Self::RoundRobin => Box::new(RoundRobin::default()),
            Self::Session => Box::new(SessionHash::new(model)),
        }
    }
}

impl PreferenceKind {
    /// The filter.
    #[must_use]
    pub fn make(self) -> Box<dyn Filter> {
        match self {
            Self::Unsaturated => Box::new(SaturationFilter),
        }
    }
}

/// Error: a part that is not known, or an option that it does not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPart {
    what: &'static str,
    text: String,
    known: String,
}

impl std::fmt::Display for UnknownPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, text, known } = self;
        write!(f, "unknown {what} `{text}`; known: {known}")
    }
}

impl std::error::Error for UnknownPart {}

/// The part named `text` among those of `table`; `note` stands before their names in the error.
fn named<T: Copy>(
    what: &'static str,
    table: &[(&str, T)],
    note: &str,
    text: &str,
) -> Result<T, UnknownPart> {
    let found = table.iter().find(|(name, _)| *name == text);
    found.map(|(_, kind)| *kind).ok_or_else(|| {
        let names: Vec<_> = table.iter().map(|(name, _)| *name).collect();
        let known = format!("{note}{}", names.join(", "));
        UnknownPart { what, text: text.to_owned(), known }
    })
}

impl FromStr for IndexKind {
    type Err = UnknownPart;

    fn from_str(text: &str) -> Result<Self, UnknownPart> {
        named("index", INDEXES, "", text)
    }
}

impl FromStr for ScorerKind {
    type Err = UnknownPart;

    fn from_str(text: &str) -> Result<Self, UnknownPart> {
        let leading = text
            .strip_prefix("prefix:")
            .and_then(|tokens| tokens.parse().ok())
            // With 0 tokens all replicas would have one score.
            .filter(|&tokens| tokens > 0);
        match leading {
            Some(tokens) => Ok(Self::Prefix { at_most: Some(tokens) }),
            None => named("scorer", SCORERS, "prefix:TOKENS (the first TOKENS only), ", text),
        }
    }
}

impl FromStr for PickerKind {
    type Err = UnknownPart;

    fn from_str(text: &str) -> Result<Self, UnknownPart> {
        named("picker", PICKERS, "", text)
    }
}

impl FromStr for PreferenceKind {
    type Err = UnknownPart;

    fn from_str(text: &str) -> Result<Self, UnknownPart> {
        named("preference", &[("unsaturated", Self::Unsaturated)], "", text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_part_of_the_name() {
        let scorer = |text: &str| text.parse::<ScorerKind>();
        assert_eq!(scorer("prefix:64"), Ok(ScorerKind::Prefix { at_most: Some(64) }));
        for bad in ["prefix:", "prefix:0", "prefix:-1", "Prefix", "queue:3", ""] {
            let error = scorer(bad).unwrap_err().to_string();
            assert!(error.contains(&format!("`{bad}`")), "{error}");
        }
    }
}
