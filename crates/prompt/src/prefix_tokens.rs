//! Text to tokens with what earlier prompts already cost: text prefix → token prefix.
//!
//! The fifth turn of a conversation is the fourth with an answer and a question behind it. Cut
//! where the tokenizer cannot join what is left of the cut with what is right of it, the long
//! beginning is a row of segments whose tokens are known, and only the end is tokenized:
//!
//! ```text
//! turn 4   | segment 1 | segment 2 | segment 3 | rest |
//! turn 5   | segment 1 | segment 2 | segment 3 | segment 4 | segment 5 | rest |
//!            known       known       known       tokenized, then kept    tokenized
//! ```
//!
//! A segment ends at the first boundary that leaves it at least [`SEGMENT_BYTES`] long. Boundaries
//! are found from the text before them and a few bytes behind, so a longer prompt is cut at the
//! same places. A segment's key is a keyed hash of its text and the key of the segment before it:
//! it stands for the whole text up to its end and for the way that was cut, so what is shared is
//! held once, and who does not have the text before a segment finds nothing. An entry holds that
//! key and token ids, never text.
//!
//! Invariant: [`PrefixTokens::encode`] returns what [`Tokenizer::encode`] returns for the whole
//! text. Three things stand behind it: the argument in `boundaries`, a self-test with this very
//! tokenizer when the cache is made, which turns cutting off where it fails, and the property
//! test. It does not know what the tokens are for: no blocks, no requests, no clock.
//!
//! Unlike the segment cache of `fastokens`, which keeps the text of whole messages to compare it,
//! this one keeps no text, cuts inside of messages, and serves `tokenizers` as well.

mod boundaries;
mod gaps;
mod patterns;
mod segments;
mod separators;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headstart_core::TokenId;

use crate::{PromptError, SpecialTokensIn, Tokenizer};

pub use boundaries::BoundaryKind;
use boundaries::{Around, Boundaries};
use segments::{SegmentKey, Segments};

/// A capacity that suits a gateway: tokens take about as many bytes as their text, so this is
/// some 150 conversations of 100,000 tokens, or thousands of usual ones.
pub const CAPACITY_BYTES: usize = 64 << 20;

/// Least bytes of text in a segment. Each segment costs a hash and a look-up, and what is behind
/// the last boundary is tokenized each time. `fastokens` would as soon have twice as many (some
/// 0.1 ms of a prompt of 400 KB), `tokenizers`, ten times slower and more, rather fewer.
pub const SEGMENT_BYTES: usize = 4096;

/// A tokenizer that remembers the beginnings of texts. For any number of threads; none waits
/// while another tokenizes.
pub struct PrefixTokens {
    tokenizer: Arc<Tokenizer>,
    boundaries: Boundaries,
    /// `None` where the tokenizer does more than put tokens around a text.
    around: Option<Around>,
    segment_bytes: usize,
    segment_key: [u8; 32],
    salt_key: [u8; 32],
    segments: Mutex<Segments>,
    hit_bytes: AtomicU64,
    miss_bytes: AtomicU64,
}

/// Counters and sizes of a [`PrefixTokens`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixTokensStats {
    /// Bytes of text whose tokens were known.
    pub hit_bytes: u64,
    /// Bytes of text that were tokenized.
    pub miss_bytes: u64,
    /// Bytes held now, never more than the capacity.
    pub held_bytes: usize,
    /// Segments held now.
    pub num_segments: usize,
}

/// A text cut up.
struct SegmentPlan {
    /// Each up to a boundary, with its key.
    segments: Vec<(Range<usize>, SegmentKey)>,
    /// Byte range behind the last boundary.
    rest: Range<usize>,
}

impl PrefixTokens {
    /// A cache before `tokenizer`, at most `capacity_bytes` large ([`CAPACITY_BYTES`]). `key` is
    /// drawn at random for each process, so that no client can compute the names of others' texts.
    ///
    /// Runs the self-test: some hundred short texts, a few milliseconds to some tens.
    #[must_use]
    pub fn new(tokenizer: Arc<Tokenizer>, capacity_bytes: usize, key: [u8; 32]) -> Self {
        let (boundaries, around) = boundaries::tested(&tokenizer);
        Self {
            tokenizer,
            boundaries,
            around,
            segment_bytes: SEGMENT_BYTES,
            segment_key: blake3::derive_key("headstart prefix tokens: segment", &key),
            salt_key: blake3::derive_key("headstart prefix tokens: salt", &key),
            segments: Mutex::new(Segments::new(capacity_bytes)),
            hit_bytes: AtomicU64::new(0),
            miss_bytes: AtomicU64::new(0),
        }
    }

    /// The same with another least length of segments; for tests, which cut everywhere, and for
    /// measurements.
    ///
    /// # Panics
    /// When `segment_bytes` is 0.
    #[must_use]
    pub fn with_segment_bytes(mut self, segment_bytes: usize) -> Self {
        assert!(segment_bytes > 0, "a segment holds at least one byte");
        self.segment_bytes = segment_bytes;
        self
    }

    /// The tokens of `text`: those of [`Tokenizer::encode`], faster where its beginning was seen.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode(
        &self,
        text: &str,
        special: SpecialTokensIn,
    ) -> Result<Vec<TokenId>, PromptError> {
        self.encode_salted(text, special, None)
    }

    /// The same, sharing with calls of the same `salt` only. How long a call takes tells whether
    /// a text was seen before; tenants that must not learn that of each other have salts.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_salted(
        &self,
        text: &str,
        special: SpecialTokensIn,
        salt: Option<&str>,
    ) -> Result<Vec<TokenId>, PromptError> {
        let plan = self.plan(text, salt);
        let around = match special {
            SpecialTokensIn::ParseOnly => Some(&Around::NOTHING),
            SpecialTokensIn::AddBosEos => self.around.as_ref(),
        };
        match around {
            Some(around) if !plan.segments.is_empty() => self.encode_plan(text, &plan, around),
            // No boundary, or tokens around that depend on the text: it is encoded in one piece.
            _ => {
                self.count(0, text.len());
                self.tokenizer.encode(text, special)
            }
        }
    }

    /// Returns the kind of boundary at which this cache cuts, which depends on the tokenizer.
    #[must_use]
    pub fn boundaries(&self) -> BoundaryKind {
        self.boundaries.kind()
    }

    /// The tokenizer behind the cache.
    #[must_use]
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Counts since the start, and what is held now. Threads at work may be counted in part.
    #[must_use]
    pub fn stats(&self) -> PrefixTokensStats {
        let segments = self.lock();
        PrefixTokensStats {
            hit_bytes: self.hit_bytes.load(Ordering::Relaxed),
            miss_bytes: self.miss_bytes.load(Ordering::Relaxed),
            held_bytes: segments.held_bytes(),
            num_segments: segments.len(),
        }
    }

    /// Recounts what is held.
    ///
    /// # Panics
    /// When the counts are wrong; a defect.
    pub fn check(&self) {
        self.lock().check();
    }

    fn plan(&self, text: &str, salt: Option<&str>) -> SegmentPlan {
        let mut segments = Vec::with_capacity(text.len() / self.segment_bytes);
        let mut start = 0;
        // A salt begins a chain of keys of its own, so two tenants never share a segment.
        let mut key = salt.map_or(SegmentKey::default(), |salt| {
            first_16(blake3::keyed_hash(&self.salt_key, salt.as_bytes()))
        });
        for end in self.boundaries.cuts(text, self.segment_bytes) {
            let mut hasher = blake3::Hasher::new_keyed(&self.segment_key);
            // The text first, where its chunks are hashed side by side; the key behind it has a
            // fixed length.
            hasher.update(&text.as_bytes()[start..end]).update(&key);
            key = first_16(hasher.finalize());
            segments.push((start..end, key));
            start = end;
        }
        let rest = start..text.len();
        SegmentPlan { segments, rest }
    }

    fn encode_plan(
        &self,
        text: &str,
        plan: &SegmentPlan,
        around: &Around,
    ) -> Result<Vec<TokenId>, PromptError> {
        // The lock covers the look-up only: no thread waits while this one tokenizes.
        let known = self.lock().find(plan.segments.iter().map(|(_, key)| key));
        let encode = |range: &Range<usize>| {
            let text = &text[range.clone()];
            self.tokenizer.encode(text, SpecialTokensIn::ParseOnly)
        };
        let (mut new, mut hit_bytes) = (Vec::new(), 0);
        let mut tokens = Vec::with_capacity(text.len() / 3);
        tokens.extend(&around.before);
        for ((range, key), known) in plan.segments.iter().zip(&known) {
            match known {
                Some(known) => {
                    hit_bytes += range.len();
                    tokens.extend_from_slice(known);
                }
                None => {
                    let encoded = encode(range)?;
                    tokens.extend_from_slice(&encoded);
                    new.push((*key, Arc::from(encoded)));
                }
            }
        }
        tokens.extend(encode(&plan.rest)?);
        tokens.extend(&around.after);
        // A text that was known in full takes the lock once.
        if !new.is_empty() {
            self.lock().keep(new);
        }
        self.count(hit_bytes, text.len() - hit_bytes);
        Ok(tokens)
    }

    fn count(&self, hit_bytes: usize, miss_bytes: usize) {
        let counts = [(&self.hit_bytes, hit_bytes), (&self.miss_bytes, miss_bytes)];
        for (count, bytes) in counts {
            // Statistics only: no other memory depends on their order.
            count.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Locks the segments and ignores poison: neither look-up nor insertion panics half-way unless
    /// memory runs out.
    fn lock(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for PrefixTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefixTokens")
            .field("tokenizer", &self.tokenizer)
            .field("boundaries", &self.boundaries())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

fn first_16(hash: blake3::Hash) -> SegmentKey {
    let (first, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
    *first
}
