//! A snapshot a second for those who listen, and one for each who asks.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use headstart_index_sync::clock::unix_seconds;
use tokio::time::MissedTickBehavior;

use super::gather;
use super::history::{self, POINTS_MAX};
use super::snapshot::{HistoryPart, Snapshot};
use crate::gateway::HttpGateway;
use crate::lock::lock;

/// Time between two snapshots.
pub const PERIOD: Duration = Duration::from_secs(1);

/// Seconds of history in each snapshot but the first: who misses no more than these has all.
const POINTS_AGAIN: usize = 10;

/// Counts seconds for as long as the gateway lives, and tells those who listen.
pub async fn run(gateway: Weak<HttpGateway>) {
    let mut ticks = tokio::time::interval(PERIOD);
    // After a stall, a burst of ticks would add seconds without requests to the history.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(gateway) = gateway.upgrade() else {
            return;
        };
        let dashboard = &gateway.dashboard;
        let totals = gateway.metrics.totals();
        let at = unix_seconds() as u64;
        lock(&dashboard.history).end_second(at, totals);
        if gateway.draining.load(Relaxed) {
            // Ends the streams, so that shutdown does not wait for them.
            dashboard.newest.send_replace(None);
            return;
        }
        if dashboard.newest.receiver_count() > 0
            && let Some(snapshot) = latest(&gateway).await
        {
            let part = with_history(&gateway, &snapshot, POINTS_AGAIN);
            dashboard.newest.send_replace(Some(event(&part)));
        }
    }
}

/// The newest snapshot with all of its history; at most a second old. None where the making failed.
pub async fn whole(gateway: &Arc<HttpGateway>) -> Option<Snapshot> {
    let snapshot = latest(gateway).await?;
    Some(with_history(gateway, &snapshot, POINTS_MAX))
}

/// A snapshot as a server-sent event.
#[must_use]
pub fn event(snapshot: &Snapshot) -> Bytes {
    let json = serde_json::to_string(snapshot);
    format!("data: {}\n\n", json.unwrap_or_default()).into()
}

async fn latest(gateway: &Arc<HttpGateway>) -> Option<Arc<Snapshot>> {
    let looked_at = gateway.clone();
    let made = gateway.dashboard.latest.get(move || gather::snapshot(&looked_at));
    made.await
}

fn with_history(gateway: &HttpGateway, snapshot: &Snapshot, seconds: usize) -> Snapshot {
    let mut told = snapshot.clone();
    let history = lock(&gateway.dashboard.history);
    told.history = HistoryPart {
        columns: history::COLUMNS.map(str::to_owned).to_vec(),
        is_whole: seconds == POINTS_MAX,
        points: history.last(seconds).into_iter().map(Vec::from).collect(),
        ttft: history.ttft(seconds),
    };
    told
}
