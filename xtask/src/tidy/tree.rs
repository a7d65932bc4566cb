//! The workspace as the rules see it: texts by path, and which paths exist.
//!
//! Reads what is tracked, approximately: everything but build output, hidden folders, and what
//! the root `.gitignore` names without wildcards. Symbolic links are not followed.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::path::Path;

use anyhow::{Context, Result};

use super::rust_file::RustFile;

/// Folders that hold no source of ours, wherever they lie.
const SKIPPED_FOLDERS: [&str; 2] = ["target", "node_modules"];

/// Hidden folders that do hold source of ours; `.git` and editors' folders do not.
const READ_HIDDEN_FOLDERS: [&str; 2] = [".ci", ".cargo"];

/// Files that are read; others only exist.
const TEXT_EXTENSIONS: [&str; 8] = ["rs", "toml", "md", "py", "sh", "html", "js", "txt"];

/// A file's text. The path is relative to the root, with `/` between its parts.
#[derive(Debug)]
pub(super) struct TextFile {
    pub(super) path: String,
    pub(super) text: String,
}

/// The workspace's files.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// All files with an extension that rules ask for, in order of path.
    pub(super) texts: Vec<TextFile>,
    /// The Rust files among them, scanned.
    pub(super) rust: Vec<RustFile>,
    /// Every file and folder that exists.
    paths: BTreeSet<String>,
}

impl Tree {
    /// Reads the files under `root`.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let ignored =
            Ignored::parse(&fs::read_to_string(root.join(".gitignore")).unwrap_or_default());
        let mut tree = Self::default();
        tree.read_folder(root, "", &ignored)?;
        tree.texts.sort_by(|left, right| left.path.cmp(&right.path));
        tree.rust = tree.with_suffix(".rs").map(RustFile::parse).collect();
        Ok(tree)
    }

    /// The texts whose path ends with `suffix`.
    pub(super) fn with_suffix(&self, suffix: &str) -> impl Iterator<Item = &TextFile> {
        self.texts.iter().filter(move |file| file.path.ends_with(suffix))
    }

    /// The text at `path`.
    pub(super) fn text(&self, path: &str) -> Option<&TextFile> {
        self.texts.iter().find(|file| file.path == path)
    }

    /// Whether a file or folder is at `path`; the root itself is the empty path.
    pub(super) fn exists(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str, ignored: &Ignored) -> Result<()> {
        let unreadable = || format!("{} cannot be read", folder.display());
        for entry in fs::read_dir(folder).with_context(unreadable)? {
            let entry = entry.with_context(unreadable)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            if !ignored.contains(&path, &name) {
                self.read_entry(&entry, &name, path, ignored)?;
            }
        }
        Ok(())
    }

    fn read_entry(
        &mut self,
        entry: &DirEntry,
        name: &str,
        path: String,
        ignored: &Ignored,
    ) -> Result<()> {
        let kind = entry.file_type().with_context(|| format!("{path} has no type"))?;
        if kind.is_dir() {
            if !is_read(name) {
                return Ok(());
            }
            self.read_folder(&entry.path(), &format!("{path}/"), ignored)?;
        } else if kind.is_file() && has_text(name) {
            let bytes = fs::read(entry.path()).with_context(|| format!("{path} is unreadable"))?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            self.texts.push(TextFile { path: path.clone(), text });
        }
        self.paths.insert(path);
        Ok(())
    }
}

fn is_read(folder: &str) -> bool {
    let hidden = folder.starts_with('.') && !READ_HIDDEN_FOLDERS.contains(&folder);
    !hidden && !SKIPPED_FOLDERS.contains(&folder)
}

fn has_text(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| TEXT_EXTENSIONS.contains(&extension))
}

/// The plain entries of a `.gitignore`: `name` anywhere, `/path` at the root. Patterns with
/// wildcards or negations are not understood, and ignore nothing.
#[derive(Debug, Default)]
struct Ignored {
    names: BTreeSet<String>,
    paths: BTreeSet<String>,
}

impl Ignored {
    fn parse(text: &str) -> Self {
        let mut ignored = Self::default();
        let plain = |line: &&str| !line.is_empty() && !line.contains(['#', '!', '*', '?', '[']);
        for line in text.lines().map(str::trim).filter(plain) {
            let entry = line.trim_end_matches('/');
            match entry.strip_prefix('/') {
                Some(path) => ignored.paths.insert(path.to_owned()),
                None if entry.contains('/') => ignored.paths.insert(entry.to_owned()),
                None => ignored.names.insert(entry.to_owned()),
            };
        }
        ignored
    }

    fn contains(&self, path: &str, name: &str) -> bool {
        self.names.contains(name) || self.paths.contains(path)
    }
}

#[cfg(test)]
impl Tree {
    /// A tree of the given paths and texts, in memory.
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
            tree.paths.extend(ends.map(|end| path[..end].to_owned()));
            tree.texts.push(TextFile { path: (*path).to_owned(), text: (*text).to_owned() });
        }
        tree.rust = tree.with_suffix(".rs").map(RustFile::parse).collect();
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(gitignore: &str, path: &str, expected: bool) {
        let name = path.rsplit('/').next().unwrap_or(path);
        assert_eq!(Ignored::parse(gitignore).contains(path, name), expected, "{path}");
    }

    #[test]
    fn plain_entries_of_gitignore_are_respected() {
        check("/bench/out\n", "bench/out", true);
        check("/bench/out\n", "tools/bench/out", false);
        check("__pycache__/\n", "tools/__pycache__", true);
        check("# data\n*.rs\n!keep\n", "data", false);
    }

    #[test]
    fn build_output_and_hidden_folders_are_not_read() {
        assert!(is_read("src") && is_read(".ci") && is_read(".cargo"));
        assert!(!is_read("target") && !is_read(".git") && !is_read(".venv"));
    }

    #[test]
    fn folders_exist_as_well_as_files() {
        let tree = Tree::of(&[("data/traces/one.md", "")]);
        assert!(tree.exists("data/traces") && tree.exists("data/traces/one.md") && tree.exists(""));
        assert!(!tree.exists("traces") && !tree.exists("data/traces/two.md"));
    }
}
