//! Choice of the parts to read for the tokens of a layer.
//!
//! A token lies in its unit's part and perhaps in a pack's chunk; one of the two has to be read.
//! What is cached costs no load from the disk. Of the rest, the fewest parts are read that hold all
//! tokens: a smallest cover ([`super::cover`]), so never more than the units alone, or the packs
//! first and units for what is in none, would need. What a chunk that is read holds is taken from
//! there: a unit serves, and counts for its score, what only it holds, and a cached one may not be
//! needed at all.
//!
//! Source: IMPRESS (FAST '25) reads every chunk that holds a selected token, of one layout. Here
//! two layouts of the same tokens exist, which is what makes it a cover.

use std::collections::BTreeMap;

use headstart_core::BlockHash;
use headstart_core::transfer::PartName;

use super::cover::{Graph, VertexCover};

/// Sources of one layer of a stored prefix: units and packs.
pub struct Cover<'a> {
    /// The stored units, a run of one chain.
    pub units: &'a [BlockHash],
    /// Tokens of the first unit that are on the device already. They are counted like the others,
    /// and never read.
    pub skip: usize,
    /// Tokens of a unit, and of a pack's chunk.
    pub unit_tokens: usize,
    /// Index of the part within a unit.
    pub part: u16,
    /// Packs of that part. Of two that hold a token, a cached one serves, else the earlier.
    pub packs: &'a [PackView<'a>],
    /// Whether a part is in memory.
    pub is_cached: &'a dyn Fn(PartName) -> bool,
}

/// A pack, as far as it serves a run of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackView<'a> {
    /// Its name.
    pub name: BlockHash,
    /// Its units in front of the run: on the device, or not of this prompt's concern.
    pub before: usize,
    /// Index of its next unit in the run.
    pub first_unit: usize,
    /// Number of its units, from there on, that belong to the run.
    pub units: usize,
    /// The tokens that it holds, counted from its own first unit's first.
    pub order: &'a [u32],
}

/// One part to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRead {
    /// The part's name.
    pub part: PartName,
    /// The tokens to take from it, sorted, counted from the first token of the run's first unit;
    /// and the place in the part of each.
    pub tokens: Vec<(u32, u16)>,
}

/// A chunk of a pack, with the tokens of the run that it holds.
pub(super) struct Chunk {
    pub(super) name: PartName,
    pub(super) is_cached: bool,
}

/// Positions of tokens in packs.
pub(super) struct PackPositions {
    pub(super) chunks: Vec<Chunk>,
    /// Per token asked for: its chunk and its place there.
    pub(super) places: Vec<Option<(u32, u16)>>,
}

/// The parts to read for `tokens`: sorted, counted from the first token of the first unit, those
/// that are on the device included in the count (and left out of the answer).
///
/// Every token is in one read; units come first, in order, then packs' chunks. Where the tokens
/// are all there are, only units are read. O(tokens · log parts + packs' tokens) and a matching of
/// units with chunks, which is as good as linear.
///
/// # Panics
/// When a token lies behind the last unit.
#[must_use]
pub fn reads(question: &Cover<'_>, tokens: &[u32]) -> Vec<PartRead> {
    let unit_tokens = question.unit_tokens;
    let num_tokens = question.units.len() * unit_tokens;
    let tokens = &tokens[tokens.partition_point(|&token| (token as usize) < question.skip)..];
    let is_within = |&token: &u32| (token as usize) < num_tokens;
    assert!(tokens.last().is_none_or(is_within), "a token of a stored unit");
    // If every token is wanted, units hold them without gaps and packs only double them.
    let packs = match tokens.len() + question.skip {
        all if all >= num_tokens => &[],
        _ => question.packs,
    };
    let packed = find(question, packs, tokens);
    let units = choose(question, &packed, tokens).left;
    let is_read = chunks_read(&packed, tokens, unit_tokens, &units);
    let mut reads: BTreeMap<(bool, u32), PartRead> = BTreeMap::new();
    for (&token, place) in tokens.iter().zip(&packed.places) {
        let (unit, at) = split(token, unit_tokens);
        let (key, part, at) = match place {
            Some((chunk, at)) if is_read[*chunk as usize] => {
                ((true, *chunk), packed.chunks[*chunk as usize].name, *at)
            }
            _ => ((false, unit), unit_part(question, unit), at),
        };
        let read = reads.entry(key).or_insert_with(|| PartRead { part, tokens: Vec::new() });
        read.tokens.push((token, at));
    }
    reads.into_values().collect()
}

/// The unit of a token, and its place there.
pub(super) fn split(token: u32, unit_tokens: usize) -> (u32, u16) {
    let unit_tokens = unit_tokens as u32;
    (token / unit_tokens, (token % unit_tokens) as u16)
}

pub(super) fn unit_part(question: &Cover<'_>, unit: u32) -> PartName {
    PartName { record: question.units[unit as usize], part: question.part }
}

/// Looks up the tokens in the packs.
pub(super) fn find(question: &Cover<'_>, packs: &[PackView<'_>], tokens: &[u32]) -> PackPositions {
    let unit_tokens = question.unit_tokens;
    let num_tokens = match packs {
        // Without packs there is nothing to look up, so the table stays empty.
        [] => 0,
        _ => question.units.len() * unit_tokens,
    };
    let mut index = vec![u32::MAX; num_tokens];
    for (&token, at) in tokens.iter().zip(0u32..).take(num_tokens) {
        index[token as usize] = at;
    }
    let mut packed = PackPositions { chunks: Vec::new(), places: vec![None; tokens.len()] };
    for pack in packs {
        let first = pack.before * unit_tokens;
        let held = first..first + pack.units * unit_tokens;
        // The chunks of a pack are its parts from 1 on.
        for (part, order) in (1..=u16::MAX).zip(pack.order.chunks(unit_tokens)) {
            let name = PartName { record: pack.name, part };
            let wanted = order.iter().zip(0u16..).filter_map(|(&token, at)| {
                let token = token as usize;
                // Called only for tokens within `held`, so the difference is not negative.
                let of_run = || token - first + pack.first_unit * unit_tokens;
                let index = held.contains(&token).then(|| index[of_run()])?;
                (index != u32::MAX).then_some((index as usize, at))
            });
            packed.add(name, question.is_cached, wanted);
        }
    }
    packed
}

impl PackPositions {
    /// Adds a chunk with those of the tokens asked for that it holds; it serves those that no
    /// chunk before it serves, or none that is cached where it is.
    fn add(
        &mut self,
        name: PartName,
        is_cached: &dyn Fn(PartName) -> bool,
        wanted: impl Iterator<Item = (usize, u16)>,
    ) {
        let mut wanted = wanted.peekable();
        if wanted.peek().is_none() {
            return;
        }
        let (is_cached, chunk) = (is_cached(name), self.chunks.len() as u32);
        for (token, at) in wanted {
            let before = self.places[token].map(|(before, _)| &self.chunks[before as usize]);
            // A cached chunk costs no load, so it takes the token from one that does.
            if before.is_none_or(|before| is_cached && !before.is_cached) {
                self.places[token] = Some((chunk, at));
            }
        }
        self.chunks.push(Chunk { name, is_cached });
    }
}

/// Chooses the units to read; chunks serve all other tokens.
fn choose(question: &Cover<'_>, packed: &PackPositions, tokens: &[u32]) -> VertexCover {
    let num_units = question.units.len() as u32;
    let mut graph = Graph::new(packed.chunks.len());
    let mut is_sure = Vec::with_capacity(num_units as usize);
    let mut rest = tokens.iter().zip(&packed.places).peekable();
    let mut ends = Vec::new();
    for unit in 0..num_units {
        ends.clear();
        let (mut is_forced, mut num_tokens) = (false, 0);
        while let Some((_, place)) =
            rest.next_if(|(token, _)| split(**token, question.unit_tokens).0 == unit)
        {
            num_tokens += 1;
            match place {
                None => is_forced = true,
                // Served by memory: the token asks for neither its unit nor a load.
                Some((chunk, _)) if packed.chunks[*chunk as usize].is_cached => {}
                Some((chunk, _)) => ends.push(*chunk),
            }
        }
        // A unit that is cached, or read in any case, can serve all of its tokens.
        let is_read =
            is_forced || (num_tokens > 0 && (question.is_cached)(unit_part(question, unit)));
        is_sure.push(is_read);
        // A unit that is read anyway serves its tokens, so no edge has to be covered for it.
        graph.push(ends.drain(..).filter(|_| !is_read));
    }
    let mut chosen = graph.cover();
    for (is_chosen, is_sure) in chosen.left.iter_mut().zip(is_sure) {
        *is_chosen |= is_sure;
    }
    chosen
}

/// The chunks that are read: those with a token of a unit that is not.
fn chunks_read(
    packed: &PackPositions,
    tokens: &[u32],
    unit_tokens: usize,
    units: &[bool],
) -> Vec<bool> {
    let mut is_read = vec![false; packed.chunks.len()];
    for (&token, place) in tokens.iter().zip(&packed.places) {
        let (unit, _) = split(token, unit_tokens);
        if let Some((chunk, _)) = place {
            is_read[*chunk as usize] |= !units[unit as usize];
        }
    }
    is_read
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use headstart_core::Rng;
    use std::collections::{BTreeSet, HashMap, HashSet};

    const PART: u16 = 9;

    /// A run, packs that may overlap, and what is cached.
    pub(in super::super) struct Case {
        pub(in super::super) unit_tokens: usize,
        pub(in super::super) skip: usize,
        pub(in super::super) units: Vec<BlockHash>,
        /// Name, units before, first unit, units, order.
        packs: Vec<(BlockHash, [usize; 3], Vec<u32>)>,
        cached: HashSet<PartName>,
        pub(in super::super) tokens: Vec<u32>,
    }

    impl Case {
        pub(in super::super) fn random(seed: u64, most_packs: usize) -> Self {
            let mut rng = Rng::new(seed);
            let unit_tokens = 1 + rng.below(5);
            let num_units = 1 + rng.below(7);
            let skip = rng.below(unit_tokens);
            let units: Vec<_> = (0..num_units as u64).map(BlockHash::from_u64).collect();
            // Few as a rule: else no chunk saves a unit.
            let share = rng.next_f64();
            let share = [share.powi(3), share.powi(3), share, 1.0][rng.below(4)];
            let tokens = (skip as u32..(units.len() * unit_tokens) as u32)
                .filter(|_| rng.next_f64() < share)
                .collect::<Vec<_>>();
            let mut packs = Vec::new();
            for pack in 0..rng.below(most_packs + 2).min(most_packs) {
                let [first, num_units] = match rng.below(2) {
                    0 => [0, num_units],
                    _ => {
                        let first = rng.below(num_units);
                        [first, 1 + rng.below(num_units - first)]
                    }
                };
                let before = if first == 0 { rng.below(3) } else { 0 };
                // Units behind those that are the run's.
                let behind = rng.below(3);
                let all = (before + num_units + behind) * unit_tokens;
                let mut order: Vec<u32> = (0..all as u32).collect();
                rng.shuffle(&mut order);
                // As packs are made: what is wanted stands together.
                if rng.below(3) > 0 {
                    let of_run = |token: u32| token as usize + first * unit_tokens;
                    let of_run = |token: u32| of_run(token).checked_sub(before * unit_tokens);
                    let is_wanted =
                        |token| of_run(token).is_some_and(|token| wants(&tokens, token));
                    order.sort_by_key(|&token| !is_wanted(token));
                }
                order.truncate(rng.below(all + 1));
                let name = BlockHash::from_u64(100 + pack as u64);
                packs.push((name, [before, first, num_units], order));
            }
            let mut names: Vec<_> =
                units.iter().map(|&record| PartName { record, part: PART }).collect();
            for (record, _, order) in &packs {
                let chunks = 1..=order.len().div_ceil(unit_tokens) as u16;
                names.extend(chunks.map(|part| PartName { record: *record, part }));
            }
            let share = rng.next_f64();
            let cached = names.into_iter().filter(|_| rng.next_f64() < share / 2.0);
            let cached = cached.collect();
            Self { unit_tokens, skip, units, packs, cached, tokens }
        }

        fn reads(&self) -> Vec<PartRead> {
            self.ask(|question| reads(question, &self.tokens))
        }

        pub(in super::super) fn ask<T>(&self, ask: impl FnOnce(&Cover<'_>) -> T) -> T {
            let packs: Vec<_> = self
                .packs
                .iter()
                .map(|(name, [before, first_unit, units], order)| PackView {
                    name: *name,
                    before: *before,
                    first_unit: *first_unit,
                    units: *units,
                    order,
                })
                .collect();
            let question = Cover {
                units: &self.units,
                skip: self.skip,
                unit_tokens: self.unit_tokens,
                part: PART,
                packs: &packs,
                is_cached: &|name| self.cached.contains(&name),
            };
            ask(&question)
        }

        /// Maps each part to the run's tokens in it and their places.
        pub(in super::super) fn contents(&self) -> HashMap<PartName, HashMap<u32, u16>> {
            let mut contents: HashMap<PartName, HashMap<u32, u16>> = HashMap::new();
            for (unit, &record) in self.units.iter().enumerate() {
                for at in 0..self.unit_tokens {
                    let token = (unit * self.unit_tokens + at) as u32;
                    let part = contents.entry(PartName { record, part: PART });
                    part.or_default().insert(token, at as u16);
                }
            }
            for (record, [before, first, num_units], order) in &self.packs {
                for (at, &token) in order.iter().enumerate() {
                    let unit = token as usize / self.unit_tokens;
                    if (*before..before + num_units).contains(&unit) {
                        let token = (unit - before + first) * self.unit_tokens
                            + token as usize % self.unit_tokens;
                        let name =
                            PartName { record: *record, part: 1 + (at / self.unit_tokens) as u16 };
                        let place = (at % self.unit_tokens) as u16;
                        contents.entry(name).or_default().insert(token as u32, place);
                    }
                }
            }
            contents
        }

        fn cost(&self, reads: &BTreeSet<PartName>) -> usize {
            reads.difference(&self.cached.iter().copied().collect()).count()
        }

        /// The fewest parts that are not cached and hold, with those that are, all tokens.
        fn fewest(&self) -> usize {
            let contents = self.contents();
            let (free, dear): (Vec<_>, Vec<_>) =
                contents.iter().partition(|(name, _)| self.cached.contains(*name));
            let holds = |set: u32, token: &u32| {
                let mut chosen = dear.iter().enumerate();
                free.iter().any(|(_, held)| held.contains_key(token))
                    || chosen
                        .any(|(at, (_, held))| set & (1 << at) != 0 && held.contains_key(token))
            };
            let is_cover = |set: &u32| self.tokens.iter().all(|token| holds(*set, token));
            let covers = (0..1u32 << dear.len()).filter(is_cover);
            covers.map(u32::count_ones).min().expect("units hold all") as usize
        }

        /// Returns the cost if each token is read from a cached part, else from its packs or its
        /// unit, in the order that `packs_first` sets.
        fn greedy(&self, packs_first: bool) -> usize {
            let contents = self.contents();
            let mut reads = BTreeSet::new();
            for &token in &self.tokens {
                let unit = self.units[token as usize / self.unit_tokens];
                let mut names: Vec<_> = contents
                    .iter()
                    .filter(|(_, held)| held.contains_key(&token))
                    .map(|(name, _)| *name)
                    .collect();
                names.sort();
                let is_unit = |name: &PartName| name.record == unit;
                names.sort_by_key(|name| {
                    (!self.cached.contains(name), is_unit(name) == packs_first)
                });
                reads.insert(names[0]);
            }
            self.cost(&reads)
        }
    }

    fn wants(tokens: &[u32], token: usize) -> bool {
        tokens.binary_search(&(token as u32)).is_ok()
    }

    /// Checks a random case and returns the number of chunks read.
    fn check(seed: u64, most_packs: usize) -> usize {
        let case = Case::random(seed, most_packs);
        let (reads, contents) = (case.reads(), case.contents());
        let mut tokens = Vec::new();
        for read in &reads {
            assert!(!read.tokens.is_empty() && read.tokens.is_sorted(), "seed {seed}");
            for (token, place) in &read.tokens {
                assert_eq!(contents[&read.part].get(token), Some(place), "seed {seed}");
                tokens.push(*token);
            }
        }
        tokens.sort_unstable();
        assert_eq!(tokens, case.tokens, "seed {seed}");
        let parts: BTreeSet<_> = reads.iter().map(|read| read.part).collect();
        assert_eq!(parts.len(), reads.len(), "a part is read once, seed {seed}");
        let cost = case.cost(&parts);
        assert!(cost <= case.units_alone().min(case.tokens.len()), "seed {seed}");
        let is_unit = |read: &&PartRead| case.units.contains(&read.part.record);
        for read in reads.iter().filter(is_unit) {
            let others = || parts.iter().filter(|part| **part != read.part);
            let is_elsewhere = |token| others().any(|part| contents[part].contains_key(token));
            let is_needless = read.tokens.iter().all(|(token, _)| is_elsewhere(token));
            assert!(most_packs > 1 || !is_needless, "seed {seed}");
        }
        let num_all = case.units.len() * case.unit_tokens - case.skip;
        if case.tokens.len() == num_all {
            assert!(reads.len() <= case.units.len(), "seed {seed}");
        } else {
            assert!(cost <= case.greedy(true), "packs first, seed {seed}");
            assert!(cost <= case.greedy(false), "units first, seed {seed}");
            if most_packs == 1 {
                assert_eq!(cost, case.fewest(), "seed {seed}");
            }
        }
        reads.len() - reads.iter().filter(is_unit).count()
    }

    impl Case {
        /// Uncached units that hold a token.
        fn units_alone(&self) -> usize {
            let units = self.tokens.iter().map(|token| *token as usize / self.unit_tokens);
            let names = units.map(|unit| PartName { record: self.units[unit], part: PART });
            self.cost(&names.collect())
        }
    }

    #[test]
    fn one_pack_a_token_is_read_with_the_fewest_parts() {
        let chunks: usize = (0..6_000).map(|seed| check(seed, 1)).sum();
        assert!(chunks > 500, "{chunks}");
    }

    #[test]
    fn packs_that_overlap_are_never_worse_than_units_or_packs_alone() {
        let chunks: usize = (6_000..12_000).map(|seed| check(seed, 3)).sum();
        assert!(chunks > 500, "{chunks}");
    }

    #[test]
    fn a_pack_that_holds_what_is_wanted_is_read_instead_of_many_units() {
        let units: Vec<_> = (0..8).map(BlockHash::from_u64).collect();
        let order: Vec<u32> = (0..8).map(|unit| unit * 64 + 7).collect();
        let name = BlockHash::from_u64(50);
        let pack = PackView { name, before: 0, first_unit: 0, units: 8, order: &order };
        let question = Cover {
            units: &units,
            skip: 0,
            unit_tokens: 64,
            part: PART,
            packs: &[pack],
            is_cached: &|_| false,
        };
        let found = reads(&question, &order);
        let tokens = order.iter().copied().zip(0..).collect();
        let part = PartName { record: name, part: 1 };
        assert_eq!(found, [PartRead { part, tokens }]);
        // One more that is in no pack: its unit serves it and nothing else.
        let mut more = order.clone();
        more.push(8);
        more.sort_unstable();
        let found = reads(&question, &more);
        let sizes: Vec<_> = found.iter().map(|read| read.tokens.len()).collect();
        assert_eq!(sizes, [1, 8]);
    }
}
