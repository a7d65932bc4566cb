//! A bounded memory of prompts that finds the one that came nearest to a new one.
//!
//! Two are looked for, because they are two questions. Which earlier prompt shares the **longest
//! prefix**? It is found by the hashes of all words up to every 32nd: this prefix of the new prompt
//! is served. And which one **had most of the rest**, wherever it stood there? It is found by the
//! anchors behind that prefix; anchors that few prompts have count more, because what a whole
//! application has in common says nothing about the conversation. The prompt that had the lost
//! words explains the loss: the earlier turn of the same conversation, not a prompt that happens to
//! begin alike.
//!
//! Memory: each sketch's words at 16 bytes and about one anchor per eight words at some 60; never
//! more than [`NeighbourLimits`] say. A prompt that an earlier one begins takes that one's place:
//! turns of a conversation count once. Otherwise the oldest goes. The same calls give the same
//! answers.

use std::collections::VecDeque;

use super::explain::{Explanation, explain};
use super::hashed::{ByHash, Hashes};
use super::sketch::{Sketch, mixed};

/// Sketches that are remembered per anchor and per mark: the latest.
const HOLDERS_MAX: usize = 8;

/// Sketches that are compared in full with a new one, per question.
const CANDIDATES_MAX: usize = 4;

/// Candidates that are explained, besides the one with the longest prefix.
const EXPLAINED_MAX: usize = 4;

/// Weight of an anchor, divided equally among the prompts that have it.
const ANCHOR_WEIGHT: usize = 840;

/// Least loss of a cause, in percent of the reported one's, at which it is reported instead.
const WORSE_PERCENT: usize = 125;

/// Bounds on the remembered prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourLimits {
    /// Most prompts.
    pub sketches: usize,
    /// Most words of them all together.
    pub words: usize,
}

impl Default for NeighbourLimits {
    /// 4,096 prompts with 4 million words: up to some 100 MB.
    fn default() -> Self {
        Self { sketches: 4096, words: 4 << 20 }
    }
}

/// Remembers prompts, each under a name `N` that the caller gives.
#[derive(Debug)]
pub struct Neighbours<N> {
    limits: NeighbourLimits,
    words: usize,
    /// In order of arrival; places of those that went early are empty.
    kept: VecDeque<Option<StoredSketch<N>>>,
    num_kept: usize,
    forgotten: u64,
    /// The number of the first in `kept`.
    first: u64,
    anchors: ByHash<Vec<u64>>,
    marks: ByHash<Vec<u64>>,
}

#[derive(Debug)]
struct StoredSketch<N> {
    name: N,
    namespace: u64,
    sketch: Sketch,
}

/// An earlier prompt, near to a new one.
#[derive(Debug)]
pub struct Near<'a, N> {
    /// The caller's name of the prompt.
    pub name: &'a N,
    /// Its words.
    pub sketch: &'a Sketch,
    /// Words that it has in common with the new one from the start.
    pub shared_words: usize,
    /// Anchors that it has in common with the new one.
    pub shared_anchors: usize,
    number: u64,
}

/// Comparison of a new prompt with an earlier one.
#[derive(Debug)]
pub struct NeighbourComparison<'a, N> {
    /// The earlier prompt that it is compared with.
    pub near: Near<'a, N>,
    /// The most words that any earlier prompt has in common with it from the start.
    pub served_words: usize,
    /// The differences of both; nothing where one begins with the other.
    pub explanation: Option<Explanation>,
}

/// Words that a named cause cost.
fn lost(explanation: Option<&Explanation>) -> usize {
    let named = explanation.filter(|explanation| explanation.evidence.is_some());
    named.map_or(0, |named| named.divergence.lost_words)
}

impl<N> Neighbours<N> {
    /// An empty memory.
    #[must_use]
    pub fn new(limits: NeighbourLimits) -> Self {
        Self {
            limits,
            words: 0,
            kept: VecDeque::new(),
            num_kept: 0,
            forgotten: 0,
            first: 0,
            anchors: ByHash::default(),
            marks: ByHash::default(),
        }
    }

    /// Prompts that are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.num_kept
    }

    /// The names of the remembered prompts, oldest first.
    pub fn names(&self) -> impl Iterator<Item = &N> {
        self.kept.iter().flatten().map(|kept| &kept.name)
    }

    /// Words of all the prompts that are remembered.
    #[must_use]
    pub fn num_words(&self) -> usize {
        self.words
    }

    /// Prompts evicted because there were too many, or too many words. Prompts replaced by a longer
    /// turn of their conversation do not count.
    #[must_use]
    pub fn num_forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.num_kept == 0
    }

    /// Remembers a prompt of `namespace`: whatever sets prompts apart that never share a cache.
    pub fn insert(&mut self, namespace: u64, name: N, sketch: Sketch) {
        if let Some(begun) = self.begun(namespace, &sketch) {
            self.remove(begun);
        }
        let number = self.first + self.kept.len() as u64;
        for (map, keys) in
            [(&mut self.anchors, sketch.anchors()), (&mut self.marks, sketch.marks())]
        {
            for key in keys {
                // The namespace is part of the key: prompts that never share a cache do not meet
                // here.
                let holders = map.entry(mixed(key ^ namespace)).or_default();
                // A prompt that repeats an anchor is listed once.
                if holders.last() != Some(&number) {
                    if holders.len() == HOLDERS_MAX {
                        // The oldest holder goes; of eight, a shift is cheap.
                        holders.remove(0);
                    }
                    holders.push(number);
                }
            }
        }
        self.words += sketch.words().len();
        self.num_kept += 1;
        self.kept.push_back(Some(StoredSketch { name, namespace, sketch }));
        // A prompt that exceeds the limit by itself goes too, after all others.
        while self.num_kept > self.limits.sketches || self.words > self.limits.words {
            // The first place is never empty: `remove` drops empty places from the front.
            self.remove(self.first);
            self.forgotten += 1;
        }
    }

    /// The earlier prompt of `namespace` with the longest common prefix, and the most alike. Of
    /// equals the latest.
    #[must_use]
    pub fn nearest(&self, namespace: u64, sketch: &Sketch) -> Option<[Near<'_, N>; 2]> {
        let candidates = self.candidates(namespace, sketch);
        let wanted: Hashes = sketch.anchors().iter().copied().collect();
        let near = |number: &u64| self.near(*number, sketch, &wanted);
        let by_prefix = |near: &Near<'_, N>| (near.shared_words, near.shared_anchors, near.number);
        let by_likeness =
            |near: &Near<'_, N>| (near.shared_anchors, near.shared_words, near.number);
        Some([
            candidates.iter().filter_map(near).max_by_key(by_prefix)?,
            candidates.iter().filter_map(near).max_by_key(by_likeness)?,
        ])
    }

    /// Explains how a new prompt of `namespace` differs from an earlier one: from the one that
    /// shows the named cause that cost most, or else from the one with the longest prefix.
    /// Nothing where no earlier prompt is near.
    #[must_use]
    pub fn tell(&self, namespace: u64, sketch: &Sketch) -> Option<NeighbourComparison<'_, N>> {
        let [mut near, _] = self.nearest(namespace, sketch)?;
        let (served_words, first) = (near.shared_words, near.number);
        let mut explanation = explain(near.sketch, sketch, served_words);
        let mut most = lost(explanation.as_ref());
        for other in self.behind(namespace, sketch, served_words) {
            if other.number == first {
                continue;
            }
            let another = explain(other.sketch, sketch, served_words);
            let words = lost(another.as_ref());
            if words * 100 > most * WORSE_PERCENT {
                (near, explanation, most) = (other, another, words);
            }
        }
        Some(NeighbourComparison { near, served_words, explanation })
    }

    /// Returns the prompts that share most anchors behind the first `served_words`, the best first.
    fn behind(&self, namespace: u64, sketch: &Sketch, served_words: usize) -> Vec<Near<'_, N>> {
        let anchors = sketch.anchors_behind(served_words);
        let wanted: Hashes = anchors.iter().copied().collect();
        let numbers = self.holders(namespace, &anchors).into_iter();
        let mut near: Vec<_> = numbers
            .filter_map(|number| self.near(number, sketch, &wanted))
            .filter(|near| near.shared_anchors > 0)
            .collect();
        near.sort_by_key(|candidate| {
            std::cmp::Reverse((candidate.shared_anchors, candidate.shared_words, candidate.number))
        });
        near.truncate(EXPLAINED_MAX);
        near
    }

    /// Asserts that the counts are those of what is kept. Costs a walk over all of it.
    ///
    /// # Panics
    /// When they are not.
    pub fn check(&self) {
        let kept = || self.kept.iter().flatten();
        assert_eq!(kept().count(), self.num_kept, "prompts are counted");
        let words: usize = kept().map(|kept| kept.sketch.words().len()).sum();
        assert_eq!(words, self.words, "words are counted");
        assert!(self.words <= self.limits.words, "words are bounded");
        let last = self.first + self.kept.len() as u64;
        for holders in self.anchors.values().chain(self.marks.values()) {
            assert!((1..=HOLDERS_MAX).contains(&holders.len()), "holders are bounded");
            let is_kept = |number: &u64| self.get(*number).is_some() && *number < last;
            assert!(holders.iter().all(is_kept), "holders are kept");
        }
    }

    fn get(&self, number: u64) -> Option<&StoredSketch<N>> {
        let index = number.checked_sub(self.first)?;
        self.kept.get(index as usize)?.as_ref()
    }

    /// The numbers of those worth comparing in full.
    fn candidates(&self, namespace: u64, sketch: &Sketch) -> Vec<u64> {
        let mut numbers = self.holders(namespace, sketch.anchors());
        let mut deepest = self.deepest(namespace, sketch);
        deepest.retain(|number| !numbers.contains(number));
        // The latest holders come last in their list.
        numbers.extend(deepest.into_iter().rev().take(CANDIDATES_MAX));
        numbers
    }

    /// The numbers of those that have most of `anchors`, and of those that have most of the rare
    /// ones.
    fn holders(&self, namespace: u64, anchors: &[u64]) -> Vec<u64> {
        let mut counts: ByHash<(usize, usize)> = ByHash::default();
        let mut seen = Hashes::default();
        // Each anchor counts once, however often the prompt repeats it.
        for anchor in anchors.iter().filter(|anchor| seen.insert(**anchor)) {
            let holders = self.anchors.get(&mixed(anchor ^ namespace));
            let holders = holders.map_or(&[][..], Vec::as_slice);
            for holder in holders {
                let (count, weight) = counts.entry(*holder).or_default();
                *count += 1;
                // 840 is divisible by every count up to eight, so all shares are exact.
                *weight += ANCHOR_WEIGHT / holders.len();
            }
        }
        let mut numbers = Vec::new();
        let mut best = |key: fn((usize, usize)) -> usize| {
            let mut order: Vec<_> =
                counts.iter().map(|(number, sums)| (key(*sums), *number)).collect();
            // Sorted by number as well, because the order of a hash map must not decide.
            order.sort_unstable_by(|one, other| other.cmp(one));
            for (_, number) in order.into_iter().take(CANDIDATES_MAX) {
                if !numbers.contains(&number) {
                    numbers.push(number);
                }
            }
        };
        best(|(count, _)| count);
        best(|(_, weight)| weight);
        numbers
    }

    /// Returns the prompts that have the deepest mark in common with `sketch`; the latest last.
    fn deepest(&self, namespace: u64, sketch: &Sketch) -> Vec<u64> {
        let marks = sketch.marks().iter().rev();
        let mut holders = marks.filter_map(|mark| self.marks.get(&mixed(mark ^ namespace)));
        holders.next().cloned().unwrap_or_default()
    }

    fn near(&self, number: u64, sketch: &Sketch, wanted: &Hashes) -> Option<Near<'_, N>> {
        let kept = self.get(number)?;
        let shared = kept.sketch.anchors().iter().filter(|anchor| wanted.contains(*anchor));
        Some(Near {
            name: &kept.name,
            sketch: &kept.sketch,
            shared_words: kept.sketch.common_words(sketch),
            shared_anchors: shared.count(),
            number,
        })
    }

    /// Returns the prompt that `sketch` continues, if any. Its last word may have been cut.
    fn begun(&self, namespace: u64, sketch: &Sketch) -> Option<u64> {
        let mut holders = self.deepest(namespace, sketch).into_iter().rev();
        holders.find(|number| {
            self.get(*number).is_some_and(|kept| {
                let len = kept.sketch.words().len();
                len <= sketch.words().len() && kept.sketch.common_words(sketch) + 1 >= len
            })
        })
    }

    fn remove(&mut self, number: u64) {
        // Holders and `first` name kept prompts only, so the number is not below `first`.
        let index = (number - self.first) as usize;
        if let Some(kept) = self.kept.get_mut(index).and_then(Option::take) {
            self.num_kept -= 1;
            self.words -= kept.sketch.words().len();
            for (map, keys) in
                [(&mut self.anchors, kept.sketch.anchors()), (&mut self.marks, kept.sketch.marks())]
            {
                for key in keys {
                    let key = mixed(key ^ kept.namespace);
                    let Some(holders) = map.get_mut(&key) else {
                        continue;
                    };
                    holders.retain(|holder| *holder != number);
                    if holders.is_empty() {
                        map.remove(&key);
                    }
                }
            }
        }
        // Empty places at the front go, so that `first` names a kept prompt.
        while matches!(self.kept.front(), Some(None)) {
            self.kept.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;
    use crate::text::testing::{prose, sketch};
    use crate::text::word::Class;

    fn memory(texts: &[&str]) -> Neighbours<usize> {
        let mut memory = Neighbours::new(NeighbourLimits::default());
        for (name, text) in texts.iter().enumerate() {
            memory.insert(1, name, sketch(text));
            memory.check();
        }
        memory
    }

    #[test]
    fn a_prompt_is_near_to_the_one_that_it_agrees_with() {
        let (one, other) = (prose(1, 200), prose(2, 200));
        let memory = memory(&[&one, &other]);
        let text = format!("{other} And more.");
        let near = memory.nearest(1, &sketch(&text)).expect("is near");
        assert_eq!(near.map(|near| *near.name), [1, 1]);
        let text = format!("At noon: {one}");
        let near = memory.nearest(1, &sketch(&text)).expect("is near");
        assert_eq!(*near[1].name, 0);
        assert!(memory.nearest(2, &sketch(&text)).is_none());
        assert!(memory.nearest(1, &sketch(&prose(3, 200))).is_none());
    }

    #[test]
    fn the_cause_is_told_by_the_neighbour_that_shows_it() {
        let (system, history) = (prose(1, 120), prose(2, 200));
        let first = format!("Time: 9:41 AM. {system}\nUser: {history}");
        let other = format!("Time: 9:42 AM. {system}\nUser: {}", prose(3, 50));
        let memory = memory(&[&first, &other]);
        // The second turn of the first conversation, at the time of the other one.
        let text = format!("Time: 9:42 AM. {system}\nUser: {history}\nUser: and?");
        let told = memory.tell(1, &sketch(&text)).expect("is near");
        assert_eq!(*told.near.name, 0);
        let explanation = told.explanation.expect("they part");
        let lost = explanation.divergence.lost_words;
        let ink = sketch(&history).words().iter().filter(|word| word.class != Class::Space).count();
        assert!((ink - 5..ink + 5).contains(&lost), "{lost} of {ink}");
        assert_eq!(explanation.evidence.expect("a cause").cause.name(), "clock");
    }

    #[test]
    fn turns_of_a_conversation_count_once_and_the_oldest_goes() {
        let text = prose(1, 300);
        let mut memory = Neighbours::new(NeighbourLimits { sketches: 2, words: 2000 });
        for end in [400, 800, 1200] {
            memory.insert(1, end, sketch(&text[..end]));
            memory.check();
        }
        assert_eq!((memory.len(), memory.num_forgotten()), (1, 0));
        for seed in 2..30 {
            memory.insert(1, seed, sketch(&prose(seed as u64, 100 + seed * 37 % 600)));
            memory.check();
            assert!(memory.len() <= 2);
        }
        assert!(memory.nearest(1, &sketch(&text)).is_none());
    }

    /// Compares with a queue of lengths: few prompts, whose words do not all find room.
    #[test]
    fn words_are_a_limit_too_and_what_it_cost_is_counted() {
        let limits = NeighbourLimits { sketches: 100, words: 2000 };
        let mut memory = Neighbours::new(limits);
        let mut rng = Rng::new(5);
        let (mut lengths, mut forgotten) = (VecDeque::new(), 0);
        for seed in 0..40u64 {
            // Now and then one that finds no room even alone.
            let new = sketch(&prose(seed, 50 + rng.below(if seed % 9 == 8 { 5000 } else { 500 })));
            lengths.push_back(new.words().len());
            while lengths.iter().sum::<usize>() > limits.words {
                lengths.pop_front();
                forgotten += 1;
            }
            memory.insert(1, seed, new);
            memory.check();
            assert_eq!(memory.num_words(), lengths.iter().sum::<usize>());
            assert_eq!(memory.num_forgotten(), forgotten, "prompt {seed}");
            assert_eq!(memory.len(), lengths.len());
        }
        assert!(forgotten > 20, "{forgotten}");
    }

    /// Random prompts of shared parts: the prefix found is within one mark of the longest one, and
    /// never longer.
    #[test]
    fn what_is_found_is_as_near_as_a_search_through_all_finds() {
        let parts: Vec<String> = (0..12).map(|seed| prose(seed, 60)).collect();
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut memory = Neighbours::new(NeighbourLimits::default());
            let mut all: Vec<Sketch> = Vec::new();
            for name in 0..40usize {
                let parts = (0..1 + rng.below(5)).map(|_| parts[rng.below(3)].as_str());
                let new = sketch(&(parts.collect::<String>() + &format!("tail {name}")));
                let best = all.iter().map(|old| old.common_words(&new)).max().unwrap_or(0);
                let found = memory.nearest(1, &new);
                let shared = found.map_or(0, |near| near[0].shared_words);
                assert!(shared <= best && best - shared <= 80, "seed {seed}, prompt {name}");
                all.push(new.clone());
                memory.insert(1, name, new);
            }
            memory.check();
        }
    }
}
