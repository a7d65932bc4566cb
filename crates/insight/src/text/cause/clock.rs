//! A date or a time that moves on: every changed word says a time, or belongs to one that does.

use std::ops::Range;

use super::{WordSpans, value};
use crate::text::divergence::{PromptAlignment, Region};
use crate::text::word::{Class, Word};

/// Words between a number and the word that makes it a time.
const BESIDE_WORDS: usize = 3;

/// Words between a number and a time in the same phrase, of numbers, signs and short words.
const PHRASE_WORDS: usize = 8;

/// Longest word that joins the parts of a time, bytes: `at`, `the`.
const JOINT_BYTES: u16 = 3;

/// Numbers and commas in brackets behind a word of time.
const ARGUMENT_WORDS: usize = 20;

/// Longest number that is a day, an hour or a year, digits.
const NUMBER_DIGITS: u16 = 4;

/// Words of a line that says the time, and those of them that are no time, where no label such as
/// `today` is among them.
const LINE_WORDS: usize = 24;
const PLAIN_WORDS: usize = 3;

pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    let moved_on = value::first(aligned, is_clock).map(|spans| spans.widened(aligned, whole));
    // Or a line that says the time and that only one of both has.
    moved_on.or_else(|| value::first(aligned, is_line))
}

/// Whether a region is a line that says the time in one text, and nothing in the other.
fn is_line(aligned: &PromptAlignment<'_>, region: &Region) -> bool {
    let (old, new) = aligned.span(region);
    let (words, line) = match (old.is_empty(), new.is_empty()) {
        (true, false) => (&aligned.new, new),
        (false, true) => (&aligned.old, old),
        // A line that both have is a changed value, which `moved_on` looks at.
        _ => return false,
    };
    let class = |at: usize| words[at].class;
    let has_label = line.clone().any(|at| class(at) == Class::TimeLabel);
    let is_time = |at: usize| match class(at) {
        Class::Date | Class::Time | Class::Epoch => true,
        // A month or a part of the day is a time only in a line with a label such as `today`.
        class => has_label && class.is_time(),
    };
    let is_plain = |at: usize| class(at) != Class::Punctuation && !class(at).may_be_of_time();
    let plain = line.clone().filter(|&at| is_plain(at)).count();
    let most = if has_label { LINE_WORDS / 2 } else { PLAIN_WORDS };
    let is_short = line.len() <= LINE_WORDS && plain <= most;
    let mut line = line;
    is_short && line.any(is_time)
}

/// Whether all that changed in a region is of a time.
pub(super) fn is_clock(aligned: &PromptAlignment<'_>, region: &Region) -> bool {
    value::all_changed(aligned, region, |words, at| {
        let class = words[at].class;
        class == Class::Punctuation || class.may_be_of_time() || is_joint(words, at)
    }) && value::some_changed(aligned, region, says_time)
}

/// Whether a short word joins parts of a time: `twenty to five`.
fn is_joint(words: &[Word], at: usize) -> bool {
    let may_be = |at: usize| words.get(at).is_some_and(|word| word.class.may_be_of_time());
    is_short(words, at) && at > 0 && may_be(at - 1) && may_be(at + 1)
}

/// Whether a word is short, and no character of a script without spaces.
fn is_short(words: &[Word], at: usize) -> bool {
    let word = &words[at];
    // A character of a script without spaces is as short, and may mean anything.
    word.class == Class::Plain && word.len <= JOINT_BYTES && !is_inside(words, at)
}

/// Whether a word has no space on either side, as characters of scripts without spaces have none.
fn is_inside(words: &[Word], at: usize) -> bool {
    let is_touched = at > 0 && touch(words, at - 1) && touch(words, at);
    words[at].class == Class::Plain && is_touched
}

/// Whether a word says a time, or is a number beside one that makes it a time.
fn says_time(words: &[Word], at: usize) -> bool {
    let class = words[at].class;
    let around = at.saturating_sub(BESIDE_WORDS)..(at + BESIDE_WORDS + 1).min(words.len());
    match class {
        _ if class.is_time() => true,
        _ if class.is_figure() => {
            is_near_time(words, around, at)
                || touches_sign(words, at)
                || is_argument(words, at)
                || is_of_phrase(words, at)
        }
        Class::Zone | Class::TimeLabel | Class::TimeUnit | Class::TimeSign => {
            let is_figure = |word: &Word| word.class.is_figure() || word.class.is_time();
            words[around].iter().any(is_figure)
        }
        _ => false,
    }
}

/// Whether a word makes a number beside it a time. Signs, which must touch it, do not count.
fn is_beside(word: &Word) -> bool {
    let is_sign = word.class == Class::TimeSign;
    !is_sign && !word.class.is_figure() && word.class.may_be_of_time()
}

/// Whether a word `around` makes the number at `at` a time, over words that have spaces.
fn is_near_time(words: &[Word], mut around: Range<usize>, at: usize) -> bool {
    around.any(|other| {
        let mut between = other.min(at) + 1..other.max(at);
        is_beside(&words[other]) && !between.any(|at| is_inside(words, at))
    })
}

/// Whether a character that counts time stands right in front of a figure or right behind it.
fn touches_sign(words: &[Word], at: usize) -> bool {
    let is_sign = |other: usize| words.get(other).is_some_and(|word| word.class == Class::TimeSign);
    (at > 0 && is_sign(at - 1) && touch(words, at - 1)) || (is_sign(at + 1) && touch(words, at))
}

/// Whether nothing stands between the word at `at` and the next.
fn touch(words: &[Word], at: usize) -> bool {
    let next = words.get(at + 1);
    next.is_some_and(|next| words[at].end() == next.start)
}

/// Whether nothing but numbers, signs and short words stands between a number and a time.
fn is_of_phrase(words: &[Word], at: usize) -> bool {
    let links = |at: &usize| {
        let word = &words[*at];
        let is_sign = b",-/:.()'".iter().any(|sign| word.is(*sign));
        is_sign || word.class.is_figure() || is_short(words, *at)
    };
    let mut front = (0..at).rev().take(PHRASE_WORDS);
    let mut behind = (at + 1..words.len()).take(PHRASE_WORDS);
    let says = |at: Option<usize>| at.is_some_and(|at| is_beside(&words[at]));
    says(front.find(|at| !links(at))) || says(behind.find(|at| !links(at)))
}

/// Whether a number is one of several that a word of time has in brackets: `datetime(2026, 3, 4)`.
fn is_argument(words: &[Word], at: usize) -> bool {
    let front = &words[at.saturating_sub(ARGUMENT_WORDS)..at];
    let is_list = |word: &&Word| word.class == Class::Number || word.is(b',');
    let list = front.iter().rev().take_while(is_list).count();
    match &front[..front.len() - list] {
        [.., label, bracket] => bracket.is(b'(') && label.class == Class::TimeLabel,
        _ => false,
    }
}

/// The whole of the time that `range` is a part of: `Monday, March 3` where only `3` changed.
pub(super) fn whole(words: &[Word], range: Range<usize>) -> Range<usize> {
    let is_part = |at: usize| {
        let word = &words[at];
        word.class.is_time()
            || matches!(word.class, Class::Zone | Class::TimeUnit | Class::TimeSign)
            || (word.class.is_figure() && word.len <= NUMBER_DIGITS)
    };
    let joins = |word: &Word| b",-/:+".iter().any(|sign| word.is(*sign));
    let Range { mut start, mut end } = range;
    while start > 0 {
        // A zone ends a time, so one in front belongs to another time.
        if is_part(start - 1) && words[start - 1].class != Class::Zone {
            start -= 1;
        } else if start > 1
            && is_part(start - 2)
            && !matches!(words[start - 2].class, Class::TimeUnit | Class::TimeSign)
            && joins(&words[start - 1])
        {
            start -= 2;
        } else {
            break;
        }
    }
    while end < words.len() {
        if is_part(end) {
            end += 1;
        } else if end + 1 < words.len() && is_part(end + 1) && joins(&words[end]) {
            end += 2;
        } else {
            break;
        }
    }
    start..end
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::{check, found};
    use crate::text::testing::prose;

    #[test]
    fn times_that_move_on_are_told_in_full() {
        let body = prose(1, 120);
        for (front, one, other, behind) in [
            ("Now: ", "2026-11-23T17:35:02Z", "2026-11-23T17:35:09Z", "\n"),
            ("Current date: ", "Monday, March 3", "Tuesday, March 4", ".\n"),
            ("Current date: ", "Monday, March 3, 2026", "Monday, March 10, 2026", "\n"),
            ("Today is ", "March 3rd, 2026", "March 4th, 2026", ". "),
            ("It is ", "9:41 AM", "9:42 AM", ". "),
            ("It is ", "11:59 AM", "12:01 PM", " now. "),
            ("timestamp=", "1732383299", "1732383305", "\n"),
            ("ts: ", "1732383299.123", "1732383305.9", "\n"),
            ("Date: ", "2026-11-23 17:35:02", "2026-11-23 17:36:40", "\n"),
            ("Date: ", "23 Nov 2026", "24 Nov 2026", "\n\n"),
            ("Date: ", "Mon, 23 Nov 2026 17:35:02 +0000", "Mon, 23 Nov 2026 17:39:11 +0000", "\n"),
            ("Knowledge cutoff: 2024-06\nCurrent date: ", "2026-11-23", "2026-11-24", "\n"),
            ("<date>", "11/23/2026", "11/24/2026", "</date>\n"),
            ("Today's date is ", "2026年11月23日", "2026年11月24日", "。"),
            ("(", "17:35 CET", "18:02 CET", ") "),
            ("Time: ", "5pm", "6pm", ". "),
            ("It is ", "9 a.m.", "10 a.m.", " now. "),
            ("It is about ", "9 am", "10 am", ", so be quick. "),
            ("Il est ", "14 h 05", "14 h 12", ". "),
            ("Time: ", "1430 hrs", "1455 hrs", ", be quick. "),
            ("Time now: ", "1405Z", "1412Z", "\n"),
            ("Group: ", "021405ZMAR26", "021412ZMAR26", "\n"),
            ("On: ", "02MAR2026", "03MAR2026", "\n"),
            ("Period: ", "2026-W10-1", "2026-W10-2", "\n"),
            ("day: ", "2026-061T14:05:11Z", "2026-061T14:05:12Z", "\n"),
            ("Log: ", "20260302_140511", "20260302_140703", ".txt\n"),
            ("run at ", "2026-03-02_14-05-11", "2026-03-02_14-07-03", "\n"),
            ("Month: ", "2026-03", "2026-04", "\n"),
            ("Сегодня ", "2 марта", "3 марта", " года. "),
            ("今天是", "星期一", "星期二", "。"),
            ("现在是", "下午3点05分", "下午4点10分", "。"),
            ("本日は", "3月5日14時30分", "3月5日15時02分", "です。"),
            ("지금은 ", "11월 23일", "11월 24일", "입니다. "),
        ] {
            let text = |time: &str| format!("You help people. {front}{time}{behind}{body}");
            let (old, new) = (text(one), text(other));
            check(&old, &new, Some(("clock", one, other)));
        }
    }

    #[test]
    fn a_line_with_the_time_that_comes_or_goes_is_a_clock() {
        let body = prose(14, 120);
        for line in [
            "Today is 2026-11-25.",
            "Today's date: Wednesday, November 25, 2026",
            "The current date is 2026-11-25.",
            "Current time: 17:35 UTC",
            "It is 17:35 now.",
            "[2026-11-25T17:35:02Z]",
        ] {
            for front in ["You help people.\n", ""] {
                let with = format!("{front}{line}\n{body}");
                let without = format!("{front}{body}");
                for (old, new) in [(&with, &without), (&without, &with)] {
                    let (cause, one, other) = found(old, new).expect("a cause");
                    assert_eq!(cause, "clock", "{line}");
                    assert!(one.is_empty() != other.is_empty(), "{one:?}, {other:?}");
                }
            }
        }
        let rule = "Never book a meeting with a customer after 17:00 on any day.\n";
        let told = found(&body, &format!("{rule}{body}")).map(|cause| cause.0);
        assert_ne!(told, Some("clock"));
    }

    #[test]
    fn a_date_and_a_time_with_words_between_are_one_value() {
        let body = prose(2, 120);
        let old = format!("It is Monday, 2 March 2026 at 23:59. {body}");
        let new = format!("It is Tuesday, 3 March 2026 at 00:01. {body}");
        let (one, other) = ("Monday, 2 March 2026 at 23:59", "Tuesday, 3 March 2026 at 00:01");
        check(&old, &new, Some(("clock", one, other)));
    }

    #[test]
    fn times_in_words_are_told() {
        let body = prose(11, 120);
        for (one, other) in [
            ("ten past two in the afternoon", "twenty to five in the afternoon"),
            ("half past nine in the morning", "ten in the evening"),
            ("Monday the third of March", "Tuesday the fourth of March"),
            ("lundi 2 mars 2026 à 14 h 05", "lundi 2 mars 2026 à 15 h 41"),
            ("5 of March, at 17.35", "5 of March, at 17.41"),
        ] {
            let text = |time: &str| format!("You help people. It is {time}. {body}");
            let (old, new) = (text(one), text(other));
            let told = found(&old, &new).map(|cause| cause.0);
            assert_eq!(told, Some("clock"), "{one}");
        }
    }

    #[test]
    fn numbers_in_words_are_no_clock() {
        let body = prose(12, 120);
        for (one, other) in [
            ("Use three sentences", "Use four sentences"),
            ("The first rule", "The third rule"),
            ("Build 2026-99", "Build 2026-98"),
            ("Part 061405QX", "Part 061406QX"),
        ] {
            let (old, new) = (format!("{one}. {body}"), format!("{other}. {body}"));
            assert_ne!(found(&old, &new).map(|cause| cause.0), Some("clock"), "{one}");
        }
    }

    #[test]
    fn figures_beside_everyday_characters_are_no_clock() {
        let body = prose(13, 120);
        for (one, other) in [
            ("第1部分", "第2部分"),
            ("文档3要点", "文档4要点"),
            ("以下3点建议", "以下4点建议"),
            ("评分为5分", "评分为4分"),
            ("第3日目", "第4日目"),
            ("今天是3月5日。文档3", "今天是3月5日。文档4"),
            ("截至2026-03-05文档3", "截至2026-03-05文档4"),
            ("三个要点", "四个要点"),
            ("上の表", "下の表"),
        ] {
            let (old, new) = (format!("{one}. {body}"), format!("{other}. {body}"));
            assert_ne!(found(&old, &new).map(|cause| cause.0), Some("clock"), "{one}");
        }
    }

    #[test]
    fn dates_in_what_is_new_are_no_loss() {
        let front = prose(3, 200);
        let old = format!("{front}\nUser: what happened on 2026-03-04? Tell me in short.");
        let new = format!("{front}\nUser: what happened on 2026-03-05? Tell me in short.");
        check(&old, &new, None);
    }

    #[test]
    fn dates_in_another_document_are_none() {
        let (front, behind) = (prose(4, 50), prose(5, 100));
        let old = format!("{front}\nReport of 2026-03-04: {} {behind}", prose(6, 60));
        let new = format!("{front}\nReport of 2026-03-05: {} {behind}", prose(7, 60));
        check(&old, &new, None);
    }

    #[test]
    fn other_numbers_are_no_clock() {
        let body = prose(8, 120);
        for (one, other) in [("version 3", "version 4"), ("Room 12", "Room 17"), ("x=5", "x=6")] {
            check(&format!("{one}. {body}"), &format!("{other}. {body}"), None);
        }
    }
}
