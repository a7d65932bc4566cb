//! The seeded generator that decisions and tests draw from.
//!
//! Our own thirty lines rather than a crate's, because "same seed, same bytes out, on any
//! machine" must survive a dependency's update.
//! Source: Blackman and Vigna, xoshiro256++ 1.0, seeded by SplitMix64.

/// xoshiro256++. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator whose whole sequence is fixed by `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // SplitMix64 spreads similar seeds, and never gives the all-zero state, which xoshiro
        // cannot leave.
        let mut mix = seed;
        let state = std::array::from_fn(|_| split_mix(&mut mix));
        Self { state }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `[0, 1)`, 53 bits.
    #[inline]
    pub fn next_f64(&mut self) -> f64 {
        // An `f64` has 53 bits of precision: all results are exact and below 1.
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `0..bound`.
    ///
    /// # Panics
    /// When `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "an empty range has no element");
        // Multiply and shift (Lemire): without a division. The bias is below `bound` / 2^64.
        let wide = u128::from(self.next_u64()) * bound as u128;
        (wide >> 64) as usize
    }

    /// Shuffles in place (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        // From the end: each place draws from all that are not placed yet.
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First value published for SplitMix64 with seed 1234567.
    #[test]
    fn seeding_follows_the_published_sequence() {
        let mut state = 1_234_567;
        assert_eq!(split_mix(&mut state), 6_457_827_717_110_365_317);
        assert_eq!(split_mix(&mut state), 3_203_168_211_198_807_973);
    }

    #[test]
    fn draws_stay_in_range_and_cover_it() {
        let mut rng = Rng::new(7);
        let mut seen = [0usize; 10];
        for _ in 0..10_000 {
            seen[rng.below(10)] += 1;
            let unit = rng.next_f64();
            assert!((0.0..1.0).contains(&unit));
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
    }
}
