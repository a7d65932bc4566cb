//! Predictions in `headstart serve`: what users give it, what it says, and what it never writes.

use crate::planted;
use crate::support;

use std::fs::File;
use std::path::Path;
use std::process::Command;

use headstart_predict::ContinuationModel;
use serde_json::{Value, json};
use support::{Scratch, Served, eventually};

fn command(args: &[&str]) -> Command {
    let mut command = support::serve(["--replicas", "1"]);
    command.args(args);
    command
}

/// Starts a server that writes all of its standard error to `log`.
fn start(args: &[&str], log: &Path) -> Served {
    let log = File::create(log).expect("a log");
    Served::run(command(args).env("HEADSTART_LOG", "trace").stderr(log))
}

/// Sends a conversation and returns the answer's text.
fn chat(server: &Served, messages: &[Value], max_tokens: usize) -> String {
    let body = json!({
        "model": "toy", "messages": messages, "max_tokens": max_tokens, "ignore_eos": true,
    });
    let answer = server.json("POST", "/v1/chat/completions", &body.to_string());
    let content = &answer["choices"][0]["message"]["content"];
    content.as_str().unwrap_or_default().to_owned()
}

/// Waits for a line of the metrics.
fn until(server: &Served, line: &str) {
    let is_there = || server.metrics().lines().any(|found| found == line);
    eventually(line, is_there);
}

fn stop(mut server: Served) {
    assert!(server.end("-TERM").success());
}

fn says(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

fn fingerprint(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..16].to_owned()
}

fn in_use(fingerprint: &str) -> String {
    format!("headstart_predictor_model_info{{fingerprint=\"{fingerprint}\"}} 1")
}

/// Words that occur in no other text.
const PROMPTS: [&str; 4] = [
    "Quxolotl zwiebelkrokodil brimborion? go",
    "Wunderkerze\nfladdermuizen SSN 078-05-1120 halt",
    "Ħobż biż-żejt — pappardelle vongole go",
    "sesquipedalian rhododendron kjøttkaker halt",
];
const SYSTEM: &str = "Thou art Xanthippophagus the verbose";
const USER: &str = "ophelia.quackenbush@example.org";

/// Returns every stretch of `length` characters of a text.
fn stretches(text: &str, length: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let stretches = chars.windows(length);
    stretches.map(|stretch| stretch.iter().collect()).collect()
}

#[test]
fn no_text_reaches_disk_log_or_metrics() {
    let scratch = Scratch::new("text");
    let model = scratch.write("model", &planted::model(1).to_bytes());
    let (log, stderr) = (scratch.path("outcomes.jsonl"), scratch.0.join("stderr"));
    let args = ["--policy", "lpc", "--predictor", &model, "--prediction-log", &log];
    let args = [&args[..], &["--prediction-horizon", "1"]].concat();
    let server = start(&args, &stderr);
    let given = PROMPTS.iter().chain([&SYSTEM, &USER]);
    let mut secret: Vec<_> = given.flat_map(|text| stretches(text, 8)).collect();
    let mut messages = vec![says("system", SYSTEM)];
    for prompt in PROMPTS {
        messages.push(says("user", prompt));
        let answer = chat(&server, &messages, 40);
        // The toy answers in common words: one of them proves nothing, several in a row do.
        secret.extend(stretches(&answer, 24));
        messages.push(says("assistant", &answer));
    }
    // What is refused is not repeated either.
    for role in [json!(PROMPTS[0]), json!({"no": PROMPTS[1]})] {
        let body = json!({"model": "toy", "user": USER, "messages": [
            {"role": role, "content": [{"type": "image", "text": PROMPTS[2]}]}
        ]});
        server.ask("POST", "/v1/chat/completions", &body.to_string());
    }
    until(&server, "headstart_prediction_log_records_total 4");
    until(&server, "headstart_turns_total{outcome=\"continued\"} 3");
    until(&server, "headstart_turns_total{outcome=\"ended\"} 1");
    let metrics = server.metrics();
    stop(server);
    let read = |path: &Path| std::fs::read_to_string(path).expect("text");
    let (log, stderr) = (read(Path::new(&log)), read(&stderr));
    assert!(log.lines().count() == 5 && stderr.contains("first token"));
    for (name, written) in [("log", &log), ("stderr", &stderr), ("metrics", &metrics)] {
        for stretch in &secret {
            assert!(!written.contains(stretch), "`{stretch}` is in the {name}");
        }
    }
    let files = std::fs::read_dir(&scratch.0).expect("a folder").count();
    assert_eq!(files, 3, "model, log, stderr");
}

#[test]
fn a_new_model_is_taken_over_and_a_bad_one_is_not() {
    let scratch = Scratch::new("swap");
    let [first, second] = [1, 2].map(|seed| planted::model(seed).to_bytes());
    let model = scratch.write("model", &first);
    let stderr = scratch.0.join("stderr");
    let server = start(&["--policy", "lpc", "--predictor", &model], &stderr);
    until(&server, &in_use(&fingerprint(&first)));
    chat(&server, &[says("user", "river go")], 60);
    until(&server, "headstart_predictions_total{outcome=\"model\"} 1");
    scratch.write("model", &second);
    until(&server, &in_use(&fingerprint(&second)));
    assert!(!server.metrics().contains(&fingerprint(&first)));
    scratch.write("model", &second[..second.len() / 2]);
    until(&server, "headstart_predictor_model_files_total{outcome=\"refused\"} 1");
    until(&server, &in_use(&fingerprint(&second)));
    std::fs::remove_file(&model).expect("removes");
    chat(&server, &[says("user", "river halt")], 60);
    until(&server, "headstart_predictions_total{outcome=\"model\"} 2");
    scratch.write("model", &first);
    until(&server, &in_use(&fingerprint(&first)));
    until(&server, "headstart_predictor_model_files_total{outcome=\"loaded\"} 2");
    stop(server);
    let said = std::fs::read_to_string(stderr).expect("text");
    assert!(said.contains("refused") && said.contains("the old model stays"));
}

#[test]
fn lpc_without_a_model_says_so_and_learns_from_turn_counts() {
    let scratch = Scratch::new("prior");
    let stderr = scratch.0.join("stderr");
    let args = ["--policy", "lpc", "--prediction-horizon", "1"];
    let server = start(&args, &stderr);
    chat(&server, &[says("user", "hello")], 2);
    until(&server, "headstart_predictions_total{outcome=\"prior\"} 1");
    until(&server, "headstart_turns_total{outcome=\"ended\"} 1");
    stop(server);
    let said = std::fs::read_to_string(stderr).expect("text");
    assert!(said.contains("turn counts alone"), "{said}");
}

/// Checks that a refused command ends with exit code 2 and says what to do.
fn check_refused(args: &[&str], expected: &[&str]) {
    let output = command(args).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    for part in expected {
        assert!(said.contains(part), "{args:?}: `{part}` in {said}");
    }
}

#[test]
fn what_cannot_be_used_is_refused_at_the_start() {
    let scratch = Scratch::new("refused");
    let model = planted::model(1);
    let bytes = model.to_bytes();
    let good = scratch.write("good", &bytes);
    let other = ContinuationModel {
        definition: headstart_predict::Definition {
            encoder: "bert-of-somebody-else".to_owned(),
            ..model.definition.clone()
        },
        ..model
    };
    let other = scratch.write("other", &other.to_bytes());
    let foreign = scratch.write("foreign", b"{\"turns\": []}\n");
    let cut = scratch.write("cut", &bytes[..bytes.len() - 1]);
    let missing = scratch.path("missing");
    let lpc = |file: &str, expected: &[&str]| {
        check_refused(&["--policy", "lpc", "--predictor", file], expected);
    };
    lpc(&missing, &[&missing, "headstart train"]);
    lpc(&foreign, &[&foreign, "not a Headstart model file"]);
    lpc(&cut, &["damaged"]);
    lpc(&other, &["bert-of-somebody-else", "--encoder FOLDER"]);
    lpc(&scratch.path(""), &["is no file"]);
    let with = |rest: &[&str], expected: &[&str]| {
        check_refused(&[&["--predictor", &good], rest].concat(), expected);
    };
    with(&["--encoder", &missing], &["--encoder", &missing]);
    with(&["--prediction-log", &foreign], &["name another file"]);
    with(&["--prediction-log", &scratch.path("")], &["--prediction-log"]);
    with(&["--prediction-horizon", "0"], &["at least 1 second"]);
    check_refused(&["--encoder", "."], &["has no effect without"]);
    check_refused(&["--upstream", "http://127.0.0.1:1", "--policy", "lpc"], &["embedded"]);
}
