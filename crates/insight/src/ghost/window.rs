//! Counts of the last hour, minute by minute.

use headstart_core::Nanos;

/// Minutes that a window has.
pub(super) const MINUTES: u64 = 60;

const MINUTE_NS: u64 = 60_000_000_000;

/// Counters of requests, blocks and tokens, and of hits by size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WindowCounts {
    pub(super) requests: u64,
    pub(super) blocks: u64,
    pub(super) tokens: u64,
    /// Blocks that the sampled ones stand for, near and far.
    pub(super) near: u64,
    pub(super) far: u64,
    /// Hits at each size that are misses at the one before.
    pub(super) hits: Vec<u64>,
    /// Blocks used before.
    pub(super) seen: u64,
}

/// Counters of one request, with only the sizes that it hits.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestCounts {
    pub(super) blocks: u64,
    pub(super) tokens: u64,
    pub(super) near: u64,
    pub(super) far: u64,
    pub(super) seen: u64,
    /// By its place, a size that is hit and no smaller one is, and by how many blocks.
    pub(super) hits: Vec<(usize, u64)>,
}

impl WindowCounts {
    pub(super) fn new(sizes: usize) -> Self {
        Self { hits: vec![0; sizes], ..Self::default() }
    }

    /// Adds a request.
    pub(super) fn count(&mut self, request: &RequestCounts) {
        self.requests += 1;
        self.blocks += request.blocks;
        self.tokens += request.tokens;
        self.near += request.near;
        self.far += request.far;
        self.seen += request.seen;
        for &(size, blocks) in &request.hits {
            self.hits[size] += blocks;
        }
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.blocks += other.blocks;
        self.tokens += other.tokens;
        self.near += other.near;
        self.far += other.far;
        self.seen += other.seen;
        for (hits, more) in self.hits.iter_mut().zip(&other.hits) {
            *hits += more;
        }
    }
}

/// A ring of minutes.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The minute that each place is of, and its counts.
    ring: Vec<(u64, WindowCounts)>,
    sizes: usize,
}

impl Window {
    pub(super) fn new(sizes: usize) -> Self {
        Self { ring: vec![(0, WindowCounts::new(sizes)); MINUTES as usize], sizes }
    }

    /// Adds what happened at `now`. Of times more than an hour back nothing is kept.
    pub(super) fn add(&mut self, request: &RequestCounts, now: Nanos) {
        let minute = now.0 / MINUTE_NS;
        let (of, place) = &mut self.ring[(minute % MINUTES) as usize];
        // A place is emptied when its next minute writes into it, so idle minutes cost nothing.
        if *of < minute {
            *of = minute;
            *place = WindowCounts::new(self.sizes);
        }
        // A time more than an hour back has lost its place to a later minute.
        if *of == minute {
            place.count(request);
        }
    }

    /// The counts of the minute of `now` and the 59 before it.
    pub(super) fn last_hour(&self, now: Nanos) -> WindowCounts {
        let minute = now.0 / MINUTE_NS;
        let mut sum = WindowCounts::new(self.sizes);
        for (of, counts) in &self.ring {
            // The ring may hold minutes that are older than an hour, and some after `now`.
            if *of <= minute && *of + MINUTES > minute {
                sum.add(counts);
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_to_the_minute() {
        let mut window = Window::new(1);
        let minute = |minute: u64| Nanos(minute * MINUTE_NS + 5);
        for at in 0..200 {
            for _ in 0..1 << (at % 8) {
                let hits = vec![(0, at)];
                window.add(&RequestCounts { hits, ..RequestCounts::default() }, minute(at));
            }
            let first = at.saturating_sub(MINUTES - 1);
            let expected: u64 = (first..=at).map(|at| 1u64 << (at % 8)).sum();
            assert_eq!(window.last_hour(minute(at)).requests, expected);
            let expected: u64 = (first..=at).map(|at| at << (at % 8)).sum();
            assert_eq!(window.last_hour(minute(at)).hits, [expected]);
        }
        assert_eq!(window.last_hour(minute(400)).requests, 0);
        window.add(&RequestCounts::default(), minute(3));
        assert_eq!(window.last_hour(minute(400)).requests, 0);
    }
}
