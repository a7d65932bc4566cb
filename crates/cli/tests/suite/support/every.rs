//! Every command, with a small input, on a terminal of 80 columns.
//!
//! The terminal is that of `script` (util-linux).

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use super::{Served, eventually, headstart, text};

/// The reference of the command line, which another test keeps current.
const REFERENCE: &str = include_str!("../../../../../docs/reference/cli.md");

/// A command line per command. `{url}` is a running server, `{id}` one of its requests, `{one}` a
/// server with one cache.
pub const SMALL: &[(&str, &str)] = &[
    ("demo", "--log requests.jsonl"),
    ("analyze", "requests.jsonl --full --show-text"),
    ("why", "r0004 requests.jsonl --show-text"),
    ("why", "{id} --url {url}"),
    ("lint", "requests.jsonl --show-text"),
    ("validate", "requests.jsonl --url {one} --requests 4"),
    ("doctor", "--url {one}"),
    ("fix", "requests.jsonl --diff"),
    ("replay", "golden.jsonl --per-class"),
    ("plan", "golden.jsonl --model llama3-70b"),
    ("simulate fleet", "--preset laptop --rates 4,9 --rung-seconds 10"),
    ("trace convert", "golden.jsonl -o converted.jsonl"),
    ("trace synth", "chat --requests 50 -o synth.jsonl"),
    ("trace planted", "--conversations 300 -o planted.jsonl"),
    ("trace materialize", "golden.jsonl -o prompts.jsonl"),
    ("train", "planted.jsonl -o model.hsp --epochs 1"),
    (
        "bench chat",
        "planted.jsonl --model toy-tiny --conversations 2 --max-turns 1 --max-tokens 1 \
         --probe-rounds 0 --max-prompt-tokens 400 --strategy random",
    ),
    ("bench trace", "golden.jsonl --model toy-tiny --requests 2 --id-tokens 16"),
    ("bench fleet", "--trace fleet.jsonl --replicas 1 --strategies precise"),
    ("calibrate", "--max-prompt-tokens 64 --max-sequences 1 --answer-tokens 4 --rounds 1"),
    ("calibrate", "--derive qwen3-32b --gpu h100 --gpus 2"),
    ("vllm-args", "./model --host-gib 1 --kv-events-port 5557"),
    ("index show", "--url {url}"),
    ("index dump", "--url {url}"),
    ("shadow", "--url {shadow}"),
    ("top", "--once --url {url}"),
    ("savings", "--url {url} --price-table builtin"),
    ("cache ls", "kv"),
    ("cache stat", "kv"),
    ("cache verify", "kv"),
    ("cache export", "kv exported"),
    ("cache gc", "kv"),
    ("cache purge", "exported --all --yes"),
    ("config init", "-o -"),
    ("config show", "--replicas 3"),
    ("completions", "bash"),
    ("serve", "--listen 127.0.0.1:0"),
];

/// Names of the commands that have no further ones below them.
pub fn leaves() -> Vec<&'static str> {
    let sections = REFERENCE.split("\n## headstart ").skip(1);
    let mut leaves = Vec::new();
    for section in sections {
        let (name, text) = section.split_once('\n').expect("a heading");
        let usage = text.lines().find(|line| line.starts_with("Usage: "));
        if !usage.is_some_and(|usage| usage.ends_with("<COMMAND>")) {
            leaves.push(name);
        }
    }
    assert!(leaves.len() > 25, "{leaves:?}");
    leaves
}

/// Whether there is a terminal to run commands on.
pub fn has_terminal() -> bool {
    let version = Command::new("script").arg("--version").output();
    let is_there = version.is_ok_and(|output| text(&output.stdout).contains("util-linux"));
    if !is_there {
        super::skipped("no `script` of util-linux");
    }
    is_there
}

/// Exit code and output of a command on a terminal of 80 columns, with its escape codes.
pub fn on_terminal(folder: &Path, args: &str, variables: &[(&str, &str)]) -> (i32, String) {
    let binary = env!("CARGO_BIN_EXE_headstart");
    let ends = if args.starts_with("serve ") { "timeout --foreground -s INT 3 " } else { "" };
    let line = format!("stty cols 80 rows 24; {ends}{binary} {args}");
    // The variables of the developer are removed by the other command.
    let mut clean = headstart(args.split_whitespace());
    let mut command = Command::new("script");
    for (name, value) in clean.env("TERM", "xterm").get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command
        .args(["-qefc", &line, "/dev/null"])
        .envs(variables.iter().copied())
        .current_dir(folder)
        .stdin(Stdio::null())
        .output();
    let output = output.expect("script runs");
    (output.status.code().unwrap_or(-1), text(&output.stdout))
}

/// A folder with small inputs, and servers that have answered a request.
pub struct Inputs {
    pub folder: TempDir,
    server: Served,
    shadowed: Served,
    /// A server with one cache.
    one: Served,
    id: String,
}

impl Inputs {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/traces/golden.jsonl");
        std::fs::copy(golden, at("golden.jsonl")).expect("copies");
        let request = |at: usize| {
            json!({"timestamp": at * 20, "input_length": 600, "output_length": 4,
                "hash_ids": [at % 2, 100 + at]})
        };
        let trace: String = (0..8).map(|at| format!("{}\n", request(at))).collect();
        std::fs::write(at("fleet.jsonl"), trace).expect("writes");
        let kv = at("kv").display().to_string();
        let mut cached = Served::start(["--context-cache", &kv]);
        ask(&cached);
        eventually("a stored unit", || {
            let metrics = cached.metrics();
            let mut lines = metrics.lines();
            lines.any(|line| {
                line.starts_with("headstart_tier_units_total")
                    && line.contains("what=\"stored\"")
                    && !line.ends_with(" 0")
            })
        });
        cached.end("-TERM");
        let server = Served::start(["--replicas", "2"]);
        let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/toy-tokenizer");
        let upstream = format!("{},tokenizer={}", server.url(), tokenizer.display());
        let shadow = "replicas=2,blocks=2000";
        let shadowed = Served::start(["--upstream", &upstream, "--shadow", shadow]);
        ask(&server);
        let id = ask(&server);
        let one = Served::start(["--model", "toy-tiny", "--replicas", "1"]);
        Self { folder, server, shadowed, one, id }
    }

    /// The arguments of a case of [`SMALL`].
    pub fn args(&self, name: &str, args: &str) -> String {
        let args = args.replace("{url}", &self.server.url());
        let args = args.replace("{one}", &self.one.url());
        let args = args.replace("{shadow}", &self.shadowed.url());
        format!("{name} {}", args.replace("{id}", &self.id))
    }
}

/// Sends a request, and returns its id.
fn ask(server: &Served) -> String {
    let words = "time value list name string ".repeat(60);
    let body = json!({
        "model": "toy", "max_tokens": 1, "messages": [{"role": "user", "content": words}],
    });
    let answer = server.json("POST", "/v1/chat/completions", &body.to_string());
    answer["id"].as_str().expect("an id").to_owned()
}

/// `text` without escape codes; a line that is drawn again is a line of its own.
pub fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' if chars.clone().next() == Some('[') => {
                // Parameters, and the letter that ends them.
                let _ = chars.by_ref().skip(1).find(|character| character.is_ascii_alphabetic());
            }
            '\r' if !chars.as_str().starts_with('\n') => plain.push('\n'),
            '\r' => {}
            other => plain.push(other),
        }
    }
    plain
}
