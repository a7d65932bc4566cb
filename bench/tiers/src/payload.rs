//! Contents of records: random bytes from a seed, no two pages of them equal.
//!
//! A record is a stretch of one pool of random bytes with a number of its own at the start of each
//! page. Making one costs a copy, as a record that comes from an engine does, and it can be
//! compared with what it should be without keeping it.

use headstart_core::Rng;

/// Bytes between two numbers; every record and part is a multiple of it.
pub(crate) const PAGE: usize = 4096;

/// Bytes that records start in: more than a processor's caches hold.
const POOL_BYTES: usize = 64 << 20;

/// Bytes that a record's start is a multiple of.
const START_ALIGN: usize = 64;

/// The contents of a data set.
#[derive(Debug)]
pub(crate) struct Payload {
    pool: Vec<u8>,
    record_bytes: usize,
    seed: u64,
}

impl Payload {
    /// Contents of records of `record_bytes` bytes.
    pub(crate) fn new(seed: u64, record_bytes: usize) -> Self {
        let mut rng = Rng::new(seed);
        let words = (POOL_BYTES + record_bytes) / 8;
        let pool = (0..words).flat_map(|_| rng.next_u64().to_le_bytes());
        Self {
            pool: pool.collect(),
            record_bytes,
            seed,
        }
    }

    /// Adds record number `record` to `bytes`.
    pub(crate) fn append(&self, record: u32, bytes: &mut Vec<u8>) {
        let at = bytes.len();
        bytes.extend_from_slice(self.stretch(record, 0, self.record_bytes));
        self.stamp(record, 0, &mut bytes[at..]);
    }

    /// Writes the bytes of `record` from its byte `at` on.
    pub(crate) fn fill(&self, record: u32, at: usize, into: &mut [u8]) {
        into.copy_from_slice(self.stretch(record, at, into.len()));
        self.stamp(record, at, into);
    }

    /// Whether `bytes` are those of `record` from its byte `at` on, to the last one.
    pub(crate) fn is(&self, record: u32, at: usize, bytes: &[u8]) -> bool {
        let pages = bytes.chunks(PAGE).enumerate();
        pages.into_iter().all(|(page, bytes)| {
            let at = at + page * PAGE;
            let expected = self.stretch(record, at, bytes.len());
            bytes[..8] == self.number(record, at) && bytes[8..] == expected[8..]
        })
    }

    /// Whether the first page of `bytes` has the number that `record` has at its byte `at`. Cheap
    /// enough for what is timed.
    pub(crate) fn begins(&self, record: u32, at: usize, bytes: &[u8]) -> bool {
        bytes.get(..8) == Some(&self.number(record, at))
    }

    fn stretch(&self, record: u32, at: usize, len: usize) -> &[u8] {
        let start = mix(self.seed ^ u64::from(record)) as usize % (POOL_BYTES / START_ALIGN);
        &self.pool[start * START_ALIGN + at..][..len]
    }

    fn stamp(&self, record: u32, at: usize, bytes: &mut [u8]) {
        for (page, bytes) in bytes.chunks_mut(PAGE).enumerate() {
            bytes[..8].copy_from_slice(&self.number(record, at + page * PAGE));
        }
    }

    fn number(&self, record: u32, at: usize) -> [u8; 8] {
        let place = (u64::from(record) << 32) + at as u64;
        mix(self.seed.wrapping_add(place)).to_le_bytes()
    }
}

/// A number that looks random, always the same for one `number`.
pub(crate) fn mix(number: u64) -> u64 {
    Rng::new(number).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_told_from_anything_else() {
        let payload = Payload::new(3, 4 * PAGE);
        let mut whole = Vec::new();
        payload.append(7, &mut whole);
        let mut parts = vec![0; 4 * PAGE];
        let (first, second) = parts.split_at_mut(PAGE);
        payload.fill(7, 0, first);
        payload.fill(7, PAGE, second);
        assert_eq!(whole, parts);
        assert!(payload.is(7, 0, &whole) && payload.is(7, PAGE, &whole[PAGE..]));
        assert!(payload.begins(7, PAGE, &whole[PAGE..]));
        assert!(!payload.is(8, 0, &whole) && !payload.begins(8, 0, &whole));
        for at in [0, 9, PAGE, 4 * PAGE - 1] {
            let mut wrong = whole.clone();
            wrong[at] ^= 1;
            assert!(!payload.is(7, 0, &wrong), "byte {at}");
        }
    }
}
