//! Trace bytes, plain or compressed, as numbered lines.
//!
//! The first four bytes show the compression, never a file's name. Members of a gzip file and
//! frames of a zstd file that follow one another are one text. A text that is a JSON array is read
//! as its elements, one to a line; half a surrogate pair in JSON counts as U+FFFD.

mod array;
mod counted_bytes;
mod surrogates;
mod zstd;

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use crate::TraceError;

pub use counted_bytes::CountedBytes;

/// First bytes of a gzip member (RFC 1952, section 2.3.1), deflate being the one method.
const GZIP_MAGIC: [u8; 3] = [0x1f, 0x8b, 0x08];

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

/// An array's elements as lines; any other text as it is.
fn elements<'a>(mut text: Box<dyn BufRead + 'a>) -> Box<dyn BufRead + 'a> {
    // What is wrong with it shows while reading.
    if text.fill_buf().is_ok_and(array::begins) {
        buffered(array::Elements::new(text))
    } else {
        text
    }
}

/// The lines of one input, numbered for error messages; blank lines are passed over. Of an array
/// the number is the element's.
pub struct Lines<'a> {
    name: String,
    reader: Box<dyn BufRead + 'a>,
    line: usize,
    buffer: Vec<u8>,
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
        match self.advance() {
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
        // A file may begin with a byte order mark, which is no JSON.
        let parsed = match std::str::from_utf8(&self.buffer) {
            Ok(text) => parse(&surrogates::mended(text.trim_start_matches('\u{feff}').trim())),
            Err(error) => Err(format!("not UTF-8 text ({error})")),
        };
        Some(parsed.map_err(|reason| TraceError::bad_line(&self.name, self.line, reason)))
    }

    /// Moves to the next line that is not blank; whether there is one.
    fn advance(&mut self) -> io::Result<bool> {
        if std::mem::take(&mut self.is_peeked) {
            return Ok(true);
        }
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
