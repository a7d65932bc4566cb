//! The paths that a file imports, one by one: `use a::{b, c::{d, e}};` is three.

use super::rust_file::find_words;

/// One imported path, with groups spelled out.
#[derive(Debug)]
pub(super) struct Import {
    /// Of the `use` that imports it.
    pub(super) offset: usize,
    /// Ends with `::`, so that importing `tokio` alone names `tokio::` too.
    path: String,
}

impl Import {
    /// Whether the path contains `word`, which may end with `::`.
    pub(super) fn names(&self, word: &str) -> bool {
        find_words(&self.path, word).next().is_some()
    }
}

/// All imports of a file's code.
pub(super) fn imports(code: &str) -> Vec<Import> {
    let mut imports = Vec::new();
    for offset in find_words(code, "use") {
        let tree = &code[offset + "use".len()..];
        let tree = &tree[..tree.find(';').unwrap_or(tree.len())];
        // `impl Trait + use<'a>` captures a lifetime and imports nothing.
        if tree.trim_start().starts_with('<') {
            continue;
        }
        let mut paths = Vec::new();
        spell_out("", tree, &mut paths);
        imports.extend(paths.into_iter().map(|path| Import { offset, path }));
    }
    imports
}

/// Appends each path that the use tree names: `a::{b, c::{d}}` is `a::b::` and `a::c::d::`.
fn spell_out(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    if tree.is_empty() {
        return; // Behind the last comma of a group.
    }
    let Some(open) = tree.find('{') else {
        let path = tree.split_whitespace().next().unwrap_or_default();
        paths.push(format!("{prefix}{path}::"));
        return;
    };
    let prefix = format!("{prefix}{}", &tree[..open]);
    let group = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len()).max(open + 1)];
    let (mut depth, mut start) = (0_usize, 0);
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                spell_out(&prefix, &group[start..at], paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    spell_out(&prefix, &group[start..], paths);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &str, expected: &[&str]) {
        let imports = imports(code);
        let paths: Vec<&str> = imports.iter().map(|import| import.path.as_str()).collect();
        assert_eq!(paths, expected, "{code}");
    }

    #[test]
    fn groups_are_spelled_out() {
        check("use a::b;", &["a::b::"]);
        check("use a::{b::{self, c}, d};", &["a::b::self::", "a::b::c::", "a::d::"]);
        check("use {a::b, c,};", &["a::b::", "c::"]);
        check("use a::*; use b;", &["a::*::", "b::"]);
    }

    #[test]
    fn new_names_are_dropped() {
        check("use a::b as c;", &["a::b::"]);
        check("use a::{b as c, d as _};", &["a::b::", "a::d::"]);
    }

    #[test]
    fn captures_import_nothing() {
        check("fn f<'a>() -> impl A + use<'a> { g() }", &[]);
    }
}
