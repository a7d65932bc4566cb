//! S3-FIFO as one would explain it: three lists.
//!
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP'23, with the first
//! filling and the order of checks of the authors' library: the ghost of a newcomer is looked
//! for before room is made, and promotions do not evict from the main queue. What may not go is
//! in its queue like any other block; a sweep steps over it.

use headstart_cache::Policy;
use headstart_cache::policy::Newcomer;
use headstart_core::{Access, BlockHash, BlockId, Nanos};

/// The obvious S3-FIFO; every call is linear.
#[derive(Debug)]
pub(crate) struct ListS3Fifo {
    small_capacity: usize,
    main_capacity: usize,
    ghost_capacity: usize,
    /// Oldest first, all three.
    small: Vec<S3FifoEntry>,
    main: Vec<S3FifoEntry>,
    ghosts: Vec<BlockHash>,
    has_evicted: bool,
    /// A newcomer with a ghost, for which room was made.
    returning: Option<BlockHash>,
    /// The victim, until the next call of another kind.
    chosen: Option<BlockId>,
}

#[derive(Debug)]
struct S3FifoEntry {
    block: BlockId,
    is_offered: bool,
    /// Its insertion's own use is behind it.
    is_used: bool,
    uses: u8,
}

impl ListS3Fifo {
    /// For a cache of `capacity` slots; `small` and `ghost` are shares of it.
    #[must_use]
    pub(crate) fn new(capacity: usize, small: f64, ghost: f64) -> Self {
        let share = |part: f64| (capacity as f64 * part) as usize;
        Self {
            small_capacity: share(small),
            main_capacity: capacity - share(small),
            ghost_capacity: share(ghost),
            small: Vec::new(),
            main: Vec::new(),
            ghosts: Vec::new(),
            has_evicted: false,
            returning: None,
            chosen: None,
        }
    }

    fn find(&mut self, block: BlockId) -> &mut S3FifoEntry {
        let mut all = self.small.iter_mut().chain(&mut self.main);
        let found = all.find(|entry| entry.block == block);
        found.expect("only what is resident is released, offered or withdrawn")
    }

    /// Takes the ghost of `hash` away, where there is one.
    fn is_returning(&mut self, hash: BlockHash) -> bool {
        if let Some(at) = self.ghosts.iter().position(|ghost| *ghost == hash) {
            self.ghosts.remove(at);
            self.returning = Some(hash);
        }
        self.returning == Some(hash)
    }

    /// Used twice: to the main queue. Otherwise, if it may go: the victim.
    fn sweep_small(&mut self) -> Option<BlockId> {
        let mut at = 0;
        while at < self.small.len() {
            if self.small[at].uses >= 2 {
                let entry = self.small.remove(at);
                self.main.push(S3FifoEntry { uses: 0, ..entry });
            } else if self.small[at].is_offered {
                return Some(self.small[at].block);
            } else {
                at += 1;
            }
        }
        None
    }

    /// Used: to the end, with one use less. Otherwise, if it may go: the victim.
    fn sweep_main(&mut self) -> Option<BlockId> {
        let mut at = 0;
        while at < self.main.len() {
            if self.main[at].uses > 0 {
                let entry = self.main.remove(at);
                let uses = entry.uses - 1;
                self.main.push(S3FifoEntry { uses, ..entry });
            } else if self.main[at].is_offered {
                return Some(self.main[at].block);
            } else {
                at += 1;
            }
        }
        None
    }
}

impl Policy for ListS3Fifo {
    fn insert(&mut self, block: BlockId, hash: BlockHash, _: &Access) {
        self.chosen = None;
        let is_first_filling = !self.has_evicted && self.small.len() >= self.small_capacity;
        let is_main = self.is_returning(hash) || is_first_filling;
        self.returning = None;
        let queue = if is_main { &mut self.main } else { &mut self.small };
        queue.push(S3FifoEntry { block, is_offered: false, is_used: false, uses: 0 });
    }

    fn release(&mut self, blocks: &[BlockId], _: &Access) {
        self.chosen = None;
        for &block in blocks {
            let entry = self.find(block);
            entry.uses = (entry.uses + u8::from(entry.is_used)).min(3);
            entry.is_used = true;
        }
    }

    fn offer(&mut self, block: BlockId) {
        self.chosen = None;
        self.find(block).is_offered = true;
    }

    fn withdraw(&mut self, block: BlockId) {
        self.chosen = None;
        self.find(block).is_offered = false;
    }

    fn victim(&mut self, _: Nanos, newcomer: Option<&Newcomer>) -> Option<BlockId> {
        let mut all = self.small.iter().chain(&self.main);
        if !all.any(|entry| entry.is_offered) {
            return None;
        }
        if let Some(newcomer) = newcomer {
            self.is_returning(newcomer.hash);
        }
        while self.chosen.is_none() {
            let is_main_first = self.main.len() > self.main_capacity || self.small.is_empty();
            self.chosen = if is_main_first {
                self.sweep_main().or_else(|| self.sweep_small())
            } else {
                self.sweep_small().or_else(|| self.sweep_main())
            };
        }
        self.chosen
    }

    fn remove(&mut self, block: BlockId, hash: BlockHash) {
        self.chosen = None;
        self.has_evicted = true;
        if let Some(at) = self.small.iter().position(|entry| entry.block == block) {
            self.small.remove(at);
            self.ghosts.push(hash);
            if self.ghosts.len() > self.ghost_capacity {
                self.ghosts.remove(0);
            }
        }
        self.main.retain(|entry| entry.block != block);
    }

    fn forget(&mut self, block: BlockId, _: BlockHash) {
        self.chosen = None;
        self.small.retain(|entry| entry.block != block);
        self.main.retain(|entry| entry.block != block);
    }
}
