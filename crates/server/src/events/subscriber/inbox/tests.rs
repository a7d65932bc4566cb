//! Whole conversations with publishers that lose, truncate and restart.

use std::sync::mpsc;

use bytes::Bytes;
use headstart_core::{BlockHash, CacheEvent, Rng, Tier};

use super::*;
use crate::events::encode_batch;
use crate::events::wire::Reply;

/// A batch that removes block `value`.
fn batch(seq: u64, value: u64) -> Numbered {
    let removed = CacheEvent::Removed {
        blocks: vec![BlockHash::from_u64(value)],
        tier: Tier::Device,
    };
    Numbered {
        seq,
        payload: encode_batch(0.0, &[removed], None).into(),
    }
}

/// Updates in short: the values of [`batch`], or what went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Value(u64),
    Clear,
    Lost(u64),
    Skipped(usize),
}

fn inbox() -> (Inbox, mpsc::Receiver<Seen>) {
    let (sender, seen) = mpsc::channel();
    let sink = move |update| match update {
        StreamUpdate::Events(events) => {
            for event in events {
                let CacheEvent::Removed { blocks, .. } = event else {
                    panic!("only removals are sent");
                };
                let value = u128::from_be_bytes(blocks[0].0) as u64;
                sender.send(Seen::Value(value)).unwrap();
            }
        }
        StreamUpdate::Clear => sender.send(Seen::Clear).unwrap(),
        StreamUpdate::Lost { batches } => sender.send(Seen::Lost(batches)).unwrap(),
        StreamUpdate::Skipped { count } => sender.send(Seen::Skipped(count)).unwrap(),
    };
    (Inbox::new(Box::new(sink)), seen)
}

/// Runs `script` on a fresh inbox.
fn check(script: impl FnOnce(&mut Inbox), expected: &[Seen]) {
    let (mut inbox, seen) = inbox();
    script(&mut inbox);
    drop(inbox);
    assert_eq!(seen.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn held_batches_follow_the_replay() {
    let script = |inbox: &mut Inbox| {
        assert_eq!(inbox.on_live(batch(0, 10)), Next::Follow);
        assert_eq!(inbox.on_live(batch(3, 13)), Next::Replay { from: 1 });
        assert_eq!(inbox.on_live(batch(4, 14)), Next::Follow);
        assert_eq!(inbox.on_replayed(batch(2, 12)), Next::Follow);
        assert_eq!(inbox.on_replay_end(), Next::Follow);
    };
    let values = [12, 13, 14].map(Seen::Value);
    let expected = [&[Seen::Value(10), Seen::Lost(1)][..], &values].concat();
    check(script, &expected);
}

#[test]
fn a_held_batch_behind_a_hole_waits_again() {
    let script = |inbox: &mut Inbox| {
        inbox.resume();
        inbox.on_live(batch(2, 12));
        inbox.on_live(batch(3, 13));
        assert_eq!(inbox.on_replay_end(), Next::Replay { from: 0 });
        assert_eq!(inbox.on_replay_failed(), Next::Follow);
    };
    let values = [12, 13].map(Seen::Value);
    check(script, &[&[Seen::Lost(2)][..], &values].concat());
}

#[test]
fn another_publisher_is_recognised_by_its_payload() {
    let live = |inbox: &mut Inbox| {
        inbox.on_live(batch(0, 10));
        inbox.on_live(batch(0, 10));
        inbox.on_live(batch(0, 20));
    };
    check(live, &[Seen::Value(10), Seen::Clear, Seen::Value(20)]);
    let replayed = |inbox: &mut Inbox| {
        inbox.on_live(batch(0, 10));
        assert_eq!(inbox.resume(), 0);
        assert_eq!(inbox.on_replayed(batch(0, 20)), Next::Replay { from: 0 });
        inbox.on_replayed(batch(0, 20));
        assert_eq!(inbox.on_replay_end(), Next::Follow);
    };
    check(replayed, &[Seen::Value(10), Seen::Clear, Seen::Value(20)]);
}

#[test]
fn what_cannot_be_read_is_reported() {
    let script = |inbox: &mut Inbox| {
        let payload = Bytes::from_static(b"\xc1");
        inbox.on_live(Numbered { seq: 0, payload });
        let payload = Bytes::from_static(b"\x92\xc0\x92\x01\x91\xb0AllBlocksClearef");
        inbox.on_live(Numbered { seq: 1, payload });
        inbox.on_bad_message();
    };
    check(script, &[Seen::Lost(1), Seen::Skipped(2), Seen::Skipped(1)]);
}

#[test]
fn an_endless_replay_does_not_fill_the_memory() {
    let (mut inbox, _seen) = inbox();
    let payload = Bytes::from(vec![0; 1 << 20]);
    inbox.resume();
    for seq in 0..100 {
        let payload = payload.clone();
        inbox.on_live(Numbered { seq, payload });
    }
    assert!(inbox.held.bytes <= HELD_BYTES_MAX && inbox.held.batches.len() == 32);
    for seq in 100..20_000 {
        inbox.on_live(batch(seq, 0));
    }
    assert!(inbox.held.batches.len() <= HELD_BATCHES_MAX);
}

/// A publisher with a short buffer, over connections that drop messages, replays that break off,
/// and restarts. Values are numbered over all its lives.
struct World {
    inbox: Inbox,
    log: Vec<Numbered>,
    next_value: u64,
    reach: usize,
    replies: VecDeque<Reply>,
}

impl World {
    fn publish(&mut self) -> Numbered {
        let batch = batch(self.log.len() as u64, self.next_value);
        self.next_value += 1;
        self.log.push(batch.clone());
        batch
    }

    fn publish_live(&mut self) {
        let batch = self.publish();
        let next = self.inbox.on_live(batch);
        self.go(next);
    }

    fn reconnect(&mut self) {
        let from = self.inbox.resume();
        self.go(Next::Replay { from });
    }

    fn reply(&mut self) {
        let next = match self.replies.pop_front() {
            Some(Reply::Batch(batch)) => self.inbox.on_replayed(batch),
            Some(Reply::End) => self.inbox.on_replay_end(),
            None => Next::Follow,
        };
        self.go(next);
    }

    fn break_off(&mut self) {
        if self.inbox.is_replaying() {
            let next = self.inbox.on_replay_failed();
            self.go(next);
        }
    }

    fn go(&mut self, next: Next) {
        if !self.inbox.is_replaying() {
            self.replies.clear();
        }
        if let Next::Replay { from } = next {
            let first = (from as usize).max(self.log.len().saturating_sub(self.reach));
            let batches = self.log.get(first..).unwrap_or_default();
            let batches = batches.iter().cloned().map(Reply::Batch);
            self.replies = batches.chain([Reply::End]).collect();
        }
    }
}

/// Plays one seeded history and brings it to rest. Returns all that was seen, how much of that
/// before the last restart, and the number of batches in the publisher's last life.
fn play(seed: u64) -> (Vec<Seen>, usize, u64) {
    let mut rng = Rng::new(seed);
    let (inbox, updates) = inbox();
    let mut world = World {
        inbox,
        log: vec![],
        next_value: 0,
        reach: 1 + rng.below(12),
        replies: VecDeque::new(),
    };
    let mut seen = Vec::new();
    let mut before_life = 0;
    for _ in 0..rng.below(150) {
        match rng.below(40) {
            0 => {
                seen.extend(updates.try_iter());
                before_life = seen.len();
                world.log.clear();
                world.reconnect();
            }
            1 => world.reconnect(),
            2 => world.break_off(),
            3..8 => drop(world.publish()),
            8..25 => world.publish_live(),
            _ => world.reply(),
        }
    }
    world.reconnect();
    while !world.replies.is_empty() {
        world.reply();
    }
    seen.extend(updates.try_iter());
    (seen, before_life, world.log.len() as u64)
}

/// At rest, everything that the publisher's last life published was applied or reported lost,
/// nothing twice, nothing out of order. Only where a buffer is too short to recognise a restart
/// by is the sum not known.
#[test]
fn every_batch_is_applied_once_in_order_or_reported_lost() {
    let mut num_summed = 0;
    for seed in 0..3_000 {
        let (seen, before_life, published) = play(seed);
        let values = seen.iter().filter_map(|update| match update {
            Seen::Value(value) => Some(*value),
            _ => None,
        });
        let values: Vec<_> = values.collect();
        assert!(values.is_sorted_by(|a, b| a < b), "seed {seed}: {seen:?}");
        let life = &seen[before_life..];
        let life = match life.iter().rposition(|&update| update == Seen::Clear) {
            Some(clear) => &life[clear + 1..],
            None if before_life == 0 => life,
            None => continue,
        };
        let accounted = life.iter().map(|update| match update {
            Seen::Value(_) => 1,
            Seen::Lost(batches) => *batches,
            Seen::Clear | Seen::Skipped(_) => 0,
        });
        assert_eq!(accounted.sum::<u64>(), published, "seed {seed}: {seen:?}");
        num_summed += 1;
    }
    assert!(
        num_summed > 2_000,
        "only {num_summed} histories say something"
    );
}
