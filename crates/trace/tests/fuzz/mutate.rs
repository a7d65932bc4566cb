//! Seeded damage: faults of files, and lines that an attacker would write.

use std::io::Write;

use headstart_core::Rng;

/// Texts that parsers stumble over.
const NASTY: [&[u8]; 16] = [
    b"4000000000",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-1",
    b"1e308",
    b"-0.0",
    b"0.1e-400",
    b"99999999999999999999999999999999999999999999",
    b"null",
    b"[0, 4000000000]",
    b"\"\\ud800\"",
    b"\xff\xfe\x00",
    b"\n",
    b"{",
    b"[[[[[[[[[[[[[[[[",
    b",,",
];

/// `seed` with up to eight injuries; `other` lends pieces.
pub(crate) fn mutate(rng: &mut Rng, seed: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=rng.below(8) {
        injure(rng, &mut bytes, other);
    }
    bytes
}

fn injure(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    let (from, to) = piece(rng, bytes.len());
    match rng.below(10) {
        0 if !bytes.is_empty() => {
            let at = rng.below(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
        }
        1 => bytes.truncate(to),
        2 => drop(bytes.drain(from..to)),
        3 => {
            let piece = bytes[from..to].to_vec();
            insert(bytes, to, &piece);
        }
        4 => {
            let (from, to) = piece(rng, other.len());
            let at = rng.below(bytes.len() + 1);
            insert(bytes, at, &other[from..to]);
        }
        5 | 6 => replace_number(rng, bytes),
        7 => insert(bytes, from, NASTY[rng.below(NASTY.len())]),
        8 => {
            let piece = bytes[from..to.min(from + 64)].to_vec();
            insert(bytes, to, &piece.repeat(rng.below(100)));
        }
        _ => {
            // A whole line, again or gone.
            let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
            if !lines.is_empty() {
                let at = rng.below(lines.len());
                let line = lines.remove(at);
                for _ in 0..rng.below(4) {
                    lines.insert(rng.below(lines.len() + 1), line);
                }
            }
            *bytes = lines.concat();
        }
    }
}

/// Two places in a text of `len` bytes, in order.
fn piece(rng: &mut Rng, len: usize) -> (usize, usize) {
    let (one, two) = (rng.below(len + 1), rng.below(len + 1));
    (one.min(two), one.max(two))
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}

/// Puts something nasty in the place of a number.
fn replace_number(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let start = rng.below(bytes.len() + 1);
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let Some(from) = bytes[start..].iter().position(is_digit) else {
        return;
    };
    let from = start + from;
    let digits = bytes[from..].iter().take_while(|byte| is_digit(byte));
    let to = from + digits.count();
    bytes.splice(from..to, NASTY[rng.below(NASTY.len())].iter().copied());
}

/// `text` as gzip or zstd, in one piece or two.
pub(crate) fn pack(rng: &mut Rng, text: &[u8]) -> Vec<u8> {
    let cut = if rng.below(2) == 0 { 0 } else { rng.below(text.len() + 1) };
    let is_gzip = rng.below(2) == 0;
    let pack = |text: &[u8]| if is_gzip { gzip(text) } else { zstd(text) };
    let (first, second) = text.split_at(cut);
    [pack(first), pack(second)].concat()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text).expect("memory takes it");
    packed.finish().expect("memory takes it")
}

fn zstd(text: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
}
