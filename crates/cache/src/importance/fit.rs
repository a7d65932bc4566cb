//! Whole parts for the tokens that are wished for: what is read is seen.
//!
//! Which of many tokens that matter a little are among the k that a probe names is chance, and
//! changes with every question; read one by one they drag in nearly every part. Here parts are
//! chosen instead, those first that bring most of the attention, and all that they hold is kept:
//! what is left out of the wish is made up for by its neighbours, whose bytes come in any case.
//!
//! Source: ContiguousKV (arXiv 2601.13631) selects whole chunks of 16 tokens by their importance.
//! We differ in that a token that a query really looks at is never given up, in that packs' chunks
//! stand beside the units', and in that it ends where no more is missed than may be.

use std::collections::HashMap;

use headstart_core::transfer::PartName;

use super::Selection;
use super::reads::{Cover, find, reads, split, unit_part};

/// What the probes of a layer wish for.
pub struct Wish<'a> {
    /// The tokens, counted from the first one of the first unit.
    pub selection: &'a Selection,
    /// Per probe the attention that each token gets, from the first one that is not on the device
    /// already ([`Cover::skip`]).
    pub importances: &'a [&'a [f32]],
    /// How much of it may be missed, of all probes together.
    pub spared: f32,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The tokens to keep, sorted.
    pub tokens: Vec<u32>,
    /// How much less attention they get than those that were wished for; 0 where they get more.
    pub missed: f32,
}

/// The tokens to keep: those of the fewest parts, chosen one by one, with which no more attention
/// is missed of what the wished get than may be spared. Attention that others in these parts get
/// counts. Where the wish itself needs no more parts it is granted as it is.
///
/// What is cached changes nothing: the same prompt sees the same tokens wherever they come from.
/// O(tokens + parts²).
///
/// # Panics
/// When an importance is missing.
#[must_use]
pub fn fit(question: &Cover<'_>, wish: &Wish<'_>) -> Fitted {
    let question = &Cover {
        is_cached: &|_| false,
        ..*question
    };
    let mut parts = Parts::new(question, wish);
    for read in reads(question, &wish.selection.sure) {
        parts.take(parts.by_name[&read.part]);
    }
    let wished = &wish.selection.tokens;
    let attention: f32 = wished.iter().map(|&token| parts.weight(token)).sum();
    while attention - parts.covered > wish.spared {
        let Some(next) = parts.best() else { break };
        parts.take(next);
    }
    match parts.taken >= reads(question, wished).len() {
        true => Fitted {
            tokens: wished.clone(),
            missed: 0.0,
        },
        false => Fitted {
            tokens: parts.kept(),
            missed: (attention - parts.covered).max(0.0),
        },
    }
}

/// All parts of a run, and what was taken of them.
struct Parts {
    skip: u32,
    /// Per token from `skip` on: its weight, its parts (its unit, perhaps a chunk), whether it is
    /// covered.
    weights: Vec<f32>,
    places: Vec<[Option<u32>; 2]>,
    is_covered: Vec<bool>,
    /// Per part: its tokens, and the weight of those not covered. A part that was taken has none.
    tokens: Vec<Vec<u32>>,
    values: Vec<f32>,
    by_name: HashMap<PartName, usize>,
    covered: f32,
    taken: usize,
}

impl Parts {
    fn new(question: &Cover<'_>, wish: &Wish<'_>) -> Self {
        let (skip, units) = (question.skip as u32, question.units.len());
        let end = (units * question.unit_tokens) as u32;
        let all: Vec<u32> = (skip..end).collect();
        let packed = find(question, question.packs, &all);
        let sum = |at: usize| {
            wish.importances
                .iter()
                .map(|probe| probe[at].max(0.0))
                .sum()
        };
        let names = (0..units as u32).map(|unit| unit_part(question, unit));
        let names = names.chain(packed.chunks.iter().map(|chunk| chunk.name));
        let mut parts = Self {
            skip,
            weights: (0..all.len()).map(sum).collect(),
            places: Vec::with_capacity(all.len()),
            is_covered: vec![false; all.len()],
            tokens: vec![Vec::new(); units + packed.chunks.len()],
            values: vec![0.0; units + packed.chunks.len()],
            by_name: names.zip(0..).collect(),
            covered: 0.0,
            taken: 0,
        };
        for (at, &token) in all.iter().enumerate() {
            let (unit, _) = split(token, question.unit_tokens);
            let chunk = packed.places[at].map(|(chunk, _)| units as u32 + chunk);
            for part in [Some(unit), chunk].into_iter().flatten() {
                parts.tokens[part as usize].push(token);
                parts.values[part as usize] += parts.weights[at];
            }
            parts.places.push([Some(unit), chunk]);
        }
        parts
    }

    fn weight(&self, token: u32) -> f32 {
        self.weights[(token - self.skip) as usize]
    }

    /// The one with most that is not covered, if any has something; of two a chunk, then the later.
    fn best(&self) -> Option<usize> {
        let values = self.values.iter().enumerate();
        let best = values.max_by(|one, other| one.1.total_cmp(other.1))?;
        (*best.1 > 0.0).then_some(best.0)
    }

    fn take(&mut self, part: usize) {
        self.taken += 1;
        for token in std::mem::take(&mut self.tokens[part]) {
            let at = (token - self.skip) as usize;
            if std::mem::replace(&mut self.is_covered[at], true) {
                continue;
            }
            self.covered += self.weights[at];
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
    use headstart_core::Rng;
    use std::collections::{BTreeMap, BTreeSet};

    /// A wish for what a case asks for, with weights that add up the same in any order.
    struct Asked {
        case: Case,
        selection: Selection,
        importances: Vec<Vec<f32>>,
        spared: f32,
    }

    impl Asked {
        fn random(seed: u64, most_packs: usize) -> Self {
            let (case, mut rng) = (Case::random(seed, most_packs), Rng::new(seed));
            let num_tokens = case.units.len() * case.unit_tokens - case.skip;
            let mut probe = |_| -> Vec<f32> {
                let weight = |_| rng.below(16) as f32 / 16.0;
                (0..num_tokens).map(weight).collect()
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
            Self {
                case,
                selection,
                importances,
                spared: rng.below(33) as f32 / 16.0,
            }
        }

        fn weight(&self, token: u32) -> f32 {
            let at = token as usize - self.case.skip;
            self.importances.iter().map(|probe| probe[at]).sum()
        }

        fn attention(&self, tokens: &[u32]) -> f32 {
            tokens.iter().map(|&token| self.weight(token)).sum()
        }

        fn fit(&self) -> Fitted {
            let importances: Vec<&[f32]> = self.importances.iter().map(Vec::as_slice).collect();
            let wish = Wish {
                selection: &self.selection,
                importances: &importances,
                spared: self.spared,
            };
            self.case.ask(|question| fit(question, &wish))
        }

        /// Parts that are read for tokens where nothing is cached.
        fn reads(&self, tokens: &[u32]) -> BTreeSet<PartName> {
            let is_cached = &|_| false;
            let cold = |question: &Cover<'_>| {
                reads(
                    &Cover {
                        is_cached,
                        ..*question
                    },
                    tokens,
                )
            };
            self.case.ask(cold).iter().map(|read| read.part).collect()
        }

        /// What each part holds of the run, in the order units, chunks.
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

        /// The same, where everything is added up anew each time.
        fn by_adding_up(&self) -> Fitted {
            let parts = self.parts();
            let mut taken = self.reads(&self.selection.sure);
            let wished = self.attention(&self.selection.tokens);
            loop {
                let is_taken = |part: &&(PartName, BTreeSet<u32>)| taken.contains(&part.0);
                let held = parts.iter().filter(is_taken).flat_map(|(_, held)| held);
                let kept: BTreeSet<u32> = held.copied().collect();
                let kept: Vec<u32> = kept.into_iter().collect();
                let new = |held: &BTreeSet<u32>| -> f32 {
                    let new = held.iter().filter(|token| !kept.contains(token));
                    new.map(|&token| self.weight(token)).sum()
                };
                let missed = wished - self.attention(&kept);
                let next = parts.iter().map(|(name, held)| (*name, new(held)));
                let next = next.max_by(|one, other| one.1.total_cmp(&other.1));
                match next {
                    Some((name, new)) if missed > self.spared && new > 0.0 => {
                        taken.insert(name);
                    }
                    _ if taken.len() >= self.reads(&self.selection.tokens).len() => {
                        return Fitted {
                            tokens: self.selection.tokens.clone(),
                            missed: 0.0,
                        };
                    }
                    _ => {
                        return Fitted {
                            missed: missed.max(0.0),
                            tokens: kept,
                        };
                    }
                }
            }
        }
    }

    #[test]
    fn takes_what_adding_up_takes() {
        let mut other = 0;
        for seed in 0..4_000 {
            let asked = Asked::random(seed, 1);
            let fitted = asked.fit();
            assert_eq!(fitted, asked.by_adding_up(), "seed {seed}");
            other += usize::from(fitted.tokens != asked.case.tokens);
        }
        assert!(other > 400, "{other} differ from the wish");
    }

    #[test]
    fn keeps_what_is_sure_and_misses_little_with_no_more_parts() {
        let mut saved = 0;
        for seed in 4_000..10_000 {
            let asked = Asked::random(seed, 3);
            let Fitted { tokens, missed } = asked.fit();
            assert!(tokens.is_sorted(), "seed {seed}");
            let has = |token: &u32| tokens.binary_search(token).is_ok();
            assert!(asked.selection.sure.iter().all(has), "seed {seed}");
            let wished = asked.attention(&asked.case.tokens);
            let difference = (wished - asked.attention(&tokens)).max(0.0);
            assert_eq!(difference, missed, "seed {seed}");
            assert!(missed <= asked.spared, "seed {seed}");
            let [most, parts] = [&asked.case.tokens, &tokens].map(|it| asked.reads(it).len());
            assert!(parts <= most, "seed {seed}");
            saved += most - parts;
        }
        assert!(saved > 1_000, "{saved} parts fewer");
    }

    #[test]
    fn neighbours_make_up_for_what_is_far_apart() {
        let units: Vec<_> = (0..4).map(headstart_core::BlockHash::from_u64).collect();
        let question = Cover {
            units: &units,
            skip: 0,
            unit_tokens: 4,
            part: 1,
            packs: &[],
            is_cached: &|_| false,
        };
        // One in each unit, a little more than its neighbours; the last is looked at.
        let mut importance: Vec<f32> = (0..16).map(|at| [2.0, 1.0, 1.0, 1.0][at % 4]).collect();
        importance[12] = 9.0;
        let selection = Selection {
            tokens: vec![0, 4, 8, 12],
            sure: vec![12],
            ..Selection::everything(16)
        };
        let kept = |spared| {
            let wish = Wish {
                selection: &selection,
                importances: &[&importance],
                spared,
            };
            fit(&question, &wish)
        };
        // 15 were wished for, and the last unit brings 12, another 5.
        let of_last = Fitted {
            tokens: (12..16).collect(),
            missed: 3.0,
        };
        assert_eq!(kept(3.0), of_last);
        assert_eq!(kept(2.9).tokens.len(), 8);
        assert_eq!(kept(2.9).missed, 0.0);
    }
}
