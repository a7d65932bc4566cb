//! How far a prompt goes on like an earlier one behind the last block that both have.
//!
//! The attribution knows contents by windows of tokens. Where a prompt parts from a known one
//! within a block, it takes half a spread of windows for known: right in the mean over texts that
//! part anywhere, and wrong where they part at a block's end, as random token ids behind a prefix
//! of whole blocks do. All prompts of a log are at hand here, so what is claimed of a border alone
//! is looked at.

use std::collections::HashMap;

use headstart_insight::{Bucket, Split};

use super::logged::moved;
use super::traffic::Traffic;

/// Most tokens that are taken for known without a known window that holds one: half a spread of
/// `insight`'s anchors.
const CLAIM_MAX: u32 = 8;

/// What is no more than a border in `splits` becomes what the texts say. Some operations a block.
pub(super) fn look(traffic: &Traffic, splits: &mut [Split]) {
    let size = traffic.info.block_tokens.max(1) as usize;
    // Who had a block last; a block's id names its whole prefix, its model and its salt.
    let mut last: HashMap<u64, usize> = HashMap::new();
    for (index, request) in traffic.requests.iter().enumerate() {
        let known = request.blocks.iter().map_while(|id| last.get(&id).copied());
        let (blocks, nearest) = known.fold((0, None), |(count, _), at| (count + 1, Some(at)));
        let claimed = splits[index].get(Bucket::Diverged);
        if (1..=CLAIM_MAX).contains(&claimed)
            && let Some(nearest) = nearest
        {
            let behind = |index: usize| traffic.said[index].tokens.iter().skip(blocks * size);
            let together = behind(index).zip(behind(nearest));
            let same = together.take_while(|(one, other)| one == other).count() as u32;
            let wrong = claimed.saturating_sub(same);
            splits[index] = moved(&splits[index], Bucket::Diverged, Bucket::NeverSeen, wrong);
        }
        last.extend(request.blocks.iter().map(|id| (id, index)));
    }
}
