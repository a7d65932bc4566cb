//! Dates, times of day and seconds since 1970, in figures.

use super::{is_boundary, lexicon};
use crate::text::word::Class;

/// A date, a time or a Unix time at the start of `rest`, with its length.
pub(super) fn scan(rest: &[u8]) -> Option<(usize, Class)> {
    let digits = digits(rest);
    match (digits, rest.get(digits)) {
        // `2026-11` is tried second, because each full date begins like it.
        (4, Some(b'-' | b'/' | b'.')) => year_first(rest).or_else(|| part_of_year(rest)),
        (4, Some(b'W')) => part_of_year(rest),
        (4, Some(b'Z' | b'z')) => {
            let is_time = is_hour(&rest[..4]) && is_boundary(rest.get(5));
            is_time.then_some((5, Class::Time))
        }
        (6, Some(b'A'..=b'Z')) => date_time_group(rest),
        (1 | 2, Some(b'A'..=b'Z')) if month(&rest[digits..]).is_some() => day_month(rest, digits),
        (1 | 2, Some(b'/' | b'.' | b'-')) => year_last(rest),
        (1 | 2, Some(b':' | b'a' | b'A' | b'p' | b'P' | b'h')) => {
            time(rest).map(|len| (len, Class::Time))
        }
        (8 | 14, _) => compact(rest, digits),
        (10 | 13 | 16 | 19, _) => epoch(rest, digits),
        _ => None,
    }
}

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// The number of one or two digits at the start of `bytes`, with its length.
fn small(bytes: &[u8]) -> Option<(u32, usize)> {
    let len = digits(bytes);
    matches!(len, 1 | 2).then(|| (number(&bytes[..len]), len))
}

fn number(digits: &[u8]) -> u32 {
    digits.iter().fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'))
}

fn is_year(year: u32) -> bool {
    (1900..2100).contains(&year)
}

fn is_day(month: u32, day: u32) -> bool {
    (1..=12).contains(&month) && (1..=31).contains(&day)
}

/// `2026-11-23`, perhaps with `T17:35:02.123+01:00` behind it.
fn year_first(rest: &[u8]) -> Option<(usize, Class)> {
    let separator = rest[4];
    let (month, month_len) = small(&rest[5..])?;
    let at = 5 + month_len;
    if rest.get(at) != Some(&separator) {
        return None;
    }
    let (day, day_len) = small(&rest[at + 1..])?;
    let len = at + 1 + day_len;
    if !is_year(number(&rest[..4])) || !is_day(month, day) {
        return None;
    }
    dated(rest, len)
}

/// A date of `len` bytes, perhaps with `T` or `_` and a time behind it.
fn dated(rest: &[u8], len: usize) -> Option<(usize, Class)> {
    if matches!(rest.get(len), Some(b'T' | b't' | b'_'))
        && let Some(time_len) = joined_time(&rest[len + 1..])
    {
        return Some((len + 1 + time_len, Class::Date));
    }
    is_boundary(rest.get(len)).then_some((len, Class::Date))
}

/// The length of a time as file names have it too: `17-35-02`, `17.35`, `173502`.
fn joined_time(rest: &[u8]) -> Option<usize> {
    if let Some(len) = time(rest) {
        return Some(len);
    }
    let mut len = digits(rest);
    match (len, rest.get(2)) {
        (4 | 6, _) => {}
        (2, Some(separator @ (b'-' | b'.'))) => {
            for _ in 0..2 {
                let is_next = rest.get(len) == Some(separator) && digits(&rest[len + 1..]) == 2;
                len += if is_next { 3 } else { 0 };
            }
        }
        _ => return None,
    }
    len += zone(&rest[len..]);
    is_boundary(rest.get(len)).then_some(len)
}

/// `2026-W48-1`, the 327th day `2026-327`, and `2026-11`, perhaps with a time behind it.
fn part_of_year(rest: &[u8]) -> Option<(usize, Class)> {
    let at = if rest[4] == b'-' { 5 } else { 4 };
    if !is_year(number(&rest[..4])) || rest[4] == b'/' || rest[4] == b'.' {
        return None;
    }
    if rest.get(at) == Some(&b'W') {
        let len = at + 1 + digits(&rest[at + 1..]);
        let is_week = len == at + 3 && (1..=53).contains(&number(&rest[at + 1..len]));
        let day = rest.get(len) == Some(&b'-') && digits(&rest[len + 1..]) == 1;
        return is_week.then(|| dated(rest, if day { len + 2 } else { len })).flatten();
    }
    let len = at + digits(&rest[at..]);
    // At most three figures are read: a longer run would overflow.
    let part = number(&rest[at..len.min(at + 3)]);
    let is_part = match len - at {
        2 => (1..=12).contains(&part) && rest.get(len) != Some(&b'-'),
        3 => (1..=366).contains(&part),
        _ => false,
    };
    is_part.then(|| dated(rest, len)).flatten()
}

/// Whether four figures are an hour and its minutes.
fn is_hour(figures: &[u8]) -> bool {
    number(&figures[..2]) < 24 && number(&figures[2..4]) < 60
}

/// The name of a month, or its first three letters, at the start of `rest`: its length.
fn month(rest: &[u8]) -> Option<usize> {
    let len = rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    (lexicon::class(&rest[..len])? == Class::Month).then_some(len)
}

/// `23NOV2026`, `2Mar26`.
fn day_month(rest: &[u8], day_len: usize) -> Option<(usize, Class)> {
    let at = day_len + month(&rest[day_len..])?;
    let len = at + digits(&rest[at..]);
    let is_date = matches!(len - at, 2 | 4) && (1..=31).contains(&number(&rest[..day_len]));
    is_date.then(|| dated(rest, len)).flatten()
}

/// `231735ZNOV26`, as armies and ships write it: day, time, zone, month, year. `231735Z` alone.
fn date_time_group(rest: &[u8]) -> Option<(usize, Class)> {
    let is_group = (1..=31).contains(&number(&rest[..2])) && is_hour(&rest[2..6]);
    if !is_group {
        return None;
    }
    if let Some(month_len) = month(&rest[7..]) {
        let at = 7 + month_len;
        let len = at + digits(&rest[at..]);
        let is_date = matches!(len - at, 0 | 2 | 4) && is_boundary(rest.get(len));
        return is_date.then_some((len, Class::Date));
    }
    (rest[6] == b'Z' && is_boundary(rest.get(7))).then_some((7, Class::Time))
}

/// `23/11/2026`, `11/23/26`, `23.11.2026`, `23-11-2026`.
fn year_last(rest: &[u8]) -> Option<(usize, Class)> {
    let (one, one_len) = small(rest)?;
    let separator = rest[one_len];
    let (other, other_len) = small(&rest[one_len + 1..])?;
    let at = one_len + 1 + other_len;
    if rest.get(at) != Some(&separator) {
        return None;
    }
    let year_len = digits(&rest[at + 1..]);
    let len = at + 1 + year_len;
    let is_right = match year_len {
        4 => is_year(number(&rest[at + 1..len])),
        2 => separator == b'/',
        _ => false,
    };
    let is_date = is_right && (is_day(one, other) || is_day(other, one));
    (is_date && is_boundary(rest.get(len))).then_some((len, Class::Date))
}

/// The length of `17:35`, `17:35:02.123Z`, `5:35pm` or `5pm` at the start of `rest`.
fn time(rest: &[u8]) -> Option<usize> {
    let (hour, mut len) = small(rest)?;
    if let Some(noon) = half(&rest[len..]) {
        return (hour <= 12).then_some(len + noon);
    }
    let mut parts = 0;
    while parts < 2 && is_between(rest.get(len), parts) {
        let part = rest.get(len + 1..len + 3).filter(|part| digits(part) == 2);
        match part.map(number) {
            Some(0..60) => len += 3,
            _ => break,
        }
        parts += 1;
    }
    if parts == 0 || hour > 24 {
        return None;
    }
    if matches!(rest.get(len), Some(b'.' | b',')) && parts == 2 {
        let fraction = digits(&rest[len + 1..]);
        len += if fraction > 0 { 1 + fraction } else { 0 };
    }
    if let Some(noon) = half(&rest[len..]) {
        return Some(len + noon);
    }
    len += zone(&rest[len..]);
    is_boundary(rest.get(len)).then_some(len)
}

/// Whether a byte stands between hours, minutes and seconds: `17:35`, and in French `17h35`.
fn is_between(byte: Option<&u8>, parts: usize) -> bool {
    byte == Some(&b':') || (parts == 0 && byte == Some(&b'h'))
}

/// The length of `am` or `pm`, as a whole word.
fn half(rest: &[u8]) -> Option<usize> {
    let word = rest.get(..2)?.to_ascii_lowercase();
    (matches!(&word[..], b"am" | b"pm") && is_boundary(rest.get(2))).then_some(2)
}

/// Returns the length of a time zone, such as `Z`, `+01:00` or `-0800`; 0 without one.
fn zone(rest: &[u8]) -> usize {
    match rest.first() {
        Some(b'Z' | b'z') if is_boundary(rest.get(1)) => 1,
        Some(b'+' | b'-') => match (digits(&rest[1..]), rest.get(3)) {
            (4, _) => 5,
            (2, Some(b':')) if digits(&rest[4..]) == 2 => 6,
            _ => 0,
        },
        _ => 0,
    }
}

/// `20261123`, `20261123T173502Z`, `20261123173502`.
fn compact(rest: &[u8], digits_len: usize) -> Option<(usize, Class)> {
    let (year, month, day) = (number(&rest[..4]), number(&rest[4..6]), number(&rest[6..8]));
    let mut len = digits_len;
    if !is_year(year) || !is_day(month, day) {
        return None;
    }
    if len == 8
        && matches!(rest.get(8), Some(b'T' | b'_' | b'-'))
        && matches!(digits(&rest[9..]), 4 | 6)
    {
        len = 9 + digits(&rest[9..]);
        len += zone(&rest[len..]);
    }
    is_boundary(rest.get(len)).then_some((len, Class::Date))
}

/// Seconds, milliseconds, microseconds or nanoseconds since 1970, from 2014 to 2039.
fn epoch(rest: &[u8], digits_len: usize) -> Option<(usize, Class)> {
    // The first nine digits are tens of seconds in each of the four units.
    let seconds = number(&rest[..9]);
    if !(140_000_000..220_000_000).contains(&seconds) {
        return None;
    }
    let mut len = digits_len;
    if rest.get(len) == Some(&b'.') && digits(&rest[len + 1..]) > 0 {
        len += 1 + digits(&rest[len + 1..]);
    }
    is_boundary(rest.get(len)).then_some((len, Class::Epoch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<(&str, Class)>) {
        let found = scan(text.as_bytes()).map(|(len, class)| (&text[..len], class));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn dates_in_figures_are_one_word() {
        for date in [
            "2026-11-23",
            "2026/11/23",
            "2026.11.23",
            "2026-1-3",
            "23/11/2026",
            "11/23/26",
            "23.11.2026",
            "23-11-2026",
            "20261123",
            "20261123T173502Z",
            "20261123173502",
            "2026-11-23T17:35:02Z",
            "2026-11-23T17:35:02.123456+00:00",
            "2026-11-23T17:35",
        ] {
            check(date, Some((date, Class::Date)));
            check(&format!("{date}, and"), Some((date, Class::Date)));
        }
        check("2026-11-23 17:35", Some(("2026-11-23", Class::Date)));
    }

    #[test]
    fn times_of_day_are_one_word() {
        for time in
            ["17:35", "9:41", "17:35:02", "17:35:02.123", "5:35pm", "5PM", "17:35Z", "17h35"]
        {
            check(time, Some((time, Class::Time)));
            check(&format!("{time}."), Some((time, Class::Time)));
        }
        check("9:41 AM", Some(("9:41", Class::Time)));
    }

    #[test]
    fn unix_times_are_told_by_their_length() {
        for epoch in [
            "1732383299",
            "1732383299.123",
            "1732383299123",
            "1732383299123456",
            "1732383299123456789",
        ] {
            check(epoch, Some((epoch, Class::Epoch)));
        }
    }

    #[test]
    fn other_numbers_are_no_times() {
        for text in [
            "17",
            "2026",
            "1.2.3",
            "10.0.0.7",
            "2026-13-40",
            "17:61",
            "25:10",
            "3:1",
            "9999999999",
            "12345678",
            "2026-11-23x",
            "5amber",
            "1/2",
            "99/99/2026",
            "1732383299123a",
        ] {
            check(text, None);
        }
    }
}
