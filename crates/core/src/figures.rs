//! Figures as people read them: one function for each format, for the gateway, the analysis and the
//! reports. The page in the browser writes them alike.

/// `1234567` as `1,234,567`.
#[must_use]
pub fn thousands(number: impl Into<u64>) -> String {
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
    let count = thousands(number);
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
            // Together with the digits before the point these make three.
            let decimals = usize::from(scaled < 100.0) + usize::from(scaled < 10.0);
            return format!("{scaled:.decimals$} {unit}");
        }
    }
    thousands(value as u64)
}

/// `0.4213` as `42 %`; as much as a reader wants to know. All is all and nothing is nothing: what
/// is close to either is not called so.
#[must_use]
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        all if all >= 100.0 => "100 %".to_owned(),
        // Rounded down, so that 99.96 does not read as 100.
        nearly if nearly >= 99.0 => format!("{:.1} %", (nearly * 10.0).floor() / 10.0),
        // 9.95 is the first value whose tenths round to 10.0.
        most if most >= 9.95 => format!("{most:.0} %"),
        some if some >= 0.05 => format!("{some:.1} %"),
        little if little > 0.0 => "<0.1 %".to_owned(),
        _ => "0 %".to_owned(),
    }
}

/// `0.4213` as `42.1 %`, for figures that stand in one column or change while they are watched.
#[must_use]
pub fn percent_to_tenths(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// `0.4213` as `42.13 %`, for rates that are compared.
#[must_use]
pub fn percent_to_hundredths(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// An amount of money with its currency: `$12.30`, `$0.0031`, `EUR 1,200.00`, `<$0.0001`. A symbol
/// stands right in front, a name is set apart. Below 1 there are two significant digits.
#[must_use]
pub fn money(currency: &str, amount: f64) -> String {
    const LEAST: f64 = 1e-4;
    let currency = if currency.ends_with(char::is_alphanumeric) {
        format!("{currency} ")
    } else {
        currency.to_owned()
    };
    let size = amount.abs();
    if size > 0.0 && size < LEAST {
        return format!("<{currency}{LEAST}");
    }
    let sign = if amount < 0.0 { "-" } else { "" };
    let text = match size {
        // At 0.995, and at its tenths, rounding gains a digit; so the coarser format begins there.
        0.995.. => {
            let cents = (size * 100.0).round() as u64;
            format!("{}.{:02}", thousands(cents / 100), cents % 100)
        }
        0.0995.. => format!("{size:.2}"),
        0.00995.. => format!("{size:.3}"),
        _ if size == 0.0 => "0".to_owned(),
        _ => format!("{size:.4}"),
    };
    format!("{sign}{currency}{text}")
}

/// `3700` seconds as `62 min`, from tenths of a millisecond to days.
#[must_use]
pub fn duration(seconds: f64) -> String {
    match seconds {
        none if none <= 0.0 => "0 s".to_owned(),
        little if little < 5e-5 => "<0.1 ms".to_owned(),
        some if some < 0.1 => format!("{:.1} ms", some * 1e3),
        some if some < 100.0 => format!("{some:.1} s"),
        some if some < 6_000.0 => format!("{:.0} min", some / 60.0),
        some if some < 360_000.0 => format!("{:.1} h", some / 3_600.0),
        some => format!("{:.1} days", some / 86_400.0),
    }
}

/// The time that a request took: milliseconds, or seconds from one second on.
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
    if seconds < 1.0 { "now".to_owned() } else { format!("{} ago", ago(seconds)) }
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
        let numbers = [0_u64, 7, 999, 1_000, 123_456, 1_234_567].map(thousands);
        assert_eq!(numbers, ["0", "7", "999", "1,000", "123,456", "1,234,567"]);
        let values = [7.0, 9_999.0, 12_345.0, 232_000.0, 5_808_000.0].map(compact);
        assert_eq!(values, ["7", "9,999", "12.3 k", "232 k", "5.81 M"]);
        assert_eq!(percent_to_tenths(0.628), "62.8 %");
        assert_eq!(percent_to_hundredths(0.628), "62.80 %");
    }

    #[test]
    fn times_have_the_unit_that_says_most() {
        let times = [4.04, 62.4, 999.0, 2_250.0].map(took);
        assert_eq!(times, ["4.0 ms", "62 ms", "999 ms", "2.2 s"]);
        let ages = [3.2, 90.0, 7_199.0, 7_200.0, 400_000.0].map(ago);
        assert_eq!(ages, ["3 s", "2 min", "120 min", "2 h", "5 d"]);
        assert_eq!([0.4, 5.0].map(since), ["now", "5 s ago"]);
    }
    #[test]
    fn what_is_nearly_all_or_nothing_is_not_called_so() {
        for (share, shown) in [
            (1.0, "100 %"),
            (0.99999, "99.9 %"),
            (0.995, "99.5 %"),
            (0.9896, "99 %"),
            (0.4213, "42 %"),
            (0.0996, "10 %"),
            (0.0994, "9.9 %"),
            (0.0005, "0.1 %"),
            (0.0004, "<0.1 %"),
            (0.0, "0 %"),
        ] {
            assert_eq!(percent(share), shown, "{share}");
        }
        for (seconds, shown) in [(0.0, "0 s"), (1e-6, "<0.1 ms"), (0.0142, "14.2 ms")] {
            assert_eq!(duration(seconds), shown, "{seconds}");
        }
    }

    #[test]
    fn small_sums_keep_their_digits() {
        for (currency, amount, expected) in [
            ("$", 0.0, "$0"),
            ("$", 0.00002, "<$0.0001"),
            ("$", 0.0031, "$0.0031"),
            ("$", 0.0123, "$0.012"),
            ("$", 0.25, "$0.25"),
            ("$", 0.999, "$1.00"),
            ("$", 12_345.678, "$12,345.68"),
            ("EUR", 0.25, "EUR 0.25"),
            ("EUR", 0.00001, "<EUR 0.0001"),
            ("€", 3.0, "€3.00"),
            ("$", -0.5, "-$0.50"),
        ] {
            assert_eq!(money(currency, amount), expected);
        }
    }
}
