//! The same words in another order: a stretch of both prompts that holds the same words as often.
//!
//! Sums of hashes do not depend on order. From the first difference on both prompts are walked in
//! step; where the sums of both are equal again, the stretch behind is a permutation.

use crate::text::diff;
use crate::text::divergence::{PromptAlignment, count};
use crate::text::hashed::Hashes;
use crate::text::word::{Class, Word};

use super::WordSpans;
use crate::text::sketch::mixed;

/// Words before the first difference in which brackets are counted.
const BACK_WORDS: usize = 1 << 14;

/// Words of the runs that must have moved as a whole.
const MOVED_RUN: usize = 4;

/// Words of a run that is looked for anywhere.
const ANYWHERE_RUN: usize = 6;

/// Words of a segment that counts as moved, and signs left out of another one.
const SEGMENT_WORDS: usize = 12;

/// At least one in this many moved words must have left its place, too.
const LEFT_SHARE: usize = 8;

/// Words of segments that must have left their places: a sentence that two documents have in
/// common has fewer.
const LEFT_WORDS: usize = 24;

/// A stretch with the same words in another order.
pub(super) struct ReorderedSpan {
    /// Words in it; it starts at the first difference.
    pub(super) len: usize,
    /// Whether what moved are members of a JSON object.
    pub(super) is_members: bool,
    /// Start of the first unit that moved: the same in both prompts.
    pub(super) start: usize,
    /// End of the last unit that moved, in the older prompt.
    old_end: usize,
    /// The same in the newer prompt: units may have been added to it, or removed.
    new_end: usize,
}

impl ReorderedSpan {
    /// The stretch that begins where both prompts part.
    pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<Self> {
        let len = balanced(&aligned.old[aligned.lead..], &aligned.new[aligned.lead..])?;
        let words = &aligned.new;
        let (start, end) = (aligned.lead, aligned.lead + len);
        let mut brackets = Brackets::default();
        let back = start.saturating_sub(BACK_WORDS);
        // Brackets are counted from well before the difference, to know those around it.
        for at in back..start {
            brackets.step(words, at);
        }
        // The stack is copied first, because the stretch may close some of its brackets.
        let before = brackets.open.clone();
        let mut old_brackets = brackets.clone();
        brackets.begin();
        for at in start..end {
            brackets.step(words, at);
            old_brackets.step(&aligned.old, at);
        }
        // The units that moved lie at the least depth: deeper brackets open and close inside of
        // them.
        let depth = brackets.least;
        let is_members = brackets.is_keyed
            && depth > 0
            && before.get(depth - 1).is_some_and(|bracket| bracket.1 == b'{');
        // Members move within their object, so the object is shown as a whole.
        let outer = if is_members { depth - 1 } else { depth };
        Some(Self {
            len,
            is_members,
            start: before.get(outer).map_or(start, |open| open.0),
            old_end: old_brackets.closed(&aligned.old, end, outer),
            new_end: brackets.closed(words, end, outer),
        })
    }

    /// The words to show.
    pub(super) fn spans(&self) -> WordSpans {
        WordSpans { old: self.start..self.old_end, new: self.start..self.new_end }
    }

    /// Whether whole segments moved, and not words here and there.
    pub(super) fn moved_whole(&self, aligned: &PromptAlignment<'_>) -> bool {
        let of = |words: &[Word]| {
            diff::run_hashes(&words[aligned.lead..aligned.lead + self.len], MOVED_RUN)
                .collect::<Vec<_>>()
        };
        let old: Hashes = of(&aligned.old).into_iter().collect();
        let new = of(&aligned.new);
        let kept = new.iter().filter(|run| old.contains(run)).count();
        // Six in ten: the runs across the edges of moved segments change in any case.
        !new.is_empty() && kept * 10 >= new.len() * 6
    }
}

/// The words that both begin with in another order.
fn balanced(old: &[Word], new: &[Word]) -> Option<usize> {
    let (mut sum, mut twin) = (0u64, 0u64);
    for (at, (one, other)) in old.iter().zip(new).enumerate() {
        sum = sum.wrapping_add(one.hash).wrapping_sub(other.hash);
        // Sums of one hash may cancel out by chance; the second sum, of mixed hashes, then does
        // not.
        twin = twin.wrapping_add(mixed(one.hash)).wrapping_sub(mixed(other.hash));
        if sum == 0 && twin == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Open brackets of JSON and the like.
#[derive(Clone, Default)]
struct Brackets {
    /// Place and character of each.
    open: Vec<(usize, u8)>,
    /// The fewest that were open since `begin`.
    least: usize,
    /// Whether a key stood at that depth.
    is_keyed: bool,
}

impl Brackets {
    fn begin(&mut self) {
        self.least = self.open.len();
        self.is_keyed = false;
    }

    fn step(&mut self, words: &[Word], at: usize) {
        let word = &words[at];
        if word.class != Class::Punctuation {
            return;
        }
        match word.character {
            character @ (b'{' | b'[') => self.open.push((at, character)),
            b'}' | b']' => {
                self.open.pop();
                // The stretch closed a bracket around it, so its units lie at a lower depth than
                // thought.
                if self.open.len() < self.least {
                    self.begin();
                }
            }
            b':' if self.open.len() == self.least => {
                let before = at.checked_sub(1).map(|before| &words[before]);
                self.is_keyed |= before.is_some_and(|word| word.is(b'"') || word.is(b'\''));
            }
            _ => {}
        }
    }

    /// Finds the next index from `end` on with at most `depth` open brackets, or returns `end`.
    fn closed(mut self, words: &[Word], end: usize, depth: usize) -> usize {
        // A bracket that never closes must not cost a walk over the rest of the prompt.
        for at in end..words.len().min(end + BACK_WORDS) {
            if self.open.len() <= depth {
                return at;
            }
            self.step(words, at);
        }
        if self.open.len() <= depth {
            return words.len().min(end + BACK_WORDS);
        }
        end
    }
}

/// Segments of both prompts that changed places, where not all of them are the same: the stretch
/// from the first difference to the last segment that is out of order.
pub(super) fn shuffled(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    let lead = aligned.lead;
    let pairs = diff::unique_runs(&aligned.old[lead..], &aligned.new[lead..], ANYWHERE_RUN);
    let mut segments: Vec<CommonRun> = Vec::new();
    for (old, new) in pairs {
        match segments.last_mut() {
            Some(last) if last.goes_on(old, new) => last.len = new + ANYWHERE_RUN - last.new,
            _ => segments.push(CommonRun { old, new, len: ANYWHERE_RUN }),
        }
    }
    segments.retain(|segment| segment.words(aligned) >= SEGMENT_WORDS);
    let is_late =
        |at: &usize| segments[..*at].iter().any(|segment| segment.old > segments[*at].old);
    // From the end, so that `involved` holds everything up to the last segment out of order.
    let last = (1..segments.len().min(SEGMENTS_MAX)).rev().find(is_late)?;
    let involved = &segments[..=last];
    // Something in front must have come from behind: else what parts the prompts is another thing.
    if !involved[1..].iter().any(|segment| segment.old < involved[0].old) {
        return None;
    }
    let old_end = involved.iter().map(|segment| segment.old + segment.len).max()?;
    let new_end = involved.last().map(|segment| segment.new + segment.len)?;
    let left = left(involved, aligned);
    // Other texts with some sentences in common are no other order.
    let moved: usize = involved.iter().map(|segment| segment.len).sum();
    let is_enough = left >= LEFT_WORDS && left * LEFT_SHARE >= moved;
    if !is_enough || moved * 100 < old_end.max(new_end) * COVERED_PERCENT {
        return None;
    }
    let spans = WordSpans { old: lead..lead + old_end, new: lead..lead + new_end };
    // A stretch with roles spans several messages, and those are neither documents nor tools.
    let roles = count(&aligned.new[spans.new.clone()], |class| class == Class::Role);
    (roles == 0).then_some(spans)
}

/// Words of the segments that are not in the order that most words kept.
fn left(segments: &[CommonRun], aligned: &PromptAlignment<'_>) -> usize {
    // Per segment the most words in order up to and with it.
    let mut kept: Vec<usize> = Vec::with_capacity(segments.len());
    let mut all = 0;
    for segment in segments {
        let words = segment.words(aligned);
        all += words;
        let before = segments.iter().zip(&kept);
        let before = before.filter(|(earlier, _)| earlier.old < segment.old);
        kept.push(words + before.map(|(_, words)| *words).max().unwrap_or(0));
    }
    all - kept.into_iter().max().unwrap_or(0)
}

/// Least share of the stretch on both sides that common segments must cover, percent.
const COVERED_PERCENT: usize = 60;

/// Most segments that are looked at, because each is compared with all before.
const SEGMENTS_MAX: usize = 512;

/// A run that both prompts have, from the first difference on.
struct CommonRun {
    old: usize,
    new: usize,
    len: usize,
}

impl CommonRun {
    /// Its words without signs.
    fn words(&self, aligned: &PromptAlignment<'_>) -> usize {
        let start = aligned.lead + self.new;
        let words = &aligned.new[start..start + self.len];
        count(words, |class| class != Class::Punctuation)
    }

    /// Whether a run at these places belongs to it: as far on in both, and not far.
    fn goes_on(&self, old: usize, new: usize) -> bool {
        // `old` may lie in front of `self.old`: then the difference wraps and equals no distance.
        old.wrapping_sub(self.old) == new - self.new && new <= self.new + self.len + SEGMENT_WORDS
    }
}
