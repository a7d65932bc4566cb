//! Trace bytes, plain or compressed, as numbered lines.

use std::io::{self, BufRead, BufReader, Read};

use crate::TraceError;

/// First bytes of a zstd frame (RFC 8878, section 3.1.1).
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Longest line that is read: agents' prompts reach a few hundred kilobytes, a file without
/// line ends must not fill the memory.
const LINE_LIMIT_BYTES: u64 = 64 << 20;

/// `raw` as plain text, decompressed when it starts like a zstd frame.
///
/// # Errors
/// When the first bytes cannot be read or the frame header is broken.
pub fn decompress<'a>(raw: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut raw = BufReader::with_capacity(1 << 16, raw);
    if !raw.fill_buf()?.starts_with(&ZSTD_MAGIC) {
        return Ok(Box::new(raw));
    }
    let decoder = ruzstd::decoding::StreamingDecoder::new(raw).map_err(io::Error::other)?;
    Ok(Box::new(BufReader::with_capacity(1 << 16, decoder)))
}

/// The lines of one input, numbered for error messages; blank lines are passed over.
pub struct Lines<'a> {
    name: String,
    reader: Box<dyn BufRead + 'a>,
    line: usize,
    buffer: String,
}

impl<'a> Lines<'a> {
    /// Lines of `raw` (plain or zstd); `name` appears in errors.
    ///
    /// # Errors
    /// [`TraceError::Read`] when the input cannot be read at all.
    pub fn new(name: impl Into<String>, raw: impl Read + 'a) -> Result<Self, TraceError> {
        let name = name.into();
        match decompress(raw) {
            Ok(reader) => Ok(Self {
                name,
                reader,
                line: 0,
                buffer: String::new(),
            }),
            Err(source) => Err(TraceError::Read {
                input: name,
                line: 0,
                source,
            }),
        }
    }

    /// The next line that is not blank, parsed by `parse`; `None` at the end.
    ///
    /// # Errors
    /// What `parse` says of the line, or that it could not be read.
    pub fn next_with<T>(
        &mut self,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<Result<T, TraceError>> {
        loop {
            match self.read_line() {
                Err(source) => {
                    let input = self.name.clone();
                    return Some(Err(TraceError::Read {
                        input,
                        line: self.line,
                        source,
                    }));
                }
                Ok(0) => return None,
                Ok(_) => self.line += 1,
            }
            if !self.buffer.trim().is_empty() {
                let bad = |reason| TraceError::bad_line(&self.name, self.line, reason);
                return Some(parse(self.buffer.trim()).map_err(bad));
            }
        }
    }

    fn read_line(&mut self) -> io::Result<usize> {
        self.buffer.clear();
        let read = self
            .reader
            .by_ref()
            .take(LINE_LIMIT_BYTES)
            .read_line(&mut self.buffer)?;
        if read as u64 == LINE_LIMIT_BYTES {
            let limit = LINE_LIMIT_BYTES >> 20;
            return Err(io::Error::other(format!(
                "a line is longer than {limit} MiB"
            )));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        check(b"", &[]);
        let packed = ruzstd::encoding::compress_to_vec(
            &b"a\nb\n"[..],
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        check(&packed, &["a", "b"]);
    }

    #[test]
    fn a_torn_frame_is_an_error_that_names_the_input() {
        let packed = ruzstd::encoding::compress_to_vec(
            &b"abcabcabc\n".repeat(1000)[..],
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        let torn = &packed[..packed.len() / 2];
        let error = match Lines::new("torn.zst", torn) {
            Err(error) => error,
            Ok(mut lines) => loop {
                match lines.next_with(|_| Ok(())) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => break error,
                    None => panic!("a torn frame must not end quietly"),
                }
            },
        };
        assert!(error.to_string().contains("torn.zst"), "{error}");
    }
}
