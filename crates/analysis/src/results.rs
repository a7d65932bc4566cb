//! The results of an analysis: counts, amounts and sentences, for reports in any form.

use headstart_core::figures::{counted, thousands};
use headstart_insight::Bucket;
use headstart_trace::TraceInfo;
use headstart_trace::characterize::Characterization;
use serde::Serialize;

use crate::kv_bytes::KvBytes;
use crate::remedy::Remedy;
use crate::served::ServedReason;
use crate::traffic::LoggedTokenCounts;

/// The results of an analysis.
#[derive(Debug)]
pub struct Analysis {
    /// Names of the inputs, without their folders.
    pub files: Vec<String>,
    /// Their formats.
    pub formats: Vec<String>,
    /// Block size, types and origins of sessions and turns.
    pub info: TraceInfo,
    /// Inferred, omitted and approximate data, one sentence each.
    pub remarks: Vec<String>,
    /// Time from the first arrival to the last, seconds; `None` where there are no times.
    pub span_s: Option<f64>,
    /// Memory use of the analysis.
    pub kept: Vec<MemoryEstimate>,
    /// Prompt tokens as the log counted them.
    pub counts: LoggedTokenCounts,
    /// Requests that are copies of another one.
    pub copies: u64,
    /// No two sessions share a block: the ids may be numbered session by session.
    pub is_separate: bool,
    /// Most memory of the process, bytes, where the system says it.
    pub peak_bytes: Option<u64>,
    /// The fleet that the waterfall is of.
    pub replicas: usize,
    /// Blocks of one replica.
    pub capacity_blocks: u64,
    /// Source of the capacity, for the reader.
    pub capacity_from: String,
    /// Source of the seconds, for the reader.
    pub seconds_from: String,
    /// Currency of the money; `None` without prices.
    pub currency: Option<String>,
    /// Meaning of the money, if the currency does not say it.
    pub money_from: Option<&'static str>,
    /// Requests whose log says what was cached.
    pub own: Own,
    /// Size of a token's keys and values, if a model is named.
    pub kv: Option<KvBytes>,
    /// Every bucket, in order.
    pub waterfall: Vec<WaterfallStep>,
    /// Index of the point at which the size curve bends.
    pub knee: Option<usize>,
    /// Hits by kind of routing.
    pub routing: Routing,
    /// Hits by eviction policy.
    pub eviction: EvictionHits,
    /// Tokens that reuse without order would add; `None` where there is no text.
    pub order_free_tokens: Option<u64>,
    /// Named causes, by lost tokens, most first.
    pub findings: Vec<FindingRow>,
    /// Why the engine did not serve what it had computed, by the log's own counts and fields.
    pub served: ServedReason,
    /// Place of the largest loss without a named cause, if any.
    pub unnamed: Option<UnnamedLoss>,
    /// Three to five sentences.
    pub headlines: Vec<String>,
    /// Reuse, sessions and users.
    pub characterization: Characterization,
}

/// One bucket of the waterfall.
#[derive(Clone, Copy, Debug)]
pub struct WaterfallStep {
    /// Place of the tokens.
    pub bucket: Bucket,
    /// Seconds and money: of computed tokens what they took, of served ones what they saved.
    pub amount: Amount,
}

/// Seconds and money of some tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Amount {
    /// Prompt tokens.
    pub tokens: u64,
    /// Prefill time, seconds.
    pub seconds: f64,
    /// Price; `None` if the price of some of the tokens is unknown, because a part is not shown as
    /// the whole.
    pub money: Option<f64>,
}

impl Amount {
    /// Adds `other`. No tokens need no price.
    pub fn add(&mut self, other: &Self) {
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
#[derive(Clone, Debug, Serialize)]
pub struct MemoryEstimate {
    /// Short description.
    pub what: &'static str,
    /// Estimated peak, bytes.
    pub bytes: u64,
    /// Bound of the peak, bytes.
    pub bytes_max: u64,
    /// Results that are approximate or missing because the bound was reached.
    pub lost: Option<String>,
}

/// Requests whose log says what was cached, and their tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Number of requests.
    pub requests: u64,
    /// Their prompt tokens.
    pub prompt_tokens: u64,
    /// Cached tokens by the log.
    pub served_tokens: u64,
    /// Cached tokens by the replay.
    pub replayed_tokens: u64,
}

/// Effect of routing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Routing {
    /// Number of replicas.
    pub replicas: usize,
    /// Prompt tokens cached where replicas are random, on average over the draws.
    pub random_tokens: u64,
    /// Number of draws.
    pub draws: usize,
    /// Prompt tokens found where requests go to what they share most with, those that were being
    /// computed among them.
    pub precise_tokens: u64,
}

/// Effect of the eviction policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvictionHits {
    /// Blocks of the cache: those of the whole fleet, or of the log where that has fewer.
    pub blocks: u64,
    /// Prompt tokens cached under LRU.
    pub lru_tokens: u64,
    /// Prompt tokens cached under the policy `hazard`.
    pub hazard_tokens: u64,
}

/// A named cause, summed over the requests that lost by it; names and order of the fields are those
/// of `headstart analyze --json`.
#[derive(Clone, Debug, Serialize)]
pub struct FindingRow {
    /// Name of the cause, for programs.
    pub cause: String,
    /// The cause in words.
    pub title: String,
    /// Requests that lost by it.
    pub requests: u64,
    /// Their loss.
    #[serde(flatten)]
    pub amount: Amount,
    /// Suggested change.
    pub fix: String,
    /// The label, heading, tool or message at the change, where most requests have the same one.
    pub place: Option<String>,
    /// Fewer tokens that a replay computes if this one mistake is fixed, where it was replayed.
    #[serde(rename = "fix_saves_tokens")]
    pub saved_tokens: Option<u64>,
    /// The rewriting that undoes it, where a program can.
    #[serde(skip)]
    pub remedy: Option<Remedy>,
    /// One request that lost by it.
    pub example: Option<CauseExample>,
}

impl FindingRow {
    /// Says what the fix alone would save.
    pub fn saving(&self) -> Option<String> {
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
pub struct UnnamedLoss {
    /// Its id, or the number of its line.
    pub request: String,
    /// The log that `why` and `lint` read, where they do.
    pub file: Option<String>,
}

/// One request that lost by a cause.
#[derive(Clone, Debug, Serialize)]
pub struct CauseExample {
    /// Name of the request.
    pub request: String,
    /// Name of the nearest earlier request.
    pub neighbour: String,
    /// The first token that differs, from 0.
    pub token: u64,
    /// Text before the change; `None` unless texts are shown.
    pub before: Option<String>,
    /// Changed text of the earlier request.
    pub old: Option<String>,
    /// Changed text of this request.
    pub new: Option<String>,
}

impl Analysis {
    /// All prompt tokens.
    pub fn prompt_tokens(&self) -> u64 {
        self.waterfall.iter().map(|step| step.amount.tokens).sum()
    }

    /// Returns `tokens` as a share of all prompt tokens.
    pub fn share(&self, tokens: u64) -> f64 {
        tokens as f64 / self.prompt_tokens().max(1) as f64
    }

    /// Tokens that are known behind another prefix, and of which no finding says why.
    pub fn unnamed_tokens(&self) -> u64 {
        let named: u64 = self.findings.iter().map(|finding| finding.amount.tokens).sum();
        self.tokens_in(Bucket::Diverged).saturating_sub(named)
    }

    /// Returns the distinctions that the buckets cannot make, one sentence each.
    pub fn not_told_apart(&self) -> Vec<String> {
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
    pub fn tokens_in(&self, bucket: Bucket) -> u64 {
        let steps = self.waterfall.iter().filter(|step| step.bucket == bucket);
        steps.map(|step| step.amount.tokens).sum()
    }

    /// Returns the prompt tokens that were not computed.
    pub fn served_tokens(&self) -> u64 {
        let served = self.waterfall.iter().filter(|step| step.bucket.is_served());
        served.map(|step| step.amount.tokens).sum()
    }

    /// ` (1.2 GB)`, where a model says how many bytes tokens take.
    pub fn in_bytes(&self, tokens: u64) -> String {
        let Some(kv) = &self.kv else {
            return String::new();
        };
        // The model's bytes are per token of its own tokenizer.
        let gb = tokens as f64 / self.counts.factor() * kv.per_token as f64 / 1e9;
        format!(" ({gb:.1} GB)")
    }

    /// Whether the inputs are texts, which tell what changed from what is new.
    pub fn has_texts(&self) -> bool {
        self.order_free_tokens.is_some()
    }

    /// Returns a bucket's name in this analysis. Block ids name whole prefixes, so without texts a
    /// new prompt and a changed front look the same.
    pub fn name(&self, bucket: Bucket) -> &'static str {
        match bucket {
            Bucket::NeverSeen if !self.has_texts() => "new-or-changed",
            _ => bucket.name(),
        }
    }

    /// Returns the meaning of a bucket in this analysis.
    pub fn meaning(&self, bucket: Bucket) -> &'static str {
        match bucket {
            Bucket::Device if self.own.requests > 0 => "cached",
            Bucket::IndexWrong => "computed before, not served",
            Bucket::NeverSeen if !self.has_texts() => "new, or behind a changed prefix",
            _ => bucket.meaning(),
        }
    }

    /// `4 replicas of 160,000 tokens each`, `1 replica of 160,000 tokens`.
    pub fn fleet(&self) -> String {
        format!(
            "{} of {}{}",
            counted(self.replicas as u64, "replica"),
            counted(self.capacity_blocks * u64::from(self.info.block_tokens), "token"),
            if self.replicas == 1 { "" } else { " each" },
        )
    }

    /// Returns the source of the waterfall.
    pub fn played_on(&self) -> String {
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
    pub fn type_name(&self, index: u16) -> &str {
        let name = self.info.types.get(usize::from(index));
        name.map_or("unknown", String::as_str)
    }
}

impl Routing {
    /// Returns the share of the found tokens that random routing loses.
    pub fn lost_share(&self) -> f64 {
        let lost = self.precise_tokens.saturating_sub(self.random_tokens);
        lost as f64 / self.precise_tokens.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(tokens: u64, money: Option<f64>) -> Amount {
        Amount { tokens, seconds: tokens as f64 / 2.0, money }
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
