//! Messages that are no events, and events of unknown types.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use headstart_core::CacheEvent;
use headstart_kv_events::{
    SubscriberConfig, SubscriberHandle, decode_batch, encode_batch, subscribe, subscribe_again,
};
use headstart_router::stream::{StreamStatus, StreamUpdate};
use zeromq::{PubSocket, Socket, SocketSend, ZmqMessage};

use super::log::Log;
use super::odd_publisher::{bound, of_type, send};
use super::{check_warned, config, eventually, problem};

/// Updates of a subscription, as short texts.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn follow(&self, config: SubscriberConfig) -> SubscriberHandle {
        let told = self.0.clone();
        subscribe(config, move |update| {
            let text = match update {
                StreamUpdate::Skipped { reason, count } => format!("{reason} {count}"),
                StreamUpdate::Doubt { batches } => format!("doubt {batches}"),
                StreamUpdate::Events { events, .. } => format!("events {}", events.len()),
                _ => return,
            };
            told.lock().expect("no panic").push(text);
        })
    }

    fn count(&self, text: &str) -> usize {
        let told = self.0.lock().expect("no panic");
        told.iter().filter(|told| **told == text).count()
    }
}

/// Sends clears until one arrives; the number of the next batch.
async fn until_heard(live: &mut PubSocket, told: &Told) -> u64 {
    for seq in 0.. {
        send(live, seq, encode_batch(0.0, &[CacheEvent::Cleared], None)).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        if told.count("events 1") > 0 {
            return seq + 1;
        }
    }
    unreachable!("numbers do not end here")
}

#[tokio::test]
async fn garbage_is_told_once_and_counted_whole() {
    const GARBAGE: u64 = 200;
    let mut live = PubSocket::new();
    let endpoint = bound(&mut live).await;
    let log = Log::new();
    let told = Told::default();
    let handle = told.follow(config(&endpoint, None));
    let first = until_heard(&mut live, &told).await;
    let before = (handle.report().lost_batches, log.of("WARN").len());
    assert_eq!(before.1, 0, "{:?}", log.of("WARN"));
    for seq in first..first + GARBAGE {
        send(&mut live, seq, &b"\xc1 no batch"[..]).await;
        // Not even frames.
        let message = ZmqMessage::from("garbage");
        live.send(message).await.expect("sent");
    }
    eventually("all of it", || {
        let report = handle.report();
        report.lost_batches - before.0 == GARBAGE && report.bad_messages == GARBAGE
    })
    .await;
    assert_eq!(told.count("bad_message 1") as u64, GARBAGE);
    assert_eq!(told.count("doubt 1") as u64, GARBAGE);
    check_warned(&log, &endpoint, &["cannot be read", "publishes KV events there"]);
    assert!(problem(&handle).contains("messages cannot be read"), "{}", problem(&handle));
    // Another subscription of the same stream knows what was told.
    let reporter = handle.reporter();
    drop(handle);
    assert_eq!((reporter.report().status, reporter.problem()), (StreamStatus::Down, None));
    let sink = told.clone();
    let again = subscribe_again(config(&endpoint, None), &reporter, move |update| {
        if matches!(update, StreamUpdate::Skipped { .. }) {
            sink.0.lock().expect("no panic").push("again".to_owned());
        }
    });
    while told.count("again") < 3 {
        live.send(ZmqMessage::from("garbage")).await.expect("sent");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(log.of("WARN").len(), 1, "{:?}", log.of("WARN"));
    drop(again);
}

#[tokio::test]
async fn an_unknown_type_of_event_is_named_once_and_counted() {
    let mut live = PubSocket::new();
    let endpoint = bound(&mut live).await;
    let log = Log::new();
    let told = Told::default();
    let handle = told.follow(config(&endpoint, None));
    let first = until_heard(&mut live, &told).await;
    let hostile = format!("Block\n\u{1b}[31mPinned{}", "x".repeat(200));
    for seq in first..first + 20 {
        send(&mut live, seq, of_type(&hostile)).await;
    }
    eventually("all of them", || told.count("unknown_type 2") == 20).await;
    let lines = log.of("WARN");
    let named = lines.iter().filter(|line| line.contains("unknown type"));
    let [line] = &named.collect::<Vec<_>>()[..] else { panic!("{lines:?}") };
    for part in ["replica=7", &endpoint, r"Block\n\u{1b}[31mPinned", "...`"] {
        assert!(line.contains(part), "{line} lacks {part}");
    }
    assert!(line.len() < 600 && !line.contains('\n'), "{line}");
    // They put what is known in doubt; that is one line more.
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(problem(&handle).contains("not known"), "{}", problem(&handle));
    let name = decode_batch(&of_type("Short")).expect("a batch").unknown_type;
    assert_eq!(name.as_deref(), Some("Short"));
}
