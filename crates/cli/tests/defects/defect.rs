//! A workload that would be cacheable, and one mistake in it.

use crate::log::{Log, Mark, Request};
use crate::prose::Prose;

/// One mistake, in one shape.
#[derive(Debug)]
pub(crate) struct Defect {
    pub(crate) name: &'static str,
    /// The cause that commands should name.
    pub(crate) cause: &'static str,
    /// Before and after.
    pub(crate) clean: Log,
    pub(crate) spoiled: Log,
}

/// A request that a defect hit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit<'a> {
    pub(crate) request: &'a Request,
    /// Bytes of the prompt that it could have shared with an earlier one.
    pub(crate) before: usize,
    /// Lost part of that, bytes.
    pub(crate) lost: usize,
}

/// Fewest bytes of a prompt that must have been lost for a question about that request to be fair.
const WORTH_ASKING: usize = 600;

/// Bytes that two prompts are compared by.
const BLOCK: usize = 64;

impl Defect {
    /// Changes each request of `clean` and notes how.
    pub(crate) fn new(
        cause: &'static str,
        name: &'static str,
        clean: Log,
        mut spoil: impl FnMut(&mut Request, &mut Prose) -> Mark,
    ) -> Self {
        let mut prose = Prose::new(name.bytes().map(u64::from).sum());
        let mut spoiled = clean.clone();
        for request in &mut spoiled.requests {
            request.mark = Some(spoil(request, &mut prose));
        }
        Self { name, cause, clean, spoiled }
    }

    /// The requests of which the defect took at least a tenth of what they could have shared with
    /// earlier ones.
    pub(crate) fn all_hit(&self) -> Vec<Hit<'_>> {
        let (before, after) = (shared(&self.clean), shared(&self.spoiled));
        let requests = self.spoiled.requests.iter().zip(before.iter().zip(&after));
        // Text that a defect removed is not recomputed: no more than the remaining text is lost.
        let left = |request: &Request, after: usize| request.shown().len() - after;
        let hit = requests.map(|(request, (&before, &after))| Hit {
            request,
            before,
            lost: before.saturating_sub(after).min(left(request, after)),
        });
        let hit = hit.filter(|hit| hit.lost >= WORTH_ASKING && hit.lost * 10 >= hit.before);
        hit.collect()
    }

    /// Three of them.
    pub(crate) fn hit(&self) -> Vec<Hit<'_>> {
        let all = self.all_hit();
        let places = [all.len() / 3, all.len() * 2 / 3, all.len() - 1];
        places.map(|place| all[place]).to_vec()
    }
}

/// Returns, for each prompt, the most bytes that it shares with the front of an earlier one.
pub(crate) fn shared(log: &Log) -> Vec<usize> {
    let shown: Vec<_> = log.requests.iter().map(Request::shown).collect();
    let best = |index: usize| {
        let earlier = shown[..index].iter();
        let common = earlier.map(|other| common_prefix(&shown[index], other));
        common.max().unwrap_or(0)
    };
    (0..shown.len()).map(best).collect()
}

/// Returns the length of the common prefix of two texts, bytes.
pub(crate) fn common_prefix(one: &str, other: &str) -> usize {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    // Whole blocks first: comparing slices is fast without optimization, too.
    let blocks = one.chunks(BLOCK).zip(other.chunks(BLOCK));
    let equal = blocks.take_while(|(a, b)| a == b && a.len() == BLOCK).count() * BLOCK;
    let pairs = one[equal..].iter().zip(&other[equal..]);
    equal + pairs.take_while(|(a, b)| a == b).count()
}

/// Puts `text` before the first occurrence of `anchor`.
pub(crate) fn insert_before(text: &mut String, anchor: &str, inserted: &str) {
    let at = text.find(anchor).unwrap_or_else(|| panic!("no {anchor:?} in {text}"));
    text.insert_str(at, inserted);
}
