//! Selection of the tokens of a stored prefix that a layer needs.
//!
//! Each probe names the k tokens that the new queries look at most; where the probes agree more
//! than chance would have it, the tokens of all of them are loaded, else everything is.
//!
//! Source: IMPRESS (FAST '25), section 4: top k of the column sums of attention (H2O, NeurIPS
//! '23), mean pairwise Jaccard index, threshold `j^0.6` with the `j` that random sets have. We
//! differ in one thing: tokens that are always kept are no evidence, so agreement and threshold
//! are those of the other tokens, among which the probes had a choice.

/// Exponent of the threshold, as published.
pub const ALPHA: f64 = 0.6;

/// Rule that merges the sets of several probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// A token that any probe names.
    Union,
    /// A token that more than half of the probes name.
    Majority,
    /// The top k of the probes' summed importance (what H2O does with all heads).
    Sum,
}

/// A token to which all queries together give more attention than this is never spared: then none
/// of them looks at it.
pub const MOST_SPARED: f32 = 0.05;

/// A token to which all queries together give more attention than this is kept whatever it costs:
/// one of them may look at nothing else.
pub const SURE: f32 = 0.25;

/// Options of the token selection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Selecting {
    /// Share of the tokens that each probe names, 0 to 1.
    pub ratio: f64,
    /// Tokens from the start that are always kept: they draw attention whatever they say.
    pub first: usize,
    /// Tokens up to the end that are always kept: what is near matters.
    pub recent: usize,
    /// Share of its attention that a query may lose on average, because the least important tokens
    /// that a probe named are left out again. Without it a few distant tokens that hardly matter
    /// cost as much to load as all others. A token with much attention from one query is never left
    /// out ([`MOST_SPARED`]).
    pub spared: f64,
    /// Whether whole parts are kept instead of what is selected ([`super::fit()`]): these give up
    /// what is far apart, up to as much again, but no token above [`SURE`]. Else the tokens
    /// themselves are kept, wherever they are.
    pub whole_parts: bool,
    /// Rule that merges the sets of several probes.
    pub merge: Merge,
    /// Whether everything is loaded where the probes do not agree.
    pub falls_back: bool,
    /// Exponent of the threshold.
    pub alpha: f64,
}

impl Default for Selecting {
    /// The published ratio of three of four tasks, exponent and union; 4 first tokens as in
    /// StreamingLLM (ICLR '24); 32 recent ones, half a chunk, and what is spared are our choice.
    fn default() -> Self {
        Self {
            ratio: 0.25,
            first: 4,
            recent: 32,
            spared: 0.02,
            whole_parts: true,
            merge: Merge::Union,
            falls_back: true,
            alpha: ALPHA,
        }
    }
}

/// The tokens that a layer needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// Sorted; counted as the importances are.
    pub tokens: Vec<u32>,
    /// The tokens among them that are always kept, or surely get attention; sorted.
    pub sure: Vec<u32>,
    /// Mean pairwise Jaccard index of what the probes chose freely; 1 where there was no choice,
    /// or one probe.
    pub agreement: f64,
    /// The least agreement that was required.
    pub threshold: f64,
    /// Whether that is every token.
    pub is_all: bool,
}

impl Selection {
    /// Selects all `num_tokens` tokens, without asking the probes.
    #[must_use]
    pub fn everything(num_tokens: usize) -> Self {
        Self {
            tokens: (0..num_tokens as u32).collect(),
            sure: Vec::new(),
            agreement: 1.0,
            threshold: 0.0,
            is_all: true,
        }
    }

    /// The same, counted from `skip` tokens before.
    #[must_use]
    pub fn behind(mut self, skip: usize) -> Self {
        let tokens = self.tokens.iter_mut().chain(&mut self.sure);
        tokens.for_each(|token| *token += skip as u32);
        self
    }
}

/// The agreement from which probes are believed: `j^alpha`, where `j = ratio / (2 - ratio)` is the
/// Jaccard index to be expected of two random sets that hold `ratio` of the tokens each.
#[must_use]
pub fn threshold(ratio: f64, alpha: f64) -> f64 {
    let ratio = ratio.clamp(0.0, 1.0);
    (ratio / (2.0 - ratio)).powf(alpha)
}

/// Selects tokens by what the probes say: one slice per probe, over the same tokens, sums of the
/// attention of `queries` queries.
///
/// Each probe names `k = ceil(ratio · tokens)`, those always kept among them; these are kept even
/// where they are more than k. Of these it leaves out what may be spared; whether probes agree is
/// judged before that. Ties go to the earlier token; what is no number is least. A union can be
/// larger than k, a majority smaller. O(probes · (tokens + k log k)).
///
/// # Panics
/// When the slices differ in length, or have 2^32 tokens or more.
#[must_use]
pub fn select(selecting: &Selecting, importances: &[&[f32]], queries: usize) -> Selection {
    let num_tokens = importances.first().map_or(0, |probe| probe.len());
    let is_as_long = |probe: &&[f32]| probe.len() == num_tokens;
    assert!(importances.iter().all(is_as_long), "probes see the same tokens");
    let end = u32::try_from(num_tokens).expect("a prefix has fewer than 2^32 tokens");
    let first = selecting.first.min(num_tokens);
    let recent = selecting.recent.min(num_tokens - first);
    let free = first..num_tokens - recent;
    // Tokens that are always kept use up the budget first.
    let kept = count(selecting.ratio, num_tokens).saturating_sub(first + recent);
    let kept = kept.min(free.len());
    // Only free tokens are compared: those always kept would make any probes agree.
    let sets: Vec<Bits> = importances.iter().map(|probe| top(&probe[free.clone()], kept)).collect();
    let agreement = agreement(&sets);
    let threshold = match kept {
        0 => 0.0,
        _ => threshold(kept as f64 / free.len() as f64, selecting.alpha),
    };
    let mut tokens: Vec<u32> = (0..first as u32).collect();
    // Probes that agree too little may look at noise, so nothing is left out.
    if selecting.falls_back && agreement < threshold {
        tokens.extend(first as u32..end - recent as u32);
    } else {
        let free = Free {
            importances,
            places: free,
            kept,
            spared: selecting.spared as f32 * queries as f32,
        };
        let merged = free.merge(selecting.merge, &sets);
        tokens.extend(merged.iter().map(|at| first as u32 + at));
    }
    tokens.extend(end - recent as u32..end);
    let is_always = |token: u32| token < first as u32 || token >= end - recent as u32;
    let is_seen =
        |token: u32| importances.iter().any(|importance| importance[token as usize] > SURE);
    let sure = tokens.iter().copied();
    Selection {
        is_all: tokens.len() == num_tokens,
        sure: sure.filter(|&token| is_always(token) || is_seen(token)).collect(),
        tokens,
        agreement,
        threshold,
    }
}

/// `ceil(ratio · num_tokens)`; what floating point adds to a whole number is no token.
fn count(ratio: f64, num_tokens: usize) -> usize {
    let exact = ratio.clamp(0.0, 1.0) * num_tokens as f64;
    ((exact - 1e-9).ceil().max(0.0) as usize).min(num_tokens)
}

/// The places of the `kept` largest.
fn top(importances: &[f32], kept: usize) -> Bits {
    let value = |at: u32| {
        let value = importances[at as usize];
        if value.is_nan() { f32::NEG_INFINITY } else { value }
    };
    let mut places: Vec<u32> = (0..importances.len() as u32).collect();
    // At the ends there is nothing to divide, and `kept - 1` would underflow.
    if 0 < kept && kept < places.len() {
        places.select_nth_unstable_by(kept - 1, |&one, &other| {
            let order = value(other).partial_cmp(&value(one));
            order.unwrap_or(std::cmp::Ordering::Equal).then(one.cmp(&other))
        });
    }
    let mut bits = Bits::new(importances.len());
    places[..kept].iter().for_each(|&at| bits.set(at));
    bits
}

/// Mean Jaccard index over all pairs.
fn agreement(sets: &[Bits]) -> f64 {
    let pairs = sets
        .iter()
        .enumerate()
        .flat_map(|(at, one)| sets[at + 1..].iter().map(move |other| one.jaccard(other)));
    let (sum, num_pairs) = pairs.fold((0.0, 0), |(sum, count), pair| (sum + pair, count + 1));
    if num_pairs == 0 { 1.0 } else { sum / f64::from(num_pairs) }
}

/// The tokens that probes choose from, with their importances.
struct Free<'a> {
    importances: &'a [&'a [f32]],
    places: std::ops::Range<usize>,
    kept: usize,
    spared: f32,
}

impl Free<'_> {
    fn merge(&self, merge: Merge, sets: &[Bits]) -> Bits {
        let len = self.places.len();
        let probes = self.importances.iter();
        let of_probe = probes.map(|probe| &probe[self.places.clone()]);
        let sets = of_probe.zip(sets);
        let limits = SparingLimits { together: self.spared, each: MOST_SPARED };
        let sets = sets.map(|(importances, set)| spare(importances, set, limits));
        match merge {
            Merge::Union => sets.fold(Bits::new(len), |mut all, set| {
                all.join(&set);
                all
            }),
            Merge::Majority => majority(len, &sets.collect::<Vec<_>>()),
            Merge::Sum => {
                let probes = self.importances;
                let sum = |at| probes.iter().map(|probe| probe[at]).sum();
                let sums: Vec<f32> = self.places.clone().map(sum).collect();
                // The sums cover all probes, so the limits do too.
                let times = probes.len() as f32;
                let limits =
                    SparingLimits { together: limits.together * times, each: limits.each * times };
                spare(&sums, &top(&sums, self.kept), limits)
            }
        }
    }
}

fn majority(len: usize, sets: &[Bits]) -> Bits {
    let mut merged = Bits::new(len);
    let mut votes = vec![0usize; len];
    for at in sets.iter().flat_map(Bits::iter) {
        votes[at as usize] += 1;
        if votes[at as usize] * 2 > sets.len() {
            merged.set(at);
        }
    }
    merged
}

/// The most importance that a set may lose.
#[derive(Clone, Copy)]
struct SparingLimits {
    /// Of all tokens that go.
    together: f32,
    /// Of any of them.
    each: f32,
}

/// The set without those that matter least, within these limits. Ties: the later goes first.
fn spare(importances: &[f32], set: &Bits, limits: SparingLimits) -> Bits {
    let value = |at: u32| importances[at as usize].max(0.0);
    let mut places: Vec<u32> = set.iter().collect();
    places
        .sort_unstable_by(|&one, &other| value(one).total_cmp(&value(other)).then(other.cmp(&one)));
    let mut sum = 0.0;
    let is_spared = |at: &u32| {
        sum += value(*at);
        // In ascending order: the first token that does not fit ends it.
        sum <= limits.together && value(*at) <= limits.each
    };
    let num_spared = if limits.together > 0.0 {
        places.iter().copied().take_while(is_spared).count()
    } else {
        0
    };
    let mut left = Bits::new(importances.len());
    places[num_spared..].iter().for_each(|&at| left.set(at));
    left
}

/// A set of places.
struct Bits(Vec<u64>);

impl Bits {
    fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    fn set(&mut self, at: u32) {
        self.0[at as usize / 64] |= 1 << (at % 64);
    }

    fn join(&mut self, other: &Self) {
        let words = self.0.iter_mut().zip(&other.0);
        words.for_each(|(word, other)| *word |= other);
    }

    /// 1 for two empty sets: they do not differ.
    fn jaccard(&self, other: &Self) -> f64 {
        let words = || self.0.iter().zip(&other.0);
        let both: u32 = words().map(|(one, other)| (one & other).count_ones()).sum();
        let any: u32 = words().map(|(one, other)| (one | other).count_ones()).sum();
        if any == 0 { 1.0 } else { f64::from(both) / f64::from(any) }
    }

    /// In order.
    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().zip(0u32..).flat_map(|(&word, index)| {
            // `word & (word - 1)` clears the lowest bit that is set.
            let rest = |word: &u64| Some(word & (word - 1)).filter(|&rest| rest != 0);
            let first = Some(word).filter(|&word| word != 0);
            std::iter::successors(first, rest).map(move |word| index * 64 + word.trailing_zeros())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;
    use std::collections::BTreeSet;

    fn plain(ratio: f64) -> Selecting {
        Selecting { ratio, first: 0, recent: 0, spared: 0.0, ..Selecting::default() }
    }

    /// The same by sorting, and by sets.
    fn by_sorting(selecting: &Selecting, importances: &[&[f32]], queries: usize) -> Selection {
        let len = importances.first().map_or(0, |probe| probe.len());
        let is_always = |at: usize| at < selecting.first || at + selecting.recent >= len;
        let always: BTreeSet<usize> = (0..len).filter(|&at| is_always(at)).collect();
        let k = (selecting.ratio * len as f64 - 1e-9).ceil() as usize;
        let kept = k.saturating_sub(always.len());
        let choose = |values: &dyn Fn(usize) -> f32| -> BTreeSet<usize> {
            let mut places: Vec<usize> = (0..len).filter(|&at| !is_always(at)).collect();
            let value = |at: usize| match values(at) {
                value if value.is_nan() => f32::NEG_INFINITY,
                value => value + 0.0,
            };
            places.sort_by(|&one, &other| value(other).total_cmp(&value(one)));
            places.into_iter().take(kept).collect()
        };
        let sets: Vec<_> = importances.iter().map(|probe| choose(&|at| probe[at])).collect();
        let mut pairs = Vec::new();
        for (at, one) in sets.iter().enumerate() {
            for other in &sets[at + 1..] {
                let any = one.union(other).count();
                let both = one.intersection(other).count();
                pairs.push(if any == 0 { 1.0 } else { both as f64 / any as f64 });
            }
        }
        let agreement = match pairs.len() {
            0 => 1.0,
            num_pairs => pairs.iter().sum::<f64>() / num_pairs as f64,
        };
        let num_free = len - always.len();
        let threshold = match kept.min(num_free) {
            0 => 0.0,
            kept => threshold(kept as f64 / num_free as f64, selecting.alpha),
        };
        // One after the other is taken out, while what is out matters little.
        let spare = |mut set: BTreeSet<usize>, values: &dyn Fn(usize) -> f32, times: f32| {
            let spared = selecting.spared as f32 * queries as f32 * times;
            let mut out = 0.0;
            loop {
                let value = |at: usize| values(at).max(0.0);
                let least = set
                    .iter()
                    .copied()
                    .reduce(|one, other| if value(other) <= value(one) { other } else { one });
                match least {
                    Some(least)
                        if spared > 0.0
                            && out + value(least) <= spared
                            && value(least) <= MOST_SPARED * times =>
                    {
                        out += value(least);
                        set.remove(&least);
                    }
                    _ => return set,
                }
            }
        };
        let probes = importances.iter().zip(sets);
        let sets: Vec<_> = probes.map(|(probe, set)| spare(set, &|at| probe[at], 1.0)).collect();
        let merged: BTreeSet<usize> = match selecting.merge {
            _ if selecting.falls_back && agreement < threshold => (0..len).collect(),
            Merge::Union => sets.iter().flatten().copied().collect(),
            Merge::Majority => (0..len)
                .filter(|at| 2 * sets.iter().filter(|set| set.contains(at)).count() > sets.len())
                .collect(),
            Merge::Sum => {
                let sum = |at: usize| importances.iter().map(|probe| probe[at]).sum();
                spare(choose(&sum), &sum, importances.len() as f32)
            }
        };
        let tokens: Vec<u32> = merged.union(&always).map(|&at| at as u32).collect();
        let is_seen = |at: usize| importances.iter().any(|probe| probe[at] > SURE);
        let is_sure = |&at: &u32| always.contains(&(at as usize)) || is_seen(at as usize);
        Selection {
            is_all: tokens.len() == len,
            sure: tokens.iter().copied().filter(is_sure).collect(),
            tokens,
            agreement,
            threshold,
        }
    }

    #[test]
    fn selects_what_sorting_selects() {
        let mut num_all = 0;
        for seed in 0..2_000 {
            let mut rng = Rng::new(seed);
            let len = rng.below(200);
            let num_probes = 1 + rng.below(4);
            // Eighths and sixteenths: sums are the same in any order.
            let scale = [1.0, 1.0 / 64.0][rng.below(2)];
            let common: Vec<f32> = (0..len).map(|_| rng.below(8) as f32 - 2.0).collect();
            let noise = rng.below(9);
            let mut probe = |_| -> Vec<f32> {
                let value = |at: &f32| match rng.below(60) {
                    0 => f32::NAN,
                    1 => f32::NEG_INFINITY,
                    2 => -0.0,
                    _ => (at + rng.below(1 + noise) as f32) * scale,
                };
                common.iter().map(value).collect()
            };
            let probes: Vec<Vec<f32>> = (0..num_probes).map(&mut probe).collect();
            let importances: Vec<&[f32]> = probes.iter().map(Vec::as_slice).collect();
            let selecting = Selecting {
                ratio: [0.0, 0.05, 0.1, 0.25, 0.5, 1.0][rng.below(6)],
                first: rng.below(6),
                recent: rng.below(20),
                spared: [0.0, 0.01, 0.2][rng.below(3)],
                whole_parts: false,
                merge: [Merge::Union, Merge::Majority, Merge::Sum][rng.below(3)],
                falls_back: rng.below(2) == 0,
                alpha: ALPHA,
            };
            let queries = 1 + rng.below(40);
            let selection = select(&selecting, &importances, queries);
            let expected = by_sorting(&selecting, &importances, queries);
            assert_eq!(selection, expected, "seed {seed}, {selecting:?}");
            num_all += usize::from(selection.is_all && selecting.ratio < 1.0);
        }
        assert!(num_all > 100, "only {num_all} fall back");
    }

    /// The table of the published values; j = k/n / (2 - k/n).
    #[test]
    fn thresholds_are_the_published_ones() {
        let check = |ratio, expected: f64| {
            let found = threshold(ratio, ALPHA);
            assert!((found - expected).abs() < 0.0005, "{ratio}: {found}");
        };
        check(0.5, 0.517);
        check(0.25, 0.311);
        check(0.1, 0.171);
        check(0.05, 0.111);
        check(1.0, 1.0);
        check(0.0, 0.0);
    }

    #[test]
    fn random_sets_agree_as_their_threshold_presumes() {
        let mut rng = Rng::new(5);
        let mut draw = |_| (0..20_000).map(|_| rng.next_f64() as f32).collect();
        let probes: [Vec<f32>; 2] = std::array::from_fn(&mut draw);
        let selection = select(&plain(0.25), &[&probes[0], &probes[1]], 8);
        assert!((selection.agreement - 0.25 / 1.75).abs() < 0.01);
        assert!(selection.is_all, "chance is not believed");
    }

    #[test]
    fn one_probe_or_no_token_is_fine() {
        let one = select(&plain(0.5), &[&[1.0, 3.0, 3.0, 0.0]], 8);
        assert_eq!((one.tokens.as_slice(), one.agreement), (&[1, 2][..], 1.0));
        let tie = select(&plain(0.25), &[&[f32::NAN, 2.0, 2.0, 2.0]], 8);
        assert_eq!(tie.tokens, [1], "the earlier of equals, no number last");
        for probes in [&[][..], &[&[][..], &[][..]][..]] {
            let none = select(&Selecting::default(), probes, 8);
            assert!(none.tokens.is_empty() && none.is_all);
        }
    }

    #[test]
    fn first_and_recent_tokens_count_among_the_kept() {
        let falling: Vec<f32> = (0..100).map(|at| -(at as f32)).collect();
        let selecting = Selecting { first: 2, recent: 3, ..plain(0.1) };
        let selection = select(&selecting, &[&falling], 8);
        assert_eq!(selection.tokens, [0, 1, 2, 3, 4, 5, 6, 97, 98, 99]);
        let more = Selecting { recent: 30, ..selecting };
        let selection = select(&more, &[&falling], 8);
        assert_eq!(selection.tokens.len(), 32, "kept though more than k");
    }
}
