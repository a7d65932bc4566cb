//! `GET /debug/index`: what the router knows of its replicas' caches, and how it came to know it.
//! `GET /debug/index/entries`: all of it, or what is asked for.
//!
//! Route keys are keyed hashes of tokens: nothing here tells a prompt. Whatever is wrong with a
//! request is said in the same shape as everywhere in this API.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};

use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use headstart_core::ReplicaId;
use headstart_index_sync::clock::unix_seconds;
use headstart_index_sync::shared::{GatewayRole, SharedIndex, SharedIndexStats};
use headstart_kv_events::StreamReporter;
use headstart_router::Health;
use headstart_router::index::ResidentBlock;
use http::{HeaderValue, header};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::dashboard::LabelResidency;
use crate::gateway::HttpGateway;
use crate::openai::ApiError;
use crate::upstream::Upstream;

/// Bytes of a piece of a long answer.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that wait for a slow reader, 16 MiB of them. The index is not held up for him: who takes
/// less gets no more than this, and the server's log says so.
const PIECES: usize = 256;

/// Filter of the entries to dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DumpFilter {
    /// Of this replica only.
    replica: Option<u32>,
    /// Most entries to dump.
    limit: Option<usize>,
}

impl DumpFilter {
    /// Parses the names and values of a query.
    fn of(query: &[(String, String)]) -> Result<Self, ApiError> {
        let mut wanted = Self::default();
        for (name, value) in query {
            match &name[..] {
                "replica" => set(&mut wanted.replica, name, value)?,
                "limit" => set(&mut wanted.limit, name, value)?,
                _ => {
                    let message = format!("`{name}` is not known; known are `replica` and `limit`");
                    return Err(ApiError::invalid(name, message));
                }
            }
        }
        Ok(wanted)
    }
}

/// Sets what was not given yet to the number that `value` is.
fn set<T: FromStr>(wanted: &mut Option<T>, name: &str, value: &str) -> Result<(), ApiError> {
    let number = value.parse().map_err(|_| {
        let message = format!("`{name}` must be a whole number such as 3; or leave it out");
        ApiError::invalid(name, message)
    })?;
    match wanted.replace(number) {
        None => Ok(()),
        Some(_) => Err(ApiError::invalid(name, format!("`{name}` is given twice; once is enough"))),
    }
}

/// Sizes, counters, and per replica: health, stream and blocks by tier.
pub(super) async fn index(
    State(gateway): State<Arc<HttpGateway>>,
) -> Result<Json<Value>, ApiError> {
    // The visit of all blocks is too long for a network thread.
    let summary = tokio::task::spawn_blocking(move || summary(&gateway)).await;
    summary
        .map(Json)
        .map_err(|_| ApiError::internal("the index could not be read; the server's log says why"))
}

fn summary(gateway: &HttpGateway) -> Value {
    let mut blocks: BTreeMap<ReplicaId, ReplicaBlockCounts> = BTreeMap::new();
    gateway.index().residents(gateway.clock.now(), &mut |resident| {
        blocks.entry(resident.replica).or_default().add(&resident);
    });
    // One guard for both, so that they are of the same moment. The count of blocks is over by then.
    let (statuses, stats) = {
        let router = gateway.router();
        (router.replicas().collect::<Vec<_>>(), router.stats())
    };
    let replicas = statuses.iter().map(|status| {
        let blocks = blocks.remove(&status.replica).unwrap_or_default();
        let upstream = gateway.upstream(status.replica);
        let endpoints = gateway.event_endpoints(status.replica);
        json!({
            "replica": status.replica.0,
            "upstream": upstream.map(Upstream::base),
            "rank": upstream.and_then(Upstream::rank),
            "kv_events": endpoints.map(|at| &at.events),
            "kv_replay": endpoints.and_then(|at| at.replay.as_ref()),
            "healthy": status.health == Health::Healthy,
            "requests_in_flight": status.in_flight.requests,
            "blocks": blocks.by_tier,
            "doubtful_blocks": blocks.doubtful,
            "listener": gateway.shared_index().and_then(|all| listener(all, status.replica)),
            "stream": gateway.stream_reporter(status.replica).map(|told| stream(&told)),
        })
    });
    let replicas: Vec<Value> = replicas.collect();
    let index = stats.index;
    json!({
        "entries": index.entries,
        "doubtful": index.doubtful,
        "assumed_prompts": index.assumed_prompts,
        "held_blocks": index.held,
        "bytes": index.bytes,
        "orphans": index.orphans,
        "unknown_removals": index.unknown_removals,
        "malformed_events": index.malformed_events,
        "evicted": index.evicted,
        "ignored_events": stats.ignored_events,
        "prompt_tokens": stats.predicted.lookups,
        "predicted_cached_tokens": stats.predicted.hits,
        "shared_index": gateway.shared_index().map(|index| shared(&index.shared_stats())),
        "notices": gateway.notices(),
        "labels": labels(gateway),
        "replicas": replicas,
    })
}

/// The prefixes that have names, and which replicas hold how much of them.
fn labels(gateway: &HttpGateway) -> Vec<Value> {
    let now = gateway.clock.now();
    let labels = gateway.dashboard.labels.held(gateway.index(), now);
    let label = |residency: &LabelResidency<'_>| {
        let held = residency.held.iter();
        let held = held.map(|(replica, tokens)| json!({"replica": replica.0, "tokens": tokens}));
        json!({"label": residency.name, "held": held.collect::<Vec<_>>()})
    };
    labels.iter().map(label).collect()
}

/// Label of the gateway that follows a replica's events, as in the metrics; `None` without events.
fn listener(index: &SharedIndex, replica: ReplicaId) -> Option<&'static str> {
    index.report(replica).map(|report| match report.role {
        GatewayRole::Owning => "own",
        GatewayRole::Following => "other",
        GatewayRole::Alone => "alone",
    })
}

/// State of the shared index, as JSON.
fn shared(stats: &SharedIndexStats) -> Value {
    json!({
        "connected": stats.is_connected,
        "own": stats.owned,
        "other": stats.followed,
        "alone": stats.alone,
        "errors": stats.errors,
        "holes": stats.holes,
        "lost_leases": stats.lost_leases,
    })
}

/// State of an event stream, as JSON.
fn stream(told: &StreamReporter) -> Value {
    let report = told.report();
    // The engine's clock may be ahead of ours.
    let lag_s = report.last_ts.map(|ts| (unix_seconds() - ts).max(0.0));
    json!({
        "state": report.status.name(),
        // In words, with what to do about it; null where all is well.
        "problem": told.problem(),
        "restarts": report.epoch,
        "next_seq": report.next_seq,
        "last_event_age_s": lag_s,
        "applied_batches": report.applied_batches,
        "lost_batches": report.lost_batches,
        "duplicate_batches": report.duplicate_batches,
        "stale_batches": report.stale_batches,
        "damaged_batches": report.damaged_batches,
        "bad_messages": report.bad_messages,
        "rank_mismatches": report.rank_mismatches,
        "held_batches": report.held_batches,
        "held_bytes": report.held_bytes,
        "replays_asked": report.replays_asked,
        "replays_completed": report.replays_completed,
        "replays_failed": report.replays_failed,
    })
}

/// Blocks of one replica.
#[derive(Default)]
struct ReplicaBlockCounts {
    by_tier: BTreeMap<&'static str, usize>,
    doubtful: usize,
}

impl ReplicaBlockCounts {
    fn add(&mut self, resident: &ResidentBlock) {
        *self.by_tier.entry(resident.tier.name()).or_default() += 1;
        self.doubtful += usize::from(resident.is_doubtful);
    }
}

/// One JSON object a line: replica, key, group, tier, and whether it is doubtful.
pub(super) async fn entries(
    State(gateway): State<Arc<HttpGateway>>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Response, ApiError> {
    let wanted = DumpFilter::of(&query)?;
    if let Some(replica) = wanted.replica {
        exists(&gateway, ReplicaId(replica))?;
    }
    Ok(dump(&gateway, wanted))
}

/// Whether there is such a replica. What it holds may still be nothing.
fn exists(gateway: &HttpGateway, replica: ReplicaId) -> Result<(), ApiError> {
    let there: Vec<u32> = gateway.router().replicas().map(|status| status.replica.0).collect();
    if there.contains(&replica.0) {
        return Ok(());
    }
    let there = match (there.iter().min(), there.iter().max()) {
        (Some(first), Some(last)) if first < last => format!("ask for one of {first} to {last}"),
        (Some(only), _) => format!("there is only {only}"),
        _ => "there are no replicas".to_owned(),
    };
    let message = format!("there is no replica {}; {there}", replica.0);
    Err(ApiError::invalid("replica", message))
}

fn dump(gateway: &Arc<HttpGateway>, wanted: DumpFilter) -> Response {
    let (pieces, received) = mpsc::channel::<Bytes>(PIECES);
    let gateway = gateway.clone();
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut = is_cut.clone();
    tokio::task::spawn_blocking(move || write_entries(&gateway, wanted, &pieces, &cut));
    let body = stream::unfold((received, is_cut), |(mut received, is_cut)| async move {
        match received.recv().await {
            Some(piece) => Some((Ok(piece), (received, is_cut))),
            // The body breaks off, so that a client does not take a part for the whole.
            None if is_cut.swap(false, AcqRel) => {
                let error = std::io::Error::other("the reader was too slow");
                Some((Err(error), (received, is_cut)))
            }
            None => None,
        }
    });
    let kind = HeaderValue::from_static("application/x-ndjson");
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(body)).into_response()
}

fn write_entries(
    gateway: &HttpGateway,
    wanted: DumpFilter,
    pieces: &mpsc::Sender<Bytes>,
    cut: &AtomicBool,
) {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    let mut left = wanted.limit.unwrap_or(usize::MAX);
    let mut sent = Ok(());
    gateway.index().residents(gateway.clock.now(), &mut |resident| {
        // A visit cannot be stopped early, so further blocks are passed over.
        let is_wanted = wanted.replica.is_none_or(|id| resident.replica.0 == id);
        if !is_wanted || left == 0 || sent.is_err() {
            return;
        }
        left -= 1;
        piece.extend_from_slice(line(&resident).as_bytes());
        if piece.len() >= PIECE_BYTES {
            sent = pieces.try_send(std::mem::take(&mut piece).into());
        }
    });
    conclude(sent.and_then(|()| pieces.try_send(piece.into())), cut);
}

/// Says how it ended.
fn conclude(sent: Result<(), TrySendError<Bytes>>, cut: &AtomicBool) {
    match sent {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => {
            cut.store(true, Release);
            tracing::warn!("a reader of the index was too slow and got only a part of it");
        }
        // Who has enough may go: `headstart index dump | head`.
        Err(TrySendError::Closed(_)) => {
            tracing::debug!("a reader of the index went before its end");
        }
    }
}

fn line(resident: &ResidentBlock) -> String {
    let entry = json!({
        "replica": resident.replica.0,
        "key": format!("{:016x}", resident.key.0),
        "group": resident.group,
        "tier": resident.tier.name(),
        "doubtful": resident.is_doubtful,
    });
    format!("{entry}\n")
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn check(query: &[(&str, &str)], expected: Result<(Option<u32>, Option<usize>), &str>) {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let query: Vec<_> = query.iter().map(owned).collect();
        match (DumpFilter::of(&query), expected) {
            (Ok(wanted), Ok(expected)) => assert_eq!((wanted.replica, wanted.limit), expected),
            (Err(error), Err(param)) => {
                assert_eq!(error.status, StatusCode::BAD_REQUEST);
                assert_eq!(error.param.as_deref(), Some(param), "{query:?}");
            }
            (wanted, expected) => panic!("{query:?}: {wanted:?} against {expected:?}"),
        }
    }

    #[test]
    fn a_query_is_taken_whole_or_refused_by_name() {
        check(&[], Ok((None, None)));
        check(&[("limit", "0")], Ok((None, Some(0))));
        check(&[("replica", "3"), ("limit", "7")], Ok((Some(3), Some(7))));
        for wrong in ["", "abc", "-1", "1.5", " 1", "99999999999999999999"] {
            check(&[("limit", wrong)], Err("limit"));
            check(&[("replica", wrong)], Err("replica"));
        }
        check(&[("replica", "4294967296")], Err("replica"));
        check(&[("limit", "1"), ("limit", "1")], Err("limit"));
        check(&[("limit", "1"), ("Limit", "1")], Err("Limit"));
        check(&[("key", "0")], Err("key"));
    }

    /// One that has gone is not called slow, and one that is slow is cut off.
    #[test]
    fn a_reader_that_went_is_told_from_a_slow_one() {
        let (pieces, received) = mpsc::channel::<Bytes>(1);
        let end = |pieces: &mpsc::Sender<Bytes>| {
            let cut = AtomicBool::new(false);
            conclude(pieces.try_send(Bytes::new()), &cut);
            cut.into_inner()
        };
        assert!(!end(&pieces), "it fits");
        assert!(end(&pieces), "nobody takes it");
        drop(received);
        assert!(!end(&pieces), "nobody wants it");
    }
}
