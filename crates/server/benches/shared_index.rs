//! A shared index beside a local one: what sharing costs a look-up, and how fast events get
//! through.
//!
//! ```text
//! cargo bench -p headstart-server --bench shared_index
//! ```
//!
//! Two gateways' indexes over one server, which is started here. The events are those of chats
//! whose blocks are stored a few at a time. Prints a line for each thing measured, the median of
//! runs that take turns.

#[path = "../tests/shared_index/service.rs"]
mod service;

use std::sync::Arc;
use std::time::{Duration, Instant};

use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, CacheEvent, ReplicaId, Tier};
use headstart_index_sync::clock::Clock;
use headstart_index_sync::shared::{
    GatewayRole, SharedIndex, SharedIndexConfig, SharedServer, Timeline, Timing,
};
use headstart_router::index::{Overlaps, Update};
use headstart_router::{PrefixIndex, Prompt, RunIndex};
use service::{Memory, Service, eventually};

const IDENTITY: &str = "bench 5eed";
const BLOCK: usize = 16;
/// Blocks of one event, and events of one prompt: 32,768 tokens.
const EVENT_BLOCKS: usize = 8;
const PROMPT_EVENTS: usize = 256;
const PROMPTS: u32 = 64;
const REPLICAS: u32 = 16;
const RUNS: usize = 5;

fn tokens(prompt: u32) -> Vec<u32> {
    let number = (EVENT_BLOCKS * PROMPT_EVENTS * BLOCK) as u32;
    (0..number).map(|at| at * 64 + prompt).collect()
}

/// The events of one prompt.
fn events(prompt: u32) -> Vec<CacheEvent> {
    let handle = |at: usize| BlockHash::from_u64((u64::from(prompt) << 32) | (at as u64 + 1));
    let tokens = tokens(prompt);
    let stored = |event: usize| {
        let first = event * EVENT_BLOCKS;
        let blocks = first..first + EVENT_BLOCKS;
        CacheEvent::Stored(StoredBlocks {
            parent: first.checked_sub(1).map(handle),
            tokens: tokens[blocks.start * BLOCK..blocks.end * BLOCK].to_vec(),
            blocks: blocks.map(handle).collect(),
            block_size: BLOCK as u32,
            extras: Vec::new(),
            tier: Tier::Device,
            group: Default::default(),
            salt: None,
            adapter: None,
        })
    };
    (0..PROMPT_EVENTS).map(stored).collect()
}

fn share(url: &str, model: String) -> SharedIndex {
    let config = SharedIndexConfig {
        server: SharedServer { url: url.to_owned(), timing: Timing::default() },
        model,
        identity: IDENTITY.to_owned(),
        replicas: (0..REPLICAS)
            .map(|replica| (ReplicaId(replica), format!("engine-{replica}")))
            .collect(),
    };
    let local = Arc::new(RunIndex::new(IDENTITY));
    let timeline = Timeline::of(Clock::start());
    SharedIndex::start(config, local, timeline).expect("it starts")
}

fn track_all(index: &dyn PrefixIndex, clock: Clock) {
    for replica in (0..REPLICAS).map(ReplicaId) {
        let block_size = Some(BLOCK as u32);
        index.update(replica, Update::Track { block_size }, clock.now());
    }
}

fn tell_all(index: &dyn PrefixIndex, clock: Clock) -> Duration {
    let events: Vec<_> = (0..PROMPTS).map(events).collect();
    let start = Instant::now();
    for (prompt, events) in events.iter().enumerate() {
        let replica = ReplicaId(prompt as u32 % REPLICAS);
        for event in events {
            let event = std::slice::from_ref(event);
            index.update(replica, Update::Events(event), clock.now());
        }
    }
    start.elapsed()
}

/// Nanoseconds per hashed prompt and per look-up.
fn ask_all(index: &dyn PrefixIndex, clock: Clock) -> [f64; 2] {
    let prompts: Vec<_> = (0..PROMPTS).map(tokens).collect();
    let mut answer = Overlaps::default();
    let start = Instant::now();
    let keys: Vec<_> = prompts
        .iter()
        .map(|tokens| {
            let namespace = Default::default();
            index.hash(Prompt { tokens, namespace, ..Prompt::default() })
        })
        .collect();
    let hashed = start.elapsed();
    let start = Instant::now();
    for keys in &keys {
        index.overlaps(keys, clock.now(), &mut answer);
        assert_eq!(answer.len(), 1);
    }
    let asked = start.elapsed();
    [hashed, asked].map(|time| time.as_secs_f64() * 1e9 / f64::from(PROMPTS))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn is(shared: &SharedIndex, role: GatewayRole) -> bool {
    let replicas = (0..REPLICAS).map(ReplicaId);
    let mut reports = replicas.filter_map(|replica| shared.report(replica));
    reports.all(|report| report.role == role && report.unsent == 0)
}

fn positions(shared: &SharedIndex) -> Vec<Option<headstart_index_sync::shared::Position>> {
    let replicas = (0..REPLICAS).map(ReplicaId);
    let report = |replica| shared.report(replica).and_then(|report| report.position);
    replicas.map(report).collect()
}

fn main() {
    let Some(service) = Service::start(Memory::Lost) else {
        return;
    };
    let number = f64::from(PROMPTS) * PROMPT_EVENTS as f64;
    let mut rows: Vec<(&str, Vec<f64>)> = Vec::new();
    let mut note = |name, value| match rows.iter_mut().find(|(known, _)| *known == name) {
        Some((_, values)) => values.push(value),
        None => rows.push((name, vec![value])),
    };
    for run in 0..RUNS {
        let clock = Clock::start();
        let local = RunIndex::new(IDENTITY);
        track_all(&local, clock);
        let told = tell_all(&local, clock).as_secs_f64();
        note("local: events/s", number / told);
        let [hash, lookup] = ask_all(&local, clock);
        note("local: ns to hash a prompt", hash);
        note("local: ns to look it up", lookup);
        let model = format!("run-{run}");
        let owner = share(&service.url(), model.clone());
        let reader = share(&service.url(), model.clone());
        for (index, is_candidate) in [(&owner, true), (&reader, false)] {
            track_all(index, clock);
            (0..REPLICAS).for_each(|id| index.set_candidate(ReplicaId(id), is_candidate));
        }
        eventually("an owner", || is(&owner, GatewayRole::Owning));
        // Who reads looks for an owner once a second: that is not what is measured.
        for replica in (0..REPLICAS).map(ReplicaId) {
            owner.update(replica, Update::Events(&[CacheEvent::Cleared]), clock.now());
        }
        eventually("a reader", || {
            let read = positions(&reader);
            read == positions(&owner) && read.iter().all(Option::is_some)
        });
        let start = Instant::now();
        let told = tell_all(&owner, clock).as_secs_f64();
        note("owner: events/s", number / told);
        eventually("the end of the log", || {
            is(&owner, GatewayRole::Owning) && positions(&owner) == positions(&reader)
        });
        let through = start.elapsed().as_secs_f64();
        note("reader: events/s, from the owner's first to here", number / through);
        let [hash, lookup] = ask_all(&reader, clock);
        note("reader: ns to hash a prompt", hash);
        note("reader: ns to look it up", lookup);
        let start = Instant::now();
        let late = share(&service.url(), model);
        track_all(&late, clock);
        eventually("a late one", || positions(&owner) == positions(&late));
        note("late: ms until it knows all", start.elapsed().as_secs_f64() * 1e3);
        assert_eq!(late.stats().entries, local.stats().entries);
    }
    println!(
        "{PROMPTS} prompts of {PROMPT_EVENTS} events, {EVENT_BLOCKS} blocks of {BLOCK} tokens each"
    );
    for (name, values) in rows {
        println!("{name:<50} {:>12.0}", median(values));
    }
}
