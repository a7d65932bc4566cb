//! Wrong addresses and strange publishers, as an operator sees them: one line in the log with
//! the fix, one more when it is over. The server's test `event_troubles` shows them in
//! `/debug/index`.

mod addresses;
mod log;
mod messages;
mod odd_publisher;

use std::time::Duration;

use headstart_kv_events::{SubscriberConfig, SubscriberHandle};
use log::Log;

/// Longest wait for anything; local sockets need milliseconds.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Follows as replica 7 of an upstream.
pub(crate) fn config(endpoint: &str, replay: Option<&str>) -> SubscriberConfig {
    SubscriberConfig {
        endpoint: endpoint.to_owned(),
        replay_endpoint: replay.map(str::to_owned),
        replica: "7".to_owned(),
        upstream: Some("http://engine:8000".to_owned()),
        ..SubscriberConfig::default()
    }
}

pub(crate) fn problem(handle: &SubscriberHandle) -> String {
    handle.reporter().problem().unwrap_or_default()
}

/// Exactly one warning, which says who, where, what and what to do.
pub(crate) fn check_warned(log: &Log, endpoint: &str, parts: &[&str]) {
    let lines = log.of("WARN");
    assert_eq!(lines.len(), 1, "{lines:?}");
    let fields = ["replica=7", "upstream=http://engine:8000", endpoint];
    for part in fields.iter().chain(parts) {
        assert!(lines[0].contains(part), "{} lacks `{part}`", lines[0]);
    }
}

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(TIME_MAX, wait).await;
    waited.unwrap_or_else(|_| panic!("never came: {what}"));
}
