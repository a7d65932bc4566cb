//! Any trace can drive a live server, with the hits that a replay predicts.
//!
//! The trace made up here is in Mooncake's form, 512 tokens an id, shrunk to 16. Every prompt
//! ends in a block that is not full, and answers have one token where counts must be exact: then
//! an engine of C blocks finds, request by request, what a replay of the full blocks finds with
//! C − 1 (why, stands in `headstart_trace::materialize::held`).

use crate::support;

use std::path::{Path, PathBuf};
use std::process::Output;

use headstart_cache::policy::Lru;
use headstart_core::{Rng, TraceRequest};
use headstart_sim::Replay;
use serde_json::{Value, json};
use support::Served;

/// Blocks for a third of what the trace touches, so that most requests evict.
const TIGHT: usize = 48;

/// Blocks for all of it.
const AMPLE: usize = 2000;

fn headstart(args: &[&str]) -> Output {
    support::output(args)
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A file that is gone after the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, contents: &str) -> Self {
        let name = format!("headstart-materialize-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, contents).expect("writes");
        Self(path)
    }

    fn text(&self) -> &str {
        self.0.to_str().expect("a readable path")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A request of the trace.
struct Asked {
    /// Ids of full blocks, and of a last one that is not full.
    ids: Vec<u64>,
    output_tokens: u32,
}

/// Eight conversations at a time, in two groups that share a system prompt each; a turn keeps
/// what was there and adds up to three blocks, and after some turns another conversation begins.
fn trace(num_requests: usize) -> Vec<Asked> {
    let mut rng = Rng::new(11);
    let mut fresh = 100..;
    let mut histories: Vec<Vec<u64>> = vec![Vec::new(); 8];
    let ask = |_| {
        let speaker = rng.below(8);
        let history = &mut histories[speaker];
        if history.is_empty() || history.len() > 12 + rng.below(8) {
            let system = 10 * (speaker as u64 % 2);
            *history = (system..system + 4).collect();
        }
        history.extend(fresh.by_ref().take(rng.below(4)));
        let mut ids = history.clone();
        ids.extend(fresh.next());
        Asked { ids, output_tokens: 1 + rng.below(20) as u32 }
    };
    (0..num_requests).map(ask).collect()
}

fn write(name: &str, requests: &[Asked]) -> Scratch {
    let line = |(index, asked): (usize, &Asked)| {
        let line = json!({
            "timestamp": 5 * index, "hash_ids": asked.ids, "output_length": asked.output_tokens,
            // The last block lacks more and more tokens, down to a single one.
            "input_length": asked.ids.len() * 512 - 1 - (index * 37) % 511,
        });
        format!("{line}\n")
    };
    let lines: String = requests.iter().enumerate().map(line).collect();
    Scratch::new(name, &lines)
}

/// Cached tokens per request by the plain replay of full blocks, in `capacity` blocks.
fn replayed(requests: &[Asked], capacity: usize) -> Vec<u64> {
    let mut replay = Replay::new(capacity, Box::new(Lru::new(capacity)));
    let serve = |asked: &Asked| {
        let full = &asked.ids[..asked.ids.len() - 1];
        let hits = replay.serve(&TraceRequest {
            blocks: full.iter().copied().collect(),
            ..TraceRequest::default()
        });
        hits as u64 * 16
    };
    requests.iter().map(serve).collect()
}

/// A server with one replica.
fn serve(cache_blocks: usize) -> Served {
    // Its decisions depend on no times, as those of the replay.
    let blocks = cache_blocks.to_string();
    Served::start(["--replicas", "1", "--policy", "lru", "--cache-blocks", &blocks])
}

fn complete(server: &Served, body: &Value) -> Value {
    server.json("POST", "/v1/completions", &body.to_string())
}

fn materialized(trace: &Path, more: &[&str]) -> Vec<Value> {
    let prompts = Scratch::new(&format!("{}-prompts", more.len()), "");
    let mut args = vec!["trace", "materialize", trace.to_str().expect("a path")];
    args.extend(["--output", prompts.text()]);
    args.extend(more);
    let output = headstart(&args);
    assert!(output.status.success(), "{}", complaint(&output));
    let text = std::fs::read_to_string(&prompts.0).expect("the prompts");
    let lines = text.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().expect("JSON lines")
}

/// Posts every materialized line, in order, and compares what was cached with the replay.
fn check_server(cache_blocks: usize, expect_evictions: bool) {
    let requests = trace(80);
    let file = write(&format!("posted-{cache_blocks}"), &requests);
    let lines = materialized(&file.0, &["--id-tokens", "16", "--output-tokens", "1"]);
    let server = serve(cache_blocks);
    let cached = lines.iter().map(|line| {
        assert_eq!((&line["method"], &line["url"]), (&json!("POST"), &json!("/v1/completions")));
        let usage = &complete(&server, &line["body"])["usage"];
        let sent = line["body"]["prompt"].as_array().expect("token ids").len();
        assert_eq!(usage["prompt_tokens"], json!(sent));
        let cached = &usage["prompt_tokens_details"]["cached_tokens"];
        cached.as_u64().expect("a count")
    });
    let cached: Vec<u64> = cached.collect();
    assert_eq!(cached, replayed(&requests, cache_blocks - 1));
    let unlimited = replayed(&requests, AMPLE);
    assert_eq!(cached != unlimited, expect_evictions, "the cache is as tight as meant");
}

#[test]
fn a_posted_trace_finds_what_a_replay_finds() {
    check_server(AMPLE, false);
}

#[test]
fn a_posted_trace_finds_what_a_replay_finds_while_blocks_are_evicted() {
    check_server(TIGHT, true);
}

fn bench(trace: &Scratch, more: &[&str]) -> Value {
    let mut args = vec!["bench", "trace", trace.text(), "--id-tokens", "16", "--json"];
    args.extend(["--model", "toy-tiny"]);
    args.extend(more);
    let output = headstart(&args);
    assert!(output.status.success(), "{}", complaint(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// All of `num_requests` found what the replay beside them found, under pressure.
fn check_bench(num_requests: usize, policy: &str, output_tokens: Option<&str>) {
    let requests = trace(num_requests);
    let file = write(&format!("bench-{policy}-{}", output_tokens.is_some()), &requests);
    let tight = TIGHT.to_string();
    let mut more = vec!["--cache-blocks", &tight, "--policy", policy];
    more.extend(output_tokens.into_iter().flat_map(|tokens| ["--output-tokens", tokens]));
    let found = bench(&file, &more);
    let (report, replay) = (&found["report"], &found["replay"]);
    assert_eq!((&report["requests"], &report["failed"]), (&json!(num_requests), &json!(0)));
    assert_eq!(replay["differences"], json!([]), "{policy}");
    assert_eq!(replay["equal"], json!(num_requests));
    assert_eq!(report["cached_tokens"], replay["cached_tokens"]);
    let unlimited: u64 = replayed(&requests, AMPLE).iter().sum();
    let cached = report["cached_tokens"].as_u64().expect("a count");
    assert!(0 < cached && cached < unlimited, "{cached} of {unlimited}");
}

#[test]
fn a_driven_trace_finds_what_the_replay_beside_it_finds() {
    for policy in ["lru", "fifo", "lfu"] {
        check_bench(60, policy, Some("1"));
    }
}

/// Answers fill blocks, which the replay knows of. A few end on a full block (one in sixteen);
/// only those may put a slot elsewhere, and none of these does.
#[test]
fn answers_take_the_room_that_the_replay_gives_them() {
    check_bench(60, "lru", None);
}

/// Cut to six whole blocks: the last token is always computed, and with it the last block.
#[test]
fn a_prompt_of_whole_blocks_never_finds_its_last() {
    let requests = trace(40);
    let file = write("whole", &requests);
    let ample = AMPLE.to_string();
    let cut = ["--max-prompt-tokens", "96", "--over-long", "cut"];
    let one = ["--cache-blocks", &ample, "--output-tokens", "1"];
    let found = bench(&file, &[&cut[..], &one].concat());
    assert_eq!(found["replay"]["differences"], json!([]));
    assert_eq!(found["replay"]["equal"], json!(40));
    let long = requests.iter().filter(|asked| asked.ids.len() > 6).count();
    assert_eq!(found["cut"], json!(long));
    let mut shortened = requests;
    shortened.iter_mut().for_each(|asked| asked.ids.truncate(7));
    // Of six blocks that are all there, five are found.
    let hits = replayed(&shortened, AMPLE);
    assert!(hits.contains(&96), "some prompts are wholly resident");
    let expected: u64 = hits.iter().map(|&tokens| tokens.min(80)).sum();
    assert_eq!(found["report"]["cached_tokens"], json!(expected));
}

#[test]
fn open_mode_sends_at_the_arrivals() {
    let requests = trace(40);
    let file = write("open", &requests);
    let server = serve(AMPLE);
    let url = format!("http://{}", server.address);
    let options = ["--url", &url, "--mode", "open", "--speed", "0.5", "--output-tokens", "2"];
    let found = bench(&file, &options);
    let report = &found["report"];
    assert_eq!((&report["requests"], &report["failed"]), (&json!(40), &json!(0)));
    assert_eq!(report["output_tokens"], json!(80));
    // The last is due after 39 gaps of 5 ms at half the speed.
    assert!(report["wall_s"].as_f64().is_some_and(|wall| wall >= 0.39), "{report}");
    assert_eq!(found["replay"], Value::Null, "nobody said how large the cache is");
}

#[test]
fn a_scale_thins_and_prompts_have_the_traces_shape() {
    let requests = trace(150);
    let file = write("shape", &requests);
    let all = materialized(&file.0, &["--id-tokens", "16"]);
    assert_eq!(all.len(), 150);
    for (index, (line, asked)) in all.iter().zip(&requests).enumerate() {
        let body = &line["body"];
        let lengths = [&body["max_tokens"], &body["min_tokens"]];
        assert_eq!(lengths, [&json!(asked.output_tokens); 2]);
        assert_eq!(line["arrival_s"], json!((5 * index) as f64 / 1e3));
        let blocks = body["prompt"].as_array().expect("token ids").len().div_ceil(16);
        assert_eq!(blocks, asked.ids.len());
    }
    let half = materialized(&file.0, &["--id-tokens", "16", "--scale", "0.5"]);
    assert!((20..130).contains(&half.len()), "{}", half.len());
}

fn check_refused(args: &[&str], code: i32, part: &str) {
    let output = headstart(args);
    let complaint = complaint(&output);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {complaint}");
    assert!(complaint.contains(part), "{args:?}: {complaint}");
}

#[test]
fn what_cannot_be_is_said_with_exit_codes() {
    let file = write("refused", &trace(40));
    let trace = file.text();
    let materialize = |more: &[&str], code, part| {
        check_refused(&[&["trace", "materialize", trace], more].concat(), code, part);
    };
    materialize(&["--scale", "0"], 2, "--scale 0");
    materialize(&["--scale", "1.5"], 2, "--scale 1.5");
    materialize(&["--vocab", "9..9"], 2, "LOW..HIGH");
    materialize(&["--id-tokens", "2"], 2, "cannot tell all blocks apart");
    materialize(&["-o", trace], 2, "is the trace itself");
    materialize(&["-o", "prompts.jsonl.zst"], 2, "zstd is read here");
    let prompts = std::env::temp_dir().join(format!("headstart-{}-none", std::process::id()));
    let out = ["-o", prompts.to_str().expect("a path"), "--max-prompt-tokens", "4200"];
    materialize(&out, 2, "--over-long cut");
    let incomplete = format!("{} is incomplete", prompts.display());
    materialize(&out, 2, &incomplete);
    std::fs::remove_file(&prompts).expect("cleans up");
    let bench = |more: &[&str], code, part| {
        check_refused(&[&["bench", "trace", trace], more].concat(), code, part);
    };
    bench(&["--speed", "0"], 2, "--speed");
    bench(&["--concurrency", "0"], 2, "--concurrency");
    bench(&["--requests", "0"], 2, "--requests");
    bench(&["--mode", "sessions", "--context-cache", "kv"], 2, "--context-cache");
    bench(&["--policy", "magic"], 2, "magic");
    bench(&["--url", "http://127.0.0.1:1"], 2, "is the server running there?");
    bench(&["--cache-blocks", "60", "--id-tokens", "512"], 2, "requests failed");
}

#[test]
fn the_help_has_examples() {
    for command in [["trace", "materialize"], ["bench", "trace"]] {
        let output = headstart(&[command[0], command[1], "--help"]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("Examples:"), "{command:?}");
    }
}
