//! Bytes that only who has the secret can read, or change unnoticed.
//!
//! XChaCha20-Poly1305, under a key that BLAKE3 derives from the secret. Its nonces have 24 bytes,
//! so that drawn ones never meet. The file's head is not sealed, but cannot be changed either.

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, Tag, XChaCha20Poly1305, XNonce};

/// Length of a tag, bytes.
pub(super) const TAG_BYTES: usize = 16;

/// Length of an identity, bytes.
pub(super) const IDENTITY_BYTES: usize = 16;

/// Length of a nonce, bytes.
pub(super) const NONCE_BYTES: usize = 24;

/// Set the hashes of a secret apart from each other, and from all others.
const KEY_CONTEXT: &str = "headstart 2026-11 saved index: key";
const IDENTITY_CONTEXT: &str = "headstart 2026-11 saved index: identity";

/// A secret, ready to seal.
#[derive(Clone)]
pub struct Seal {
    cipher: XChaCha20Poly1305,
    /// Tells one secret from another, and nothing else of it.
    pub(super) identity: [u8; IDENTITY_BYTES],
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
        let key = blake3::derive_key(KEY_CONTEXT, model.as_bytes());
        // The identity lies in the file in clear, so it must not tell anything of the key.
        let identity = blake3::derive_key(IDENTITY_CONTEXT, model.as_bytes());
        Self { cipher: XChaCha20Poly1305::new(&key.into()), identity: first(&identity) }
    }

    /// Seals a body in place. `None` where it is longer than any cipher allows, 256 GiB.
    pub(super) fn close(
        &self,
        nonce: [u8; NONCE_BYTES],
        head: &[u8],
        body: &mut [u8],
    ) -> Option<[u8; TAG_BYTES]> {
        let nonce = XNonce::from(nonce);
        // The head is authenticated but not encrypted: it says which secret opens the body.
        let tag = self.cipher.encrypt_inout_detached(&nonce, head, body.into());
        Some(tag.ok()?.into())
    }

    /// Opens a body in place. Returns whether head and body are what was sealed.
    pub(super) fn open(
        &self,
        nonce: [u8; NONCE_BYTES],
        head: &[u8],
        body: &mut [u8],
        tag: [u8; TAG_BYTES],
    ) -> bool {
        let (nonce, tag) = (XNonce::from(nonce), Tag::from(tag));
        let opened = self.cipher.decrypt_inout_detached(&nonce, head, body.into(), &tag);
        opened.is_ok()
    }
}

/// The first bytes of a hash or of a drawn key.
pub(super) fn first<const N: usize>(bytes: &[u8; 32]) -> [u8; N] {
    *bytes.first_chunk().expect("no more than 32 are asked for")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_secret_opens_what_it_closed() {
        let (seal, other) = (Seal::new("model 0123"), Seal::new("model 0124"));
        assert_ne!(seal.identity, other.identity);
        let text = *b"what the replicas hold";
        let mut body = text;
        let tag = seal.close([7; 24], b"head", &mut body).expect("is short");
        assert_ne!(body, text);
        for (seal, nonce, head) in
            [(&other, [7; 24], b"head"), (&seal, [8; 24], b"head"), (&seal, [7; 24], b"hood")]
        {
            assert!(!seal.open(nonce, head, &mut body.clone(), tag));
        }
        assert!(seal.open([7; 24], b"head", &mut body, tag));
        assert_eq!(body, text);
        assert_eq!(format!("{seal:?}"), "Seal", "logs tell no secret");
    }
}
