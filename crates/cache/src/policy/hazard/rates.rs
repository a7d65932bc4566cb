//! Learned rates of return: by state and age, times one factor for each feature.
//!
//! A hazard is returns per second of exposure. The base has one for each state and age; each stage
//! has a factor for each value of its features, by age and by kind of state: the returns that it
//! saw over those that the stages in front of it expected. Both are shrunk: towards all states,
//! a falling power of age, and a factor of 1. So where nothing was seen the order is by age.

use super::age::{AGES, probability_of, start_s, step, width_s};
use super::features::{Features, STAGES, VALUES};
use super::saved::{self, ForeignTables};

/// Degrees to which a later request has superseded a request, by the share of its blocks that it
/// took: up to 50 %, up to 95 %, more.
pub(super) const DEGREES: usize = 3;

/// States of a block: its part of the request, by the degree to which that is superseded.
pub(super) const STATES: usize = 3 * DEGREES;

/// The state of a request's last block that no later request has superseded.
pub(super) const LAST_BLOCK: usize = 2 * DEGREES;

/// Steps of age that share a factor, by stage, and the least. The end of an answer and the gaps so
/// far tell when a request returns: there finer steps find a point more. The other stages only
/// learn more slowly with them.
pub(super) const AGES_PER_FACTOR: [usize; STAGES] = [2, 2, 2, 4, 4, 4, 4, 4, 4, 2];
const FINEST: usize = 2;

/// Kinds of states that have factors of their own: superseded, last block, others.
pub(super) const KINDS: usize = 3;

/// Returns that a factor's prior counts for, and those of the base's priors.
const FACTOR_PRIOR: f32 = 25.0;
const STATE_PRIOR: f64 = 4.0;

/// The prior's hazard at the first age, per second.
const FIRST_HAZARD: f64 = 0.2;

/// Requests until the base's hazards are recomputed, and until counts are halved.
const REFRESH: u64 = 32;
const HALVE: u64 = 20_000;

/// Returns and exposure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RateCount<F> {
    returns: F,
    exposure: F,
}

/// All that is learned.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    /// By state, and for all states in the last row: exposure in seconds.
    base: Vec<[RateCount<f64>; AGES]>,
    /// The base's hazards, per second, as of the last refresh.
    hazards: Vec<[f32; AGES]>,
    /// By stage, value, age and kind: exposure in expected returns.
    factors: Vec<RateCount<f32>>,
    /// Counts refreshes.
    refreshed: u8,
}

/// Factors of a value of a stage.
const fn factors_of(stage: usize) -> usize {
    AGES / AGES_PER_FACTOR[stage] * KINDS
}

/// The first factor of each stage.
const STAGE_STARTS: [usize; STAGES + 1] = {
    let mut starts = [0; STAGES + 1];
    let mut stage = 0;
    while stage < STAGES {
        starts[stage + 1] = starts[stage] + VALUES[stage] * factors_of(stage);
        stage += 1;
    }
    starts
};

impl Rates {
    /// Nothing learned.
    pub(super) fn new() -> Self {
        let mut rates = Self {
            base: vec![[RateCount::default(); AGES]; STATES + 1],
            hazards: vec![[0.0; AGES]; STATES + 1],
            factors: vec![RateCount::default(); STAGE_STARTS[STAGES]],
            refreshed: 0,
        };
        rates.refresh();
        rates
    }

    /// All counts as bytes, scaled down to `most_returns` returns: a prior that counts for less is
    /// outweighed sooner by the returns of other traffic.
    pub(super) fn save(&self, most_returns: f64) -> Vec<u8> {
        let returns: f64 = self.base[STATES].iter().map(|count| count.returns).sum();
        let scale = (most_returns / returns.max(1.0)).min(1.0);
        let base = self.base.iter().flatten();
        let base = base.map(|count| (count.returns, count.exposure));
        let factors = self.factors.iter();
        let factors = factors.map(|count| (f64::from(count.returns), f64::from(count.exposure)));
        let scaled = |(returns, exposure)| ((returns * scale) as f32, (exposure * scale) as f32);
        saved::write(base.chain(factors).map(scaled))
    }

    /// Takes the counts that [`Rates::save`] gave, in place of its own.
    ///
    /// # Errors
    /// When they are damaged, or of another version.
    pub(super) fn restore(&mut self, bytes: &[u8]) -> Result<(), ForeignTables> {
        const BASE: usize = (STATES + 1) * AGES;
        let mut restored = Self::new();
        for (at, [returns, exposure]) in saved::read(bytes, BASE + self.factors.len())? {
            match at.checked_sub(BASE) {
                None => {
                    restored.base[at / AGES][at % AGES] =
                        RateCount { returns: returns.into(), exposure: exposure.into() };
                }
                Some(at) => restored.factors[at] = RateCount { returns, exposure },
            }
        }
        restored.refresh();
        *self = restored;
        Ok(())
    }

    /// The number of the last refresh, before which scores may be out of date.
    pub(super) fn refreshed(&self) -> u8 {
        self.refreshed
    }

    /// After `num_requests` requests: forgets a half, or computes hazards again, where it is time.
    pub(super) fn settle(&mut self, num_requests: u64) {
        if num_requests.is_multiple_of(HALVE) {
            for count in self.base.iter_mut().flatten() {
                count.returns *= 0.5;
                count.exposure *= 0.5;
            }
            for count in &mut self.factors {
                count.returns *= 0.5;
                count.exposure *= 0.5;
            }
        }
        if num_requests.is_multiple_of(REFRESH) {
            self.refresh();
        }
    }

    /// A share of a block's part was in `state` between two ages, in seconds, without a return.
    pub(super) fn expose(
        &mut self,
        rows: &StageRows,
        state: usize,
        share: f64,
        from_s: f64,
        to_s: f64,
    ) {
        for age in step(from_s)..=step(to_s) {
            let end_s = if age == AGES - 1 { to_s } else { to_s.min(start_s(age + 1)) };
            let exposure = share * (end_s - from_s.max(start_s(age)));
            if exposure <= 0.0 {
                continue;
            }
            self.base[state][age].exposure += exposure;
            self.base[STATES][age].exposure += exposure;
            let mut expected = self.hazards[state][age] * exposure as f32;
            for (stage, row) in rows.iter() {
                let count = &mut self.factors[factor_index(stage, row, age, state)];
                count.exposure += expected;
                expected *= factor(*count);
            }
        }
    }

    /// A share of a block's part returned at an age.
    pub(super) fn returned(&mut self, rows: &StageRows, state: usize, share: f64, age_s: f64) {
        let age = step(age_s);
        self.base[state][age].returns += share;
        self.base[STATES][age].returns += share;
        for (stage, row) in rows.iter() {
            self.factors[factor_index(stage, row, age, state)].returns += share as f32;
        }
    }

    /// Returns per second of exposure, by age; 0 for ages below that of a factor before `from`.
    pub(super) fn hazards(&self, rows: &StageRows, state: usize, from: usize) -> [f32; AGES] {
        let mut hazards = [0.0; AGES];
        for group in from / FINEST..AGES / FINEST {
            let first = group * FINEST;
            let factor_of =
                |(stage, row)| factor(self.factors[factor_index(stage, row, first, state)]);
            let product: f32 = rows.iter().map(factor_of).product();
            let ages = first..first + FINEST;
            for (hazard, base) in hazards[ages.clone()].iter_mut().zip(&self.hazards[state][ages]) {
                *hazard = base * product;
            }
        }
        hazards
    }

    /// Returns the worth of keeping a block from the middle of an age on, and from that of the next
    /// age: the best rate, over all horizons, of expected returns per second of keeping. It is the
    /// Gittins index of the hazard.
    pub(super) fn worths(&self, rows: &StageRows, state: usize, age: usize) -> [f32; 2] {
        let hazards = self.hazards(rows, state, age);
        let mut chances = [0.0; AGES];
        for age in age..AGES {
            chances[age] = probability_of(hazards[age] * width_s(age) as f32);
        }
        let last = AGES - 1;
        [age, (age + 1).min(last)].map(|from| best_rate(&hazards, &chances, from))
    }

    /// Computes the base's hazards from its counts.
    fn refresh(&mut self) {
        self.refreshed = self.refreshed.wrapping_add(1);
        let mut all = [0.0; AGES];
        for age in 0..AGES {
            // A power law where nothing was seen: the hazard falls as the age grows.
            let prior = match age {
                0 => FIRST_HAZARD,
                _ => all[age - 1] * start_s(age) / start_s(age + 1),
            };
            let count = self.base[STATES][age];
            all[age] = (count.returns + 1.0) / (count.exposure + 1.0 / prior);
        }
        for (state, counts) in self.base.iter().enumerate() {
            if state == STATES {
                self.hazards[state] = all.map(|hazard| hazard as f32);
                continue;
            }
            let returns: f64 = counts.iter().map(|count| count.returns).sum();
            let expected = counts.iter().zip(all).map(|(count, all)| count.exposure * all);
            let ratio = (returns + STATE_PRIOR) / (expected.sum::<f64>() + STATE_PRIOR);
            for (age, count) in counts.iter().enumerate() {
                let prior = all[age] * ratio;
                let hazard = (count.returns + STATE_PRIOR) / (count.exposure + STATE_PRIOR / prior);
                self.hazards[state][age] = hazard as f32;
            }
        }
    }
}

/// The first factor of a request's features, by stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageRows {
    rows: [u32; STAGES],
    /// Stages that apply: the last one only where the called tools are known.
    len: usize,
}

impl StageRows {
    fn iter(&self) -> impl Iterator<Item = (usize, u32)> {
        self.rows[..self.len].iter().copied().enumerate()
    }
}

/// Returns the rows of a request's features.
pub(super) fn rows(features: &Features) -> StageRows {
    let values = features.values();
    let row = |stage: usize| (STAGE_STARTS[stage] + values[stage] * factors_of(stage)) as u32;
    let len = STAGES - usize::from(!features.knows_tools());
    StageRows { rows: std::array::from_fn(row), len }
}

fn factor_index(stage: usize, row: u32, age: usize, state: usize) -> usize {
    let kind = match (state / DEGREES, state % DEGREES) {
        (_, 1..) => 2,
        (2, _) => 1,
        _ => 0,
    };
    row as usize + age / AGES_PER_FACTOR[stage] * KINDS + kind
}

fn factor(count: RateCount<f32>) -> f32 {
    (count.returns + FACTOR_PRIOR) / (count.exposure + FACTOR_PRIOR)
}

/// The best rate over horizons of expected returns per second, from the middle of an age on.
fn best_rate(hazards: &[f32; AGES], chances: &[f32; AGES], from: usize) -> f32 {
    /// Survival at which the rest can change nothing.
    const NEGLIGIBLE: f32 = 1e-3;
    let seconds_of = |chance: f32, age: usize, width: f32| {
        // A hazard of 0 keeps the block for the whole width.
        if hazards[age] * width > 1e-6 { chance / hazards[age] } else { width }
    };
    let half = width_s(from) as f32 * 0.5;
    let mut returns = probability_of(hazards[from] * half);
    let mut seconds = seconds_of(returns, from, half);
    let mut survival = 1.0 - returns;
    let mut best = returns / seconds;
    for (age, chance) in chances.iter().enumerate().skip(from + 1) {
        if survival < NEGLIGIBLE {
            break;
        }
        returns += survival * chance;
        seconds += survival * seconds_of(*chance, age, width_s(age) as f32);
        survival *= 1.0 - chance;
        best = best.max(returns / seconds);
    }
    best
}

#[cfg(test)]
mod tests {
    use headstart_core::Access;

    use super::*;

    fn of(request_type: u16) -> StageRows {
        let access = Access { request_type, ..Access::default() };
        rows(&Features::new(&access, 10, 5, None))
    }

    fn worth(rates: &Rates, request_type: u16, age_s: f64) -> f32 {
        rates.worths(&of(request_type), 0, step(age_s))[0]
    }

    #[test]
    fn without_anything_learned_the_older_is_worth_less() {
        let rates = Rates::new();
        let worths: Vec<_> = (0..AGES).map(|age| rates.worths(&of(1), 0, age)[0]).collect();
        assert!(worths.windows(2).all(|pair| pair[1] < pair[0]), "{worths:?}");
    }

    #[test]
    fn what_returns_is_worth_more_until_its_time_has_passed() {
        let mut rates = Rates::new();
        for request in 1..2_000 {
            // Type 1 returns after 10 s, type 2 never within 1,000 s.
            rates.expose(&of(1), 0, 1.0, 0.0, 10.0);
            rates.returned(&of(1), 0, 1.0, 10.0);
            rates.expose(&of(2), 0, 1.0, 0.0, 1_000.0);
            rates.settle(request);
        }
        assert!(worth(&rates, 1, 0.5) > 5.0 * worth(&rates, 2, 0.5));
        // The hazard rises before 10 s, and so does the worth: waiting costs less.
        assert!(worth(&rates, 1, 7.0) > worth(&rates, 1, 0.5));
        assert!(worth(&rates, 1, 400.0) < worth(&rates, 1, 0.5) / 20.0);
    }

    #[test]
    fn counts_fade() {
        let mut rates = Rates::new();
        rates.returned(&of(1), 0, 1.0, 1.0);
        rates.settle(HALVE);
        let total: f64 = rates.base[STATES].iter().map(|count| count.returns).sum();
        assert_eq!(total, 0.5);
    }
}
