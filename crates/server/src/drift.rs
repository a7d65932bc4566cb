//! Are this gateway's prompt tokens those that its engines compute?
//!
//! Routing by prefix works only while both sides make the same tokens of a text. Another version
//! of a tokenizer or a chat template makes every prefix a miss, silently: nothing fails, all is
//! merely slow. So the two are compared, cheapest first:
//!
//! - the engine's count of prompt tokens against ours, in every answer that has it, for nothing;
//! - the engine's token ids (its render route, or `POST /tokenize`) against ours, for one more
//!   tokenization there: at the first request of a model, replica and shape, then once per
//!   [`CHECK_PAUSE`], and where counts differ.
//!
//! It decides when to compare and remembers the verdicts, but does not ask engines itself. It
//! reports a difference once per subject, and again if both sides agreed in between.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use headstart_core::{Nanos, ReplicaId, TokenId};

use crate::lock::lock;
use crate::request_shape::RequestShape;

/// Between two comparisons of token ids: rare beside requests, soon beside a human who looks.
pub const CHECK_PAUSE: Duration = Duration::from_secs(60);

/// Shortest pause between comparisons while counts differ and no drift is known: it reports a drift
/// at once without a storm of requests.
pub const SUSPICION_PAUSE: Duration = Duration::from_secs(1);

/// Subjects that are watched; further ones are not checked. Adapters multiply
/// models, so it is far above a fleet's usual count.
const WATCHED_MAX: usize = 16_384;

/// When what was compared, and what came of it.
#[derive(Debug, Default)]
pub struct DriftWatch {
    watched: Mutex<HashMap<Subject, DriftState>>,
}

/// Subject of a comparison: requests for one model, on one replica, of one shape.
pub type Subject = (String, ReplicaId, RequestShape);

#[derive(Debug, Default)]
struct DriftState {
    checked: Option<Nanos>,
    has_drift: bool,
}

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenComparison {
    /// All token ids are the same.
    Equal,
    /// They are not.
    Differs(Difference),
    /// The engine did not tell.
    Unavailable,
}

/// First difference between two prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The first token that differs, counted from 0.
    pub position: usize,
    /// Ours; none where ours ends there.
    pub ours: Option<TokenId>,
    /// The engine's; none where its prompt ends there.
    pub theirs: Option<TokenId>,
}

impl TokenComparison {
    /// Compares a prompt with what the engine made of it.
    #[must_use]
    pub fn of(ours: &[TokenId], theirs: Option<&[TokenId]>) -> Self {
        let Some(theirs) = theirs else {
            return Self::Unavailable;
        };
        if ours == theirs {
            return Self::Equal;
        }
        let position = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
        Self::Differs(Difference {
            position,
            ours: ours.get(position).copied(),
            theirs: theirs.get(position).copied(),
        })
    }

    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Differs(_) => "differs",
            Self::Unavailable => "unavailable",
        }
    }
}

impl DriftWatch {
    /// Whether the engine's token ids should be asked for now; `counts_differ` says that its count
    /// of prompt tokens is known and not ours. Says yes once: the question counts as asked.
    pub fn is_due(&self, subject: &Subject, counts_differ: bool, now: Nanos) -> bool {
        let mut watched = lock(&self.watched);
        // A full table still checks the subjects that it knows.
        if watched.len() >= WATCHED_MAX && !watched.contains_key(subject) {
            return false;
        }
        let pair = watched.entry(subject.clone()).or_default();
        let pause = if counts_differ && !pair.has_drift { SUSPICION_PAUSE } else { CHECK_PAUSE };
        let is_due = pair.checked.is_none_or(|checked| now >= checked + pause);
        if is_due {
            pair.checked = Some(now);
        }
        is_due
    }

    /// Takes note of a verdict. Returns a difference that has not been told yet.
    pub fn note(&self, subject: &Subject, verdict: TokenComparison) -> Option<Difference> {
        let mut watched = lock(&self.watched);
        let pair = watched.get_mut(subject)?;
        match verdict {
            TokenComparison::Unavailable => None,
            TokenComparison::Equal => {
                pair.has_drift = false;
                None
            }
            TokenComparison::Differs(difference) => {
                let is_known = std::mem::replace(&mut pair.has_drift, true);
                (!is_known).then_some(difference)
            }
        }
    }

    /// Whether a replica made other tokens of requests of this shape when that was last compared.
    #[must_use]
    pub fn differs(&self, model: &str, shape: RequestShape) -> bool {
        let watched = lock(&self.watched);
        let mut differing = watched.iter().filter(|(_, watched)| watched.has_drift);
        differing.any(|((of, _, in_shape), _)| of == model && *in_shape == shape)
    }

    /// Requests of this shape come out as by the engines again.
    pub fn mend(&self, model: &str, shape: RequestShape) {
        for ((of, _, in_shape), watched) in lock(&self.watched).iter_mut() {
            watched.has_drift &= of != model || *in_shape != shape;
        }
    }

    /// Forgets a replica, whose engine may come back with another tokenizer.
    pub fn forget(&self, replica: ReplicaId) {
        lock(&self.watched).retain(|(_, of, _), _| *of != replica);
    }

    /// All subjects whose tokens differ, in order.
    #[must_use]
    pub fn differing(&self) -> Vec<Subject> {
        let watched = lock(&self.watched);
        let differing = watched.iter().filter(|(_, watched)| watched.has_drift);
        let mut subjects: Vec<_> = differing.map(|(subject, _)| subject.clone()).collect();
        subjects.sort();
        subjects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openai::response::ApiKind;

    fn subject(replica: u32) -> Subject {
        let shape = RequestShape::of(ApiKind::Chat, b"{}");
        ("m".to_owned(), ReplicaId(replica), shape)
    }

    fn at(seconds: f64) -> Nanos {
        Nanos::from_secs_f64(seconds)
    }

    #[test]
    fn the_first_token_that_differs_is_told() {
        let differs =
            |ours: &[TokenId], theirs: &[TokenId]| match TokenComparison::of(ours, Some(theirs)) {
                TokenComparison::Differs(Difference { position, ours, theirs }) => {
                    Some((position, ours, theirs))
                }
                TokenComparison::Equal | TokenComparison::Unavailable => None,
            };
        assert_eq!(differs(&[1, 2, 3], &[1, 9, 3]), Some((1, Some(2), Some(9))));
        assert_eq!(differs(&[1, 2], &[1, 2, 3]), Some((2, None, Some(3))));
        assert_eq!(differs(&[1, 2], &[]), Some((0, Some(1), None)));
        assert_eq!(differs(&[], &[]), None);
        assert_eq!(TokenComparison::of(&[], None), TokenComparison::Unavailable);
    }

    #[test]
    fn the_engine_is_asked_first_of_all_then_seldom_and_sooner_on_suspicion() {
        let watch = DriftWatch::default();
        let due = |differs, seconds| watch.is_due(&subject(0), differs, at(seconds));
        assert!(due(false, 0.0) && !due(false, 59.0) && due(false, 60.0));
        assert!(!due(true, 60.5) && due(true, 61.0) && !due(true, 61.5));
        // What is known already needs no hurry.
        watch.note(&subject(0), TokenComparison::of(&[1], Some(&[2])));
        assert!(!due(true, 100.0) && due(true, 121.0));
        assert!(watch.is_due(&subject(1), false, at(121.0)));
    }

    #[test]
    fn a_difference_is_told_once_until_it_was_mended() {
        let watch = DriftWatch::default();
        assert!(watch.is_due(&subject(0), false, at(0.0)));
        let note =
            |theirs: &[TokenId]| watch.note(&subject(0), TokenComparison::of(&[1], Some(theirs)));
        assert!(note(&[1]).is_none() && note(&[2]).is_some() && note(&[3]).is_none());
        assert!(
            watch.note(&subject(0), TokenComparison::Unavailable).is_none() && note(&[2]).is_none()
        );
        assert!(note(&[1]).is_none() && note(&[2]).is_some());
        assert!(watch.note(&subject(9), TokenComparison::Equal).is_none());
    }

    #[test]
    fn the_number_of_pairs_is_bounded() {
        let watch = DriftWatch::default();
        for id in 0..=WATCHED_MAX as u32 {
            let is_due = watch.is_due(&subject(id), false, at(0.0));
            assert_eq!(is_due, (id as usize) < WATCHED_MAX);
        }
    }

    #[test]
    fn a_difference_counts_for_its_shape() {
        let watch = DriftWatch::default();
        let (plain, _) = (subject(0), ());
        let shape = RequestShape::of(ApiKind::Chat, b"\"tools\"");
        let tools = (plain.0.clone(), plain.1, shape);
        assert!(watch.is_due(&plain, false, at(0.0)) && watch.is_due(&tools, false, at(0.0)));
        watch.note(&tools, TokenComparison::of(&[1], Some(&[2])));
        assert!(watch.differs("m", shape) && !watch.differs("m", plain.2));
        assert_eq!(watch.differing(), vec![tools.clone()]);
        watch.note(&tools, TokenComparison::Equal);
        assert!(watch.differing().is_empty());
    }
}
