//! Wrong addresses and strange publishers, as an operator of the gateway sees them: one line in
//! the log with what to do, the same under `/debug/index`, one more when it is over.

mod addresses;
mod gateway;
mod log;
mod messages;
#[path = "../support/mod.rs"]
mod support;

use std::net::TcpListener;

use bytes::Bytes;
use headstart_server::events::{SubscriberConfig, SubscriberHandle};
use log::Log;
use zeromq::{PubSocket, Socket, SocketSend, ZmqMessage};

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

/// Returns an address without a listener, for a moment at least.
pub(crate) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    format!("tcp://{}", listener.local_addr().expect("bound"))
}

pub(crate) async fn bound(socket: &mut impl Socket) -> String {
    let endpoint = socket.bind("tcp://127.0.0.1:0").await;
    endpoint.expect("bound").to_string()
}

/// Sends batch `seq` with this payload.
pub(crate) async fn send(live: &mut PubSocket, seq: u64, payload: impl Into<Bytes>) {
    let seq = Bytes::copy_from_slice(&seq.to_be_bytes());
    let frames = vec![Bytes::new(), seq, payload.into()];
    let message = ZmqMessage::try_from(frames).expect("frames");
    live.send(message).await.expect("sent");
    tokio::task::yield_now().await;
}

/// A batch of events of a made-up type.
pub(crate) fn of_type(name: &str) -> Vec<u8> {
    let name = [&[0xd9, name.len() as u8][..], name.as_bytes()].concat();
    let event = [&[0x92][..], &name, &[0xc0]].concat();
    [&[0x92, 0xc0, 0x92][..], &event, &event].concat()
}
