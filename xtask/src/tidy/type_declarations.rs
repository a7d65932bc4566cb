//! Types that a Rust file declares outside of tests.

use super::rust_file::RustFile;

const KEYWORDS: [&str; 4] = ["struct", "enum", "trait", "union"];

/// A declaration of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TypeDeclaration<'a> {
    pub(super) name: &'a str,
    /// Offset of its line, bytes.
    pub(super) offset: usize,
    /// Whether it is `pub` without a restriction, as other crates may see it.
    pub(super) is_public: bool,
}

/// All types of a file in order. Associated types of traits have the names that these ask for and
/// are left out.
pub(super) fn type_declarations(file: &RustFile) -> impl Iterator<Item = TypeDeclaration<'_>> {
    let mut offset = 0;
    file.code.split_inclusive('\n').filter_map(move |line| {
        let start = offset;
        offset += line.len();
        let (name, is_public) = declared(line)?;
        (!file.is_test(start)).then_some(TypeDeclaration { name, offset: start, is_public })
    })
}

/// The name that a line declares, and whether it is public.
fn declared(line: &str) -> Option<(&str, bool)> {
    let mut words = line.split_whitespace();
    let first = words.clone().next()?;
    let is_skipped = |word: &&str| word.starts_with("pub") || *word == "unsafe" || *word == "in";
    let keyword = words.find(|word| !is_skipped(word) && !word.ends_with(')'))?;
    let is_associated = line.starts_with(char::is_whitespace);
    if !KEYWORDS.contains(&keyword) && (keyword != "type" || is_associated) {
        return None;
    }
    let name = words.next()?.split(|letter: char| !letter.is_alphanumeric()).next()?;
    (!name.is_empty()).then_some((name, first == "pub"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[(&str, bool)]) {
        let file = RustFile::of("crates/a/src/lib.rs", source);
        let found: Vec<_> = type_declarations(&file).map(|one| (one.name, one.is_public)).collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn types_are_found_with_their_visibility() {
        check("pub struct A<T>(T);\nenum B {}\n", &[("A", true), ("B", false)]);
        check(
            "pub(crate) trait C: D {}\npub(in crate::a) type E = F;",
            &[("C", false), ("E", false)],
        );
        check("fn f() {\n    struct G;\n}\npub unsafe trait H {}", &[("G", false), ("H", true)]);
    }

    #[test]
    fn associated_types_and_tests_are_left_out() {
        check("impl A for B {\n    type Value = C;\n}\n", &[]);
        check("#[cfg(test)]\nmod tests {\n    struct A;\n}\n", &[]);
        check("// struct A;\nlet a = \"\nstruct B;\";", &[]);
    }
}
