//! Future requests of a trace, for the offline bounds.

use std::collections::{BTreeMap, HashMap};

use headstart_core::{Run, SessionId, TraceRequest};

/// The future of a trace, request by request.
///
/// Next uses are kept as runs: along one prompt they change only where later prompts part.
#[derive(Clone, Debug, Default)]
pub struct Future {
    /// Runs of equal next use, of all requests one after another: (next request, one past the
    /// offset of the last block).
    runs: Vec<(u32, u32)>,
    /// Per request: where its runs begin; one more than there are requests.
    starts: Vec<usize>,
    /// Per request: the last request of its session (itself where it has none).
    session_ends: Vec<u32>,
}

impl Future {
    /// No request will come.
    pub const NEVER: u32 = u32::MAX;

    /// Reads the whole trace, last request first. O(runs · log runs), not O(look-ups).
    ///
    /// # Panics
    /// When there are 2^32 - 1 requests or more.
    #[must_use]
    pub fn of(requests: &[TraceRequest]) -> Self {
        assert!(requests.len() < Self::NEVER as usize, "requests are numbered with 32 bits");
        let mut next_of = NextOf::default();
        let mut reversed = Vec::with_capacity(requests.len());
        // The walk is backwards, so that the map holds exactly the requests that come later.
        for (index, request) in requests.iter().enumerate().rev() {
            let mut nexts = Vec::new();
            // All are read before any is set: a prompt that repeats a block must not find itself.
            for run in request.blocks.runs() {
                next_of.read(run, &mut nexts);
            }
            for run in request.blocks.runs() {
                next_of.set(run, index as u32);
            }
            reversed.push(nexts);
        }
        let mut future =
            Self { session_ends: session_ends(requests), starts: vec![0], ..Self::default() };
        for nexts in reversed.into_iter().rev() {
            let mut end = 0;
            future.runs.extend(nexts.into_iter().map(|(next, count)| {
                end += count;
                (next, end)
            }));
            future.starts.push(future.runs.len());
        }
        future
    }

    /// For each block of `request`, in prompt order: the next request that contains it.
    pub fn next_uses(&self, request: u32) -> impl Iterator<Item = u32> + '_ {
        let mut start = 0;
        self.runs_of(request).iter().flat_map(move |&(next, end)| {
            // Runs store their ends, so a length is the difference of two ends.
            let count = end - std::mem::replace(&mut start, end);
            std::iter::repeat_n(next, count as usize)
        })
    }

    /// The next request after `request` that contains its block at `offset`. O(log runs).
    #[must_use]
    pub fn next_use(&self, request: u32, offset: u32) -> u32 {
        let runs = self.runs_of(request);
        let index = runs.partition_point(|&(_, end)| end <= offset);
        runs.get(index).map_or(Self::NEVER, |run| run.0)
    }

    /// The last request of the session that `request` belongs to.
    #[must_use]
    pub fn session_end(&self, request: u32) -> u32 {
        self.session_ends.get(request as usize).copied().unwrap_or(request)
    }

    fn runs_of(&self, request: u32) -> &[(u32, u32)] {
        let request = request as usize;
        // There is one start more than requests, so each request of the trace has a pair.
        match self.starts.get(request..=request + 1) {
            Some(bounds) => &self.runs[bounds[0]..bounds[1]],
            None => &[],
        }
    }
}

/// The next request of each block id, as disjoint ranges: first id → (one past the last, next).
#[derive(Default)]
struct NextOf(BTreeMap<u64, (u64, u32)>);

impl NextOf {
    /// Appends the next uses of the ids of `run`, as runs.
    fn read(&self, run: &Run, nexts: &mut Vec<(u32, u32)>) {
        let end = run.start + u64::from(run.count);
        let mut at = run.start;
        while at < end {
            let (until, next) = self.piece(at, end);
            // At most the run's own count, which has 32 bits.
            let count = (until - at) as u32;
            match nexts.last_mut() {
                Some(last) if last.0 == next => last.1 += count,
                _ => nexts.push((next, count)),
            }
            at = until;
        }
    }

    /// Returns the end of the range that holds `at` (at most `end`), and its value.
    fn piece(&self, at: u64, end: u64) -> (u64, u32) {
        // Ranges are disjoint: only the one that starts last, up to `at`, can hold it.
        if let Some((_, &(until, next))) = self.0.range(..=at).next_back()
            && at < until
        {
            return (until.min(end), next);
        }
        let following = self.0.range(at..end).next();
        (following.map_or(end, |(&start, _)| start), Future::NEVER)
    }

    /// All ids of `run` are asked for by request `next`.
    fn set(&mut self, run: &Run, next: u32) {
        let (start, end) = (run.start, run.start + u64::from(run.count));
        // A range that starts before the run keeps its front, and its rear beyond the run.
        if let Some((&before, &(until, value))) = self.0.range(..start).next_back()
            && until > start
        {
            self.0.insert(before, (start, value));
            if until > end {
                self.0.insert(end, (until, value));
            }
        }
        // Ranges that start within the run are replaced; the last one may reach beyond it.
        while let Some((&within, &(until, value))) = self.0.range(start..end).next() {
            self.0.remove(&within);
            if until > end {
                self.0.insert(end, (until, value));
            }
        }
        self.0.insert(start, (end, next));
    }
}

fn session_ends(requests: &[TraceRequest]) -> Vec<u32> {
    let mut last: HashMap<SessionId, u32> = HashMap::new();
    let mut ends = Vec::with_capacity(requests.len());
    // Backwards: the first request of a session that is met is its last one.
    for (index, request) in requests.iter().enumerate().rev() {
        let index = index as u32;
        let end = |session| *last.entry(session).or_insert(index);
        ends.push(request.session.map_or(index, end));
    }
    ends.reverse();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    fn requests(seed: u64) -> Vec<TraceRequest> {
        let mut rng = Rng::new(seed);
        let request = |_| TraceRequest {
            blocks: (0..rng.below(9)).map(|_| rng.below(20) as u64).collect(),
            session: (rng.below(3) > 0).then(|| SessionId(rng.below(4) as u64)),
            ..TraceRequest::default()
        };
        (0..40).map(request).collect()
    }

    #[test]
    fn agrees_with_a_search_through_the_rest() {
        for seed in 0..20 {
            let requests = requests(seed);
            let future = Future::of(&requests);
            for (index, request) in requests.iter().enumerate() {
                let later = |found: &dyn Fn(&TraceRequest) -> bool| {
                    let mut rest = (index + 1..requests.len()).filter(|&at| found(&requests[at]));
                    (rest.next(), rest.last())
                };
                let expected = request.blocks.iter().map(|id| {
                    let next = later(&|other| other.blocks.iter().any(|one| one == id)).0;
                    next.map_or(Future::NEVER, |next| next as u32)
                });
                let expected: Vec<_> = expected.collect();
                let now = index as u32;
                assert_eq!(future.next_uses(now).collect::<Vec<_>>(), expected);
                for (offset, next) in expected.into_iter().enumerate() {
                    assert_eq!(future.next_use(now, offset as u32), next);
                }
                let same = later(&|other| other.session == request.session);
                let end = request.session.and(same.1.or(same.0));
                assert_eq!(future.session_end(now), end.map_or(now, |end| end as u32));
            }
        }
    }
}
