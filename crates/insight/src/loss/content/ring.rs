//! The latest texts, a mark for each token.

/// Marks, written around and around. Places count all that were ever written.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// As many as a power of two.
    marks: Vec<u16>,
    written: u64,
}

impl Ring {
    /// # Panics
    /// Unless `capacity` is a power of two.
    pub(super) fn new(capacity: usize) -> Self {
        assert!(capacity.is_power_of_two(), "places are masked");
        Self { marks: vec![0; capacity], written: 0 }
    }

    pub(super) fn capacity(&self) -> usize {
        self.marks.len()
    }

    /// Marks ever written, and the place of the next one.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// The place whose lower half this is, if it is not overwritten. After 2^32 tokens more it
    /// may be another one: then marks do not agree.
    pub(super) fn place(&self, lower: u32) -> Option<u64> {
        // Only the lower half of a place is stored; its distance from `written` restores the upper
        // half.
        let age = u64::from((self.written as u32).wrapping_sub(lower));
        // A distance beyond the capacity means that the mark was overwritten since.
        let is_there = age > 0 && age <= self.written.min(self.marks.len() as u64);
        is_there.then(|| self.written - age)
    }

    /// Whether the place is in the half that is overwritten next.
    pub(super) fn is_old(&self, place: u64) -> bool {
        self.written - place > self.marks.len() as u64 / 2
    }

    /// Counts the leading `marks` that equal those from `place` on.
    pub(super) fn agree_from(&self, place: u64, marks: &[u16]) -> usize {
        // At most up to the newest mark: the next places still hold the oldest ones.
        let room = (self.written - place) as usize;
        let (mut at, marks) = (place, &marks[..marks.len().min(room)]);
        let is_there = |mark: &&u16| {
            at += 1;
            self.mark(at - 1) == **mark
        };
        marks.iter().take_while(is_there).count()
    }

    /// Counts the trailing `marks` that equal those right before `place`.
    pub(super) fn agree_before(&self, place: u64, marks: &[u16]) -> usize {
        // Before the ring is full the oldest mark is the first one.
        let oldest = self.written.saturating_sub(self.marks.len() as u64);
        let room = (place - oldest) as usize;
        let mut at = place;
        let is_there = |mark: &&u16| {
            // `take(room)` ends the iteration at the oldest mark, so the subtraction never wraps.
            at = at.wrapping_sub(1);
            self.mark(at) == **mark
        };
        marks.iter().rev().take(room).take_while(is_there).count()
    }

    pub(super) fn write(&mut self, marks: &[u16]) {
        let capacity = self.marks.len();
        for &mark in marks {
            self.marks[self.written as usize & (capacity - 1)] = mark;
            self.written += 1;
        }
    }

    fn mark(&self, place: u64) -> u16 {
        self.marks[place as usize & (self.marks.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_core::Rng;

    /// Against all that was ever written.
    #[test]
    fn what_agrees_is_what_agrees_in_the_latest_texts() {
        let (mut rng, mut ring, mut all) = (Rng::new(6), Ring::new(64), Vec::new());
        for _ in 0..400 {
            let len = 1 + rng.below(50);
            let marks: Vec<u16> = (0..len).map(|_| rng.below(2) as u16).collect();
            ring.write(&marks);
            all.extend(marks);
            let oldest = all.len().saturating_sub(64);
            let wanted: Vec<u16> = (0..20).map(|_| rng.below(2) as u16).collect();
            for lower in 0..all.len() {
                let place = ring.place(lower as u32);
                assert_eq!(place, (lower >= oldest).then_some(lower as u64));
                let Some(place) = place else { continue };
                let behind = all[lower..].iter().zip(&wanted);
                let behind = behind.take_while(|(one, other)| one == other).count();
                assert_eq!(ring.agree_from(place, &wanted), behind);
                let before = all[oldest..lower].iter().rev().zip(wanted.iter().rev());
                let before = before.take_while(|(one, other)| one == other).count();
                assert_eq!(ring.agree_before(place, &wanted), before);
                assert_eq!(ring.is_old(place), all.len() - lower > 32);
            }
        }
    }
}
