//! Snapshot parts from [`insight`](crate::insight): requests, waterfall, ghosts and predictions.

use headstart_core::figures::{thousands, took};
use headstart_core::{Nanos, ReplicaId};
use headstart_index_sync::clock::unix_seconds;
use headstart_insight::prices::PriceTable;
use headstart_insight::{Bucket, BucketTokens, Cause};
use headstart_prompt::{Normalizer, Normalizers};

use crate::dashboard::snapshot::{
    BucketPart, CausePart, GhostPart, GhostsPart, RequestPart, Snapshot, TtftPart, WaterfallPart,
};
use crate::gateway::HttpGateway;
use crate::insight::{
    BucketSeconds, CauseSums, ErrorSummary, GhostAnswer, Insight, InsightSnapshot, RequestRecord,
};

/// Requests that are shown.
const REQUESTS_MAX: usize = 12;

/// Requests whose predicted and observed times are shown.
const PAIRS_MAX: usize = 128;

/// Adds it to a snapshot.
pub(super) fn add(
    snapshot: Snapshot,
    insight: &Insight,
    gateway: &HttpGateway,
    now: Nanos,
) -> Snapshot {
    let prices = gateway.metrics.savings.prices();
    let sums = insight.snapshot();
    let latest = insight.recent(PAIRS_MAX);
    let now_s = unix_seconds();
    let part = |record: &RequestRecord| {
        let seen = ReplicaCapabilities {
            has_cost_model: gateway.has_cost_model,
            has_events: gateway.has_events(ReplicaId(record.replica)),
        };
        request(record, seen, now_s)
    };
    let requests = latest.iter().take(REQUESTS_MAX).map(|record| part(record));
    let mut predictions = snapshot.predictions;
    predictions.ttft = ttft(&sums.gauges.ttft_s);
    predictions.pairs = latest.iter().filter_map(|record| pair(record)).collect();
    let seconds = insight.seconds();
    let causes_sums = insight.causes().sums();
    let told = WaterfallPart {
        compared: causes_sums.looked_at,
        causes: causes(&causes_sums, gateway.normalizers),
        ..waterfall(&sums, seconds.as_ref(), prices)
    };
    Snapshot {
        waterfall: Some(told),
        ghosts: ghosts(&insight.ghosts(now), snapshot.server.uptime_s),
        requests: requests.collect(),
        predictions,
        ..snapshot
    }
}

fn waterfall(
    sums: &InsightSnapshot,
    seconds: Option<&BucketSeconds>,
    prices: Option<&PriceTable>,
) -> WaterfallPart {
    let took = |bucket: Bucket| {
        let (_, took) = seconds?.buckets.iter().find(|(one, _)| *one == bucket)?;
        Some(*took)
    };
    let buckets = sums.total.iter().map(|(bucket, tokens)| BucketPart {
        bucket: bucket.name().to_owned(),
        meaning: bucket.meaning().to_owned(),
        is_served: bucket.is_served(),
        tokens,
        seconds: took(bucket),
        money: prices.and_then(|prices| cost(bucket, sums, prices)),
    });
    WaterfallPart {
        requests: sums.total.requests(),
        tokens: sums.total.total(),
        currency: prices.map(|prices| prices.currency.clone()),
        buckets: buckets.collect(),
        ..WaterfallPart::default()
    }
}

/// Why prompts differ, and what to do about it: at the client, and on a server that runs with
/// `normalizers`.
fn causes(sums: &CauseSums, normalizers: Normalizers) -> Vec<CausePart> {
    let causes = sums.causes.iter();
    let causes = causes.map(|(cause, sum)| CausePart {
        cause: cause.name().to_owned(),
        title: cause.title().to_owned(),
        fix: cause.fix().to_owned(),
        normalize: normalize(*cause, normalizers),
        requests: sum.requests,
        share: sum.lost_words as f64 / sums.lost_words.max(1) as f64,
    });
    causes.collect()
}

/// The value of `--normalize` that undoes a cause beside what is undone already.
fn normalize(cause: Cause, normalizers: Normalizers) -> Option<String> {
    let mut all = Normalizer::ALL.into_iter();
    let one = all.find(|one| one.cause() == cause.name())?;
    let is_on = normalizers.iter().any(|other| other == one);
    let both: Normalizers = normalizers.iter().chain([one]).collect();
    (!is_on).then(|| both.to_string())
}

/// The fleet's, from each replica's: weighted by its prompt tokens.
fn ghosts(answers: &[GhostAnswer], uptime_s: f64) -> Option<GhostsPart> {
    let all: u64 = answers.iter().map(|one| one.prompt_tokens).sum();
    if all == 0 {
        return None;
    }
    let rate = |of: fn(&GhostAnswer) -> f64| {
        let found = answers.iter().map(|one| of(one) * one.prompt_tokens as f64);
        found.sum::<f64>() / all as f64
    };
    let size = |label: &str, hit_rate| GhostPart { label: label.to_owned(), hit_rate };
    Some(GhostsPart {
        seconds: uptime_s.min(3600.0),
        requests: answers.iter().map(|one| one.requests).sum(),
        hit_rate: rate(|one| one.as_it_is),
        sizes: vec![
            size("+25 %", rate(|one| one.plus_25)),
            size("+100 %", rate(|one| one.plus_100)),
            size("infinite", rate(|one| one.infinite)),
        ],
    })
}

/// Extra cost because a bucket's tokens were not cached. `None` for served buckets, and if a model
/// has no price.
fn cost(bucket: Bucket, sums: &InsightSnapshot, prices: &PriceTable) -> Option<f64> {
    let tokens = sums.models.iter();
    let tokens = tokens.map(|(model, row)| (&model[..], row.get(bucket)));
    let cost = prices.lost(tokens);
    cost.filter(|_| !bucket.is_served())
}

fn ttft(errors: &ErrorSummary) -> Option<TtftPart> {
    let told = TtftPart {
        requests: errors.count,
        error_ms_p50: errors.p50 * 1e3,
        error_ms_p90: errors.p90 * 1e3,
    };
    (errors.count > 0).then_some(told)
}

fn pair(record: &RequestRecord) -> Option<[f64; 2]> {
    // Tenths of a millisecond: enough for a chart, and short in JSON.
    let ms = |seconds: f64| (seconds * 1e4).round() / 10.0;
    let pair = [record.predicted_ttft_s?, record.ttft_s?].map(ms);
    pair.iter().all(|ms| ms.is_finite()).then_some(pair)
}

/// Facts about a request's replica.
#[derive(Clone, Copy)]
struct ReplicaCapabilities {
    has_cost_model: bool,
    /// Whether it sends KV events.
    has_events: bool,
}

fn request(record: &RequestRecord, seen: ReplicaCapabilities, now_s: f64) -> RequestPart {
    RequestPart {
        id: record.id.clone(),
        tenant: record.tenant.clone(),
        model: record.model.clone(),
        // Of others there is no record.
        status: 200,
        age_s: (now_s - record.at_unix_s).max(0.0),
        replica: record.replica,
        prompt_tokens: u64::from(record.prompt_tokens),
        predicted_tokens: record.predicted_cached_tokens.map(u64::from),
        cached_tokens: record.cached_tokens.map(u64::from),
        predicted_ms: finite_ms(record.predicted_ttft_s),
        ttft_ms: finite_ms(record.ttft_s),
        decision: decision(record, seen),
        outcome: outcome(record, seen),
    }
}

fn finite_ms(seconds: Option<f64>) -> Option<f64> {
    seconds.filter(|seconds| seconds.is_finite()).map(|seconds| seconds * 1e3)
}

/// Such as `Replica 2: 4,096 of 4,310 tokens cached, predicted 62 ms, others 410 ms`; without times
/// where these would be another engine's.
fn decision(record: &RequestRecord, seen: ReplicaCapabilities) -> String {
    let (replica, all) = (record.replica, thousands(record.prompt_tokens));
    let mut words = match record.predicted_cached_tokens.map(thousands) {
        Some(cached) if seen.has_events => {
            format!("Replica {replica}: {cached} of {all} tokens cached")
        }
        Some(cached) => format!(
            "Replica {replica}: {cached} of {all} tokens predicted (own routing, no KV events)"
        ),
        None => format!("Replica {replica}: {all} prompt tokens, not tokenized here"),
    };
    if !seen.has_cost_model {
        return words;
    }
    if let Some(ms) = finite_ms(record.predicted_ttft_s) {
        words += &format!(", predicted {}", took(ms));
    }
    let others = record.candidates.iter().filter(|one| one.replica != record.replica);
    let others = others.filter_map(|one| finite_ms(Some(one.predicted_ttft_s)));
    let bounds = others.fold(None, |bounds: Option<(f64, f64)>, ms| {
        let (least, most) = bounds.unwrap_or((ms, ms));
        Some((least.min(ms), most.max(ms)))
    });
    if let Some((least, most)) = bounds {
        let (least, most) = (took(least), took(most));
        words += &if least == most {
            format!(", others {least}")
        } else {
            format!(", others {least} to {most}")
        };
    }
    words
}

/// Describes the outcome: cached tokens if mispredicted, computed tokens, and the largest loss.
fn outcome(record: &RequestRecord, seen: ReplicaCapabilities) -> Option<String> {
    let cached = record.cached_tokens?;
    let mut words = Vec::new();
    if Some(cached) != record.predicted_cached_tokens {
        words.push(format!("{} cached", thousands(cached)));
    }
    let computed = record.prompt_tokens.saturating_sub(cached);
    words.push(format!("{} computed", thousands(computed)));
    if let Some((bucket, tokens)) = record.split.as_ref().and_then(largest_loss) {
        let meaning = meaning(bucket, seen);
        words.push(if tokens == computed {
            meaning.to_owned()
        } else {
            format!("{} of them {meaning}", thousands(tokens))
        });
    }
    Some(words.join(", "))
}

/// Describes a bucket for a replica as `seen`. Without events the gateway knows only the prompts
/// that it sent there, not the blocks that the replica held.
fn meaning(bucket: Bucket, seen: ReplicaCapabilities) -> &'static str {
    match bucket {
        Bucket::IndexWrong if !seen.has_events => "predicted but not cached",
        Bucket::Evicted | Bucket::Reset if !seen.has_events => "sent here before, not cached now",
        other => other.meaning(),
    }
}

fn largest_loss(split: &BucketTokens) -> Option<(Bucket, u32)> {
    let lost = split.iter().filter(|(bucket, _)| !bucket.is_served());
    lost.max_by_key(|&(_, tokens)| tokens)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use headstart_insight::Waterfall;
    use headstart_insight::prices::Price;

    use super::*;
    use crate::insight::{CandidateRecord, CauseSum};

    fn candidate(replica: u32, predicted_ttft_s: f64) -> CandidateRecord {
        CandidateRecord {
            replica,
            overlap_tokens: 0,
            prefill_tokens: 0,
            score: 0.0,
            predicted_ttft_s,
        }
    }

    fn seen(has_cost_model: bool, has_events: bool) -> ReplicaCapabilities {
        ReplicaCapabilities { has_cost_model, has_events }
    }

    fn record() -> RequestRecord {
        let mut split = BucketTokens::default();
        split.put(Bucket::Device, 4_000);
        split.put(Bucket::BlockFloor, 6);
        split.put(Bucket::Evicted, 304);
        RequestRecord {
            id: "chatcmpl-1".to_owned(),
            request_id: None,
            at_unix_s: 5.0,
            model: "m".to_owned(),
            tenant: None,
            replica: 2,
            candidates: vec![candidate(0, 0.41), candidate(2, 0.062), candidate(3, 0.4099)],
            prompt_tokens: 4_310,
            predicted_cached_tokens: Some(4_096),
            cached_tokens: Some(4_000),
            predicted_ttft_s: Some(0.062),
            ttft_s: Some(0.071),
            split: Some(split),
            certainty: 1.0,
            evicted: None,
        }
    }

    #[test]
    fn a_decision_is_told_in_words() {
        let (seen, uncosted) = (seen(true, true), seen(false, true));
        let told = request(&record(), seen, 7.5);
        assert_eq!(
            told.decision,
            "Replica 2: 4,096 of 4,310 tokens cached, predicted 62 ms, others 410 ms"
        );
        assert_eq!(
            told.outcome.as_deref(),
            Some("4,000 cached, 310 computed, 304 of them evicted")
        );
        assert_eq!((told.age_s, told.ttft_ms), (2.5, Some(71.0)));
        assert_eq!(pair(&record()), Some([62.0, 71.0]));
        let told = request(&record(), uncosted, 7.5);
        let expected = "Replica 2: 4,096 of 4,310 tokens cached";
        assert_eq!(told.decision, expected, "times of another engine say nothing");
        assert_eq!((&told.model[..], told.status), ("m", 200));
    }

    #[test]
    fn without_events_a_row_tells_a_prediction_from_what_came() {
        let mut split = BucketTokens::default();
        split.put(Bucket::IndexWrong, 4_096);
        split.put(Bucket::NeverSeen, 214);
        let wrong = RequestRecord { cached_tokens: Some(0), split: Some(split), ..record() };
        let told = request(&wrong, seen(false, false), 5.0);
        assert_eq!(
            told.decision,
            "Replica 2: 4,096 of 4,310 tokens predicted (own routing, no KV events)"
        );
        assert_eq!(
            told.outcome.as_deref(),
            Some("0 cached, 4,310 computed, 4,096 of them predicted but not cached")
        );
    }

    #[test]
    fn causes_have_shares_and_what_undoes_them() {
        let sum = |requests, lost_words| CauseSum { requests, lost_words };
        let sums = CauseSums {
            looked_at: 20,
            lost_words: 1_000,
            causes: vec![
                (Cause::Clock, sum(8, 600)),
                (Cause::ToolOrder, sum(2, 100)),
                (Cause::Trimmed, sum(1, 50)),
            ],
        };
        let told = causes(&sums, "tools".parse().expect("a name"));
        assert_eq!((&told[0].cause[..], told[0].share), ("clock", 0.6));
        let undone: Vec<_> = told.iter().map(|cause| cause.normalize.as_deref()).collect();
        assert_eq!(undone, [Some("tools,clock"), None, None], "tools are sorted already");
        assert_eq!(causes(&CauseSums::default(), Normalizers::default()), []);
    }

    #[test]
    fn what_was_lost_costs_the_difference() {
        let mut row = Waterfall::default();
        row.add(&record().split.expect("it has one"));
        let sums = InsightSnapshot {
            total: row.clone(),
            models: vec![("m".to_owned(), row)],
            ..InsightSnapshot::default()
        };
        let price = Price { cache_miss: 3.0, cache_hit: 1.0, output: 9.0 };
        let prices =
            |others| PriceTable { currency: "EUR".to_owned(), models: BTreeMap::new(), others };
        let told = waterfall(&sums, None, Some(&prices(Some(price))));
        let money = |told: &WaterfallPart, bucket: Bucket| {
            let mut buckets = told.buckets.iter();
            buckets.find(|part| part.bucket == bucket.name()).expect("all").money
        };
        let evicted = money(&told, Bucket::Evicted).expect("it has a price");
        assert!((evicted - 304.0 * 2e-6).abs() < 1e-12, "{evicted}");
        assert_eq!(money(&told, Bucket::Device), None);
        assert_eq!((told.tokens, told.currency.as_deref()), (4_310, Some("EUR")));
        let told = waterfall(&sums, None, Some(&prices(None)));
        assert_eq!(money(&told, Bucket::Evicted), None);
    }

    #[test]
    fn what_is_not_known_is_not_said() {
        let bare = RequestRecord {
            candidates: vec![candidate(0, 0.004), candidate(1, 2.25), candidate(2, f64::INFINITY)],
            predicted_ttft_s: Some(f64::INFINITY),
            cached_tokens: None,
            split: None,
            ..record()
        };
        let told = request(&bare, seen(true, true), 5.0);
        let expected = "Replica 2: 4,096 of 4,310 tokens cached, others 4.0 ms to 2.2 s";
        assert_eq!((&told.decision[..], told.outcome), (expected, None));
        assert_eq!(pair(&bare), None);
    }
}
