//! Rule: crates of the centre take inputs and `now` and return decisions; they call nothing that
//! reaches into the world. And no crate contains unfinished work.
//!
//! Applies to what lies in `src/` and is not test code. Paths are found where they are called
//! and where they are imported, also in groups: `use std::{fs, io}`. An import under another name
//! is found too, a re-export from a third crate is not.

use std::collections::BTreeSet;

use super::Violation;
use super::architecture::{Purity, crate_row, split_crate};
use super::imports::imports;
use super::rust_file::{RustFile, find_words};
use super::tree::Tree;

pub(super) const RULE: &str = "banned-call";

/// Something not to be written, and what to write instead.
struct Ban {
    word: &'static str,
    instead: &'static str,
}

const fn ban(word: &'static str, instead: &'static str) -> Ban {
    Ban { word, instead }
}

const CLOCK: &str = "take `now` as an argument";
const EDGE: &str = "leave I/O to server, store, loadgen or cli, and take what was read as a value";
const THREAD: &str = "spawn at the edge; the centre is called, it does not run";
const RANDOM: &str = "draw from a seeded generator (core's `rng`) that the caller passes";
const PRINT: &str = "return a value; the caller reports it";
const STDERR: &str = "write with `output::note` or `output::to_stderr`: this one panics where \
                      standard error cannot be written";
const JSON: &str = "keep JSON at the edge (in trace: under src/format)";
const LOG: &str = "count into `core::stats`; the edge logs";

/// Calls that are banned in the centre and in the computing crates.
const BANNED_BELOW_EDGE: &[Ban] = &[
    ban("Instant::now", CLOCK),
    ban("SystemTime::now", CLOCK),
    ban("std::net", EDGE),
    ban("tokio::", EDGE),
    ban("thread::sleep", THREAD),
    ban("println!", PRINT),
];

/// Calls that are banned in the centre alone.
const BANNED_IN_CENTRE: &[Ban] = &[
    ban("std::fs", EDGE),
    ban("File::open", EDGE),
    ban("std::env::", EDGE),
    ban("thread::spawn", THREAD),
    ban("rand::rng", RANDOM),
    ban("thread_rng", RANDOM),
    ban(SERDE_JSON, JSON),
    ban("tracing::", LOG),
];

/// Calls that are banned in all crates.
const BANNED_EVERYWHERE: &[Ban] = &[
    ban("todo!", "finish it, or name the outcome that is not supported"),
    ban("unimplemented!", "finish it, or name the outcome that is not supported"),
    ban("dbg!", "delete it"),
    ban("eprintln!", STDERR),
    ban("eprint!", STDERR),
];

/// Words that are banned in comments.
const BANNED_COMMENTS: &[Ban] = &[
    ban("FIXME", "fix it, or open an issue"),
    ban("XXX", "fix it, or say in a sentence what the reader has to know"),
];

const SERDE_JSON: &str = "serde_json";

/// The folder of the trace crate that may use JSON: trace files are JSON lines.
const JSON_FORMATS: &str = "crates/trace/src/format";

pub(super) fn violations(tree: &Tree) -> Vec<Violation> {
    tree.rust.iter().flat_map(violations_in).collect()
}

fn violations_in(file: &RustFile) -> Vec<Violation> {
    let Some((folder, inside)) = split_crate(&file.path) else {
        return Vec::new();
    };
    if !inside.starts_with("src/") {
        return Vec::new();
    }
    let imports = imports(&file.code);
    let mut found = BTreeSet::new();
    let purity = crate_row(folder).map_or(Purity::Edge, |row| row.purity);
    for ban in banned_in(purity).filter(|ban| !is_allowed(ban, &file.path)) {
        let calls = find_words(&file.code, ban.word);
        let imported = imports.iter().filter(|import| import.names(ban.word));
        let offsets = calls.chain(imported.map(|import| import.offset));
        found.extend(offsets.map(|offset| (offset, ban.word, ban.instead)));
    }
    for ban in BANNED_COMMENTS {
        let offsets = find_words(&file.comments, ban.word);
        found.extend(offsets.map(|offset| (offset, ban.word, ban.instead)));
    }
    // A call and an import of the same thing on one line are one finding.
    let lines: BTreeSet<_> = found
        .into_iter()
        .filter(|&(offset, ..)| !file.is_test(offset))
        .map(|(offset, word, instead)| (file.line(offset), word, instead))
        .collect();
    let report = |(line, word, instead)| violation(&file.path, line, word, instead);
    lines.into_iter().map(report).collect()
}

fn violation(path: &str, line: usize, word: &str, instead: &str) -> Violation {
    Violation::new(RULE, path, line, format!("`{word}` is banned here; {instead}"))
}

fn banned_in(purity: Purity) -> impl Iterator<Item = &'static Ban> {
    let (below_edge, centre): (&[Ban], &[Ban]) = match purity {
        Purity::Pure => (BANNED_BELOW_EDGE, BANNED_IN_CENTRE),
        Purity::Computes => (BANNED_BELOW_EDGE, &[]),
        Purity::Edge => (&[], &[]),
    };
    below_edge.iter().chain(centre).chain(BANNED_EVERYWHERE)
}

fn is_allowed(ban: &Ban, path: &str) -> bool {
    // The checks themselves end with the terminal that they were started in.
    let is_check = ban.instead == STDERR && path.starts_with("xtask/");
    is_check || (ban.word == SERDE_JSON && path.starts_with(JSON_FORMATS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, source: &str, expected: &[&str]) {
        let found = violations(&Tree::of(&[(path, source)]));
        let found: Vec<String> =
            found.iter().map(|found| format!("{}: {}", found.line, found.message)).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} does not start with {expected}");
        }
    }

    #[test]
    fn the_centre_calls_nothing_of_the_world() {
        let path = "crates/cache/src/lib.rs";
        check(path, "let a = Instant::now();", &["1: `Instant::now`"]);
        check(path, "\nstd::thread::spawn(f);", &["2: `thread::spawn`"]);
        check(path, "rand::rng(); println!();", &["1: `println!`", "1: `rand::rng`"]);
        check(path, "eprintln!(); tracing::info!();", &["1: `eprintln!`", "1: `tracing::`"]);
        check(path, "rand::rngs::Small; my_tokio::a(); Instant::nowhere();", &[]);
    }

    #[test]
    fn imports_are_found_in_groups_and_under_other_names() {
        let path = "crates/sim/src/lib.rs";
        check(path, "use std::{\n    fs::{self, File},\n    io,\n};", &["1: `std::fs`"]);
        check(path, "use std::env;", &["1: `std::env::`"]);
        check(path, "use tokio as runtime;", &["1: `tokio::`"]);
        check(path, "use std::{fmt, collections::{BTreeMap, BTreeSet}};", &[]);
        check(path, "fn f<'a>() -> impl A + use<'a> { g() }", &[]);
    }

    #[test]
    fn strings_comments_and_tests_are_free() {
        let path = "crates/router/src/lib.rs";
        check(path, "// std::fs\nlet a = \"tokio::\";", &[]);
        check(path, "#[cfg(test)]\nmod tests { use std::fs; fn f() { println!(); } }", &[]);
        check("crates/router/tests/a.rs", "use std::fs;", &[]);
        check("crates/router/benches/a.rs", "Instant::now();", &[]);
    }

    #[test]
    fn computing_crates_may_read_files_but_no_clock() {
        let source = "std::fs::read(a); Instant::now();";
        check("crates/engine/src/lib.rs", source, &["1: `Instant::now`"]);
        check("crates/server/src/lib.rs", source, &[]);
    }

    #[test]
    fn json_belongs_to_trace_formats() {
        check("crates/trace/src/format/mooncake.rs", "serde_json::from_str(a)", &[]);
        check("crates/trace/src/read.rs", "serde_json::from_str(a)", &["1: `serde_json`"]);
    }

    #[test]
    fn unfinished_work_is_found_everywhere() {
        check("crates/server/src/lib.rs", "todo!()", &["1: `todo!`"]);
        check("crates/cli/src/main.rs", "dbg!(a); // FIXME: b", &["1: `FIXME`", "1: `dbg!`"]);
        check("xtask/src/main.rs", "// XXX\n/// XXXL", &["1: `XXX`"]);
    }
}
