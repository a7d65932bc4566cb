//! Azure's LLM inference traces, and BurstGPT's: CSV with arrivals and lengths, no blocks.
//!
//! ```text
//! TIMESTAMP,ContextTokens,GeneratedTokens
//! 2023-11-16 18:15:46.6805900,374,44
//!
//! Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
//! 5,ChatGPT,472,18,490,Conversation log
//! ```
//!
//! Columns are found by their names, in any order; others are passed over. Times are counted
//! from the first request. Days are those of the calendar; an offset at the end (`Z`, `+00:00`)
//! is read off the time, as the traces of 2024 need it.
//!
//! BurstGPT's times are seconds.
//!
//! Sources: Patel et al., "Splitwise", ISCA 2024; Wang et al., "BurstGPT", 2024; and the traces
//! published with them.

use headstart_core::{Nanos, TraceRequest};

use super::line_format::{LineFormat, OpenTrace, ParsedLine};
use crate::TraceInfo;

const NAMES: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

/// The same columns in BurstGPT's files.
const BURST_GPT_NAMES: [&str; 3] = ["Timestamp", "Request tokens", "Response tokens"];

/// Most columns of a line that are looked at.
const COLUMNS_MAX: usize = 64;

struct Azure {
    /// Indexes of the three columns in a line.
    columns: [usize; 3],
    is_header_read: bool,
    /// The first request's time, nanoseconds since 1970.
    start: Option<i128>,
}

/// Whether `line` names the columns.
pub(super) fn is_header(line: &str) -> bool {
    columns(line).is_ok()
}

pub(super) fn open<'a>(first: Option<&str>) -> Result<OpenTrace<'a>, String> {
    let azure = Azure {
        // An empty file has no line to take columns from, so any will do.
        columns: first.map_or(Ok([0, 1, 2]), columns)?,
        is_header_read: false,
        start: None,
    };
    Ok((Box::new(azure), TraceInfo::new(0)))
}

fn columns(header: &str) -> Result<[usize; 3], String> {
    let columns = columns_named(header, NAMES);
    columns.or_else(|name| {
        columns_named(header, BURST_GPT_NAMES)
            .map_err(|_| format!("no column {name}; expected the header {} first", NAMES.join(",")))
    })
}

/// The columns of these names, or the first name that has none.
fn columns_named(header: &str, names: [&'static str; 3]) -> Result<[usize; 3], &'static str> {
    let mut columns = [0; 3];
    for (column, name) in columns.iter_mut().zip(names) {
        let mut given = header.split(',').take(COLUMNS_MAX);
        let found = given.position(|given| given.trim().eq_ignore_ascii_case(name));
        *column = found.ok_or(name)?;
    }
    Ok(columns)
}

impl<'a> LineFormat<'a> for Azure {
    fn read(&mut self, line: &str, _: &mut TraceInfo) -> Result<ParsedLine<'a>, String> {
        if !self.is_header_read {
            self.is_header_read = true;
            return Ok(ParsedLine::Nothing);
        }
        let fields: Vec<&str> = line.split(',').take(COLUMNS_MAX).map(str::trim).collect();
        let field = |index: usize| {
            let field = fields.get(self.columns[index]).copied();
            field.ok_or_else(|| format!("no field for the column {}", NAMES[index]))
        };
        let tokens = |index: usize| {
            let field = field(index)?;
            field
                .parse::<u32>()
                .map_err(|error| format!("`{field}` is no {} ({error})", NAMES[index]))
        };
        let (input, output) = (tokens(1)?, tokens(2)?);
        let time = field(0)?;
        let seconds = || Some((time.parse::<f64>().ok().filter(|s| s.is_finite())? * 1e9) as i128);
        let time = nanos_since_1970(time).or_else(seconds).ok_or_else(|| {
            format!("`{time}` is no time; expected one like 2023-11-16 18:15:46.6805900")
        })?;
        let start = *self.start.get_or_insert(time);
        Ok(ParsedLine::Request(TraceRequest {
            // Before the first request there is no time: the reader puts it where it belongs.
            arrival: Nanos(u64::try_from(time - start).unwrap_or(0)),
            input_tokens: Some(input),
            output_tokens: Some(output),
            ..TraceRequest::default()
        }))
    }
}

/// `YYYY-MM-DD HH:MM:SS[.fraction][offset]` as nanoseconds since 1970.
pub(super) fn nanos_since_1970(text: &str) -> Option<i128> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let (time, offset_s) = split_offset(time)?;
    let mut date = date.splitn(3, '-');
    let (year, month, day) = (date.next()?, date.next()?, date.next()?);
    let mut time = time.splitn(3, ':');
    let (hours, minutes, seconds) = (time.next()?, time.next()?, time.next()?);
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let days = days_since_1970(number(year, 9999)?, number(month, 12)?, number(day, 31)?)?;
    // ISO 8601 allows 24:00, and a leap second is number 60.
    let in_day = number(hours, 24)? * 3600 + number(minutes, 59)? * 60 + number(seconds, 60)?;
    // Local time is ahead of UTC by the offset.
    let seconds = days * 86_400 + in_day - offset_s;
    Some(i128::from(seconds) * 1_000_000_000 + i128::from(nanos_of(fraction)?))
}

/// A time of day without its offset, and the offset in seconds.
fn split_offset(time: &str) -> Option<(&str, i64)> {
    let utc = ["Z", "z", " UTC"].iter().find_map(|suffix| time.strip_suffix(suffix));
    if let Some(time) = utc {
        return Some((time, 0));
    }
    // The date is already split off, so a sign can only begin an offset.
    let Some(at) = time.find(['+', '-']) else {
        return Some((time, 0));
    };
    let sign = if time[at..].starts_with('-') { -1 } else { 1 };
    // PostgreSQL leaves out minutes that are 0, other tools the colon.
    let offset = &time[at + 1..];
    let (hours, minutes) = offset
        .split_once(':')
        .or_else(|| offset.split_at_checked(2))
        .map(|(hours, minutes)| (hours, if minutes.is_empty() { "0" } else { minutes }))?;
    let offset = number(hours, 23)? * 3600 + number(minutes, 59)? * 60;
    Some((time[..at].trim_end(), sign * offset))
}

/// Digits only, up to `max`.
fn number(text: &str, max: i64) -> Option<i64> {
    // `parse` alone would also accept a sign.
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| text.parse().ok())??;
    (number <= max).then_some(number)
}

/// `.6805900` without its point; digits beyond the ninth are cut.
fn nanos_of(fraction: &str) -> Option<i64> {
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Padded at the end: a fraction of `5` is half a second.
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    Some(digits.fold(0, |nanos, digit| nanos * 10 + i64::from(digit - b'0')))
}

/// Days in the Gregorian calendar, counted in years that begin with March, so that the leap day
/// is their last.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    if month == 0 || day == 0 {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let month_from_march = (month + 9) % 12;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // Months from March have 31, 30, 31, 30, 31 days, over and over: 153 in five.
    let in_year = (153 * month_from_march + 2) / 5 + day - 1;
    /// From March 1st of year 0 to 1970.
    const TO_1970: i64 = 719_468;
    Some(year * 365 + leap_days + in_year - TO_1970)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    fn check_time(text: &str, expected: Option<i128>) {
        assert_eq!(nanos_since_1970(text), expected, "{text}");
    }

    /// Seconds as `date -u +%s` gives them.
    #[test]
    fn times_are_those_of_the_calendar() {
        let s = 1_000_000_000;
        check_time("1970-01-01 00:00:00", Some(0));
        check_time("2000-02-29 12:00:00.5", Some(951_825_600 * s + s / 2));
        check_time("2000-03-01 00:00:00", Some(951_868_800 * s));
        check_time("2023-11-16 18:15:46.6805900", Some(1_700_158_546 * s + 680_590_000));
        check_time("2024-05-10 00:00:00.009930+00:00", Some(1_715_299_200 * s + 9_930_000));
        for same in ["T02:00:00+02:00", " 02:00:00+02", "T02:00:00+0200", " 00:00:00 UTC"] {
            check_time(&format!("2024-05-10{same}"), Some(1_715_299_200 * s));
        }
        check_time("2024-12-31 23:59:59Z", Some(1_735_689_599 * s));
        for bad in ["", "2024-05-10", "2024-13-01 00:00:00", "2024-00-01 00:00:00"] {
            check_time(bad, None);
        }
        for bad in ["2024-05-10 1e9:00:00", "2024-05-10 00:00", "2024-05-10 00:00:00.x"] {
            check_time(bad, None);
        }
    }

    #[test]
    fn columns_are_found_by_name() {
        let text = "GeneratedTokens,TIMESTAMP,x,contexttokens
44,2023-11-16 18:15:46.5,,374
109,2023-11-16 18:15:50.5,,396
";
        let reader = Reader::new("t.csv", text.as_bytes()).expect("readable");
        assert_eq!(reader.info(), &TraceInfo::new(0));
        let requests: Vec<_> = reader.map(|request| request.expect("good")).collect();
        let got: Vec<_> =
            requests.iter().map(|r| (r.arrival.0, r.input_tokens, r.output_tokens)).collect();
        assert_eq!(got, [(0, Some(374), Some(44)), (4_000_000_000, Some(396), Some(109))]);
        assert!(requests.iter().all(|r| r.session.is_none() && r.blocks.is_empty()));
    }

    #[test]
    fn a_bad_line_is_named() {
        for (line, part) in [
            ("2023-11-16 18:15:46,374", "line 2: no field for the column Gen"),
            ("2023-11-16 18:15:46,-1,3", "line 2: `-1` is no ContextTokens"),
            ("yesterday,1,3", "line 2: `yesterday` is no time"),
        ] {
            let text = format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{line}\n");
            let mut reader = Reader::new("t", text.as_bytes()).expect("readable");
            let error = reader.next().expect("a line").expect_err("bad").to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn burst_gpt_s_seconds_and_columns_are_read() {
        let text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n\
                    5,ChatGPT,472,18,490,Conversation log\n7.5,GPT-4,473,0,473,API log\n";
        let reader = crate::Reader::new("t", text.as_bytes()).expect("readable");
        let got: Vec<_> = reader
            .map(|request| request.expect("good"))
            .map(|request| (request.arrival.0, request.input_tokens, request.output_tokens))
            .collect();
        assert_eq!(got, [(0, Some(472), Some(18)), (2_500_000_000, Some(473), Some(0))]);
    }
}
