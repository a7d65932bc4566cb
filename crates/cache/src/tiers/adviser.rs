//! Load or recompute beside an engine that another program schedules: vLLM, through its plug-ins.
//!
//! That program loads a leading run of units before it computes anything behind them, so only the
//! length of the run is ours to choose. Both speeds are measured: the engine's from its steps, the
//! tier's from its jobs. A speed that has not been measured for a while is tried with few units.

use headstart_core::Nanos;
use headstart_core::cost::Work;
use headstart_core::cost::learned::LearnedCost;

use super::plan::{Question, TierRun, plan_front};

/// Bytes of the first load: enough that the bandwidth is seen, and not only the latency.
const FIRST_BYTES: usize = 512 << 10;

/// Age at which a measured speed is tried again, nanoseconds.
const STALE_NS: u64 = 30_000_000_000;

/// Most time that a trial may take, as a share of computing the prompt.
const TRIAL_SHARE: f64 = 0.1;

/// Weight of what was measured before at each new load.
const KEEP: f64 = 0.8;

/// Steps with prompts that do not count: an engine's first ones load and compile code.
const WARM_UP: u32 = 2;

/// Fewest tokens of a step that counts.
const FEWEST_TOKENS: usize = 64;

/// Times the expected duration as which a slower step or load counts: one that had to wait for
/// something else must not make computing or loading look slow for long.
const MOST_SURPRISE: f64 = 3.0;

/// Most tokens of a step. Steps cost little beside their tokens, so the engine's own limit, which
/// plug-ins do not hear of, hardly matters.
const STEP_TOKENS: usize = 8192;

/// A prompt of which a lower tier has a run, of one unit at least.
#[derive(Clone, Copy, Debug)]
pub struct StoredRun {
    /// Tokens before the run: the engine or a faster tier has their keys and values.
    pub before_tokens: usize,
    /// Units of the run.
    pub units: usize,
    /// Tokens of a unit.
    pub unit_tokens: usize,
    /// Bytes of a unit.
    pub unit_bytes: usize,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Bytes that the tier loads before it begins with these.
    pub waiting_bytes: usize,
}

/// The part of a run to load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advice {
    /// Units from its front; the rest of the prompt is computed.
    pub units: usize,
    /// Predicted seconds until they are there; `None` before the first load.
    pub load_s: Option<f64>,
    /// Predicted seconds that this saves; `None` where one of the speeds is not known.
    pub gain_s: Option<f64>,
}

/// Measured speeds of an engine and of a tier below it, and the choice between them.
#[derive(Clone, Debug, Default)]
pub struct LoadAdviser {
    engine: LearnedCost,
    num_steps: u32,
    tier: Option<MeasuredTier>,
}

/// Sums over the loads that are remembered. A load's bytes are there all at once, so its latency
/// and its rate cannot be told apart as in [`super::speed`].
#[derive(Clone, Copy, Debug, Default)]
struct MeasuredTier {
    bytes: f64,
    busy_s: f64,
    /// Of a load, beside the tier's own time: the scheduler looks only once a step.
    delay_s: f64,
    at: Nanos,
}

impl LoadAdviser {
    /// The engine computed `entries` in one step: tokens before, and new ones.
    pub fn observe_step(&mut self, entries: &[(usize, usize)], seconds: f64) {
        let tokens = entries.iter().map(|&(_, new)| new).sum();
        if tokens < FEWEST_TOKENS {
            return;
        }
        self.num_steps = self.num_steps.saturating_add(1);
        if self.num_steps <= WARM_UP {
            return;
        }
        let expected_s = self.engine.engine(STEP_TOKENS, usize::MAX).map(|engine| {
            let each = entries.iter();
            each.map(|&(before, new)| engine.prefill_steps_s(before, new, Work::default())).sum()
        });
        let most_s: f64 = expected_s.map_or(f64::INFINITY, |seconds: f64| MOST_SURPRISE * seconds);
        let pairs = entries.iter().map(|&(before, new)| {
            let (before, new) = (before as u128, new as u128);
            new * before + new * (new + 1) / 2
        });
        let work = Work { tokens, ..Work::default() };
        self.engine.observe(work, pairs.sum(), seconds.min(most_s));
    }

    /// The tier loaded `bytes`, and was busy with them for `seconds`.
    pub fn observe_load(&mut self, bytes: usize, seconds: f64, now: Nanos) {
        if bytes == 0 || seconds <= 0.0 {
            return;
        }
        // What a trial finds replaces what is too old to be believed.
        let keep = if self.is_stale(now) { 0.0 } else { KEEP };
        let tier = self.tier.get_or_insert_default();
        tier.bytes = tier.bytes * keep + bytes as f64;
        tier.busy_s = tier.busy_s * keep + seconds;
        tier.at = now;
    }

    /// A load that was expected to take `expected_s` was there after `seconds`.
    pub fn observe_wait(&mut self, expected_s: f64, seconds: f64) {
        if let Some(tier) = &mut self.tier {
            // A prompt that waits for device memory would wait without a load, too.
            let seconds = seconds.min(MOST_SURPRISE * expected_s);
            let found = (tier.delay_s + seconds - expected_s).max(0.0);
            tier.delay_s = tier.delay_s * KEEP + found * (1.0 - KEEP);
        }
    }

    /// Decides how much of a run is loaded.
    #[must_use]
    pub fn advise(&self, run: &StoredRun, now: Nanos) -> Advice {
        let Some(tier) = &self.tier else {
            let units = FIRST_BYTES / run.unit_bytes.max(1);
            return Advice { units: units.clamp(1, run.units), load_s: None, gain_s: None };
        };
        let unit_s = run.unit_bytes as f64 * tier.byte_s();
        let start_s = tier.delay_s + run.waiting_bytes as f64 * tier.byte_s();
        let advice = |units, gain_s| {
            let load_s = start_s + units as f64 * unit_s;
            Advice { units, load_s: Some(load_s), gain_s }
        };
        let Some(engine) = self.engine.engine(STEP_TOKENS, usize::MAX) else {
            return advice(run.units, None);
        };
        let first_unit = run.before_tokens / run.unit_tokens;
        let plan = plan_front(&Question {
            device_tokens: run.before_tokens,
            runs: &[TierRun { units: run.units, start_s, unit_s }],
            unit_tokens: run.unit_tokens,
            first_unit,
            prompt_tokens: run.prompt_tokens,
            engine: &engine,
            beside: Work::default(),
        });
        if plan.is_empty() && self.is_stale(now) && run.waiting_bytes == 0 {
            let units = (plan.computed_s * TRIAL_SHARE / unit_s) as usize;
            return advice(units.clamp(1, run.units), None);
        }
        advice(plan.to - first_unit, Some(plan.computed_s - plan.total_s))
    }

    fn is_stale(&self, now: Nanos) -> bool {
        self.tier.is_some_and(|tier| now.0.saturating_sub(tier.at.0) >= STALE_NS)
    }
}

impl MeasuredTier {
    fn byte_s(&self) -> f64 {
        self.busy_s / self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT_BYTES: usize = 64 * 1024;
    const UNIT_TOKENS: usize = 32;

    fn run(units: usize) -> StoredRun {
        StoredRun {
            before_tokens: 0,
            units,
            unit_tokens: UNIT_TOKENS,
            unit_bytes: UNIT_BYTES,
            prompt_tokens: units * UNIT_TOKENS + 16,
            waiting_bytes: 0,
        }
    }

    fn seconds(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    /// Beside an engine that computes a unit in `unit_s`.
    fn adviser(unit_s: f64) -> LoadAdviser {
        let mut adviser = LoadAdviser::default();
        for _ in 0..WARM_UP {
            adviser.observe_step(&[(0, 1_000)], 10.0);
        }
        for units in [4, 16, 64] {
            let tokens = units * UNIT_TOKENS;
            adviser.observe_step(&[(0, tokens)], units as f64 * unit_s);
        }
        adviser
    }

    #[test]
    fn the_faster_of_loading_and_computing_is_chosen() {
        for (load_s, expected) in [(0.5e-3, 60), (2e-3, 0)] {
            let mut adviser = adviser(1e-3);
            adviser.observe_load(10 * UNIT_BYTES, 10.0 * load_s, seconds(1));
            assert_eq!(adviser.advise(&run(60), seconds(2)).units, expected, "{load_s}");
        }
    }

    #[test]
    fn a_line_that_is_busy_makes_loading_slower() {
        let mut adviser = adviser(1e-3);
        adviser.observe_load(10 * UNIT_BYTES, 10.0 * 0.5e-3, seconds(1));
        let waiting = |units| StoredRun { waiting_bytes: units * UNIT_BYTES, ..run(60) };
        assert_eq!(adviser.advise(&waiting(20), seconds(2)).units, 60);
        assert_eq!(adviser.advise(&waiting(100), seconds(2)).units, 0);
    }

    #[test]
    fn waits_beside_the_transfer_count() {
        let mut adviser = adviser(1e-3);
        adviser.observe_load(10 * UNIT_BYTES, 10.0 * 0.5e-3, seconds(1));
        for _ in 0..30 {
            let expected = adviser.advise(&run(4), seconds(2)).load_s.expect("a prediction");
            adviser.observe_wait(expected, 4.0 * 0.5e-3 + 10e-3);
        }
        // 10 ms are lost on 4 units, and won on 60.
        assert_eq!(adviser.advise(&run(4), seconds(2)).units, 0);
        assert_eq!(adviser.advise(&run(60), seconds(2)).units, 60);
    }

    #[test]
    fn a_step_that_had_to_wait_counts_little() {
        let mut adviser = adviser(1e-3);
        adviser.observe_load(10 * UNIT_BYTES, 10.0 * 2e-3, seconds(1));
        for _ in 0..20 {
            adviser.observe_step(&[(0, 60 * UNIT_TOKENS)], 60e-3);
        }
        adviser.observe_step(&[(0, 60 * UNIT_TOKENS)], 60.0);
        assert_eq!(adviser.advise(&run(60), seconds(2)).units, 0);
        // An engine that has become slower is believed.
        for _ in 0..200 {
            adviser.observe_step(&[(0, 60 * UNIT_TOKENS)], 0.3);
        }
        assert_eq!(adviser.advise(&run(60), seconds(2)).units, 60);
    }

    #[test]
    fn first_loads_and_trials_are_small() {
        let mut adviser = adviser(1e-3);
        assert_eq!(adviser.advise(&run(60), seconds(1)).units, 8);
        adviser.observe_load(UNIT_BYTES, 5e-3, seconds(1));
        assert_eq!(adviser.advise(&run(60), seconds(30)).units, 0);
        // A tenth of 60 ms has room for one unit of 5 ms.
        assert_eq!(adviser.advise(&run(60), seconds(31)).units, 1);
        let waiting = StoredRun { waiting_bytes: 1, ..run(60) };
        assert_eq!(adviser.advise(&waiting, seconds(31)).units, 0);
        // The disk is fast again: what was measured before is forgotten.
        adviser.observe_load(UNIT_BYTES, 0.1e-3, seconds(31));
        assert_eq!(adviser.advise(&run(60), seconds(32)).units, 60);
    }

    #[test]
    fn an_engine_that_has_computed_nothing_loads() {
        let mut adviser = LoadAdviser::default();
        adviser.observe_load(UNIT_BYTES, 5e-3, seconds(1));
        assert_eq!(adviser.advise(&run(60), seconds(2)).units, 60);
        // Loads without bytes or time teach nothing.
        let before = format!("{adviser:?}");
        adviser.observe_load(0, 1.0, seconds(3));
        adviser.observe_load(1, 0.0, seconds(3));
        assert_eq!(format!("{adviser:?}"), before);
    }
}
