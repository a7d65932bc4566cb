//! Classes of conversations: how they behave, and what they are called.
//!
//! The two are apart on purpose. Behaviour may move from class to class in the course of a run,
//! and labels may lie; what a policy sees is only the label.

use headstart_core::{Nanos, Rng};

use super::conversations::{Conversations, Labels, Step};
use super::draw::{chance, weighted};
use super::setting::StreamSetting;

/// Turns that [`Labels::Swapped`] reverses.
const SWAPPED_TURNS: u16 = 6;

/// Largest random turn.
const RANDOM_TURN_MAX: u16 = 64;

/// The behaviour of each (type, turn) class over the run.
#[derive(Clone, Debug)]
pub(super) struct Behaviours {
    /// The steps of all types, one type after the other.
    steps: Vec<Step>,
    /// Index in `steps` of each type's first step, and the end of the last type's.
    starts: Vec<usize>,
    /// When behaviours move, in order.
    changes: Vec<Nanos>,
    /// By period: whose behaviour each class has.
    moves: Vec<Vec<usize>>,
}

impl Behaviours {
    pub(super) fn new(config: &Conversations, setting: &StreamSetting) -> Self {
        let mut rng = Rng::new(setting.seeds[1]);
        let mut starts = vec![0];
        let mut steps = Vec::new();
        for kind in &config.types {
            steps.extend_from_slice(&kind.steps);
            starts.push(steps.len());
        }
        let mut holder: Vec<usize> = (0..steps.len()).collect();
        let mut moves = vec![holder.clone()];
        for _ in &config.changes_at {
            // From the holders of the period before, so changes add up.
            exchange(&mut holder, &mut rng);
            moves.push(holder.clone());
        }
        let at = |fraction: &f64| setting.at(*fraction);
        Self { steps, starts, changes: config.changes_at.iter().map(at).collect(), moves }
    }

    /// Returns the behaviour at `now` of a conversation of type `kind` after its `turn`-th turn.
    pub(super) fn of(&self, now: Nanos, kind: usize, turn: u16) -> Step {
        let (start, end) = (self.starts[kind], self.starts[kind + 1]);
        // The last step of a type holds for all later turns.
        let class = (start + usize::from(turn.max(1)) - 1).min(end - 1);
        let period = self.changes.partition_point(|&change| change <= now);
        self.steps[self.moves[period][class]]
    }
}

/// One cycle through all of them (Sattolo): none stays where it was.
fn exchange(holders: &mut [usize], rng: &mut Rng) {
    for last in (1..holders.len()).rev() {
        // Below `last` and never `last` itself, which makes the permutation one cycle.
        holders.swap(last, rng.below(last));
    }
}

/// Names the class of each request, truly or not.
#[derive(Clone, Debug)]
pub(super) struct Labeller {
    labels: Labels,
    /// The trace's indices of the types.
    types: Vec<u16>,
    weights: Vec<f64>,
    swap: Nanos,
    /// Its own, so that lying labels change nothing but labels.
    rng: Rng,
}

impl Labeller {
    pub(super) fn new(config: &Conversations, setting: &mut StreamSetting) -> Self {
        let names = config.types.iter().map(|kind| kind.name.as_str());
        Self {
            labels: config.labels,
            types: names.map(|name| setting.info.type_index(name)).collect(),
            weights: config.types.iter().map(|kind| kind.weight).collect(),
            swap: match config.labels {
                Labels::Swapped { at } => setting.at(at),
                Labels::True | Labels::Random => Nanos(u64::MAX),
            },
            rng: Rng::new(setting.seeds[2]),
        }
    }

    /// Returns the type and turn that a request of type `kind` and turn `turn` reports at `now`.
    pub(super) fn label(&mut self, now: Nanos, kind: usize, turn: u16) -> (u16, u16) {
        match self.labels {
            Labels::Random => self.random(),
            Labels::Swapped { .. } if now >= self.swap => {
                let turn = SWAPPED_TURNS + 1 - turn.clamp(1, SWAPPED_TURNS);
                (self.types[self.types.len() - 1 - kind], turn)
            }
            Labels::True | Labels::Swapped { .. } => (self.types[kind], turn),
        }
    }

    fn random(&mut self) -> (u16, u16) {
        let kind = weighted(&mut self.rng, self.weights.iter().copied());
        let mut turn = 1;
        // A chance of 0.6 gives 2.5 turns on average.
        while turn < RANDOM_TURN_MAX && chance(&mut self.rng, 0.6) {
            turn += 1;
        }
        (self.types[kind], turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_leaves_nothing_where_it_was() {
        for seed in 0..50 {
            let mut holders: Vec<usize> = (0..9).collect();
            exchange(&mut holders, &mut Rng::new(seed));
            assert!(holders.iter().enumerate().all(|(at, &from)| at != from));
            holders.sort_unstable();
            assert_eq!(holders, (0..9).collect::<Vec<_>>());
        }
    }
}
