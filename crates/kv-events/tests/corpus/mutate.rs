//! Seeded damage: faults of connections, and messages that an attacker would send.

use headstart_core::Rng;

/// Beginnings of values that readers stumble over: enormous, empty, nested, of no use here, or
/// in other spellings of what they expect.
const NASTY: [&[u8]; 22] = [
    b"\xdd\xff\xff\xff\xff",
    b"\xdd\x00\x01\x00\x00",
    b"\xdf\xff\xff\xff\xff",
    b"\xdf\x80\x00\x00\x00",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x00",
    b"\xdc\xff\xff",
    b"\x90",
    b"\x80",
    b"\xc0",
    b"\xc1",
    b"\xc3",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
    b"\xcd\x00\x01",
    b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"\xca\x7f\x80\x00\x00",
    b"\xd9\x01\xff",
    b"\xa5mamba",
    b"\xc4\x00",
    b"\xd4\x01\x02",
];

/// `seed` with up to six injuries; `other` lends pieces.
pub(crate) fn mutate(rng: &mut Rng, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.below(6) {
        injure(rng, &mut bytes, other);
    }
    bytes
}

fn injure(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let (from, to) = piece(rng, bytes.len());
    let short = to.min(from + 24);
    match rng.below(12) {
        0..3 if !bytes.is_empty() => {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        3 if !bytes.is_empty() => {
            let at = rng.below(bytes.len());
            bytes[at] = rng.next_u64() as u8;
        }
        4 => bytes.truncate(to),
        5 => drop(bytes.drain(from..short)),
        6 => {
            let piece = bytes[from..short].to_vec();
            insert(bytes, from, &piece.repeat(1 + rng.below(40)));
        }
        7 => {
            let (from, to) = piece(rng, other.len());
            let at = rng.below(bytes.len() + 1);
            insert(bytes, at, &other[from..to]);
        }
        8 => insert(bytes, from, &[0x91].repeat(rng.below(500))),
        9 => insert(bytes, from, NASTY[rng.below(NASTY.len())]),
        _ => {
            // In the place of one byte, which is often a whole value.
            let nasty = NASTY[rng.below(NASTY.len())];
            let to = bytes.len().min(from + 1);
            bytes.splice(from..to, nasty.iter().copied());
        }
    }
}

/// Two places in `len` bytes, in order.
fn piece(rng: &mut Rng, len: usize) -> (usize, usize) {
    let (one, two) = (rng.below(len + 1), rng.below(len + 1));
    (one.min(two), one.max(two))
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}
