//! `GET /debug/requests`, `GET /debug/requests/ID`, `GET /debug/waterfall`: what became of
//! requests, and why. Nothing here tells a prompt: tokens are counted, tenants are keyed tags.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use headstart_insight::loss::FirstEviction;
use headstart_insight::text::Evidence;
use headstart_insight::{BucketTokens, Waterfall};
use http::StatusCode;
use serde_json::{Value, json};

use super::about::invalid_path;
use crate::gateway::HttpGateway;
use crate::insight::{BucketSeconds, CauseSums, Insight, NeighbourDivergence, RequestRecord};
use crate::openai::ApiError;

/// Default number of requests shown.
const LIMIT: usize = 100;

pub(super) async fn requests(
    State(gateway): State<Arc<HttpGateway>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Response, ApiError> {
    let mut limit = LIMIT;
    for (name, value) in &query {
        if name != "limit" {
            let message = format!("`{name}` is not known; known is `limit`");
            return Err(ApiError::invalid(name, message));
        }
        limit = value
            .parse()
            .map_err(|_| ApiError::invalid("limit", "`limit` must be a whole number such as 20"))?;
    }
    let recent = insight(&gateway)?.recent(limit);
    let requests: Vec<Value> = recent.iter().map(|record| of_record(record)).collect();
    Ok(Json(json!({ "requests": requests })).into_response())
}

pub(super) async fn request(
    State(gateway): State<Arc<HttpGateway>>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(id) = id.map_err(|error| invalid_path(&error))?;
    let record = insight(&gateway)?.request(&id).ok_or_else(|| {
        let message = "there is no such request among the latest; ask with the `id` of its answer, \
                       or with the x-request-id that it was sent with";
        ApiError::new(StatusCode::NOT_FOUND, "no_such_request", message)
    })?;
    let mut told = of_record(&record);
    // By the record's own id: causes are kept under that, whichever id was asked for.
    if let Some(parted) = insight(&gateway)?.causes().of(&record.id) {
        add_parted(&mut told, &parted);
    }
    Ok(Json(told).into_response())
}

pub(super) async fn waterfall(
    State(gateway): State<Arc<HttpGateway>>,
) -> Result<Response, ApiError> {
    // Asked here, because `sums` cannot refuse.
    insight(&gateway)?;
    let asked = gateway.clone();
    let answer = gateway.dashboard.sums.get(move || sums(&asked)).await;
    let failed = || ApiError::internal("the sums could not be made; the server's log says why");
    answer.map(|answer| Json(&*answer).into_response()).ok_or_else(failed)
}

/// All sums. It fits a model, so that it is no work for a network thread, nor for each who asks.
fn sums(gateway: &HttpGateway) -> Value {
    let Ok(insight) = insight(gateway) else {
        return Value::Null;
    };
    let snapshot = insight.snapshot();
    let named = |name: &str, rows: &[(String, Waterfall)]| -> Vec<Value> {
        let rows = rows.iter();
        rows.map(|(key, row)| json!({ name: key, "waterfall": of_waterfall(row) })).collect()
    };
    let prefixes = snapshot.prefixes.iter().map(|row| {
        json!({
            "prefix": format!("{:016x}", row.key.0),
            "requests": row.requests,
            "requests_error": row.missed,
            "waterfall": of_waterfall(&row.waterfall),
        })
    });
    let ghosts = insight.ghosts(gateway.clock.now());
    let ghosts = ghosts.iter().map(|one| {
        json!({
            "replica": one.replica,
            "capacity_blocks": one.capacity_blocks,
            "requests": one.requests,
            "prompt_tokens": one.prompt_tokens,
            "hit_rate": {
                "as_it_is": one.as_it_is,
                "plus_25": one.plus_25,
                "plus_100": one.plus_100,
                "infinite": one.infinite,
            },
        })
    });
    let seconds = insight.seconds().as_ref().map(of_seconds);
    let memory = snapshot.gauges.memory;
    json!({
        "requests": snapshot.total.requests(),
        "prompt_tokens": snapshot.total.total(),
        "waterfall": of_waterfall(&snapshot.total),
        "seconds": seconds,
        "findings": of_causes(&insight.causes().sums()),
        "tenants": named("tenant", &snapshot.tenants),
        "models": named("model", &snapshot.models),
        "prefixes": prefixes.collect::<Vec<_>>(),
        "predictions": {
            "cached_tokens": snapshot.gauges.cached_tokens,
            "ttft_s": snapshot.gauges.ttft_s,
        },
        "ghosts": ghosts.collect::<Vec<_>>(),
        "memory": {
            "capacity_blocks": memory.capacity_blocks,
            "blocks": memory.blocks,
            "forgotten_blocks": memory.forgotten_blocks,
            "tokens": memory.tokens,
            "forgotten_tokens": memory.forgotten_tokens,
        },
    })
}

/// Adds the difference between the prompt and its nearest earlier one.
fn add_parted(told: &mut Value, parted: &NeighbourDivergence) {
    told["neighbour"] = json!({ "request": parted.neighbour });
    told["diverged_at"] = json!(parted.byte.map(|byte| json!({ "byte": byte })));
    told["lost_words"] = json!(parted.lost_words);
    let evidence = parted.evidence.as_ref();
    told["cause"] = json!(evidence.map(|evidence| evidence.cause.name()));
    told["title"] = json!(evidence.map(Evidence::title));
    told["fix"] = json!(evidence.map(Evidence::fix));
}

/// Sums by cause over all compared prompts, as JSON.
fn of_causes(sums: &CauseSums) -> Value {
    let causes = sums.causes.iter().map(|(cause, sum)| {
        json!({
            "cause": cause.name(),
            "title": cause.title(),
            "requests": sum.requests,
            "lost_words": sum.lost_words,
            "fix": cause.fix(),
        })
    });
    json!({ "looked_at": sums.looked_at, "causes": causes.collect::<Vec<_>>() })
}

/// Seconds by bucket, and how far they can be relied upon.
fn of_seconds(seconds: &BucketSeconds) -> Value {
    let buckets: Value =
        seconds.buckets.iter().map(|(bucket, seconds)| (bucket.name(), *seconds)).collect();
    json!({
        "buckets": buckets,
        "samples": seconds.fitted.samples,
        "median_relative_error": seconds.fitted.median_relative_error,
        "used_share": seconds.fitted.used_share,
    })
}

fn insight(gateway: &HttpGateway) -> Result<&Insight, ApiError> {
    gateway.observers.insight.as_deref().ok_or_else(|| {
        let message = "requests are not explained here: start without --insight off";
        ApiError::new(StatusCode::NOT_FOUND, "no_insight", message)
    })
}

/// A request as the dashboard and `headstart why` read it.
fn of_record(record: &RequestRecord) -> Value {
    json!({
        "id": record.id,
        "request_id": record.request_id,
        "at": record.at_unix_s,
        "model": record.model,
        "tenant": record.tenant,
        "replica": record.replica,
        "candidates": record.candidates,
        "prompt_tokens": record.prompt_tokens,
        "predicted_cached_tokens": record.predicted_cached_tokens,
        "cached_tokens": record.cached_tokens,
        "predicted_ttft_s": record.predicted_ttft_s,
        "ttft_s": record.ttft_s,
        "buckets": record.split.as_ref().map(of_split),
        "certainty": record.split.map(|_| record.certainty),
        "evicted": record.evicted.as_ref().map(of_eviction),
    })
}

fn of_split(split: &BucketTokens) -> Value {
    split.iter().map(|(bucket, tokens)| (bucket.name(), tokens)).collect()
}

fn of_eviction(evicted: &FirstEviction) -> Value {
    json!({
        "age_s": evicted.age.as_secs_f64(),
        "blocks_since": evicted.blocks_since,
    })
}

/// All buckets in order, with their shares.
fn of_waterfall(waterfall: &Waterfall) -> Value {
    // Shares of no tokens are 0 and not NaN, which JSON does not have.
    let total = waterfall.total().max(1) as f64;
    let rows = waterfall.iter().map(|(bucket, tokens)| {
        json!({
            "bucket": bucket.name(),
            "tokens": tokens,
            "share": tokens as f64 / total,
        })
    });
    rows.collect()
}
