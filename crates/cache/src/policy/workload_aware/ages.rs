//! Ages and reuse times in bins that widen with age: four an octave, from a millisecond to
//! about a fortnight.

use headstart_core::Nanos;

/// Bins in all.
pub(super) const BINS: usize = 4 * (LAST_OCTAVE - FIRST_OCTAVE) as usize;

/// 2^20 ns: about a millisecond; what is shorter is in the first bin.
const FIRST_OCTAVE: u32 = 20;
/// 2^50 ns: about thirteen days; what is longer is in the last bin.
const LAST_OCTAVE: u32 = 50;

/// The bin of the time that has passed from `earlier` to `now`.
#[inline]
pub(super) fn bin(now: Nanos, earlier: Nanos) -> usize {
    // A clock that steps back gives an age of 0, and so the first bin.
    let age = now.0.saturating_sub(earlier.0).max(1 << FIRST_OCTAVE);
    let octave = age.ilog2();
    // The two bits below the leading one.
    let quarter = (age >> (octave - 2)) & 3;
    ((4 * (octave - FIRST_OCTAVE)) as usize + quarter as usize).min(BINS - 1)
}

/// Returns the start of a bin, seconds; the first one starts at 0.
pub(super) fn start_s(bin: usize) -> f64 {
    if bin == 0 {
        return 0.0;
    }
    let (octave, quarter) = (bin as u32 / 4 + FIRST_OCTAVE, bin as u64 % 4);
    ((4 + quarter) << (octave - 2)) as f64 * 1e-9
}

/// The middle of a bin, seconds.
pub(super) fn middle_s(bin: usize) -> f64 {
    (start_s(bin) + start_s(bin + 1)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_within_its_bin() {
        let mut age = 1 << FIRST_OCTAVE;
        while age < 1 << (LAST_OCTAVE - 1) {
            let bin = bin(Nanos(age + 7), Nanos(7));
            let seconds = age as f64 * 1e-9;
            assert!(start_s(bin) <= seconds && seconds < start_s(bin + 1), "{age}");
            age += age / 7;
        }
        assert_eq!(bin(Nanos(0), Nanos(5)), 0);
        assert_eq!(bin(Nanos(u64::MAX), Nanos(0)), BINS - 1);
    }
}
