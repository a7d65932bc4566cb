//! Rule: a public type's name is declared by one crate. Two things of one name, in two crates,
//! make the reader look up which is meant. Names that are private to their crates are free.

use std::collections::BTreeMap;

use super::Violation;
use super::architecture::split_crate;
use super::rust_file::RustFile;
use super::tree::Tree;
use super::type_declarations::type_declarations;

pub(super) const RULE: &str = "repeated-type";

/// A declaration, with its place.
#[derive(Clone, Copy)]
struct Place<'a> {
    folder: &'a str,
    file: &'a RustFile,
    offset: usize,
    is_public: bool,
}

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let repeated = places(tree).into_iter().filter(|(_, places)| is_repeated(places));
    repeated.flat_map(|(name, places)| violations_of(name, &places)).collect()
}

/// All declarations in the sources of `crates/`, by name.
fn places(tree: &Tree) -> BTreeMap<&str, Vec<Place<'_>>> {
    let mut places: BTreeMap<&str, Vec<Place<'_>>> = BTreeMap::new();
    for file in tree.rust.iter().filter(|file| file.path.starts_with("crates/")) {
        let Some((folder, _)) = split_crate(&file.path).filter(|parts| parts.1.starts_with("src/"))
        else {
            continue;
        };
        for declaration in type_declarations(file) {
            let (offset, is_public) = (declaration.offset, declaration.is_public);
            places.entry(declaration.name).or_default().push(Place {
                folder,
                file,
                offset,
                is_public,
            });
        }
    }
    places
}

fn is_repeated(places: &[Place<'_>]) -> bool {
    let is_elsewhere = |place: &Place<'_>| place.folder != places[0].folder;
    places.iter().any(is_elsewhere) && places.iter().any(|place| place.is_public)
}

/// A finding at each declaration but those of the crate that comes first.
fn violations_of(name: &str, places: &[Place<'_>]) -> Vec<Violation> {
    let first = places[0];
    let others = places.iter().filter(|place| place.folder != first.folder);
    let violation = |place: &Place<'_>| {
        let message = format!(
            "`{name}` is also declared at {}:{}; rename one, the private one if there is one",
            first.file.path,
            first.file.line(first.offset)
        );
        let line = place.file.line(place.offset);
        let violation = Violation::new(RULE, &place.file.path, line, message);
        Violation { item: name.to_owned(), ..violation }
    };
    others.map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(first: &str, second: &str, expected: &[&str]) {
        let files = [("crates/cache/src/lib.rs", first), ("crates/core/src/lib.rs", second)];
        let found = violations(&Tree::of(&files));
        let found: Vec<_> = found.iter().map(|found| found.item.as_str()).collect();
        assert_eq!(found, expected, "{first} {second}");
    }

    #[test]
    fn a_public_name_is_declared_once() {
        check("pub struct Timing;", "pub struct Timing;", &["Timing"]);
        check("type Timing = u8;", "pub struct Timing;", &["Timing"]);
        check("pub enum Timing {}", "pub(crate) struct Timing;", &["Timing"]);
    }

    #[test]
    fn names_within_crates_are_free() {
        check("pub(super) struct Value;", "struct Value;", &[]);
        check("mod a {\n pub struct A;\n}\nmod b {\n pub struct A;\n}", "struct B;", &[]);
        check("pub struct A;", "impl B for C {\n    type A = u8;\n}", &[]);
        check("pub struct A;", "#[cfg(test)]\nstruct A;", &[]);
    }
}
