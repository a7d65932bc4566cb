//! Differences without a name: something short that changes at the same place in many prompts,
//! with much behind it that does not, such as the name of whoever asks.

use std::collections::BTreeMap;

use headstart_insight::text::{Divergence, LOSS_WORDS};

use crate::commands::why::walk::{Example, Told};

/// Longest text that changes, bytes: what is longer is content, and not a value in a form.
const CHANGE_BYTES_MAX: usize = 160;

/// Fewest prompts that must have lost something at one place.
const REQUESTS_MIN: u64 = 3;

/// The same, as a share of all prompts: one in so many.
const SHARE: u64 = 10;

/// Most places that are told apart; what comes later is left out.
const PLACES_MAX: usize = 1024;

/// What changes, as the subject of a sentence.
pub(super) const TITLE: &str = "something that changes in front of what stays the same";

/// What to do about it.
pub(super) const FIX: &str = "move what changes behind everything that stays the same";

/// A place where something without a name changes.
#[derive(Debug)]
pub(super) struct Place {
    /// Prompts that lost something.
    pub(super) requests: u64,
    /// Tokens that they lost together.
    pub(super) tokens: u64,
    /// The prompt that lost most.
    pub(super) example: Example,
    most: u64,
}

/// All places, by the hash of what stands in front.
#[derive(Debug, Default)]
pub(super) struct Unnamed {
    places: BTreeMap<u64, Place>,
    prompts: u64,
}

impl Unnamed {
    /// Adds what was told of a prompt.
    pub(super) fn add(&mut self, told: &Told) {
        self.prompts += 1;
        let Some(parted) = &told.parted else {
            return;
        };
        if parted.evidence.is_some() || !is_value(&parted.divergence) {
            return;
        }
        let key = parted.divergence.place;
        if let Some(place) = self.places.get_mut(&key) {
            place.requests += 1;
            place.tokens += parted.lost_tokens;
            if parted.lost_tokens > place.most {
                place.most = parted.lost_tokens;
                place.example = parted.example(&told.prompt);
            }
        } else if self.places.len() < PLACES_MAX {
            let place = Place {
                requests: 1,
                tokens: parted.lost_tokens,
                example: parted.example(&told.prompt),
                most: parted.lost_tokens,
            };
            self.places.insert(key, place);
        }
    }

    /// Those that are no chance, most tokens lost first.
    pub(super) fn told(self) -> Vec<Place> {
        let least = REQUESTS_MIN.max(self.prompts / SHARE);
        let mut places: Vec<_> = self.places.into_values().collect();
        places.retain(|place| place.requests >= least);
        places.sort_by_key(|place| std::cmp::Reverse(place.tokens));
        places
    }
}

/// Whether what changed first is short, and what stands right behind it stayed.
fn is_value(divergence: &Divergence) -> bool {
    let is_short = divergence
        .changes
        .first()
        .is_some_and(|change| change.old.len().max(change.new.len()) <= CHANGE_BYTES_MAX);
    divergence.is_loss() && is_short && divergence.agrees_words >= LOSS_WORDS
}

#[cfg(test)]
mod tests {
    use headstart_trace::format::request_log::{LoggedRequest, PromptPart};

    use super::*;
    use crate::commands::why::walk::Walk;
    use crate::logged::Rendering;

    /// Tells of prompts with `fronts` before the same text of so many words.
    fn check(fronts: &[&str], words: usize, expected: Option<u64>) {
        let rendering = Rendering::of(None).expect("the toy");
        let (mut walk, mut unnamed) = (Walk::new(&rendering), Unnamed::default());
        for (number, front) in fronts.iter().enumerate() {
            let body: String = (0..words).map(|at| format!("rule{at} ")).collect();
            let text = format!("You help {front}. {body}\nQuestion {number}: {front}?");
            unnamed.add(&walk.add(&LoggedRequest {
                id: None,
                line: number + 1,
                arrival: None,
                model: None,
                cache_salt: None,
                user: None,
                session: None,
                prompt: PromptPart::Text(text),
                prompt_tokens: None,
                cached_tokens: None,
                output_tokens: None,
                ttft: None,
            }));
        }
        let told = unnamed.told();
        assert_eq!(told.first().map(|place| place.requests), expected);
    }

    #[test]
    fn a_value_in_front_of_what_stays_is_told_if_it_changes_often() {
        check(&["Ann", "Bob", "Cem", "Dee", "Eve"], 80, Some(4));
        check(&["Ann", "Ann", "Bob", "Ann", "Bob"], 80, None);
        check(&["Ann", "Bob", "Cem", "Dee", "Eve"], 20, None);
        let long = "whoever asks, be it at night or in the morning, in whatever language and \
                    about whatever matter, with all the care that you have and without haste, as \
                    you would like to be helped yourself";
        check(&["Ann", long, "Bob", long, "Cem"], 80, None);
    }
}
