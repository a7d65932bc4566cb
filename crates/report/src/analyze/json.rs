//! One JSON object, with names that stay.

use headstart_analysis::results::{Analysis, MemoryEstimate, Own, WaterfallStep};
use headstart_analysis::traffic::LoggedTokenCounts;
use serde_json::{Value, json};

use super::characterization::characterization;

/// Everything, as `analyze --json` prints it.
pub fn json(analysis: &Analysis) -> Value {
    let total = analysis.prompt_tokens();
    let share = |tokens: u64| tokens as f64 / total.max(1) as f64;
    let ideal = &analysis.characterization.ideal;
    let steps =
        analysis.waterfall.iter().map(|step| bucket(analysis, step, share(step.amount.tokens)));
    json!({
        "trace": trace(analysis),
        "headlines": analysis.headlines,
        "fleet": {
            "replicas": analysis.replicas,
            "capacity_blocks": analysis.capacity_blocks,
            "capacity_tokens": analysis.capacity_blocks * u64::from(analysis.info.block_tokens),
            "capacity_from": analysis.capacity_from,
            "seconds_from": analysis.seconds_from,
            "currency": analysis.currency,
            "money_from": analysis.money_from,
            "played_on": analysis.played_on(),
            "requests_with_own_cached_tokens": analysis.own.requests,
        },
        "logged": logged(&analysis.own),
        "waterfall": steps.collect::<Vec<_>>(),
        "ceiling": {
            "tokens": ideal.hit_tokens,
            "share": ideal.token_hit_rate,
            "block_hit_rate": ideal.block_hit_rate,
            "distinct_blocks": ideal.distinct_blocks,
            "never_reused_share": ideal.never_reused_share,
        },
        "curve": analysis.characterization.curve,
        "knee": knee(analysis),
        "routing": {
            "replicas": analysis.routing.replicas,
            "random": {
                "tokens": analysis.routing.random_tokens,
                "token_hit_rate": share(analysis.routing.random_tokens),
                "draws": analysis.routing.draws,
            },
            "precise": {
                "tokens": analysis.routing.precise_tokens,
                "token_hit_rate": share(analysis.routing.precise_tokens),
            },
            "lost_share": analysis.routing.lost_share(),
        },
        "eviction": {
            "blocks": analysis.eviction.blocks,
            "lru": {
                "tokens": analysis.eviction.lru_tokens,
                "token_hit_rate": share(analysis.eviction.lru_tokens),
            },
            "hazard": {
                "tokens": analysis.eviction.hazard_tokens,
                "token_hit_rate": share(analysis.eviction.hazard_tokens),
            },
        },
        "documents": analysis.order_free_tokens.map(|tokens| json!({
            "order_free_tokens": tokens,
            "share": share(tokens),
        })),
        "findings": analysis.findings,
        "unnamed": analysis.unnamed.as_ref().map(|unnamed| json!({
            "tokens": analysis.unnamed_tokens(),
            "share": share(analysis.unnamed_tokens()),
            "request": unnamed.request,
        })),
        "characterization": characterization(analysis),
    })
}

fn trace(analysis: &Analysis) -> Value {
    let info = &analysis.info;
    let numbers = &analysis.characterization;
    json!({
        "files": analysis.files,
        "formats": analysis.formats,
        "requests": numbers.requests,
        "sessions": numbers.sessions.count,
        "users": numbers.users.as_ref().map(|users| users.count),
        "span_s": analysis.span_s,
        "prompt_tokens": analysis.prompt_tokens(),
        "logged": logged_counts(&analysis.counts),
        "copied_requests": analysis.copies,
        "block_tokens": info.block_tokens,
        "blocks": numbers.ideal.references,
        "distinct_blocks": numbers.ideal.distinct_blocks,
        "types": info.types,
        "sessions_from": info.sessions.to_string(),
        "turns_from": info.turns.to_string(),
        "types_from": info.types_from.to_string(),
        "kv_bytes_per_token": analysis.kv.as_ref().map(|kv| kv.per_token),
        "remarks": analysis.remarks,
        "memory": memory(analysis),
    })
}

/// `null` where no log counts its prompt tokens.
fn logged_counts(counts: &LoggedTokenCounts) -> Option<Value> {
    (counts.requests > 0).then(|| {
        json!({
            "requests": counts.requests,
            "prompt_tokens": counts.logged,
            "tokens_per_logged_token": counts.factor(),
        })
    })
}

fn memory(analysis: &Analysis) -> Value {
    let sum = |of: fn(&MemoryEstimate) -> u64| analysis.kept.iter().map(of).sum::<u64>();
    json!({
        "kept_bytes": sum(|kept| kept.bytes),
        "kept_bytes_max": sum(|kept| kept.bytes_max),
        "peak_bytes": analysis.peak_bytes,
        "parts": analysis.kept,
    })
}

/// `null` where no log says what was cached.
fn logged(own: &Own) -> Option<Value> {
    let share = |tokens: u64| tokens as f64 / own.prompt_tokens.max(1) as f64;
    (own.requests > 0).then(|| {
        json!({
            "requests": own.requests,
            "prompt_tokens": own.prompt_tokens,
            "served_tokens": own.served_tokens,
            "served_share": share(own.served_tokens),
            "replayed_tokens": own.replayed_tokens,
            "replayed_share": share(own.replayed_tokens),
        })
    })
}

fn bucket(analysis: &Analysis, step: &WaterfallStep, share: f64) -> Value {
    json!({
        "bucket": analysis.name(step.bucket),
        "meaning": analysis.meaning(step.bucket),
        "is_served": step.bucket.is_served(),
        "tokens": step.amount.tokens,
        "share": share,
        "seconds": step.amount.seconds,
        "money": step.amount.money,
    })
}

fn knee(analysis: &Analysis) -> Option<Value> {
    let point = analysis.characterization.curve.get(analysis.knee?)?;
    let ideal = analysis.characterization.ideal.hits;
    Some(json!({
        "capacity_blocks": point.capacity_blocks,
        "capacity_tokens": point.capacity_tokens,
        "token_hit_rate": point.token_hit_rate,
        "share_of_ceiling": point.hits as f64 / ideal.max(1) as f64,
    }))
}
