//! Buckets of prompt tokens, and token counts per bucket.
//!
//! Every prompt token lands in exactly one [`Bucket`]: the first, in the order of
//! [`Bucket::ALL`], that applies to it. A request's tokens are a [`BucketTokens`], sums of splits
//! are a [`Waterfall`]; both keep the law that the buckets' tokens are the prompt's tokens.

use std::fmt;
use std::str::FromStr;

/// The outcome of a prompt token, in the order of the waterfall: the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bucket {
    /// Its keys and values were found in device memory.
    Device,
    /// They were loaded from host memory.
    Host,
    /// They were loaded from disk.
    Disk,
    /// They were loaded from object storage.
    Remote,
    /// They were in a lower tier, and loading failed or was judged slower than computing.
    LoadFailed,
    /// It is in the tail of a block, or the prompt's last token, which is always computed.
    BlockFloor,
    /// The same prefix was being computed when the request came.
    InFlight,
    /// The index said that the replica held it, and the engine did not.
    IndexWrong,
    /// Another replica held it.
    HeldElsewhere,
    /// It was held until its replica restarted or cleared its cache.
    Reset,
    /// It was held and has been evicted.
    Evicted,
    /// The same tokens are known under another salt, adapter or model.
    Namespace,
    /// A near neighbour holds the same tokens behind another prefix: something in front differs.
    Diverged,
    /// Nothing like it was seen, as far as memory goes.
    NeverSeen,
    /// The prompt's tokens are not known here, so that nothing else can be said of it.
    NoTokens,
}

/// Each bucket, its name and its meaning, in the order of [`Bucket`].
const FACTS: [(Bucket, &str, &str); 15] = [
    (Bucket::Device, "device", "cached in device memory"),
    (Bucket::Host, "host", "loaded from host memory"),
    (Bucket::Disk, "disk", "loaded from disk"),
    (Bucket::Remote, "remote", "loaded from object storage"),
    (Bucket::LoadFailed, "load-failed", "stored, but loading failed or was slow"),
    (Bucket::BlockFloor, "block-floor", "end of the prompt"),
    (Bucket::InFlight, "in-flight", "prefix was being computed"),
    (Bucket::IndexWrong, "index-wrong", "expected in the cache, not there"),
    (Bucket::HeldElsewhere, "held-elsewhere", "cached on another replica"),
    (Bucket::Reset, "reset", "lost in a restart or reset"),
    (Bucket::Evicted, "evicted", "evicted"),
    (Bucket::Namespace, "namespace", "cached for another tenant or model"),
    (Bucket::Diverged, "diverged", "seen after another prefix"),
    (Bucket::NeverSeen, "never-seen", "new"),
    (Bucket::NoTokens, "no-tokens", "reason unknown without a tokenizer"),
];

/// Number of buckets.
const BUCKETS: usize = FACTS.len();

impl Bucket {
    /// All of them, in the order of the waterfall.
    pub const ALL: [Self; BUCKETS] = {
        let mut all = [Self::Device; BUCKETS];
        let mut index = 0;
        while index < all.len() {
            all[index] = FACTS[index].0;
            index += 1;
        }
        all
    };

    /// Its name in metrics, JSON and on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        FACTS[self.index()].1
    }

    /// Returns a short description of a token in this bucket.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        FACTS[self.index()].2
    }

    /// Whether the token was not computed.
    #[must_use]
    pub fn is_served(self) -> bool {
        matches!(self, Self::Device | Self::Host | Self::Disk | Self::Remote)
    }

    fn index(self) -> usize {
        // `ALL` lists the variants in the order of their declaration, so that this is also the
        // place in `ALL`.
        self as usize
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Bucket {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|bucket| bucket.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no bucket {name}; known: {names}")
        })
    }
}

/// One request's prompt tokens by bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketTokens([u32; BUCKETS]);

impl BucketTokens {
    /// Puts `tokens` more into `bucket`.
    ///
    /// # Panics
    /// When a prompt has more than 2³² tokens.
    pub fn put(&mut self, bucket: Bucket, tokens: u32) {
        let count = &mut self.0[bucket.index()];
        *count = count.checked_add(tokens).expect("a prompt's tokens fit 32 bits");
    }

    /// Tokens in `bucket`.
    #[must_use]
    pub fn get(&self, bucket: Bucket) -> u32 {
        self.0[bucket.index()]
    }

    /// All tokens: the prompt's.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().copied().map(u64::from).sum()
    }

    /// The buckets that have tokens, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Bucket, u32)> + '_ {
        // The counts are in the order of `ALL`, because `index` is the discriminant.
        let all = Bucket::ALL.into_iter().zip(self.0);
        all.filter(|&(_, tokens)| tokens > 0)
    }
}

/// Many requests' prompt tokens by bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waterfall {
    requests: u64,
    tokens: [u64; BUCKETS],
}

impl Waterfall {
    /// Adds one request.
    pub fn add(&mut self, split: &BucketTokens) {
        self.requests += 1;
        for (bucket, tokens) in split.iter() {
            self.tokens[bucket.index()] += u64::from(tokens);
        }
    }

    /// Adds all that `other` counted.
    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        for (count, more) in self.tokens.iter_mut().zip(other.tokens) {
            *count += more;
        }
    }

    /// Requests counted.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Tokens in `bucket`.
    #[must_use]
    pub fn get(&self, bucket: Bucket) -> u64 {
        self.tokens[bucket.index()]
    }

    /// All prompt tokens.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.tokens.iter().sum()
    }

    /// Prompt tokens that were not computed.
    #[must_use]
    pub fn served(&self) -> u64 {
        let served = Bucket::ALL.into_iter().filter(|bucket| bucket.is_served());
        served.map(|bucket| self.get(bucket)).sum()
    }

    /// All buckets in order, with their tokens.
    pub fn iter(&self) -> impl Iterator<Item = (Bucket, u64)> + '_ {
        Bucket::ALL.into_iter().zip(self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again_and_order_is_the_waterfalls() {
        for (index, bucket) in Bucket::ALL.into_iter().enumerate() {
            assert_eq!(bucket.index(), index);
            assert_eq!(bucket.name().parse(), Ok(bucket));
        }
        let error = "lost".parse::<Bucket>().expect_err("no such bucket");
        assert!(error.contains("device, host"), "{error}");
    }

    #[test]
    fn buckets_sum_to_the_prompt() {
        let mut split = BucketTokens::default();
        split.put(Bucket::Device, 64);
        split.put(Bucket::BlockFloor, 3);
        split.put(Bucket::Device, 16);
        assert_eq!(split.total(), 83);
        let parts: Vec<_> = split.iter().collect();
        assert_eq!(parts, [(Bucket::Device, 80), (Bucket::BlockFloor, 3)]);
        let mut all = Waterfall::default();
        all.add(&split);
        let mut twice = all.clone();
        twice.merge(&all);
        assert_eq!((twice.requests(), twice.total(), twice.served()), (2, 166, 160));
    }
}
