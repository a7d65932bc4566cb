//! Times of day cut off dates that are said to be now.
//!
//! Cut and not moved: a line put behind the last message would be part of another one with the next
//! request, and what a client said as the system would be said as a user. Cut and not rounded:
//! midnight would be untrue. What a model loses is the hour.
//!
//! Only where the line says, before it, that it speaks of now. A time without a date (`open until
//! 17:00`) and a number that may be seconds since 1970 stay: they may be anything.

use serde_json::Value;

use super::system;

/// Cuts them in the system prompt.
pub(super) fn cut(request: &mut Value) -> bool {
    system::each_text(request, |said| {
        let lines = said.text.split_inclusive('\n').map(cut_line);
        Some(lines.collect())
    })
}

/// Words that say that what follows is now.
const NOW: [&str; 6] = ["now", "today", "current", "currently", "date", "time"];

/// Farthest that such a word may stand before the date, bytes: a short sentence.
const NOW_WITHIN: usize = 60;

fn cut_line(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    // Up to where the line is kept or cut.
    let mut done = 0;
    for at in 0..line.len() {
        if at < done || !is_word_start(line, at) {
            continue;
        }
        let Some((date_end, time_end)) = dated_time(line, at) else {
            continue;
        };
        kept.push_str(&line[done..at]);
        // Asked of what is kept: of the same text, when it is cut again.
        let end = if says_now(&kept) { date_end } else { time_end };
        kept.push_str(&line[at..end]);
        done = time_end;
    }
    kept.push_str(&line[done..]);
    kept
}

fn is_word_start(text: &str, at: usize) -> bool {
    // A date inside of a word or a longer number is something else.
    let before = text.as_bytes()[..at].last();
    text.is_char_boundary(at)
        && text.as_bytes()[at].is_ascii_alphanumeric()
        && before.is_none_or(|byte| byte.is_ascii() && !byte.is_ascii_alphanumeric())
}

fn says_now(before: &str) -> bool {
    let mut from = before.len().saturating_sub(NOW_WITHIN);
    // The window may begin inside of a character.
    while !before.is_char_boundary(from) {
        from += 1;
    }
    let mut words = before[from..].split(|c: char| !c.is_ascii_alphabetic());
    words.any(|word| NOW.iter().any(|now| now.eq_ignore_ascii_case(word)))
}

/// Finds the end of a date that begins at `at`, and the end of the time behind it, in bytes.
fn dated_time(text: &str, at: usize) -> Option<(usize, usize)> {
    // The reader works on a copy of the text, so that a failed attempt consumes nothing.
    let mut reader = DateReader { rest: &text[at..] };
    reader.date()?;
    let date_end = text.len() - reader.rest.len();
    reader.gap()?;
    reader.time()?;
    Some((date_end, text.len() - reader.rest.len()))
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Separators between a date and its time, longest first.
const GAPS: [&str; 8] = [", at ", " at ", " - ", ", ", "; ", "T", "_", " "];

/// Names of zones; other words behind a time may be anything.
const ZONES: [&str; 18] = [
    "UTC", "GMT", "CEST", "CET", "EEST", "EET", "BST", "WEST", "EST", "EDT", "CST", "CDT", "MST",
    "MDT", "PST", "PDT", "IST", "JST",
];

struct DateReader<'a> {
    rest: &'a str,
}

impl<'a> DateReader<'a> {
    /// Consumes `text`, if that comes next.
    fn eat(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// Between `least` and `most` digits, with no further one behind them.
    fn digits(&mut self, least: usize, most: usize) -> Option<u32> {
        let count = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        if count < least || count > most {
            return None;
        }
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        digits.parse().ok()
    }

    fn letters(&mut self) -> &'a str {
        let count = self.rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (letters, rest) = self.rest.split_at(count);
        self.rest = rest;
        letters
    }

    /// `2025-03-03`, `2025/03/03`, `3 March 2025`, `3rd of March, 2025`, `March 3, 2025`,
    /// `Mar 03 2025`.
    fn date(&mut self) -> Option<()> {
        if let Some(number) = self.digits(1, 4) {
            // Days end at 31, so a larger number is a year.
            if number > 31 {
                return self.numeric_date();
            }
            self.ordinal();
            self.blank()?;
            let _ = self.eat("of ");
            self.month()?;
        } else {
            self.month()?;
            self.blank()?;
            self.digits(1, 2)?;
            self.ordinal();
        }
        let _ = self.eat(",");
        self.blank()?;
        self.digits(4, 4)?;
        Some(())
    }

    /// Behind the year.
    fn numeric_date(&mut self) -> Option<()> {
        let mark = self.rest.chars().next().filter(|mark| "-/.".contains(*mark))?;
        let mark = mark.to_string();
        self.eat(&mark)?;
        self.digits(2, 2).filter(|month| (1..=12).contains(month))?;
        self.eat(&mark)?;
        self.digits(2, 2).filter(|day| (1..=31).contains(day))?;
        Some(())
    }

    fn month(&mut self) -> Option<()> {
        let word = self.letters();
        let is = |month: &&&str| {
            let full = month.eq_ignore_ascii_case(word);
            // Names of months are ASCII, so three bytes are three letters.
            full || month[..3].eq_ignore_ascii_case(word)
        };
        MONTHS.iter().find(is)?;
        let _ = self.eat(".");
        Some(())
    }

    fn ordinal(&mut self) {
        for end in ["st", "nd", "rd", "th"] {
            if self.eat(end).is_some() {
                return;
            }
        }
    }

    fn blank(&mut self) -> Option<()> {
        self.eat(" ")
    }

    fn gap(&mut self) -> Option<()> {
        GAPS.into_iter().find_map(|gap| self.eat(gap))
    }

    /// `14:05`, `14:05:12.481Z`, `02:05 PM +01:00`, `14:05:12 GMT+0000 (…)`.
    fn time(&mut self) -> Option<()> {
        self.digits(1, 2).filter(|&hour| hour < 25)?;
        self.eat(":")?;
        self.digits(2, 2)?;
        if self.rest.starts_with(':') && self.eat(":").is_some() {
            self.digits(2, 2)?;
            if self.rest.starts_with(['.', ','])
                && self.rest[1..].starts_with(|c: char| c.is_ascii_digit())
            {
                self.rest = self.rest[1..].trim_start_matches(|c: char| c.is_ascii_digit());
            }
        }
        self.half();
        self.zone();
        Some(())
    }

    /// Morning or afternoon, if it is said.
    fn half(&mut self) {
        let rest = self.rest.trim_start_matches([' ', '\u{202f}', '\u{a0}']);
        for half in ["AM", "PM", "am", "pm", "a.m.", "p.m."] {
            let Some(behind) = rest.strip_prefix(half) else {
                continue;
            };
            // `14:05 amber` does not say a half of the day.
            if !behind.starts_with(|c: char| c.is_alphanumeric()) {
                self.rest = behind;
                return;
            }
        }
    }

    /// The zone, if it is said.
    fn zone(&mut self) {
        if self.eat("Z").is_some() {
            return;
        }
        // A word that is no zone stays, with the space in front of it.
        let before = self.rest;
        let _ = self.eat(" ");
        let named = ZONES.into_iter().any(|zone| self.eat(zone).is_some());
        let is_offset = self.offset().is_some();
        let is_word = self.rest.starts_with(|c: char| c.is_alphanumeric());
        if is_word || !(named || is_offset) {
            self.rest = before;
            return;
        }
        // JavaScript writes the long name of the zone in brackets after the offset.
        let is_long = named && is_offset && self.rest.starts_with(" (");
        if is_long && let Some((_, rest)) = self.rest.split_once(')') {
            self.rest = rest;
        }
    }

    fn offset(&mut self) -> Option<()> {
        let behind = self.rest.strip_prefix(['+', '-'])?;
        let mut reader = DateReader { rest: behind };
        let hours = reader.digits(1, 4)?;
        if hours < 100 && reader.eat(":").is_some() {
            reader.digits(2, 2)?;
        }
        self.rest = reader.rest;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Normalizer, check_system};

    #[track_caller]
    fn check(text: &str, expected: &str) {
        check_system(Normalizer::Clock, text, expected);
    }

    #[test]
    fn times_go_and_days_stay() {
        check(
            "Current time: 2025-03-03T14:05:12.481Z\n\nYou are",
            "Current time: 2025-03-03\n\nYou are",
        );
        check("Today is Monday 3 March 2025, 14:05. Query", "Today is Monday 3 March 2025. Query");
        check(
            "Current date and time: Monday, March 3, 2025, 09:04:20 AM +00:00\nYou",
            "Current date and time: Monday, March 3, 2025\nYou",
        );
        check(
            "Today's date: Mon Mar 03 2025 14:05:12 GMT+0000 (Coordinated Universal Time)\n",
            "Today's date: Mon Mar 03 2025\n",
        );
        check(
            "It is now 3rd of March, 2025 at 2:05 p.m. in Rome",
            "It is now 3rd of March, 2025 in Rome",
        );
        check("now=2025/03/03 14:05:12 UTC+01:00;", "now=2025/03/03;");
        check(
            "Date: 2025-03-03 14:05, time: 2025-03-03 14:06 CET.",
            "Date: 2025-03-03, time: 2025-03-03.",
        );
    }

    #[test]
    fn everything_else_stays() {
        let stays = |text: &str| check(text, text);
        stays("Today is Monday, 3 March 2025.");
        stays("We are open today until 17:00, on 3 March until 14:00.");
        stays("The meeting of 2025-03-03 14:05 was long.");
        stays("Now: 1741010712, snapshot 20250303-140512");
        stays("The current version is 2025-13-03 14:05 and 2025-03-03T14 and 2025-03-03 at noon");
        stays("Aktuelle Zeit — 時刻: 2025-03-03 14:05 ü");
        stays("today is May 2025");
    }

    #[test]
    fn a_word_behind_a_time_is_no_zone() {
        check("Now 2025-03-03 14:05 PST and more", "Now 2025-03-03 and more");
        check("Now 2025-03-03 14:05 ISTANBUL", "Now 2025-03-03 ISTANBUL");
        check("Now 2025-03-03 14:05 -- careful", "Now 2025-03-03 -- careful");
    }
}
