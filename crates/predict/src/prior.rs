//! The share of conversations that go on, by turn: what is believed without looking at text.
//!
//! ```text
//! turn          1     2     3   …   20 and later
//! continued    61    40    22   …    9
//! ended        39    20     8   …    1          p = (continued + s · overall) / (all + s)
//! ```
//!
//! A turn that was rarely seen is drawn towards the overall share, and that towards the base, as
//! if [`STRENGTH`] more had been seen there. Outcomes that are unknown are not observed; where
//! they are cut at random, what is left estimates the same share.
//!
//! Source: Yang et al., "Learned Prefix Caching", NeurIPS 2025, compare with a classifier that sees
//! the turn count alone; this table is the best of those.

use headstart_core::Probability;
use serde::{Deserialize, Serialize};

/// Weight of the initial belief, in observations.
const STRENGTH: f64 = 10.0;

/// Counts by turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnPrior {
    cells: Vec<TurnCounts>,
    base: f64,
    /// Factor by which an observation reduces the weight of those before it.
    keep: f64,
}

/// Weighted counts of the prompts of one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TurnCounts {
    continued: f64,
    all: f64,
}

impl Default for TurnPrior {
    fn default() -> Self {
        Self::new()
    }
}

impl TurnPrior {
    /// Turns from here on share a cell.
    pub const LAST_TURN: u16 = 20;

    /// Nothing seen: every turn has an even chance.
    #[must_use]
    pub fn new() -> Self {
        Self {
            cells: vec![TurnCounts::default(); usize::from(Self::LAST_TURN)],
            base: Probability::EVEN.value(),
            keep: 1.0,
        }
    }

    /// The same, with observations that lose half of their weight with every `half_life` later
    /// ones.
    #[must_use]
    pub fn forgetting(self, half_life: f64) -> Self {
        let keep = 0.5f64.powf(1.0 / half_life.max(1.0));
        Self { keep, ..self }
    }

    /// The user message of `turn`, from 1, was followed by another one, or was not.
    pub fn observe(&mut self, turn: u16, continued: bool) {
        // Without forgetting an observation touches one cell only.
        if self.keep < 1.0 {
            for cell in &mut self.cells {
                cell.continued *= self.keep;
                cell.all *= self.keep;
            }
        }
        let cell = &mut self.cells[index(turn)];
        cell.continued += f64::from(u8::from(continued));
        cell.all += 1.0;
    }

    /// The chance that another message follows that of `turn`, from 1.
    #[must_use]
    pub fn p(&self, turn: u16) -> Probability {
        let sum = |of: fn(&TurnCounts) -> f64| self.cells.iter().map(of).sum::<f64>();
        let (continued, all) = (sum(|cell| cell.continued), sum(|cell| cell.all));
        let overall = (continued + STRENGTH * self.base) / (all + STRENGTH);
        let cell = self.cells[index(turn)];
        let p = (cell.continued + STRENGTH * overall) / (cell.all + STRENGTH);
        Probability::new(p).unwrap_or(Probability::EVEN)
    }

    /// Observations that it rests on; fewer than were made where it forgets.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.cells.iter().map(|cell| cell.all).sum()
    }

    /// Whether it could have come about: a file may hold anything.
    pub(crate) fn is_valid(&self) -> bool {
        let cell = |cell: &TurnCounts| {
            // The comparisons are false for NaN, so no test of its own is needed.
            cell.all.is_finite() && cell.continued >= 0.0 && cell.continued <= cell.all
        };
        self.cells.len() == usize::from(Self::LAST_TURN)
            && (0.0..=1.0).contains(&self.base)
            && (0.0..=1.0).contains(&self.keep)
            && self.cells.iter().all(cell)
    }
}

/// The cell of `turn`; a turn 0 is taken for the first.
fn index(turn: u16) -> usize {
    usize::from(turn.clamp(1, TurnPrior::LAST_TURN)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(prior: &TurnPrior, turn: u16, expected: f64) {
        let p = prior.p(turn).value();
        assert!((p - expected).abs() < 1e-6, "turn {turn}: {p} {expected}");
    }

    #[test]
    fn it_begins_at_its_base_and_goes_to_the_share_of_each_turn() {
        let mut prior = TurnPrior::new();
        check(&prior, 1, 0.5);
        check(&TurnPrior { base: 0.8, ..TurnPrior::new() }, 7, 0.8);
        for round in 0..10_000 {
            prior.observe(1, round % 4 != 0);
            prior.observe(2, round % 4 == 0);
        }
        assert!((prior.p(1).value() - 0.75).abs() < 1e-3);
        assert!((prior.p(2).value() - 0.25).abs() < 1e-3);
        // A turn that was never seen has the overall share.
        assert!((prior.p(9).value() - 0.5).abs() < 1e-3);
    }

    /// By hand: overall (3 + 5) / (4 + 10) = 4/7; turn 1 (3 + 40/7) / (4 + 10).
    #[test]
    fn few_observations_are_drawn_to_the_rest() {
        let mut prior = TurnPrior::new();
        for continued in [true, true, true, false] {
            prior.observe(1, continued);
        }
        check(&prior, 1, (3.0 + 40.0 / 7.0) / 14.0);
        check(&prior, 2, 4.0 / 7.0);
    }

    #[test]
    fn late_turns_share_a_cell_and_turn_0_is_the_first() {
        let mut prior = TurnPrior::new();
        for _ in 0..1000 {
            prior.observe(u16::MAX, true);
            prior.observe(0, false);
        }
        assert_eq!(prior.p(20), prior.p(4000));
        assert_eq!(prior.p(0), prior.p(1));
        assert!(prior.p(20).value() > 0.98 && prior.p(1).value() < 0.02);
    }

    #[test]
    fn one_that_forgets_follows_a_change() {
        let mut lasting = TurnPrior::new();
        let mut forgetting = TurnPrior::new().forgetting(100.0);
        for round in 0..2000 {
            lasting.observe(1, round < 1000);
            forgetting.observe(1, round < 1000);
        }
        assert!((lasting.p(1).value() - 0.5).abs() < 0.01);
        assert!(forgetting.p(1).value() < 0.05);
        // 100 / ln 2 is the sum of all weights.
        assert!((forgetting.weight() - 100.0 / 2f64.ln()).abs() < 1.0);
    }
}
