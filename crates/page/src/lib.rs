//! Look of every HTML page: colours, type and header of the dashboard, and the frame of reports.
//!
//! A report has a footer with version, date and command line. It needs no network, and its policy
//! forbids any.

#[doc(hidden)]
pub mod testing;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// Colours, type, header, cards and figures of the dashboard and of every report.
pub const SHARED_STYLE: &str = include_str!("shared.css");

/// The mark beside the name, for a page with [`SHARED_STYLE`].
pub const LOGO: &str = include_str!("logo.svg");

/// The theme button, for a page with [`SHARED_STYLE`] and a button `theme`.
pub const SHARED_SCRIPT: &str = include_str!("theme.js");

/// Everything but style, content, script and data.
const FRAME: &str = include_str!("frame.html");

/// Styles of reports only.
const STYLE: &str = include_str!("report.css");

/// Elements, charts and tables.
const CHARTS: &str = include_str!("charts.js");

/// Placeholder of the data.
const DATA: &str = "\"HEADSTART_DATA\"";

/// A report without its data.
pub struct ReportPage {
    /// Kind of report, for the header: `Cache analysis`.
    pub kind: &'static str,
    /// The sections.
    pub body: &'static str,
    /// Script that fills the sections from `data`.
    pub script: &'static str,
}

/// Provenance of a report.
#[derive(Clone, Debug)]
pub struct ReportProvenance {
    /// Seconds since 1970, UTC.
    pub unix_s: u64,
    /// The program's name.
    pub program: &'static str,
    /// The arguments, without the program's name.
    pub arguments: Vec<String>,
}

impl ReportProvenance {
    /// By this process, now.
    #[must_use]
    pub fn now(program: &'static str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let arguments = std::env::args_os().skip(1);
        Self {
            unix_s: since.map_or(0, |time| time.as_secs()),
            program,
            arguments: arguments.map(|argument| argument.to_string_lossy().into_owned()).collect(),
        }
    }

    /// `headstart analyze log.jsonl`, as a shell takes it. Of files elsewhere only the name is
    /// shown, of addresses no user and no password.
    fn command(&self) -> String {
        let arguments = self.arguments.iter().map(|argument| quoted(&shown(argument)));
        std::iter::once(self.program.to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
    }
}

impl ReportPage {
    /// The whole page.
    pub fn with(&self, made: &ReportProvenance, data: &Value) -> String {
        let footer = format!(
            "<p>Headstart {}, {}</p>\n<p><code>{}</code></p>",
            env!("CARGO_PKG_VERSION"),
            date(made.unix_s),
            escaped(&made.command()),
        );
        let script = [SHARED_SCRIPT, "startTheme();\n", CHARTS, self.script].concat();
        FRAME
            .replacen("HEADSTART_STYLE", &[SHARED_STYLE, STYLE].concat(), 1)
            .replacen("HEADSTART_LOGO", LOGO.trim_end(), 1)
            .replace("HEADSTART_KIND", self.kind)
            .replacen("HEADSTART_BODY", self.body.trim_end(), 1)
            .replacen("HEADSTART_SCRIPT", &script, 1)
            .replacen("HEADSTART_MADE", &footer, 1)
            .replacen(DATA, &embedded(data), 1)
    }
}

/// JSON that ends no script, whatever the names in it are.
fn embedded(data: &Value) -> String {
    let mut text = data.to_string();
    for (letter, escape) in [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ] {
        text = text.replace(letter, escape);
    }
    text
}

/// Text that is no markup.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// An argument, or an option and its value behind `=`.
fn shown(argument: &str) -> String {
    match argument.split_once('=') {
        Some((option, value)) if option.starts_with("--") => {
            format!("{option}={}", shown_value(value))
        }
        _ => shown_value(argument),
    }
}

fn shown_value(value: &str) -> String {
    if let Some((scheme, rest)) = value.split_once("://") {
        let end = rest.find('/').unwrap_or(rest.len());
        let (place, path) = rest.split_at(end);
        let place = place.rsplit('@').next().unwrap_or_default();
        return format!("{scheme}://{place}{path}");
    }
    let path = std::path::Path::new(value);
    match path.file_name() {
        Some(name) if path.is_absolute() => name.to_string_lossy().into_owned(),
        _ => value.to_owned(),
    }
}

/// As a shell takes it for one word.
pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "._-:/,=%+@".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// `2026-03-01 10:00 UTC`. The calendar is Howard Hinnant's `civil_from_days`.
fn date(unix_s: u64) -> String {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second % 3_600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PAGE: ReportPage =
        ReportPage { kind: "Test", body: "<h1 id=\"title\"></h1>", script: "" };

    #[test]
    fn a_page_is_whole_and_has_the_dashboards_style() {
        let page = PAGE.with(&testing::made(), &json!({"name": "lru"}));
        testing::check(&page);
        assert!(page.contains("const data = {\"name\":\"lru\"};"));
        assert!(page.contains("--accent: light-dark(#0b5fb0, #6fb1f5)"));
        assert!(page.contains("M3 12h6l4-6h8M9 12l4 6h5M9 12h9"), "the logo");
        assert!(page.contains("<button id=\"theme\"") && page.contains("startTheme();"));
    }

    #[test]
    fn names_cannot_end_the_script_or_the_footer() {
        let mut made = testing::made();
        made.arguments.push("</code><script>\"HEADSTART_DATA\"".to_owned());
        let names = json!(["</script><b>", "<!--\u{2028}</SCRIPT>"]);
        let page = PAGE.with(&made, &names);
        assert_eq!(page.matches("</script>").count(), 1);
        assert!(page.contains("\\u003c/script\\u003e\\u003cb\\u003e"));
        assert!(!page.contains("</SCRIPT>") && !page.contains('\u{2028}'));
        assert_eq!((page.matches("<script>").count(), page.matches("</code>").count()), (1, 1));
    }

    #[test]
    fn a_command_line_names_no_folder_and_no_password() {
        let check = |argument: &str, expected: &str| {
            let arguments = vec![argument.to_owned()];
            let made = ReportProvenance { unix_s: 0, program: "headstart", arguments };
            assert_eq!(made.command(), format!("headstart {expected}"));
        };
        check("/srv/logs/a.jsonl", "a.jsonl");
        check("logs/a.jsonl", "logs/a.jsonl");
        check("--html=/srv/page.html", "--html=page.html");
        check("--capacity=40GiB", "--capacity=40GiB");
        check("with space", "'with space'");
        check("http://me:secret@host:80/v1", "http://host:80/v1");
        check("-", "-");
        check("", "''");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (unix_s, expected) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_772_359_200, "2026-03-01 10:00 UTC"),
            (4_102_444_799, "2099-12-31 23:59 UTC"),
        ] {
            assert_eq!(date(unix_s), expected);
        }
    }
}
