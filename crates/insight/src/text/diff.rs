//! Runs of words that two texts have in common, in order.
//!
//! What begins or ends alike is taken first. Small rests are compared word by word (the longest
//! common subsequence); large ones are split at runs that stand exactly once in both, and each gap
//! is compared in turn. Work is bounded: where the budget ends, the rest counts as changed.
//!
//! Source: Bram Cohen's patience diff, with runs of words instead of lines.

use std::ops::Range;

use super::hashed::ByHash;
use super::sketch::{common, mixed};
use super::word::Word;

/// Cells of a table for comparing word by word.
const TABLE_CELLS_MAX: usize = 1 << 16;

/// Words in the runs that a rest is split at: the longer ones are tried first.
const RUNS: [usize; 2] = [12, 4];

/// Words at the front of a rest without such runs that are compared word by word: a square table.
const FRONT_WORDS: usize = 1 << 8;

/// Such fronts per comparison: each costs a whole table.
const FRONTS_MAX: usize = 16;

/// Looks at each word, on average, after which the rest counts as changed.
const LOOKS_PER_WORD: usize = 48;

/// A range of the older text that became a range of the newer one. One of both may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiffHunk {
    pub(super) old: Range<usize>,
    pub(super) new: Range<usize>,
}

/// Returns the changes from `old` to `new`, in order; all between is common.
pub(super) fn changes(old: &[Word], new: &[Word]) -> Vec<DiffHunk> {
    let mut found = Vec::new();
    let mut budget = (old.len() + new.len()).saturating_mul(LOOKS_PER_WORD);
    let mut open = vec![DiffHunk { old: 0..old.len(), new: 0..new.len() }];
    let mut fronts = FRONTS_MAX;
    while let Some(part) = open.pop() {
        let part = trimmed(old, new, part);
        if part.old.is_empty() && part.new.is_empty() {
            continue;
        }
        let size = part.old.len() + part.new.len();
        let has_budget = budget >= size;
        budget = budget.saturating_sub(size * RUNS.len());
        let matches = if has_budget && !part.old.is_empty() && !part.new.is_empty() {
            matches(&old[part.old.clone()], &new[part.new.clone()], &mut fronts)
        } else {
            Vec::new()
        };
        if matches.is_empty() {
            join(&mut found, part);
            continue;
        }
        let first = open.len();
        let (mut old_at, mut new_at) = (part.old.start, part.new.start);
        for (one, other) in matches {
            let (one, other) = (part.old.start + one, part.new.start + other);
            open.push(DiffHunk { old: old_at..one, new: new_at..other });
            (old_at, new_at) = (one + 1, other + 1);
        }
        open.push(DiffHunk { old: old_at..part.old.end, new: new_at..part.new.end });
        // The stack is worked off from its end: reversed, the leftmost gap comes first.
        open[first..].reverse();
    }
    found
}

/// Adds `part`, which lies behind all that was found.
fn join(found: &mut Vec<DiffHunk>, part: DiffHunk) {
    match found.last_mut() {
        Some(last) if last.old.end == part.old.start && last.new.end == part.new.start => {
            (last.old.end, last.new.end) = (part.old.end, part.new.end);
        }
        _ => found.push(part),
    }
}

/// `part` without what both sides begin and end with.
fn trimmed(old: &[Word], new: &[Word], part: DiffHunk) -> DiffHunk {
    let (mut one, mut other) = (part.old, part.new);
    let front = common(&old[one.clone()], &new[other.clone()]);
    (one.start, other.start) = (one.start + front, other.start + front);
    let backwards = old[one.clone()].iter().rev().zip(new[other.clone()].iter().rev());
    let back = backwards.take_while(|(one, other)| one.hash == other.hash).count();
    (one.end, other.end) = (one.end - back, other.end - back);
    DiffHunk { old: one, new: other }
}

/// Pairs of places that are common to both, ascending in both.
fn matches(old: &[Word], new: &[Word], fronts: &mut usize) -> Vec<(usize, usize)> {
    if old.len() * new.len() <= TABLE_CELLS_MAX {
        return by_table(old, new);
    }
    for run in RUNS {
        let pairs = rising(&unique_runs(old, new, run));
        if !pairs.is_empty() {
            return pairs;
        }
    }
    let Some(left) = fronts.checked_sub(1) else {
        return Vec::new();
    };
    *fronts = left;
    by_front(old, new)
}

/// Texts that repeat a few words have no run that stands once: their fronts are compared word by
/// word. They count if most of them agrees.
fn by_front(old: &[Word], new: &[Word]) -> Vec<(usize, usize)> {
    let (one, other) = (old.len().min(FRONT_WORDS), new.len().min(FRONT_WORDS));
    let pairs = by_table(&old[..one], &new[..other]);
    if pairs.len() * 4 >= one.min(other) * 3 { pairs } else { Vec::new() }
}

/// The longest common subsequence.
fn by_table(old: &[Word], new: &[Word]) -> Vec<(usize, usize)> {
    let width = new.len() + 1;
    // [old + 1, new + 1]: the length for what stands from there on.
    let mut table = vec![0u16; (old.len() + 1) * width];
    for one in (0..old.len()).rev() {
        for other in (0..new.len()).rev() {
            // 16 bits suffice: within `TABLE_CELLS_MAX` the shorter text has at most 256 words.
            table[one * width + other] = if old[one].hash == new[other].hash {
                table[(one + 1) * width + other + 1] + 1
            } else {
                table[(one + 1) * width + other].max(table[one * width + other + 1])
            };
        }
    }
    let (mut one, mut other) = (0, 0);
    let mut pairs = Vec::new();
    while one < old.len() && other < new.len() {
        if old[one].hash == new[other].hash {
            pairs.push((one, other));
            (one, other) = (one + 1, other + 1);
        } else if table[(one + 1) * width + other] >= table[one * width + other + 1] {
            one += 1;
        } else {
            other += 1;
        }
    }
    pairs
}

/// The hash of each run of `run` words.
pub(super) fn run_hashes(words: &[Word], run: usize) -> impl Iterator<Item = u64> + '_ {
    words.windows(run).map(|run| {
        let sum = run.iter().fold(0u64, |sum, word| {
            // The factor between makes the order of the words count.
            sum.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(word.hash)
        });
        mixed(sum)
    })
}

/// Starts of the runs that stand exactly once in both, ascending in the newer one.
pub(super) fn unique_runs(old: &[Word], new: &[Word], run: usize) -> Vec<(usize, usize)> {
    #[derive(Default)]
    struct Occurrences {
        old: (u32, usize),
        new: u32,
    }
    let mut runs: ByHash<Occurrences> = ByHash::default();
    for (at, hash) in run_hashes(old, run).enumerate() {
        let seen = runs.entry(hash).or_default();
        seen.old = (seen.old.0 + 1, at);
    }
    for hash in run_hashes(new, run) {
        if let Some(seen) = runs.get_mut(&hash) {
            seen.new += 1;
        }
    }
    let pair = |(at, hash): (usize, u64)| {
        let seen = runs.get(&hash)?;
        (seen.old.0 == 1 && seen.new == 1).then_some((seen.old.1, at))
    };
    run_hashes(new, run).enumerate().filter_map(pair).collect()
}

/// The longest part of `pairs`, which ascend in the second, that ascends in the first too.
fn rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // Per length the pair that ends such a part with the least first place.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (index, pair) in pairs.iter().enumerate() {
        let at = ends.partition_point(|end| pairs[*end].0 < pair.0);
        before.push(at.checked_sub(1).map(|at| ends[at]));
        match ends.get_mut(at) {
            Some(end) => *end = index,
            None => ends.push(index),
        }
    }
    let mut next = ends.last().copied();
    let mut chosen = Vec::with_capacity(ends.len());
    while let Some(index) = next {
        chosen.push(pairs[index]);
        next = before[index];
    }
    chosen.reverse();
    chosen
}

#[cfg(test)]
mod tests {
    use headstart_core::Rng;

    use super::*;
    use crate::text::word::Class;

    fn words(letters: &[u8]) -> Vec<Word> {
        let word = |(at, letter): (usize, &u8)| Word {
            hash: mixed(u64::from(*letter) + 1),
            start: at as u32,
            len: 1,
            class: Class::Plain,
            character: 0,
        };
        letters.iter().enumerate().map(word).collect()
    }

    /// Checks that all words outside `changes` are equal, and returns their number.
    fn check(old: &[u8], new: &[u8]) -> usize {
        let (one, other) = (words(old), words(new));
        let (mut old_at, mut new_at, mut kept) = (0, 0, 0);
        for change in changes(&one, &other) {
            let common = change.old.start - old_at;
            assert_eq!(common, change.new.start - new_at);
            assert_eq!(old[old_at..change.old.start], new[new_at..change.new.start]);
            (old_at, new_at) = (change.old.end, change.new.end);
            kept += common;
        }
        assert_eq!(old[old_at..], new[new_at..]);
        kept + old.len() - old_at
    }

    #[test]
    fn small_texts_keep_the_longest_common_part() {
        assert_eq!(check(b"abcdef", b"abxdef"), 5);
        assert_eq!(check(b"abcdef", b"def"), 3);
        assert_eq!(check(b"", b"abc"), 0);
        assert_eq!(check(b"abcabba", b"cbabac"), 4);
    }

    #[test]
    fn large_texts_keep_what_was_not_edited() {
        let mut rng = Rng::new(5);
        for round in 0..30 {
            let old: Vec<u8> = (0..2000).map(|_| rng.below(250) as u8).collect();
            let mut new = old.clone();
            for _ in 0..5 {
                let at = rng.below(new.len() - 20);
                let to = at + rng.below(20);
                let more: Vec<u8> = (0..rng.below(20)).map(|_| rng.below(250) as u8).collect();
                new.splice(at..to, more);
            }
            let kept = check(&old, &new);
            assert!(kept >= old.len() - 5 * 20, "seed 5, round {round}: {kept} kept");
        }
    }

    #[test]
    fn texts_that_repeat_one_word_keep_it() {
        let text = |front: &[u8], end: &[u8]| [front, &[b'w'; 1_200], end].concat();
        assert_eq!(check(&text(b"a", b"xyz"), &text(b"b", b"pq")), 1_200);
        assert_eq!(check(&text(b"abc", b"x"), &text(b"", b"pq")), 1_200);
    }

    #[test]
    fn texts_that_repeat_themselves_end_in_time() {
        let old = vec![b'a'; 5000];
        let mut new = vec![b'a'; 3000];
        new.insert(1500, b'b');
        check(&old, &new);
        let old: Vec<u8> = (0..40_000u32).map(|n| (n % 7) as u8).collect();
        let new: Vec<u8> = (0..40_000u32).map(|n| (n % 11) as u8).collect();
        check(&old, &new);
    }
}
