//! Hash chain and radix tree give the same matches and the same evictions under LRU.

use headstart_cache::policy::Lru;
use headstart_cache::{Effect, Grow, Lease, PrefixCache};
use headstart_core::{Access, BlockHash, Nanos, Rng};

use crate::reference::RadixCache;

/// One sequence in both caches.
struct Holder {
    chain: Vec<BlockHash>,
    lease: Lease,
    committed: usize,
    in_flight: usize,
}

struct Pair {
    hashed: PrefixCache,
    radix: RadixCache,
    holders: Vec<Holder>,
}

impl Pair {
    fn new(capacity: usize) -> Self {
        Self {
            hashed: PrefixCache::new(capacity, Box::new(Lru::new(capacity))),
            radix: RadixCache::new(capacity),
            holders: Vec::new(),
        }
    }

    fn acquire(&mut self, chain: Vec<BlockHash>) {
        let lease = self.hashed.acquire(&chain);
        let committed = self.radix.acquire(&chain);
        assert_eq!(lease.matched(), committed, "matches differ");
        self.holders.push(Holder { chain, lease, committed, in_flight: 0 });
    }

    fn grow(&mut self, index: usize) {
        let holder = &mut self.holders[index];
        if holder.committed + holder.in_flight == holder.chain.len() {
            return;
        }
        let grown = self.hashed.grow(&mut holder.lease, 1, Nanos(0)) == Grow::Done;
        assert_eq!(grown, self.radix.grow(), "room differs");
        holder.in_flight += usize::from(grown);
    }

    fn commit(&mut self, index: usize) {
        let holder = &mut self.holders[index];
        if holder.in_flight > 0 {
            let hash = holder.chain[holder.committed];
            self.hashed.commit(&mut holder.lease, hash, &Access::default());
            self.radix.commit(&holder.chain, holder.committed);
            holder.committed += 1;
            holder.in_flight -= 1;
        }
    }

    fn release(&mut self, index: usize) {
        let Holder { chain, lease, committed, in_flight } = self.holders.swap_remove(index);
        self.hashed.release(lease, &Access::default());
        self.radix.release(&chain, committed, in_flight);
    }

    fn compare(&mut self) {
        self.hashed.check();
        let evicted: Vec<_> = self
            .hashed
            .drain_effects()
            .filter_map(|effect| match effect {
                Effect::Evicted { hash, .. } => Some(hash),
                Effect::Stored { .. } => None,
            })
            .collect();
        assert_eq!(evicted, self.radix.take_evicted(), "evictions differ");
    }
}

/// A path in a random tree: few branches a level, so that prompts share and part.
fn random_chain(rng: &mut Rng) -> Vec<BlockHash> {
    let mut name = 1u64;
    let length = 1 + rng.below(12);
    (0..length)
        .map(|_| {
            name = name * 3 + 1 + rng.below(2) as u64;
            BlockHash::from_u64(name)
        })
        .collect()
}

fn run(seed: u64, steps: usize) {
    let mut rng = Rng::new(seed);
    let mut pair = Pair::new(4 + rng.below(40));
    for _ in 0..steps {
        let holders = pair.holders.len();
        match rng.below(8) {
            0 | 1 if holders < 6 => pair.acquire(random_chain(&mut rng)),
            7 if holders > 0 => pair.release(rng.below(holders)),
            2..=4 if holders > 0 => pair.grow(rng.below(holders)),
            5 | 6 if holders > 0 => pair.commit(rng.below(holders)),
            _ => {}
        }
        pair.compare();
    }
}

#[test]
fn same_matches_and_evictions_on_random_operations() {
    for seed in 0..200 {
        let failed = |steps| std::panic::catch_unwind(|| run(seed, steps)).is_err();
        if failed(600) {
            let shortest = (1..=600).find(|&steps| failed(steps)).unwrap_or(600);
            panic!("seed {seed} differs after {shortest} steps; see the first panic above");
        }
    }
}
