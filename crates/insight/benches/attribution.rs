//! Cost of attributing a request, as a gateway pays it.
//!
//! `cargo bench -p headstart-insight --bench attribution`
//!
//! Conversations over four replicas: each prompt is the last one and new text behind it, and is
//! served as far as it was sent before. Timed are the calls that a gateway makes per request
//! (arrive, computed, finish) and the events of what was newly stored. One thread; the median of
//! seven rounds.

use std::hint::black_box;
use std::time::{Duration, Instant};

use headstart_core::block::{Namespace, RouteHasher, RouteIdentity};
use headstart_core::{Nanos, ReplicaId, Rng, RouteKey, Tier, TokenId};
use headstart_insight::loss::{ArrivingRequest, Attributor, AttributorConfig, ServedTokens};

const BLOCK: usize = 16;
const REQUESTS: usize = 4_000;
const ROUNDS: usize = 7;

struct Request {
    tokens: Vec<TokenId>,
    keys: Vec<RouteKey>,
    replica: ReplicaId,
    held: u32,
}

fn main() {
    println!("{:>8} {:>6} {:>14} {:>14} {:>22}", "prompt", "new", "requests", "events", "share");
    for (prompt, new) in [(1_000, 150), (1_000, 1_000), (4_000, 400), (4_000, 4_000)] {
        let requests = requests(prompt, new);
        let mut rounds: Vec<_> = (0..ROUNDS).map(|_| round(&requests)).collect();
        rounds.sort_by_key(|(calls, events)| *calls + *events);
        let (calls, events) = rounds[ROUNDS / 2];
        let each = |time: Duration| time.as_secs_f64() * 1e6 / REQUESTS as f64;
        let (calls, events) = (each(calls), each(events));
        let share = (calls + events) * 1e-6 * 1_000.0 * 100.0;
        println!(
            "{prompt:>8} {new:>6} {calls:>11.2} us {events:>11.2} us {share:>9.2} % of a core at \
             1,000/s"
        );
    }
}

fn requests(prompt: usize, new: usize) -> Vec<Request> {
    let mut rng = Rng::new(3);
    let hasher = RouteHasher::new(&RouteIdentity { model: "m", block_size: BLOCK as u32 });
    let mut text =
        |len: usize| -> Vec<TokenId> { (0..len).map(|_| rng.below(50_000) as TokenId).collect() };
    let mut conversations: Vec<Vec<TokenId>> = (0..50).map(|_| text(prompt - new)).collect();
    let request = |number: usize| {
        let at = number % conversations.len();
        let conversation = &mut conversations[at];
        let is_first = number < 50;
        let mut tokens = conversation.clone();
        tokens.extend(text(new));
        // The history slides on, so that prompts stay as long as they are.
        if number % 8 == 7 && new < prompt {
            *conversation = text(prompt - new);
        }
        let held = if is_first { 0 } else { (prompt - new) / BLOCK * BLOCK };
        Request {
            keys: hasher.chain(Namespace::default(), &tokens),
            tokens,
            replica: ReplicaId((at % 4) as u32),
            held: held as u32,
        }
    };
    (0..REQUESTS).map(request).collect()
}

fn round(requests: &[Request]) -> (Duration, Duration) {
    let mut attributor = Attributor::new(&AttributorConfig::default());
    let (mut calls, mut events) = (Duration::ZERO, Duration::ZERO);
    let mut under_way = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        let now = Nanos(number as u64 * 1_000_000);
        let held = |replica: u32| {
            if ReplicaId(replica) == request.replica {
                (ReplicaId(replica), request.held)
            } else {
                (ReplicaId(replica), 0)
            }
        };
        let start = Instant::now();
        let arrival = ArrivingRequest {
            replica: request.replica,
            prompt_tokens: request.tokens.len() as u32,
            block_size: BLOCK as u32,
            keys: &request.keys,
            tokens: Some(&request.tokens),
            namespace: 0,
            overlaps: &[held(0), held(1), held(2), held(3)],
        };
        under_way.push((attributor.arrive(&arrival, now), request));
        // A third of a second under way.
        if under_way.len() > 300 {
            let (mut pending, request) = under_way.remove(0);
            attributor.computed(&mut pending, now);
            let served = ServedTokens::by_device(request.held);
            black_box(attributor.finish(pending, &served, now));
        }
        calls += start.elapsed();
        let start = Instant::now();
        for &key in &request.keys[request.held as usize / BLOCK..] {
            attributor.stored(request.replica, key, Tier::Device, now);
        }
        events += start.elapsed();
    }
    (calls, events)
}
