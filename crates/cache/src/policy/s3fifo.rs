//! S3-FIFO: newcomers pass through a small queue; those used again there move to the main one.
//!
//! ```text
//! new ──► small (10 %) ──used twice──► main ──unused──► gone
//!             │                         │ ▲
//!             └──else──► ghost          └─┘ used: again, with one use less
//!                          └── asked for again ──► main
//! ```
//!
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP'23. Until the
//! cache has been full once, what the small queue has no room for goes to the main one, as in
//! the authors' library. Difference: a block that the sweep reaches unused while it may not go
//! (pinned, or with a resident child) is stepped over and keeps its place. To step over thousands
//! of them at once, it is set aside, out of the queue, until it may go or has been used.
//!
//! Invariant: the order in a queue is that of entry; uses and pins do not move a block.
//!
//! When not to use it: at capacities of a few prompts, where the small queue is shorter than
//! one of them and a whole prompt is judged before it can be asked for again.

use headstart_core::{Access, BlockHash, BlockId, Nanos};

use super::{Newcomer, Policy};
use crate::ghosts::Ghosts;
use crate::lanes::Lanes;

const SMALL: usize = 0;
const MAIN: usize = 1;
/// The one list of ghosts.
const GHOST: usize = 0;

/// Uses in the small queue that earn a place in the main one.
const USES_TO_MAIN: u8 = 2;
/// Uses are counted to this.
const MOST_USES: u8 = 3;

/// S3-FIFO.
#[derive(Debug)]
pub struct S3Fifo {
    small_capacity: usize,
    main_capacity: usize,
    ghost_capacity: usize,
    /// Resident blocks per queue, those set aside included.
    lens: [usize; 2],
    num_offered: usize,
    has_evicted: bool,
    /// Counts entries into either queue.
    clock: u64,
    flags: Vec<S3FifoFlags>,
    queues: Lanes,
    ghosts: Ghosts,
    /// The newcomer whose ghost was found while room was made for it.
    returning: Option<BlockHash>,
    /// The victim named last, until it is offered no more.
    chosen: Option<BlockId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct S3FifoFlags {
    is_main: bool,
    /// Used before, so that the next use is a hit and not the insertion's own.
    is_known: bool,
    may_go: bool,
    /// Reached by the sweep while it might not go: in no queue.
    is_aside: bool,
    uses: u8,
}

impl S3FifoFlags {
    fn queue(self) -> usize {
        if self.is_main { MAIN } else { SMALL }
    }

    /// Whether its uses save the block from the sweep.
    fn is_spared(self) -> bool {
        if self.is_main { self.uses > 0 } else { self.uses >= USES_TO_MAIN }
    }
}

impl S3Fifo {
    /// For a cache of `capacity` slots; `small` and `ghost` are shares of it.
    #[must_use]
    pub fn new(capacity: usize, small: f64, ghost: f64) -> Self {
        let small_capacity = (capacity as f64 * small) as usize;
        let ghost_capacity = (capacity as f64 * ghost) as usize;
        Self {
            small_capacity,
            main_capacity: capacity - small_capacity,
            ghost_capacity,
            lens: [0; 2],
            num_offered: 0,
            has_evicted: false,
            clock: 0,
            flags: vec![S3FifoFlags::default(); capacity],
            queues: Lanes::new(capacity, 2),
            ghosts: Ghosts::new(1, ghost_capacity),
            returning: None,
            chosen: None,
        }
    }

    /// Whether `hash` was evicted from the small queue not long ago; its ghost is used up.
    fn is_returning(&mut self, hash: BlockHash) -> bool {
        // The first question uses the ghost up; `returning` keeps the answer for the insertion.
        if self.returning != Some(hash) && self.ghosts.remove(hash).is_some() {
            self.returning = Some(hash);
        }
        self.returning == Some(hash)
    }

    /// Puts a block at the end of its queue.
    fn enter(&mut self, block: BlockId) {
        self.clock += 1;
        let queue = self.flags[block.index()].queue();
        self.queues.push(queue, block, self.clock);
    }

    /// Puts a block that was set aside back at its own place.
    fn come_back(&mut self, block: BlockId) {
        let flags = &mut self.flags[block.index()];
        if std::mem::take(&mut flags.is_aside) {
            // It may stand before the one that was chosen.
            self.chosen = None;
            self.queues.rejoin(flags.queue(), block);
        }
    }

    /// The queue to evict from.
    fn queue_to_sweep(&self) -> Option<usize> {
        let wanted = if self.lens[MAIN] > self.main_capacity || self.lens[SMALL] == 0 {
            MAIN
        } else {
            SMALL
        };
        // A queue whose blocks are all set aside is empty here, so the other one is swept.
        let mut either = [wanted, 1 - wanted].into_iter();
        either.find(|&queue| !self.queues.is_empty(queue))
    }

    /// Sweeps `queue` up to a block that may go; `None` when it is swept through.
    fn sweep(&mut self, queue: usize) -> Option<BlockId> {
        // The sweep ends, because each round shortens the queue or lowers a count of uses.
        while let Some(block) = self.queues.front(queue) {
            let flags = &mut self.flags[block.index()];
            let is_spared = flags.is_spared();
            if !is_spared && flags.may_go {
                return Some(block);
            }
            self.queues.pop(queue);
            if !is_spared {
                flags.is_aside = true;
            } else if queue == SMALL {
                flags.uses = 0;
                flags.is_main = true;
                self.lens[SMALL] -= 1;
                self.lens[MAIN] += 1;
                self.enter(block);
            } else {
                flags.uses -= 1;
                self.enter(block);
            }
        }
        None
    }
}

impl Policy for S3Fifo {
    fn insert(&mut self, block: BlockId, hash: BlockHash, _: &Access) {
        let is_first_filling = !self.has_evicted && self.lens[SMALL] >= self.small_capacity;
        self.flags[block.index()] = S3FifoFlags {
            is_main: self.is_returning(hash) || is_first_filling,
            ..S3FifoFlags::default()
        };
        self.returning = None;
        self.lens[self.flags[block.index()].queue()] += 1;
        self.enter(block);
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        for &block in blocks {
            let flags = &mut self.flags[block.index()];
            if flags.is_known {
                flags.uses = (flags.uses + 1).min(MOST_USES);
            }
            flags.is_known = true;
            // Used while it was set aside: the next sweep must find it at its own place.
            if flags.is_spared() {
                self.come_back(block);
            }
        }
    }

    fn offer(&mut self, block: BlockId) {
        self.num_offered += 1;
        self.flags[block.index()].may_go = true;
        self.come_back(block);
    }

    fn withdraw(&mut self, block: BlockId) {
        self.num_offered -= 1;
        self.flags[block.index()].may_go = false;
        if self.chosen == Some(block) {
            self.chosen = None;
        }
    }

    fn victim(&mut self, _: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        if self.num_offered == 0 {
            return None;
        }
        if let Some(newcomer) = newcomer {
            self.is_returning(newcomer.hash);
        }
        while self.chosen.is_none() {
            // A block that is offered is in one of the queues, so one of them is not empty.
            let queue = self.queue_to_sweep()?;
            self.chosen = self.sweep(queue);
        }
        self.chosen
    }

    fn remove(&mut self, block: BlockId, hash: BlockHash) {
        self.chosen = None;
        self.num_offered -= 1;
        self.has_evicted = true;
        let queue = self.flags[block.index()].queue();
        let front = self.queues.pop(queue);
        assert_eq!(front, Some(block), "a victim is at the front");
        self.lens[queue] -= 1;
        if queue == SMALL && self.ghost_capacity > 0 {
            if self.ghosts.len(GHOST) == self.ghost_capacity {
                self.ghosts.pop_oldest(GHOST);
            }
            self.ghosts.push(GHOST, hash);
        }
    }

    fn forget(&mut self, block: BlockId, _: BlockHash) {
        self.chosen = None;
        let flags = self.flags[block.index()];
        self.lens[flags.queue()] -= 1;
        // A block that was set aside is in no queue.
        if !flags.is_aside {
            self.queues.take(flags.queue(), block);
        }
    }
}
