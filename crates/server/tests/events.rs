//! Publisher and subscriber on real sockets.
//!
//! Every test runs on one thread, so that a publisher without a chance to send is a matter of
//! not awaiting anything.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use headstart_core::{BlockHash, CacheEvent, Tier};
use headstart_server::events::{
    EventPublisher, Published, PublisherConfig, QUEUE_BATCHES_MAX, StreamUpdate, SubscriberConfig,
    SubscriberHandle, encode_batch, subscribe,
};
use tokio::sync::mpsc;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

/// Longest wait for anything; local sockets need milliseconds.
const TIME_MAX: Duration = Duration::from_secs(10);

/// An update in short: the number in an [`event`], or what else came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Event(u64),
    Clear,
    Lost(u64),
    Skipped(usize),
}

/// A subscription and what it said.
struct Listener {
    updates: mpsc::UnboundedReceiver<Seen>,
    _handle: SubscriberHandle,
}

impl Listener {
    fn new(endpoint: &str, replay_endpoint: Option<&str>) -> Self {
        let config = SubscriberConfig {
            endpoint: endpoint.to_owned(),
            replay_endpoint: replay_endpoint.map(str::to_owned),
            topic_prefix: "kv".to_owned(),
        };
        let (sender, updates) = mpsc::unbounded_channel();
        let sink = move |update| {
            for seen in in_short(update) {
                // A test that has seen enough no longer listens.
                let _ = sender.send(seen);
            }
        };
        Self {
            updates,
            _handle: subscribe(config, sink),
        }
    }

    fn to(publisher: &EventPublisher) -> Self {
        let endpoints = publisher.endpoints();
        Self::new(&endpoints.events, endpoints.replay.as_deref())
    }

    /// Waits for exactly these updates.
    async fn check(&mut self, expected: impl IntoIterator<Item = Seen>) {
        for (index, expected) in expected.into_iter().enumerate() {
            let seen = within(self.updates.recv()).await;
            assert_eq!(seen, Some(expected), "update {index}");
        }
    }
}

fn in_short(update: StreamUpdate) -> Vec<Seen> {
    match update {
        StreamUpdate::Clear => vec![Seen::Clear],
        StreamUpdate::Lost { batches } => vec![Seen::Lost(batches)],
        StreamUpdate::Skipped { count } => vec![Seen::Skipped(count)],
        StreamUpdate::Events(events) => events.iter().map(number).collect(),
    }
}

fn event(number: u64) -> CacheEvent {
    CacheEvent::Removed {
        blocks: vec![BlockHash::from_u64(number)],
        tier: Tier::Device,
    }
}

fn number(event: &CacheEvent) -> Seen {
    match event {
        CacheEvent::Removed { blocks, .. } => Seen::Event(u128::from_be_bytes(blocks[0].0) as u64),
        other => panic!("never published: {other:?}"),
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIME_MAX, future)
        .await
        .expect("done in time")
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
    let published = numbers
        .into_iter()
        .map(|number| publisher.publish(vec![event(number)], 1.5));
    published
        .filter(|&published| published == Published::Dropped)
        .count()
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
        listener
            .check((100..100 + second_life).map(Seen::Event))
            .await;
        publish(&publisher, [900]);
        listener.check([Seen::Event(900)]).await;
    }
}

#[tokio::test]
async fn a_short_buffer_loses_and_says_so() {
    let publisher = bind(anywhere(4)).await;
    publish(&publisher, 0..10);
    let mut listener = Listener::to(&publisher);
    let kept = (6..10).map(Seen::Event);
    listener
        .check([Seen::Lost(6)].into_iter().chain(kept))
        .await;
    publish(&publisher, [10]);
    listener.check([Seen::Event(10)]).await;
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
    listener.check([Seen::Lost(10), Seen::Event(77)]).await;
}

#[tokio::test]
async fn without_a_replay_socket_what_is_missed_is_lost() {
    let config = PublisherConfig {
        replay_endpoint: None,
        ..anywhere(100)
    };
    let publisher = bind(config).await;
    publish(&publisher, 0..7);
    let mut listener = Listener::to(&publisher);
    // Nothing confirms a subscription, so batches are published until one arrives.
    let first = within(async {
        loop {
            publish(&publisher, [1]);
            tokio::select! {
                seen = listener.updates.recv() => return seen,
                () = tokio::task::yield_now() => {}
            }
        }
    });
    assert!(matches!(first.await, Some(Seen::Lost(lost)) if lost >= 7));
    listener.check([Seen::Event(1)]).await;
}

#[tokio::test]
async fn an_older_engine_is_understood() {
    let mut live = PubSocket::new();
    let endpoint = live
        .bind("tcp://127.0.0.1:0")
        .await
        .expect("bound")
        .to_string();
    let mut replay = RouterSocket::new();
    let replay_endpoint = replay
        .bind("tcp://127.0.0.1:0")
        .await
        .expect("bound")
        .to_string();
    let mut listener = Listener::new(&endpoint, Some(&replay_endpoint));
    let request = within(replay.recv()).await.expect("a request").into_vec();
    assert_eq!(request[1..], [Bytes::new(), Bytes::from_static(&[0; 8])]);
    for number in 0..3u64 {
        let payload = Bytes::from(encode_batch(0.0, &[event(number)], None));
        let seq = Bytes::copy_from_slice(&number.to_be_bytes());
        send(
            &mut replay,
            vec![request[0].clone(), Bytes::new(), seq, payload],
        )
        .await;
    }
    let end = Bytes::from_static(&[0xff; 8]);
    send(
        &mut replay,
        vec![request[0].clone(), Bytes::new(), end, Bytes::new()],
    )
    .await;
    listener.check((0..3).map(Seen::Event)).await;
}

async fn send(socket: &mut RouterSocket, frames: Vec<Bytes>) {
    let message = ZmqMessage::try_from(frames).expect("frames");
    within(socket.send(message)).await.expect("sent");
}

#[tokio::test]
async fn other_topics_are_not_heard() {
    let other = PublisherConfig {
        replay_endpoint: None,
        topic: "metrics".into(),
        ..anywhere(1)
    };
    let publisher = bind(other.clone()).await;
    let taken = PublisherConfig {
        endpoint: publisher.endpoints().events.clone(),
        ..other
    };
    let mut listener = Listener::to(&publisher);
    publish(&publisher, 0..100);
    within(publisher.close()).await;
    let publisher = bind(PublisherConfig {
        topic: "kv@again".into(),
        replay_endpoint: None,
        ..taken
    })
    .await;
    let first = within(async {
        loop {
            publish(&publisher, [1]);
            tokio::select! {
                seen = listener.updates.recv() => return seen,
                () = tokio::task::yield_now() => {}
            }
        }
    });
    assert!(matches!(first.await, Some(Seen::Lost(_) | Seen::Event(1))));
}

#[tokio::test]
async fn a_taken_address_is_an_error() {
    let publisher = bind(anywhere(1)).await;
    let config = PublisherConfig {
        endpoint: publisher.endpoints().events.clone(),
        ..anywhere(1)
    };
    let error = within(EventPublisher::bind(config))
        .await
        .expect_err("taken");
    assert!(
        error
            .to_string()
            .starts_with("cannot bind tcp://127.0.0.1:")
    );
}
