//! Whether prompts may still be loaded by importance.
//!
//! A sampled share of these prompts is recomputed in full, off the critical path, and the two
//! results for the first token are compared. One large divergence bars the prefix: prompts through
//! the same last unit are loaded in full from then on, its siblings are not. Several comparisons in
//! a row with different most likely tokens bar the first unit, which the prompts have in common.
//!
//! It does not know logits' vocabulary, requests or clocks. Source: the accuracy guard;
//! IMPRESS (FAST '25) has none, it reports accuracy over whole tasks.

use std::collections::{BTreeMap, HashMap};

use headstart_core::{BlockHash, Rng};

/// Sampling rate and tolerances of the guard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GuardOptions {
    /// Share of the prompts that are computed twice, 0 to 1.
    pub sample: f64,
    /// The largest divergence that is tolerated, in nats.
    pub most_kl: f32,
    /// As many comparisons in a row whose most likely token differs are too many.
    pub most_disagreements: u32,
    /// Prefixes that are remembered, barred or doubted; the longest ago is forgotten first, a
    /// doubted one before one that is barred.
    pub most_prefixes: usize,
    /// For what is sampled.
    pub seed: u64,
}

impl Default for GuardOptions {
    /// Our choice. One prompt in a hundred costs about a hundredth of the computing that full
    /// loading would have saved. At 0.1 nats a token drawn from the full distribution is a tenth
    /// less likely in the other, and at most 22 % of drawn tokens differ (Pinsker); greedy answers
    /// differ less. Three in a row: one or two are close calls between two tokens.
    fn default() -> Self {
        Self { sample: 0.01, most_kl: 0.1, most_disagreements: 3, most_prefixes: 4_096, seed: 1 }
    }
}

/// Distance between two answers to one prompt, at the first token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divergence {
    /// Kullback-Leibler divergence of the selective distribution from the full one, in nats;
    /// infinite where a logit is no number.
    pub kl: f32,
    /// Whether both have the same most likely token; of equals, the first.
    pub top1_agrees: bool,
}

/// The consequence of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// Prompts that go through this unit are loaded in full from now on.
    FullFromNowOn {
        /// The last unit of the run that was compared, or the first of all.
        unit: BlockHash,
    },
}

/// Counters of the comparisons so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GuardCounts {
    /// Comparisons.
    pub compared: u64,
    /// Comparisons in which both chose the same most likely token.
    pub agreed: u64,
    /// Sum of the divergences that are finite, in nats.
    pub kl_sum: f64,
    /// The largest, in nats.
    pub kl_max: f32,
    /// Prefixes that are barred now.
    pub barred: usize,
}

/// Decides which prompts are computed twice, and which prefixes are loaded in full.
#[derive(Clone, Debug)]
pub struct Guard {
    options: GuardOptions,
    rng: Rng,
    prefixes: HashMap<BlockHash, GuardedPrefix>,
    /// Keys of `prefixes` in order of removal: not barred first, then oldest first.
    order: BTreeMap<(bool, u64), BlockHash>,
    clock: u64,
    counts: GuardCounts,
}

#[derive(Clone, Copy, Debug)]
struct GuardedPrefix {
    /// Comparisons in a row whose most likely token differed.
    disagreements: u32,
    is_barred: bool,
    since: u64,
}

impl Guard {
    /// A guard that has seen nothing.
    #[must_use]
    pub fn new(options: GuardOptions) -> Self {
        Self {
            options,
            rng: Rng::new(options.seed),
            prefixes: HashMap::new(),
            order: BTreeMap::new(),
            clock: 0,
            counts: GuardCounts::default(),
        }
    }

    /// Whether the next prompt is computed twice: a draw.
    pub fn samples(&mut self) -> bool {
        self.rng.next_f64() < self.options.sample
    }

    /// Whether a prompt may be loaded by importance whose stored units are these, from its first
    /// on. O(units).
    #[must_use]
    pub fn allows(&self, units: &[BlockHash]) -> bool {
        let is_barred = |unit| self.prefixes.get(unit).is_some_and(|known| known.is_barred);
        // If nothing is barred, the walk over the units is saved.
        self.counts.barred == 0 || !units.iter().any(is_barred)
    }

    /// A prompt with these stored units was computed both ways.
    pub fn compared(&mut self, units: &[BlockHash], divergence: Divergence) -> Verdict {
        self.count(divergence);
        let [Some(&first), Some(&last)] = [units.first(), units.last()] else {
            return Verdict::Fine;
        };
        let before = self.prefixes.get(&first).map_or(0, |known| known.disagreements);
        let disagreements = if divergence.top1_agrees { 0 } else { before + 1 };
        let is_too_often = disagreements >= self.options.most_disagreements;
        // An agreement resets the count, because only disagreements in a row count.
        self.remember(first, disagreements, is_too_often);
        // Not a number counts as too far: such logits must not pass the guard.
        let is_too_far = divergence.kl > self.options.most_kl || divergence.kl.is_nan();
        let unit = match (is_too_often, is_too_far) {
            (true, _) => first,
            (false, true) => {
                let before = self.prefixes.get(&last).map_or(0, |known| known.disagreements);
                self.remember(last, before, true);
                last
            }
            (false, false) => return Verdict::Fine,
        };
        Verdict::FullFromNowOn { unit }
    }

    /// Returns the counters of the comparisons so far.
    #[must_use]
    pub fn counts(&self) -> GuardCounts {
        self.counts
    }

    fn count(&mut self, divergence: Divergence) {
        self.counts.compared += 1;
        self.counts.agreed += u64::from(divergence.top1_agrees);
        if divergence.kl.is_finite() {
            self.counts.kl_sum += f64::from(divergence.kl);
        }
        self.counts.kl_max = self.counts.kl_max.max(divergence.kl);
    }

    /// Keeps what is known of a prefix, or forgets it where that is nothing. What is barred stays
    /// so until it is forgotten.
    fn remember(&mut self, unit: BlockHash, disagreements: u32, bars: bool) {
        let before = self.prefixes.remove(&unit);
        if let Some(GuardedPrefix { is_barred, since, .. }) = before {
            self.order.remove(&(is_barred, since));
            self.counts.barred -= usize::from(is_barred);
        }
        let is_barred = bars || before.is_some_and(|before| before.is_barred);
        // A prefix without a doubt takes none of the limited places.
        if !is_barred && disagreements == 0 {
            return;
        }
        self.clock += 1;
        let known = GuardedPrefix { disagreements, is_barred, since: self.clock };
        self.prefixes.insert(unit, known);
        self.order.insert((is_barred, self.clock), unit);
        self.counts.barred += usize::from(is_barred);
        if self.prefixes.len() > self.options.most_prefixes.max(1) {
            let ((is_barred, _), oldest) = self.order.pop_first().expect("one a prefix");
            self.counts.barred -= usize::from(is_barred);
            self.prefixes.remove(&oldest);
        }
    }
}

/// Computes how far a selective answer diverges from the full one, by the logits of the first
/// token.
///
/// # Panics
/// When they differ in length.
#[must_use]
pub fn divergence(full: &[f32], selective: &[f32]) -> Divergence {
    assert_eq!(full.len(), selective.len(), "logits of one vocabulary");
    let (full_scale, selective_scale) = (log_sum_exp(full), log_sum_exp(selective));
    let kl: f64 = full
        .iter()
        .zip(selective)
        .map(|(&full, &selective)| {
            let log_p = f64::from(full) - full_scale;
            let log_q = f64::from(selective) - selective_scale;
            // A token that is impossible in full weighs nothing, even if the other allows it.
            match log_p.exp() {
                0.0 => 0.0,
                p => p * (log_p - log_q),
            }
        })
        .sum();
    // A term of weight 0 hides a NaN of the selective logits from the sum.
    let is_number = !kl.is_nan() && !selective.iter().any(|logit| logit.is_nan());
    Divergence {
        // Rounding must not make it negative.
        kl: if is_number { kl.max(0.0) as f32 } else { f32::INFINITY },
        top1_agrees: is_number && most_likely(full) == most_likely(selective),
    }
}

fn log_sum_exp(logits: &[f32]) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let largest = f64::from(largest);
    // Relative to the largest, so that no exponential overflows.
    let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - largest).exp()).sum();
    largest + sum.ln()
}

/// The first of the largest.
fn most_likely(logits: &[f32]) -> Option<usize> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    logits.iter().position(|&logit| logit == largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Divergence = Divergence { kl: 0.01, top1_agrees: true };
    const OTHER_TOKEN: Divergence = Divergence { kl: 0.01, top1_agrees: false };
    const FAR: Divergence = Divergence { kl: 0.5, top1_agrees: true };

    fn units(numbers: &[u64]) -> Vec<BlockHash> {
        numbers.iter().copied().map(BlockHash::from_u64).collect()
    }

    fn full(unit: u64) -> Verdict {
        let unit = BlockHash::from_u64(unit);
        Verdict::FullFromNowOn { unit }
    }

    #[test]
    fn one_far_off_bars_its_prefix_and_what_is_behind_it() {
        let mut guard = Guard::new(GuardOptions::default());
        assert_eq!(guard.compared(&units(&[1, 2, 3]), FINE), Verdict::Fine);
        assert_eq!(guard.compared(&units(&[1, 2, 3]), FAR), full(3));
        assert!(!guard.allows(&units(&[1, 2, 3, 4])), "the next turn");
        assert!(guard.allows(&units(&[1, 2, 5])), "beside it");
        assert!(guard.allows(&units(&[1, 2])), "in front of it");
        assert_eq!(guard.compared(&units(&[1, 2, 3]), FINE), Verdict::Fine);
        assert!(!guard.allows(&units(&[1, 2, 3])), "it stays barred");
        let no_number = Divergence { kl: f32::NAN, ..FINE };
        assert_eq!(guard.compared(&units(&[7]), no_number), full(7));
        assert_eq!(guard.counts().barred, 2);
    }

    #[test]
    fn other_tokens_in_a_row_bar_what_the_prompts_share() {
        let mut guard = Guard::new(GuardOptions::default());
        let mut say = |last, divergence| guard.compared(&units(&[1, last]), divergence);
        assert_eq!(say(2, OTHER_TOKEN), Verdict::Fine);
        assert_eq!(say(3, OTHER_TOKEN), Verdict::Fine);
        assert_eq!(say(4, FINE), Verdict::Fine, "not in a row");
        assert_eq!(say(5, OTHER_TOKEN), Verdict::Fine);
        assert_eq!(say(6, OTHER_TOKEN), Verdict::Fine);
        assert_eq!(say(7, OTHER_TOKEN), full(1));
        assert!(!guard.allows(&units(&[1])) && guard.allows(&units(&[2])));
        let counts = guard.counts();
        assert_eq!((counts.compared, counts.agreed, counts.barred), (6, 1, 1));
    }

    #[test]
    fn the_doubted_and_the_oldest_are_forgotten_first() {
        let mut guard = Guard::new(GuardOptions { most_prefixes: 3, ..GuardOptions::default() });
        for barred in 1..=2 {
            assert_eq!(guard.compared(&units(&[barred]), FAR), full(barred));
        }
        assert_eq!(guard.compared(&units(&[9]), OTHER_TOKEN), Verdict::Fine);
        assert_eq!(guard.compared(&units(&[3]), FAR), full(3), "9 goes");
        let is_allowed = |guard: &Guard| [1, 2, 3, 4].map(|unit| guard.allows(&units(&[unit])));
        assert_eq!(is_allowed(&guard), [false, false, false, true]);
        assert_eq!(guard.compared(&units(&[4]), FAR), full(4));
        assert_eq!(is_allowed(&guard), [true, false, false, false]);
        assert_eq!(guard.counts().barred, 3);
        assert_eq!((guard.prefixes.len(), guard.order.len()), (3, 3));
    }

    #[test]
    fn samples_its_share_and_always_the_same() {
        let draw = |sample, seed| -> Vec<bool> {
            let mut guard = Guard::new(GuardOptions { sample, seed, ..GuardOptions::default() });
            (0..100_000).map(|_| guard.samples()).collect()
        };
        let count = |draws: Vec<bool>| draws.into_iter().filter(|is_one| *is_one).count();
        // Three standard deviations: sqrt(100,000 · 0.01) is 32.
        assert!(count(draw(0.01, 1)).abs_diff(1_000) < 95);
        assert_eq!((count(draw(0.0, 1)), count(draw(1.0, 1))), (0, 100_000));
        assert_eq!(draw(0.01, 2), draw(0.01, 2));
        assert_ne!(draw(0.01, 1), draw(0.01, 2));
    }

    #[test]
    fn divergence_is_what_the_definition_says() {
        let check = |full: &[f32], selective: &[f32], kl: f32, top1_agrees| {
            let found = divergence(full, selective);
            let is_same = found.kl == kl || (found.kl - kl).abs() < 1e-6;
            assert!(is_same, "{found:?} {kl}");
            assert_eq!(found.top1_agrees, top1_agrees, "{full:?} {selective:?}");
        };
        let ln = |odds: [f32; 2]| odds.map(f32::ln);
        let by_hand = 0.75f32 * 3f32.ln() + 0.25 * (1.0f32 / 3.0).ln();
        check(&ln([0.75, 0.25]), &ln([0.25, 0.75]), by_hand, false);
        // Logits that differ by a constant say the same; large ones do not overflow.
        check(&[1e4, 9e3], &[-1e4, -1.1e4], 0.0, true);
        check(&[0.0, f32::NEG_INFINITY], &[0.0, 0.0], 2f32.ln(), true);
        check(&[0.0, 0.0], &[0.0, f32::NEG_INFINITY], f32::INFINITY, true);
        let never = f32::NEG_INFINITY;
        check(&[0.0, never, -1.0], &[0.0, never, -1.0], 0.0, true);
        for broken in [[f32::NAN, 0.0], [f32::INFINITY, 0.0], [never; 2]] {
            check(&[1.0, 0.0], &broken, f32::INFINITY, false);
            check(&broken, &[1.0, 0.0], f32::INFINITY, false);
        }
    }
}
