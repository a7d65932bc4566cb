//! From engines' names of blocks to keys.
//!
//! Engines name blocks by hashes of their own. A stored block comes with its tokens and its
//! parent's name, so its key follows from its parent's key; from then on the name stands for it.
//! Bounded: an older name gives way to a newer one of its line, and then what becomes of its block
//! is not heard of any more.

use std::hint::black_box;

use headstart_core::block::Namespace;
use headstart_core::event::StoredBlocks;
use headstart_core::{BlockHash, RouteKey, TokenId};

/// Gives the key of a block: its parent's key, its tokens, what else sets it apart, its size, and
/// the namespace that counts at the start of a prompt.
pub type BlockName<'a> =
    &'a dyn Fn(Option<RouteKey>, &[TokenId], Option<&[u8]>, Namespace<'_>) -> Option<RouteKey>;

/// Names of a line of 64 bytes.
const WAYS: usize = 4;

/// A bounded map from a replica's names to keys.
#[derive(Clone, Debug)]
pub(super) struct Handles {
    lines: Vec<[(u64, u64); WAYS]>,
    next: usize,
}

impl Handles {
    /// Room for `capacity` names, or somewhat more.
    pub(super) fn new(capacity: usize) -> Self {
        let lines = capacity.div_ceil(WAYS).next_power_of_two();
        Self {
            lines: vec![[(0, 0); WAYS]; lines],
            next: 0,
        }
    }

    /// The key of a replica's block.
    pub(super) fn find(&self, replica: u16, handle: BlockHash) -> Option<RouteKey> {
        let (line, tag) = self.place(replica, handle);
        let mut found = self.lines[line].iter().filter(|entry| entry.0 == tag);
        found.next().map(|entry| RouteKey(entry.1))
    }

    /// The keys of a replica's blocks, as far as they are known.
    pub(super) fn find_all(&self, replica: u16, handles: &[BlockHash]) -> Vec<RouteKey> {
        self.fetch(replica, handles);
        let keys = handles.iter().filter_map(|&one| self.find(replica, one));
        keys.collect()
    }

    /// Has their lines come from memory together.
    fn fetch(&self, replica: u16, handles: &[BlockHash]) {
        let lines = handles
            .iter()
            .map(|&one| self.lines[self.place(replica, one).0][0].0);
        black_box(lines.fold(0, |sum, tag| sum ^ tag));
    }

    /// The keys of blocks that were stored, as far as they can be named.
    pub(super) fn introduce(
        &mut self,
        replica: u16,
        stored: &StoredBlocks,
        name: BlockName<'_>,
    ) -> Vec<RouteKey> {
        let size = stored.block_size as usize;
        let has_tokens = size > 0 && stored.tokens.len() == stored.blocks.len() * size;
        if !has_tokens || stored.group.index != 0 {
            return match stored.group.index {
                0 => self.find_all(replica, &stored.blocks),
                _ => Vec::new(),
            };
        }
        self.fetch(replica, &stored.blocks);
        let namespace = Namespace {
            adapter: stored.adapter.as_deref(),
            salt: stored.salt.as_deref(),
        };
        let mut parent = match stored.parent.map(|handle| self.find(replica, handle)) {
            Some(None) => return Vec::new(),
            known => known.flatten(),
        };
        let mut keys = Vec::with_capacity(stored.blocks.len());
        let blocks = stored.blocks.iter().zip(stored.tokens.chunks_exact(size));
        for (index, (&handle, tokens)) in blocks.enumerate() {
            let extra = stored.extras.get(index).and_then(Option::as_deref);
            let Some(key) = name(parent, tokens, extra, namespace) else {
                break;
            };
            self.enter(replica, handle, key);
            keys.push(key);
            parent = Some(key);
        }
        keys
    }

    fn enter(&mut self, replica: u16, handle: BlockHash, key: RouteKey) {
        let (line, tag) = self.place(replica, handle);
        let entries = &mut self.lines[line];
        let known = entries.iter().position(|entry| entry.0 == tag);
        let free = || entries.iter().position(|entry| entry.0 == 0);
        let way = known.or_else(free).unwrap_or_else(|| {
            self.next = (self.next + 1) % WAYS;
            self.next
        });
        entries[way] = (tag, key.0);
    }

    fn place(&self, replica: u16, handle: BlockHash) -> (usize, u64) {
        let bytes = u128::from_le_bytes(handle.0);
        let mixed =
            (bytes as u64) ^ ((bytes >> 64) as u64).rotate_left(32) ^ u64::from(replica) << 48;
        let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = mixed ^ (mixed >> 32);
        (mixed as usize & (self.lines.len() - 1), mixed.max(1))
    }
}
