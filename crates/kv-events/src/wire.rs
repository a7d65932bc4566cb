//! The frames around a payload: live messages, replay requests and replies.
//!
//! ```text
//! live       [topic] [sequence] [payload]
//! request    [] [first sequence wanted]
//! reply      [] [topic] [sequence] [payload]     since June 2026;   older, SGLang: no topic
//! end        [] []      [FF × 8]   []            since June 2026;   older, SGLang: one [] less
//! ```
//!
//! A sequence number is 8 bytes, big-endian. With an empty topic the newer reply starts with two
//! empty frames, so exactly one is a delimiter. Requests and replies are shown without the
//! identity frame, which only the router socket sees.
//!
//! Source: vLLM `distributed/kv_events.py` before and after #45177.

use bytes::Bytes;
use zeromq::ZmqMessage;

/// Stands for the end of a replay in place of a sequence number.
const END: u64 = u64::MAX;

/// A payload and its place in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SequencedPayload {
    pub(super) seq: u64,
    pub(super) payload: Bytes,
}

/// One message of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Batch(SequencedPayload),
    End,
}

/// Frames that follow none of the layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {frames} frames that is no batch")]
pub(super) struct BadFrames {
    frames: usize,
}

/// A live message.
pub(super) fn live(topic: Bytes, batch: SequencedPayload) -> ZmqMessage {
    message([topic, number(batch.seq), batch.payload])
}

/// Reads a live message.
pub(super) fn parse_live(message: ZmqMessage) -> Result<SequencedPayload, BadFrames> {
    match &*message.into_vec() {
        [_topic, seq, payload] => match parse_number(seq) {
            // The highest number marks the end of a replay, so no batch can have it.
            Some(seq) if seq != END => Ok(SequencedPayload { seq, payload: payload.clone() }),
            _ => Err(BadFrames { frames: 3 }),
        },
        other => Err(BadFrames { frames: other.len() }),
    }
}

/// Asks for every batch from `start` on.
pub(super) fn request(start: u64) -> ZmqMessage {
    // A DEALER socket adds no delimiter by itself, so the request brings its own.
    message([Bytes::new(), number(start)])
}

/// Reads a request as the router socket sees it: who asks, and the first batch wanted.
pub(super) fn parse_request(message: ZmqMessage) -> Result<(Bytes, u64), BadFrames> {
    match &*message.into_vec() {
        [identity, delimiter, start] if delimiter.is_empty() => parse_number(start)
            .map(|start| (identity.clone(), start))
            .ok_or(BadFrames { frames: 3 }),
        other => Err(BadFrames { frames: other.len() }),
    }
}

/// One batch of a replay, for the peer `identity`.
pub(super) fn reply(identity: Bytes, topic: Bytes, batch: SequencedPayload) -> ZmqMessage {
    let seq = number(batch.seq);
    message([identity, Bytes::new(), topic, seq, batch.payload])
}

/// The end of a replay, for the peer `identity`.
pub(super) fn end(identity: Bytes) -> ZmqMessage {
    let empty = Bytes::new();
    message([identity, empty.clone(), empty.clone(), number(END), empty])
}

/// Reads a message of a replay, in either layout.
pub(super) fn parse_reply(message: ZmqMessage) -> Result<Reply, BadFrames> {
    let frames = message.into_vec();
    let bad = BadFrames { frames: frames.len() };
    // SGLang and older vLLM leave the topic out; newer ones may have an empty topic. Exactly one
    // empty frame is the delimiter.
    let inner = match &*frames {
        [first, inner @ ..] if first.is_empty() => inner,
        all => all,
    };
    // The topic says nothing here: the replay socket belongs to one publisher.
    let ([seq, payload] | [_, seq, payload]) = inner else {
        return Err(bad);
    };
    match parse_number(seq).ok_or(bad)? {
        END => Ok(Reply::End),
        seq => Ok(Reply::Batch(SequencedPayload { seq, payload: payload.clone() })),
    }
}

fn message<const N: usize>(frames: [Bytes; N]) -> ZmqMessage {
    ZmqMessage::try_from(Vec::from(frames)).expect("at least one frame")
}

fn number(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn parse_number(frame: &Bytes) -> Option<u64> {
    Some(u64::from_be_bytes(frame.as_ref().try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEVEN: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 7];
    const FF: &[u8] = &[0xff; 8];

    fn frames(frames: &[&'static [u8]]) -> ZmqMessage {
        let frames: Vec<_> = frames.iter().map(|frame| Bytes::from_static(frame)).collect();
        ZmqMessage::try_from(frames).unwrap()
    }

    fn seven() -> SequencedPayload {
        SequencedPayload { seq: 7, payload: Bytes::from_static(b"p") }
    }

    fn check(reply: &[&'static [u8]], expected: Option<&Reply>) {
        assert_eq!(parse_reply(frames(reply)).ok().as_ref(), expected, "{reply:?}");
    }

    #[test]
    fn replies_of_every_age_are_read() {
        let batch = Reply::Batch(seven());
        check(&[b"", SEVEN, b"p"], Some(&batch));
        check(&[b"", b"", SEVEN, b"p"], Some(&batch));
        check(&[b"", b"kv@pod@model", SEVEN, b"p"], Some(&batch));
        check(&[b"topic", SEVEN, b"p"], Some(&batch));
        check(&[b"", FF, b""], Some(&Reply::End));
        check(&[b"", b"", FF, b""], Some(&Reply::End));
        check(&[b"", b"topic", FF, b""], Some(&Reply::End));
        check(&[b""], None);
        check(&[b"", b"short", b"p"], None);
        check(&[b"", b"", b"", SEVEN, b"p"], None);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let topic = Bytes::from_static(b"kv");
        let identity = Bytes::from_static(b"id");
        assert_eq!(parse_live(live(topic.clone(), seven())), Ok(seven()));
        let mut asked = request(7);
        asked.push_front(identity.clone());
        assert_eq!(parse_request(asked), Ok((identity.clone(), 7)));
        for topic in [Bytes::new(), topic] {
            let sent = reply(identity.clone(), topic, seven()).split_off(1);
            assert_eq!(parse_reply(sent), Ok(Reply::Batch(seven())));
        }
        assert_eq!(parse_reply(end(identity).split_off(1)), Ok(Reply::End));
    }

    #[test]
    fn other_frames_are_refused() {
        for bad in [&[SEVEN][..], &[b"", b"p"], &[b"", b"7", b"p"], &[b"", FF, b"p"]] {
            assert!(parse_live(frames(bad)).is_err(), "{bad:?}");
        }
        for bad in [&[b"id", SEVEN][..], &[b"id", b"x", SEVEN], &[b"id", b"", b"7"]] {
            assert!(parse_request(frames(bad)).is_err(), "{bad:?}");
        }
    }
}
