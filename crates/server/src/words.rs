//! Figures as people read them: one place for the dashboard's sentences, `headstart top` and the
//! commands that ask a server. The page in the browser writes them alike.

/// A number with commas between thousands.
#[must_use]
pub fn grouped(number: impl Into<u64>) -> String {
    let digits = number.into().to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 request`, `2,000 requests`, `2 branches`, `2 entries`: a number and a noun that agrees.
#[must_use]
pub fn counted(number: u64, thing: &str) -> String {
    let count = grouped(number);
    let is_consonant = |letter: char| !matches!(letter, 'a' | 'e' | 'i' | 'o' | 'u');
    if number == 1 {
        return format!("{count} {thing}");
    }
    match thing.strip_suffix('y') {
        Some(stem) if stem.ends_with(is_consonant) => format!("{count} {stem}ies"),
        _ if thing.ends_with(['s', 'x', 'z']) => format!("{count} {thing}es"),
        _ if thing.ends_with("ch") || thing.ends_with("sh") => format!("{count} {thing}es"),
        _ => format!("{count} {thing}s"),
    }
}

/// Three digits that say something, and a unit, from ten thousand on.
#[must_use]
pub fn compact(value: f64) -> String {
    for (size, unit) in [(1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k')] {
        let scaled = value / size;
        if value >= 1e4 && scaled >= 1.0 {
            let decimals = usize::from(scaled < 100.0) + usize::from(scaled < 10.0);
            return format!("{scaled:.decimals$} {unit}");
        }
    }
    grouped(value as u64)
}

/// A share of 1 in per cent.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats a duration: milliseconds, or seconds from one second on.
#[must_use]
pub fn took(ms: f64) -> String {
    match ms {
        ..10.0 => format!("{ms:.1} ms"),
        10.0..1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1e3),
    }
}

/// Formats an age of `seconds`, in seconds, minutes, hours or days.
#[must_use]
pub fn ago(seconds: f64) -> String {
    match seconds {
        ..60.0 => format!("{seconds:.0} s"),
        60.0..7200.0 => format!("{:.0} min", seconds / 60.0),
        7200.0..172_800.0 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} d", seconds / 86_400.0),
    }
}

/// The same of a moment, such as `3 min ago`.
#[must_use]
pub fn since(seconds: f64) -> String {
    if seconds < 1.0 {
        "now".to_owned()
    } else {
        format!("{} ago", ago(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_agree_with_their_number() {
        for (number, thing, expected) in [
            (1, "branch", "1 branch"),
            (2, "branch", "2 branches"),
            (0, "entry", "0 entries"),
            (3, "gateway", "3 gateways"),
            (1_200, "prefix", "1,200 prefixes"),
            (2, "prompt token", "2 prompt tokens"),
        ] {
            assert_eq!(counted(number, thing), expected);
        }
    }

    #[test]
    fn numbers_are_short() {
        let numbers = [0_u64, 7, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(numbers, ["0", "7", "999", "1,000", "1,234,567"]);
        let values = [7.0, 9_999.0, 12_345.0, 232_000.0, 5_808_000.0].map(compact);
        assert_eq!(values, ["7", "9,999", "12.3 k", "232 k", "5.81 M"]);
        assert_eq!(percent(0.628), "62.8 %");
    }

    #[test]
    fn times_have_the_unit_that_says_most() {
        let times = [4.04, 62.4, 999.0, 2_250.0].map(took);
        assert_eq!(times, ["4.0 ms", "62 ms", "999 ms", "2.2 s"]);
        let ages = [3.2, 90.0, 7_199.0, 7_200.0, 400_000.0].map(ago);
        assert_eq!(ages, ["3 s", "2 min", "120 min", "2 h", "5 d"]);
        assert_eq!([0.4, 5.0].map(since), ["now", "5 s ago"]);
    }
}
