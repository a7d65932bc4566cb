//! All indexes against the reference and against what the replicas hold, on fleets so
//! small that everything is evicted all the time.

use std::path::Path;

use headstart_core::block::Namespace;
use headstart_core::{Nanos, ReplicaId};
use headstart_dst::index::ReferenceIndex;
use headstart_router::index::{Overlaps, PrefixIndex, Prompt, Update};

use crate::contender::{Contender, FleetShape, KINDS};
use crate::options::Source;
use crate::replay::{Message, Replay, ReplayConfig, engine_hashes};
use crate::workload::Workload;

const FLEET: FleetShape = FleetShape {
    replicas: 6,
    block_size: 64,
};

/// A few hundred tokens of prompts, so that the reference can follow.
fn workload() -> Workload {
    let opened = Workload::open(Source::Chat, Path::new(""), 7).expect("made up");
    let mut workload = opened.expect("needs no file");
    workload.requests.truncate(300);
    workload
}

fn config() -> ReplayConfig {
    ReplayConfig {
        replicas: FLEET.replicas,
        block_size: FLEET.block_size,
        capacity: 150,
        copies: 2,
        event_blocks: 3,
        message_events: 4,
        seed: 5,
    }
}

fn by_reference(reference: &ReferenceIndex, tokens: &[u32], now: Nanos) -> Vec<(u32, u32)> {
    let namespace = Namespace::default();
    let keys = reference.hash(Prompt { tokens, namespace, ..Prompt::default() });
    let mut answer = Overlaps::default();
    reference.overlaps(&keys, now, &mut answer);
    let blocks = |tokens: u32| tokens / FLEET.block_size;
    let found = answer.iter();
    found
        .map(|overlap| (overlap.replica.0, blocks(overlap.device_tokens)))
        .collect()
}

fn apply(contender: &mut dyn Contender, messages: &[Message]) {
    contender.prepare(messages);
    messages.iter().for_each(|message| contender.apply(message));
    contender.settle();
}

#[test]
fn all_indexes_answer_what_the_replicas_hold() {
    let workload = workload();
    let mut replay = Replay::new(&workload, config()).expect("a valid vocabulary");
    let reference = ReferenceIndex::new("model");
    for replica in 0..FLEET.replicas {
        let block_size = Some(FLEET.block_size);
        reference.update(ReplicaId(replica), Update::Track { block_size }, Nanos(0));
    }
    let mut contenders: Vec<_> = KINDS
        .iter()
        .map(|kind| (kind.name, (kind.make)(FLEET)))
        .collect();
    let (mut held, mut removed) = (0, 0);
    for round in 0..6 {
        let mut messages = Vec::new();
        for _ in 0..80 {
            assert!(replay.serve(&mut messages).expect("prompts of any length"));
        }
        for message in &messages {
            let update = Update::Events(&message.events);
            reference.update(ReplicaId(message.replica), update, message.now);
            let is_removal =
                |event: &&_| matches!(event, headstart_core::CacheEvent::Removed { .. });
            removed += message.events.iter().filter(is_removal).count();
        }
        let now = messages.last().map_or(Nanos(0), |message| message.now);
        let ahead = replay.look_ahead(8).expect("prompts of any length");
        let prompts: Vec<Vec<u32>> = ahead.map(|arrived| arrived.tokens().to_vec()).collect();
        let slices: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        for (_, contender) in &mut contenders {
            apply(&mut **contender, &messages);
            contender.hash(&slices);
        }
        for (number, tokens) in prompts.iter().enumerate() {
            let truth = replay
                .fleet()
                .overlaps(&engine_hashes(tokens, FLEET.block_size));
            assert_eq!(
                by_reference(&reference, tokens, now),
                truth,
                "the reference"
            );
            for (name, contender) in &mut contenders {
                assert_eq!(contender.overlaps(number), truth, "{name}, round {round}");
            }
            held += truth.len();
        }
    }
    assert!(
        held > 50 && removed > 500,
        "{held} holders and {removed} removals test little"
    );
}
