//! Event streams of the replicas: their state, and their updates applied to the index.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use headstart_core::{CacheEvent, ReplicaId};
use headstart_index_sync::clock::unix_seconds;
use headstart_kv_events::StreamReporter;
use headstart_router::index::Update;
use headstart_router::stream::{StreamReport, StreamStatus, StreamUpdate};

use super::HttpGateway;
use crate::lock::lock;

impl HttpGateway {
    /// Takes note of what a replica's event stream said.
    pub fn on_stream(&self, replica: ReplicaId, update: StreamUpdate) {
        let name = replica.to_string();
        let count = |outcome: &str, by: u64| {
            self.metrics.index.kv_events.with_label_values(&[&name[..], outcome]).inc_by(by);
        };
        match update {
            StreamUpdate::Events { events, .. } => {
                self.tell_index(replica, Update::Events(&events), events.len());
                // After the index took the events, because the lag includes that time.
                self.note_lag(replica, &name);
                count("applied", events.len() as u64);
            }
            StreamUpdate::Clear => {
                self.tell_index(replica, Update::Events(&[CacheEvent::Cleared]), 1);
                count("cleared", 1);
            }
            StreamUpdate::Doubt { batches } => {
                // Said in the log by the subscriber, which limits how often.
                self.tell_index(replica, Update::Doubt, 0);
                count("lost", batches);
            }
            StreamUpdate::Trust => {
                tracing::info!(%replica, "KV events were late, not lost; what it holds is sure");
                self.tell_index(replica, Update::Trust, 0);
            }
            StreamUpdate::Skipped { reason, count: skipped } => {
                count("skipped", skipped);
                self.metrics.index.note_skipped(&name, reason, skipped);
            }
            StreamUpdate::Status(status) => {
                tracing::debug!(%replica, status = status.name(), "KV event stream");
            }
        }
    }

    /// Notes that this gateway follows a replica's event stream; replaces an earlier reporter.
    pub fn follow_stream(&self, replica: ReplicaId, reporter: StreamReporter) {
        self.lock_streams().insert(replica, reporter);
    }

    /// Notes that this gateway no longer follows a replica's event stream.
    pub fn leave_stream(&self, replica: ReplicaId) {
        self.lock_streams().remove(&replica);
    }

    /// State of a replica's event stream; `None` without a stream.
    #[must_use]
    pub fn stream_report(&self, replica: ReplicaId) -> Option<StreamReport> {
        self.stream_reporter(replica).map(|stream| stream.report())
    }

    /// The same, to be asked again.
    #[must_use]
    pub fn stream_reporter(&self, replica: ReplicaId) -> Option<StreamReporter> {
        self.lock_streams().get(&replica).cloned()
    }

    /// Whether a replica says what it stores and removes: one in this process always does.
    #[must_use]
    pub fn has_events(&self, replica: ReplicaId) -> bool {
        let is_followed = || self.stream_reporter(replica).is_some();
        self.fleet.embedded().is_some() || self.event_endpoints(replica).is_some() || is_followed()
    }

    pub(super) fn lock_streams(&self) -> MutexGuard<'_, BTreeMap<ReplicaId, StreamReporter>> {
        lock(&self.streams)
    }

    fn note_lag(&self, replica: ReplicaId, name: &str) {
        // What a replay brings is as old as it is; and a stamp of another batch says nothing.
        let is_live = |report: &StreamReport| {
            let is_last = report.last_seq.map(|seq| seq + 1) == Some(report.next_seq);
            report.status != StreamStatus::Replaying && is_last
        };
        let report = self.stream_report(replica).filter(is_live);
        if let Some(ts) = report.and_then(|report| report.last_ts) {
            self.metrics.index.note_lag(name, unix_seconds() - ts);
        }
    }
}
