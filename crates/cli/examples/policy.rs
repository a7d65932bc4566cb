//! An eviction policy of one's own in forty lines: most recently released first.
//!
//! `cargo run --example policy`

use headstart_cache::Policy;
use headstart_cache::policy::{Lru, Newcomer};
use headstart_core::{Access, BlockHash, BlockId, Nanos, TraceRequest};
use headstart_sim::Replay;

/// Evicts what was offered last: good for loops that do not fit, bad for nearly all else.
#[derive(Default)]
struct Mru {
    offered: Vec<BlockId>,
}

impl Policy for Mru {
    fn insert(&mut self, _: BlockId, _: BlockHash, _: &Access) {}

    fn release(&mut self, _: &[BlockId], _: &Access) {}

    fn offer(&mut self, block: BlockId) {
        self.offered.push(block);
    }

    fn withdraw(&mut self, block: BlockId) {
        self.offered.retain(|&offered| offered != block);
    }

    fn victim(&mut self, _: Nanos, _: Option<&Newcomer>) -> Option<BlockId> {
        self.offered.last().copied()
    }

    fn remove(&mut self, block: BlockId, _: BlockHash) {
        self.withdraw(block);
    }

    fn forget(&mut self, _: BlockId, _: BlockHash) {}
}

fn main() {
    // Every policy must pass this; it panics where one does not.
    headstart_dst::policy::conformance::policy(|_| Box::<Mru>::default());
    let request = |at: u64| TraceRequest {
        arrival: Nanos(at),
        blocks: [at % 10].into_iter().collect(),
        ..TraceRequest::default()
    };
    let (mut mru, mut lru) =
        (Replay::new(8, Box::<Mru>::default()), Replay::new(8, Box::new(Lru::new(8))));
    for at in 0..1_000 {
        mru.serve(&request(at));
        lru.serve(&request(at));
    }
    let (mru, lru) = (mru.outcome().all().blocks.rate(), lru.outcome().all().blocks.rate());
    println!("a loop over 10 blocks, room for 8: MRU hits {mru:.2}, LRU hits {lru:.2}");
    assert!(mru > 0.7 && lru == 0.0);
}
