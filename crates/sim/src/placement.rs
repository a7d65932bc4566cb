//! Placement of requests by prefix: on the replica that holds most of it, unless that has too much
//! to do.
//!
//! Source: "consistent hashing with bounded loads" (Mirrokni, Thorup and Zadimoghaddam, SODA'18)
//! with another preference. Without the bound a first block that all prompts share sends them all
//! to one replica.

/// Multiple of the mean work up to which a replica still gets a request for its prefix.
const SLACK: f64 = 1.25;

/// Requests after which work counts half, for each replica.
const MEMORY_REQUESTS: f64 = 128.0;

/// Recent work of replicas: blocks that each computed, less the older they are.
#[derive(Clone, Debug)]
pub struct RecentWork {
    replicas: Vec<f64>,
    /// Factor by which work decays with each request.
    keep: f64,
}

impl RecentWork {
    /// The work of `replicas` replicas before the first request.
    #[must_use]
    pub fn new(replicas: usize) -> Self {
        Self {
            replicas: vec![0.0; replicas],
            keep: 0.5f64.powf(1.0 / (MEMORY_REQUESTS * replicas as f64)),
        }
    }

    /// The replica that holds most of a request of `blocks` blocks, among those whose recent work
    /// is at most 1.25 times the mean plus the request's own; of equals the one with least.
    ///
    /// # Panics
    /// Without replicas.
    #[must_use]
    pub fn longest(&self, blocks: usize, held: impl Fn(usize) -> u64) -> usize {
        let mean = self.replicas.iter().sum::<f64>() / self.replicas.len() as f64;
        // The request's own blocks are added, or an idle fleet could take nothing.
        let limit = SLACK * mean + blocks as f64;
        let able = self.replicas.iter().enumerate();
        let able = able.filter(|&(_, &work)| work <= limit);
        let rated = able.map(|(index, &work)| (held(index), work, index));
        let best = rated.max_by(|one, other| {
            let by_held = one.0.cmp(&other.0);
            // Of equals the idlest, or prompts that no replica holds would all go to one.
            by_held.then(other.1.total_cmp(&one.1))
        });
        // The least of the numbers is at most their mean, so the filter leaves one.
        best.map(|(_, _, index)| index).expect("some replica has no more than the mean")
    }

    /// Records a request of which `replica` computed `computed` blocks.
    pub fn served(&mut self, replica: usize, computed: u64) {
        // Decay in every step makes old work count less, without a list of requests.
        for work in &mut self.replicas {
            *work *= self.keep;
        }
        self.replicas[replica] += computed as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_with_too_much_to_do_gives_way() {
        let mut work = RecentWork::new(3);
        let held = |replica: usize| u64::from(replica == 1);
        assert_eq!(work.longest(10, held), 1, "who holds most");
        for _ in 0..4 {
            work.served(1, 10);
        }
        assert_ne!(work.longest(10, held), 1, "four times its share");
        work.served(0, 30);
        work.served(2, 30);
        assert_eq!(work.longest(10, held), 1, "the others have as much");
        assert_eq!(work.longest(10, |_| 0), 0, "of equals who has least: its work is older");
    }
}
