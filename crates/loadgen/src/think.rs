//! Think times of users, and the start times of their conversations.
//!
//! ```text
//! conversation   answer ──── think ──── next request        drawn per (seed, conversation, turn)
//!
//! a pre-run, answers taken as immediate, two slots:
//! slot 1   ├─c0──────────┤├─c2─┤├─c4────── …                a conversation begins when a slot
//! slot 2      ├─c1─┤├─c3────────────┤├─c5─ …                is free, in file order
//! ```
//!
//! A draw depends on nothing that a server does, so two servers get the same users.
//!
//! Source of the pre-run: the workload of Yang, Li, Li, Lloyd, "Learned Prefix Caching", NeurIPS
//! 2025. The slots there open all at once; here one after another, within a ramp, because the
//! burst of a common start would be no part of any steady load.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::str::FromStr;
use std::time::Duration;

use headstart_core::Rng;
use headstart_trace::synth::draw::normal;

/// Longest think time, seconds: a day. A drawn one beyond it is cut, a fixed one refused.
const THINK_MAX_S: f64 = 86_400.0;

/// Largest spread of a log-normal: beyond it nearly every draw is nothing or a day.
const SIGMA_MAX: f64 = 10.0;

/// Time from the end of an answer to the user's next request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Think {
    /// The next request goes out at once.
    #[default]
    None,
    /// Always as long.
    Fixed {
        /// Seconds.
        seconds: f64,
    },
    /// Exponential.
    Exponential {
        /// Seconds.
        mean_s: f64,
    },
    /// Log-normal, of seconds.
    LogNormal {
        /// Mean of the logarithm.
        mu: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

impl Think {
    /// The think time before request `turn` (from 1) of conversation number `conversation` (from
    /// 0); nothing before the first. At most a day.
    #[must_use]
    pub fn draw(&self, seed: u64, conversation: usize, turn: usize) -> Duration {
        if turn <= 1 {
            return Duration::ZERO;
        }
        // Chained, so that neighbouring numbers share nothing.
        let of_conversation = Rng::new(seed).next_u64() ^ conversation as u64;
        let mut rng = Rng::new(Rng::new(of_conversation).next_u64() ^ turn as u64);
        let seconds = match *self {
            Self::None => 0.0,
            Self::Fixed { seconds } => seconds,
            // `1 - u` lies in (0, 1], so the logarithm is finite.
            Self::Exponential { mean_s } => -mean_s * (1.0 - rng.next_f64()).ln(),
            Self::LogNormal { mu, sigma } => (mu + sigma * normal(&mut rng)).exp(),
        };
        // A log-normal draw can exceed all that a `Duration` holds; the limit also prevents that
        // panic.
        Duration::from_secs_f64(seconds.min(THINK_MAX_S))
    }

    /// The mean of the distribution, seconds.
    #[must_use]
    pub fn mean_s(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Fixed { seconds } => seconds,
            Self::Exponential { mean_s } => mean_s,
            Self::LogNormal { mu, sigma } => (mu + sigma * sigma / 2.0).exp(),
        }
    }
}

/// `none`, `fixed:SECONDS`, `exp:MEAN_SECONDS` or `lognormal:MU,SIGMA`.
impl FromStr for Think {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) = text.split_once(':').unwrap_or((text, ""));
        let seconds = || number(values, 0.0, THINK_MAX_S);
        let think = match name {
            "none" if values.is_empty() => Some(Self::None),
            "fixed" => seconds().map(|seconds| Self::Fixed { seconds }),
            "exp" => seconds().map(|mean_s| Self::Exponential { mean_s }),
            "lognormal" => values.split_once(',').and_then(|(mu, sigma)| {
                let most = THINK_MAX_S.ln();
                let (mu, sigma) = (number(mu, -most, most)?, number(sigma, 0.0, SIGMA_MAX)?);
                Some(Self::LogNormal { mu, sigma })
            }),
            _ => None,
        };
        think.ok_or_else(|| {
            format!(
                "`{text}` is no think time; expected none, fixed:SECONDS, exp:MEAN_SECONDS (up to \
                 a day) or lognormal:MU,SIGMA (of the logarithm of seconds, sigma up to 10)"
            )
        })
    }
}

/// When each conversation begins, in order, such that with immediate answers at most `slots` of
/// them are under way at once. `spans` are their think times together; slot `i` opens at
/// `ramp · i / slots`.
///
/// # Panics
/// When `slots` is 0.
#[must_use]
pub fn spaced_starts(spans: &[Duration], slots: usize, ramp: Duration) -> Vec<Duration> {
    assert!(slots > 0, "nothing begins without a slot");
    let opens = |slot: usize| Reverse(ramp.mul_f64(slot as f64 / slots as f64));
    let mut free: BinaryHeap<_> = (0..slots).map(opens).collect();
    let begin = |span: &Duration| {
        // Each conversation takes one slot and returns it, so the heap never runs empty.
        let Reverse(start) = free.pop().expect("as many slots as before");
        free.push(Reverse(start + *span));
        start
    };
    spans.iter().map(begin).collect()
}

fn number(text: &str, least: f64, most: f64) -> Option<f64> {
    let number = text.parse().ok()?;
    // NaN lies in no range, so it is refused as well.
    (least..=most).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean of many draws of `spec`, against the distribution's and against `mean_s`.
    fn check_mean(spec: &str, mean_s: f64) {
        const DRAWS: usize = 200_000;
        let think: Think = spec.parse().expect(spec);
        let draws = (0..DRAWS).map(|i| think.draw(7, i / 10, 2 + i % 10).as_secs_f64());
        let got = draws.sum::<f64>() / DRAWS as f64;
        assert!((got - mean_s).abs() <= 0.02 * mean_s, "{spec}: {got}");
        assert!((think.mean_s() - mean_s).abs() < 1e-3 * mean_s + 1e-12);
    }

    #[test]
    fn draws_have_the_mean_that_was_asked_for() {
        check_mean("none", 0.0);
        check_mean("fixed:2.5", 2.5);
        check_mean("exp:4", 4.0);
        check_mean("lognormal:1,0.5", 3.0802);
        check_mean("lognormal:0,0", 1.0);
    }

    #[test]
    fn a_draw_belongs_to_its_seed_conversation_and_turn() {
        let think = Think::Exponential { mean_s: 1.0 };
        assert_eq!(think.draw(1, 2, 3), think.draw(1, 2, 3));
        assert_eq!(think.draw(1, 2, 1), Duration::ZERO);
        let mut all: Vec<_> = (0..1000)
            .map(|i| think.draw(i / 100, i as usize / 10 % 10, 2 + i as usize % 10))
            .collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 1000);
    }

    fn check_refused(spec: &str) {
        let error = spec.parse::<Think>().expect_err(spec);
        assert!(error.contains("exp:MEAN_SECONDS"), "{error}");
    }

    #[test]
    fn what_is_no_think_time_is_refused() {
        for spec in ["", "exp", "exp:", "exp:-1", "exp:nan", "exp:inf", "none:1"] {
            check_refused(spec);
        }
        for spec in ["fixed:1e9", "lognormal:1", "lognormal:1,-1", "gamma:1"] {
            check_refused(spec);
        }
    }

    /// The slowest reading of the rule: who is under way is counted at each start.
    #[test]
    fn at_most_as_many_as_there_are_slots_are_under_way() {
        let mut rng = Rng::new(3);
        for slots in [1, 2, 7, 40] {
            let think = Think::Exponential { mean_s: 3.0 };
            let turns = (0..500).map(|_| rng.below(5));
            let spans: Vec<Duration> = turns
                .enumerate()
                .map(|(i, turns)| (2..2 + turns).map(|turn| think.draw(1, i, turn)).sum())
                .collect();
            let ramp = Duration::from_secs(3);
            let starts = spaced_starts(&spans, slots, ramp);
            assert!(starts.is_sorted(), "conversations begin in order");
            let mut most = 0;
            for (number, &now) in starts.iter().enumerate() {
                let before = starts[..=number].iter().zip(&spans);
                let active = before.filter(|&(&start, &span)| start + span > now).count();
                most = most.max(active);
            }
            assert_eq!(most, slots, "and no slot is left empty");
            assert!(starts[slots - 1] <= ramp);
        }
    }
}
