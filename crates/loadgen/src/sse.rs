//! Server-sent events: bytes in, data payloads out.
//!
//! ```text
//! ": ping\ndata: {\"a\"" , ":1}\r\n\r\nda" , "ta: x\ndata: y\n\n"   →   {"a":1}   "x\ny"
//! ```
//!
//! Lines may end in LF, CR LF or CR; bytes may arrive cut anywhere, also inside a character or
//! between CR and LF. Comments and all fields but `data` are dropped: chat completions use no
//! others. An event counts once its blank line has arrived; what the stream ends inside of is
//! no event.
//!
//! Invariant: between calls, at most [`EVENT_LIMIT_BYTES`] are held.
//!
//! Source: WHATWG HTML, section 9.2 (without reconnection, `id` and the byte order mark).

/// Longest event: a token's chunk takes some 300 bytes, with log probabilities some kilobytes;
/// a server that never sends a blank line must not fill the memory.
pub const EVENT_LIMIT_BYTES: usize = 1 << 20;

/// An event grew beyond [`EVENT_LIMIT_BYTES`]; the stream cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventTooLong;

/// Takes a stream apart into events.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// Data lines of the event that has not ended yet, each with its line end.
    data: Vec<u8>,
    after_carriage_return: bool,
}

impl Decoder {
    /// Takes the next bytes and returns the payloads of the events that they complete.
    ///
    /// # Errors
    /// [`EventTooLong`] when the unfinished event outgrew the limit.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, EventTooLong> {
        let mut payloads = Vec::new();
        let mut rest = bytes;
        // A CR LF may be cut between two reads. Its LF must not count as a second, blank line.
        if self.after_carriage_return && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.after_carriage_return = false;
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend_line(&rest[..end])?;
            payloads.extend(self.end_line());
            let is_carriage_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if is_carriage_return {
                // Only at the end of the bytes can an LF still follow.
                self.after_carriage_return = rest.is_empty();
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
        }
        self.extend_line(rest)?;
        Ok(payloads)
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        // Ended lines count as well: an event of endless short lines must not fill the memory
        // either.
        if self.line.len() + self.data.len() + bytes.len() > EVENT_LIMIT_BYTES {
            return Err(EventTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Uses the finished line; returns a payload when it was the blank one behind an event.
    fn end_line(&mut self) -> Option<String> {
        if self.line.is_empty() {
            // This drops the last line's end. An event without data, such as a comment, has none
            // and yields nothing.
            self.data.pop()?;
            // Whole events only: a character that two reads cut is complete here. Bytes are held
            // until then, because each invalid one becomes a character of three.
            return Some(text(std::mem::take(&mut self.data)));
        }
        if let Some(value) = data(&self.line) {
            self.data.extend_from_slice(value);
            self.data.push(b'\n');
        }
        self.line.clear();
        None
    }
}

/// Value of a line of data; `None` for a comment or another field.
fn data(line: &[u8]) -> Option<&[u8]> {
    let value = line.strip_prefix(b"data")?;
    // By the standard, a line without a colon is a field with an empty value.
    if value.is_empty() {
        return Some(value);
    }
    let value = value.strip_prefix(b":")?;
    // The standard strips one space only, so that text may begin with spaces.
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole, byte by byte, and cut in two at every place: the same events.
    fn check(stream: &str, expected: &[&str]) {
        let bytes = stream.as_bytes();
        let mut cuts: Vec<Vec<&[u8]>> =
            (0..=bytes.len()).map(|at| vec![&bytes[..at], &bytes[at..]]).collect();
        cuts.push(bytes.chunks(1).collect());
        for pieces in cuts {
            let mut decoder = Decoder::default();
            let got: Vec<String> =
                pieces.iter().flat_map(|piece| decoder.feed(piece).expect("short")).collect();
            assert_eq!(got, expected, "cut as {pieces:?}");
        }
    }

    #[test]
    fn every_line_end_is_one() {
        check("data: a\n\ndata: b\n\n", &["a", "b"]);
        check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
        check("data: a\r\rdata: b\r\r", &["a", "b"]);
        check("data: a\r\n\ndata: b\n\r\n", &["a", "b"]);
    }

    #[test]
    fn data_lines_of_one_event_are_joined() {
        check("data: a\ndata: b\n\n", &["a\nb"]);
        check("data\ndata:\ndata:  c\n\n", &["\n\n c"]);
        check("data:\n\n", &[""]);
    }

    #[test]
    fn everything_else_is_dropped() {
        check(": ping\n\nevent: x\nid: 1\n\ndata: a\n\n", &["a"]);
        check("dataset: a\ndate: b\n\n\n\n", &[]);
        check("data: unfinished\n", &[]);
        check("data: é€😀\n\n", &["é€😀"]);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let piece = [b'x'; 1 << 16];
        let mut decoder = Decoder::default();
        let fits = EVENT_LIMIT_BYTES / piece.len();
        for _ in 0..fits {
            assert_eq!(decoder.feed(&piece), Ok(vec![]));
        }
        assert_eq!(decoder.feed(&piece), Err(EventTooLong));
        let mut decoder = Decoder::default();
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        assert!((0..=fits).any(|_| decoder.feed(&line).is_err()));
    }

    #[test]
    fn invalid_bytes_take_no_more_room_than_they_have() {
        let mut decoder = Decoder::default();
        let line = [b"data: ".as_slice(), &[0xff; EVENT_LIMIT_BYTES / 2], b"\n"].concat();
        assert_eq!(decoder.feed(&line), Ok(vec![]));
        assert!(decoder.line.len() + decoder.data.len() <= EVENT_LIMIT_BYTES);
        let payload = "\u{fffd}".repeat(EVENT_LIMIT_BYTES / 2);
        assert_eq!(decoder.feed(b"\n"), Ok(vec![payload]));
    }
}
