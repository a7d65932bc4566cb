//! `GET /debug/index`: what the router knows of its replicas' caches, and how it came to know it.
//!
//! Route keys are keyed hashes of tokens: nothing here tells a prompt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Release};

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use headstart_core::{ReplicaId, Tier};
use headstart_router::Health;
use headstart_router::index::Resident;
use headstart_router::stream::StreamReport;
use http::{HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::clock::unix_seconds;
use crate::gateway::Gateway;
use crate::openai::ApiError;
use crate::upstream::Upstream;

/// Bytes of a piece of a long answer.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that wait for a slow reader, 16 MiB of them. The index is not held up for him: who takes
/// less gets no more than this, and the server's log says so.
const PIECES: usize = 256;

/// Which entries are wanted.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Of this replica only.
    replica: Option<u32>,
    /// At most so many.
    limit: Option<usize>,
}

/// Sizes, counters, and per replica: health, stream and blocks by tier.
pub(super) async fn index(gateway: &Arc<Gateway>) -> Response {
    let gateway = gateway.clone();
    match tokio::task::spawn_blocking(move || summary(&gateway)).await {
        Ok(summary) => Json(summary).into_response(),
        Err(_) => failed(),
    }
}

fn summary(gateway: &Gateway) -> Value {
    let mut blocks: BTreeMap<ReplicaId, Blocks> = BTreeMap::new();
    gateway
        .index()
        .residents(gateway.clock.now(), &mut |resident| {
            blocks.entry(resident.replica).or_default().add(&resident);
        });
    let (statuses, stats) = {
        let router = gateway.router();
        (router.replicas().collect::<Vec<_>>(), router.stats())
    };
    let replicas = statuses.iter().map(|status| {
        let blocks = blocks.remove(&status.replica).unwrap_or_default();
        let upstream = gateway.upstream(status.replica);
        json!({
            "replica": status.replica.0,
            "upstream": upstream.map(Upstream::base),
            "rank": upstream.and_then(Upstream::rank),
            "healthy": status.health == Health::Healthy,
            "requests_in_flight": status.in_flight.requests,
            "blocks": blocks.by_tier,
            "doubtful_blocks": blocks.doubtful,
            "stream": gateway.stream_report(status.replica).map(|report| stream(&report)),
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
        "replicas": replicas,
    })
}

/// Where an event stream stands.
fn stream(report: &StreamReport) -> Value {
    let lag_s = report.last_ts.map(|ts| (unix_seconds() - ts).max(0.0));
    json!({
        "state": report.status.name(),
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
struct Blocks {
    by_tier: BTreeMap<&'static str, usize>,
    doubtful: usize,
}

impl Blocks {
    fn add(&mut self, resident: &Resident) {
        *self.by_tier.entry(tier_name(resident.tier)).or_default() += 1;
        self.doubtful += usize::from(resident.is_doubtful);
    }
}

/// One JSON object a line: replica, key, group, tier, and whether it is doubtful.
pub(super) fn entries(gateway: &Arc<Gateway>, wanted: Wanted) -> Response {
    let (pieces, received) = mpsc::channel::<Bytes>(PIECES);
    let gateway = gateway.clone();
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut = is_cut.clone();
    tokio::task::spawn_blocking(move || write_entries(&gateway, wanted, &pieces, &cut));
    let body = stream::unfold((received, is_cut), |(mut received, is_cut)| async move {
        match received.recv().await {
            Some(piece) => Some((Ok(piece), (received, is_cut))),
            // The body breaks off, so that nobody takes a part for the whole.
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
    gateway: &Gateway,
    wanted: Wanted,
    pieces: &mpsc::Sender<Bytes>,
    cut: &AtomicBool,
) {
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    let mut left = wanted.limit.unwrap_or(usize::MAX);
    let mut is_cut = false;
    gateway
        .index()
        .residents(gateway.clock.now(), &mut |resident| {
            let is_wanted = wanted.replica.is_none_or(|id| resident.replica.0 == id);
            if !is_wanted || left == 0 || is_cut {
                return;
            }
            left -= 1;
            piece.extend_from_slice(line(&resident).as_bytes());
            if piece.len() >= PIECE_BYTES {
                is_cut = pieces.try_send(std::mem::take(&mut piece).into()).is_err();
            }
        });
    if is_cut {
        cut.store(true, Release);
        tracing::warn!("a reader of the index was too slow and got only a part of it");
        return;
    }
    if pieces.try_send(piece.into()).is_err() {
        cut.store(true, Release);
    }
}

fn line(resident: &Resident) -> String {
    let entry = json!({
        "replica": resident.replica.0,
        "key": format!("{:016x}", resident.key.0),
        "group": resident.group,
        "tier": tier_name(resident.tier),
        "doubtful": resident.is_doubtful,
    });
    format!("{entry}\n")
}

fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Device => "device",
        Tier::Host => "host",
        Tier::Disk => "disk",
        Tier::Remote => "remote",
    }
}

fn failed() -> Response {
    let message = "the index could not be read";
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message).into_response()
}
