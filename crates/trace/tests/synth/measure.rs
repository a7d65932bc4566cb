//! Measurements of a trace, and the workloads that they are taken on.

use std::collections::HashMap;

use headstart_core::{BlockRuns, TraceRequest};
use headstart_trace::synth::{Conversations, Preset, RequestGenerator, Stream, SynthWorkload};

/// Requests by which figures are measured.
const MANY: u64 = 50_000;

pub(crate) fn preset(name: &str) -> SynthWorkload {
    Preset::by_name(name).expect("a preset").workload()
}

pub(crate) fn generate(workload: &SynthWorkload) -> RequestGenerator {
    workload.generate().expect("a valid workload")
}

/// `name` over so long a run that few sessions are cut off by its end.
pub(crate) fn thinned(name: &str, seed: u64) -> SynthWorkload {
    let mut workload = preset(name);
    workload.set_rate(0.4);
    workload.seed = seed;
    workload.duration = None;
    workload.requests = Some(MANY);
    workload
}

pub(crate) fn conversations(workload: &SynthWorkload) -> &Conversations {
    match &workload.streams[0] {
        Stream::Conversations(config) => config,
        other => panic!("no conversations: {other:?}"),
    }
}

pub(crate) fn conversations_mut(workload: &mut SynthWorkload) -> &mut Conversations {
    match &mut workload.streams[0] {
        Stream::Conversations(config) => config,
        other => panic!("no conversations: {other:?}"),
    }
}

pub(crate) fn seconds(request: &TraceRequest) -> f64 {
    request.arrival.0 as f64 / 1e9
}

/// `got` is within `tolerance` of `expected`.
pub(crate) fn near(what: &str, got: f64, expected: f64, tolerance: f64) {
    let ok = (got - expected).abs() <= tolerance;
    assert!(ok, "{what}: {got:.4}, expected {expected:.4} ± {tolerance:.4}");
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Requests by session, in order.
pub(crate) fn by_session(requests: &[TraceRequest]) -> Vec<Vec<&TraceRequest>> {
    let mut sessions: HashMap<u64, Vec<&TraceRequest>> = HashMap::new();
    for request in requests {
        let session = request.session.expect("all have one");
        sessions.entry(session.0).or_default().push(request);
    }
    let mut sessions: Vec<_> = sessions.into_values().collect();
    sessions.sort_by_key(|requests| requests[0].session.map(|session| session.0));
    sessions
}

/// Sessions that began in the first four fifths of the run: nearly all of them ended in it.
pub(crate) fn ended(requests: &[TraceRequest]) -> Vec<Vec<&TraceRequest>> {
    let end = requests.last().map_or(0.0, seconds);
    let mut sessions = by_session(requests);
    sessions.retain(|session| seconds(session[0]) < 0.8 * end);
    sessions
}

/// Counts the turns of a session; a request sent again does not count.
pub(crate) fn num_turns(session: &[&TraceRequest]) -> usize {
    1 + session.windows(2).filter(|pair| !is_repeat(pair)).count()
}

pub(crate) fn is_repeat(pair: &[&TraceRequest]) -> bool {
    pair[0].blocks == pair[1].blocks
}

/// Leading blocks that two chains share.
pub(crate) fn shared(a: &BlockRuns, b: &BlockRuns) -> usize {
    a.iter().zip(b.iter()).take_while(|(a, b)| a == b).count()
}

/// Block reuses, were nothing ever evicted.
#[derive(Default)]
pub(crate) struct Reuse {
    pub(crate) lookups: u64,
    pub(crate) hits: u64,
    /// Hits of requests whose session has no other turn.
    pub(crate) hits_of_single: u64,
    /// Times since the last use, seconds.
    pub(crate) times: Vec<f64>,
}

impl Reuse {
    pub(crate) fn of(requests: &[TraceRequest]) -> Self {
        let mut turns: HashMap<u64, u16> = HashMap::new();
        for request in requests {
            *turns.entry(request.session.expect("all have one").0).or_default() += 1;
        }
        let (mut reuse, mut last) = (Self::default(), HashMap::new());
        for request in requests {
            let is_single = turns[&request.session.expect("all have one").0] == 1;
            for block in request.blocks.iter() {
                reuse.lookups += 1;
                if let Some(before) = last.insert(block, seconds(request)) {
                    reuse.hits += 1;
                    reuse.hits_of_single += u64::from(is_single);
                    reuse.times.push(seconds(request) - before);
                }
            }
        }
        reuse
    }

    pub(crate) fn ideal(&self) -> f64 {
        self.hits as f64 / self.lookups as f64
    }

    pub(crate) fn within(&self, limit_s: f64) -> f64 {
        let within = self.times.iter().filter(|&&time| time < limit_s).count();
        within as f64 / self.times.len() as f64
    }
}
