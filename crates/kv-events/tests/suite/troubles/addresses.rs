//! Addresses at which there is no publisher, or something else.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use headstart_kv_events::{
    EventPublisher, PublisherConfig, SubscriberConfig, SubscriberHandle, subscribe,
};
use headstart_router::stream::StreamStatus;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use super::log::Log;
use super::odd_publisher::{bound, free_address};
use super::{check_warned, config, eventually, problem};

/// Connections of which all but the first could be told again.
const SOME_ATTEMPTS: usize = 4;

fn follow(config: SubscriberConfig) -> SubscriberHandle {
    subscribe(config, |_| {})
}

async fn has_problem(handle: &SubscriberHandle, words: &str) {
    eventually(words, || problem(handle).contains(words)).await;
}

async fn publisher(endpoint: &str) -> EventPublisher {
    let config = PublisherConfig {
        endpoint: endpoint.to_owned(),
        replay_endpoint: Some("tcp://127.0.0.1:0".to_owned()),
        topic: String::new(),
        buffer_steps: 100,
    };
    EventPublisher::bind(config).await.expect("bound")
}

/// Says these bytes to everybody who connects, or hangs up at once where there are none. Counts
/// connections.
fn stranger(answer: Option<&'static [u8]>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("tcp://{}", listener.local_addr().expect("bound"));
    let connections = Arc::<AtomicUsize>::default();
    let counted = connections.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            counted.fetch_add(1, Relaxed);
            let Some(answer) = answer else { continue };
            std::thread::spawn(move || {
                // A client that hung up is no failure.
                let _ = stream.write_all(answer);
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    (address, connections)
}

#[tokio::test]
async fn a_dead_port_is_told_once_and_so_is_its_recovery() {
    let log = Log::new();
    let endpoint = free_address();
    let handle = follow(config(&endpoint, None));
    has_problem(&handle, "nothing listens at this port").await;
    assert!(problem(&handle).contains(&endpoint), "{}", problem(&handle));
    check_warned(&log, &endpoint, &["connection refused", "kv=", "--kv-events-config"]);
    assert_eq!(log.of("INFO"), Vec::<String>::new());
    let publisher = publisher(&endpoint).await;
    eventually("a recovery", || handle.reporter().problem().is_none()).await;
    let mut lines = log.of("WARN");
    lines.retain(|line| line.contains("followed again"));
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["followed again", "replica=7", "http://engine:8000", &endpoint] {
        assert!(lines[0].contains(part), "{lines:?}");
    }
    // From now on it is news again.
    publisher.close().await;
    eventually("a second line", || log.of("WARN").len() > 1).await;
}

#[tokio::test]
async fn another_protocol_is_told_from_a_port_that_is_silent() {
    let http = &b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
                  connection: close\r\n\r\nInvalid HTTP request received."[..];
    for (answer, words) in [
        (Some(http), "does not speak ZeroMQ"),
        (None, "does not speak ZeroMQ"),
        (Some(&b""[..]), "sends nothing"),
    ] {
        let log = Log::new();
        let (endpoint, connections) = stranger(answer);
        let handle = follow(config(&endpoint, None));
        has_problem(&handle, words).await;
        eventually("attempts", || connections.load(Relaxed) >= SOME_ATTEMPTS).await;
        check_warned(&log, &endpoint, &[words, "HTTP port"]);
    }
}

#[tokio::test]
async fn a_host_without_an_address_is_told() {
    let log = Log::new();
    let endpoint = "tcp://no-such-host.invalid:5557";
    let handle = follow(config(endpoint, None));
    has_problem(&handle, "cannot be resolved").await;
    check_warned(&log, endpoint, &["correct the host in kv="]);
}

#[tokio::test]
async fn addresses_that_are_swapped_are_told() {
    let (mut live, mut replay) = (PubSocket::new(), RouterSocket::new());
    let (live, replay) = (bound(&mut live).await, bound(&mut replay).await);
    let log = Log::new();
    let handle = follow(config(&replay, Some(&live)));
    has_problem(&handle, "another kind").await;
    check_warned(&log, &replay, &["swapped"]);
    drop(handle);
    // Only one of them is wrong: events are followed, and what was missed is not to be had.
    let log = Log::new();
    let handle = follow(config(&live, Some(&live)));
    has_problem(&handle, "another kind").await;
    check_warned(&log, &live, &["missed KV events", "swapped"]);
    assert!(handle.report().status != StreamStatus::Down);
}

#[tokio::test]
async fn a_rank_without_a_stream_is_told_with_its_number() {
    let log = Log::new();
    let endpoint = free_address();
    let handle = follow(SubscriberConfig { rank: Some(3), ..config(&endpoint, None) });
    has_problem(&handle, "data-parallel-size").await;
    check_warned(&log, &endpoint, &["rank=3", "Rank 3", "data-parallel-size right?"]);
}

#[tokio::test]
async fn a_replay_address_without_answers_is_told() {
    let mut live = PubSocket::new();
    let live = bound(&mut live).await;
    let mut mute = RouterSocket::new();
    let mute_at = bound(&mut mute).await;
    for (replay, words) in [(free_address(), "nothing listens"), (mute_at, "get no answer")] {
        let log = Log::new();
        let handle = follow(config(&live, Some(&replay)));
        has_problem(&handle, words).await;
        check_warned(&log, &replay, &["missed KV events", "replay=", words]);
    }
    // It begins to answer: that there is nothing.
    let log = Log::new();
    let replay = format!("tcp://{}", mute.binds().keys().next().expect("bound"));
    let replay = replay.replace("tcp://tcp://", "tcp://");
    let handle = follow(config(&live, Some(&replay)));
    has_problem(&handle, "get no answer").await;
    let answer = async {
        loop {
            let request = mute.recv().await.expect("a request").into_vec();
            let end = [&b""[..], &[0xff; 8], b""].map(Bytes::from_static);
            let frames = [request[..1].to_vec(), end.to_vec()].concat();
            // Earlier askers have gone.
            let _ = mute.send(ZmqMessage::try_from(frames).expect("frames")).await;
        }
    };
    tokio::select! {
        () = answer => {}
        () = eventually("an answer", || handle.reporter().problem().is_none()) => {}
    }
    let again = log.of("WARN");
    let again = again.iter().filter(|line| line.contains("asked for again"));
    assert_eq!(again.count(), 1);
}
