//! The point at which two prompts part, the changes, and the agreement behind them.

use std::ops::Range;

use super::diff::{self, DiffHunk};
use super::hashed::Hashes;
use super::sketch::{Sketch, common, mixed};
use super::word::{Class, Word};

/// Known words behind a divergence from which on it counts as a loss, without white space. Some
/// three blocks of tokens: less is chance, or the closing words of a form.
pub const LOSS_WORDS: usize = 48;

/// Words of a run that counts as known from the older prompt wherever it stood there.
const KNOWN_RUN: usize = 6;

/// Changes with fewer words between them are one region.
const REGION_GAP_WORDS: usize = 5;

/// Most regions that a divergence lists.
pub const CHANGES_MAX: usize = 32;

/// A span of the older prompt that became a span of the newer one, in bytes. One may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptChange {
    /// In the older prompt.
    pub old: Range<usize>,
    /// In the newer prompt.
    pub new: Range<usize>,
}

/// Differences of a prompt from an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptDivergence {
    /// Words in common from the start, white space among them.
    pub shared_words: usize,
    /// Offset of the first difference in the older prompt, bytes.
    pub old_byte: usize,
    /// Offset of the first difference in the newer prompt, bytes.
    pub new_byte: usize,
    /// Changed regions, in order: at most [`CHANGES_MAX`]. White space that changed beside equal
    /// words is not listed.
    pub changes: Vec<PromptChange>,
    /// Names the place: a keyed hash of the words in front.
    pub place: u64,
    /// Names the place as well: a keyed hash of the words right behind the first change.
    pub behind: u64,
    /// Equal words right behind the first change, without white space.
    pub agrees_words: usize,
    /// Words of the newer prompt behind the divergence, without white space.
    pub rest_words: usize,
    /// Words of the rest that are known from the older prompt.
    pub kept_words: usize,
    /// Known words that no earlier prompt had in the same place: what the divergence cost.
    pub lost_words: usize,
    /// Bytes of the newer prompt in these words, white space between them included.
    pub lost_bytes: usize,
}

impl PromptDivergence {
    /// Whether enough was lost to speak of.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        self.lost_words >= LOSS_WORDS
    }
}

/// Changes close together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    /// Its changes, as a range of their indexes.
    pub(super) changes: Range<usize>,
    /// Common words behind it, up to the next region or the end.
    pub(super) agrees: usize,
}

/// Two prompts side by side, as detectors look at them. All indexes are of words without white
/// space.
#[derive(Debug)]
pub(super) struct PromptAlignment<'a> {
    pub(super) old_sketch: &'a Sketch,
    pub(super) new_sketch: &'a Sketch,
    /// Words in common from the start, white space among them.
    pub(super) shared: usize,
    pub(super) old: Vec<Word>,
    pub(super) new: Vec<Word>,
    /// Words in common from the start.
    pub(super) lead: usize,
    pub(super) changes: Vec<DiffHunk>,
    pub(super) regions: Vec<Region>,
    /// Per word of the newer prompt from `lead` on: whether the older one has it too.
    known: Vec<bool>,
}

impl<'a> PromptAlignment<'a> {
    /// Aligns two prompts; nothing where one begins with the other.
    pub(super) fn new(old_sketch: &'a Sketch, new_sketch: &'a Sketch) -> Option<Self> {
        let shared = old_sketch.common_words(new_sketch);
        if shared == old_sketch.words().len() || shared == new_sketch.words().len() {
            return None;
        }
        let (old, new) = (ink(old_sketch), ink(new_sketch));
        Some(Self::of_words(old_sketch, new_sketch, shared, old, new))
    }

    fn of_words(
        old_sketch: &'a Sketch,
        new_sketch: &'a Sketch,
        shared: usize,
        old: Vec<Word>,
        new: Vec<Word>,
    ) -> Self {
        let lead = common(&old, &new);
        let moved_by = |range: Range<usize>| range.start + lead..range.end + lead;
        let changes = diff::changes(&old[lead..], &new[lead..]).into_iter();
        let changes: Vec<_> = changes
            .map(|DiffHunk { old, new }| DiffHunk { old: moved_by(old), new: moved_by(new) })
            .collect();
        let known = known(&old[lead..], &new[lead..], lead, &changes);
        let regions = regions(&changes, new.len());
        Self { old_sketch, new_sketch, shared, old, new, lead, changes, regions, known }
    }

    /// The divergence, where the first `served_words` of the newer prompt, white space among
    /// them, were had anyway.
    pub(super) fn divergence(&self, served_words: usize) -> PromptDivergence {
        let served = served_words.max(self.shared).min(self.new_sketch.words().len());
        let served = self.new_sketch.ink_in(0..served).max(self.first_difference());
        let known = |at: &usize| self.is_known(*at);
        let lost: Vec<usize> = (served..self.new.len()).filter(known).collect();
        let bytes = lost.iter().map(|at| {
            let word = &self.new[*at];
            // White space between two lost words is lost as well.
            let next = self.new.get(at + 1).filter(|_| self.is_known(at + 1));
            next.map_or(word.end(), |next| next.start) - word.start
        });
        let first = self.first_difference();
        PromptDivergence {
            shared_words: self.shared,
            old_byte: self.old_sketch.byte_of(self.shared),
            new_byte: self.new_sketch.byte_of(self.shared),
            changes: self.listed(),
            place: place(&self.new[..self.lead]),
            behind: self.behind(),
            agrees_words: self.regions.first().map_or(0, |region| region.agrees),
            rest_words: self.new.len() - first,
            kept_words: (first..self.new.len()).filter(known).count(),
            lost_words: lost.len(),
            lost_bytes: bytes.map(|bytes| bytes as usize).sum(),
        }
    }

    /// The same prompts without their first `count` changes: there the older one has the words of
    /// the newer one.
    pub(super) fn without_first(&self, count: usize) -> Self {
        let last = &self.changes[count - 1];
        let mut old = self.new[..last.new.end].to_vec();
        old.extend_from_slice(&self.old[last.old.end..]);
        let (old_sketch, new_sketch) = (self.old_sketch, self.new_sketch);
        Self::of_words(old_sketch, new_sketch, self.shared, old, self.new.clone())
    }

    /// The name of what stands behind the first change, in the newer prompt.
    fn behind(&self) -> u64 {
        let first = self.regions.first();
        let end = first.map_or(self.lead, |region| self.span(region).1.end);
        hash(&self.new[end..self.new.len().min(end + PLACE_WORDS)])
    }

    /// Whether the newer prompt keeps at least three in four words of the older one from `at` on.
    pub(super) fn keeps_old(&self, at: usize) -> bool {
        let rest = self.old.len() - at;
        let changed = self.changes.iter().map(|change| {
            let start = change.old.start.max(at);
            change.old.end.saturating_sub(start)
        });
        changed.sum::<usize>() * 4 <= rest
    }

    /// Returns the regions up to the last one behind which much agrees. Later ones are another
    /// question, or the newer prompt's continuation.
    pub(super) fn body(&self) -> &[Region] {
        let agrees = |region: &Region| region.agrees >= LOSS_WORDS / 2;
        let last = self.regions.iter().rposition(agrees);
        &self.regions[..last.map_or(0, |last| last + 1)]
    }

    /// Words without white space before the first difference, be it white space.
    fn first_difference(&self) -> usize {
        self.new_sketch.ink_in(0..self.shared)
    }

    fn is_known(&self, at: usize) -> bool {
        match at.checked_sub(self.lead) {
            Some(index) => self.known.get(index).copied().unwrap_or(false),
            // Words in front of the first difference are the same in both.
            None => true,
        }
    }

    fn listed(&self) -> Vec<PromptChange> {
        let regions = self.regions.iter().take(CHANGES_MAX);
        let change = |region: &Region| {
            let (old, new) = self.span(region);
            PromptChange { old: bytes_of(&self.old, old), new: bytes_of(&self.new, new) }
        };
        regions.map(change).collect()
    }

    /// The words of a region on both sides.
    pub(super) fn span(&self, region: &Region) -> (Range<usize>, Range<usize>) {
        let changes = &self.changes[region.changes.clone()];
        // A region has at least one change.
        let (first, last) = (&changes[0], &changes[changes.len() - 1]);
        (first.old.start..last.old.end, first.new.start..last.new.end)
    }
}

/// Words that name the place behind them, or in front of them.
const PLACE_WORDS: usize = 6;

/// The name of the place behind `front`.
pub(super) fn place(front: &[Word]) -> u64 {
    hash(&front[front.len().saturating_sub(PLACE_WORDS)..])
}

/// The keyed hash of words together.
pub(super) fn hash(words: &[Word]) -> u64 {
    words.iter().fold(1, |sum: u64, word| mixed(sum.rotate_left(7) ^ word.hash))
}

/// The bytes of a range of words; an empty range stands where its first word would.
pub(super) fn bytes_of(words: &[Word], range: Range<usize>) -> Range<usize> {
    if range.is_empty() {
        let behind = || words.last().map_or(0, Word::end);
        let at = words.get(range.start).map_or_else(behind, |word| word.start);
        at as usize..at as usize
    } else {
        words[range.start].start as usize..words[range.end - 1].end() as usize
    }
}

fn ink(sketch: &Sketch) -> Vec<Word> {
    let words = sketch.words().iter().copied();
    words.filter(Word::is_ink).collect()
}

/// Per word of `new` whether it stands in a run that `old` has too, or between changes.
fn known(old: &[Word], new: &[Word], lead: usize, changes: &[DiffHunk]) -> Vec<bool> {
    let mut known = vec![false; new.len()];
    let runs: Hashes = diff::run_hashes(old, KNOWN_RUN).collect();
    for (at, hash) in diff::run_hashes(new, KNOWN_RUN).enumerate() {
        if runs.contains(&hash) {
            known[at..at + KNOWN_RUN].fill(true);
        }
    }
    let mut at = 0;
    let starts = changes.iter().map(|change| change.new.clone());
    let end = lead + new.len();
    for change in starts.chain(std::iter::once(end..end)) {
        let (start, end) = (change.start - lead, change.end - lead);
        // Shorter stretches between changes agree by chance.
        if start - at >= REGION_GAP_WORDS {
            known[at..start].fill(true);
        }
        at = end;
    }
    known
}

/// Changes put together where little stands between them.
fn regions(changes: &[DiffHunk], new_len: usize) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        let next = changes.get(index + 1).map_or(new_len, |next| next.new.start);
        let agrees = next - change.new.end;
        match regions.last_mut() {
            Some(last) if last.agrees < REGION_GAP_WORDS => {
                last.changes.end = index + 1;
                last.agrees = agrees;
            }
            _ => regions.push(Region { changes: index..index + 1, agrees }),
        }
    }
    regions
}

/// Counts the `words` whose class `is_wanted`.
pub(super) fn count(words: &[Word], is_wanted: impl Fn(Class) -> bool) -> usize {
    words.iter().filter(|word| is_wanted(word.class)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::testing::{prose, sketch};

    fn check(old: &str, new: &str, served_words: usize) -> Option<PromptDivergence> {
        let (old, new) = (sketch(old), sketch(new));
        PromptAlignment::new(&old, &new).map(|aligned| aligned.divergence(served_words))
    }

    #[test]
    fn a_prompt_that_goes_on_does_not_diverge() {
        assert_eq!(check("one two", "one two three", 0), None);
        assert_eq!(check("one two three", "one two", 0), None);
        assert_eq!(check("one two", "one two", 0), None);
    }

    #[test]
    fn what_agrees_behind_the_first_difference_is_lost() {
        let body = prose(1, 100);
        let body = body.trim_end();
        let (old, new) = (format!("At noon. {body}"), format!("At midnight. {body}"));
        let divergence = check(&old, &new, 0).expect("they part");
        assert_eq!((divergence.old_byte, divergence.new_byte), (3, 3));
        let first = &divergence.changes[0];
        assert_eq!(&old[first.old.clone()], "noon");
        assert_eq!(&new[first.new.clone()], "midnight");
        assert_eq!(divergence.kept_words, divergence.rest_words - 1);
        assert_eq!(divergence.lost_words, divergence.kept_words);
        assert_eq!(divergence.lost_bytes, new.len() - "At midnight".len());
        assert!(divergence.is_loss());
        // Another prompt had the same front.
        let served = sketch(&new).words().len() - 20;
        let divergence = check(&old, &new, served).expect("they part");
        assert!(!divergence.is_loss());
    }

    #[test]
    fn a_place_has_a_name_in_front_and_one_behind() {
        let body = prose(5, 100);
        let part = |old: &str, new: &str| {
            let text = |who: &str| format!("You help {who}. {body}");
            let divergence = check(&text(old), &text(new), 0).expect("they part");
            (divergence.place, divergence.behind)
        };
        let (one, other) = (part("Ann Ode", "Bob Fry"), part("Ann Ode", "Ann Fry"));
        assert_ne!(one.0, other.0, "here the first name is in front of it");
        assert_eq!(one.1, other.1);
        let same_end = part("Ann Ode", "Bob Ode");
        assert_eq!(one.0, same_end.0);
        assert_ne!(one.1, same_end.1, "here the second name is behind it");
    }

    #[test]
    fn token_ids_are_counted_and_no_cause_is_read_into_them() {
        let sketcher = crate::text::Sketcher::new(&[3; 32]);
        let body: Vec<u32> = (0..200).map(|n| 5_000 + n * 7).collect();
        // As texts these would be Unix times.
        let old = sketcher.sketch_tokens(&[&[1, 1_732_383_299][..], &body].concat());
        let new = sketcher.sketch_tokens(&[&[1, 1_732_383_305][..], &body].concat());
        let told = crate::text::explain(&old, &new, 0).expect("they part");
        assert_eq!(told.evidence, None);
        let divergence = told.divergence;
        assert_eq!((divergence.old_byte, divergence.new_byte), (1, 1));
        assert_eq!(divergence.changes[0], PromptChange { old: 1..2, new: 1..2 });
        assert_eq!((divergence.lost_words, divergence.lost_bytes), (200, 200));
        // An id that is there twice is a joint.
        let twice = sketcher.sketch_tokens(&[&[1, 1, 1_732_383_299][..], &body].concat());
        let told = crate::text::explain(&old, &twice, 0).expect("they part");
        let evidence = told.evidence.expect("a seam");
        assert_eq!((evidence.cause, evidence.new), (crate::Cause::Seam, 1..2));
    }

    #[test]
    fn another_text_behind_the_same_front_is_no_loss() {
        let front = prose(2, 100);
        let divergence =
            check(&format!("{front} {}", prose(3, 100)), &format!("{front} {}", prose(4, 100)), 0);
        let divergence = divergence.expect("they part");
        assert!(!divergence.is_loss(), "{divergence:?}");
    }
}
