//! Tokens behind a block that its name covers, too.
//!
//! ```text
//! lookahead_token_ids   [ [17], [4], … ]     per block, each of the same length
//! ```
//!
//! Source: vLLM 0.33 with EAGLE or MTP (`num_hash_lookahead_tokens`).

use std::sync::Arc;

use headstart_core::block::lookahead_extra;

use super::SkipReason;
use super::cursor::Value;
use super::fields::{EventField, EventFields, token};

/// Most tokens behind a block: drafters look a few ahead.
pub(super) const LOOKAHEAD_MAX: usize = 64;

/// Adds them to what sets the blocks apart, unless another event brings the blocks' tokens. Returns
/// how many a name covers: 0 where the engine does not say so.
pub(super) fn add(
    fields: &EventFields<'_>,
    num_blocks: usize,
    has_tokens: bool,
    extras: &mut Vec<Option<Arc<[u8]>>>,
) -> Result<u32, SkipReason> {
    let invalid = || SkipReason::Invalid(EventField::Lookahead.text());
    let Some(value) = fields.get(EventField::Lookahead) else {
        return Ok(0);
    };
    let lists = value.array().ok_or_else(invalid)?;
    // One list per block, or a list could belong to another block.
    if lists.len() != num_blocks {
        return Err(invalid());
    }
    let length = |list: Value<'_>| list.array().map(|list| list.len());
    let covered = lists.clone().next().and_then(length).unwrap_or(0);
    // A name's length is a property of the group, so a list of another length is damage.
    let is_even = lists.clone().all(|list| length(list) == Some(covered));
    if covered > LOOKAHEAD_MAX || !is_even {
        return Err(invalid());
    }
    // Another event brings the blocks' tokens, and the lookahead tokens with them.
    if covered == 0 || !has_tokens {
        return Ok(covered as u32);
    }
    extras.resize(num_blocks, None);
    for (extra, list) in extras.iter_mut().zip(lists) {
        let tokens = list.array().and_then(|list| list.numbers(token));
        let media = extra.as_deref().unwrap_or_default();
        *extra = Some(lookahead_extra(media, &tokens.ok_or_else(invalid)?).into());
    }
    Ok(covered as u32)
}

#[cfg(test)]
mod tests {
    use headstart_core::block::media_extra;
    use headstart_core::event::{CacheGroup, StoredBlocks};
    use headstart_core::{BlockHash, CacheEvent, Tier};

    use super::*;
    use crate::{decode_batch, encode_batch};

    #[test]
    fn what_is_written_is_read() {
        let media = media_extra([(&b"cat"[..], 3)]);
        let extra = |media: &[u8], tokens: &[u32]| Some(lookahead_extra(media, tokens).into());
        let stored = CacheEvent::Stored(StoredBlocks {
            blocks: [1, 2].map(BlockHash::from_u64).into(),
            tokens: vec![1, 2, 3, 4],
            block_size: 2,
            extras: vec![extra(&[], &[3, 0]), extra(&media, &[5, 6])],
            group: CacheGroup { lookahead: 2, ..CacheGroup::default() },
            parent: None,
            tier: Tier::Device,
            salt: None,
            adapter: None,
        });
        let batch = decode_batch(&encode_batch(0.0, std::slice::from_ref(&stored), None));
        assert_eq!(batch.expect("a batch").events, [stored]);
    }
}
