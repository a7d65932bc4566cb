//! Marks of prefixes at the wrong place: none, only in the last message, or too far apart.

use std::collections::HashMap;

use headstart_trace::format::request_log::CacheMarks;

use super::{BLOCK, MARK, value};
use crate::traffic::LoggedPrompt;

/// Blocks of content in front of a mark in which Anthropic's API looks for an earlier one.
const LOOK_BACK: u64 = 20;

/// Shortest prefix that must have been there, tokens.
const PREFIX_MIN: usize = 1024;

/// At least one in this many requests must have marks too far apart.
const FAR_SHARE: usize = 8;

/// The mistake in a sentence; `chains` are the names of the requests' blocks.
pub(super) fn misplaced(said: &[LoggedPrompt], chains: &[Vec<u64>]) -> Option<String> {
    unmarked(said).or_else(|| too_far(said, chains)).or_else(|| only_last(said))
}

fn marks(request: &LoggedPrompt) -> Option<CacheMarks> {
    value(request, MARK).map(CacheMarks::unpacked)
}

fn served(request: &LoggedPrompt) -> u32 {
    request.cached.map_or(0, |(_, cached)| cached)
}

/// Requests to Anthropic's API that mark no prefix.
fn unmarked(said: &[LoggedPrompt]) -> Option<String> {
    let is_claude = |request: &LoggedPrompt| {
        request.model.as_deref().is_some_and(|model| model.contains("claude"))
    };
    let has_mark = |request: &LoggedPrompt| value(request, MARK).is_some();
    let has_any = said.iter().any(|request| served(request) > 0 || has_mark(request));
    let is_unmarked = said.iter().all(is_claude) && !has_any;
    is_unmarked.then(|| {
        format!(
            "No request marks a prefix with `{MARK}`, and this API caches only marked \
             prefixes. Mark the end of the tools, of the system prompt and of \
             the history."
        )
    })
}

/// Requests that share a long prefix, and mark only their last message, which is another one in
/// each conversation: nothing was served.
fn only_last(said: &[LoggedPrompt]) -> Option<String> {
    let is_only = |request: &LoggedPrompt| {
        marks(request).is_some_and(|marks| marks.has_last && !marks.has_earlier)
    };
    let is_each = said.iter().all(is_only);
    let first = said.iter().filter(|request| served(request) == 0).count();
    // Later requests of a conversation may be served by the mark of the one before.
    (is_each && first * 2 >= said.len()).then(|| {
        format!(
            "The only `{MARK}` is on the last message, which differs from conversation to \
             conversation: a shared prefix before it is never read back. Mark the end of the \
             tools and of the system prompt as well."
        )
    })
}

/// Requests whose mark lies too many blocks behind the one of the request that they continue.
fn too_far(said: &[LoggedPrompt], chains: &[Vec<u64>]) -> Option<String> {
    let mut owners: HashMap<u64, usize> = HashMap::new();
    let (mut far, mut missed) = (0, 0);
    for (index, chain) in chains.iter().enumerate() {
        let known = chain.iter().map_while(|name| owners.get(name).copied());
        let (count, owner) = known.fold((0, None), |(count, _), owner| (count + 1, Some(owner)));
        for &name in chain {
            owners.entry(name).or_insert(index);
        }
        let distance = || {
            let (now, before) = (marks(&said[index])?, marks(&said[owner?])?);
            (before.last_block > 0).then(|| now.last_block.saturating_sub(before.last_block))
        };
        if count * BLOCK >= PREFIX_MIN && distance().is_some_and(|blocks| blocks > LOOK_BACK) {
            far += 1;
            missed += usize::from(served(&said[index]) == 0);
        }
    }
    (far * FAR_SHARE >= said.len() && missed * 10 >= far * 9).then(|| {
        format!(
            "{far} requests add more than {LOOK_BACK} blocks of content behind the last \
             `{MARK}` of the request that they continue, and were served nothing: the look-back \
             ends after {LOOK_BACK} blocks. Set a mark at least every {LOOK_BACK} blocks."
        )
    })
}
