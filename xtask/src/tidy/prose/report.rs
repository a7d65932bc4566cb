//! The prose of each crate beside that of two well-written projects.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::super::participle_type::is_participle;
use super::super::rust_file::RustFile;
use super::super::tree::Tree;
use super::super::type_declarations::type_declarations;
use super::comments::paragraphs;
use super::sentences::{banned, without_code};

/// The same figures of two projects: ripgrep and foyer, measured in November 2026.
const ANCHORS: [(&str, Figures); 2] = [
    ("ripgrep", Figures { openings: 0.1, participles: 0.5, banned: 0.0 }),
    ("foyer", Figures { openings: 0.0, participles: 0.0, banned: 0.0 }),
];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    /// Doc comments that open with a relative clause, percent.
    openings: f64,
    /// One-word type names that are participles, adverbs or pronouns, percent of all type names.
    participles: f64,
    /// Banned words for 10,000 words of comment.
    banned: f64,
}

#[derive(Debug, Default)]
struct Counts {
    docs: usize,
    openings: usize,
    types: usize,
    participles: usize,
    words: usize,
    banned: usize,
}

impl Counts {
    fn add(&mut self, file: &RustFile) {
        for paragraph in paragraphs(file) {
            self.docs += usize::from(paragraph.opens_doc);
            self.openings += usize::from(paragraph.opens_clause());
            let text = without_code(&paragraph.text);
            self.words += text.split_whitespace().count();
            self.banned += banned(&text).count();
        }
        for declaration in type_declarations(file) {
            self.types += 1;
            self.participles += usize::from(is_participle(declaration.name));
        }
    }

    fn figures(&self) -> Figures {
        let per = |scale: f64, part: usize, all: usize| scale * part as f64 / all.max(1) as f64;
        Figures {
            openings: per(1e2, self.openings, self.docs),
            participles: per(1e2, self.participles, self.types),
            banned: per(1e4, self.banned, self.words),
        }
    }
}

/// A table with a row for each crate and for two other projects.
pub(crate) fn report(tree: &Tree) -> String {
    let mut crates: BTreeMap<&str, Counts> = BTreeMap::new();
    for file in tree.rust.iter().filter(|file| file.path.contains("/src/")) {
        let name = file.path.trim_start_matches("crates/");
        let name = name.split('/').next().unwrap_or_default();
        crates.entry(name).or_default().add(file);
    }
    let rows = crates.iter().map(|(name, counts)| (*name, counts.figures()));
    let mut text = format!(
        "{:<10} {:>16} {:>16} {:>16}\n",
        "", "relative clauses", "participle types", "banned words"
    );
    for (name, figures) in rows.chain(ANCHORS) {
        let Figures { openings, participles, banned } = figures;
        let row = format!("{name:<10} {openings:>14.1} % {participles:>14.1} % {banned:>16.1}");
        writeln!(text, "{row}").expect("a text grows");
    }
    text + "Openings of doc comments, type names, and banned words for 10,000 words of comment."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_each_share() {
        let source = "//! What it is.\n\n/// A thing.\npub struct Told;\n/// Nobody.\n\
                      pub(crate) enum Speed {}\nstruct TokenSeen<T>(T);\nstruct Kept;\n";
        let tree = Tree::of(&[("crates/a/src/lib.rs", source)]);
        let mut counts = Counts::default();
        counts.add(&tree.rust[0]);
        let expected = Figures { openings: 100.0 / 3.0, participles: 50.0, banned: 1e4 / 6.0 };
        assert_eq!(counts.figures(), expected);
        let row = report(&tree);
        let row = row.lines().nth(1).expect("a row");
        assert_eq!(
            row.split_whitespace().collect::<Vec<_>>(),
            ["a", "33.3", "%", "50.0", "%", "1666.7"]
        );
    }
}
