//! The frames of a zstd file, one after another.
//!
//! The decoder reads one frame; files have several where they were concatenated, or packed in
//! parallel. Skippable frames, which tools use for indexes, are passed over.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::FrameDecoderError;
use ruzstd::decoding::errors::ReadFrameHeaderError::SkipFrame;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// First bytes of a frame (RFC 8878, section 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Largest window, the bytes of text that a decoder must hold: what `zstd` itself accepts
/// unasked. A frame that wants more is refused before anything is allocated.
const WINDOW_LIMIT_BYTES: u64 = 128 << 20;

/// Whether `start`, four bytes, begins a frame or a skippable one (section 3.1.2).
pub(super) fn starts_like(start: &[u8]) -> bool {
    let is_skippable = matches!(start, [0x50..=0x5f, 0x2a, 0x4d, 0x18]);
    is_skippable || start.starts_with(&MAGIC)
}

/// The text of all frames of `raw`.
pub(super) struct Frames<R> {
    raw: R,
    frame: Option<FrameDecoder>,
}

impl<R: BufRead> Frames<R> {
    pub(super) fn new(raw: R) -> Self {
        Self { raw, frame: None }
    }

    /// The next frame that holds text; `None` at the end of the input.
    fn next_frame(&mut self) -> io::Result<Option<FrameDecoder>> {
        while !self.raw.fill_buf()?.is_empty() {
            // A new decoder each time: a used one reserves the whole window at once.
            let mut decoder = FrameDecoder::new();
            decoder.set_max_window_size(WINDOW_LIMIT_BYTES);
            match decoder.init(&mut self.raw) {
                Ok(()) => return Ok(Some(decoder)),
                Err(FrameDecoderError::ReadFrameHeaderError(SkipFrame { length, .. })) => {
                    self.skip(u64::from(length))?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(None)
    }

    fn skip(&mut self, length: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.raw.by_ref().take(length), &mut io::sink())?;
        // The file was cut within the frame.
        if skipped < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, text: &mut [u8]) -> io::Result<usize> {
        // Below, zero bytes read mean that the frame has ended.
        if text.is_empty() {
            return Ok(0);
        }
        loop {
            let frame = match &mut self.frame {
                Some(frame) => frame,
                None => match self.next_frame()? {
                    Some(frame) => self.frame.insert(frame),
                    None => return Ok(0),
                },
            };
            // One block at a time: a frame can hold gigabytes of text.
            while frame.can_collect() == 0 && !frame.is_finished() {
                frame
                    .decode_blocks(&mut self.raw, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            let read = frame.read(text)?;
            if read > 0 {
                return Ok(read);
            }
            // The checksum covers the whole text, so it is known only now.
            check_sum(frame)?;
            self.frame = None;
        }
    }
}

/// Whether the text of a frame that was read to its end is what was compressed.
fn check_sum(frame: &FrameDecoder) -> io::Result<()> {
    match frame.get_checksum_from_data() {
        Some(expected) if frame.get_calculated_checksum() != Some(expected) => {
            Err(io::Error::other("the checksum of a zstd frame is wrong; its bytes were changed"))
        }
        _ => Ok(()),
    }
}
