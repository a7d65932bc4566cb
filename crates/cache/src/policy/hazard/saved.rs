//! The learned counts as bytes that outlive the process. There are no names of blocks in them.
//!
//! ```text
//! magic with version  8 bytes
//! layout              u64   fingerprint of steps, states and stages: other tables are foreign
//! length              u32   counts that follow
//! counts                    for each that is not 0: its distance from the one before as LEB128,
//!                           returns and exposure as bfloat16
//! checksum            u64   FNV-1a of all before
//! ```
//!
//! All numbers are little-endian. A bfloat16 is within 0.4 % of the count, and far closer than the
//! count is to the rate that it estimates. Tables of a long run take some 40 KB.

use headstart_core::fnv1a;

use super::age::AGES;
use super::features::{STAGES, VALUES};
use super::rates::{AGES_PER_FACTOR, KINDS, STATES};

const MAGIC: [u8; 8] = *b"hazard\0\x01";

/// Bytes in front of the counts, and behind them.
const HEADER: usize = 20;
const CHECKSUM: usize = 8;

/// Why saved tables cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignTables {
    /// The policy saves nothing.
    LearnsNothing,
    /// They are no tables of `hazard`, or damaged.
    Damaged,
    /// Another version has saved them.
    OtherVersion,
}

impl std::fmt::Display for ForeignTables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LearnsNothing => "this policy saves no tables",
            Self::Damaged => "the tables are damaged",
            Self::OtherVersion => "another version of the policy has saved the tables",
        })
    }
}

impl std::error::Error for ForeignTables {}

/// Writes counts of (returns, exposure), which have one fixed order.
pub(super) fn write(counts: impl Iterator<Item = (f32, f32)>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(layout().to_le_bytes());
    bytes.extend(0_u32.to_le_bytes());
    let (mut length, mut gap) = (0_u32, 0_u32);
    for (returns, exposure) in counts {
        let [returns, exposure] = [returns, exposure].map(to_bfloat16);
        if returns == 0 && exposure == 0 {
            gap += 1;
            continue;
        }
        write_leb128(gap, &mut bytes);
        bytes.extend(returns.to_le_bytes());
        bytes.extend(exposure.to_le_bytes());
        length += 1;
        gap = 0;
    }
    bytes[HEADER - 4..HEADER].copy_from_slice(&length.to_le_bytes());
    let checksum = fnv1a(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// Reads the counts that [`write`] wrote: the place of each that is not 0, below `places`.
pub(super) fn read(bytes: &[u8], places: usize) -> Result<Vec<(usize, [f32; 2])>, ForeignTables> {
    let damaged = ForeignTables::Damaged;
    if bytes.len() < HEADER + CHECKSUM || bytes[..7] != MAGIC[..7] {
        return Err(damaged);
    }
    let (body, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
    if checksum != fnv1a(body).to_le_bytes() {
        return Err(damaged);
    }
    if body[..8] != MAGIC || body[8..16] != layout().to_le_bytes() {
        return Err(ForeignTables::OtherVersion);
    }
    let length = u32::from_le_bytes(body[HEADER - 4..HEADER].try_into().map_err(|_| damaged)?);
    let mut rest = &body[HEADER..];
    let mut counts = Vec::new();
    let mut next = 0_usize;
    for _ in 0..length {
        let at = next + read_leb128(&mut rest).ok_or(damaged)? as usize;
        let (pair, behind) = rest.split_first_chunk::<4>().ok_or(damaged)?;
        rest = behind;
        let [a, b, c, d] = *pair;
        let count = [[a, b], [c, d]].map(|half| from_bfloat16(u16::from_le_bytes(half)));
        if at >= places || count.iter().any(|count| !count.is_finite() || *count < 0.0) {
            return Err(damaged);
        }
        counts.push((at, count));
        next = at + 1;
    }
    if rest.is_empty() { Ok(counts) } else { Err(damaged) }
}

/// The fingerprint of what the places of counts mean.
fn layout() -> u64 {
    let sizes = [AGES, STATES, STAGES, KINDS].into_iter().chain(VALUES).chain(AGES_PER_FACTOR);
    let bytes: Vec<u8> = sizes.flat_map(|size| (size as u32).to_le_bytes()).collect();
    fnv1a(&bytes)
}

/// The upper half of the bits, rounded to nearest.
fn to_bfloat16(value: f32) -> u16 {
    ((value.to_bits() + 0x8000) >> 16) as u16
}

fn from_bfloat16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

fn write_leb128(mut value: u32, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn read_leb128(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0_u32;
    for shift in [0, 7, 14, 21, 28] {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;

    fn counts(seed: u64) -> Vec<(f32, f32)> {
        let mut random = Rng::new(seed);
        let mut count = || if random.below(10) == 0 { random.below(1_000_000) as f32 } else { 0.0 };
        (0..5_000).map(|_| (count() / 7.0, count() * 3.0)).collect()
    }

    #[test]
    fn what_was_written_is_read() {
        for seed in 0..20 {
            let counts = counts(seed);
            let bytes = write(counts.iter().copied());
            let read = read(&bytes, counts.len()).expect("whole");
            let mut found = vec![[0.0; 2]; counts.len()];
            read.into_iter().for_each(|(at, count)| found[at] = count);
            for (&(returns, exposure), found) in counts.iter().zip(found) {
                assert!((found[0] - returns).abs() <= returns / 256.0, "{found:?}");
                assert!((found[1] - exposure).abs() <= exposure / 256.0, "{found:?}");
            }
        }
    }

    #[test]
    fn damaged_and_foreign_tables_are_refused() {
        let bytes = write(counts(1).into_iter());
        let places = 5_000;
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&flipped, places).is_err(), "bit {bit}");
        }
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end], places).is_err(), "cut at {end}");
        }
        // The checksum is right, but places are other ones.
        let sealed = |mut bytes: Vec<u8>| {
            bytes.truncate(bytes.len() - CHECKSUM);
            let checksum = fnv1a(&bytes);
            bytes.extend(checksum.to_le_bytes());
            bytes
        };
        let mut other = bytes.clone();
        other[7] = 2;
        assert_eq!(read(&sealed(other), places), Err(ForeignTables::OtherVersion));
        let mut other = bytes.clone();
        other[8] ^= 1;
        assert_eq!(read(&sealed(other), places), Err(ForeignTables::OtherVersion));
        let mut random = Rng::new(7);
        for _ in 0..2_000 {
            let mut other = bytes.clone();
            let at = HEADER - 4 + random.below(bytes.len() - HEADER);
            other[at] = random.below(256) as u8;
            // Any answer but a panic, and no place out of range.
            if let Ok(counts) = read(&sealed(other), places) {
                assert!(counts.iter().all(|(at, _)| *at < places));
            }
        }
        assert_eq!(read(&bytes, 10), Err(ForeignTables::Damaged));
    }
}
