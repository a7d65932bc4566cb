//! Random requests for a cache: independent objects, or conversations that share their starts.

use headstart_core::{BlockHash, BlockRuns, Nanos, Probability, Rng, SessionId, TraceRequest};

/// Requests of one run: enough that a small cache is filled and turned over several times.
const NUM_REQUESTS: usize = 300;
/// Blocks of the longest prompt, so that some are longer than the cache.
const PROMPT_LIMIT: usize = 40;
/// Conversations that a request may go on with; older ones have ended.
const LIVE_CONVERSATIONS: usize = 12;

/// Requests of one run for one cache, in the order in which they begin. Policies that read the
/// future may read `requests`.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Slots of the cache.
    pub capacity: usize,
    /// The requests; a block's name is [`BlockHash::from_u64`] of its id.
    pub requests: Vec<TraceRequest>,
    /// Whether each request ends before the next begins.
    pub is_serial: bool,
}

impl Workload {
    /// The workload of `seed`: objects or conversations, one after another or at once.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (is_serial, is_objects) = (seed.is_multiple_of(2), seed % 4 < 2);
        let mut requests = if is_objects { objects(&mut rng) } else { conversations(&mut rng) };
        let mut now = 0;
        for request in &mut requests {
            now += rng.below(2_000_000_000) as u64;
            request.arrival = Nanos(now);
        }
        // A generator of its own: predictions must not change the requests of a seed.
        predict(&mut requests, &mut Rng::new(!seed));
        let most = [8, 60][rng.below(2)];
        Self { capacity: 1 + rng.below(most), requests, is_serial }
    }

    /// The names of a request's blocks.
    #[must_use]
    pub fn chain(&self, request: usize) -> Vec<BlockHash> {
        let ids = self.requests[request].blocks.iter();
        ids.map(BlockHash::from_u64).collect()
    }
}

/// Predictions of all kinds: none, certain ones, and anything between, on a coarse grid so that
/// some are equal.
fn predict(requests: &mut [TraceRequest], rng: &mut Rng) {
    for request in requests {
        let p = match rng.below(8) {
            0 | 1 => None,
            2 => Some(rng.below(2) as f64),
            3 => Some(rng.below(11) as f64 / 10.0),
            _ => Some(rng.next_f64()),
        };
        request.p_continue = p.and_then(Probability::new);
    }
}

/// Chains of length one: popular objects, a loop and a scan, in phases.
fn objects(rng: &mut Rng) -> Vec<TraceRequest> {
    let universe = 4 + rng.below(100);
    let mut scanned = 1_000;
    let mut id = move |rng: &mut Rng, index: usize| match (index / 50 + universe) % 3 {
        0 => rng.below(universe) as u64,
        1 => (rng.next_f64().powi(3) * universe as f64) as u64,
        _ if rng.below(3) == 0 => {
            scanned += 1;
            scanned
        }
        _ => (index % universe) as u64,
    };
    let indexes = 0..NUM_REQUESTS;
    let request = |index| TraceRequest {
        blocks: [id(rng, index)].into_iter().collect(),
        request_type: rng.below(3) as u16,
        session: (rng.below(4) > 0).then(|| SessionId(rng.below(20) as u64)),
        ..TraceRequest::default()
    };
    indexes.map(request).collect()
}

/// Prompts that grow from turn to turn behind a few shared starts; some fork.
fn conversations(rng: &mut Rng) -> Vec<TraceRequest> {
    let starts = [0, 1 + rng.below(4), 1 + rng.below(8)];
    let mut fresh = 1_000;
    let mut live: Vec<TraceRequest> = Vec::new();
    let mut requests = Vec::new();
    for index in 0..NUM_REQUESTS {
        let is_new = live.is_empty() || rng.below(4) == 0;
        let mut request = if is_new {
            first_turn(rng, &starts, index)
        } else {
            live[rng.below(live.len())].clone()
        };
        if rng.below(5) == 0 {
            let kept = rng.below(request.blocks.len() + 1);
            request.blocks = request.blocks.prefix(kept);
        }
        for _ in 0..rng.below(7) + usize::from(request.blocks.is_empty()) {
            if request.blocks.len() < PROMPT_LIMIT {
                fresh += 1;
                request.blocks.push(fresh);
            }
        }
        request.turn += 1;
        if live.len() == LIVE_CONVERSATIONS {
            live.swap_remove(rng.below(LIVE_CONVERSATIONS));
        }
        live.push(request.clone());
        requests.push(request);
    }
    requests
}

/// A conversation that begins with one of the shared starts; every third has no name.
fn first_turn(rng: &mut Rng, starts: &[usize], index: usize) -> TraceRequest {
    let start = rng.below(starts.len());
    let first = 100 * start as u64;
    let blocks: BlockRuns = (first..first + starts[start] as u64).collect();
    TraceRequest {
        blocks,
        session: (!index.is_multiple_of(3)).then_some(SessionId(index as u64)),
        request_type: start as u16,
        ..TraceRequest::default()
    }
}
