//! Sizes, ages and names, for people.

use headstart_core::{BlockHash, IdentityDigest, TenantTag};

/// Digits of a name that are shown: enough to tell a million records apart.
const SHORT: usize = 12;

/// A name's first digits.
pub(super) fn short(name: BlockHash) -> String {
    let mut name = format!("{name:?}");
    name.truncate(SHORT);
    name
}

/// A tenant, as `--tenant` takes it.
pub(super) fn tenant(TenantTag(tag): TenantTag) -> String {
    format!("{tag:016x}")
}

/// An identity's digits.
pub(super) fn identity(IdentityDigest(digest): IdentityDigest) -> String {
    format!("{:032x}", u128::from_be_bytes(digest))
}

/// Bytes with three digits and a unit.
pub(super) fn bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut name = "B";
    for unit in units {
        // The unit changes at 1,000, so at most three digits precede the point.
        if value < 1_000.0 {
            break;
        }
        (value, name) = (value / 1_024.0, unit);
    }
    match value {
        _ if name == "B" => format!("{bytes} B"),
        100.0.. => format!("{value:.0} {name}"),
        10.0.. => format!("{value:.1} {name}"),
        _ => format!("{value:.2} {name}"),
    }
}

/// A time span, by its largest unit.
pub(super) fn span(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..120 => (seconds as f64, "s"),
        120..7_200 => (seconds as f64 / 60.0, "min"),
        7_200..172_800 => (seconds as f64 / 3_600.0, "h"),
        _ => (seconds as f64 / 86_400.0, "d"),
    };
    match unit {
        "s" => format!("{seconds} s"),
        _ if count >= 100.0 => format!("{count:.0} {unit}"),
        _ => format!("{count:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_spans_have_three_digits_or_so() {
        for (size, right) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "0.98 KiB"),
            (69_632, "68.0 KiB"),
            (10 << 30, "10.0 GiB"),
            (300 << 20, "300 MiB"),
            (1 << 50, "1024 TiB"),
        ] {
            assert_eq!(bytes(size), right);
        }
        for (seconds, right) in [
            (5, "5 s"),
            (300, "5.0 min"),
            (7_199, "120 min"),
            (9_000, "2.5 h"),
            (864_000, "10.0 d"),
        ] {
            assert_eq!(span(seconds), right);
        }
    }
}
