//! Names of evicted blocks, each with the piece that it belonged to.
//!
//! A piece may have thousands of ghosts. All names of a short request are kept, and of a long one
//! every second to sixteenth, chosen by its bits. The one that was evicted last is kept as well,
//! where a request meets the piece. In between, a piece is taken to go on until a kept name is
//! missing.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use headstart_core::BlockHash;

use super::pieces::{OwnedPieces, PieceId};
use crate::slots::spread;

/// Blocks of a request of which all names are kept, and the sparsest sample.
const WHOLE: u32 = 32;
const SPARSEST: u32 = 16;

/// A name, in 32 bits, and its piece.
#[derive(Clone, Copy, Debug)]
struct GhostName {
    name: u32,
    piece: PieceId,
    /// Its place in the request, twice; one more for a sampled name.
    place: u32,
}

/// A block that was evicted.
#[derive(Clone, Copy, Debug)]
struct EvictedBlock {
    hash: BlockHash,
    piece: PieceId,
    place: u32,
    is_sampled: bool,
}

/// The kept names.
#[derive(Debug, Default)]
pub(super) struct GhostNames {
    names: HashTable<GhostName>,
    /// The block that was evicted last, which is kept once another piece's block is evicted.
    last: Option<EvictedBlock>,
    /// The piece that the last missing block belonged to, and the offset behind that block; `None`
    /// at the first missing block of a request.
    run: Option<PieceId>,
    next_offset: Option<u32>,
    keeps_all: bool,
}

impl GhostNames {
    /// From now on all names are kept, so that each block is found by itself.
    pub(super) fn keep_all(&mut self) {
        self.keeps_all = true;
    }

    /// The last resident block of a piece is evicted.
    pub(super) fn evicted(&mut self, hash: BlockHash, piece: PieceId, pieces: &OwnedPieces) {
        let Some(owner) = pieces.get(piece) else {
            return;
        };
        let is_sampled = self.keeps_all || is_sampled(hash, owner.len);
        let place = owner.last_resident();
        let evicted = EvictedBlock { hash, piece, place, is_sampled };
        if let Some(last) = self.last.replace(evicted)
            && (last.piece != piece || last.is_sampled)
        {
            self.keep(last, pieces);
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
            // Of the names within a piece, those that are kept decide.
            let is_sampled = self.keeps_all || is_sampled(hash, piece.len);
            (offset < piece.len && !is_sampled).then_some(id)
        });
        self.run = run.or_else(|| self.look_up(hash, pieces).map(|(piece, _)| piece));
        self.run
    }

    /// The request whose blocks were looked for is over.
    pub(super) fn end_run(&mut self) {
        self.next_offset = None;
    }

    /// Returns the piece of an evicted block whose name is kept, and the block's place in it.
    pub(super) fn look_up(&self, hash: BlockHash, pieces: &OwnedPieces) -> Option<(PieceId, u32)> {
        let found = if let Some(last) = self.last.filter(|last| last.hash == hash) {
            (last.piece, last.place)
        } else {
            let name = name(hash);
            let kept = self.names.find(place(name), |kept| kept.name == name)?;
            (kept.piece, kept.place >> 1)
        };
        pieces.get(found.0).is_some().then_some(found)
    }

    fn keep(&mut self, block: EvictedBlock, pieces: &OwnedPieces) {
        if pieces.get(block.piece).is_none() {
            return;
        }
        if self.names.len() == self.names.capacity() {
            // Most names are needed no more, or room grows by a half.
            self.names.retain(|kept| kept.is_needed(pieces));
            if self.names.len() > self.names.capacity() / 4 * 3 {
                self.names.reserve(self.names.len() / 2 + 64, |kept| place(kept.name));
            }
        }
        let name = name(block.hash);
        let place_of_block = (block.place << 1) | u32::from(block.is_sampled);
        let kept = GhostName { name, piece: block.piece, place: place_of_block };
        match self.names.entry(place(name), |one| one.name == name, |one| place(one.name)) {
            Entry::Occupied(mut old) => *old.get_mut() = kept,
            Entry::Vacant(new) => {
                new.insert(kept);
            }
        }
    }
}

impl GhostName {
    /// Whether the piece has not ended, and the name is sampled or that of its first ghost. A piece
    /// whose tail was evicted in several turns has left a name at the end of each.
    fn is_needed(&self, pieces: &OwnedPieces) -> bool {
        let is_sampled = self.place & 1 == 1;
        let piece = pieces.get(self.piece);
        piece.is_some_and(|piece| is_sampled || piece.first_ghost() == self.place >> 1)
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

/// Whether a name is kept wherever it is in a request of `len` blocks.
fn is_sampled(hash: BlockHash, len: u32) -> bool {
    let one_in = (len / WHOLE).next_power_of_two().min(SPARSEST);
    // Other bits than those of `name`, or kept names would share them.
    spread(hash) & u64::from(one_in - 1) == 0
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
        let (mut pieces, mut ghosts) = (OwnedPieces::new(1 << 20), GhostNames::default());
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
    fn a_piece_has_one_name_that_is_not_sampled() {
        let (mut pieces, mut ghosts) = (OwnedPieces::new(1 << 20), GhostNames::default());
        let lens = [2_000; 64];
        let ids = lens.map(|len| pieces.add(len, 0, Features::default(), 0).expect("room"));
        // The tails are evicted block by block in turn, so each eviction is of another piece.
        for offset in (0..2_000).rev() {
            for (request, &id) in (0..).zip(&ids) {
                ghosts.evicted(hash(request, offset), id, &pieces);
                pieces.shrink(id, true);
            }
        }
        let sampled = 64 * 2_000 / SPARSEST as usize;
        assert!(ghosts.names.len() < 2 * (sampled + 64), "{}", ghosts.names.len());
        let found: Vec<_> =
            (0..64).map(|request| ghosts.look_up(hash(request, 0), &pieces)).collect();
        assert_eq!(found, ids.map(|id| Some((id, 0))));
    }

    #[test]
    fn names_of_pieces_that_ended_are_found_no_more() {
        let (mut pieces, mut ghosts, _) = evict(&[100, 100], 100);
        pieces.limit_ghosts(0, 0);
        assert_eq!(ghosts.find(hash(1, 0), 0, &pieces), None);
    }
}
