//! From messages to updates. What the stream makes of them is tested beside it.

use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use headstart_core::{BlockHash, CacheEvent, Tier};
use headstart_router::stream::{FollowerConfig, REPLY_TIME_MAX, StreamReport, StreamStatus};

use super::*;
use crate::{encode_batch, wire};

const CONFIG: FollowerConfig = FollowerConfig { can_replay: true, rank: Some(0) };

/// A batch that removes block `value`.
fn batch(seq: u64, value: u64) -> SequencedPayload {
    let removed = CacheEvent::Removed {
        blocks: vec![BlockHash::from_u64(value)],
        tier: Tier::Device,
        group: 0,
    };
    SequencedPayload { seq, payload: encode_batch(1.0 + value as f64, &[removed], Some(0)).into() }
}

fn raw(seq: u64, payload: &'static [u8]) -> SequencedPayload {
    let payload = Bytes::from_static(payload);
    SequencedPayload { seq, payload }
}

fn reply(batch: SequencedPayload) -> Result<Reply, SocketProblem> {
    Ok(Reply::Batch(batch))
}

/// Three frames that are no batch.
fn bad_frames() -> BadFrames {
    let frames = vec![Bytes::new(); 3];
    let message = zeromq::ZmqMessage::try_from(frames).expect("frames");
    wire::parse_live(message).expect_err("an empty number")
}

/// Updates in short: the values of [`batch`], or what else came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Value(u64),
    Clear,
    Doubt(u64),
    Trust,
    Skipped(&'static str, u64),
    Status(StreamStatus),
}

fn in_short(update: StreamUpdate) -> Seen {
    match update {
        StreamUpdate::Events { events, .. } => match &events[..] {
            [CacheEvent::Removed { blocks, .. }] => {
                Seen::Value(u128::from_be_bytes(blocks[0].0) as u64)
            }
            other => panic!("never sent: {other:?}"),
        },
        StreamUpdate::Clear => Seen::Clear,
        StreamUpdate::Doubt { batches } => Seen::Doubt(batches),
        StreamUpdate::Trust => Seen::Trust,
        StreamUpdate::Skipped { reason, count } => Seen::Skipped(reason, count),
        StreamUpdate::Status(status) => Seen::Status(status),
    }
}

/// Runs `script` on a fresh inbox.
fn check(script: impl FnOnce(&mut Inbox), expected: &[Seen]) -> StreamReport {
    let (sender, seen) = mpsc::channel();
    let sink = move |update| sender.send(in_short(update)).expect("somebody listens");
    let reporter = StreamReporter::default();
    let mut inbox = inbox(&reporter, Box::new(sink));
    script(&mut inbox);
    drop(inbox);
    assert_eq!(seen.iter().collect::<Vec<_>>(), expected);
    reporter.report()
}

fn inbox(reporter: &StreamReporter, sink: Box<dyn FnMut(StreamUpdate) + Send>) -> Inbox {
    let config = SubscriberConfig::default();
    Inbox::new(config, Follower::new(CONFIG), reporter.clone(), sink)
}

const REPLAYING: Seen = Seen::Status(StreamStatus::Replaying);

#[test]
fn effects_become_updates_and_things_to_do() {
    let script = |inbox: &mut Inbox| {
        let (first, from) = inbox.on_connected().ask.expect("whatever there is");
        assert_eq!((from, inbox.replay()), (0, Some(first)));
        assert_eq!(inbox.on_reply(first, reply(batch(0, 10))), Todo::default());
        assert_eq!(inbox.on_live(batch(2, 12)), Todo::default());
        let (second, from) = inbox.on_reply(first, Ok(Reply::End)).ask.expect("1 is missing");
        assert_eq!(from, 0);
        // Too late to be of use.
        assert_eq!(inbox.on_reply(first, Err(SocketProblem::Unfinished)), Todo::default());
        inbox.on_reply(second, reply(batch(0, 10)));
        inbox.on_reply(second, reply(batch(2, 12)));
        inbox.on_reply(second, Ok(Reply::End));
        inbox.on_live(batch(1, 30));
        inbox.on_disconnected(SocketProblem::Closed);
    };
    let seen = [
        REPLAYING,
        Seen::Value(10),
        Seen::Doubt(1),
        Seen::Value(12),
        Seen::Status(StreamStatus::Partial),
        Seen::Clear,
        REPLAYING,
        Seen::Status(StreamStatus::Down),
    ];
    let report = check(script, &seen);
    assert_eq!((report.epoch, report.lost_batches, report.next_seq), (1, 1, 0));
}

#[test]
fn another_publisher_is_recognised_by_its_payload() {
    let script = |inbox: &mut Inbox| {
        inbox.on_connected();
        inbox.on_live(batch(0, 10));
        inbox.on_live(batch(0, 10));
        let (replay, from) = inbox.on_connected().ask.expect("another connection");
        assert_eq!(from, 0);
        inbox.on_reply(replay, reply(batch(0, 9)));
        inbox.on_live(batch(0, 9));
    };
    check(script, &[REPLAYING, Seen::Value(10), Seen::Clear, Seen::Value(9)]);
}

#[test]
fn what_cannot_be_read_is_reported() {
    let script = |inbox: &mut Inbox| {
        inbox.on_connected();
        inbox.on_live(batch(0, 10));
        inbox.on_live(raw(1, b"\xc1"));
        inbox.on_live(raw(2, b"\x92\xc0\x92\x01\x91\xb0AllBlocksClearef"));
        inbox.on_bad_message(&bad_frames());
        inbox.on_live(SequencedPayload { seq: 3, ..batch(3, 13) });
    };
    let seen = [
        REPLAYING,
        Seen::Value(10),
        Seen::Doubt(1),
        Seen::Skipped("not_an_event", 1),
        Seen::Skipped("unknown_type", 1),
        Seen::Doubt(0),
        Seen::Skipped("bad_message", 1),
        Seen::Value(13),
    ];
    let report = check(script, &seen);
    assert_eq!((report.lost_batches, report.damaged_batches, report.bad_messages), (1, 1, 1));
    assert_eq!((report.last_ts, report.rank_mismatches), (Some(14.0), 0));
}

/// Two replays in a row that time out are a problem, whether with no answer or a partial one; a
/// complete replay clears it.
#[test]
fn a_replay_that_runs_out_of_time_is_noted() {
    for answers in [0, 1] {
        let reporter = StreamReporter::default();
        let mut inbox = inbox(&reporter, Box::new(|_| {}));
        let mut asked = inbox.on_connected().ask;
        let mut problems = Vec::new();
        for round in 0..2 {
            let (id, _) = asked.expect("a replay runs");
            for _ in 0..answers {
                inbox.on_reply(id, reply(batch(round, 10 + round)));
            }
            // The stream's clock is set forward: its start lies further back.
            inbox.start -= REPLY_TIME_MAX + Duration::from_millis(1);
            asked = inbox.on_time().ask;
            problems.push(reporter.problem());
        }
        assert_eq!(problems[0], None, "one may be a busy engine");
        let problem = problems[1].clone().expect("two are told");
        let words = ["get no answer", "do not come to their end"][answers];
        assert!(problem.contains(words), "{problem}");
        let (id, _) = asked.expect("one more");
        inbox.on_reply(id, Ok(Reply::End));
        assert_eq!(reporter.problem(), None);
    }
}
