//! The guard: whether the learned order or LRU rules.
//!
//! The learned order rules on trial. A trial is lost once it has found fewer blocks than LRU would
//! have found, by more than a budget. LRU rules then, for twice as many requests as after the trial
//! before, and the policy keeps learning. So the number of lost trials grows with the logarithm of
//! the requests, and each costs little of what is looked up. Budget and wait have limits, so that a
//! server that runs for months still finds out that its traffic has changed.
//!
//! What LRU would have found is known without a second directory: see [`super::window`].

/// The budget of a trial in requests of mean length: a share of those so far, up to a limit, and
/// some whose blocks are found or missed together by chance.
const SHARE: f64 = 0.001;
const MOST_REQUESTS: f64 = 100_000.0;
const REQUESTS: f64 = 4.0;

/// Requests for which LRU rules after the first lost trial, and at most.
const FIRST_WAIT: u64 = 64;
const LONGEST_WAIT: u64 = 1 << 16;

/// The order that rules, and the record of the learned one.
#[derive(Debug)]
pub(super) struct TrialGuard {
    is_learned: bool,
    /// Blocks found in this trial less those that LRU would have found; at most the budget, so that
    /// an early gain does not pay for a long loss.
    gain: f64,
    /// Blocks looked up, and requests, so far.
    lookups: f64,
    requests: f64,
    requests_since_change: u64,
    /// Requests for which LRU rules.
    wait: u64,
}

impl TrialGuard {
    /// At the start of a trial.
    pub(super) fn new() -> Self {
        Self {
            is_learned: true,
            gain: 0.0,
            lookups: 0.0,
            requests: 0.0,
            requests_since_change: 0,
            wait: FIRST_WAIT,
        }
    }

    /// Whether the learned order rules.
    pub(super) fn is_learned(&self) -> bool {
        self.is_learned
    }

    /// A request found `hits` blocks of `lookups`, where LRU would have found `lru_hits`. Returns
    /// whether the other order rules from now on, for which all `candidates` are sorted again.
    pub(super) fn served(
        &mut self,
        hits: usize,
        lru_hits: usize,
        lookups: usize,
        candidates: usize,
    ) -> bool {
        self.lookups += lookups as f64;
        self.requests += 1.0;
        self.requests_since_change += 1;
        let requests = SHARE * self.requests.min(MOST_REQUESTS) + REQUESTS;
        let budget = requests * self.lookups / self.requests;
        self.gain = (self.gain + hits as f64 - lru_hits as f64).min(budget);
        let changes = if self.is_learned {
            self.gain < -budget
        } else {
            self.requests_since_change > self.wait
        };
        // Sorting costs a few steps a request on average, whatever the number of candidates.
        if !changes || self.requests_since_change < candidates as u64 / 64 {
            return false;
        }
        if !self.is_learned {
            self.wait = (self.wait * 2).min(LONGEST_WAIT);
        }
        self.is_learned = !self.is_learned;
        self.requests_since_change = 0;
        self.gain = 0.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves requests of 100 blocks, of which the learned order finds `hits` and LRU 50. Returns
    /// the requests for which the learned order ruled, and how often it began to.
    fn trials(requests: usize, hits: usize) -> (usize, usize) {
        let mut guard = TrialGuard::new();
        let (mut learned, mut trials) = (0, 1);
        for _ in 0..requests {
            let was_learned = guard.is_learned();
            learned += usize::from(was_learned);
            guard.served(if was_learned { hits } else { 50 }, 50, 100, 10);
            trials += usize::from(!was_learned && guard.is_learned());
        }
        (learned, trials)
    }

    #[test]
    fn the_learned_order_rules_while_it_is_no_worse() {
        assert_eq!(trials(10_000, 51), (10_000, 1));
        assert_eq!(trials(10_000, 50), (10_000, 1));
    }

    #[test]
    fn a_worse_order_loses_little_in_all_its_trials() {
        for hits in [0, 25, 45, 49] {
            let (learned, trials) = trials(100_000, hits);
            let lost = learned * (50 - hits);
            assert!((2..12).contains(&trials), "{hits}: {trials}");
            // At most 0.3 points of 10 million blocks.
            assert!(lost < 30_000, "{hits}: {lost}");
        }
    }

    /// After many lost trials there are more, and they cost no more than before.
    #[test]
    fn a_long_run_keeps_trying_at_the_same_cost() {
        let [(early, few), (late, many)] =
            [1_000_000, 3_000_000].map(|requests| trials(requests, 25));
        assert!(many >= few + 20, "{few} and {many} trials");
        // At most 0.5 points of 200 million blocks.
        assert!((late - early) * 25 < 1_000_000, "{}", (late - early) * 25);
    }

    #[test]
    fn sorting_waits_for_the_requests_that_pay_for_it() {
        let mut guard = TrialGuard::new();
        let changed = (0..1_000).find(|_| guard.served(0, 100, 100, 6_400));
        assert_eq!(changed, Some(99));
    }
}
