//! Report of `analyze`, as text, JSON or HTML page.

mod characterization;
mod json;
mod page;
mod text;

use headstart_insight::Bucket;
use headstart_trace::TraceInfo;
use headstart_trace::characterize::Characterization;

use crate::commands::analyze::LoggedTokenCounts;
use crate::input::counted;
use crate::kv_bytes::KvBytes;

pub(crate) use super::thousands;
pub(crate) use json::json;
pub(crate) use page::page;
pub(crate) use text::{Sections, text};

/// Everything there is to say.
#[derive(Debug)]
pub(crate) struct Analysis {
    /// Names of the inputs.
    pub(crate) files: Vec<String>,
    /// Their formats.
    pub(crate) formats: Vec<String>,
    pub(crate) info: TraceInfo,
    /// Inferred, omitted and approximate data, one sentence each.
    pub(crate) remarks: Vec<String>,
    /// From the first arrival to the last; `None` where there are no times.
    pub(crate) span_s: Option<f64>,
    /// Memory use of the analysis.
    pub(crate) kept: Vec<MemoryEstimate>,
    /// Prompt tokens as the log counted them.
    pub(crate) counts: LoggedTokenCounts,
    /// Requests that are copies of another one.
    pub(crate) copies: u64,
    /// No two sessions share a block: the ids may be numbered session by session.
    pub(crate) is_separate: bool,
    /// Most memory of the process, bytes, where the system says it.
    pub(crate) peak_bytes: Option<u64>,
    /// The fleet that the waterfall is of.
    pub(crate) replicas: usize,
    /// Blocks of one replica.
    pub(crate) capacity_blocks: u64,
    pub(crate) capacity_from: String,
    pub(crate) seconds_from: String,
    pub(crate) currency: Option<String>,
    /// Meaning of the money, if the currency does not say it.
    pub(crate) money_from: Option<&'static str>,
    /// Requests whose log says what was cached.
    pub(crate) own: Own,
    pub(crate) kv: Option<KvBytes>,
    /// Every bucket, in order.
    pub(crate) waterfall: Vec<WaterfallStep>,
    /// The point of the curve at which it bends.
    pub(crate) knee: Option<usize>,
    pub(crate) routing: Routing,
    /// Tokens that reuse without order would add; `None` where there is no text.
    pub(crate) order_free_tokens: Option<u64>,
    /// By tokens lost, most first.
    pub(crate) findings: Vec<FindingRow>,
    /// Place of the largest loss without a named cause, if any.
    pub(crate) unnamed: Option<UnnamedLoss>,
    /// Three to five sentences.
    pub(crate) headlines: Vec<String>,
    pub(crate) characterization: Characterization,
}

/// One bucket of the waterfall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaterfallStep {
    pub(crate) bucket: Bucket,
    /// Seconds and money: of computed tokens what they took, of served ones what they saved.
    pub(crate) amount: Amount,
}

/// Seconds and money of some tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Amount {
    pub(crate) tokens: u64,
    pub(crate) seconds: f64,
    /// `None` if the price of some of the tokens is unknown: a part is not shown as the whole.
    pub(crate) money: Option<f64>,
}

impl Amount {
    /// Adds `other`. No tokens need no price.
    pub(crate) fn add(&mut self, other: &Self) {
        self.money = match (self.tokens, other.tokens) {
            (_, 0) => self.money,
            (0, _) => other.money,
            _ => self.money.zip(other.money).map(|(one, more)| one + more),
        };
        self.tokens += other.tokens;
        self.seconds += other.seconds;
    }
}

/// Estimated memory of a structure that grows with the input.
#[derive(Clone, Debug)]
pub(crate) struct MemoryEstimate {
    /// Short description.
    pub(crate) what: &'static str,
    /// Estimated peak and its bound, bytes.
    pub(crate) bytes: u64,
    pub(crate) bytes_max: u64,
    /// Results that are approximate or missing because the bound was reached.
    pub(crate) lost: Option<String>,
}

/// Requests whose log says what was cached, and their tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) requests: u64,
    pub(crate) prompt_tokens: u64,
    /// As the log says.
    pub(crate) served_tokens: u64,
    /// As the replay finds.
    pub(crate) replayed_tokens: u64,
}

/// Effect of routing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Routing {
    pub(crate) replicas: usize,
    /// Prompt tokens cached where replicas are random, on average over the draws.
    pub(crate) random_tokens: u64,
    pub(crate) draws: usize,
    /// Prompt tokens found where requests go to what they share most with, those that were being
    /// computed among them.
    pub(crate) precise_tokens: u64,
}

/// A named cause, summed over the requests that lost by it.
#[derive(Clone, Debug)]
pub(crate) struct FindingRow {
    pub(crate) cause: String,
    pub(crate) title: String,
    pub(crate) fix: String,
    pub(crate) requests: u64,
    pub(crate) amount: Amount,
    /// Fewer tokens that a replay computes if this one mistake is fixed, where it was replayed.
    pub(crate) saved_tokens: Option<u64>,
    pub(crate) example: Option<CauseExample>,
}

/// Later differences of a prompt are behind its first one.
pub(crate) const HIDDEN: &str = "Fix these, then analyze again: a mistake behind another one of \
                                 the same prompt shows only then.";

impl FindingRow {
    /// Says what the fix alone would save.
    pub(crate) fn saving(&self) -> Option<String> {
        Some(match self.saved_tokens? {
            0 => "This fix alone saves no tokens in a replay.".to_owned(),
            1 => "With this fix alone, a replay computes 1 token less.".to_owned(),
            tokens => format!(
                "With this fix alone, a replay computes {} fewer tokens.",
                thousands(tokens)
            ),
        })
    }
}

/// A request to look at, because no cause was found for what it lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnnamedLoss {
    /// Its id, or the number of its line.
    pub(crate) request: String,
    /// The log that `why` and `lint` read, where they do.
    pub(crate) file: Option<String>,
}

/// One request that lost by a cause.
#[derive(Clone, Debug)]
pub(crate) struct CauseExample {
    pub(crate) request: String,
    pub(crate) neighbour: String,
    /// The first token that differs, from 0.
    pub(crate) token: u64,
    /// Texts; `None` unless they were asked for.
    pub(crate) before: Option<String>,
    pub(crate) old: Option<String>,
    pub(crate) new: Option<String>,
}

impl Analysis {
    /// All prompt tokens.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        self.waterfall.iter().map(|step| step.amount.tokens).sum()
    }

    /// Returns `tokens` as a share of all prompt tokens.
    pub(crate) fn share(&self, tokens: u64) -> f64 {
        tokens as f64 / self.prompt_tokens().max(1) as f64
    }

    /// Tokens that are known behind another prefix, and of which no finding says why.
    pub(crate) fn unnamed_tokens(&self) -> u64 {
        let named: u64 = self.findings.iter().map(|it| it.amount.tokens).sum();
        self.tokens_in(Bucket::Diverged).saturating_sub(named)
    }

    /// Returns the distinctions that the buckets cannot make, one sentence each.
    pub(crate) fn not_told_apart(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if !self.has_texts() {
            remarks.push(
                "block ids name whole prefixes: new tokens, tokens after a changed prefix and \
                 tokens under another salt are one row"
                    .to_owned(),
            );
        }
        if self.is_separate {
            remarks.push(
                "no block is shared by two sessions: if ids are numbered session by session, what \
                 sessions share cannot be seen"
                    .to_owned(),
            );
        }
        if self.own.requests > 0 {
            remarks.push(
                "tokens that were computed before but not cached are one row: the log does not \
                 show whether eviction, routing or a restart lost them"
                    .to_owned(),
            );
        }
        remarks
    }

    /// Returns the prompt tokens in a bucket.
    pub(crate) fn tokens_in(&self, bucket: Bucket) -> u64 {
        let steps = self.waterfall.iter().filter(|step| step.bucket == bucket);
        steps.map(|step| step.amount.tokens).sum()
    }

    /// Returns the prompt tokens that were not computed.
    pub(crate) fn served_tokens(&self) -> u64 {
        let served = self.waterfall.iter().filter(|step| step.bucket.is_served());
        served.map(|step| step.amount.tokens).sum()
    }

    /// ` (1.2 GB)`, where a model says how many bytes tokens take.
    pub(crate) fn in_bytes(&self, tokens: u64) -> String {
        let Some(kv) = &self.kv else {
            return String::new();
        };
        let gb = tokens as f64 / self.counts.factor() * kv.per_token as f64 / 1e9;
        format!(" ({gb:.1} GB)")
    }

    /// Whether the inputs are texts, which tell what changed from what is new.
    pub(crate) fn has_texts(&self) -> bool {
        self.order_free_tokens.is_some()
    }

    /// Returns a bucket's name in this analysis. Block ids name whole prefixes, so without texts a
    /// new prompt and a changed front look the same.
    pub(crate) fn name(&self, bucket: Bucket) -> &'static str {
        match bucket {
            Bucket::NeverSeen if !self.has_texts() => "new-or-changed",
            _ => bucket.name(),
        }
    }

    /// Returns the meaning of a bucket in this analysis.
    pub(crate) fn meaning(&self, bucket: Bucket) -> &'static str {
        match bucket {
            Bucket::Device if self.own.requests > 0 => "cached",
            Bucket::IndexWrong => "computed before, not served",
            Bucket::NeverSeen if !self.has_texts() => "new, or behind a changed prefix",
            _ => bucket.meaning(),
        }
    }

    /// `4 replicas of 160,000 tokens each`, `1 replica of 160,000 tokens`.
    pub(crate) fn fleet(&self) -> String {
        format!(
            "{} of {}{}",
            counted(self.replicas as u64, "replica"),
            counted(
                self.capacity_blocks * u64::from(self.info.block_tokens),
                "token"
            ),
            if self.replicas == 1 { "" } else { " each" },
        )
    }

    /// Returns the source of the waterfall.
    pub(crate) fn played_on(&self) -> String {
        let fleet = format!("{} ({})", self.fleet(), self.capacity_from);
        let all = self.characterization.requests;
        match self.own.requests {
            0 => format!("all requests simulated on {fleet}"),
            own if own == all => "all requests, hits as the log reports".to_owned(),
            some => format!(
                "all requests, hits as the log reports for {}, the other {} simulated on {fleet}",
                counted(some, "request"),
                thousands(all.saturating_sub(some))
            ),
        }
    }

    /// The name of a request type.
    pub(crate) fn type_name(&self, index: u16) -> &str {
        let name = self.info.types.get(usize::from(index));
        name.map_or("unknown", String::as_str)
    }
}

impl Routing {
    /// Returns the share of the found tokens that random routing loses.
    pub(crate) fn lost_share(&self) -> f64 {
        let lost = self.precise_tokens.saturating_sub(self.random_tokens);
        lost as f64 / self.precise_tokens.max(1) as f64
    }
}

/// `0.4213` as `42 %`; as much as a reader wants to know. All is all and nothing is nothing: what
/// is close to either is not called so.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        all if all >= 100.0 => "100 %".to_owned(),
        nearly if nearly >= 99.0 => format!("{:.1} %", (nearly * 10.0).floor() / 10.0),
        most if most >= 9.95 => format!("{most:.0} %"),
        some if some >= 0.05 => format!("{some:.1} %"),
        little if little > 0.0 => "<0.1 %".to_owned(),
        _ => "0 %".to_owned(),
    }
}

/// `3700` seconds as `1 h 2 min`.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        none if none <= 0.0 => "0 s".to_owned(),
        little if little < 5e-5 => "<0.1 ms".to_owned(),
        some if some < 0.1 => format!("{:.1} ms", some * 1e3),
        some if some < 100.0 => format!("{some:.1} s"),
        some if some < 6_000.0 => format!("{:.0} min", some / 60.0),
        some if some < 360_000.0 => format!("{:.1} h", some / 3_600.0),
        some => format!("{:.1} days", some / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(tokens: u64, money: Option<f64>) -> Amount {
        Amount {
            tokens,
            seconds: tokens as f64 / 2.0,
            money,
        }
    }

    #[track_caller]
    fn check_sum(parts: &[Amount], expected: Amount) {
        let mut sum = Amount::default();
        parts.iter().for_each(|part| sum.add(part));
        assert_eq!(sum, expected);
        let mut sum = Amount::default();
        parts.iter().rev().for_each(|part| sum.add(part));
        assert_eq!(sum, expected, "in the other order");
    }

    #[test]
    fn what_is_nearly_all_or_nothing_is_not_called_so() {
        for (share, shown) in [
            (1.0, "100 %"),
            (0.99999, "99.9 %"),
            (0.995, "99.5 %"),
            (0.9896, "99 %"),
            (0.4213, "42 %"),
            (0.0996, "10 %"),
            (0.0994, "9.9 %"),
            (0.0005, "0.1 %"),
            (0.0004, "<0.1 %"),
            (0.0, "0 %"),
        ] {
            assert_eq!(percent(share), shown, "{share}");
        }
        for (seconds, shown) in [(0.0, "0 s"), (1e-6, "<0.1 ms"), (0.0142, "14.2 ms")] {
            assert_eq!(duration(seconds), shown, "{seconds}");
        }
    }

    #[test]
    fn a_part_of_the_money_is_not_shown_as_the_whole() {
        let (priced, unpriced) = (amount(4, Some(1.5)), amount(2, None));
        check_sum(&[], amount(0, None));
        check_sum(&[priced, priced], amount(8, Some(3.0)));
        check_sum(&[priced, unpriced], amount(6, None));
        check_sum(&[priced, unpriced, priced], amount(10, None));
        check_sum(&[priced, amount(0, None)], priced);
        check_sum(&[unpriced, amount(0, Some(0.0))], unpriced);
    }
}
