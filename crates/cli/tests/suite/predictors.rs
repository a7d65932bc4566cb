//! `headstart replay --predictor`: who tells `lpc` what is likely to go on.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use headstart_core::Rng;
use headstart_predict::encoder::ngram::NgramEncoder;
use headstart_predict::{
    ConversationOutcome, Dataset, DatasetSplit, Definition, Label, Situation, SplitShares,
    TrainOptions, train,
};
use serde_json::{Value, json};

/// A committed generated trace of 800 requests, without predictions.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/traces/golden.jsonl");

/// A file that goes when the test is over.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, contents: &[u8]) -> Self {
        let name = format!("headstart-predictors-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, contents).expect("writes");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("a name in UTF-8")
    }

    fn name(&self) -> &str {
        let name = self.0.file_name().and_then(|name| name.to_str());
        name.expect("a name in UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn replay(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.env("HEADSTART_PROGRESS_AFTER_MS", "3600000");
    command.arg("replay").args(args).stdin(Stdio::null());
    command.output().expect("the binary runs")
}

/// (policy, block hits) of each row, and what is said on standard error.
fn rows(args: &[&str]) -> (Vec<(String, u64)>, String) {
    let output = replay(&[args, &["--json"]].concat());
    let complaint = String::from_utf8_lossy(&output.stderr);
    // Long lines are broken.
    let complaint = complaint.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.success(), "{args:?}: {complaint}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let row = |line: &str| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        let policy = line["policy"].as_str().expect("a policy").to_owned();
        (policy, line["hits"].as_u64().expect("hits"))
    };
    (text.lines().map(row).collect(), complaint)
}

fn hits(rows: &[(String, u64)], policy: &str) -> u64 {
    let row = rows.iter().find(|(name, _)| name == policy);
    row.unwrap_or_else(|| panic!("{policy} in {rows:?}")).1
}

fn check_error(args: &[&str], code: i32, part: &str) {
    let output = replay(args);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {complaint}");
    assert!(complaint.contains(part), "{args:?}: {complaint}");
    assert!(!complaint.contains("panicked"), "{args:?}: {complaint}");
}

/// Returns a canonical trace of conversations of one request or of five, a minute apart. `p`
/// returns the prediction for a request that is followed, or not.
fn canonical(p: impl Fn(bool) -> Option<f64>) -> String {
    let mut requests = Vec::new();
    for session in 0..400_u64 {
        let turns = if session % 4 == 0 { 5 } else { 1 };
        for turn in 1..=turns {
            let mut request = json!({
                "arrival_ns": (session * 10 + (turn - 1) * 60) * 1_000_000_000,
                "session": session,
                "turn": turn,
                "input_tokens": 64 * turn,
                "blocks": [[1_000 * session, 4 * turn]],
            });
            if let Some(p) = p(turn < turns) {
                request["p_continue"] = json!(p);
            }
            requests.push(request);
        }
    }
    requests.sort_by_key(|request| request["arrival_ns"].as_u64());
    let header = json!({
        "headstart_trace": 1, "block_tokens": 16, "types": ["unknown"],
        "sessions": "given", "turns": "given", "types_from": "absent",
    });
    let lines = std::iter::once(header).chain(requests);
    lines.map(|line| line.to_string() + "\n").collect()
}

#[test]
fn what_a_trace_carries_is_read_and_the_truth_helps() {
    let trace = canonical(|goes_on| Some(f64::from(u8::from(goes_on))));
    let trace = Scratch::new("truth.jsonl", trace.as_bytes());
    let policies = if cfg!(feature = "ablations") {
        "lru,lpc,lpc:no-decay,continuation-oracle,belady"
    } else {
        "lru,lpc,continuation-oracle,belady"
    };
    let (rows, complaint) = rows(&[trace.path(), "--policy", policies, "--capacity", "60"]);
    assert_eq!(complaint, "");
    let lru = hits(&rows, "lru");
    assert!(hits(&rows, "lpc") > lru + 100, "{rows:?}");
    assert_eq!(hits(&rows, "lpc"), hits(&rows, "continuation-oracle"));
    if cfg!(feature = "ablations") {
        assert_eq!(hits(&rows, "lpc"), hits(&rows, "lpc:no-decay"));
    }
    assert!(hits(&rows, "belady") >= hits(&rows, "lpc"));
}

#[test]
fn predictors_stand_side_by_side() {
    // The trace tells the opposite of the truth.
    let trace = canonical(|goes_on| Some(f64::from(u8::from(!goes_on))));
    let trace = Scratch::new("lies.jsonl", trace.as_bytes());
    let args = [
        trace.path(),
        "--policy",
        "lru,lpc,wa",
        "--predictor",
        "trace",
        "--predictor",
        "turns",
        "--capacity",
        "60",
    ];
    let (rows, complaint) = rows(&args);
    assert_eq!(complaint, "");
    let names: Vec<_> = rows.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["lru", "lpc[trace]", "lpc[turns]", "wa"]);
    let lru = hits(&rows, "lru");
    assert!(hits(&rows, "lpc[trace]") < lru, "{rows:?}");
    // A first turn is followed in one of four, turns 2 to 4 always, turn 5 never.
    assert!(hits(&rows, "lpc[turns]") > lru + 100, "{rows:?}");
}

#[test]
fn without_predictions_it_is_lru_and_says_so() {
    let (both, complaint) = rows(&[GOLDEN, "--policy", "lru,lpc", "--capacity", "500"]);
    assert_eq!(hits(&both, "lru"), hits(&both, "lpc"));
    assert!(complaint.contains("--predictor turns"), "{complaint}");
    let table = replay(&[GOLDEN, "--policy", "lpc", "--capacity", "500"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("the trace carries no predictions"), "{table}");
    let (_, complaint) = rows(&[GOLDEN, "--policy", "lru", "--capacity", "500"]);
    assert_eq!(complaint, "", "who reads none needs none");
}

#[test]
fn gaps_in_what_is_predicted_are_told() {
    let trace = canonical(|goes_on| goes_on.then_some(0.9));
    let trace = Scratch::new("some.jsonl", trace.as_bytes());
    let args = [trace.path(), "--policy", "lpc", "--capacity", "60"];
    let (_, complaint) = rows(&args);
    let expected = "the trace predicts for 400 of 800 requests; the others count as 50 %";
    assert!(complaint.contains(expected), "{complaint}");
    let short = "{\"timestamp\": 0, \"hash_ids\": [1]}\n{\"timestamp\": 9000, \"hash_ids\": [2]}\n";
    let short = Scratch::new("short-trace.jsonl", short.as_bytes());
    let args = [short.path(), "--policy", "lpc", "--predictor", "turns"];
    let (_, complaint) = rows(&args);
    let expected = "the trace is shorter, so lpc evicts as lru does";
    assert!(complaint.contains(expected), "{complaint}");
}

#[test]
fn a_charge_is_a_smaller_cache() {
    let trace = canonical(|goes_on| Some(if goes_on { 0.8 } else { 0.3 }));
    let trace = Scratch::new("charge.jsonl", trace.as_bytes());
    let run = |policy: &str, capacity: &str| {
        let args = [trace.path(), "--policy", policy, "--capacity", capacity];
        rows(&args).0[0].1
    };
    assert_eq!(run("lpc:charge=320", "60"), run("lpc", "40"));
    assert!(run("lpc:charge=320", "60") < run("lpc", "60"));
}

/// Words of which some tell that more will follow.
fn prompt(rng: &mut Rng, goes_on: bool) -> String {
    let word = |rng: &mut Rng| format!("word{}", rng.below(200));
    let about: Vec<_> = (0..30).map(|_| word(rng)).collect();
    let about = about.join(" ");
    if goes_on {
        format!("first explain the beginning of {about}")
    } else {
        format!("thanks, finally just check {about}")
    }
}

/// Conversations, as prompts and whether another one follows.
fn conversations(seed: u64, count: usize) -> Vec<Vec<(String, bool)>> {
    let mut rng = Rng::new(seed);
    let mut conversation = || {
        let mut prompts = Vec::new();
        loop {
            let goes_on = rng.below(2) == 0 && prompts.len() < 6;
            prompts.push((prompt(&mut rng, goes_on), goes_on));
            if !goes_on {
                return prompts;
            }
        }
    };
    (0..count).map(|_| conversation()).collect()
}

fn trained(conversations: &[Vec<(String, bool)>]) -> Vec<u8> {
    let (mut situations, mut labels) = (Vec::new(), Vec::new());
    for (number, prompts) in (0..).zip(conversations) {
        let mut situation = Situation::default();
        for (prompt, goes_on) in prompts {
            situation.prompts.push(prompt.clone());
            situation.turn += 1;
            situations.push(situation.clone());
            labels.push(Label {
                outcome: if *goes_on {
                    ConversationOutcome::Continued
                } else {
                    ConversationOutcome::Ended
                },
                turn: situation.turn,
                conversation: number,
                group: number,
                truth: None,
            });
        }
    }
    let encoder = NgramEncoder::new();
    let definition = Definition::new(&encoder);
    let values = definition.rows(&encoder, &situations);
    let dataset = Dataset::new(definition, values, labels).expect("good rows");
    let split = DatasetSplit::new(&dataset.labels, SplitShares::default(), 1);
    let options = TrainOptions { batch: 32, ..TrainOptions::default() };
    let trained = train(&dataset, &split, &options, 0, &mut |_| ControlFlow::Continue(()));
    trained.expect("enough to learn from").model.to_bytes()
}

fn as_lines(conversations: &[Vec<(String, bool)>]) -> String {
    let line = |prompts: &Vec<(String, bool)>| {
        let turns = prompts.iter().flat_map(|(prompt, _)| {
            let answer = format!("an answer to {prompt}");
            [json!({"role": "user", "text": prompt}), json!({"role": "assistant", "text": answer})]
        });
        let truth = prompts.iter().map(|(_, goes_on)| f64::from(u8::from(*goes_on)));
        let turns = turns.collect::<Vec<_>>();
        json!({"turns": turns, "truth": truth.collect::<Vec<_>>()}).to_string() + "\n"
    };
    conversations.iter().map(line).collect()
}

#[test]
fn a_model_reads_what_is_said() {
    let model = Scratch::new("signs.model", &trained(&conversations(1, 600)));
    let told = conversations(2, 300);
    let trace = Scratch::new("chats.jsonl", as_lines(&told).as_bytes());
    let args = [
        trace.path(),
        "--arrivals",
        "10",
        "--policy",
        "lru,lpc,continuation-oracle",
        "--predictor",
        "turns",
        "--predictor",
        "truth",
        "--predictor",
        model.path(),
        "--capacity",
        "8%",
    ];
    let (all, complaint) = rows(&args);
    assert_eq!(complaint, "");
    let by_model = format!("lpc[{}]", model.name());
    let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    let expected = ["lru", "lpc[turns]", "lpc[truth]", &by_model, "continuation-oracle"];
    assert_eq!(names, expected);
    let [lru, turns, truth, model] =
        ["lru", "lpc[turns]", "lpc[truth]", &by_model].map(|name| hits(&all, name));
    // The signs are plain: the model does nearly what the truth does.
    assert!(truth > lru + lru / 10, "{all:?}");
    assert!(model + truth / 50 > truth && model > turns, "{all:?}");
    // Half of the sessions are predicted as well.
    let (half, complaint) = rows(&[&args[..], &["--scale", "0.5"]].concat());
    assert_eq!(complaint, "");
    assert!(hits(&half, &by_model) > hits(&half, "lru"), "{half:?}");
}

#[test]
fn a_pipe_is_no_model_and_is_not_waited_for() {
    let pipe = Scratch::new("pipe", b"");
    std::fs::remove_file(pipe.path()).expect("it is there");
    let made = Command::new("mkfifo").arg(pipe.path()).status();
    assert!(made.expect("mkfifo runs").success());
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .env("HEADSTART_PROGRESS_AFTER_MS", "3600000")
        .args(["replay", GOLDEN, "--policy", "lpc", "--predictor", pipe.path()])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let deadline = Instant::now() + Duration::from_secs(20);
    while waiting.try_wait().expect("a child").is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    // Without effect on one that has ended.
    waiting.kill().expect("a child");
    let output = waiting.wait_with_output().expect("a child");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert!(complaint.contains("it is no file"), "{complaint}");
}

#[test]
fn what_cannot_predict_is_said() {
    let usage = |args: &[&str], part: &str| check_error(&[&[GOLDEN], args].concat(), 2, part);
    usage(&["--predictor", "turns"], "none of the policies reads predictions; lpc does");
    let lpc = ["--policy", "lpc", "--predictor"];
    usage(
        &[&lpc[..], &["./absent"]].concat(),
        "--predictor ./absent: neither `trace`, `turns`, `truth` nor a file",
    );
    usage(&[&lpc[..], &["/"]].concat(), "--predictor /: neither");
    usage(&[&lpc[..], &[GOLDEN]].concat(), "this is not a Headstart model file");
    usage(&[&lpc[..], &["turns", "--predictor", "turns"]].concat(), "two are called `turns`");
    usage(&[&lpc[..], &["truth"]].concat(), "this trace is canonical, without text");
    usage(&[&lpc[..], &["turns", "--encoder", "./absent"]].concat(), "--encoder ./absent");
    usage(
        &[&lpc[..], &["turns", "--encoder", "ngram"]].concat(),
        "no --predictor is a model's file",
    );
    usage(&["--encoder", "ngram"], "--predictor <NAME|FILE>");
    usage(&["--policy", "lpc:charge=-1"], "does not take `charge=-1`");
    let chats = Scratch::new("short.jsonl", as_lines(&conversations(3, 3)).as_bytes());
    let args = ["-", "--format", "conversation", "--policy", "lpc", "--predictor", "truth"];
    check_error(&args, 2, "a model reads the texts a second time");
    let bad = as_lines(&conversations(4, 3)) + "no JSON\n";
    let bad = Scratch::new("bad.jsonl", bad.as_bytes());
    let skip = ["--skip-bad", "--policy", "lpc", "--predictor", "truth"];
    check_error(&[&[bad.path()], &skip[..]].concat(), 2, "not a conversation");
    let (rows, _) = rows(&[chats.path(), "--policy", "lpc", "--predictor", "truth"]);
    assert!(rows.iter().all(|(name, _)| name == "lpc[truth]"), "{rows:?}");
}
