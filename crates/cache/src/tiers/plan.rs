//! Load or recompute: which part of a stored prefix is worth fetching.
//!
//! ```text
//! 0 ──── device ──── d ───── compute ───── x ───── load ───── m ───── compute ───── n
//! ```
//!
//! Of the tokens that lower tiers hold behind what the device holds, those from `x` to `m` are
//! loaded while those before `x` are computed; the rest of the prompt follows when both are done:
//! `max(C(d, x), L(x, m)) + C(m, n)`. `x = d` is a plain load, `x = m` a plain computation, and the
//! best of all `x` and `m` is taken: the plan is worse than neither, but for this model's error.
//! The front is computed and the tail loaded, because a token costs more the deeper it stands.
//! What is predicted is not certain, and a step more costs what the model does not know: loading
//! must promise to be faster than computing by a few per cent, and so must both at once than
//! loading alone (`LEAST_GAIN`).
//!
//! Source: Jin et al., "Compute or load KV cache? Why not both?" (Cake), 2024: computing from the
//! front while loading from the end. Unlike there the meeting point is decided beforehand, from
//! measured speeds, and `m` as well, because a far tier may hold the end.

use headstart_core::EngineModel;
use headstart_core::cost::Work;

/// Share of the time by which a plan must be better than a simpler one: less is noise.
const LEAST_GAIN: f64 = 0.03;

/// Inputs of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Tokens that the device holds.
    pub device_tokens: usize,
    /// Runs of the units behind these, the nearest to the prompt's start first.
    pub runs: &'a [TierRun],
    /// Tokens of a unit.
    pub unit_tokens: usize,
    /// The first unit that is not wholly on the device.
    pub first_unit: usize,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// The engine's cost model.
    pub engine: &'a EngineModel,
    /// Other work of each step, beside this prompt.
    pub beside: Work,
}

/// When what a lower tier holds is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadWhen {
    /// As far as that is faster than computing it.
    #[default]
    Faster,
    /// Always, and waited for: what systems without such a model do.
    Always,
    /// Never.
    Never,
}

/// Consecutive units in one tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierRun {
    /// Number of units.
    pub units: usize,
    /// Seconds before the first of them can be there.
    pub start_s: f64,
    /// Seconds for each.
    pub unit_s: f64,
}

/// Units to load for a prompt, with the predicted times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Plan {
    /// The first unit to load.
    pub from: usize,
    /// The unit behind the last one to load; equal to `from` where nothing is loaded.
    pub to: usize,
    /// Seconds until what is loaded is there.
    pub load_s: f64,
    /// Seconds until the prompt is computed.
    pub total_s: f64,
    /// The same if nothing were loaded.
    pub computed_s: f64,
}

impl Plan {
    /// This one, unless a less simple one is clearly better.
    fn unless(self, other: Self) -> Self {
        if other.total_s < self.total_s * (1.0 - LEAST_GAIN) { other } else { self }
    }

    /// Whether the prompt is computed without loading anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.from == self.to
    }
}

/// A plan that loads whatever is there.
#[must_use]
pub(super) fn load_all(question: &Question<'_>) -> Plan {
    let units: usize = question.runs.iter().map(|run| run.units).sum();
    Plan {
        computed_s: question.compute_s(question.device_tokens, question.prompt_tokens),
        ..question.with(question.first_unit, question.first_unit + units)
    }
}

/// The best plan. O(runs · log(units) · steps).
#[must_use]
pub fn plan(question: &Question<'_>) -> Plan {
    best(question, |to| {
        let plain = question.with(question.first_unit, to);
        // Doing both at once must beat the plain load clearly.
        plain.unless(question.best_start(to))
    })
}

/// The best plan that loads from the first unit on, for an engine that cannot compute the front
/// while it loads. O(runs · steps).
#[must_use]
pub fn plan_front(question: &Question<'_>) -> Plan {
    best(question, |to| question.with(question.first_unit, to))
}

/// The best of loading nothing and of `load` up to the end of each run.
fn best(question: &Question<'_>, load: impl Fn(usize) -> Plan) -> Plan {
    let computed_s = question.compute_s(question.device_tokens, question.prompt_tokens);
    let nothing = Plan {
        from: question.first_unit,
        to: question.first_unit,
        load_s: 0.0,
        total_s: computed_s,
        computed_s,
    };
    let ends = question.runs.iter().scan(question.first_unit, |end, run| {
        *end += run.units;
        Some(*end)
    });
    let best =
        ends.map(load).reduce(|best, plan| if plan.total_s < best.total_s { plan } else { best });
    let best = best.map_or(nothing, |best| nothing.unless(best));
    Plan { computed_s, ..best }
}

impl Question<'_> {
    /// The best plan that loads up to unit `to`: computing more of the front takes longer, loading
    /// less of the tail shorter, and the best is where they meet.
    fn best_start(&self, to: usize) -> Plan {
        let (mut low, mut high) = (self.first_unit, to);
        while low < high {
            // The front's time rises with the start and the load's falls: they cross once.
            let middle = usize::midpoint(low, high);
            if self.front_s(middle) < self.load_s(middle, to) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        // The crossing lies between two units, and either may be the better start.
        let before = low.saturating_sub(1).max(self.first_unit);
        let (one, other) = (self.with(before, to), self.with(low, to));
        if one.total_s <= other.total_s { one } else { other }
    }

    /// Loading these units; `computed_s`, which is the same for all, is left to the caller.
    fn with(&self, from: usize, to: usize) -> Plan {
        let load_s = self.load_s(from, to);
        // The device may hold a part of the first unit, which is not recomputed.
        let end = (to * self.unit_tokens).max(self.device_tokens);
        let rest_s = self.compute_s(end, self.prompt_tokens);
        Plan { from, to, load_s, total_s: self.front_s(from).max(load_s) + rest_s, computed_s: 0.0 }
    }

    /// Computing what stands before unit `from`.
    fn front_s(&self, from: usize) -> f64 {
        let end = (from * self.unit_tokens).max(self.device_tokens);
        self.compute_s(self.device_tokens, end)
    }

    fn compute_s(&self, before: usize, end: usize) -> f64 {
        if end > before {
            self.engine.prefill_steps_s(before, end - before, self.beside)
        } else {
            0.0
        }
    }

    /// Loading units `from` to `to`: tiers work side by side, each through its own.
    fn load_s(&self, from: usize, to: usize) -> f64 {
        let mut first = self.first_unit;
        let mut longest: f64 = 0.0;
        for run in self.runs {
            let end = first + run.units;
            let units = end.min(to).saturating_sub(first.max(from));
            if units > 0 {
                longest = longest.max(run.start_s + units as f64 * run.unit_s);
            }
            first = end;
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::{CostModel, Rng};

    /// A token costs 1 ms, and a pair of a query and a key 1 µs.
    fn engine(pair_s: f64) -> EngineModel {
        EngineModel {
            cost: CostModel {
                overhead_s: 1e-6,
                weights_s: 0.0,
                token_s: 1e-3,
                pair_s,
                kv_token_s: 0.0,
                sequence_s: 0.0,
            },
            max_batched_tokens: 1 << 20,
            kv_tokens: 1 << 30,
            load_token_s: 0.0,
        }
    }

    fn question<'a>(runs: &'a [TierRun], engine: &'a EngineModel) -> Question<'a> {
        Question {
            device_tokens: 0,
            runs,
            unit_tokens: 64,
            first_unit: 0,
            prompt_tokens: 6_500,
            engine,
            beside: Work::default(),
        }
    }

    const fn run(units: usize, unit_s: f64) -> TierRun {
        TierRun { units, start_s: 0.0, unit_s }
    }

    #[test]
    fn a_fast_tier_is_loaded_and_a_slow_one_is_not() {
        let engine = engine(0.0);
        let fast = plan(&question(&[run(100, 1e-6)], &engine));
        assert_eq!((fast.from, fast.to), (0, 100));
        assert!((fast.total_s - 0.1001).abs() < 1e-3);
        let slow = plan(&question(&[run(100, 100.0)], &engine));
        assert!(slow.is_empty(), "{slow:?}");
        assert!((slow.total_s - 6.5).abs() < 1e-5);
    }

    #[test]
    fn a_tier_as_fast_as_computing_is_loaded_by_half() {
        let engine = engine(0.0);
        let plan = plan(&question(&[run(100, 0.064)], &engine));
        assert_eq!((plan.from, plan.to), (50, 100));
        assert!((plan.total_s - 3.3).abs() < 0.01);
    }

    #[test]
    fn a_far_end_is_left_where_it_is() {
        let engine = engine(0.0);
        let plan = plan(&question(&[run(50, 1e-3), run(50, 10.0)], &engine));
        assert_eq!((plan.from, plan.to), (0, 50));
    }

    #[test]
    fn depth_moves_the_meeting_point() {
        let flat = engine(0.0);
        let deep = engine(1e-6);
        let one = plan(&question(&[run(100, 0.08)], &flat));
        let other = plan(&question(&[run(100, 0.08)], &deep));
        assert!(other.from < one.from, "{one:?} {other:?}");
    }

    /// Against every pair of ends: within what a simpler plan may cost, twice.
    #[test]
    fn it_is_the_best_there_is() {
        let most = (1.0 - LEAST_GAIN).powi(2).recip();
        let mut rng = Rng::new(8);
        for _ in 0..400 {
            let engine = engine(rng.next_f64() * 2e-6);
            let runs: Vec<TierRun> = (0..1 + rng.below(3))
                .map(|_| TierRun {
                    units: 1 + rng.below(30),
                    start_s: rng.next_f64() * 0.2,
                    unit_s: rng.next_f64() * 0.2,
                })
                .collect();
            let units: usize = runs.iter().map(|run| run.units).sum();
            let device_tokens = rng.below(500);
            let first_unit = device_tokens / 64;
            let question = Question {
                device_tokens,
                runs: &runs,
                unit_tokens: 64,
                first_unit,
                prompt_tokens: (first_unit + units) * 64 + 1 + rng.below(1_000),
                engine: &engine,
                beside: Work::default(),
            };
            let found = plan(&question);
            let mut best = question.compute_s(device_tokens, question.prompt_tokens);
            let mut end = first_unit;
            for run in &runs {
                end += run.units;
                for from in first_unit..=end {
                    best = best.min(question.with(from, end).total_s);
                }
            }
            assert!(found.total_s <= best * most + 1e-9, "{found:?} {best} {question:?}");
        }
    }
}
