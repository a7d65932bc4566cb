//! Rule: crates depend on each other only along the arrows of the architecture.
//!
//! Tests may in addition use anything on a lower layer, and `dst`, which no product links. Cargo
//! itself rejects cycles; this rule rejects arrows that the architecture does not have.

use super::Violation;
use super::architecture::{CrateRow, crate_row, folder_of_package, package_name, split_crate};
use super::manifest::{Dependency, Manifest, Table};
use super::tree::{TextFile, Tree};

pub(super) const RULE: &str = "arrow";

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let manifests = tree.with_suffix("Cargo.toml").filter_map(|file| {
        let (folder, inside) = split_crate(&file.path)?;
        (inside == "Cargo.toml").then_some((folder, file))
    });
    manifests.flat_map(|(folder, file)| violations_in(folder, file)).collect()
}

fn violations_in(folder: &str, file: &TextFile) -> Vec<Violation> {
    let Some(row) = crate_row(folder) else {
        let message = format!(
            "the crate `{folder}` is unknown; add its row to xtask/src/tidy/architecture.rs and to \
             docs/architecture.md"
        );
        return vec![Violation::new(RULE, &file.path, 1, message)];
    };
    let manifest = Manifest::parse(&file.text);
    let misnamed = manifest.package.iter().filter(|(name, _)| *name != package_name(folder));
    let misnamed = misnamed.map(|(name, line)| {
        let message = format!("the package is `{name}`; name it `{}`", package_name(folder));
        Violation::new(RULE, &file.path, *line, message)
    });
    let forbidden = manifest.dependencies.iter().filter_map(|dependency| {
        let used = folder_of_package(dependency.package())?;
        (!is_allowed(row, used, dependency))
            .then(|| Violation::new(RULE, &file.path, dependency.line, forbidden(row, used)))
    });
    misnamed.chain(forbidden).collect()
}

fn is_allowed(row: &CrateRow, used: &str, dependency: &Dependency) -> bool {
    let is_below = || crate_row(used).is_some_and(|used| used.layer < row.layer);
    let is_for_tests = || used == "dst" || is_below();
    row.uses.contains(&used) || (dependency.table == Table::Dev && is_for_tests())
}

fn forbidden(row: &CrateRow, used: &str) -> String {
    let uses = if row.uses.is_empty() { "none".to_owned() } else { row.uses.join(", ") };
    format!(
        "{} may not use {used} (it uses: {uses}); let cli pass in what is needed, or change \
         docs/architecture.md first",
        row.folder
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(folder: &str, manifest: &str, expected: &[&str]) {
        let path = format!("crates/{folder}/Cargo.toml");
        let found = violations(&Tree::of(&[(&path, manifest)]));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.message.contains(expected), "{found}");
        }
    }

    #[test]
    fn arrows_of_the_table_pass() {
        check("scheduler", "[dependencies]\nheadstart-core.workspace = true\nserde = \"1\"", &[]);
        check("cli", "[dependencies]\nheadstart-server = { workspace = true }", &[]);
    }

    #[test]
    fn other_arrows_do_not() {
        let manifest = "[dependencies]\nheadstart-router.workspace = true";
        check("cache", manifest, &["cache may not use router (it uses: core)"]);
        let renamed = "[dependencies]\nx = { package = \"headstart-cache\", path = \"../cache\" }";
        check("core", renamed, &["core may not use cache (it uses: none)"]);
        check("server", "[dependencies]\nheadstart.workspace = true", &["may not use cli"]);
        check("sim", "[build-dependencies]\nheadstart-store = {}", &["may not use store"]);
    }

    #[test]
    fn tests_may_use_lower_layers() {
        check("sim", "[dev-dependencies]\nheadstart-store.workspace = true", &[]);
        check("cache", "[dev-dependencies]\nheadstart-dst.workspace = true", &[]);
        check("cache", "[dependencies]\nheadstart-dst.workspace = true", &["not use dst"]);
        check("cache", "[dev-dependencies]\nheadstart-trace.workspace = true", &["not use trace"]);
    }

    #[test]
    fn crates_are_known_and_named_after_their_folder() {
        check("magic", "[package]\nname = \"headstart-magic\"", &["`magic` is unknown"]);
        check("core", "[package]\nname = \"core\"", &["name it `headstart-core`"]);
        check("cli", "[package]\nname = \"headstart\"", &[]);
    }
}
