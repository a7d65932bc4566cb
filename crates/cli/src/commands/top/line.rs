//! A line of a frame: pieces of text with their styles. Widths are counted in characters, so that a
//! line can be cut; codes are added at the end.

/// Style of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Soft,
    Served,
    Lost,
    Warning,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Soft => "\x1b[2m",
            Self::Served => "\x1b[34m",
            Self::Lost => "\x1b[33m",
            Self::Warning => "\x1b[1;31m",
        }
    }
}

/// A line of styled pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct StyledLine(Vec<(Style, String)>);

impl StyledLine {
    /// Adds a piece.
    pub(super) fn with(mut self, style: Style, text: impl Into<String>) -> Self {
        self.0.push((style, text.into()));
        self
    }

    /// The line, cut to `columns`, with or without codes.
    pub(super) fn render(&self, columns: usize, has_colours: bool) -> String {
        let mut left = columns;
        let mut text = String::new();
        for (style, piece) in &self.0 {
            // Characters are counted, because codes take no columns.
            let shown: String = piece.chars().take(left).collect();
            left -= shown.chars().count();
            let code = if has_colours { style.code() } else { "" };
            if code.is_empty() || shown.is_empty() {
                text.push_str(&shown);
            } else {
                text.extend([code, &shown, "\x1b[0m"]);
            }
        }
        // Blanks at the end matter only between codes.
        if has_colours { text } else { text.trim_end().to_owned() }
    }
}

/// Cuts or pads a text to exactly `columns` columns.
pub(super) fn fit(text: &str, columns: usize) -> String {
    let length = text.chars().count();
    if length <= columns {
        return format!("{text}{}", " ".repeat(columns - length));
    }
    // The mark takes one of the columns.
    let cut: String = text.chars().take(columns.saturating_sub(1)).collect();
    format!("{cut}…")
}

/// Fits an address into exactly `columns` columns. An address that does not fit loses its front:
/// its end is the port.
pub(super) fn fit_end(text: &str, columns: usize) -> String {
    let length = text.chars().count();
    if length <= columns {
        return fit(text, columns);
    }
    let left = length - columns.saturating_sub(1);
    let end: String = text.chars().skip(left).collect();
    format!("…{end}")
}

/// Draws a bar of `columns` columns, filled from `start` to `end` (shares of 1), to the eighth of a
/// column at its end.
pub(super) fn bar(start: f64, end: f64, columns: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    // Places are in eighths of a column, as fine as the block characters.
    let place = |share: f64| (share.clamp(0.0, 1.0) * columns as f64 * 8.0).round() as usize;
    let first = place(start) / 8;
    // A share above zero shows at least an eighth of a column.
    let last = place(end).max(first * 8 + usize::from(end > start));
    let cell = |at: usize| match () {
        () if at < first => ' ',
        () if (at + 1) * 8 <= last => '█',
        () if at * 8 < last => EIGHTHS[last % 8],
        () => ' ',
    };
    (0..columns).map(cell).collect()
}

/// Values as eight heights; what is not known is a gap.
pub(super) fn sparkline(values: &[Option<f64>]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    // The full height is one index beyond the last character.
    let height = |share: f64| HEIGHTS[((share.clamp(0.0, 1.0) * 8.0) as usize).min(7)];
    let all = values.iter();
    all.map(|value| value.map_or(' ', height)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_by_what_is_seen() {
        let line = StyledLine::default().with(Style::Bold, "Hëad").with(Style::Plain, "start");
        assert_eq!(line.render(6, false), "Hëadst");
        assert_eq!(line.render(6, true), "\x1b[1mHëad\x1b[0mst");
        assert_eq!(line.render(2, true), "\x1b[1mHë\x1b[0m");
        assert_eq!((fit("abcdef", 4), fit("ab", 4)), ("abc…".to_owned(), "ab  ".to_owned()));
    }

    #[test]
    fn an_address_keeps_its_port() {
        let url = "http://engine-7.example.org:8000";
        assert_eq!(fit_end(url, 12), "…le.org:8000");
        assert_eq!(fit_end("h:1", 5), "h:1  ");
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        assert_eq!(bar(0.0, 0.5, 8), "████    ");
        assert_eq!(bar(0.5, 1.0, 8), "    ████");
        assert_eq!(bar(0.0, 0.0, 3), "   ");
        assert_eq!(bar(0.5, 0.500_01, 4), "  ▏ ", "what is there is seen");
        assert_eq!(bar(0.0, 0.3125, 2), "▋ ");
        assert_eq!(bar(2.0, 3.0, 2), "  ", "and never more than all");
    }

    #[test]
    fn gaps_stay_gaps() {
        assert_eq!(sparkline(&[Some(0.0), None, Some(0.5), Some(1.0)]), "▁ ▅█");
    }
}
