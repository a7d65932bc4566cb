//! Causes summed over many prompts: what costs most comes first.

use std::collections::BTreeMap;

use super::explain::Evidence;
use crate::Cause;

/// Most places that are kept apart; further ones are merged by their cause.
const PLACES_MAX: usize = 1024;

/// Most versions of a place that are kept apart.
const VERSIONS_MAX: usize = 8;

/// Versions from which on a wording may be new each time.
const MANY_VERSIONS: usize = 4;

/// Tokens that one prompt lost to one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The cause.
    pub cause: Cause,
    /// The place of the cause, as [`Evidence::place`] names it.
    pub place: u64,
    /// The text that stands there now, as [`Evidence::version`] names it.
    pub version: u64,
    /// Known tokens that had to be recomputed, as the caller counts them.
    pub tokens: u64,
}

impl Loss {
    /// Returns the loss of `tokens` to the cause in `evidence`.
    #[must_use]
    pub fn new(evidence: &Evidence, tokens: u64) -> Self {
        Self { cause: evidence.cause, place: evidence.place, version: evidence.version, tokens }
    }
}

/// A cause in one place, over all prompts that it cost something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding<E> {
    /// The cause of the losses.
    pub cause: Cause,
    /// The place of the cause; 0 for causes that show at many places.
    pub place: u64,
    /// Prompts that lost something.
    pub requests: u64,
    /// Tokens that they lost together.
    pub tokens: u64,
    /// The prompt that lost most, as the caller describes it.
    pub example: E,
    most: u64,
    /// Different ones, the first few.
    versions: Vec<u64>,
}

/// Sums losses. `E` is what the caller wants to know of an example.
#[derive(Clone, Debug)]
pub struct Findings<E> {
    places: BTreeMap<(Cause, u64), Finding<E>>,
}

impl<E> Finding<E> {
    /// Whether the text there is new nearly each time: then it is the users', and no version of a
    /// template.
    #[must_use]
    pub fn is_new_each_time(&self) -> bool {
        let versions = self.versions.len();
        // At most `VERSIONS_MAX` are stored, so more requests cannot show more versions.
        let few = self.requests.min(VERSIONS_MAX as u64) as usize;
        versions >= MANY_VERSIONS && versions * 4 >= few * 3
    }
}

impl<E> Default for Findings<E> {
    fn default() -> Self {
        Self { places: BTreeMap::new() }
    }
}

impl<E> Findings<E> {
    /// Adds what a prompt lost. `example` is asked for only if it is the worst so far.
    pub fn add(&mut self, loss: Loss, example: impl FnOnce() -> E) {
        let mut key = (loss.cause, loss.place);
        // Further places share place 0 of their cause, so the table grows by one entry a cause at
        // most.
        if self.places.len() >= PLACES_MAX && !self.places.contains_key(&key) {
            key.1 = 0;
        }
        match self.places.get_mut(&key) {
            Some(finding) => {
                finding.requests += 1;
                if finding.versions.len() < VERSIONS_MAX
                    && !finding.versions.contains(&loss.version)
                {
                    finding.versions.push(loss.version);
                }
                finding.tokens += loss.tokens;
                if loss.tokens > finding.most {
                    finding.most = loss.tokens;
                    finding.example = example();
                }
            }
            None => {
                let finding = Finding {
                    cause: loss.cause,
                    place: key.1,
                    requests: 1,
                    tokens: loss.tokens,
                    example: example(),
                    most: loss.tokens,
                    versions: vec![loss.version],
                };
                self.places.insert(key, finding);
            }
        }
    }

    /// All of them, most tokens first.
    #[must_use]
    pub fn sorted(self) -> Vec<Finding<E>> {
        let mut findings: Vec<_> = self.places.into_values().collect();
        findings.sort_by_key(|finding| {
            // Ties are broken by cause and place, so that a report is the same each time.
            (std::cmp::Reverse(finding.tokens), finding.cause, finding.place)
        });
        findings
    }

    /// Whether nothing was lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_summed_by_cause_and_place_and_the_worst_comes_first() {
        let mut findings = Findings::default();
        let loss = |cause, place, tokens| Loss { cause, place, version: tokens, tokens };
        findings.add(loss(Cause::Clock, 1, 100), || "a");
        findings.add(loss(Cause::Nonce, 1, 150), || "b");
        findings.add(loss(Cause::Clock, 1, 120), || "c");
        findings.add(loss(Cause::Clock, 1, 90), || "d");
        findings.add(loss(Cause::Clock, 2, 10), || "e");
        let sorted = findings.sorted();
        let told = sorted
            .iter()
            .map(|finding| (finding.cause, finding.requests, finding.tokens, finding.example));
        assert_eq!(
            told.collect::<Vec<_>>(),
            [(Cause::Clock, 3, 310, "c"), (Cause::Nonce, 1, 150, "b"), (Cause::Clock, 1, 10, "e")]
        );
    }

    #[test]
    fn what_is_new_each_time_is_told_from_versions_in_turn() {
        let check = |versions: u64, is_new: bool| {
            let mut findings = Findings::default();
            for number in 0..12 {
                let loss = Loss {
                    cause: Cause::Template,
                    place: 7,
                    version: number % versions,
                    tokens: 1,
                };
                findings.add(loss, || number);
            }
            assert_eq!(findings.sorted()[0].is_new_each_time(), is_new, "{versions}");
        };
        check(2, false);
        check(3, false);
        check(12, true);
    }

    #[test]
    fn places_are_bounded() {
        let mut findings = Findings::default();
        for place in 1..5000 {
            let loss = Loss { cause: Cause::Nonce, place, version: place, tokens: 1 };
            findings.add(loss, || place);
        }
        let sorted = findings.sorted();
        assert_eq!(sorted.len(), PLACES_MAX + 1);
        assert_eq!(sorted.iter().map(|finding| finding.tokens).sum::<u64>(), 4999);
    }
}
