//! Rule: the name of a type in `crates/` is a noun. A name of one word that is a participle, an
//! adverb or a pronoun (`Kept`, `Beside`, `Whose`) says what happened to a thing, not which.

use super::Violation;
use super::rust_file::RustFile;
use super::tree::Tree;
use super::type_declarations::{TypeDeclaration, type_declarations};

pub(super) const RULE: &str = "participle-type";

/// Ends of participles in type names. Gerunds in `ing` are nouns.
const ENDINGS: [&str; 2] = ["ed", "en"];

/// Participles, adverbs and pronouns with other endings. As in tools/readability/measure.py.
const IRREGULAR: [&str; 33] = [
    "About", "Apart", "Begun", "Beside", "Beyond", "Bound", "Brought", "Built", "Drawn", "Found",
    "Gone", "Grown", "Held", "Kept", "Known", "Learnt", "Left", "Lost", "Made", "Meant", "Met",
    "Nothing", "Read", "Seldom", "Sent", "Set", "Shown", "Spent", "Split", "Told", "What", "Whose",
    "Won",
];

/// Nouns and adjectives of the field that end so.
const NOUNS: [&str; 9] =
    ["Bed", "Embed", "Feed", "Need", "Seed", "Shed", "Speed", "Token", "Unbounded"];

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let files = tree.rust.iter().filter(|file| file.path.starts_with("crates/"));
    files.flat_map(violations_in).collect()
}

fn violations_in(file: &RustFile) -> Vec<Violation> {
    let types = type_declarations(file).filter(|declaration| is_participle(declaration.name));
    let violation = |TypeDeclaration { name, offset, .. }| {
        let message = format!("`{name}` is no noun; name the thing, as `KeptBlock` for `Kept`");
        let violation = Violation::new(RULE, &file.path, file.line(offset), message);
        Violation { item: name.to_owned(), ..violation }
    };
    types.map(violation).collect()
}

/// Whether a type's name is one word, and no noun.
pub(super) fn is_participle(name: &str) -> bool {
    let is_one_word = !name.chars().skip(1).any(char::is_uppercase);
    let has_ending = ENDINGS.iter().any(|ending| name.ends_with(ending));
    is_one_word && !NOUNS.contains(&name) && (has_ending || IRREGULAR.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, source: &str, expected: &[(&str, usize)]) {
        let found = violations(&Tree::of(&[(path, source)]));
        let found: Vec<_> = found.iter().map(|found| (found.item.as_str(), found.line)).collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn names_of_one_word_are_nouns() {
        let path = "crates/core/src/lib.rs";
        check(path, "struct A;\npub struct Kept;\nenum Chosen {}", &[("Kept", 2), ("Chosen", 3)]);
        check(path, "struct KeptBlock; struct Token; pub struct Speed; type Seed = u64;", &[]);
    }

    #[test]
    fn tests_and_other_folders_are_free() {
        check("crates/core/tests/a.rs", "struct Kept;", &[]);
        check("xtask/src/a.rs", "struct Kept;", &[]);
    }
}
