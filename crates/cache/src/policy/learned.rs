//! LPC (learned prefix caching): blocks of the conversation least likely to go on go first.
//!
//! A model says with which probability p another request of the conversation follows. Silence
//! speaks against it: with exponential gaps of mean `interval`, the odds `p / (1 - p)` fall by
//! `exp(-age / interval)`. So at any time `log-odds now = log-odds(p) - (now - t) / interval`,
//! and `now` is the same for all: the order is that of
//!
//! ```text
//! key = log-odds(p) + t / interval        smallest first, then least recently released
//! ```
//!
//! which is set at release and never changes. The authors re-evaluate p' of every block each 10 s;
//! on times rounded to that tick both evict the same blocks (`tests/learned.rs`).
//!
//! A block that conversations share takes `p := max(p' now, p of the newcomer)`, `t := now`, which
//! is `key := max(key, key of the newcomer)`: log-odds keep the order of probabilities, and adding
//! `now / interval` to both turns the log-odds now into keys.
//!
//! Source: Yang, Li, Li, Lloyd, "Learned Prefix Caching for Efficient LLM Inference",
//! NeurIPS 2025; p clamped to [1e-6, 1 - 1e-6] and a mean gap of 100 s as there.
//!
//! Differs: the maximum is taken over *different* conversations only. A block that one
//! conversation alone has used takes that conversation's newest prediction; else an earlier
//! turn's hope would outlive the news that the conversation has ended. [`Pooling::Literal`] takes
//! the maximum always. A request whose conversation is not known counts as one of its own.
//! A request without a prediction counts as even, so without predictions this is LRU.
//!
//! Invariants: time never runs backwards (a release that tells an earlier time than one before
//! counts as at that one's); a block that was never released goes before all that were.
//!
//! When not to use it: where the predictions are no better than chance, it is LRU with noise.

use headstart_core::{Access, BlockId, Nanos, Probability, SessionId};

use super::keyed::{KeyedPolicy, Priority};
use super::options::{PolicyError, SpecOptions};
use crate::queues::{ordered, wide_key};
use crate::recency::Recency;

/// Probabilities are clamped to this distance from 0 and 1, as published.
const MARGIN: f64 = 1e-6;

/// Marks a block that has not been released yet.
const NOBODY: u64 = u64::MAX;

/// Users of a block: several conversations, or one that has no name.
const SEVERAL: u64 = u64::MAX - 1;

/// Key, in the order of its bits, then recency.
type LpcKey = [u32; 4];

/// Options of LPC: the decay of predictions over time, and their pooling in shared blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LpcOptions {
    /// Mean time between two turns of a conversation, seconds, above 0; `None` to leave time
    /// out (an ablation: p as predicted, however long ago).
    pub interval_s: Option<f64>,
    /// Rule for the prediction of a block that is used again.
    pub pooling: Pooling,
}

/// Rule for the prediction of a block that is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The newest prediction of its only conversation, or the maximum over several.
    ByConversation,
    /// The maximum always, as published.
    Literal,
}

impl LpcOptions {
    /// Mean time between two turns, seconds, as published (a scale of 0.01 /s).
    pub const INTERVAL_S: f64 = 100.0;

    /// Reads `interval=SECONDS`, `no-decay` and `literal-max`.
    pub(super) fn read(options: &mut SpecOptions<'_>) -> Result<Self, PolicyError> {
        let mean_s = options.positive("interval", Self::INTERVAL_S)?;
        Ok(Self {
            interval_s: (!options.flag("no-decay")).then_some(mean_s),
            pooling: if options.flag("literal-max") {
                Pooling::Literal
            } else {
                Pooling::ByConversation
            },
        })
    }
}

impl Default for LpcOptions {
    fn default() -> Self {
        Self { interval_s: Some(Self::INTERVAL_S), pooling: Pooling::ByConversation }
    }
}

/// Least likely to go on.
pub type Lpc = KeyedPolicy<LpcOrder>;

/// The order of [`Lpc`].
#[derive(Debug)]
pub struct LpcOrder {
    options: LpcOptions,
    /// The latest time told.
    now: Nanos,
    /// Per slot: its key, as bits in the key's order; 0, before all, while never released.
    keys: Vec<u64>,
    /// Per slot: the one conversation that has used it, [`NOBODY`] or [`SEVERAL`].
    users: Vec<u64>,
    recency: Recency,
}

impl Lpc {
    /// For a cache of `capacity` slots.
    #[must_use]
    pub fn new(capacity: usize, options: LpcOptions) -> Self {
        let order = LpcOrder {
            options,
            now: Nanos(0),
            keys: vec![0; capacity],
            users: vec![NOBODY; capacity],
            recency: Recency::new(capacity),
        };
        Self::over(capacity, order)
    }
}

impl LpcOrder {
    /// The key of a use now.
    fn key_now(&self, p_continue: Option<Probability>) -> f64 {
        let odds = p_continue.unwrap_or(Probability::EVEN).log_odds(MARGIN);
        let elapsed_s = self.now.0 as f64 / 1e9;
        odds + self.options.interval_s.map_or(0.0, |mean| elapsed_s / mean)
    }
}

impl Priority for LpcOrder {
    type Key = LpcKey;

    fn insert(&mut self, block: BlockId) {
        self.keys[block.index()] = 0;
        self.users[block.index()] = NOBODY;
        self.recency.forget(block);
    }

    fn release(&mut self, blocks: &[BlockId], access: &Access) {
        // A clock that steps back must not make a newer use look older.
        self.now = self.now.max(access.now);
        self.recency.release(blocks);
        let key = ordered(self.key_now(access.p_continue));
        let user = named(access.session);
        for block in blocks.iter().map(|block| block.index()) {
            let (old, users) = (&mut self.keys[block], &mut self.users[block]);
            // `SEVERAL` is also a conversation without a name; two of these need not be the same.
            let is_its_own = *users == user && user != SEVERAL;
            *old = match self.options.pooling {
                _ if *users == NOBODY => key,
                Pooling::ByConversation if is_its_own => key,
                Pooling::ByConversation | Pooling::Literal => key.max(*old),
            };
            // The users change after the key, which depends on those before.
            *users = match *users {
                NOBODY => user,
                same if same == user => user,
                _ => SEVERAL,
            };
        }
    }

    fn key(&self, block: BlockId) -> LpcKey {
        wide_key(self.keys[block.index()], self.recency.of(block))
    }
}

/// The conversation in eight bytes; one without a name, or with one of the two numbers that are
/// taken, is no one in particular.
fn named(session: Option<SessionId>) -> u64 {
    session.map_or(SEVERAL, |SessionId(number)| number.min(SEVERAL))
}

#[cfg(test)]
mod tests {
    use headstart_core::BlockHash;

    use super::super::Policy;
    use super::*;
    use headstart_core::Rng;

    const DAY_S: f64 = 86_400.0;

    /// A use of slot 0 or more: when (s), by whom, with which p (NaN for none).
    type Use = (u32, f64, u64, f64);

    /// Makes the uses in order and returns all slots, first to go first.
    fn order(options: LpcOptions, uses: &[Use]) -> Vec<u32> {
        let mut policy = Lpc::new(8, options);
        let mut known = Vec::new();
        for &(slot, seconds, session, p) in uses {
            let block = BlockId(slot);
            let access = Access {
                session: Some(SessionId(session)),
                p_continue: Probability::new(p),
                ..Access::at(Nanos::from_secs_f64(seconds))
            };
            if known.contains(&block) {
                policy.withdraw(block);
            } else {
                policy.insert(block, BlockHash::from_u64(0), &access);
                known.push(block);
            }
            policy.release(&[block], &access);
            policy.offer(block);
        }
        let mut order = Vec::new();
        while let Some(block) = policy.victim(Nanos(0), None) {
            policy.remove(block, BlockHash::from_u64(0));
            order.push(block.0);
        }
        order
    }

    fn check(uses: &[Use], expected: &[u32]) {
        assert_eq!(order(LpcOptions::default(), uses), expected, "{uses:?}");
    }

    #[test]
    fn the_least_likely_goes_first_and_silence_speaks_against() {
        check(&[(0, 0.0, 0, 0.9), (1, 0.0, 1, 0.2)], &[1, 0]);
        // The odds of 0.9 are 9, those of 0.5 are 1: equal after 100 s · ln 9, some 219.7 s.
        check(&[(0, 0.0, 0, 0.9), (1, 219.0, 1, 0.5)], &[1, 0]);
        check(&[(0, 0.0, 0, 0.9), (1, 220.5, 1, 0.5)], &[0, 1]);
        // A tie: the least recently released.
        check(&[(1, 5.0, 0, 0.7), (0, 5.0, 1, 0.7)], &[1, 0]);
    }

    #[test]
    fn what_no_model_should_say_is_taken_all_the_same() {
        let no_number = f64::NAN;
        assert_eq!(Probability::new(no_number), None);
        // Not a number is even; 0 and 1 are clamped, so that time still tells them apart.
        check(&[(0, 0.0, 0, 0.51), (1, 0.0, 1, no_number), (2, 0.0, 2, 0.49)], &[2, 1, 0]);
        check(&[(0, 0.0, 0, 1.0), (1, 1.0, 1, 1.0), (2, 2.0, 2, 0.0)], &[2, 0, 1]);
        // The log-odds of the clamped are 13.8 from even: 2,763 s of silence from 1 to 0.
        check(&[(0, 0.0, 0, 1.0), (1, 2_750.0, 1, 0.0)], &[1, 0]);
        check(&[(0, 0.0, 0, 1.0), (1, 2_775.0, 1, 0.0)], &[0, 1]);
        check(&[(0, 0.0, 0, 1.0), (1, 0.0, 1, 1e300)], &[0, 1]);
    }

    #[test]
    fn after_a_month_a_microsecond_still_counts() {
        let month_s = 30.0 * DAY_S;
        check(
            &[
                (0, 0.0, 0, 1.0),
                (1, month_s, 1, 0.3),
                (2, month_s + 1e-6, 2, 0.3),
                (3, month_s + 2e-6, 3, 0.3),
            ],
            &[0, 1, 2, 3],
        );
    }

    #[test]
    fn a_conversation_replaces_its_own_prediction_and_strangers_take_the_maximum() {
        // Slot 0 hoped, then its conversation ends; slot 1 is in between.
        check(&[(0, 0.0, 0, 0.9), (1, 0.0, 1, 0.5), (0, 1.0, 0, 0.1)], &[0, 1]);
        // Another conversation's end leaves the hope, as the published reading does always.
        let shared = [(0, 0.0, 0, 0.9), (1, 0.0, 1, 0.5), (0, 1.0, 2, 0.1)];
        check(&shared, &[1, 0]);
        let literal = LpcOptions { pooling: Pooling::Literal, ..LpcOptions::default() };
        let own = [(0, 0.0, 0, 0.9), (1, 0.0, 1, 0.5), (0, 1.0, 0, 0.1)];
        assert_eq!(order(literal, &own), [1, 0]);
        // Once shared, the first one's news no longer replaces.
        check(&[shared[0], shared[1], shared[2], (0, 2.0, 0, 0.1)], &[1, 0]);
        // Two requests without a conversation are not known to be of the same one.
        for taken in [NOBODY, SEVERAL] {
            check(&[(0, 0.0, taken, 0.9), (1, 0.0, 1, 0.5), (0, 1.0, taken, 0.1)], &[1, 0]);
        }
    }

    #[test]
    fn pooling_is_the_maximum_of_the_probabilities_now() {
        let mut rng = Rng::new(4);
        for _ in 0..2_000 {
            let [p, other] = [0; 2].map(|_| 0.05 + 0.9 * rng.next_f64());
            let age_s = 200.0 * rng.next_f64();
            let faded = (-age_s / LpcOptions::INTERVAL_S).exp();
            let p_now = p * faded / (p * faded + 1.0 - p);
            let pooled = p_now.max(other);
            let shared = [(0, 0.0, 0, p), (0, age_s, 1, other)];
            check(&[shared[0], shared[1], (1, age_s, 2, pooled - 1e-4)], &[1, 0]);
            check(&[shared[0], shared[1], (1, age_s, 2, pooled + 1e-4)], &[0, 1]);
        }
    }

    #[test]
    fn a_probability_falls_with_time_whatever_it_is() {
        let mut rng = Rng::new(5);
        for _ in 0..500 {
            let p = rng.next_f64();
            let seconds = 1e-3 + rng.next_f64() * DAY_S;
            check(&[(0, 1.0, 0, p), (1, 1.0 + seconds, 1, p)], &[0, 1]);
        }
    }

    #[test]
    fn without_decay_time_breaks_ties_only() {
        let options = LpcOptions { interval_s: None, ..LpcOptions::default() };
        let uses = [(0, 0.0, 0, 0.6), (1, 9e6, 1, 0.5), (2, 9e6, 2, 0.6)];
        assert_eq!(order(options, &uses), [1, 0, 2]);
    }

    #[test]
    fn bits_are_in_the_order_of_their_numbers() {
        let mut numbers = [0.0, 1.0, -1.0, 13.8, -13.8, 1e-300, -1e-300, 1e12, -1e12];
        numbers.sort_by(f64::total_cmp);
        let bits = numbers.map(ordered);
        assert!(bits.is_sorted() && bits[0] > 0, "{bits:?}");
    }
}
