//! Records of chat runs, one file each.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use headstart_loadgen::ChatRecord;
use headstart_terminal as output;

/// Runs whose files are looked at beforehand; few benches have more.
const RUNS_CHECKED: usize = 32;

/// Whether `file`, and those that later runs write beside it, can be written without a loss.
///
/// # Errors
/// A usage error for what is one of `inputs`, and for what cannot be written.
pub(super) fn check(file: &Path, inputs: &[&Path]) -> Result<()> {
    // The number of runs is not known here, so the first names are checked.
    (1..=RUNS_CHECKED)
        .try_for_each(|number| output::files(&[("--record", &numbered(file, number))], inputs))
}

/// Writes the record of run `number` (from 1) to `file`, or beside it from the second run on.
pub(super) fn write(record: &ChatRecord, file: &Path, number: usize) -> Result<()> {
    let path = numbered(file, number);
    let wrong = || format!("cannot write the record {}", path.display());
    let out = File::create(&path).with_context(wrong)?;
    record.write(BufWriter::new(out)).with_context(wrong)
}

/// `run.jsonl`, `run.2.jsonl`, `run.3.jsonl` …
fn numbered(file: &Path, number: usize) -> PathBuf {
    if number <= 1 {
        return file.to_owned();
    }
    let extension = file.extension().unwrap_or_default();
    let mut numbered = std::ffi::OsString::from(number.to_string());
    if !extension.is_empty() {
        numbered.push(".");
        numbered.push(extension);
    }
    // `with_extension` replaces the extension, so the number and the old one go in together.
    file.with_extension(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, number: usize, expected: &str) {
        assert_eq!(numbered(Path::new(file), number), Path::new(expected));
    }

    #[test]
    fn no_record_takes_an_input_s_place() {
        let folder = std::env::temp_dir().join(format!("headstart-record-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let chats = folder.join("run.2.jsonl");
        std::fs::write(&chats, "{}").expect("written");
        let refused = |record: &Path| super::check(record, &[&chats]).is_err();
        assert!(refused(&chats));
        assert!(refused(&folder.join("run.jsonl")));
        assert!(!refused(&folder.join("other.jsonl")));
        std::fs::remove_dir_all(folder).expect("it is there");
    }

    #[test]
    fn later_runs_stand_beside_the_first() {
        check("a/run.jsonl", 1, "a/run.jsonl");
        check("a/run.jsonl", 2, "a/run.2.jsonl");
        check("run", 12, "run.12");
    }
}
