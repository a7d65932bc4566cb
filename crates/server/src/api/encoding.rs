//! Compressed request bodies: what `Content-Encoding` says is undone, with a limit on what comes
//! out, so that a small body that unpacks to a huge one costs no more than the limit.

use std::io::Read;

use bytes::{Buf, Bytes};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, StatusCode, header};
use ruzstd::decoding::StreamingDecoder;

use super::body::too_large;
use crate::config::EdgeLimits;
use crate::openai::ApiError;

/// Most codings that may be applied one after another; clients use one.
const CODINGS: usize = 2;

/// Largest window of zstd that any decoder on the web must take (RFC 9659), bytes.
const ZSTD_WINDOW: u64 = 8 << 20;

/// Buffer of the brotli decoder, bytes.
const BROTLI_BUFFER: usize = 16 << 10;

/// A coding that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    Deflate,
    Zstd,
    Brotli,
}

/// Why a body could not be decoded.
#[derive(Debug, PartialEq, Eq)]
enum DecodeFailure {
    TooLarge,
    Broken(String),
}

/// The codings of a body, in the order in which they were applied.
///
/// # Errors
/// 415 when one of them is unknown, or there are too many.
pub(super) fn codings(headers: &HeaderMap) -> Result<Vec<Coding>, ApiError> {
    let mut codings = Vec::new();
    for value in headers.get_all(header::CONTENT_ENCODING) {
        let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        // The list has the order in which codings were applied (RFC 9110, section 8.4).
        for name in text.split(',').map(str::trim) {
            codings.push(match name {
                "" | "identity" => continue,
                "gzip" | "x-gzip" => Coding::Gzip,
                "deflate" => Coding::Deflate,
                "zstd" => Coding::Zstd,
                "br" => Coding::Brotli,
                other => return Err(unknown(other)),
            });
        }
    }
    // Every coding multiplies the work of a hostile body.
    if codings.len() <= CODINGS {
        Ok(codings)
    } else {
        Err(unknown(&format!("{} codings at once", codings.len())))
    }
}

/// The body without its codings.
///
/// # Errors
/// 413 when it becomes larger than the limit, 400 when it is not of its coding.
pub(super) async fn decoded(
    body: Bytes,
    codings: Vec<Coding>,
    limits: &EdgeLimits,
) -> Result<Bytes, ApiError> {
    if codings.is_empty() {
        return Ok(body);
    }
    let limit = limits.body_bytes;
    let name = codings.last().map_or("", |coding| coding.name());
    // A large body takes a tenth of a second.
    let work = tokio::task::spawn_blocking(move || {
        // Each stage has the limit, since a body between two codings may be the largest.
        let undo = |body: Bytes, coding: &Coding| coding.undo(&body, limit).map(Bytes::from);
        // The last coding that was applied is undone first.
        codings.iter().rev().try_fold(body, undo)
    });
    let failure = match work.await {
        Ok(Ok(body)) => return Ok(body),
        Ok(Err(failure)) => failure,
        Err(_) => DecodeFailure::Broken("the decoder failed".to_owned()),
    };
    Err(match failure {
        DecodeFailure::TooLarge => too_large(limits),
        DecodeFailure::Broken(cause) => {
            let message = format!("the body cannot be decoded as {name}: {cause}");
            ApiError::new(StatusCode::BAD_REQUEST, "invalid_encoding", message)
        }
    })
}

impl Coding {
    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
            Self::Brotli => "br",
        }
    }

    fn undo(self, body: &[u8], limit: usize) -> Result<Vec<u8>, DecodeFailure> {
        match self {
            // A gzip body may consist of several members (RFC 1952).
            Self::Gzip => read(MultiGzDecoder::new(body), limit, Vec::new()),
            // RFC 9110 means zlib's format, and some clients send it without its head.
            Self::Deflate if is_zlib(body) => read(ZlibDecoder::new(body), limit, Vec::new()),
            Self::Deflate => read(DeflateDecoder::new(body), limit, Vec::new()),
            Self::Brotli => {
                let decoder = brotli_decompressor::Decompressor::new(body, BROTLI_BUFFER);
                read(decoder, limit, Vec::new())
            }
            Self::Zstd => unzstd(body, limit),
        }
    }
}

/// The frames of a body one after another.
fn unzstd(body: &[u8], limit: usize) -> Result<Vec<u8>, DecodeFailure> {
    // A frame of one segment has a window as large as its content.
    let window = ZSTD_WINDOW.max(limit as u64);
    let mut rest = body;
    let mut out = Vec::new();
    while rest.has_remaining() {
        let frame = StreamingDecoder::new_with_max_window_size(&mut rest, window);
        let frame = frame.map_err(|error| DecodeFailure::Broken(error.to_string()))?;
        out = read(frame, limit, out)?;
    }
    if body.is_empty() { Err(DecodeFailure::Broken("it is empty".to_owned())) } else { Ok(out) }
}

/// All that `decoder` gives, behind what is there; not more than `limit` bytes.
fn read(decoder: impl Read, limit: usize, mut out: Vec<u8>) -> Result<Vec<u8>, DecodeFailure> {
    // `out` is within the limit, or the frame before would have failed. One more byte shows whether
    // the limit is passed.
    let left = (limit - out.len()) as u64 + 1;
    let read = decoder.take(left).read_to_end(&mut out);
    read.map_err(|error| DecodeFailure::Broken(error.to_string()))?;
    if out.len() <= limit { Ok(out) } else { Err(DecodeFailure::TooLarge) }
}

/// Whether these bytes begin with zlib's head (RFC 1950).
fn is_zlib(body: &[u8]) -> bool {
    let &[method, flags, ..] = body else {
        return false;
    };
    // The method is 8 (deflate), and the two bytes together are a multiple of 31.
    method & 0x0f == 8 && u16::from_be_bytes([method, flags]) % 31 == 0
}

fn unknown(name: &str) -> ApiError {
    let message = format!(
        "content-encoding: `{name}` is not accepted; send the body as gzip, deflate, zstd or br, \
         or leave the header out"
    );
    ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_encoding", message)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const LIMIT: usize = 100_000;

    fn packed(coding: Coding, text: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(text).expect("writes");
                encoder.finish().expect("ends")
            }
            Coding::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(text).expect("writes");
                encoder.finish().expect("ends")
            }
            Coding::Zstd => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                ruzstd::encoding::compress_to_vec(text, level)
            }
            Coding::Brotli => {
                let mut out = Vec::new();
                let mut writer = brotli::CompressorWriter::new(&mut out, 4096, 5, 20);
                writer.write_all(text).expect("writes");
                drop(writer);
                out
            }
        }
    }

    const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Zstd, Coding::Brotli];

    #[test]
    fn every_coding_is_undone_and_a_bomb_is_not() {
        for coding in ALL {
            let text: Vec<u8> = (0..LIMIT).map(|at| (at % 251) as u8).collect();
            let body = packed(coding, &text);
            assert_eq!(coding.undo(&body, LIMIT).as_ref(), Ok(&text), "{coding:?}");
            let bomb = packed(coding, &vec![b' '; 100 * LIMIT]);
            assert!(bomb.len() < LIMIT, "{coding:?}: {}", bomb.len());
            assert_eq!(coding.undo(&bomb, LIMIT), Err(DecodeFailure::TooLarge));
            for cut in [0, 1, body.len() / 2] {
                let broken = coding.undo(&body[..cut], LIMIT);
                let is_broken = matches!(broken, Err(DecodeFailure::Broken(_)));
                assert!(is_broken, "{coding:?} cut at {cut}: {broken:?}");
            }
        }
    }

    #[test]
    fn bare_deflate_and_several_frames_are_read_too() {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(b"hello").expect("writes");
        let bare = encoder.finish().expect("ends");
        assert_eq!(Coding::Deflate.undo(&bare, 5), Ok(b"hello".to_vec()));
        for coding in [Coding::Gzip, Coding::Zstd] {
            let two = [packed(coding, b"hel"), packed(coding, b"lo")].concat();
            assert_eq!(coding.undo(&two, 5), Ok(b"hello".to_vec()), "{coding:?}");
            assert_eq!(coding.undo(&two, 4), Err(DecodeFailure::TooLarge), "{coding:?}");
        }
    }

    #[test]
    fn what_is_not_accepted_is_refused_by_name() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_ENCODING, text.parse().expect("a value"));
            codings(&headers)
        };
        assert_eq!(of("Identity"), Ok(Vec::new()));
        assert_eq!(of("gzip, BR"), Ok(vec![Coding::Gzip, Coding::Brotli]));
        let error = of("compress").expect_err("unknown");
        assert_eq!(error.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert!(error.message.contains("`compress`") && error.message.contains("zstd"));
        assert!(of("gzip, gzip, gzip").is_err());
    }
}
