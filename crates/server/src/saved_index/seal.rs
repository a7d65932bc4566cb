//! Bytes that only who has the secret can read, or change unnoticed.
//!
//! ```text
//! sealed   = bytes ⊕ BLAKE3 keyed with the secret, of the nonce, as long as it takes
//! tag      = BLAKE3 keyed with the secret, of everything before it
//! identity = BLAKE3 keyed with the secret, of nothing: says whose file it is
//! ```
//!
//! Source: BLAKE3's keyed mode and extendable output (its paper, section 2.6 and 6): a keyed hash
//! is a pseudo-random function, so each nonce gives a pad of its own. Nonces are random; two
//! files that are meant to share one may not exist.

use std::io::{self, Write};

/// Length of a tag, bytes.
pub(super) const TAG_BYTES: usize = 32;

/// Length of an identity and of a nonce, bytes.
pub(super) const NAME_BYTES: usize = 16;

/// Bytes that are sealed at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Sets these hashes apart from any others with the same secret.
const CONTEXT: &str = "headstart 2026-11 saved index";

/// A secret, ready to seal.
#[derive(Clone)]
pub struct Seal {
    key: [u8; 32],
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Seal")
    }
}

impl Seal {
    /// For an index by its model name, which holds the secret of its keys.
    #[must_use]
    pub fn new(model: &str) -> Self {
        Self {
            key: blake3::derive_key(CONTEXT, model.as_bytes()),
        }
    }

    /// Tells one secret from another, and nothing else of it.
    pub(super) fn identity(&self) -> [u8; NAME_BYTES] {
        first(self.hasher(b"identity").finalize().as_bytes())
    }

    /// The tag of a file's bytes.
    pub(super) fn tagger(&self) -> blake3::Hasher {
        self.hasher(b"tag")
    }

    /// Seals or unseals: both are the same.
    pub(super) fn pad(&self, nonce: [u8; NAME_BYTES]) -> Pad {
        let mut hasher = self.hasher(b"pad");
        hasher.update(&nonce);
        Pad(hasher.finalize_xof())
    }

    fn hasher(&self, purpose: &[u8]) -> blake3::Hasher {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&(purpose.len() as u64).to_le_bytes());
        hasher.update(purpose);
        hasher
    }
}

/// The first bytes of more.
pub(super) fn first(bytes: &[u8; 32]) -> [u8; NAME_BYTES] {
    *bytes.first_chunk().expect("16 of 32 bytes")
}

/// What bytes are sealed with, from the first on.
pub(super) struct Pad(blake3::OutputReader);

impl Pad {
    /// Seals or unseals the next bytes.
    pub(super) fn apply(&mut self, bytes: &mut [u8]) {
        let mut pad = [0; PIECE_BYTES];
        for piece in bytes.chunks_mut(PIECE_BYTES) {
            let pad = &mut pad[..piece.len()];
            self.0.fill(pad);
            piece
                .iter_mut()
                .zip(pad)
                .for_each(|(byte, pad)| *byte ^= *pad);
        }
    }
}

/// Writes a head that can be read, then a body that cannot, then the tag of both.
pub(super) struct SealingWriter<W> {
    inner: W,
    pad: Pad,
    tagger: blake3::Hasher,
    piece: Vec<u8>,
}

impl<W: Write> SealingWriter<W> {
    pub(super) fn start(
        mut inner: W,
        seal: &Seal,
        head: &[u8],
        nonce: [u8; 16],
    ) -> io::Result<Self> {
        let mut tagger = seal.tagger();
        tagger.update(head);
        inner.write_all(head)?;
        Ok(Self {
            inner,
            pad: seal.pad(nonce),
            tagger,
            piece: Vec::with_capacity(PIECE_BYTES),
        })
    }

    /// Writes the tag. Without it all that was written is worth nothing.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.seal_piece()?;
        self.inner.write_all(self.tagger.finalize().as_bytes())?;
        Ok(self.inner)
    }

    fn seal_piece(&mut self) -> io::Result<()> {
        self.pad.apply(&mut self.piece);
        self.tagger.update(&self.piece);
        self.inner.write_all(&self.piece)?;
        self.piece.clear();
        Ok(())
    }
}

impl<W: Write> Write for SealingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() == PIECE_BYTES {
            self.seal_piece()?;
        }
        let taken = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        // Pieces are sealed when they are full; what is left waits for the end.
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of it at once, by the definition.
    fn sealed(seal: &Seal, head: &[u8], body: &[u8]) -> Vec<u8> {
        let mut pad = vec![0; body.len()];
        seal.pad([7; 16]).0.fill(&mut pad);
        let body = body.iter().zip(&pad).map(|(byte, pad)| byte ^ pad);
        let mut bytes: Vec<u8> = head.iter().copied().chain(body).collect();
        let tag = seal.tagger().update(&bytes).finalize();
        bytes.extend(tag.as_bytes());
        bytes
    }

    #[test]
    fn pieces_of_any_length_are_sealed_as_one() {
        let seal = Seal::new("model 0123");
        let body: Vec<u8> = (0..3 * PIECE_BYTES + 5)
            .map(|at| (at % 251) as u8)
            .collect();
        for step in [1 << 20, PIECE_BYTES, 4097, 61] {
            let mut writer =
                SealingWriter::start(Vec::new(), &seal, b"head", [7; 16]).expect("memory");
            for piece in body.chunks(step) {
                writer.write_all(piece).expect("memory");
            }
            let written = writer.finish().expect("memory");
            assert!(written == sealed(&seal, b"head", &body), "by {step}");
            let mut opened = written[4..4 + body.len()].to_vec();
            assert!(opened != body);
            seal.pad([7; 16]).apply(&mut opened);
            assert!(opened == body, "by {step}");
        }
    }

    #[test]
    fn secrets_and_nonces_matter() {
        let (seal, other) = (Seal::new("model 0123"), Seal::new("model 0124"));
        assert_ne!(seal.identity(), other.identity());
        let zeros = |seal: &Seal, nonce| {
            let mut bytes = [0; 64];
            seal.pad(nonce).apply(&mut bytes);
            bytes
        };
        assert_ne!(zeros(&seal, [1; 16]), zeros(&other, [1; 16]));
        assert_ne!(zeros(&seal, [1; 16]), zeros(&seal, [2; 16]));
        assert_ne!(zeros(&seal, [1; 16])[..16], seal.identity());
        assert_eq!(format!("{seal:?}"), "Seal", "logs tell no secret");
    }
}
