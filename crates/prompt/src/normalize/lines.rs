//! Lines of a text with their ends, to be taken out without a trace.

/// The text without the lines for which `gone` says so (asked without line end and outer blanks);
/// nothing where all stay. A blank line behind a line that goes goes as well, where none would
/// have stood there otherwise: at the front, and behind another blank line.
pub(super) fn without(text: &str, gone: impl Fn(&str) -> bool) -> Option<String> {
    let mut kept = String::with_capacity(text.len());
    // The start counts as a blank line, so that no blank line comes first.
    let mut is_behind_blank = true;
    let mut is_behind_gone = false;
    let mut any = false;
    for line in text.split_inclusive('\n') {
        let said = line.trim();
        if gone(said) {
            (any, is_behind_gone) = (true, true);
            continue;
        }
        if said.is_empty() && is_behind_gone && is_behind_blank {
            continue;
        }
        is_behind_gone = false;
        is_behind_blank = said.is_empty();
        kept.push_str(line);
    }
    any.then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_without_a_trace() {
        let without_x = |text| without(text, |line| line == "x");
        assert_eq!(without_x("a\nb\n"), None);
        assert_eq!(without_x("x\n\na\n").as_deref(), Some("a\n"));
        assert_eq!(without_x("a\n\nx\n\nb").as_deref(), Some("a\n\nb"));
        assert_eq!(without_x("a\nx\n\nb").as_deref(), Some("a\n\nb"));
        assert_eq!(without_x("a\n x \r\nb").as_deref(), Some("a\nb"));
        assert_eq!(without_x("x").as_deref(), Some(""));
    }
}
