//! Truth against verdict, token by token.

use std::fmt;

use headstart_core::Tier;
use headstart_insight::Bucket;
use headstart_insight::loss::{Memory, ServedTokens};

/// Truth against verdict, in tokens.
#[derive(Clone, Debug)]
pub struct Verdicts {
    /// By what a token was, then by what was said of it.
    pub tokens: [[u64; BUCKETS]; BUCKETS],
    /// Requests that were answered; the others have no verdict.
    pub requests: u64,
    /// Requests that ended before: given up by their clients, refused, or broken with a replica.
    pub abandoned: u64,
    /// Times that a replica lost all it held: cleared, and ended as a process.
    pub resets: [u64; 2],
    /// Fill level of the attributor's memory at the end.
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
            abandoned: 0,
            resets: [0; 2],
            memory: Memory::default(),
        }
    }

    /// Share of tokens of which the right thing was said.
    #[must_use]
    pub fn right(&self) -> f64 {
        let right: u64 = (0..BUCKETS).map(|at| self.tokens[at][at]).sum();
        // A world without requests has no tokens, and no division by zero.
        right as f64 / self.total().max(1) as f64
    }

    /// The same of those tokens that are in one of `buckets`.
    #[must_use]
    pub fn right_of(&self, buckets: impl Fn(Bucket) -> bool) -> f64 {
        let counted = || Bucket::ALL.into_iter().filter(|&bucket| buckets(bucket));
        let right: u64 = counted().map(|truth| self.count(truth, truth)).sum();
        let all: u64 = counted().map(|truth| self.row(truth)).sum();
        right as f64 / all.max(1) as f64
    }

    /// Share of the tokens in a bucket of which that was said.
    #[must_use]
    pub fn recall(&self, bucket: Bucket) -> f64 {
        self.count(bucket, bucket) as f64 / self.row(bucket).max(1) as f64
    }

    /// Share of the tokens that were said to be in a bucket which are.
    #[must_use]
    pub fn precision(&self, bucket: Bucket) -> f64 {
        let said = self.tokens.iter().map(|row| row[bucket as usize]);
        self.count(bucket, bucket) as f64 / said.sum::<u64>().max(1) as f64
    }

    fn count(&self, truth: Bucket, said: Bucket) -> u64 {
        self.tokens[truth as usize][said as usize]
    }

    fn row(&self, truth: Bucket) -> u64 {
        self.tokens[truth as usize].iter().sum()
    }

    /// Adds those of another world; the memory stays.
    pub fn merge(&mut self, other: &Self) {
        for (row, other) in self.tokens.iter_mut().zip(&other.tokens) {
            row.iter_mut().zip(other).for_each(|(count, other)| *count += other);
        }
        self.requests += other.requests;
        self.abandoned += other.abandoned;
        for (count, other) in self.resets.iter_mut().zip(other.resets) {
            *count += other;
        }
    }

    /// Adds what was said of a request.
    pub(super) fn add(&mut self, truth: Vec<Bucket>, said: Vec<Bucket>) {
        for (truth, said) in truth.into_iter().zip(said) {
            self.tokens[truth as usize][said as usize] += 1;
        }
        self.requests += 1;
    }

    /// Share of tokens that truly were in a bucket.
    #[must_use]
    pub fn share(&self, bucket: Bucket) -> f64 {
        self.row(bucket) as f64 / self.total().max(1) as f64
    }

    /// All tokens.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.tokens.iter().flatten().sum()
    }
}

/// Prints the accuracy per bucket and in all, then a matrix in thousands of tokens: rows are the
/// true buckets and columns the attributor's.
impl fmt::Display for Verdicts {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [cleared, ended] = self.resets;
        writeln!(
            to,
            "{} requests answered, {} not; {cleared} caches cleared, {ended} processes ended; \
             {} tokens: {:.2} % right; of those not served {:.2} %, of those without an account \
             {:.2} %",
            self.requests,
            self.abandoned,
            self.total(),
            100.0 * self.right(),
            100.0 * self.right_of(|bucket| !bucket.is_served()),
            100.0 * self.right_of(is_judged),
        )?;
        writeln!(to, "{:>14} {:>7} {:>7} {:>9}", "bucket", "share", "recall", "precision")?;
        for truth in Bucket::ALL {
            let percent = |share: f64| 100.0 * share;
            write!(
                to,
                "{:>14} {:>7.2} {:>7.2} {:>9.2} |",
                truth.name(),
                percent(self.share(truth)),
                percent(self.recall(truth)),
                percent(self.precision(truth)),
            )?;
            for said in self.tokens[truth as usize] {
                write!(to, "{:>8.1}", said as f64 / 1e3)?;
            }
            writeln!(to)?;
        }
        Ok(())
    }
}

/// Whether a bucket is the attributor's own finding. It is given what was served, which loads
/// failed and where the last block begins.
#[must_use]
pub fn is_judged(bucket: Bucket) -> bool {
    bucket > Bucket::BlockFloor
}

/// In the order in which they are served.
pub(super) const TIERS: [Tier; 4] = [Tier::Device, Tier::Host, Tier::Disk, Tier::Remote];

/// Returns the true bucket of each token; served tokens cover the front.
pub(super) fn truth(why: &[Bucket], served: &ServedTokens) -> Vec<Bucket> {
    let mut truth = why.to_vec();
    cover(&mut truth, served);
    truth
}

/// Returns the bucket that the attributor gave each token.
pub(super) fn said(laid_out: &[(u32, Bucket)], served: &ServedTokens, len: usize) -> Vec<Bucket> {
    let mut said = Vec::with_capacity(len);
    // Runs have ends and no lengths, so each one fills up to its end.
    for &(end, bucket) in laid_out {
        said.resize(end as usize, bucket);
    }
    // Served tokens are known from the engine and are no finding of the attributor.
    cover(&mut said, served);
    said
}

fn cover(tokens: &mut [Bucket], served: &ServedTokens) {
    let mut at = 0;
    // In the order of `TIERS`.
    let tiers = [Bucket::Device, Bucket::Host, Bucket::Disk, Bucket::Remote];
    let parts = tiers.into_iter().zip(served.tiers);
    for (bucket, count) in parts.chain([(Bucket::LoadFailed, served.load_failed)]) {
        let end = (at + count as usize).min(tokens.len());
        tokens[at..end].fill(bucket);
        at = end;
    }
}
