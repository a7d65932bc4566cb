//! Dependencies of a `Cargo.toml`, with their lines and their reasons.
//!
//! A parser of lines, not of TOML: it knows tables, keys, comments and values that go on over
//! several lines, which is all that a formatted manifest consists of.

/// The dependencies of one manifest, and the package it describes.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    /// Name of the package and its line, if the manifest describes one.
    pub(super) package: Option<(String, usize)>,
    pub(super) dependencies: Vec<Dependency>,
}

/// One entry of one of the tables of dependencies.
#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) table: Table,
    /// The key, which is the name of the package unless the value says otherwise.
    pub(super) key: String,
    value: String,
    pub(super) line: usize,
    /// Whether a comment stands on the entry's line or directly above it.
    pub(super) has_reason: bool,
}

/// The table that an entry stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Normal,
    Build,
    Dev,
    Workspace,
}

impl Dependency {
    /// Whether the value has this field: `path`, `workspace`.
    pub(super) fn has(&self, field: &str) -> bool {
        self.field(field).is_some()
    }

    /// The package's name.
    pub(super) fn package(&self) -> &str {
        self.field("package").unwrap_or(&self.key)
    }

    fn field(&self, name: &str) -> Option<&str> {
        let fields = self.value.split(['{', '}', ',']).filter_map(|field| field.split_once('='));
        let mut values = fields.filter(|(key, _)| key.trim() == name).map(|(_, value)| value);
        values.next().map(|value| value.trim().trim_matches('"'))
    }
}

/// One `key = value`, or one header that names a dependency.
#[derive(Clone, Copy)]
struct Entry<'a> {
    key: &'a str,
    value: &'a str,
    line: usize,
    has_reason: bool,
}

impl Manifest {
    /// Reads the text of a manifest.
    pub(super) fn parse(text: &str) -> Self {
        let mut manifest = Self::default();
        let mut section = Section::Other;
        let mut comment_above = false;
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            let (content, comment) = split_comment(line);
            let (line, has_reason) = (index + 1, comment_above || comment.is_some());
            comment_above = content.is_empty() && comment.is_some();
            if let Some(header) = content.strip_prefix('[') {
                section = Section::parse(header.trim_matches(['[', ']']));
                if let Section::Entry(table, key) = &section {
                    manifest.add(*table, Entry { key, value: "", line, has_reason });
                }
            } else if let Some((key, value)) = content.split_once('=') {
                let mut value = value.trim().to_owned();
                while is_open(&value) {
                    let Some((_, line)) = lines.next() else { break };
                    value.push_str(split_comment(line).0);
                }
                let key = key.trim();
                manifest.read_entry(&section, Entry { key, value: &value, line, has_reason });
            }
        }
        manifest
    }

    fn read_entry(&mut self, section: &Section, entry: Entry<'_>) {
        let Entry { key, value, line, .. } = entry;
        match section {
            Section::Package if key == "name" => {
                self.package = Some((value.trim_matches('"').to_owned(), line));
            }
            Section::Dependencies(table) => match key.split_once('.') {
                Some((key, field)) => {
                    let value = &format!("{field} = {value}");
                    self.add(*table, Entry { key, value, ..entry });
                }
                None => self.add(*table, entry),
            },
            Section::Entry(table, name) => {
                // Its reason stands at the header; comments on single fields are about those.
                let value = &format!("{key} = {value}");
                self.add(*table, Entry { key: name, value, line, has_reason: false });
            }
            Section::Package | Section::Other => {}
        }
    }

    /// Adds an entry, or more fields to the entry before.
    fn add(&mut self, table: Table, entry: Entry<'_>) {
        let Entry { key, value, line, has_reason } = entry;
        let key = key.trim_matches('"');
        match self.dependencies.last_mut() {
            Some(last) if last.table == table && last.key == key => {
                last.value = format!("{}, {value}", last.value);
                last.has_reason |= has_reason;
            }
            _ => self.dependencies.push(Dependency {
                table,
                key: key.to_owned(),
                value: value.to_owned(),
                line,
                has_reason,
            }),
        }
    }
}

/// The table that lines belong to, by its header.
enum Section {
    Package,
    Dependencies(Table),
    /// `[dependencies.name]`.
    Entry(Table, String),
    Other,
}

impl Section {
    fn parse(header: &str) -> Self {
        if header == "package" {
            return Self::Package;
        }
        if let Some(table) = Table::parse(header) {
            return Self::Dependencies(table);
        }
        match header.rsplit_once('.').map(|(head, name)| (Table::parse(head), name)) {
            Some((Some(table), name)) => Self::Entry(table, name.to_owned()),
            _ => Self::Other,
        }
    }
}

impl Table {
    /// Also reads `target.'cfg(unix)'.dependencies`.
    fn parse(header: &str) -> Option<Self> {
        let is_or_ends_with = |name: &str| {
            header.strip_suffix(name).is_some_and(|head| head.is_empty() || head.ends_with('.'))
        };
        if header == "workspace.dependencies" {
            return Some(Self::Workspace);
        }
        let tables = [
            ("build-dependencies", Self::Build),
            ("dev-dependencies", Self::Dev),
            ("dependencies", Self::Normal),
        ];
        tables.into_iter().find(|&(name, _)| is_or_ends_with(name)).map(|(_, table)| table)
    }
}

/// The line's content without blanks around it, and its comment if it has one that says anything.
fn split_comment(line: &str) -> (&str, Option<&str>) {
    let mut quote = None;
    for (at, character) in line.char_indices() {
        match (character, quote) {
            ('#', None) => {
                let comment = line[at + 1..].trim();
                return (line[..at].trim(), (!comment.is_empty()).then_some(comment));
            }
            ('"' | '\'', None) => quote = Some(character),
            (_, Some(open)) if character == open => quote = None,
            _ => {}
        }
    }
    (line.trim(), None)
}

fn is_open(value: &str) -> bool {
    let opened = value.matches(['[', '{']).count();
    opened > value.matches([']', '}']).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(Table, &str, usize, bool)]) {
        let manifest = Manifest::parse(text);
        let found: Vec<_> = manifest
            .dependencies
            .iter()
            .map(|entry| (entry.table, entry.key.as_str(), entry.line, entry.has_reason))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn entries_are_found_in_their_tables() {
        check(
            "[package]\nname = \"a\"\n[dependencies]\nb = \"1\"\n[dev-dependencies]\nc = \"1\"\n\
             [target.'cfg(unix)'.dependencies]\nd = \"1\"\n[features]\ne = []\n",
            &[
                (Table::Normal, "b", 4, false),
                (Table::Dev, "c", 6, false),
                (Table::Normal, "d", 8, false),
            ],
        );
    }

    #[test]
    fn the_package_is_named() {
        let manifest = Manifest::parse("[package]\nname = \"a\" # b\n");
        assert_eq!(manifest.package, Some(("a".to_owned(), 2)));
    }

    #[test]
    fn a_reason_stands_beside_or_directly_above() {
        check(
            "[workspace.dependencies]\n# Why.\na = \"1\"\nb = \"1\"\nc = \"1\" # Why.\n# Not this.\
             \n\nd = \"#\"\n#\ne = \"1\"\n",
            &[
                (Table::Workspace, "a", 3, true),
                (Table::Workspace, "b", 4, false),
                (Table::Workspace, "c", 5, true),
                (Table::Workspace, "d", 8, false),
                (Table::Workspace, "e", 10, false),
            ],
        );
    }

    #[test]
    fn values_are_read_in_every_notation() {
        let manifest = Manifest::parse(
            "[dependencies]\na.workspace = true\nb = { workspace = true, features = [\n\
             \"path\"\n] }\n\
             c = { path = \"../c\", package = \"real-c\" }\n[dependencies.d]\npath = \"../d\"\n",
        );
        let [a, b, c, d] = manifest.dependencies.as_slice() else { panic!("{manifest:?}") };
        assert!(a.has("workspace") && b.has("workspace") && !b.has("path"));
        assert!(c.has("path") && d.has("path"));
        assert_eq!((a.package(), c.package()), ("a", "real-c"));
    }
}
