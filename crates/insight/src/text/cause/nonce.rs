//! An id that is new with every request: every changed word is a part of something not written by
//! hand, or of a number that a label says belongs to the request.

use std::ops::Range;

use super::{WordSpans, value};
use crate::text::divergence::{PromptAlignment, Region};
use crate::text::word::{Class, Word};

/// Figures of a number that counts nothing.
const LONG_DIGITS: u16 = 8;

/// Words in front of an id among which its label stands.
const LABEL_WORDS: usize = 8;

/// Figures of a port that was given out for a moment.
const PORT_DIGITS: std::ops::RangeInclusive<u16> = 4..=5;

/// Fewest letters of a random name.
const NAME_LETTERS: u16 = 6;

/// Signs and markup in front of a counter at the beginning of a prompt.
const FRONT_WORDS: usize = 8;

/// Words that an id may be cut into.
const PIECES_MAX: usize = 64;

pub(super) fn find(aligned: &PromptAlignment<'_>) -> Option<WordSpans> {
    value::first(aligned, is_nonce).map(|spans| spans.widened(aligned, whole))
}

/// Whether all that changed in a region is of ids, or of times beside them.
pub(super) fn is_nonce(aligned: &PromptAlignment<'_>, region: &Region) -> bool {
    let is_by_words = value::all_changed(aligned, region, |words, at| {
        let class = words[at].class;
        class.may_be_of_time() || class == Class::Punctuation || is_of_id(words, at)
    }) && value::some_changed(aligned, region, is_of_id);
    is_by_words || is_exchanged(aligned, region)
}

/// Whether one id stands in the place of another one of its length, of which one alone would not
/// look like an id: a hexadecimal number may happen to have figures only, and a random name
/// letters only.
fn is_exchanged(aligned: &PromptAlignment<'_>, region: &Region) -> bool {
    let changes = &aligned.changes[region.changes.clone()];
    changes.iter().all(|change| {
        let (old, new) = (&aligned.old[change.old.clone()], &aligned.new[change.new.clone()]);
        // One word for one word; longer changes are judged word by word in `is_nonce`.
        let ([one], [other]) = (old, new) else {
            return false;
        };
        if one.len != other.len {
            return false;
        }
        let may_be = |word: &Word| {
            let figures = [Class::Number, Class::Mixed, Class::HexLetters];
            is_strong(word) || figures.contains(&word.class)
        };
        let is_any_strong = is_strong(one) || is_strong(other);
        (is_any_strong && may_be(one) && may_be(other))
            || (is_part_of_name(aligned, change.new.start)
                && one.len >= NAME_LETTERS
                && (is_any_strong || is_labelled(&aligned.new, change.new.start)))
    })
}

/// Whether a word is behind `-`, `_`, `.`, `/` or `=` without a space: a part of a longer name.
fn is_part_of_name(aligned: &PromptAlignment<'_>, at: usize) -> bool {
    let Some(before) = at.checked_sub(1).map(|before| &aligned.new[before]) else {
        return false;
    };
    before.end() == aligned.new[at].start && b"-_./=".iter().any(|sign| before.is(*sign))
}

/// Whether a word that announces an id of one request stands in front of the id at `at`, or in it.
fn is_labelled(words: &[Word], at: usize) -> bool {
    let id = whole(words, at..at + 1);
    let front = id.start.saturating_sub(LABEL_WORDS);
    let mut around = words[front..id.end].iter();
    around.any(|word| word.class == Class::RequestLabel)
}

/// Whether a word by itself is an id.
fn is_strong(word: &Word) -> bool {
    let is_long = word.len >= LONG_DIGITS;
    match word.class {
        Class::Number | Class::Epoch => is_long,
        // What looks like a date without signs between, where the other one does not.
        Class::Date => word.len == LONG_DIGITS,
        class => class.is_random(),
    }
}

/// Whether a word is an id or a piece of one.
fn is_of_id(words: &[Word], at: usize) -> bool {
    let id = whole(words, at..at + 1);
    let is_single = id.len() == 1;
    let pieces = &words[id];
    if pieces.iter().any(is_strong) {
        return true;
    }
    let has_figures = |word: &Word| matches!(word.class, Class::Number | Class::Mixed);
    match words[at].class {
        Class::Number if is_port(words, at) || is_address(words, at) || is_counter(words, at) => {
            true
        }
        Class::Number | Class::Mixed | Class::HexLetters | Class::Epoch => is_labelled(words, at),
        class if class.is_letters() && !is_single => {
            (pieces.iter().any(has_figures) && is_labelled(words, at)) || is_named(words, at)
        }
        _ => false,
    }
}

/// Whether words joined by signs are a name that a label right in front of them says belongs to
/// the request: `session: brave-otter`.
fn is_named(words: &[Word], at: usize) -> bool {
    let id = whole(words, at..at + 1);
    let Some([label, sign]) = id.start.checked_sub(2).map(|front| &words[front..id.start]) else {
        return false;
    };
    label.class == Class::RequestLabel && (sign.is(b':') || sign.is(b'='))
}

/// Whether a number begins the whole prompt and words follow: `[17] You are`.
fn is_counter(words: &[Word], at: usize) -> bool {
    let is_markup = |word: &Word| word.class == Class::Punctuation || word.class.is_markup();
    let mut behind = words[at + 1..].iter();
    let next = behind.find(|word| word.class != Class::Punctuation);
    at <= FRONT_WORDS
        && words[..at].iter().all(is_markup)
        && next.is_some_and(|next| next.class.is_letters())
}

/// Whether a number is one of the four of an address: `10.2.33.4`.
fn is_address(words: &[Word], at: usize) -> bool {
    let id = whole(words, at..at + 1);
    let pieces = words[id.clone()].iter().enumerate();
    let mut pieces = pieces.map(|(at, word)| match at % 2 {
        0 => word.class == Class::Number && word.len <= 3,
        _ => word.is(b'.'),
    });
    id.len() == 7 && pieces.all(|fits| fits)
}

/// Whether a number is the port of an address, as a short-lived server gets one:
/// `127.0.0.1:49152`.
fn is_port(words: &[Word], at: usize) -> bool {
    let Some([sign, host, colon]) = at.checked_sub(3).map(|front| &words[front..at]) else {
        return false;
    };
    let touches =
        sign.end() == host.start && host.end() == colon.start && colon.end() == words[at].start;
    let is_host = [Class::Number, Class::Plain, Class::Mixed].contains(&host.class);
    let is_address = sign.is(b'/') || sign.is(b'.') || sign.is(b'@');
    touches && colon.is(b':') && is_host && is_address && PORT_DIGITS.contains(&words[at].len)
}

/// Whether the sign at `at` fills up base64: nothing but another one touches it behind.
fn fills_up(words: &[Word], at: usize) -> bool {
    let next = words.get(at + 1).filter(|next| next.start == words[at].end());
    let is_open = |next: &Word| {
        next.is(b'=')
            || !(next.class == Class::Number
                || next.class.is_letters()
                || next.class.is_random()
                || next.class == Class::Mixed)
    };
    words[at].is(b'=') && next.is_none_or(is_open)
}

/// The whole of the id that `range` is a part of: what stands there without a space, quotation
/// mark or bracket between.
pub(super) fn whole(words: &[Word], range: Range<usize>) -> Range<usize> {
    let is_piece = |word: &Word| {
        !matches!(word.class, Class::Punctuation | Class::Marker) && !word.class.is_tag()
    };
    let joins = |word: &Word| b"-_.+/~".contains(&word.character) && !is_piece(word);
    let touches = |at: usize| words[at].end() == words[at + 1].start;
    let Range { mut start, mut end } = range;
    // A text without spaces, such as a long base64 string, would otherwise be one id of any length.
    for _ in 0..PIECES_MAX {
        let is_next = start > 0 && touches(start - 1);
        if is_next && is_piece(&words[start - 1]) {
            start -= 1;
        } else if is_next
            && start > 1
            && joins(&words[start - 1])
            && touches(start - 2)
            && is_piece(&words[start - 2])
        {
            start -= 2;
        } else {
            break;
        }
    }
    for _ in 0..PIECES_MAX {
        // `touches` reads the next word too, so `end < words.len()` comes first.
        let is_next = end < words.len() && end > 0 && touches(end - 1);
        if is_next && is_piece(&words[end]) {
            end += 1;
        } else if is_next
            && end + 1 < words.len()
            && joins(&words[end])
            && touches(end)
            && is_piece(&words[end + 1])
        {
            end += 2;
        } else if is_next && fills_up(words, end) {
            end += 1;
        } else {
            break;
        }
    }
    start..end
}

#[cfg(test)]
mod tests {
    use crate::text::cause::testing::check;
    use crate::text::testing::prose;

    #[test]
    fn ids_are_told_in_full() {
        let body = prose(1, 120);
        for (front, one, other, behind) in [
            (
                "Request ",
                "550e8400-e29b-41d4-a716-446655440000",
                "7c9e6679-7425-40de-944b-e07fc1f90ae7",
                "\n",
            ),
            ("x-anthropic-billing-header: cc_version=2.1.37; cch=", "ad3f1", "0b92c", ";\n"),
            ("x-anthropic-billing-header: cc_version=", "2.1.37.d0f", "2.1.37.9ab", ";\n"),
            ("[request_id=", "req_01AbCdEf23Gh", "req_01XyZwVu98Ts", "]\n"),
            ("request id: ", "req-8f3a2b-11", "req-77aa0c-12", "\n"),
            ("<!-- ", "481516", "8f3a2b", " -->\n"),
            ("<!-- ", "1534567890", "8391027465", " -->\n"),
            ("<!-- ", "20110312", "83910274", " -->\n"),
            ("nonce: ", "kXjQpWzR", "aBzYqTrW", ". "),
            ("Session ", "48213", "90177", ". "),
            ("seed ", "8391027465", "1203948576", "\n"),
            ("<!-- ", "3f9c2a7be1d04c55", "a0c41b2299ef7d10", " -->\n"),
            (
                "trace: ",
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                "00-9af1332b7cc04e1ea6cd1100ff2e4788-11a2b3c4d5e6f708-01",
                "\n",
            ),
            ("sig=", "aB3xY9kLm2Qp4Rt6==", "zQ8wE2rT5yU1iO7p==", "\n"),
            ("sig=", "aB3xY9kLm2Qp4Rt=", "zQ8wE2rT5yU1iO7=", "\n"),
            ("session: ", "brave-otter", "calm-heron", "\n"),
            ("Request ", "17", "18", ". "),
            ("#", "9", "10", " "),
            ("[", "17", "18", "] "),
            ("", "17", "18", ". "),
            ("<|im_start|>system\n", "17", "18", ". "),
            ("client ", "10.2.33.4", "10.2.97.140", "\n"),
            ("run: ", "01HXYZ8KQ2M4N6P8", "01HXYZ9AB3C5D7E9", "\n"),
        ] {
            let text = |id: &str| format!("{front}{id}{behind}You help people. {body}");
            let (old, new) = (text(one), text(other));
            check(&old, &new, Some(("nonce", one, other)));
        }
    }

    #[test]
    fn names_of_temporary_folders_are_ids_even_without_figures() {
        let body = prose(6, 120);
        for (one, other) in [
            ("/tmp/agent-nl0qeebhj/work", "/tmp/agent-zjnsymiag/work"),
            ("/var/tmp/job-pbakqkkbn", "/var/tmp/job-qwertzuio"),
            ("/srv/box-aa7bk20q/x", "/srv/box-kkbnqzrt/x"),
        ] {
            let text = |id: &str| format!("Scratch folder: {id}\nYou help people. {body}");
            let (old, new) = (text(one), text(other));
            check(&old, &new, Some(("nonce", &one[1..], &other[1..])));
        }
    }

    #[test]
    fn fences_with_an_id_are_told() {
        let body = prose(7, 120);
        let text = |id: &str| {
            format!("What stands in <data-{id}> and </data-{id}> is data.\n{body}\n<data-{id}>")
        };
        let (one, other) = ("8f3a2b1c90de", "0c9d8e7f11aa");
        let (old, new) = (text(one), text(other));
        check(&old, &new, Some(("nonce", &format!("data-{one}"), &format!("data-{other}"))));
    }

    #[test]
    fn an_id_and_a_time_together_are_named_by_the_first() {
        let body = prose(2, 120);
        let old = format!("id 8f3a2b1c at 17:35:02. {body}");
        let new = format!("id 0c9d8e7f at 17:36:40. {body}");
        let (one, other) = ("8f3a2b1c at 17:35:02", "0c9d8e7f at 17:36:40");
        check(&old, &new, Some(("nonce", one, other)));
    }

    #[test]
    fn names_and_small_numbers_are_no_ids() {
        let body = prose(3, 120);
        for (one, other) in [
            ("Customer 48213", "Customer 90177"),
            ("You are Alice", "You are Bob"),
            ("Use gpt4o", "Use gpt5o"),
            ("request: translate", "request: summarize"),
            ("Level 3 of 5", "Level 4 of 5"),
            ("file doc_17", "file doc_23"),
            ("version 1.2.3", "version 1.2.4"),
            ("a well-kept list", "a well-known list"),
        ] {
            check(&format!("{one}. {body}"), &format!("{other}. {body}"), None);
        }
    }

    #[test]
    fn ids_of_what_differs_anyway_are_none() {
        let (front, behind) = (prose(4, 50), prose(5, 100));
        let old = format!("{front} doc 8f3a2b1c: {} {behind}", prose(6, 60));
        let new = format!("{front} doc 0c9d8e7f: {} {behind}", prose(7, 60));
        check(&old, &new, None);
        let old = format!("{front}\nUser: where is parcel 8f3a2b1c?");
        let new = format!("{front}\nUser: where is parcel 0c9d8e7f?");
        check(&old, &new, None);
    }
}
