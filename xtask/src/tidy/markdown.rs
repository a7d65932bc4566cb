//! Links and anchors of a Markdown document.
//!
//! Reads inline links and images, reference definitions, and the `href`, `src`, `id` and `name`
//! attributes of HTML; skips fenced code and code spans. Anchors follow GitHub's rules. Headings
//! that are underlined instead of marked with `#` are not read.

use std::collections::{BTreeMap, BTreeSet};

/// Links of one document, and the places in it that links can point to.
#[derive(Debug, Default)]
pub(super) struct Markdown {
    pub(super) links: Vec<Link>,
    /// Names that may stand behind `#`.
    pub(super) anchors: BTreeSet<String>,
}

/// One link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) line: usize,
    pub(super) target: String,
}

impl Markdown {
    /// Reads a document.
    pub(super) fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let mut uses = BTreeMap::new();
        let mut fence = None;
        for (index, line) in text.lines().enumerate() {
            let marker = fence_marker(line);
            match (fence, marker) {
                (None, Some(marker)) => fence = Some(marker),
                (Some(open), Some(marker)) if marker.starts_with(open) => fence = None,
                (Some(_), _) => {}
                (None, None) => document.read_line(index + 1, line, &mut uses),
            }
        }
        document
    }

    fn read_line(&mut self, number: usize, line: &str, uses: &mut BTreeMap<String, usize>) {
        if let Some(heading) = heading(line) {
            let slug = slug(heading);
            let count = uses.entry(slug.clone()).or_default();
            self.anchors.insert(match *count {
                0 => slug,
                count => format!("{slug}-{count}"),
            });
            *count += 1;
        }
        let line = without_code_spans(line);
        let add_link = |target: &str| {
            self.links.push(Link { line: number, target: target.to_owned() });
        };
        inline_targets(&line)
            .chain(definition_target(&line))
            .chain(attributes(&line, "href"))
            .chain(attributes(&line, "src"))
            .for_each(add_link);
        let names = attributes(&line, "id").chain(attributes(&line, "name"));
        self.anchors.extend(names.map(str::to_owned));
    }
}

/// The run of backticks or tildes that opens or closes fenced code.
fn fence_marker(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let length = |mark: char| line.chars().take_while(|&character| character == mark).count();
    let length = length('`').max(length('~'));
    (length >= 3).then_some(&line[..length])
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| text.trim().trim_end_matches(" #"))
}

/// The anchor that GitHub gives a heading: lower case, hyphens for blanks, no punctuation, and of
/// a link only its text.
fn slug(heading: &str) -> String {
    let mut text = heading.to_owned();
    while let Some(start) = text.find("](") {
        let end = text[start..].find(')').map_or(text.len(), |length| start + length + 1);
        text.replace_range(start..end, "");
    }
    text.to_lowercase()
        .chars()
        .filter(|&character| character.is_alphanumeric() || "-_ ".contains(character))
        .map(|character| if character == ' ' { '-' } else { character })
        .collect()
}

/// The line with the contents of code spans blanked; a span ends with as many backticks as it
/// began with, or was none.
fn without_code_spans(line: &str) -> String {
    let run = |at: usize| line[at..].bytes().take_while(|&byte| byte == b'`').count();
    let mut result = String::with_capacity(line.len());
    let mut at = 0;
    while let Some(open) = line[at..].find('`').map(|length| at + length) {
        let length = run(open);
        let behind = open + length;
        let mut closes = line[behind..].match_indices('`').map(|(offset, _)| behind + offset);
        let close =
            closes.find(|&close| run(close) == length && line.as_bytes()[close - 1] != b'`');
        result.push_str(&line[at..open]);
        at = close.map_or(behind, |close| close + length);
    }
    result.push_str(&line[at..]);
    result
}

/// Targets of `[text](target "title")` and `![text](target)`.
fn inline_targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(start, _)| {
        let rest = line[start + 2..].trim_start();
        match rest.strip_prefix('<') {
            Some(rest) => rest.split_once('>').map(|(target, _)| target),
            None => Some(&rest[..target_length(rest)]),
        }
    })
}

/// The length of a target without blanks: up to the parenthesis that closes the link.
fn target_length(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, character) in text.char_indices() {
        match character {
            ')' if depth == 0 => return at,
            character if character.is_whitespace() => return at,
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// The target of `[name]: target`; footnotes have none.
fn definition_target(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix('[').filter(|rest| !rest.starts_with('^'))?;
    let (name, target) = rest.split_once("]:")?;
    let target = target.split_whitespace().next()?;
    (!name.contains(']')).then(|| target.trim_matches(['<', '>']))
}

/// Values of an HTML attribute, quoted.
fn attributes<'a>(line: &'a str, name: &'static str) -> impl Iterator<Item = &'a str> {
    line.match_indices(name).filter_map(move |(start, _)| {
        let is_attribute = line[..start].ends_with(' ') && line[..start].contains('<');
        let value = line[start + name.len()..].strip_prefix("=\"").filter(|_| is_attribute)?;
        value.split_once('"').map(|(value, _)| value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, links: &[&str], anchors: &[&str]) {
        let document = Markdown::parse(text);
        let found: Vec<&str> = document.links.iter().map(|link| link.target.as_str()).collect();
        assert_eq!(found, links, "links of {text}");
        let found: Vec<&str> = document.anchors.iter().map(String::as_str).collect();
        assert_eq!(found, anchors, "anchors of {text}");
    }

    #[test]
    fn links_of_all_kinds_are_found() {
        check(
            "[a](b.md) ![c](d.svg \"e\") [f](<g h.md>) [i](j(k).md)",
            &["b.md", "d.svg", "g h.md", "j(k).md"],
            &[],
        );
        check("[a]: b.md \"c\"\n[^1]: d.md e", &["b.md"], &[]);
        check("[![a](b.svg)](c.md)", &["b.svg", "c.md"], &[]);
        check("<img width=\"9\" src=\"a.svg\"> <a href=\"b.md\">", &["b.md", "a.svg"], &[]);
    }

    #[test]
    fn code_holds_no_links() {
        check("```\n[a](b)\n# c\n```\n[d](e)", &["e"], &[]);
        check("````\n```\n[a](b)\n````\n[c](d)", &["d"], &[]);
        check("`[a](b)` ``[c](`d)`` [`e`](f) ` [g](h)", &["f", "h"], &[]);
    }

    #[test]
    fn anchors_follow_githubs_rules() {
        check("# What it does, *and* not: `cargo x`", &[], &["what-it-does-and-not-cargo-x"]);
        check("## A & b\n## A & b\n", &[], &["a--b", "a--b-1"]);
        check("# [a](b.md) c_d\n#not-a-heading", &["b.md"], &["a-c_d"]);
        check("<a id=\"here\"></a>", &[], &["here"]);
    }
}
