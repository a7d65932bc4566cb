//! The pieces of the cache that requests own.
//!
//! A block belongs to the last request that passed through it. So a request owns one piece of its
//! own chain, `[from, len)`: the front is taken over by later requests, and the tail is evicted
//! first. Evicted blocks of a piece are its ghosts; a request for them shows that the block
//! would have been used again. A piece ends when nothing of it is left.

use std::collections::VecDeque;

use headstart_core::BlockId;

use super::age::{AGES, TICKS, start_s};
use super::features::Features;
use super::rates::DEGREES;
use super::window::{Boundary, LruWindow};

/// Bits of a piece's number that are its place; the others count the pieces that had the place.
const PLACE_BITS: u32 = 25;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;
const LIVES: u32 = 1 << (31 - PLACE_BITS);

/// No place.
const NONE: u32 = u32::MAX;

/// The name of a piece, in 31 bits. That of a piece which ended may come again after 64 others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceId(u32);

/// The piece that a request owns: 64 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnedPiece {
    /// Counts releases: a piece with a larger number is younger.
    pub(super) number: u32,
    /// When it was released, ticks.
    pub(super) released: u32,
    /// Age up to which its exposure is booked, ticks.
    pub(super) booked: u32,
    /// The first block that is still its own.
    pub(super) from: u32,
    /// Blocks of the request.
    pub(super) len: u32,
    /// Blocks that earlier requests had as well.
    pub(super) known: u32,
    /// Resident blocks.
    pub(super) resident: u32,
    offered: u32,
    /// The pieces before and behind it in the list of its age.
    before: u32,
    behind: u32,
    worths: [f32; 2],
    pub(super) features: Features,
    /// State for which, and refresh at which, `worths` was computed; [`NO_STATE`] for none.
    worths_state: u8,
    worths_refresh: u8,
    /// The degree to which later requests have superseded it, below [`DEGREES`].
    pub(super) superseded: u8,
    /// Step of its age, or [`ENDED`].
    age: u8,
    life: u8,
}

/// The `age` of a piece that has ended.
const ENDED: u8 = u8::MAX;

/// The `worths_state` of a piece whose worth is to be computed.
const NO_STATE: u8 = u8::MAX;

/// All pieces.
#[derive(Debug)]
pub(super) struct OwnedPieces {
    pieces: Vec<OwnedPiece>,
    free: Vec<u32>,
    /// By step of age: the first piece of that age, the oldest, and the last.
    ages: [(u32, u32); AGES],
    /// OwnedPieces without resident blocks, in the order in which they lost the last one; some have
    /// ended since.
    ghosts: VecDeque<PieceId>,
    num_ghosts: usize,
    /// Evicted blocks of all pieces.
    ghost_blocks: u64,
    next_number: u32,
    window: LruWindow,
}

impl PieceId {
    fn place(self) -> usize {
        (self.0 & PLACE_MASK) as usize
    }

    /// As a number below 2^31.
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    pub(super) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

impl OwnedPiece {
    fn new(number: u32, len: u32, known: u32, features: Features, now: u32, life: u8) -> Self {
        Self {
            number,
            released: now,
            booked: 0,
            from: 0,
            len,
            known,
            resident: len,
            offered: NONE,
            before: NONE,
            behind: NONE,
            worths: [0.0; 2],
            features,
            worths_state: NO_STATE,
            worths_refresh: 0,
            superseded: 0,
            age: 0,
            life,
        }
    }

    /// The block that may be evicted next; the cache offers it.
    pub(super) fn offered(&self) -> Option<BlockId> {
        (self.offered != NONE).then_some(BlockId(self.offered))
    }

    pub(super) fn set_offered(&mut self, block: Option<BlockId>) {
        self.offered = block.map_or(NONE, |block| block.0);
    }

    /// Step of its age.
    pub(super) fn age(&self) -> usize {
        self.age.into()
    }

    /// The worths of its last block at the middles of its age and of the next, from `compute` if
    /// those that are kept are of another state, age or refresh of the rates.
    pub(super) fn worths(
        &mut self,
        refresh: u8,
        compute: impl FnOnce(&Self, usize) -> [f32; 2],
    ) -> [f32; 2] {
        let state = self.tail_state();
        if (usize::from(self.worths_state), self.worths_refresh) != (state, refresh) {
            self.worths = compute(self, state);
            (self.worths_state, self.worths_refresh) = (state as u8, refresh);
        }
        self.worths
    }

    /// Blocks that are its own, evicted or not.
    fn num_left(&self) -> u64 {
        u64::from(self.len - self.from)
    }

    /// Whether some of its blocks are evicted.
    pub(super) fn has_ghosts(&self) -> bool {
        self.num_ghosts() > 0
    }

    /// Evicted blocks.
    fn num_ghosts(&self) -> u64 {
        u64::from((self.len - self.from).saturating_sub(self.resident))
    }

    /// Age at a time, seconds.
    pub(super) fn age_s(&self, now: u32) -> f64 {
        f64::from(now.wrapping_sub(self.released)) / TICKS
    }

    /// Place of the last resident block in the request.
    pub(super) fn last_resident(&self) -> u32 {
        (self.from + self.resident).saturating_sub(1)
    }

    /// Place of the first evicted block in the request, behind the resident ones.
    pub(super) fn first_ghost(&self) -> u32 {
        self.from + self.resident
    }

    /// State of the last resident block.
    pub(super) fn tail_state(&self) -> usize {
        self.state_at(self.last_resident())
    }

    /// State of the block at a place in the request.
    pub(super) fn state_at(&self, place: u32) -> usize {
        let is_last = u64::from(place) + 1 >= u64::from(self.len);
        let part = if is_last { 2 } else { usize::from(place >= self.known) };
        part * DEGREES + usize::from(self.superseded)
    }

    /// Parts of the request, each with its first block, the block behind it, and its state: known
    /// before, new, last.
    pub(super) fn parts(&self) -> [(u32, u32, usize); 3] {
        let last = self.len.saturating_sub(1);
        let known = self.known.min(last);
        let state = |part: usize| part * DEGREES + usize::from(self.superseded);
        [(0, known, state(0)), (known, last, state(1)), (last, self.len, state(2))]
    }
}

impl OwnedPieces {
    /// For a cache of `capacity` blocks.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            pieces: Vec::new(),
            free: Vec::new(),
            ages: [(NONE, NONE); AGES],
            ghosts: VecDeque::new(),
            num_ghosts: 0,
            ghost_blocks: 0,
            next_number: 0,
            window: LruWindow::new(capacity),
        }
    }

    /// Returns a piece that has not ended.
    #[inline]
    pub(super) fn get(&self, id: PieceId) -> Option<&OwnedPiece> {
        let piece = self.pieces.get(id.place())?;
        (piece.age != ENDED && u32::from(piece.life) == id.0 >> PLACE_BITS).then_some(piece)
    }

    /// Returns a piece that has not ended.
    #[inline]
    pub(super) fn get_mut(&mut self, id: PieceId) -> Option<&mut OwnedPiece> {
        let piece = self.pieces.get_mut(id.place())?;
        (piece.age != ENDED && u32::from(piece.life) == id.0 >> PLACE_BITS).then_some(piece)
    }

    /// All pieces that have not ended.
    pub(super) fn live(&self) -> impl Iterator<Item = &OwnedPiece> {
        self.pieces.iter().filter(|piece| piece.age != ENDED)
    }

    /// A request of `len` blocks, all resident, is released at `now`. `None` where there is no
    /// room for another piece.
    pub(super) fn add(
        &mut self,
        len: u32,
        known: u32,
        features: Features,
        now: u32,
    ) -> Option<PieceId> {
        let number = self.next_number;
        let piece = |life| OwnedPiece::new(number, len, known, features, now, life);
        let place = if let Some(place) = self.free.pop() {
            let old = &mut self.pieces[place as usize];
            *old = piece(old.life);
            place
        } else {
            let place = self.pieces.len() as u32;
            if place == PLACE_MASK {
                return None;
            }
            if self.pieces.len() == self.pieces.capacity() {
                self.pieces.reserve_exact((self.pieces.len() / 8).max(64));
            }
            self.pieces.push(piece(0));
            place
        };
        self.next_number = number.wrapping_add(1);
        let life = u32::from(self.pieces[place as usize].life);
        self.append(0, place);
        self.window.changed(0, len.into());
        while self.window.is_past_boundary() && self.move_boundary() {}
        Some(PieceId(place | (life << PLACE_BITS)))
    }

    /// The place up to which LRU would keep the blocks of a piece.
    pub(super) fn lru_end(&self, id: PieceId) -> u32 {
        let Some(piece) = self.get(id) else {
            return 0;
        };
        if self.is_in_window(piece) {
            return piece.len;
        }
        let boundary = self.window.boundary().and_then(|boundary| boundary.place);
        let is_boundary = boundary == Some(id.place() as u32);
        let kept = if is_boundary { self.window.kept_of_boundary() } else { 0 };
        piece.from + kept.min(piece.num_left()) as u32
    }

    /// Whether a piece is younger than the boundary of LRU's window.
    fn is_in_window(&self, piece: &OwnedPiece) -> bool {
        let boundary = self.window.boundary();
        boundary.is_none_or(|boundary| piece.number.wrapping_sub(boundary.number) as i32 > 0)
    }

    /// Moves the boundary of LRU's window to the next younger piece, if there is one.
    fn move_boundary(&mut self) -> bool {
        let boundary = self.window.boundary();
        let next = match boundary {
            // It has ended, and the youngest piece was added since.
            Some(Boundary { place: None, .. }) => Some(self.ages[0].1).filter(|&last| last != NONE),
            _ => self.next_younger(boundary.and_then(|boundary| boundary.place)),
        };
        if let Some(place) = next {
            let piece = &self.pieces[place as usize];
            self.window.move_to(place, piece.number, piece.num_left());
        }
        next.is_some()
    }

    /// The place of the next younger piece than that at a place; without one, of the oldest.
    fn next_younger(&self, place: Option<u32>) -> Option<u32> {
        let mut age = AGES;
        if let Some(place) = place {
            let piece = &self.pieces[place as usize];
            if piece.behind != NONE {
                return Some(piece.behind);
            }
            age = piece.age();
        }
        let lists = self.ages[..age].iter().rev();
        lists.map(|(first, _)| *first).find(|&first| first != NONE)
    }

    /// A request takes the blocks of a piece up to `to`, of which `resident` are resident.
    pub(super) fn take(&mut self, id: PieceId, to: u32, resident: u32) {
        self.change(id, |piece| {
            piece.from = piece.from.max(to.min(piece.len));
            piece.resident = piece.resident.saturating_sub(resident);
        });
    }

    /// A resident block of a piece is evicted, or is lost without a ghost.
    pub(super) fn shrink(&mut self, id: PieceId, leaves_ghost: bool) {
        self.change(id, |piece| {
            piece.resident = piece.resident.saturating_sub(1);
            if !leaves_ghost {
                // As if the request had been one block shorter.
                piece.len = (piece.len - 1).max(piece.from);
            }
        });
    }

    /// A ghost of a piece is resident again.
    pub(super) fn grow(&mut self, id: PieceId) {
        self.change(id, |piece| piece.resident += 1);
    }

    /// Changes what is left of a piece; ends it if that is nothing.
    fn change(&mut self, id: PieceId, change: impl FnOnce(&mut OwnedPiece)) {
        let Some(piece) = self.get_mut(id) else {
            return;
        };
        let (ghosts, was_resident) = (piece.num_ghosts(), piece.resident > 0);
        let before = piece.num_left();
        change(piece);
        let (left, is_resident) = (piece.num_ghosts(), piece.resident > 0);
        let is_over = !is_resident && left == 0;
        self.ghost_blocks = self.ghost_blocks + left - ghosts;
        let piece = self.pieces[id.place()];
        if self.is_in_window(&piece) {
            self.window.changed(before, piece.num_left());
        }
        if !was_resident && is_resident {
            // Its name stays among the ghosts', where it counts no more.
            self.num_ghosts -= 1;
        }
        if was_resident && !is_resident {
            self.num_ghosts += 1;
            if !is_over {
                self.ghosts.push_back(id);
            }
        }
        if is_over {
            self.end(id);
        }
    }

    /// Ends the oldest pieces without resident blocks while there are more than a number of them,
    /// or of ghosts.
    pub(super) fn limit_ghosts(&mut self, pieces: usize, blocks: u64) {
        while self.num_ghosts > pieces || self.ghost_blocks > blocks {
            let Some(oldest) = self.ghosts.pop_front() else {
                return;
            };
            if self.is_ghost(oldest) {
                self.end(oldest);
            }
        }
        // Names of pieces that have ended stay until they reach the front; not too many of them.
        if self.ghosts.len() > 2 * self.num_ghosts + 64 {
            let ghosts = std::mem::take(&mut self.ghosts);
            self.ghosts = ghosts.into_iter().filter(|id| self.is_ghost(*id)).collect();
        }
    }

    /// Whether a piece has ghosts only.
    fn is_ghost(&self, id: PieceId) -> bool {
        self.get(id).is_some_and(|piece| piece.resident == 0)
    }

    fn end(&mut self, id: PieceId) {
        let place = id.place() as u32;
        let piece = self.pieces[id.place()];
        let boundary = self.window.boundary().and_then(|boundary| boundary.place);
        if boundary == Some(place) {
            if !self.move_boundary() {
                self.window.end();
            }
        } else if self.is_in_window(&piece) {
            self.window.changed(piece.num_left(), 0);
        }
        self.unlink(piece.age(), place);
        self.ghost_blocks -= piece.num_ghosts();
        // A piece ends only without resident blocks.
        self.num_ghosts -= 1;
        let piece = &mut self.pieces[id.place()];
        piece.age = ENDED;
        piece.life = ((u32::from(piece.life) + 1) % LIVES) as u8;
        self.free.push(place);
    }

    /// Calls `crossed` for each piece that enters another step of age, with the age at which it
    /// does, in seconds. Returns after all have.
    pub(super) fn cross(&mut self, now: u32, mut crossed: impl FnMut(&mut OwnedPiece, f64)) {
        for age in 0..AGES - 1 {
            let end_s = start_s(age + 1);
            let end = (end_s * TICKS).ceil() as u32;
            loop {
                let place = self.ages[age].0;
                if place == NONE {
                    break;
                }
                let piece = &mut self.pieces[place as usize];
                if now.wrapping_sub(piece.released) < end {
                    break;
                }
                self.unlink(age, place);
                self.append(age + 1, place);
                crossed(&mut self.pieces[place as usize], end_s);
            }
        }
    }

    fn append(&mut self, age: usize, place: u32) {
        let last = self.ages[age].1;
        match last {
            NONE => self.ages[age].0 = place,
            last => self.pieces[last as usize].behind = place,
        }
        self.ages[age].1 = place;
        let piece = &mut self.pieces[place as usize];
        (piece.age, piece.before, piece.behind) = (age as u8, last, NONE);
        piece.worths_state = NO_STATE;
    }

    fn unlink(&mut self, age: usize, place: u32) {
        let OwnedPiece { before, behind, .. } = self.pieces[place as usize];
        match before {
            NONE => self.ages[age].0 = behind,
            before => self.pieces[before as usize].behind = behind,
        }
        match behind {
            NONE => self.ages[age].1 = before,
            behind => self.pieces[behind as usize].before = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::super::age::step;
    use super::*;

    #[test]
    fn a_piece_takes_64_bytes() {
        assert_eq!(size_of::<OwnedPiece>(), 64);
    }

    /// A piece in a plain list.
    #[derive(Clone, Copy, Debug)]
    struct Plain {
        id: PieceId,
        released: u32,
        from: u32,
        len: u32,
        resident: u32,
        age: usize,
    }

    fn check(seed: u64) {
        let mut rng = Rng::new(seed);
        let mut pieces = OwnedPieces::new(1 << 20);
        let mut plain: Vec<Plain> = Vec::new();
        let mut now = 0;
        for _ in 0..3_000 {
            let octave = rng.below(16);
            now += rng.below(1 << octave) as u32;
            let mut crossed = 0;
            pieces.cross(now, |_, _| crossed += 1);
            let mut expected = 0;
            for piece in &mut plain {
                let age = step(f64::from(now - piece.released) / TICKS);
                expected += age - piece.age;
                piece.age = age;
            }
            assert_eq!(crossed, expected, "seed {seed}");
            match rng.below(4) {
                0 => {
                    let len = 1 + rng.below(9) as u32;
                    let id = pieces.add(len, 0, Features::default(), now).expect("room");
                    plain.push(Plain { id, released: now, from: 0, len, resident: len, age: 0 });
                }
                1 if !plain.is_empty() => {
                    let at = rng.below(plain.len());
                    let piece = &mut plain[at];
                    let to = piece.from + rng.below((piece.len - piece.from) as usize + 1) as u32;
                    let resident = (to - piece.from).min(piece.resident);
                    pieces.take(piece.id, to, resident);
                    (piece.from, piece.resident) = (to, piece.resident - resident);
                }
                2 if !plain.is_empty() => {
                    let at = rng.below(plain.len());
                    if plain[at].resident > 0 {
                        let leaves_ghost = rng.below(4) > 0;
                        pieces.shrink(plain[at].id, leaves_ghost);
                        plain[at].resident -= 1;
                        plain[at].len -= u32::from(!leaves_ghost);
                    }
                }
                _ => {}
            }
            plain.retain(|piece| piece.resident > 0 || piece.from < piece.len);
            for expected in &plain {
                let piece = pieces.get(expected.id).expect("it is live");
                assert_eq!(
                    (piece.from, piece.len, piece.resident, piece.age()),
                    (expected.from, expected.len, expected.resident, expected.age),
                    "seed {seed}"
                );
            }
            let ghosts = |piece: &Plain| u64::from(piece.len - piece.from - piece.resident);
            assert_eq!(pieces.ghost_blocks, plain.iter().map(ghosts).sum());
            let without_resident = plain.iter().filter(|piece| piece.resident == 0).count();
            assert_eq!(pieces.num_ghosts, without_resident);
        }
        pieces.limit_ghosts(3, u64::MAX);
        assert!(pieces.num_ghosts <= 3);
        pieces.limit_ghosts(usize::MAX, 0);
        assert_eq!(pieces.num_ghosts, 0);
    }

    /// Requests that continue random pieces, and random evictions: LRU would keep the youngest
    /// blocks, evicted or not, and of a request those in front.
    fn check_window(seed: u64) {
        let (mut rng, mut ids, mut num) = (Rng::new(seed), Vec::<PieceId>::new(), 0);
        let capacity = 5 + rng.below(40);
        let mut pieces = OwnedPieces::new(capacity);
        for now in 0..1_000 {
            let mut taken = 0;
            if !ids.is_empty() && rng.below(4) > 0 {
                let id = ids[rng.below(ids.len())];
                if let Some(&piece) = pieces.get(id) {
                    taken = rng.below(piece.num_left() as usize + 1) as u32;
                    pieces.take(id, piece.from + taken, taken.min(piece.resident));
                }
            }
            let len = taken + 1 + rng.below(6) as u32;
            ids.push(pieces.add(len, taken, Features::default(), now).expect("room"));
            for _ in 0..rng.below(8) {
                let id = ids[rng.below(ids.len())];
                if pieces.get(id).is_some_and(|piece| piece.resident > 0) {
                    pieces.shrink(id, true);
                }
            }
            ids.retain(|id| pieces.get(*id).is_some());
            let mut left = capacity as u64;
            for id in ids.iter().rev() {
                let piece = pieces.get(*id).expect("it is live");
                let kept = left.min(piece.num_left());
                left -= kept;
                assert_eq!(u64::from(pieces.lru_end(*id) - piece.from), kept, "seed {seed}");
                num += kept;
            }
        }
        assert!(num > 0);
    }

    #[test]
    fn lru_would_keep_the_youngest_blocks() {
        (0..20).for_each(check_window);
    }

    #[test]
    fn agrees_with_a_plain_list() {
        (0..20).for_each(check);
    }
}
