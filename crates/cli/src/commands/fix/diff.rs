//! A diff of two texts by lines.

use headstart_core::shown::visible;

/// Unchanged lines shown around a change.
const CONTEXT: usize = 2;

/// Longest line that is shown whole, characters: a terminal has 80 columns.
const LINE_CHARS: usize = 76;

/// Lines of the longest table of common lines; longer texts are shown as removed and added.
const TABLE_MAX: usize = 4_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineMark {
    Same,
    Removed,
    Added,
}

/// The lines that differ, `-` before and `+` after, with some of those around them.
pub(super) fn of(before: &str, after: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let marked = marked(&old, &new);
    let is_near = |at: usize| {
        let range = at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(marked.len());
        marked[range].iter().any(|(mark, _)| *mark != LineMark::Same)
    };
    let mut text = String::new();
    let mut is_gap = false;
    for (at, (mark, line)) in marked.iter().enumerate() {
        if !is_near(at) {
            is_gap = true;
            continue;
        }
        if std::mem::take(&mut is_gap) {
            text += "  …\n";
        }
        let sign = match mark {
            LineMark::Same => ' ',
            LineMark::Removed => '-',
            LineMark::Added => '+',
        };
        // Prompts are strangers' texts: no control character reaches the terminal.
        text += &format!("{sign} {}\n", shortened(&visible(line)));
    }
    text
}

/// A line as it fits a terminal.
fn shortened(line: &str) -> String {
    match line.char_indices().nth(LINE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// The lines of both, by their longest common subsequence.
fn marked<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<(LineMark, &'t str)> {
    let front = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let (old_rest, new_rest) = (&old[front..], &new[front..]);
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev());
    let tail = tail.take_while(|(one, other)| one == other).count();
    let (old_mid, new_mid) =
        (&old_rest[..old_rest.len() - tail], &new_rest[..new_rest.len() - tail]);
    let same = |line: &&'t str| (LineMark::Same, *line);
    let mut lines: Vec<_> = old[..front].iter().map(same).collect();
    let width = new_mid.len() + 1;
    if old_mid.len().saturating_mul(width) > TABLE_MAX {
        lines.extend(old_mid.iter().map(|line| (LineMark::Removed, *line)));
        lines.extend(new_mid.iter().map(|line| (LineMark::Added, *line)));
    } else {
        // The length of the longest common subsequence of what is left of both.
        let mut table = vec![0_u32; (old_mid.len() + 1) * width];
        for one in (0..old_mid.len()).rev() {
            for other in (0..new_mid.len()).rev() {
                table[one * width + other] = if old_mid[one] == new_mid[other] {
                    table[(one + 1) * width + other + 1] + 1
                } else {
                    table[(one + 1) * width + other].max(table[one * width + other + 1])
                };
            }
        }
        let (mut one, mut other) = (0, 0);
        while one < old_mid.len() || other < new_mid.len() {
            let both = one < old_mid.len() && other < new_mid.len();
            if both && old_mid[one] == new_mid[other] {
                lines.push((LineMark::Same, old_mid[one]));
                (one, other) = (one + 1, other + 1);
            } else if other == new_mid.len()
                || (one < old_mid.len()
                    && table[(one + 1) * width + other] >= table[one * width + other + 1])
            {
                lines.push((LineMark::Removed, old_mid[one]));
                one += 1;
            } else {
                lines.push((LineMark::Added, new_mid[other]));
                other += 1;
            }
        }
    }
    lines.extend(old_rest[old_rest.len() - tail..].iter().map(same));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_shown_with_those_around_them() {
        let before = "a\nb\nc\nd\ne\nf\ng\n";
        let after = "a\nb\nc\nX\ne\nf\ng\nY\n";
        assert_eq!(of(before, after), "  …\n  b\n  c\n- d\n+ X\n  e\n  f\n  g\n+ Y\n");
        assert_eq!(of(before, before), "");
        assert_eq!(of("", "a"), "+ a\n");
        assert_eq!(of("a\u{1b}[2J", ""), "- a\\u{1b}[2J\n");
        assert_eq!(of("  a", "a"), "-   a\n+ a\n", "white space is part of a line");
    }
}
