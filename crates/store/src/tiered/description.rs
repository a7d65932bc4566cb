//! Description in the first part of a pack: the units and the order of the tokens in the other
//! parts.
//!
//! ```text
//! 0       8         12     16            20          24           28      32
//! ├ magic ┼ version ┼ part ┼ unit tokens ┼ num units ┼ num tokens ┼ gener. ┼ units … ┼ order … ┤
//!                                                                           16 each   4 each
//! ```
//!
//! The record's checksums prove that these are the bytes written. Reading also checks that they
//! make sense; otherwise a reader of the pack would look for tokens that no unit has.

use headstart_core::BlockHash;
use headstart_core::transfer::Pack;

use crate::wire::{FieldReader, FieldWriter};

const MAGIC: [u8; 8] = *b"HDST-PCK";

const VERSION: u32 = 2;

/// Bytes before the units.
const START: usize = 32;

/// Most units of a pack; with the next one, what a description can make us allocate.
const MOST_UNITS: usize = 1 << 16;

/// Most tokens of a pack.
const MOST_TOKENS: usize = 1 << 20;

/// Longest description, bytes.
pub(super) const MOST_BYTES: usize = bytes(MOST_UNITS, MOST_TOKENS);

/// Bytes of the description of a pack of `num_units` units and `num_tokens` tokens.
pub(super) const fn bytes(num_units: usize, num_tokens: usize) -> usize {
    START + num_units * 16 + num_tokens * 4
}

/// The description of a pack.
pub(super) fn write(pack: &Pack, unit_tokens: u32) -> Vec<u8> {
    let mut bytes = vec![0; bytes(pack.units.len(), pack.order.len())];
    let mut out = FieldWriter::new(&mut bytes);
    out.bytes(&MAGIC);
    out.u32(VERSION);
    out.u32(u32::from(pack.part));
    out.u32(unit_tokens);
    out.u32(pack.units.len() as u32);
    out.u32(pack.order.len() as u32);
    out.u32(pack.generation);
    pack.units.iter().for_each(|unit| out.bytes(&unit.0));
    pack.order.iter().for_each(|&token| out.u32(token));
    bytes
}

/// Parses the description of the pack called `name`, if its units have `unit_tokens` tokens and it
/// makes sense.
pub(super) fn read(name: BlockHash, bytes: &[u8], unit_tokens: u32) -> Option<Pack> {
    let mut from = FieldReader::new(bytes);
    let is_ours = from.array()? == MAGIC && from.u32()? == VERSION;
    let part = u16::try_from(from.u32()?).ok()?;
    let has_our_units = from.u32()? == unit_tokens;
    let (num_units, num_tokens) = (from.u32()? as usize, from.u32()? as usize);
    let generation = from.u32()?;
    let is_bounded = num_units <= MOST_UNITS && num_tokens <= MOST_TOKENS;
    let is_whole = is_bounded && bytes.len() == self::bytes(num_units, num_tokens);
    if !(is_ours && has_our_units && is_whole) {
        return None;
    }
    let units = (0..num_units).map(|_| from.array().map(BlockHash));
    let units = units.collect::<Option<Vec<_>>>()?;
    let order = (0..num_tokens).map(|_| from.u32());
    let order = order.collect::<Option<Vec<_>>>()?;
    is_sensible(&units, &order, unit_tokens).then_some(Pack {
        name,
        units,
        part,
        order,
        generation,
    })
}

/// Whether there are units and tokens, each token is one of the units', and none is there twice.
pub(super) fn is_sensible(units: &[BlockHash], order: &[u32], unit_tokens: u32) -> bool {
    if units.is_empty() || order.is_empty() {
        return false;
    }
    if units.len() > MOST_UNITS || order.len() > MOST_TOKENS {
        return false;
    }
    // One flag for each token of the units; the limit above bounds the memory.
    let mut is_seen = vec![false; units.len() * unit_tokens as usize];
    order.iter().all(|&token| {
        let seen = is_seen.get_mut(token as usize);
        seen.is_some_and(|seen| !std::mem::replace(seen, true))
    })
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;

    const UNIT_TOKENS: u32 = 16;

    fn pack(rng: &mut Rng) -> Pack {
        let num_units = 1 + rng.below(5);
        let mut order: Vec<u32> = (0..num_units as u32 * UNIT_TOKENS).collect();
        rng.shuffle(&mut order);
        order.truncate(1 + rng.below(order.len()));
        Pack {
            name: BlockHash::from_u64(rng.next_u64()),
            units: (0..num_units).map(|_| BlockHash::from_u64(rng.next_u64())).collect(),
            part: rng.below(99) as u16,
            order,
            generation: rng.below(9) as u32,
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let mut rng = Rng::new(1);
        for _ in 0..500 {
            let pack = pack(&mut rng);
            let bytes = write(&pack, UNIT_TOKENS);
            let read = super::read(pack.name, &bytes, UNIT_TOKENS);
            assert_eq!(super::read(pack.name, &bytes, UNIT_TOKENS * 2), None, "of other units");
            assert_eq!(read, Some(pack));
        }
    }

    /// Whatever the bytes are: no panic, no large allocation, and no token that no unit has.
    #[test]
    fn what_makes_no_sense_is_nothing() {
        let mut rng = Rng::new(2);
        for _ in 0..5_000 {
            let pack = pack(&mut rng);
            let mut bytes = write(&pack, UNIT_TOKENS);
            for _ in 0..=rng.below(3) {
                let at = match rng.below(2) {
                    0 => rng.below(START),
                    _ => rng.below(bytes.len()),
                };
                bytes[at] = rng.next_u64() as u8;
            }
            bytes.truncate(bytes.len() - rng.below(3));
            if let Some(read) = super::read(pack.name, &bytes, UNIT_TOKENS) {
                let mut sorted = read.order.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert_eq!(sorted.len(), read.order.len(), "no token twice");
                assert!(sorted.last() < Some(&(read.units.len() as u32 * UNIT_TOKENS)));
            }
        }
        for order in [vec![], vec![0, 0], vec![16], vec![u32::MAX]] {
            assert!(!is_sensible(&[BlockHash::from_u64(1)], &order, UNIT_TOKENS));
        }
        assert!(!is_sensible(&[], &[0], UNIT_TOKENS));
    }
}
