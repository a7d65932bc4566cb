//! Truth against verdict, token by token.

use headstart_core::Tier;
use headstart_insight::Bucket;
use headstart_insight::loss::{Memory, Served};

/// Truth against verdict, in tokens.
#[derive(Clone, Debug)]
pub struct Verdicts {
    /// By what a token was, then by what was said of it.
    pub tokens: [[u64; BUCKETS]; BUCKETS],
    /// Requests.
    pub requests: u64,
    /// How full the attributor's memory became.
    pub memory: Memory,
}

/// Number of buckets.
const BUCKETS: usize = Bucket::ALL.len();

impl Verdicts {
    /// None yet.
    pub(super) fn none() -> Self {
        Self {
            tokens: [[0; BUCKETS]; BUCKETS],
            requests: 0,
            memory: Memory::default(),
        }
    }

    /// Share of tokens of which the right thing was said.
    #[must_use]
    pub fn right(&self) -> f64 {
        let right: u64 = (0..BUCKETS).map(|at| self.tokens[at][at]).sum();
        right as f64 / self.total().max(1) as f64
    }

    /// Share of tokens that truly were in a bucket.
    #[must_use]
    pub fn share(&self, bucket: Bucket) -> f64 {
        let row: u64 = self.tokens[bucket as usize].iter().sum();
        row as f64 / self.total().max(1) as f64
    }

    /// All tokens.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.tokens.iter().flatten().sum()
    }
}

/// In the order in which they are served.
pub(super) const TIERS: [Tier; 4] = [Tier::Device, Tier::Host, Tier::Disk, Tier::Remote];

/// What tokens were: what was served covers the front.
pub(super) fn truth(why: &[Bucket], served: &Served) -> Vec<Bucket> {
    let mut truth = why.to_vec();
    cover(&mut truth, served);
    truth
}

/// What the attributor said of each token.
pub(super) fn said(laid_out: &[(u32, Bucket)], served: &Served, len: usize) -> Vec<Bucket> {
    let mut said = Vec::with_capacity(len);
    for &(end, bucket) in laid_out {
        said.resize(end as usize, bucket);
    }
    cover(&mut said, served);
    said
}

fn cover(tokens: &mut [Bucket], served: &Served) {
    let mut at = 0;
    let tiers = TIERS.into_iter().map(Bucket::served_by);
    let parts = tiers.zip(served.tiers);
    for (bucket, count) in parts.chain([(Bucket::LoadFailed, served.load_failed)]) {
        let end = (at + count as usize).min(tokens.len());
        tokens[at..end].fill(bucket);
        at = end;
    }
}
