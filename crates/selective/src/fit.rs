//! Whole parts for the tokens that are wished for.
//!
//! Which of many tokens that matter a little are among the k that a probe names is chance, and
//! changes with every question; read one by one they drag in nearly every part. Here parts are
//! chosen instead, those first that bring most of the attention, and all that they hold is kept:
//! what is left out of the wish is made up for by its neighbours, whose bytes come in any case.
//!
//! Source: ContiguousKV (arXiv 2601.13631) selects whole chunks of 16 tokens by their importance.
//! We differ in that a token that a query really looks at is never given up, in that packs' chunks
//! stand beside the units', and in that it ends where no probe misses more than it may.

use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::Selection;
use super::reads::{Cover, PartRead, find, reads, split, unit_part};

/// Share of a sum that is lost where its parts are added in another order.
const ROUNDING: f64 = 1e-9;

/// Tokens that the probes of a layer ask for, with their importances.
pub struct Wish<'a> {
    /// The tokens, counted from the first one of the first unit; none that is on the device.
    pub selection: &'a Selection,
    /// Per probe the attention that each token gets, from the first one that is not on the device
    /// already ([`Cover::skip`]).
    pub importances: &'a [&'a [f32]],
    /// Share of it that a probe may miss, 0 to 1: of what the tokens get that are named, but not
    /// sure.
    pub spared: f64,
}

/// The tokens to keep for a [`Wish`], and the attention that probes miss.
#[derive(Clone, Debug, PartialEq)]
pub struct RetainedTokens {
    /// The tokens to keep, sorted.
    pub tokens: Vec<u32>,
    /// Share by which they get less attention than those that were named, the mean over probes;
    /// a probe whose tokens get more counts 0.
    pub missed: f64,
}

/// The tokens to keep: those of parts that are taken one by one, the one first that brings most,
/// until each probe finds nearly as much attention in them as in what it wished for. Attention that
/// others in these parts get counts. Where the wish itself needs no more parts, or is no number, it
/// is granted as it is.
///
/// What is cached changes nothing: the same prompt sees the same tokens wherever they come from.
/// O(probes² · tokens + packs' tokens) and a few steps of a heap for each part that is taken.
///
/// # Panics
/// When an importance is missing, or a wish is on the device.
#[must_use]
pub fn fit(question: &Cover<'_>, wish: &Wish<'_>) -> RetainedTokens {
    // Nothing counts as cached: the answer must not depend on what memory holds.
    let question = &Cover { is_cached: &|_| false, ..*question };
    let named = &wish.selection.tokens;
    let granted = RetainedTokens { tokens: named.clone(), missed: 0.0 };
    let mut numbers = wish.importances.iter().copied().flatten();
    // Sums over these would be no numbers either, so the wish is granted as it is.
    if !numbers.all(|number| number.is_finite()) {
        return granted;
    }
    let mut parts = PartCoverage::new(question);
    let mut probes: Vec<_> =
        wish.importances.iter().map(|importance| Probe::new(importance)).collect();
    for probe in &mut probes {
        let attention = |tokens: &[u32]| tokens.iter().map(|&token| probe.of(token, &parts)).sum();
        let (all, sure): (f64, f64) = (attention(named), attention(&wish.selection.sure));
        (probe.named, probe.spared) = (all, (all - sure) * wish.spared);
    }
    // Sure tokens are kept at any price, so their parts come first.
    for read in reads(question, &wish.selection.sure) {
        parts.take(parts.read_by(question, &read), &mut probes);
    }
    let mut lacking = 0;
    loop {
        let now = probes.iter().filter(|probe| probe.lacks()).count();
        if now == 0 {
            break;
        }
        // A probe that has enough no longer counts, which changes every part's value.
        if now != lacking {
            parts.weigh(&probes);
            lacking = now;
        }
        let Some(next) = parts.best() else { break };
        parts.take(next, &mut probes);
    }
    // Whole parts must save reads; otherwise the named tokens are the better answer.
    if parts.taken >= reads(question, named).len() {
        granted
    } else {
        RetainedTokens {
            missed: probes.iter().map(Probe::missed).sum::<f64>() / probes.len().max(1) as f64,
            tokens: parts.kept(),
        }
    }
}

/// Importances of one probe, and its sums of attention.
struct Probe<'a> {
    importances: &'a [f32],
    named: f64,
    spared: f64,
    covered: f64,
}

impl<'a> Probe<'a> {
    fn new(importances: &'a [f32]) -> Self {
        Self { importances, named: 0.0, spared: 0.0, covered: 0.0 }
    }

    fn of(&self, token: u32, parts: &PartCoverage) -> f64 {
        self.at((token - parts.skip) as usize)
    }

    fn at(&self, at: usize) -> f64 {
        f64::from(self.importances[at].max(0.0))
    }

    fn lacks(&self) -> bool {
        self.named - self.covered > self.spared + ROUNDING * self.named
    }

    fn missed(&self) -> f64 {
        if self.named > 0.0 { ((self.named - self.covered) / self.named).max(0.0) } else { 0.0 }
    }
}

/// All parts of a run, and what was taken of them.
struct PartCoverage {
    skip: u32,
    /// Per token from `skip` on: its parts (its unit, perhaps a chunk), whether it is covered, and
    /// what it is worth to those who lack something.
    places: Vec<[Option<u32>; 2]>,
    is_covered: Vec<bool>,
    weights: Vec<f64>,
    /// Per part: its tokens, and what those not covered are worth. A part that was taken has none.
    tokens: Vec<Vec<u32>>,
    values: Vec<f64>,
    /// Parts by what they were worth once: values only fall until they are weighed again.
    heap: BinaryHeap<PartValue>,
    taken: usize,
}

/// A part and its value when it was queued, as bits in the order of `f64::total_cmp`. Ties go to
/// the higher part, a chunk rather than a unit.
type PartValue = (i64, usize);

fn ordered(value: f64) -> i64 {
    let bits = value.to_bits().cast_signed();
    // Negative numbers descend by their bits.
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

impl PartCoverage {
    fn new(question: &Cover<'_>) -> Self {
        let (skip, units) = (question.skip as u32, question.units.len());
        let end = (units * question.unit_tokens) as u32;
        let all: Vec<u32> = (skip..end).collect();
        let packed = find(question, question.packs, &all);
        let mut parts = Self {
            skip,
            places: Vec::with_capacity(all.len()),
            is_covered: vec![false; all.len()],
            weights: vec![0.0; all.len()],
            tokens: (0..units + packed.chunks.len())
                .map(|_| Vec::with_capacity(question.unit_tokens))
                .collect(),
            values: vec![0.0; units + packed.chunks.len()],
            heap: BinaryHeap::new(),
            taken: 0,
        };
        for (&token, place) in all.iter().zip(&packed.places) {
            let (unit, _) = split(token, question.unit_tokens);
            let chunk = place.map(|(chunk, _)| units as u32 + chunk);
            for part in [Some(unit), chunk].into_iter().flatten() {
                parts.tokens[part as usize].push(token);
            }
            parts.places.push([Some(unit), chunk]);
        }
        parts
    }

    /// Returns the index of the part that a read comes from.
    fn read_by(&self, question: &Cover<'_>, read: &PartRead) -> usize {
        let (token, _) = read.tokens[0];
        let [unit, chunk] = self.places[(token - self.skip) as usize];
        let is_unit = |unit: &u32| unit_part(question, *unit) == read.part;
        let part = unit.filter(is_unit).or(chunk);
        part.expect("a token is read from one of its parts") as usize
    }

    /// Weighs each token by its share of the attention that lacking probes named, and revalues the
    /// parts.
    fn weigh(&mut self, probes: &[Probe<'_>]) {
        self.weights.fill(0.0);
        for probe in probes.iter().filter(|probe| probe.lacks()) {
            for (weight, importance) in self.weights.iter_mut().zip(probe.importances) {
                // A probe that lacks something has named some attention, so this divides by no
                // zero.
                *weight += f64::from(importance.max(0.0)) / probe.named;
            }
        }
        for (tokens, value) in self.tokens.iter().zip(&mut self.values) {
            let new = tokens.iter().map(|token| (token - self.skip) as usize);
            let new = new.filter(|&at| !self.is_covered[at]);
            *value = new.map(|at| self.weights[at]).sum();
        }
        let values = self.values.iter().copied().enumerate();
        self.heap = values.map(|(part, value)| (ordered(value), part)).collect();
    }

    /// The one with most that is not covered, if any has something. It is not found again.
    fn best(&mut self) -> Option<usize> {
        while let Some(mut most) = self.heap.peek_mut() {
            let value = self.values[most.1];
            // Values only fall, so a queued one is an upper bound. The top is right once it is
            // current.
            if most.0 == ordered(value) {
                let (_, best) = PeekMut::pop(most);
                return (value > ROUNDING).then_some(best);
            }
            most.0 = ordered(value);
        }
        None
    }

    fn take(&mut self, part: usize, probes: &mut [Probe<'_>]) {
        self.taken += 1;
        // The part's tokens are emptied, so that it is not taken twice.
        for token in std::mem::take(&mut self.tokens[part]) {
            let at = (token - self.skip) as usize;
            // A token may be in a unit and in a chunk: the other part has brought it already.
            if std::mem::replace(&mut self.is_covered[at], true) {
                continue;
            }
            for probe in &mut *probes {
                probe.covered += probe.at(at);
            }
            for part in self.places[at].into_iter().flatten() {
                self.values[part as usize] -= self.weights[at];
            }
        }
        self.values[part] = 0.0;
    }

    fn kept(&self) -> Vec<u32> {
        let tokens = (self.skip..).zip(&self.is_covered);
        let kept = tokens.filter(|(_, is_covered)| **is_covered);
        kept.map(|(token, _)| token).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::reads::tests::Case;
    use super::*;
    use headstart_core::transfer::PartName;
    use headstart_core::{BlockHash, Rng};
    use std::collections::{BTreeMap, BTreeSet};

    /// A wish for what a case asks for.
    struct Asked {
        case: Case,
        selection: Selection,
        importances: Vec<Vec<f32>>,
        spared: f64,
    }

    impl Asked {
        fn random(seed: u64, most_packs: usize) -> Self {
            let (case, mut rng) = (Case::random(seed, most_packs), Rng::new(seed));
            let num_tokens = case.units.len() * case.unit_tokens - case.skip;
            let mut probe = |_| -> Vec<f32> {
                let scale = [1.0, 8.0][rng.below(2)];
                let mut weight = |_| rng.next_f64() as f32 * scale;
                (0..num_tokens).map(&mut weight).collect()
            };
            let importances: Vec<_> = (0..2).map(&mut probe).collect();
            let sure_in_a_hundred = [0, 30][rng.below(2)];
            let sure = case.tokens.iter().copied();
            let sure = sure.filter(|_| rng.below(100) < sure_in_a_hundred);
            let selection = Selection {
                tokens: case.tokens.clone(),
                sure: sure.collect(),
                ..Selection::everything(num_tokens)
            };
            Self { case, selection, importances, spared: [0.0, 0.1, 0.3, 0.9][rng.below(4)] }
        }

        /// Sums the attention that each probe gives to `tokens`.
        fn attention<'a>(&self, tokens: impl IntoIterator<Item = &'a u32>) -> Vec<f64> {
            let mut sums = vec![0.0; self.importances.len()];
            for token in tokens {
                let at = *token as usize - self.case.skip;
                for (sum, probe) in sums.iter_mut().zip(&self.importances) {
                    *sum += f64::from(probe[at]);
                }
            }
            sums
        }

        /// Per probe: what it sees of what it named, what of that it may miss, and what it misses
        /// of it where these are kept.
        fn lacks(&self, kept: &BTreeSet<u32>) -> Vec<[f64; 3]> {
            let [named, sure] = [&self.selection.tokens, &self.selection.sure];
            let [named, sure] = [named, sure].map(|tokens| self.attention(tokens));
            let kept = self.attention(kept);
            let probes = named.iter().zip(sure).zip(kept);
            let lack = |((named, sure), kept): ((&f64, f64), f64)| {
                [*named, (named - sure) * self.spared, named - kept]
            };
            probes.map(lack).collect()
        }

        fn fit(&self) -> RetainedTokens {
            let importances: Vec<&[f32]> = self.importances.iter().map(Vec::as_slice).collect();
            let wish =
                Wish { selection: &self.selection, importances: &importances, spared: self.spared };
            self.case.ask(|question| fit(question, &wish))
        }

        /// Parts that are read for tokens where nothing is cached.
        fn reads(&self, tokens: &[u32]) -> BTreeSet<PartName> {
            let cold = |question: &Cover<'_>| {
                let question = Cover { is_cached: &|_| false, ..*question };
                reads(&question, tokens)
            };
            self.case.ask(cold).iter().map(|read| read.part).collect()
        }

        /// Returns the run's tokens in each part, units before chunks.
        fn parts(&self) -> Vec<(PartName, BTreeSet<u32>)> {
            let skip = self.case.skip as u32;
            let mut parts: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
            for (name, held) in self.case.contents() {
                let is_chunk = !self.case.units.contains(&name.record);
                let held = held.into_keys().filter(|&token| token >= skip);
                parts.insert((is_chunk, name), held.collect());
            }
            let parts = parts.into_iter().map(|((_, name), held)| (name, held));
            parts.collect()
        }

        /// The tokens that `fit` keeps, with all sums recomputed in every round.
        fn by_adding_up(&self) -> BTreeSet<u32> {
            let parts = self.parts();
            let mut taken = self.reads(&self.selection.sure);
            loop {
                let is_taken = |part: &&(PartName, BTreeSet<u32>)| taken.contains(&part.0);
                let held = parts.iter().filter(is_taken).flat_map(|(_, held)| held);
                let kept: BTreeSet<u32> = held.copied().collect();
                let lacks = self.lacks(&kept);
                let new = |held: &BTreeSet<u32>| -> f64 {
                    let new = self.attention(held.difference(&kept));
                    let lacking = lacks.iter().zip(new);
                    let lacking = lacking
                        .filter(|([named, spared, missed], _)| *missed > spared + ROUNDING * named);
                    lacking.map(|([named, ..], new)| new / named).sum()
                };
                let next = parts.iter().map(|(name, held)| (*name, new(held)));
                let next = next.max_by(|one, other| one.1.total_cmp(&other.1));
                match next {
                    Some((name, new)) if new > ROUNDING => taken.insert(name),
                    _ if taken.len() >= self.reads(&self.selection.tokens).len() => {
                        return self.selection.tokens.iter().copied().collect();
                    }
                    _ => return kept,
                };
            }
        }
    }

    #[test]
    fn takes_what_adding_up_takes() {
        let mut other = 0;
        for seed in 0..4_000 {
            let asked = Asked::random(seed, 1);
            let kept = asked.fit().tokens;
            let expected: Vec<u32> = asked.by_adding_up().into_iter().collect();
            assert_eq!(kept, expected, "seed {seed}");
            other += usize::from(kept != asked.case.tokens);
        }
        assert!(other > 400, "{other} differ from the wish");
    }

    #[test]
    fn keeps_what_is_sure_and_misses_little_with_no_more_parts() {
        let mut saved = 0;
        for seed in 4_000..10_000 {
            let asked = Asked::random(seed, 3);
            let RetainedTokens { tokens, missed } = asked.fit();
            assert!(tokens.is_sorted(), "seed {seed}");
            let kept: BTreeSet<u32> = tokens.iter().copied().collect();
            let mut sure = asked.selection.sure.iter();
            assert!(sure.all(|token| kept.contains(token)), "seed {seed}");
            let mut mean = 0.0;
            for [named, spared, lacks] in asked.lacks(&kept) {
                assert!(lacks <= spared + 1e-6, "seed {seed}");
                mean += (lacks / named.max(1e-9)).max(0.0) / 2.0;
            }
            assert!((mean - missed).abs() < 1e-6, "seed {seed}: {mean} {missed}");
            let [most, parts] =
                [&asked.case.tokens, &tokens].map(|tokens| asked.reads(tokens).len());
            assert!(parts <= most, "seed {seed}");
            saved += most - parts;
        }
        assert!(saved > 1_000, "{saved} parts fewer");
    }

    /// Units of four tokens, all but the last of which are alike; what is kept.
    fn kept(importances: &[&[f32]], sure: &[u32], tokens: &[u32], spared: f64) -> RetainedTokens {
        let num_units = importances[0].len() / 4;
        let units: Vec<_> = (0..num_units as u64).map(BlockHash::from_u64).collect();
        let question = Cover {
            units: &units,
            skip: 0,
            unit_tokens: 4,
            part: 1,
            packs: &[],
            is_cached: &|_| false,
        };
        let selection = Selection {
            tokens: tokens.to_vec(),
            sure: sure.to_vec(),
            ..Selection::everything(importances[0].len())
        };
        let wish = Wish { selection: &selection, importances, spared };
        fit(&question, &wish)
    }

    #[test]
    fn neighbours_make_up_for_what_is_far_apart() {
        // One in each unit, a little more than its neighbours; the last is looked at.
        let mut importance: Vec<f32> = (0..16).map(|at| [2.0, 1.0, 1.0, 1.0][at % 4]).collect();
        importance[12] = 9.0;
        let kept = |spared| kept(&[&importance], &[12], &[0, 4, 8, 12], spared);
        // 15 are named, 6 of them not sure; the last unit brings 12, another one 5.
        let of_last: Vec<u32> = (12..16).collect();
        assert_eq!(kept(0.5).tokens, of_last);
        assert_eq!(kept(0.5).missed, 3.0 / 15.0);
        assert_eq!(kept(0.49).tokens.len(), 8);
        assert_eq!(kept(0.49).missed, 0.0);
    }

    /// However much goes to what is kept in any case, and whatever others see.
    #[test]
    fn no_probe_loses_what_few_queries_look_at() {
        // All look at the first token, and few at one in each of four units.
        let mut few: Vec<f32> = vec![0.0; 32];
        few[0] = 500.0;
        [4, 8, 12, 16].iter().for_each(|&at: &usize| few[at] = 0.08);
        let mut many: Vec<f32> = vec![0.0; 32];
        [0, 20, 24].iter().for_each(|&at: &usize| many[at] = 40.0);
        let named = [0, 4, 8, 12, 16, 20, 24];
        let fitted = kept(&[&few, &many], &[0], &named, 0.02);
        assert!(named.iter().all(|token| fitted.tokens.contains(token)));
    }

    #[test]
    fn what_is_no_number_is_granted() {
        let importance = [f32::NAN, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0];
        let fitted = kept(&[&importance], &[], &[0, 4], 1.0);
        assert_eq!(fitted.tokens, [0, 4]);
        let nothing = kept(&[&importance[4..]], &[], &[], 0.0);
        assert_eq!((nothing.tokens, nothing.missed), (Vec::new(), 0.0));
    }
}
