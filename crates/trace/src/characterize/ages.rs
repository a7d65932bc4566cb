//! When blocks were used last, as numbers that grow: how many blocks each age has, and how many
//! all younger ones have together.

/// Ages that there is room for at first.
const ROOM_MIN: usize = 4096;

/// Ages in order, each with its blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Ages {
    /// A Fenwick tree over `blocks`; `sums[i]` ends at age `i`.
    sums: Vec<u64>,
    blocks: Vec<u64>,
    /// Start of the tail that each age still has, in blocks of its chain.
    cuts: Vec<u64>,
    /// The next age.
    next: usize,
    total: u64,
}

impl Ages {
    /// Whether ages must be renumbered before another opens.
    pub(super) fn is_full(&self) -> bool {
        self.next == self.blocks.len()
    }

    /// The youngest age, without blocks yet.
    pub(super) fn open(&mut self) -> u32 {
        self.next += 1;
        (self.next - 1) as u32
    }

    /// Gives the youngest age its blocks.
    pub(super) fn close(&mut self, age: u32, blocks: u64) {
        let age = age as usize;
        self.blocks[age] += blocks;
        self.total += blocks;
        self.change_sums(age, |sum| sum + blocks);
    }

    /// `count` blocks of `age`, up to the place `end` of its chain, were used again.
    pub(super) fn take(&mut self, age: u32, count: u32, end: u64) {
        let age = age as usize;
        // Never more than the age has: no trace, however broken, may wrap the sums.
        let count = u64::from(count).min(self.blocks[age]);
        self.blocks[age] -= count;
        // A cut only moves forward, as the blocks before it belong to younger requests.
        self.cuts[age] = self.cuts[age].max(end);
        self.total -= count;
        self.change_sums(age, |sum| sum - count);
    }

    fn change_sums(&mut self, age: usize, change: impl Fn(u64) -> u64) {
        let mut place = age;
        while let Some(sum) = self.sums.get_mut(place) {
            *sum = change(*sum);
            // In a Fenwick tree from index 0, the next sum that covers `age` sets its lowest zero
            // bit.
            place |= place + 1;
        }
    }

    /// Blocks of all younger ages.
    pub(super) fn younger(&self, age: u32) -> u64 {
        let mut end = age as usize + 1;
        let mut sum = 0;
        while end > 0 {
            sum += self.sums[end - 1];
            // Clearing the lowest set bit leads to the sum that ends just before this one's range.
            end &= end - 1;
        }
        self.total - sum
    }

    /// Returns the start of the tail that `age` still has, in blocks of its chain.
    pub(super) fn cut(&self, age: u32) -> u64 {
        self.cuts[age as usize]
    }

    /// Renumbers the ages that `pieces` (age and number of blocks) have, in their order, with room
    /// for four times as many; returns the new number of each old one.
    pub(super) fn renumber(&mut self, pieces: impl Iterator<Item = (u32, u32)>) -> Vec<u32> {
        // Not taken from `self.blocks`: pieces that were sampled out or forgotten left their counts
        // there.
        let mut blocks = vec![0; self.blocks.len()];
        for (age, count) in pieces {
            blocks[age as usize] += u64::from(count);
        }
        let is_live = blocks.iter().map(|&blocks| blocks > 0);
        let live = is_live.clone().filter(|&live| live).count();
        // Three new ages per live one come before the next renumbering, which pays for this pass.
        let room = (4 * live).max(ROOM_MIN);
        let old = std::mem::replace(
            self,
            Self {
                sums: vec![0; room],
                blocks: vec![0; room],
                cuts: vec![0; room],
                next: live,
                total: 0,
            },
        );
        // Ages without blocks keep 0; no piece refers to them.
        let mut numbers = vec![0; blocks.len()];
        let alive = (0..blocks.len()).filter(|&age| blocks[age] > 0);
        for (new, age) in alive.enumerate() {
            numbers[age] = new as u32;
            self.cuts[new] = old.cuts[age];
            self.close(new as u32, blocks[age]);
        }
        numbers
    }
}
