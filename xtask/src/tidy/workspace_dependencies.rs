//! Rule: versions are chosen once, in the root manifest, and each choice has a reason.

use super::Violation;
use super::architecture::split_crate;
use super::manifest::{Manifest, Table};
use super::tree::{TextFile, Tree};

pub(super) const RULE: &str = "workspace-dependency";

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let of_root = tree.text("Cargo.toml").into_iter().flat_map(without_reason);
    let of_crates = tree.with_suffix("/Cargo.toml").filter(|file| is_manifest(file));
    of_root.chain(of_crates.flat_map(not_inherited)).collect()
}

fn is_manifest(file: &TextFile) -> bool {
    split_crate(&file.path).is_some_and(|(_, inside)| inside == "Cargo.toml")
}

fn without_reason(file: &TextFile) -> Vec<Violation> {
    let entries = Manifest::parse(&file.text).dependencies.into_iter();
    let unexplained = entries
        .filter(|entry| entry.table == Table::Workspace && !entry.has("path") && !entry.has_reason);
    unexplained
        .map(|entry| {
            let message = format!(
                "`{}` has no reason; say in a comment on its line or directly above why it is \
                 needed",
                entry.key
            );
            Violation::new(RULE, &file.path, entry.line, message)
        })
        .collect()
}

fn not_inherited(file: &TextFile) -> Vec<Violation> {
    let entries = Manifest::parse(&file.text).dependencies.into_iter();
    let own = entries.filter(|entry| !entry.has("path") && !entry.has("workspace"));
    own.map(|entry| {
        let message = format!(
            "`{}` chooses its own version; move it to [workspace.dependencies] and write \
             `workspace = true`",
            entry.key
        );
        Violation::new(RULE, &file.path, entry.line, message)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, manifest: &str, expected: &[usize]) {
        let found = violations(&Tree::of(&[(path, manifest)]));
        let found: Vec<usize> = found.iter().map(|found| found.line).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn crates_inherit_versions() {
        let path = "crates/core/Cargo.toml";
        check(path, "[dependencies]\na.workspace = true\nb = { path = \"../b\" }", &[]);
        check(
            path,
            "[dependencies]\na = \"1\"\n[dev-dependencies]\nb = { version = \"1\" }",
            &[2, 4],
        );
        check("xtask/Cargo.toml", "[dependencies]\nanyhow = \"1\"", &[2]);
        check("crates/core/tests/data/Cargo.toml", "[dependencies]\na = \"1\"", &[]);
    }

    #[test]
    fn the_root_gives_reasons() {
        let manifest = "[workspace.dependencies]\nours = { path = \"crates/ours\" }\n\
                        a = \"1\"\nb = \"1\" # Hashes.\n# Errors.\nc = \"1\"\nd = \"1\"";
        check("Cargo.toml", manifest, &[3, 7]);
    }
}
