//! Rule: `unsafe` stands only in the crates of kernels and FFI, and each use says why it is sound.
//!
//! A block or an `impl` has a `SAFETY` comment on its line or in the six above; a function or a
//! trait may have a `# Safety` section in its docs instead. Tests may use `unsafe` in any crate
//! (to count allocations, say), but explain it too.

use super::Violation;
use super::architecture::split_crate;
use super::rust_file::{RustFile, find_words};
use super::tree::Tree;

pub(super) const RULE: &str = "unsafe";

/// Folders of the crates that talk to hardware, to the kernel or to another language.
const CRATES_WITH_UNSAFE: [&str; 3] = ["engine", "store", "python"];

/// Lines above an `unsafe` in which its comment may stand: a sentence and some attributes.
const COMMENT_REACH: usize = 6;

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    tree.rust.iter().flat_map(violations_in).collect()
}

fn violations_in(file: &RustFile) -> Vec<Violation> {
    let code: Vec<&str> = file.code.lines().collect();
    let comments: Vec<&str> = file.comments.lines().collect();
    let mut violations = Vec::new();
    for offset in find_words(&file.code, "unsafe") {
        let line = file.line(offset);
        if !file.is_test(offset) && !may_be_unsafe(&file.path) {
            let message = "only engine, store and python hold unsafe code; find a safe way or move \
                           it there";
            violations.push(Violation::new(RULE, &file.path, line, message));
        }
        let explained = match explanation(&file.code[offset + "unsafe".len()..]) {
            Explanation::NotNeeded => true,
            Explanation::Comment => has_comment(&comments, line),
            Explanation::CommentOrDocs => {
                has_comment(&comments, line) || has_safety_section(&code, &comments, line)
            }
        };
        if !explained {
            let message = "no `SAFETY` comment within 6 lines above; say why this is sound";
            violations.push(Violation::new(RULE, &file.path, line, message));
        }
    }
    violations
}

fn may_be_unsafe(path: &str) -> bool {
    split_crate(path).is_some_and(|(folder, _)| CRATES_WITH_UNSAFE.contains(&folder))
}

enum Explanation {
    /// A type such as `unsafe fn()` promises nothing.
    NotNeeded,
    Comment,
    CommentOrDocs,
}

/// Returns the explanation that an `unsafe` needs, by the code behind it.
fn explanation(behind: &str) -> Explanation {
    let word = |text: &str, word: &str| find_words(text, word).next() == Some(0);
    let mut behind = behind.trim_start();
    if word(behind, "extern") {
        behind = behind["extern".len()..].trim_start().trim_start_matches(['"', ' ']);
    }
    if word(behind, "trait") {
        return Explanation::CommentOrDocs;
    }
    if !word(behind, "fn") {
        return Explanation::Comment;
    }
    let is_type = behind["fn".len()..].trim_start().starts_with('(');
    if is_type { Explanation::NotNeeded } else { Explanation::CommentOrDocs }
}

fn has_comment(comments: &[&str], line: usize) -> bool {
    let first = line.saturating_sub(COMMENT_REACH + 1);
    comments[first..line].iter().any(|comment| comment.contains("SAFETY"))
}

/// Whether the docs right above the line have a `# Safety` section; attributes may lie between.
fn has_safety_section(code: &[&str], comments: &[&str], line: usize) -> bool {
    let above = code[..line - 1].iter().zip(comments).rev();
    above
        .take_while(|(code, comment)| {
            code.trim_start().starts_with("#[") || comment.trim_start().starts_with("///")
        })
        .any(|(_, comment)| comment.contains("# Safety"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: &str = "crates/engine/src/cpu.rs";

    fn check(path: &str, source: &str, expected: &[(usize, &str)]) {
        let found = violations(&Tree::of(&[(path, source)]));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, (line, message)) in found.iter().zip(expected) {
            assert_eq!(found.line, *line);
            assert!(found.message.starts_with(message), "{found}");
        }
    }

    #[test]
    fn only_some_crates_may_be_unsafe() {
        let source = "// SAFETY: a\nunsafe { b() }";
        check(ENGINE, source, &[]);
        check("crates/cache/src/pool.rs", source, &[(2, "only engine")]);
        check("crates/cache/tests/allocations.rs", source, &[]);
        check("crates/cache/src/pool.rs", "#![forbid(unsafe_code)] // unsafe\n\"unsafe\"", &[]);
    }

    #[test]
    fn blocks_and_impls_need_a_comment_nearby() {
        check(ENGINE, "unsafe { a() }", &[(1, "no `SAFETY`")]);
        check(ENGINE, "unsafe { a() } // SAFETY: b", &[]);
        check(ENGINE, &format!("// SAFETY: a{}unsafe impl B", "\n".repeat(6)), &[]);
        let distant = format!("// SAFETY: a{}unsafe impl B", "\n".repeat(7));
        check(ENGINE, &distant, &[(8, "no `SAFETY`")]);
        check("crates/cache/tests/a.rs", "unsafe { a() }", &[(1, "no `SAFETY`")]);
    }

    #[test]
    fn functions_may_document_their_safety_instead() {
        let docs = format!("/// A.\n/// # Safety\n{}#[inline]\n", "/// B.\n".repeat(9));
        check(ENGINE, &format!("{docs}pub unsafe fn f() {{}}"), &[]);
        check(ENGINE, &format!("{docs}pub unsafe extern \"C\" fn f() {{}}"), &[]);
        check(ENGINE, &format!("{docs}fn g() {{}}\nunsafe fn f() {{}}"), &[(14, "no `SAFETY`")]);
        check(ENGINE, "type F = unsafe extern \"C\" fn(u8);", &[]);
    }
}
