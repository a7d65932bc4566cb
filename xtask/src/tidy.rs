//! Tidy: the rules of the style guide and the architecture that no other tool checks.
//!
//! The tree is read once; each rule is a pure function from it to violations, in a file of its
//! own. Rules know no exceptions: those are listed here, each with its reason, and one that no
//! longer excuses anything is itself a violation.
//!
//! The rules scan text. They blank strings and comments, match braces and read manifests line by
//! line, but they do not parse Rust: who wants to get past them can.

mod architecture;
mod arrows;
mod banned_calls;
mod closure_it;
mod documents;
mod file_length;
mod function_length;
mod imports;
mod line_width;
mod links;
mod machine_paths;
mod manifest;
mod markdown;
mod mask;
mod match_bool;
mod metric_names;
mod participle_type;
mod prose;
mod repeated_type;
mod rust_file;
mod sources;
mod tree;
mod tuple_parameter;
mod type_declarations;
mod unsafe_code;
mod workspace_dependencies;

use std::fmt;
use std::path::Path;

use anyhow::Result;

pub(crate) use architecture::{crate_of, package_name};
use tree::Tree;

/// A place that a rule does not apply to.
struct Exception {
    rule: &'static str,
    path: &'static str,
    /// The function, where the rule is about functions; otherwise empty.
    item: &'static str,
    reason: &'static str,
}

/// All exceptions, for all rules.
const EXCEPTIONS: &[Exception] = &[
    Exception {
        rule: machine_paths::RULE,
        path: "xtask/src/tidy/machine_paths.rs",
        item: "",
        reason: "names the paths that it forbids",
    },
    Exception {
        rule: unsafe_code::RULE,
        path: "bench/index/src/counting.rs",
        item: "",
        reason: "an allocator that counts is unsafe by its trait; it is part of no product",
    },
];

/// All rules.
const RULES: &[fn(&Tree) -> Vec<Violation>] = &[
    file_length::violations,
    function_length::violations,
    line_width::violations,
    banned_calls::violations,
    unsafe_code::violations,
    arrows::violations,
    workspace_dependencies::violations,
    sources::violations,
    metric_names::violations,
    links::violations,
    machine_paths::violations,
    prose::violations,
    documents::violations,
    closure_it::violations,
    tuple_parameter::violations,
    match_bool::violations,
    participle_type::violations,
    repeated_type::violations,
];

/// One finding: where, against which rule, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: String,
    line: usize,
    rule: &'static str,
    /// The function, where the rule is about functions; otherwise empty.
    item: String,
    message: String,
}

impl Violation {
    fn new(rule: &'static str, path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, rule, item: String::new(), message: message.into() }
    }

    fn is_excused_by(&self, exception: &Exception) -> bool {
        (self.rule, self.path.as_str(), self.item.as_str())
            == (exception.rule, exception.path, exception.item)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, rule, message, .. } = self;
        write!(formatter, "{path}:{line}: {rule}: {message}")
    }
}

/// The prose of each crate beside that of other projects, as a table.
pub(crate) fn prose_report(root: &Path) -> Result<String> {
    Ok(prose::report(&Tree::read(root)?))
}

/// Reads the tree under `root` and returns what is wrong, in order of path and line.
pub(crate) fn run(root: &Path) -> Result<Vec<Violation>> {
    Ok(inspect(&Tree::read(root)?, EXCEPTIONS))
}

fn inspect(tree: &Tree, exceptions: &[Exception]) -> Vec<Violation> {
    let (excused, mut violations): (Vec<_>, Vec<_>) = RULES
        .iter()
        .flat_map(|rule| rule(tree))
        .partition(|violation| exceptions.iter().any(|known| violation.is_excused_by(known)));
    let is_stale = |known: &&Exception| !excused.iter().any(|found| found.is_excused_by(known));
    violations.extend(exceptions.iter().filter(is_stale).map(stale));
    violations.sort();
    violations
}

fn stale(exception: &Exception) -> Violation {
    let Exception { rule, path, item, reason } = exception;
    let subject = if item.is_empty() { "it" } else { item };
    let message = format!(
        "{subject} no longer needs its exception from {rule} ({reason}); delete the entry in \
         xtask/src/tidy.rs"
    );
    Violation::new("stale-exception", path, 1, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_LINE: Exception = Exception {
        rule: line_width::RULE,
        path: "crates/core/src/lib.rs",
        item: "",
        reason: "a table",
    };

    fn check(line: &str, exceptions: &[Exception], expected: &[&str]) {
        let tree = Tree::of(&[("crates/core/src/lib.rs", line)]);
        let found: Vec<String> =
            inspect(&tree, exceptions).iter().map(Violation::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_exception_excuses_only_what_it_names() {
        let line = format!("// {}", "x".repeat(100));
        let message = "crates/core/src/lib.rs:1: line-width: 103 columns; break the line at 100";
        check(&line, &[], &[message]);
        check(&line, &[LONG_LINE], &[]);
    }

    #[test]
    fn an_exception_that_excuses_nothing_is_reported() {
        let message = "crates/core/src/lib.rs:1: stale-exception: it no longer needs its \
                       exception from line-width (a table); delete the entry in xtask/src/tidy.rs";
        check("// short", &[LONG_LINE], &[message]);
    }

    #[test]
    fn every_exception_has_a_reason() {
        assert!(EXCEPTIONS.iter().all(|exception| !exception.reason.is_empty()));
    }
}
