//! Output of commands: results on standard output or in a file, notes and progress on standard
//! error.
//!
//! Results fit 80 columns, and have colours on a terminal only. A closed pipe is no error.

pub mod colour;
mod progress;
mod table;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use console::{Term, measure_text_width};
use flate2::Compression;
use flate2::write::GzEncoder;
use headstart_core::UsageError;

pub use headstart_core::Progress;
pub use progress::TaskProgress;
pub use table::{aligned, aligned_by, headings};

/// Bytes gathered before a write.
const BUFFER_BYTES: usize = 1 << 16;

/// Columns that every line fits: a terminal's usual width.
pub const COLUMNS: usize = 80;

/// `text` in lines of at most `columns`, broken at spaces; further lines begin with `indent`. A
/// number stays with its `%`, and colours take no columns.
pub fn wrapped(text: &str, indent: &str, columns: usize) -> String {
    // A space without a break keeps a number and its sign together; it is replaced at the end.
    let text = text.replace(" %", "\u{a0}%");
    let start = text.len() - text.trim_start_matches(' ').len();
    let mut lines = vec![text[..start].to_owned()];
    let mut is_empty = true;
    for word in text[start..].split(' ') {
        let last = lines.last_mut().expect("never empty");
        // Widths are in columns: colours have bytes without any, and some letters take two.
        let width = measure_text_width(last) + usize::from(!is_empty) + measure_text_width(word);
        // A word longer than a line gets a line of its own and is not cut.
        if is_empty || width <= columns {
            last.push_str(if is_empty { "" } else { " " });
            last.push_str(word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
        is_empty = false;
    }
    lines.join("\n").replace('\u{a0}', " ")
}

/// `text` for a terminal: tables in Markdown aligned, other long lines broken. Their further parts
/// are indented by two more columns.
pub fn fitted(text: &str) -> String {
    let (mut fitted, mut rows) = (String::new(), Vec::new());
    for line in text.lines() {
        // The rows of a table are gathered: column widths are known after the last one.
        if line.starts_with("| ") {
            rows.push(cells(line));
            continue;
        }
        // The row below a table's heading.
        if line.starts_with("|-") {
            continue;
        }
        // This line ends a table, if there was one.
        fitted += &aligned(&std::mem::take(&mut rows));
        let start = line.len() - line.trim_start().len();
        let indent = " ".repeat(start + 2);
        fitted += &if measure_text_width(line) > COLUMNS {
            wrapped(line, &indent, COLUMNS)
        } else {
            line.to_owned()
        };
        fitted.push('\n');
    }
    fitted += &aligned(&rows);
    fitted.trim_end().to_owned()
}

/// `text` for standard error: where that is a terminal, in lines of its width. A pipe or a file
/// gets the lines as they are, to search in.
pub fn for_stderr(text: &str) -> String {
    // A log file is searched line by line, so its lines are not broken.
    if !io::stderr().is_terminal() {
        return text.to_owned();
    }
    let size = Term::stderr().size_checked();
    let columns = size.map_or(COLUMNS, |(_, columns)| usize::from(columns));
    let lines = text.split('\n').map(|line| {
        let start = line.len() - line.trim_start_matches(' ').len();
        wrapped(line, &" ".repeat(start + 2), columns)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Writes each text as a whole to standard error, in lines that a terminal can show. A log whose
/// reader has gone, or whose disk is full, is lost and ends nothing.
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let fitted = for_stderr(&String::from_utf8_lossy(text));
        progress::beside(|| to_stderr(&fitted));
        // The text counts as written: the logger could not report a failure either.
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The same without breaks in lines.
pub struct JsonStderr;

impl Write for JsonStderr {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to standard error as far as that can be written. `eprintln!` would panic instead.
pub fn to_stderr(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Says something beside the result, on standard error.
pub fn note(text: &str) {
    progress::beside(|| to_stderr(&(fitted(text) + "\n")));
}

/// The cells of a row in Markdown.
fn cells(row: &str) -> Vec<String> {
    // An escaped `|` is text, so it must not split the cell.
    let row = row.replace("\\|", "\u{0}");
    let inner = row.trim().trim_start_matches('|').trim_end_matches('|');
    let cells = inner.split('|').map(|cell| cell.trim().replace('\u{0}', "|"));
    cells.collect()
}

/// Prints `text` and a line end. A closed pipe is not an error: the reader has seen enough.
pub fn line(text: &str) -> Result<()> {
    // The bar is hidden while the line is written, or both would share a row.
    let written = progress::beside(|| {
        let mut stdout = io::stdout().lock();
        // The flush belongs to the write: a full disk shows up only then.
        writeln!(stdout, "{text}").and_then(|()| stdout.flush())
    });
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

/// Whether `path` can be what `--output` names while `trace` is read. Changes nothing.
///
/// # Errors
/// A usage error for a form that is not written, and for the trace itself, which writing would
/// empty before it is read.
pub fn check(path: &Path, trace: Option<&Path>) -> Result<()> {
    let wrong = if has_extension(path, "zst") {
        "zstd is read here but not written; name it .gz, or pipe through `zstd`"
    } else if trace.is_some_and(|trace| is_same_file(path, trace)) {
        // Creating the output would empty the trace before its first line is read.
        "is the trace itself, which would be lost; name another file"
    } else {
        return Ok(());
    };
    Err(UsageError(format!("--output {}: {wrong}", path.display())).into())
}

/// Whether the files that options name can be written once the work is done: `outputs` are option
/// and path of each, `inputs` all that is read. What is there stays as it is.
///
/// # Errors
/// A usage error for what is an input, another output or no regular file, and for what cannot be
/// written where it is.
pub fn files(outputs: &[(&str, &Path)], inputs: &[&Path]) -> Result<()> {
    for (index, &(option, path)) in outputs.iter().enumerate() {
        // Two outputs to one path would overwrite each other, whichever comes first.
        let is_taken = |&&(_, other): &&(&str, &Path)| place(path) == place(other);
        let wrong = if inputs.iter().any(|input| is_same_file(path, input)) {
            "is an input, which would be lost; name another file".to_owned()
        } else if let Some((other, _)) = outputs[..index].iter().find(is_taken) {
            format!("is what {other} names too; name another file")
        } else if let Err(wrong) = writable(path) {
            wrong
        } else {
            continue;
        };
        return Err(UsageError(format!("{option} {}: {wrong}", path.display())).into());
    }
    Ok(())
}

/// Returns the canonical path of a file that may not exist yet.
fn place(path: &Path) -> Option<PathBuf> {
    // A file that does not exist has no canonical path, but its folder has one.
    let there = path.canonicalize().ok();
    there.or_else(|| Some(folder(path).canonicalize().ok()?.join(path.file_name()?)))
}

fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Whether a regular file can be written at `path`: opens the one that is there, or makes one and
/// takes it away.
fn writable(path: &Path) -> Result<(), String> {
    if path.is_dir() || path.file_name().is_none() {
        return Err("is a folder; name a file in it".to_owned());
    }
    if !folder(path).is_dir() {
        return Err("there is no such folder; make it first".to_owned());
    }
    let tried = match path.metadata() {
        Ok(there) if !there.is_file() => {
            return Err("is a device or a pipe, no regular file; name another one".to_owned());
        }
        // Opening for writing checks permissions and changes nothing.
        Ok(_) => OpenOptions::new().write(true).open(path).map(drop),
        Err(_) => {
            // `create_new` fails if another process made the file in the meantime, so nothing is
            // lost.
            let made = OpenOptions::new().write(true).create_new(true).open(path);
            made.and_then(|_| fs::remove_file(path))
        }
    };
    tried.map_err(|error| format!("cannot be written: {error}"))
}

/// Lets `write` fill the file at `path`, compressed where the name ends in .gz, or standard output
/// for `-`. Returns `None` if the reader closed the pipe.
///
/// Writes into what is there, so that links, devices, pipes and permissions stay what they are.
///
/// # Errors
/// When the file cannot be opened, and what stopped `write`; the file is incomplete then, and
/// the error says so.
pub fn to<T>(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<Option<T>> {
    if path.as_os_str() == "-" {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock());
        let written = flushed(&mut out, write);
        return unless_closed(written, || "cannot write to standard output".to_owned());
    }
    let name = path.display();
    let file = File::create(path).with_context(|| format!("cannot write {name}"))?;
    let mut out = BufWriter::with_capacity(BUFFER_BYTES, file);
    let written = if has_extension(path, "gz") {
        let mut packed = GzEncoder::new(out, Compression::default());
        write(&mut packed).and_then(|written| {
            // The trailer of gzip is written now; without it the file is cut off.
            packed.finish()?.flush()?;
            Ok(written)
        })
    } else {
        flushed(&mut out, write)
    };
    let written = unless_closed(written, || format!("cannot write {name}"));
    written.with_context(|| format!("{name} is incomplete"))
}

/// Writes and flushes. An error of the flush counts as a failed write.
fn flushed<T>(out: &mut impl Write, write: impl FnOnce(&mut dyn Write) -> Result<T>) -> Result<T> {
    let written = write(out)?;
    out.flush()?;
    Ok(written)
}

/// Adds `cannot_write` to the error of a failed write. Returns `None` for a closed pipe.
fn unless_closed<T>(written: Result<T>, cannot_write: impl Fn() -> String) -> Result<Option<T>> {
    match written {
        Ok(written) => Ok(Some(written)),
        // Only errors of the output itself can be a closed pipe; others come from the computation.
        Err(error) => match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(ErrorKind::BrokenPipe) => Ok(None),
            Some(_) => Err(error.context(cannot_write())),
            None => Err(error),
        },
    }
}

/// Writes `text` to the file at `path`, whatever it held.
///
/// # Errors
/// When it cannot be written.
pub fn save(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

/// Whether both are one file on a disk, be it by different names or links. Terminals and pipes
/// can be read and written at once.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    // A path without a file behind it is the same as no other.
    let (Ok(one_is), Ok(other_is)) = (one.metadata(), other.metadata()) else {
        return false;
    };
    if !(one_is.is_file() && other_is.is_file()) {
        return false;
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        // Device and inode are equal for hard links and for paths through symbolic links.
        (one_is.dev(), one_is.ino()) == (other_is.dev(), other_is.ino())
    }
    #[cfg(not(unix))]
    {
        one.canonicalize().ok() == other.canonicalize().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_and_tables_aligned() {
        let long = format!("  {}", "word ".repeat(30).trim());
        let fitted = fitted(&format!("{long}\n| a | b |\n|---|--:|\n| x\\|y | 10 % |\nend"));
        let expected = ["a       b", "x|y  10 %", "end"].join("\n");
        assert!(fitted.ends_with(&expected), "{fitted}");
        assert!(fitted.lines().all(|line| line.chars().count() <= COLUMNS), "{fitted}");
        assert!(fitted.starts_with("  word") && fitted.contains("\n    word"), "{fitted}");
    }

    #[test]
    fn colours_take_no_columns() {
        let red = "\u{1b}[31maaa\u{1b}[0m bbb";
        assert_eq!(wrapped(red, "  ", 7), red);
        assert_eq!(wrapped(red, "  ", 6), red.replace(' ', "\n  "));
    }

    #[test]
    fn a_number_stays_with_its_percent_sign() {
        assert_eq!(wrapped("aaa 10 %", "", 6), "aaa\n10 %");
        assert_eq!(wrapped("short", "  ", 80), "short");
    }
}
