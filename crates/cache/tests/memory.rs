//! Bytes per resident block of a full cache: at most 64 under LRU, 96 under any other policy that
//! serves. `hazard` may take 96 of its own, and tables and ghosts of a fixed size besides.
//!
//! Measured with every allocation counted, under objects (all blocks are leaves, which fills the
//! queues) and under long chains. The last capacity is the worst: the first for which the table
//! of names, of 2^15 entries until then, doubles.

#[path = "../../core/tests/counting/mod.rs"]
mod counting;

use counting::{Counting, held_bytes};
use headstart_cache::policy::{self, NAMES, Setting};
use headstart_cache::{Admit, PrefixCache};
use headstart_core::{Access, BlockHash, Nanos, Rng};

const CAPACITIES: [usize; 3] = [50_000, 28_673, 27_804];
/// The learned tables of `hazard`, and the ghosts that it keeps however small the cache is.
const HAZARD_FIXED_BYTES: f64 = 4.15e6;
/// Blocks of a conversation's last prompt.
const LONGEST_CHAIN: usize = 2_000;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A cache under load, and the most that it has taken.
struct Measured {
    cache: PrefixCache,
    before: isize,
    bytes: isize,
    num_requests: u32,
    chain: Vec<BlockHash>,
}

impl Measured {
    fn new(name: &str, capacity: usize) -> Self {
        let chain = Vec::with_capacity(LONGEST_CHAIN);
        let before = held_bytes();
        let setting = Setting { capacity, block_tokens: 16 };
        let policy = policy::by_name(name, setting).expect("a known policy");
        Self { cache: PrefixCache::new(capacity, policy), before, bytes: 0, num_requests: 0, chain }
    }

    /// Serves one request and looks what is in use after it.
    fn serve(&mut self, ids: impl Iterator<Item = u64>) {
        self.chain.clear();
        self.chain.extend(ids.map(BlockHash::from_u64));
        self.num_requests += 1;
        let access = Access {
            request_type: (self.num_requests % 3) as u16,
            turn: (self.num_requests % 7) as u16,
            ..Access::at(Nanos(u64::from(self.num_requests) * 10_000_000))
        };
        let mut lease = self.cache.acquire(&self.chain);
        for &hash in &self.chain[lease.matched()..] {
            if self.cache.admit(&mut lease, hash, &access) == Admit::Declined {
                break;
            }
        }
        self.cache.release(lease, &access);
        self.cache.drain_effects();
        let in_use = held_bytes() - self.before;
        self.bytes = self.bytes.max(in_use);
    }

    fn per_block(&self) -> f64 {
        let capacity = self.cache.capacity();
        let occupancy = self.cache.occupancy();
        assert_eq!(occupancy.cached, capacity, "the cache is full");
        self.bytes as f64 / capacity as f64
    }
}

/// Popular objects, objects asked for twice, and a scan: every list and every ghost list fills.
fn objects(measured: &mut Measured) {
    let capacity = measured.cache.capacity();
    let mut rng = Rng::new(1);
    for index in 0..6 * capacity as u64 {
        let popular = (rng.next_f64().powi(2) * 2.0 * capacity as f64) as u64;
        let id = match (index * 3 / capacity as u64) % 3 {
            0 => popular,
            1 => (1 << 40) + index / 2,
            _ => (1 << 41) + index,
        };
        measured.serve(std::iter::once(id));
    }
}

/// Conversations that grow by 200 blocks a turn, and come back to their last turn once.
fn chains(measured: &mut Measured) {
    let num_conversations = 4 * measured.cache.capacity() as u64 / LONGEST_CHAIN as u64;
    for conversation in 0..num_conversations {
        for len in (200..=LONGEST_CHAIN as u64).step_by(200) {
            let first = conversation << 32;
            measured.serve(first..first + len);
        }
        let earlier = (conversation / 2) << 32;
        measured.serve(earlier..earlier + LONGEST_CHAIN as u64);
    }
}

#[test]
fn a_resident_block_takes_few_bytes() {
    let mut too_much = Vec::new();
    for name in NAMES {
        for capacity in CAPACITIES {
            let most = match *name {
                "lru" => 64.0,
                "hazard" => 44.0 + 96.0 + HAZARD_FIXED_BYTES / capacity as f64,
                _ => 96.0,
            };
            let measure = |load: fn(&mut Measured)| {
                let mut measured = Measured::new(name, capacity);
                load(&mut measured);
                measured.per_block()
            };
            let (objects, chains) = (measure(objects), measure(chains));
            println!("{name:8} {capacity:7} objects {objects:5.1} chains {chains:5.1}");
            if objects.max(chains) > most {
                too_much.push((name, capacity, objects, chains, most));
            }
        }
    }
    assert!(too_much.is_empty(), "more bytes per block than allowed: {too_much:?}");
}
