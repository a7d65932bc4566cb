//! Results of the reuse probe.

use std::fmt::Write as _;

use headstart_core::stats::Summary;
use serde::Serialize;

/// Invalid rounds shown in the text; most often all have one reason. JSON has all.
const INVALID_SHOWN: usize = 5;

/// Order of a round's two measured requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeOrder {
    /// The one that finds its prefix.
    CachedFirst,
    /// The one that finds nothing.
    UncachedFirst,
}

impl ProbeOrder {
    /// Alternates, so that neither kind always comes first.
    pub(super) fn of_round(number: usize) -> Self {
        if number.is_multiple_of(2) { Self::CachedFirst } else { Self::UncachedFirst }
    }
}

/// One valid pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeRound {
    /// Order of the two requests.
    pub order: ProbeOrder,
    /// Length of the prompt of both, tokens.
    pub prompt_tokens: u32,
    /// Of these, found by the cached one.
    pub cached_tokens: u32,
    /// TTFT with the prefix in the cache, milliseconds.
    pub ttft_ms_cached: f64,
    /// TTFT without, milliseconds.
    pub ttft_ms_uncached: f64,
}

/// A round that enters no figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InvalidRound {
    /// Number of the round, from 1.
    pub round: usize,
    /// The fault that made it invalid.
    pub reason: String,
}

/// The figures of all valid rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeReport {
    /// The valid rounds, in order.
    pub rounds: Vec<ProbeRound>,
    /// The others.
    pub invalid: Vec<InvalidRound>,
    /// Mean length of the prompts, tokens.
    pub prompt_tokens_mean: f64,
    /// Mean of the tokens found by the cached requests.
    pub cached_tokens_mean: f64,
    /// Median TTFT with the prefix in the cache, milliseconds.
    pub ttft_ms_cached_p50: f64,
    /// Median TTFT without, milliseconds.
    pub ttft_ms_uncached_p50: f64,
    /// The first median / the second; `None` without a valid round.
    pub ttft_ratio: Option<f64>,
}

impl ProbeReport {
    /// The figures of `rounds`, in order; `Err` holds why a round is invalid.
    #[must_use]
    pub fn of(rounds: &[Result<ProbeRound, String>]) -> Self {
        let valid: Vec<ProbeRound> = rounds.iter().flatten().cloned().collect();
        let invalid = rounds.iter().enumerate().filter_map(|(index, round)| {
            let reason = round.as_ref().err()?.clone();
            let round = index + 1;
            Some(InvalidRound { round, reason })
        });
        let summary = |value: fn(&ProbeRound) -> f64| {
            Summary::of(&mut valid.iter().map(value).collect::<Vec<f64>>())
        };
        let cached = summary(|round| round.ttft_ms_cached).p50;
        let uncached = summary(|round| round.ttft_ms_uncached).p50;
        Self {
            invalid: invalid.collect(),
            prompt_tokens_mean: summary(|round| f64::from(round.prompt_tokens)).mean,
            cached_tokens_mean: summary(|round| f64::from(round.cached_tokens)).mean,
            ttft_ms_cached_p50: cached,
            ttft_ms_uncached_p50: uncached,
            // The summary of no rounds has a median of 0, and the ratio would be NaN.
            ttft_ratio: (uncached > 0.0).then(|| cached / uncached),
            rounds: valid,
        }
    }

    /// A table of both medians, the ratio, and what was invalid.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = String::from("| prompt | tokens cached | TTFT p50, ms |\n|---|--:|--:|\n");
        if let Some(ratio) = self.ttft_ratio {
            let _ = write!(
                text,
                "| with its prefix cached | {:.0} of {:.0} | {:.1} |\n\
                 | the same, nothing cached | 0 of {:.0} | {:.1} |\n\n\
                 Ratio of the medians: {ratio:.3}, over {} rounds\n",
                self.cached_tokens_mean,
                self.prompt_tokens_mean,
                self.ttft_ms_cached_p50,
                self.prompt_tokens_mean,
                self.ttft_ms_uncached_p50,
                self.rounds.len(),
            );
        } else {
            text.push_str("\nNo valid round: nothing was measured.\n");
        }
        if !self.invalid.is_empty() {
            let _ = writeln!(text, "\n{} rounds were invalid:\n", self.invalid.len());
        }
        for InvalidRound { round, reason } in self.invalid.iter().take(INVALID_SHOWN) {
            let _ = writeln!(text, "- round {round}: {reason}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(ttft_ms_cached: f64, ttft_ms_uncached: f64) -> Result<ProbeRound, String> {
        Ok(ProbeRound {
            order: ProbeOrder::CachedFirst,
            prompt_tokens: 2000,
            cached_tokens: 1800,
            ttft_ms_cached,
            ttft_ms_uncached,
        })
    }

    fn check(rounds: &[Result<ProbeRound, String>], ratio: Option<f64>, shown: &[&str]) {
        let report = ProbeReport::of(rounds);
        assert_eq!(report.ttft_ratio, ratio);
        let text = report.to_markdown();
        for part in shown {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }

    #[test]
    fn invalid_rounds_enter_no_figure() {
        let rounds = [round(10.0, 40.0), Err("odd".into()), round(30.0, 50.0), round(20.0, 90.0)];
        check(
            &rounds,
            Some(0.4),
            &["1800 of 2000 | 20.0 |", "0 of 2000 | 50.0 |", "0.400, over 3", "- round 2: odd"],
        );
        check(&[Err("odd".into())], None, &["No valid round", "1 rounds were invalid"]);
        check(&[], None, &["No valid round"]);
    }
}
