//! Made-up traces for the tests: conversations that grow, branch, repeat and share a system
//! prompt; every id has one prefix.

use std::time::Duration;

use headstart_core::{Nanos, Rng, SessionId, TraceRequest};

/// `count` requests of some sessions, in order of time.
pub(super) fn requests(rng: &mut Rng, count: usize) -> Vec<TraceRequest> {
    let mut next_id = 5;
    let mut chains: Vec<Vec<u64>> = Vec::new();
    let mut turns: Vec<u16> = Vec::new();
    let mut now = Nanos(0);
    let mut requests = Vec::with_capacity(count);
    for _ in 0..count {
        now = now + Duration::from_millis([0, 1, 40, 3000, 90_000][rng.below(5)]);
        let is_new = chains.is_empty() || rng.below(4) == 0;
        let session = if is_new {
            chains.push((0..rng.below(5) as u64).collect());
            turns.push(0);
            chains.len() - 1
        } else {
            rng.below(chains.len())
        };
        let chain = &mut chains[session];
        if rng.below(5) == 0 {
            chain.truncate(rng.below(chain.len() + 1));
        }
        if rng.below(6) > 0 {
            for _ in 0..rng.below(9) {
                chain.push(next_id);
                next_id += if rng.below(8) == 0 { 3 } else { 1 };
            }
            next_id += 1;
        }
        turns[session] += rng.below(2) as u16;
        requests.push(TraceRequest {
            arrival: now,
            blocks: chain.iter().copied().collect(),
            input_tokens: Some(chain.len() as u32 * 16),
            output_tokens: (rng.below(3) > 0).then(|| rng.below(500) as u32),
            session: (rng.below(10) > 0).then_some(SessionId(session as u64)),
            turn: turns[session],
            request_type: (session % 3) as u16,
            ..TraceRequest::default()
        });
    }
    requests
}
