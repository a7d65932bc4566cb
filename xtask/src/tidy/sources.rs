//! Rule: each eviction policy names its source: a line of its module docs begins with
//! `//! Source:`, followed by the paper, its section, and the difference from it.

use super::Violation;
use super::tree::Tree;

pub(super) const RULE: &str = "source";

/// The folder of the policies.
const POLICIES: &str = "crates/cache/src/policy/";

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    let policies = tree.with_suffix(".rs").filter(|file| is_policy(&file.path));
    let unnamed = policies.filter(|file| !file.text.lines().any(names_source));
    let message = "no line of the module docs begins with `//! Source:`; name the paper and its \
                   section, or say that the policy is ours";
    unnamed.map(|file| Violation::new(RULE, &file.path, 1, message)).collect()
}

fn is_policy(path: &str) -> bool {
    path.strip_prefix(POLICIES).is_some_and(|name| !name.contains('/') && name != "mod.rs")
}

fn names_source(line: &str) -> bool {
    line.strip_prefix("//! Source:").is_some_and(|source| !source.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, source: &str, expected: usize) {
        assert_eq!(violations(&Tree::of(&[(path, source)])).len(), expected, "{path}");
    }

    #[test]
    fn policies_name_their_source() {
        let path = "crates/cache/src/policy/sieve.rs";
        check(path, "//! SIEVE.\n//!\n//! Source: NSDI '24, section 3.\n", 0);
        check(path, "//! SIEVE.\n// Source: somewhere\n", 1);
        check(path, "//! Source:\n", 1);
    }

    #[test]
    fn other_files_need_none() {
        check("crates/cache/src/policy/mod.rs", "", 0);
        check("crates/cache/src/policy.rs", "", 0);
        check("crates/cache/src/pool.rs", "", 0);
    }
}
