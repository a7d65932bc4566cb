//! Differences without a name: a short text, such as the user's name, that changes at the same
//! place in many prompts, in front of much text that does not.
//!
//! A place is known by the words in front of the change and by those behind it. Values may begin or
//! end alike (`Ann Ode`, `Ann Fry`, `Bob Ode`), which moves one of both: places that have either in
//! common, be it through others, are one.

use headstart_insight::text::{LOSS_WORDS, PromptDivergence};

use super::heaviest::Heaviest;
use crate::structure::ChangePlace;
use crate::walk::{PromptComparison, WorstCase};

/// Longest text that changes, bytes: what is longer is content, and not a value in a form.
const CHANGE_BYTES_MAX: usize = 160;

/// Fewest prompts that must have lost something at one place.
const REQUESTS_MIN: u64 = 3;

/// The same as a share of all prompts: one in this number.
const SHARE: u64 = 10;

/// The same for a place in the prompt's form, which chance seldom makes.
const FORM_SHARE: u64 = 20;

/// Most places that are distinguished, about a kilobyte each; the lightest make room.
const PLACES_MAX: usize = 1024;

/// Description of the change, as the subject of a sentence.
pub(super) const TITLE: &str = "a change before text that stays the same";

/// Suggested fix.
pub(super) const FIX: &str = "move the text that changes behind everything that stays the same";

/// A place in prompts where text changes without a known cause.
#[derive(Debug)]
pub struct ChangeSite {
    /// Prompts that lost something.
    pub requests: u64,
    /// Tokens that they lost together.
    pub tokens: u64,
    /// The prompt that lost most.
    pub example: WorstCase,
    /// The place in the prompt's form, where it has one.
    place: Option<ChangePlace>,
    is_value: bool,
    most: u64,
}

/// The words in front of a change and those behind it, hashed.
type ChangeSiteKey = (u64, u64);

/// Changes without a known cause, by place.
#[derive(Debug)]
pub(super) struct UnnamedChanges {
    places: Heaviest<ChangeSiteKey, ChangeSite>,
    prompts: u64,
}

impl Default for UnnamedChanges {
    fn default() -> Self {
        Self { places: Heaviest::new(PLACES_MAX), prompts: 0 }
    }
}

impl ChangeSite {
    /// The change as the subject of a sentence.
    pub(super) fn title(&self) -> String {
        self.place.as_ref().map_or_else(|| TITLE.to_owned(), ChangePlace::title)
    }

    /// The suggested fix.
    pub(super) fn fix(&self) -> String {
        self.place.as_ref().map_or_else(|| FIX.to_owned(), ChangePlace::fix)
    }

    /// Adds what the same place has cost others.
    fn join(&mut self, other: Self) {
        self.requests += other.requests;
        self.tokens += other.tokens;
        if other.most > self.most {
            (self.most, self.example) = (other.most, other.example);
        }
    }
}

impl UnnamedChanges {
    /// Adds what was told of a prompt.
    pub(super) fn add(&mut self, told: &PromptComparison) {
        self.prompts += 1;
        let Some(parted) = &told.parted else {
            return;
        };
        // A change with a name is a finding already. A long one outside any known form is content
        // that differs by intent.
        if parted.evidence.is_some() || !parted.divergence.is_loss() {
            return;
        }
        let (in_form, is_value) =
            (parted.placed(&told.prompt).map(|placed| placed.place), is_value(&parted.divergence));
        let tokens = parted.lost_tokens;
        // The two hashes are of the words on either side of a value, or else of the place.
        let key = match &in_form {
            _ if is_value => (parted.divergence.place, parted.divergence.behind),
            Some(place) => (place.number(), place.number()),
            None => return,
        };
        let place = self.places.add(key, tokens, || ChangeSite {
            requests: 0,
            tokens: 0,
            example: told.example(parted),
            place: in_form,
            is_value,
            most: tokens,
        });
        place.requests += 1;
        place.tokens += tokens;
        // The first example is the best only until a later prompt loses more.
        if tokens > place.most {
            (place.most, place.example) = (tokens, told.example(parted));
        }
    }

    /// Returns the places that are not due to chance, most tokens lost first.
    pub(super) fn told(self) -> Vec<ChangeSite> {
        // Chance makes a few prompts part at one place; a form makes a share of all do so.
        let least = REQUESTS_MIN.max(self.prompts / SHARE);
        let least_in_form = REQUESTS_MIN.max(self.prompts / FORM_SHARE);
        let mut places = joined(self.places.into_values());
        // Places are joined first: parts of one place may each be too rare.
        places.retain(|place| {
            let is_chance = place.is_value && place.place.is_none();
            place.requests >= if is_chance { least } else { least_in_form }
        });
        places.sort_by_key(|place| std::cmp::Reverse(place.tokens));
        places
    }
}

/// One place for all that have the words in front or those behind in common, directly or through
/// others.
fn joined(places: impl Iterator<Item = (ChangeSiteKey, ChangeSite)>) -> Vec<ChangeSite> {
    let mut groups: Vec<(Vec<ChangeSiteKey>, ChangeSite)> = Vec::new();
    for (key, place) in places {
        let is_same = |(keys, _): &mut (Vec<ChangeSiteKey>, ChangeSite)| {
            keys.iter().any(|known| known.0 == key.0 || known.1 == key.1)
        };
        let mut joined = (vec![key], place);
        // All groups that share a side are taken out, because the new place may connect several.
        for (keys, place) in groups.extract_if(.., is_same) {
            joined.0.extend(keys);
            joined.1.join(place);
        }
        groups.push(joined);
    }
    groups.into_iter().map(|(_, place)| place).collect()
}

/// Whether what changed first is short, and what stands right behind it stayed.
fn is_value(divergence: &PromptDivergence) -> bool {
    let is_short = divergence
        .changes
        .first()
        .is_some_and(|change| change.old.len().max(change.new.len()) <= CHANGE_BYTES_MAX);
    // The same words follow on both sides, so the change is inside something that stays.
    divergence.is_loss() && is_short && divergence.agrees_words >= LOSS_WORDS
}

#[cfg(test)]
mod tests {
    use headstart_trace::format::request_log::{LoggedRequest, PromptPart};

    use headstart_core::{FinishKind, ToolClass};

    use super::*;
    use crate::rendering::Rendering;
    use crate::walk::LogWalk;

    fn logged(number: usize, text: String) -> LoggedRequest {
        LoggedRequest {
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
            finish: FinishKind::Unknown,
            tool: ToolClass::default(),
            ttft: None,
            settings: Vec::new(),
        }
    }

    /// Checks the requests of each place found in prompts that put `fronts` before the same text of
    /// `words` words.
    fn check(fronts: &[&str], words: usize, expected: &[u64]) {
        let rendering = Rendering::of(None).expect("the toy");
        let (mut walk, mut unnamed) = (LogWalk::new(&rendering), UnnamedChanges::default());
        for (number, front) in fronts.iter().enumerate() {
            let body: String = (0..words).map(|at| format!("rule{at} ")).collect();
            let text = format!("You help {front}. {body}\nQuestion {number}: {front}?");
            unnamed.add(&walk.add(&logged(number, text)));
        }
        let told = unnamed.told().into_iter();
        let told: Vec<u64> = told.map(|place| place.requests).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn a_value_in_front_of_what_stays_is_told_if_it_changes_often() {
        check(&["Ann", "Bob", "Cem", "Dee", "Eve"], 80, &[4]);
        check(&["Ann", "Ann", "Bob", "Ann", "Bob"], 80, &[]);
        check(&["Ann", "Bob", "Cem", "Dee", "Eve"], 20, &[]);
        let long = "whoever asks, be it at night or in the morning, in whatever language and \
                    about whatever matter, with all the care that you have and without haste, as \
                    you would like to be helped yourself";
        // It is no value, and still text in front of what stays.
        check(&["Ann", long, "Bob", long, "Cem"], 80, &[3]);
    }

    #[test]
    fn values_that_begin_or_end_alike_stand_in_one_place() {
        let names = [
            "Ann Ode", "Ann Fry", "Bob Ode", "Cem Hay", "Bob Fry", "Cem Ode", "Ann Hay", "Bob Hay",
            "Cem Fry", "Dee Fry", "Dee Ode", "Dee Hay",
        ];
        check(&names, 80, &[names.len() as u64 - 1]);
    }

    #[test]
    fn two_places_are_two() {
        let rendering = Rendering::of(None).expect("the toy");
        let (mut walk, mut unnamed) = (LogWalk::new(&rendering), UnnamedChanges::default());
        let names = ["Ann", "Bob", "Cem", "Dee"];
        for number in 0..16 {
            let words =
                |app: &str| -> String { (0..80).map(|at| format!("{app}rule{at} ")).collect() };
            let name = names[number / 2 % 4].repeat(1 + number / 8);
            let text = match number % 2 {
                0 => format!("In the shop you help {name}. {}", words("shop")),
                _ => format!("As a guide you lead {name} on. {}", words("tour")),
            };
            unnamed.add(&walk.add(&logged(number, text)));
        }
        assert_eq!(unnamed.told().len(), 2);
    }
}
