//! Trace bytes, plain or compressed, as numbered lines.
//!
//! The first four bytes show the compression, never a file's name. Members of a gzip file and
//! frames of a zstd file that follow one another are one text. A text that is a JSON array is read
//! as its elements, one to a line, and so are objects over several lines. UTF-16 is known by its
//! byte order mark; half a surrogate pair in JSON counts as U+FFFD. A record of another tool
//! becomes lines of a request log: see [`crate::format::export`].

mod array;
mod counted_bytes;
mod surrogates;
mod zstd;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};

use encoding_rs_io::DecodeReaderBytes;
use flate2::bufread::MultiGzDecoder;

use crate::TraceError;
use crate::format::export::{Export, RecordLines};

pub use counted_bytes::CountedBytes;

/// First bytes of a gzip member (RFC 1952, section 2.3.1), deflate being the one method.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];

/// Byte order marks of UTF-16, as tools on Windows write it.
const UTF16_MARKS: [[u8; 2]; 2] = [[0xff, 0xfe], [0xfe, 0xff]];

/// Longest line that is read: agents' sessions reach a few hundred kilobytes, a file without
/// line ends must not fill the memory.
const LINE_LIMIT_BYTES: u64 = 64 << 20;

/// Bytes read at once, before and behind a decoder.
const BUFFER_BYTES: usize = 1 << 16;

/// `raw` as plain text, decompressed when it starts like a gzip member or a zstd frame.
///
/// # Errors
/// When the first bytes cannot be read. What is wrong further on shows while reading.
pub fn decompress<'a>(raw: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut raw = BufReader::with_capacity(BUFFER_BYTES, raw);
    let start = start(&mut raw)?;
    // The bytes that were looked at come first again.
    let raw = io::Cursor::new(start.clone()).chain(raw);
    Ok(if start.starts_with(&GZIP_MAGIC) {
        buffered(MultiGzDecoder::new(raw))
    } else if zstd::starts_like(&start) {
        buffered(zstd::Frames::new(raw))
    } else {
        Box::new(raw)
    })
}

/// The first four bytes, or fewer where there are no more; pipes may give them one by one.
fn start(raw: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(4);
    raw.take(4).read_to_end(&mut start)?;
    Ok(start)
}

fn buffered<'a>(decoder: impl Read + 'a) -> Box<dyn BufRead + 'a> {
    Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
}

/// An array's elements, and objects over several lines, as lines; UTF-16 as UTF-8; any other text
/// as it is.
fn elements<'a>(mut text: Box<dyn BufRead + 'a>) -> Box<dyn BufRead + 'a> {
    // What is wrong with it shows while reading.
    let is_utf16 = |start: &[u8]| UTF16_MARKS.iter().any(|mark| start.starts_with(mark));
    if text.fill_buf().is_ok_and(is_utf16) {
        let mut decoder = DecodeReaderBytes::new(text);
        // The decoder's first reads are short, and the start decides below.
        let mut start = Vec::new();
        let read = decoder.by_ref().take(BUFFER_BYTES as u64).read_to_end(&mut start);
        text = match read {
            Ok(_) => Box::new(io::Cursor::new(start).chain(BufReader::new(decoder))),
            Err(error) => buffered(FailedInput(Some(error))),
        };
    }
    if text.fill_buf().is_ok_and(array::begins) {
        buffered(array::Elements::of_array(text))
    } else if text.fill_buf().is_ok_and(array::begins_object) {
        buffered(array::Elements::of_objects(text))
    } else {
        text
    }
}

/// An input that cannot be read.
struct FailedInput(Option<io::Error>);

impl Read for FailedInput {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// The lines of one input, numbered for error messages; blank lines are passed over. Of an array
/// the number is the element's.
pub struct Lines<'a> {
    name: String,
    reader: Box<dyn BufRead + 'a>,
    line: usize,
    buffer: Vec<u8>,
    export: Export,
    /// Lines of the record in `buffer` that were not taken yet, where they differ from it.
    waiting: VecDeque<String>,
    /// Records without a line.
    passed_over: u64,
    /// The line in `buffer` was peeked at, and is not consumed yet.
    is_peeked: bool,
    /// Nothing more comes: the end, or an error that would come again.
    is_over: bool,
}

impl<'a> Lines<'a> {
    /// Lines of `raw` (plain, gzip or zstd); `name` appears in errors.
    ///
    /// # Errors
    /// [`TraceError::Read`] when the input cannot be read at all.
    pub fn new(name: impl Into<String>, raw: impl Read + 'a) -> Result<Self, TraceError> {
        let name = name.into();
        match decompress(raw).map(elements) {
            Ok(reader) => Ok(Self {
                name,
                reader,
                line: 0,
                buffer: Vec::new(),
                export: Export::default(),
                waiting: VecDeque::new(),
                passed_over: 0,
                is_peeked: false,
                is_over: false,
            }),
            Err(source) => Err(TraceError::Read { input: name, line: 0, source }),
        }
    }

    /// The input, as the caller named it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The line that was read last, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns the result of `look` on the next line that is not blank, which stays the next one;
    /// `None` at the end.
    ///
    /// # Errors
    /// The error of `look`, or that the line could not be read.
    pub fn peek_with<T>(
        &mut self,
        look: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Result<T, TraceError>> {
        let found = self.next_with(look);
        // At the end there is no line to hand out again.
        self.is_peeked = !self.is_over;
        found
    }

    /// The next line that is not blank, parsed by `parse`; `None` at the end, and behind an
    /// error of reading.
    ///
    /// # Errors
    /// What `parse` says of the line, or that it could not be read.
    pub fn next_with<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Result<T, TraceError>> {
        match self.advance_to_line() {
            Err(source) => {
                // A broken stream would give the same error for ever.
                self.is_over = true;
                return Some(Err(TraceError::Read {
                    input: self.name.clone(),
                    line: self.line,
                    source,
                }));
            }
            Ok(false) => return None,
            Ok(true) => {}
        }
        let parsed = match (self.waiting.front(), text_of(&self.buffer)) {
            (Some(line), _) => parse(line),
            (None, Ok(line)) => parse(&line),
            (None, Err(error)) => Err(error),
        };
        Some(parsed.map_err(|reason| TraceError::bad_line(&self.name, self.line, reason)))
    }

    /// Records so far that hold no request, in a file of another tool: see
    /// [`crate::format::export`].
    #[must_use]
    pub fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// Moves to the next line of a record; whether there is one. It is the first of `waiting`, or
    /// else the record in `buffer` itself.
    fn advance_to_line(&mut self) -> io::Result<bool> {
        if std::mem::take(&mut self.is_peeked) {
            return Ok(true);
        }
        self.waiting.pop_front();
        while self.waiting.is_empty() {
            if !self.advance()? {
                return Ok(false);
            }
            // The reader reports bytes that are no text when their turn comes.
            let Some(record) = text_of(&self.buffer).ok().filter(|_| !self.export.is_plain())
            else {
                return Ok(true);
            };
            match self.export.lines(&record) {
                RecordLines::Same => return Ok(true),
                RecordLines::Others(lines) => {
                    self.passed_over += u64::from(lines.is_empty());
                    self.waiting.extend(lines.into_iter().map(Cow::into_owned));
                }
            }
        }
        Ok(true)
    }

    /// Moves to the next record that is not blank; whether there is one.
    fn advance(&mut self) -> io::Result<bool> {
        while !self.is_over {
            if self.read_line()? == 0 {
                self.is_over = true;
                break;
            }
            self.line += 1;
            if !self.buffer.trim_ascii().is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read_line(&mut self) -> io::Result<usize> {
        self.buffer.clear();
        // The limit applies before the bytes are in memory.
        let read =
            self.reader.by_ref().take(LINE_LIMIT_BYTES).read_until(b'\n', &mut self.buffer)?;
        if read as u64 == LINE_LIMIT_BYTES {
            let limit = LINE_LIMIT_BYTES >> 20;
            return Err(io::Error::other(format!("a line is longer than {limit} MiB")));
        }
        Ok(read)
    }
}

/// A record as text.
fn text_of(record: &[u8]) -> Result<Cow<'_, str>, String> {
    match std::str::from_utf8(record) {
        // A file may begin with a byte order mark, which is no JSON.
        Ok(text) => Ok(surrogates::mended(text.trim_start_matches('\u{feff}').trim())),
        Err(error) => Err(format!("not UTF-8 text ({error})")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn zstd(text: &[u8]) -> Vec<u8> {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        ruzstd::encoding::compress_to_vec(text, level)
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text).expect("memory takes it");
        packed.finish().expect("memory takes it")
    }

    fn check(raw: &[u8], expected: &[&str]) {
        let mut lines = Lines::new("t", raw).expect("readable");
        let mut got = Vec::new();
        while let Some(line) = lines.next_with(|line| Ok(line.to_owned())) {
            got.push(line.expect("readable"));
        }
        assert_eq!(got, expected);
    }

    #[test]
    fn plain_and_compressed_lines_are_the_same() {
        check(b"a\n\n b \nc", &["a", "b", "c"]);
        check("\u{feff}a\r\n\r\nb".as_bytes(), &["a", "b"]);
        check(b"", &[]);
        check(&zstd(b"a\nb\n"), &["a", "b"]);
        check(&gzip(b"a\nb\n"), &["a", "b"]);
    }

    #[test]
    fn frames_and_members_that_follow_one_another_are_one_text() {
        check(&[zstd(b"a\nb"), zstd(b""), zstd(b"c\n")].concat(), &["a", "bc"]);
        check(&[gzip(b"a\nb"), gzip(b""), gzip(b"c\n")].concat(), &["a", "bc"]);
        let skippable = b"\x53\x2a\x4d\x18\x03\0\0\0xyz".to_vec();
        check(&[&skippable[..], &zstd(b"a\n"), &skippable].concat(), &["a"]);
    }

    #[test]
    fn elements_of_an_array_are_lines_and_halves_of_pairs_are_mended() {
        check(b"[{\"a\": 1},\n {\"b\":\n 2}]\n", &["{\"a\": 1}", "{\"b\":  2}"]);
        check(&gzip(b"\n[1, [2, 3]]"), &["1", "[2, 3]"]);
        check(br#"{"a": "\ud800"}"#, &[r#"{"a": "\ufffd"}"#]);
        let utf16: Vec<u8> =
            "\u{feff}{\n\"a\": \"é\"\n}\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        check(&utf16, &["{ \"a\": \"é\" }"]);
        let mut lines = Lines::new("t", &b"[\n1,\n2,\n3\n]"[..]).expect("readable");
        while lines.next_with(|_| Ok(())).is_some() {}
        assert_eq!(lines.line(), 3, "the number of the element");
    }

    #[test]
    fn a_peeked_line_is_still_the_next() {
        let mut lines = Lines::new("t", &b"\na\nb"[..]).expect("readable");
        for expected in [("a", 2), ("b", 3)] {
            for _ in 0..2 {
                let line = lines.peek_with(|line| Ok(line.to_owned())).expect("a line");
                assert_eq!(line.expect("readable"), expected.0);
            }
            lines.next_with(|_| Ok(())).expect("a line").expect("read");
            assert_eq!(lines.line(), expected.1);
        }
        assert!(lines.peek_with(|_| Ok(())).is_none());
        assert!(lines.next_with(|_| Ok(())).is_none());
    }

    #[test]
    fn bytes_that_are_no_text_are_a_bad_line_and_the_next_is_read() {
        let mut lines = Lines::new("t", &b"a\n\xff\xfe\nb"[..]).expect("readable");
        let mut next = || lines.next_with(|line| Ok(line.to_owned()));
        assert!(next().expect("a line").is_ok());
        let error = next().expect("a line").expect_err("no text");
        assert!(error.to_string().contains("line 2: not UTF-8"), "{error}");
        assert!(next().expect("a line").is_ok());
    }

    /// A torn input says so, by name and once.
    fn check_torn(packed: &[u8]) {
        let torn = &packed[..packed.len() / 2];
        let mut lines = Lines::new("torn", torn).expect("the start is there");
        let error = loop {
            match lines.next_with(|_| Ok(())) {
                Some(Ok(())) => {}
                Some(Err(error)) => break error,
                None => panic!("a torn input must not end quietly"),
            }
        };
        assert!(error.to_string().contains("torn"), "{error}");
        assert!(lines.next_with(|_| Ok(())).is_none());
    }

    #[test]
    fn a_torn_input_is_an_error_that_names_it() {
        let text = b"abcabcabc\n".repeat(1000);
        check_torn(&zstd(&text));
        check_torn(&gzip(&text));
        check_torn(&[zstd(&text), zstd(&text)[..9].to_vec()].concat().repeat(2));
        check_torn(&[&zstd(b"a\n")[..], b"no frame, but much of it"].concat());
    }
}
