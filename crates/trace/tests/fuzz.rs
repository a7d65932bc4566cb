//! Any bytes: no panic, an end, and memory bounded by the largest record.
//!
//! The seeds under `seeds/` are made up, one trace for each format. They are damaged by seeded
//! mutations, so a failure names the seed that brings it back. The same reader under libFuzzer:
//! `fuzz/`, beside this folder.

#[path = "../../core/tests/counting/mod.rs"]
mod counting;
#[path = "fuzz/mutate.rs"]
mod mutate;
#[path = "fuzz/read.rs"]
mod read;

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};

use counting::peak_bytes;
use headstart_core::Rng;
use headstart_trace::Format;
use headstart_trace::format::request_log;
use headstart_trace::source::Lines;
use read::Choices;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// The seeds, each with its format.
const SEEDS: &[(Format, &[u8])] = &[
    (Format::Mooncake, include_bytes!("seeds/mooncake.jsonl")),
    (Format::Bailian, include_bytes!("seeds/bailian.jsonl")),
    (Format::Agent, include_bytes!("seeds/agent.jsonl")),
    (Format::Azure, include_bytes!("seeds/azure.csv")),
    (Format::Conversation, include_bytes!("seeds/conversation.jsonl")),
    (Format::Requests, include_bytes!("seeds/requests.jsonl")),
    (Format::Canonical, include_bytes!("seeds/canonical.jsonl")),
    // Of other tools.
    (Format::Requests, include_bytes!("seeds/docker.log")),
    (Format::Requests, include_bytes!("seeds/otlp.jsonl")),
    (Format::Requests, include_bytes!("seeds/har.json")),
    (Format::Requests, include_bytes!("seeds/transcript.jsonl")),
    (Format::Requests, include_bytes!("seeds/vllm.log")),
    // Packed: one gzip member; two zstd frames.
    (Format::Mooncake, include_bytes!("seeds/mooncake.jsonl.gz")),
    (Format::Agent, include_bytes!("seeds/agent.jsonl.zst")),
];

/// Memory that any reading needs: buffers before and behind a decoder, and its tables.
const BASE_BYTES: usize = 1 << 20;

/// Memory that a decoder may hold besides: of a damaged frame, the blocks (128 KiB of text each)
/// that it had not handed out yet. There may be as many as `source::zstd` allows; chance makes few.
const PACKED_BYTES: usize = 8 << 20;

/// Memory for a record, in bytes per byte of its line. Two bytes (`7,`) are an id, which as a run
/// of its own takes 16; while a list grows there are up to three times as many.
const RECORD_FACTOR: usize = 32;

/// Memory for a line that may be a request, whose messages are kept as JSON: six bytes of a
/// number among them, with what it becomes as tokens, or a value of two bytes.
const REQUEST_FACTOR: usize = request_log::MEMORY_FACTOR;

/// Mutations of each seed.
const ROUNDS: u64 = 2_000;

#[test]
fn the_seeds_are_good_traces() {
    for &(format, seed) in SEEDS {
        let outcome = read::all(seed, &Choices::strict());
        assert!(outcome.requests >= 3 && outcome.errors == 0, "{format}: {outcome:?}");
    }
}

#[test]
fn damaged_traces_neither_panic_nor_take_memory() {
    for (index, (format, seed)) in SEEDS.iter().enumerate() {
        let mut requests = 0;
        for round in 0..ROUNDS {
            let name = format!("{format}, round {round}");
            let mut rng = Rng::new(round << 8 | index as u64);
            let other = SEEDS[rng.below(SEEDS.len())].1;
            let mut bytes = mutate::mutate(&mut rng, seed, other);
            // Half of what is compressed is damaged once more.
            if rng.below(4) == 0 {
                bytes = mutate::pack(&mut rng, &bytes);
                if rng.below(2) == 0 {
                    bytes = mutate::mutate(&mut rng, &bytes, other);
                }
            }
            let choices = Choices::new(&mut rng, *format);
            requests += check(&name, &bytes, &choices);
        }
        // The damage must leave something to read, or nothing was tested.
        assert!(requests > ROUNDS as usize / 20, "{format}: {requests} requests");
    }
}

/// Reads `bytes` and holds the outcome against the promises; how many requests there were.
fn check(name: &str, bytes: &[u8], choices: &Choices) -> usize {
    let (mut outcome, mut peak) = (None, 0);
    let read = catch_unwind(AssertUnwindSafe(|| {
        peak = peak_bytes(|| outcome = Some(read::all(bytes, choices)));
    }));
    assert!(read.is_ok(), "{name}: panicked under {choices:?}");
    let outcome = outcome.expect("it was read");
    let (record, num_lines) = largest_line(bytes);
    let is_packed = bytes.starts_with(&[0x28, 0xb5]) || bytes.starts_with(&[0x1f, 0x8b]);
    let packed = if is_packed { PACKED_BYTES } else { 0 };
    let factor = match choices.format {
        Some(Format::Requests) | None => REQUEST_FACTOR,
        Some(_) => RECORD_FACTOR,
    };
    let limit = BASE_BYTES + packed + factor * record;
    assert!(peak <= limit, "{name}: {peak} bytes for a record of {record}, {choices:?}");
    // Every line ends in a record or an error; a session has a request or an error for each
    // object in it.
    let most = num_lines + num_lines * record + 2;
    assert!(outcome.requests + outcome.errors <= most, "{name}: {outcome:?}");
    outcome.requests
}

/// Bytes of the longest line, as far as there are lines, and their number.
fn largest_line(bytes: &[u8]) -> (usize, usize) {
    let (mut largest, mut count) = (0, 0);
    if let Ok(mut lines) = Lines::new("t", bytes) {
        while let Some(line) = lines.next_with(|line| Ok(line.len())) {
            count += 1;
            // What is no text is as long as the whole at most.
            largest = largest.max(line.unwrap_or(bytes.len()));
        }
    }
    (largest.max(bytes.len().min(largest * 2)), count)
}

/// Lines of a megabyte that are as costly for their length as we could make them.
#[test]
fn no_record_takes_much_more_than_its_line() {
    let many = |piece: &str| vec![piece; (1 << 20) / (piece.len() + 1)].join(",");
    let header = "{\"headstart_trace\":1,\"block_tokens\":64,\"types\":[\"unknown\"],\
                  \"sessions\":\"given\",\"turns\":\"absent\",\"types_from\":\"given\"}\n";
    let costly = [
        (Format::Mooncake, format!("{{\"hash_ids\":[{}]}}", many("7"))),
        (Format::Mooncake, format!("{{\"hash_ids\":[{}]}}", many("[0,400000]"))),
        (Format::Mooncake, format!("{{\"hash_ids\":[1],\"x\":[{}]}}", many("[]"))),
        (Format::Mooncake, format!("{{\"hash_ids\":\"{}\"}}", many("\\n"))),
        (Format::Bailian, format!("{{\"chat_id\":1,\"hash_ids\":[{}]}}", many("7"))),
        (Format::Bailian, format!("{{\"chat_id\":1,\"type\":\"{}\",\"hash_ids\":[]}}", many("x"))),
        (Format::Agent, format!("{{\"requests\":[{}]}}", many("{\"t\":0,\"type\":\"\"}"))),
        (
            Format::Agent,
            format!("{{\"requests\":[{}]}}", many("{\"t\":0,\"type\":\"\",\"requests\":[]}")),
        ),
        (
            Format::Agent,
            format!("{{\"requests\":[{}]}}", many("{\"t\":0,\"type\":\"\",\"hash_ids\":[]}")),
        ),
        (Format::Azure, format!("TIMESTAMP,{}\n", many(""))),
        (Format::Azure, format!("TIMESTAMP,ContextTokens,GeneratedTokens\n{}", many("1"))),
        (
            Format::Conversation,
            format!("{{\"turns\":[{}]}}", many("{\"role\":\"user\",\"text\":\"\"}")),
        ),
        (Format::Conversation, format!("{{\"id\":[{}],\"turns\":[]}}", many("1"))),
        (
            Format::Conversation,
            format!("{{\"turns\":[{{\"role\":\"user\",\"text\":\"{}\"}}]}}", many("x")),
        ),
        (Format::Requests, format!("{{\"model\":1,\"messages\":[{}]}}", many("1"))),
        (Format::Requests, format!("{{\"messages\":[{}]}}", many("{\"a\":{}}"))),
        (Format::Requests, format!("{{\"prompt\":[{}]}}", many("[]"))),
        (Format::Requests, format!("{{{},\"prompt\":\"x\"}}", numbered(1 << 16))),
        (Format::Canonical, format!("{header}{{\"types\":[{}]}}", many("\"\""))),
        (Format::Canonical, format!("{header}{{\"arrival_ns\":1,\"blocks\":[{}]}}", many("7"))),
    ];
    for (number, (format, text)) in costly.iter().enumerate() {
        let choices = Choices { format: Some(*format), ..Choices::strict() };
        check(&format!("{format}, record {number}"), text.as_bytes(), &choices);
    }
}

/// Returns `count` fields with names of their own.
fn numbered(count: usize) -> String {
    let fields: Vec<String> = (0..count).map(|n| format!("\"{n}\":0")).collect();
    fields.join(",")
}

/// A trace that is made while it is read: `header`, then `line(n)` until `total` bytes.
struct Endless<F> {
    line: F,
    number: u64,
    left: usize,
    pending: Vec<u8>,
    taken: usize,
}

impl<F: FnMut(u64) -> String> Read for Endless<F> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.taken == self.pending.len() {
            if self.left == 0 {
                return Ok(0);
            }
            self.pending = (self.line)(self.number).into_bytes();
            self.pending.push(b'\n');
            self.number += 1;
            self.taken = 0;
            self.left = self.left.saturating_sub(self.pending.len());
        }
        let taken = buffer.len().min(self.pending.len() - self.taken);
        buffer[..taken].copy_from_slice(&self.pending[self.taken..][..taken]);
        self.taken += taken;
        Ok(taken)
    }
}

/// Bytes of a long trace; conversations are shorter, because hashing their text takes time.
const LONG_BYTES: usize = 50 << 20;

/// Reads [`LONG_BYTES`] made of `line(n)` in at most `limit` bytes of memory.
fn check_long(name: &str, limit: usize, infer: bool, line: impl FnMut(u64) -> String) {
    let choices = Choices { infer, ..Choices::strict() };
    let is_text = matches!(name, "conversation" | "requests");
    let raw = Endless {
        line,
        number: 0,
        left: if is_text { LONG_BYTES / 5 } else { LONG_BYTES },
        pending: Vec::new(),
        taken: 0,
    };
    let mut outcome = None;
    let peak = peak_bytes(|| outcome = Some(read::all(raw, &choices)));
    let outcome = outcome.expect("it was read");
    assert!(outcome.errors == 0 && outcome.requests > 10_000, "{name}: {outcome:?}");
    assert!(peak <= limit, "{name}: {peak} bytes");
}

/// A prompt of the `n`th request: a conversation of four turns under a shared first block.
fn blocks(n: u64) -> String {
    let (session, turn) = (n / 4, n % 4);
    let own: Vec<String> =
        (0..=5 * turn).map(|block| (1 + session * 20 + block).to_string()).collect();
    format!("[0, {}]", own.join(", "))
}

#[test]
fn long_mooncake_traces_stream() {
    let line = |n: u64| {
        format!(
            "{{\"timestamp\": {n}, \"input_length\": 5000, \"output_length\": 9, \
             \"hash_ids\": {}}}",
            blocks(n)
        )
    };
    check_long("mooncake", 1 << 20, false, line);
    // With the ends of half a million prompts, see `infer::ENDS_MAX`.
    check_long("mooncake, inferring", 96 << 20, true, line);
}

#[test]
fn long_bailian_traces_stream() {
    let line = |n: u64| {
        let parent = if n.is_multiple_of(4) { -1 } else { n as i64 - 1 };
        format!(
            "{{\"chat_id\": {n}, \"parent_chat_id\": {parent}, \"timestamp\": {n}, \
             \"type\": \"text\", \"turn\": 1, \"hash_ids\": {}}}",
            blocks(n)
        )
    };
    // With the sessions of a million chats, see `bailian::CHATS_MAX`.
    check_long("bailian", 64 << 20, false, line);
}

#[test]
fn long_agent_traces_stream() {
    let line = |_| {
        let request = |n: u64| {
            let blocks = 10 + n;
            format!(
                "{{\"t\": {n}, \"type\": \"n\", \"in\": 9000, \"out\": 9, \
                 \"hash_ids\": [[1, {blocks}], [500, 3]], \"input_types\": [\"tool_result\"]}}"
            )
        };
        let requests: Vec<String> = (0..50).map(request).collect();
        format!("{{\"block_size\": 64, \"requests\": [{}]}}", requests.join(", "))
    };
    check_long("agent", 1 << 20, true, line);
}

#[test]
fn long_azure_traces_stream() {
    check_long("azure", 1 << 20, true, |n| match n {
        0 => "TIMESTAMP,ContextTokens,GeneratedTokens".to_owned(),
        _ => format!("2023-11-16 18:15:46.{n:09},374,44"),
    });
}

#[test]
fn long_conversation_files_stream() {
    let line = |n: u64| {
        let turn = format!(
            "{{\"role\": \"user\", \"text\": \"{}\"}}, \
             {{\"role\": \"assistant\", \"text\": \"y\"}}",
            format!("word{n} ").repeat(50)
        );
        format!("{{\"turns\": [{}]}}", vec![turn; 4].join(", "))
    };
    check_long("conversation", 1 << 20, true, line);
}

#[test]
fn long_request_logs_stream() {
    let line = |n: u64| {
        format!(
            "{{\"model\": \"m\", \"created\": {n}, \"messages\": \
             [{{\"role\": \"user\", \"content\": \"{}\"}}]}}",
            format!("word{n} ").repeat(50)
        )
    };
    check_long("requests", 1 << 20, false, line);
}

#[test]
fn long_canonical_traces_stream() {
    check_long("canonical", 1 << 20, true, |n| match n {
        0 => "{\"headstart_trace\": 1, \"block_tokens\": 16, \"types\": [\"unknown\"], \
              \"sessions\": \"given\", \"turns\": \"given\", \"types_from\": \"absent\"}"
            .to_owned(),
        _ => format!("{{\"arrival_ns\": {n}, \"session\": {n}, \"blocks\": {}}}", blocks(n)),
    });
}
