//! Rule: no text names a path or a package registry that exists on one machine only.

use super::Violation;
use super::tree::Tree;

pub(super) const RULE: &str = "machine-path";

/// Folders in which one machine keeps a checkout or a home.
const PATHS: [&str; 3] = ["/work/", "/root/", "/home/"];

/// Settings by which a Cargo configuration names a registry of its own.
const REGISTRIES: [&str; 2] = ["replace-with", "sparse+http"];

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in &tree.texts {
        for (index, line) in file.text.lines().enumerate() {
            let paths = PATHS.into_iter().filter(|path| names_root(line, path));
            let paths = paths.map(|path| (path, "write a path relative to the repository"));
            let registries = REGISTRIES.into_iter().filter(|registry| line.contains(registry));
            let registries = registries.map(|word| (word, "leave the registry to the machine"));
            violations.extend(paths.chain(registries).map(|(found, instead)| {
                let message = format!("`{found}` is of one machine; {instead}");
                Violation::new(RULE, &file.path, index + 1, message)
            }));
        }
    }
    violations
}

/// Whether `folder` stands in the line as the beginning of an absolute path, not in the middle of
/// a relative one, a URL, or one that begins with a variable.
fn names_root(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || "._-~})*".contains(before))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: &[usize]) {
        let found = violations(&Tree::of(&[(path, text)]));
        let found: Vec<usize> = found.iter().map(|found| found.line).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn absolute_paths_of_one_machine_are_found() {
        check("README.md", "Run\n`cd /work/main`.", &[2]);
        check("tools/train.py", "open(\"/home/me/a.json\")", &[1]);
        check("crates/core/src/lib.rs", "// file:///root/a", &[1]);
        check("tools/get.sh", "cd /root/a /work/b", &[1, 1]);
    }

    #[test]
    fn other_paths_are_not() {
        check("README.md", "`./work/a`, `~/work/a`, `$(pwd)/work/`, `${HOME}/home/`", &[]);
        check("README.md", "<https://example.org/work/a>, /workspace/, /homes/", &[]);
    }

    #[test]
    fn registries_of_one_machine_are_found() {
        check(".cargo/config.toml", "[source.crates-io]\nreplace-with = \"mirror\"", &[2]);
    }
}
