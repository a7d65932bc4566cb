//! Rule: the server's metric names are written down in one place, its module `metrics`, so that
//! a name that is used is a name that is defined. Tests may spell out what they expect.

use super::Violation;
use super::tree::Tree;

pub(super) const RULE: &str = "metric-name";

const SERVER: &str = "crates/server/src/";

/// Prefixes of metric names: ours, and those we export under vLLM's names.
const PREFIXES: [&str; 2] = ["headstart_", "vllm:"];

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in tree.rust.iter().filter(|file| must_import_names(&file.path)) {
        let names = file.strings.iter().filter(|literal| {
            PREFIXES.iter().any(|prefix| literal.text.starts_with(prefix))
                && !file.is_test(literal.offset)
        });
        violations.extend(names.map(|literal| {
            let message = format!(
                "\"{}\" is spelled out; define it in crates/server/src/metrics.rs and use its \
                 constant",
                literal.text.lines().next().unwrap_or_default()
            );
            Violation::new(RULE, &file.path, file.line(literal.offset), message)
        }));
    }
    violations
}

fn must_import_names(path: &str) -> bool {
    let inside = path.strip_prefix(SERVER);
    inside.is_some_and(|inside| inside != "metrics.rs" && !inside.starts_with("metrics/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, source: &str, expected: &[usize]) {
        let found = violations(&Tree::of(&[(path, source)]));
        let found: Vec<usize> = found.iter().map(|found| found.line).collect();
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn names_are_spelled_out_in_one_place() {
        let source = "f();\ng(\"headstart_requests_total\", \"vllm:num_requests_running\");";
        check("crates/server/src/gateway.rs", source, &[2, 2]);
        check("crates/server/src/metrics.rs", source, &[]);
        check("crates/server/src/metrics/names.rs", source, &[]);
        check("crates/cli/src/main.rs", source, &[]);
    }

    #[test]
    fn other_strings_comments_and_tests_are_free() {
        let path = "crates/server/src/gateway.rs";
        check(path, "g(\"headstart\"); // \"headstart_requests_total\"", &[]);
        check(path, "#[test]\nfn f() { g(\"headstart_requests_total\"); }", &[]);
    }
}
