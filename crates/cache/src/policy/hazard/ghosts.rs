//! Names of evicted blocks, each with the piece that it belonged to.
//!
//! A piece may have thousands of ghosts. One name in sixteen is kept, chosen by its bits, and the
//! one that was evicted last, where a request meets the piece. In between, a piece is taken to go
//! on until a kept name is missing.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use headstart_core::BlockHash;

use super::pieces::{OwnedPieces, PieceId};
use crate::slots::spread;

/// One name in this number is kept.
const SAMPLED: u64 = 16;

/// A name, in 32 bits, and its piece.
#[derive(Clone, Copy, Debug)]
struct GhostName {
    name: u32,
    piece: PieceId,
}

/// The kept names.
#[derive(Debug, Default)]
pub(super) struct GhostNames {
    names: HashTable<GhostName>,
    /// The block that was evicted last, which is kept once another piece's block is evicted.
    last: Option<(BlockHash, PieceId)>,
    /// The piece that the last missing block belonged to, and the offset behind that block; `None`
    /// at the first missing block of a request.
    run: Option<PieceId>,
    next_offset: Option<u32>,
}

impl GhostNames {
    /// A block of a piece was evicted.
    pub(super) fn evicted(&mut self, hash: BlockHash, piece: PieceId, pieces: &OwnedPieces) {
        if let Some((last, owner)) = self.last.replace((hash, piece))
            && (owner != piece || is_sampled(last))
        {
            self.keep(last, owner, pieces);
        }
    }

    /// Returns the piece that the missing block at `offset` of a request belonged to.
    pub(super) fn find(
        &mut self,
        hash: BlockHash,
        offset: u32,
        pieces: &OwnedPieces,
    ) -> Option<PieceId> {
        let is_next = self.next_offset == Some(offset);
        self.next_offset = offset.checked_add(1);
        let run = self.run.filter(|_| is_next).and_then(|id| {
            let piece = pieces.get(id)?;
            (offset < piece.len).then_some(id)
        });
        let ended = is_next && self.run.is_some() && run.is_none();
        // Within a piece the sampled names decide. Behind one, and at the first missing block,
        // another piece may begin at any name.
        let found =
            if is_sampled(hash) || !is_next || ended { self.look_up(hash, pieces) } else { run };
        self.run = found;
        found
    }

    /// The request whose blocks were looked for is over.
    pub(super) fn end_run(&mut self) {
        self.next_offset = None;
    }

    fn look_up(&self, hash: BlockHash, pieces: &OwnedPieces) -> Option<PieceId> {
        if let Some((last, piece)) = self.last
            && last == hash
        {
            return Some(piece).filter(|id| pieces.get(*id).is_some());
        }
        let name = name(hash);
        let found = self.names.find(place(name), |kept| kept.name == name)?;
        Some(found.piece).filter(|id| pieces.get(*id).is_some())
    }

    fn keep(&mut self, hash: BlockHash, piece: PieceId, pieces: &OwnedPieces) {
        if pieces.get(piece).is_none() {
            return;
        }
        if self.names.len() == self.names.capacity() {
            // Most names belong to pieces that have ended, or room grows by a half.
            self.names.retain(|kept| pieces.get(kept.piece).is_some());
            if self.names.len() > self.names.capacity() / 4 * 3 {
                self.names.reserve(self.names.len() / 2 + 64, |kept| place(kept.name));
            }
        }
        let name = name(hash);
        let kept = GhostName { name, piece };
        match self.names.entry(place(name), |one| one.name == name, |one| place(one.name)) {
            Entry::Occupied(mut old) => *old.get_mut() = kept,
            Entry::Vacant(new) => {
                new.insert(kept);
            }
        }
    }
}

/// The part of a name that is kept: two of a million names agree in it with a chance of 1 in 4,000.
fn name(hash: BlockHash) -> u32 {
    (spread(hash) >> 32) as u32
}

/// The place of a kept name in the table.
fn place(name: u32) -> u64 {
    u64::from(name).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn is_sampled(hash: BlockHash) -> bool {
    // Other bits than those of `name`, or kept names would share them.
    spread(hash).is_multiple_of(SAMPLED)
}

#[cfg(test)]
mod tests {
    use super::super::features::Features;
    use super::*;

    fn hash(request: u64, offset: u32) -> BlockHash {
        BlockHash::from_u64((request << 32) + u64::from(offset))
    }

    /// Requests of `lens` blocks, of which the last `gone` are evicted, tail first.
    fn evict(lens: &[u32], gone: u32) -> (OwnedPieces, GhostNames, Vec<PieceId>) {
        let (mut pieces, mut ghosts) = (OwnedPieces::new(), GhostNames::default());
        let mut ids = Vec::new();
        for (request, &len) in (0..).zip(lens) {
            let id = pieces.add(len, 0, Features::default(), 0).expect("room");
            for offset in (len - gone..len).rev() {
                ghosts.evicted(hash(request, offset), id, &pieces);
                pieces.shrink(id, true);
            }
            ids.push(id);
        }
        (pieces, ghosts, ids)
    }

    #[test]
    fn a_request_meets_the_piece_that_it_continues() {
        let (pieces, mut ghosts, ids) = evict(&[100, 300, 200], 50);
        for (request, (&id, len)) in (0..).zip(ids.iter().zip([100, 300, 200])) {
            let found: Vec<_> = (len - 50..len)
                .map(|offset| ghosts.find(hash(request, offset), offset, &pieces))
                .collect();
            assert_eq!(found, vec![Some(id); 50]);
        }
        // Blocks that never were resident belong to none.
        assert_eq!(ghosts.find(hash(7, 60), 60, &pieces), None);
    }

    #[test]
    fn a_request_that_turns_off_leaves_the_piece_at_a_sampled_name() {
        let (pieces, mut ghosts, ids) = evict(&[400], 400);
        let found: Vec<_> = (0..400)
            .map(|offset| {
                let request = if offset < 100 { 0 } else { 1 };
                ghosts.find(hash(request, offset), offset, &pieces)
            })
            .collect();
        assert_eq!(found[..100], vec![Some(ids[0]); 100]);
        assert!(found[250..].iter().all(Option::is_none));
    }

    #[test]
    fn names_of_pieces_that_ended_are_found_no_more() {
        let (mut pieces, mut ghosts, _) = evict(&[100, 100], 100);
        pieces.limit_ghosts(0, 0);
        assert_eq!(ghosts.find(hash(1, 0), 0, &pieces), None);
    }
}
