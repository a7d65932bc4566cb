//! Mooncake's request traces: one JSON object a line,
//! `{"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [..]}`.
//!
//! An id names one block of 512 tokens *and its prefix*. Only `hash_ids` is required; without
//! `timestamp`, file order stands for time: request i arrives at i milliseconds.
//!
//! Source: Qin et al., "Mooncake", FAST'25, and the traces published with it.

use std::io::Read;

use headstart_core::{Nanos, TraceRequest};
use serde::Deserialize;

use crate::{TraceError, source::Lines};

/// Tokens per id in the published traces.
pub const BLOCK_TOKENS: u32 = 512;

/// Reads requests one at a time, in file order.
pub struct Reader<'a> {
    lines: Lines<'a>,
    read: u64,
}

impl<'a> Reader<'a> {
    /// Reads `raw` (plain or zstd); `name` appears in errors.
    ///
    /// # Errors
    /// [`TraceError::Read`] when the input cannot be read at all.
    pub fn new(name: impl Into<String>, raw: impl Read + 'a) -> Result<Self, TraceError> {
        Ok(Self {
            lines: Lines::new(name, raw)?,
            read: 0,
        })
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<TraceRequest, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.read;
        self.read += 1;
        self.lines.next_with(|line| parse(line, index))
    }
}

#[derive(Deserialize)]
struct Record {
    timestamp: Option<f64>,
    input_length: Option<u32>,
    output_length: Option<u32>,
    hash_ids: Option<Vec<u64>>,
}

fn parse(line: &str, index: u64) -> Result<TraceRequest, String> {
    let record: Record = serde_json::from_str(line)
        .map_err(|error| format!("not a Mooncake request ({error}); expected an object"))?;
    let blocks = record
        .hash_ids
        .ok_or("`hash_ids` is missing; it is the one required field")?;
    let arrival_ms = record.timestamp.unwrap_or(index as f64);
    if !(0.0..1e15).contains(&arrival_ms) {
        return Err(format!(
            "`timestamp` is {arrival_ms}; expected milliseconds from the start"
        ));
    }
    Ok(TraceRequest {
        arrival: Nanos((arrival_ms * 1e6) as u64),
        blocks: blocks.into_iter().collect(),
        input_tokens: record.input_length,
        output_tokens: record.output_length,
        ..TraceRequest::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<(u64, &[u64]), &str>) {
        let got = Reader::new("t.jsonl", text.as_bytes())
            .expect("readable")
            .last();
        match (got.expect("one line"), expected) {
            (Ok(request), Ok((arrival, blocks))) => {
                assert_eq!(request.arrival.0, arrival);
                assert_eq!(request.blocks.iter().collect::<Vec<_>>(), blocks);
            }
            (Err(error), Err(part)) => {
                let error = error.to_string();
                assert!(error.contains(part) && error.contains("t.jsonl"), "{error}");
            }
            (got, expected) => panic!("{got:?} against {expected:?}"),
        }
    }

    #[test]
    fn only_hash_ids_is_required() {
        check(
            r#"{"timestamp": 3000, "input_length": 9, "hash_ids": [0, 7]}"#,
            Ok((3_000_000_000, &[0, 7])),
        );
        check(
            "{\"hash_ids\": [1]}\n{\"hash_ids\": []}",
            Ok((1_000_000, &[])),
        );
    }

    #[test]
    fn a_bad_line_is_named() {
        check(
            "{\"hash_ids\": [1]}\n{\"input_length\": 3}",
            Err("line 2: `hash_ids` is missing"),
        );
        check("[1]", Err("line 1: not a Mooncake request"));
        check(r#"{"hash_ids": [-1]}"#, Err("line 1"));
        check(
            r#"{"hash_ids": [1], "timestamp": -5}"#,
            Err("`timestamp` is -5"),
        );
    }
}
