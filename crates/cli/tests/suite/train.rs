//! `headstart train` as users and scripts call it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use headstart_predict::{ContinuationModel, ModelError};
use serde_json::Value;

/// Conversations of the planted corpus: enough that the signal is found for sure.
const CONVERSATIONS: usize = 1_200;

/// A folder that goes when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("headstart-train-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn path(&self, file: &str) -> String {
        let path = self.0.join(file);
        path.to_str().expect("a name in UTF-8").to_owned()
    }

    fn write(&self, file: &str, contents: &str) -> String {
        let path = self.path(file);
        fs::write(&path, contents).expect("writes");
        path
    }

    /// Conversations whose words tell whether they go on.
    fn planted(&self, file: &str, seed: u64) -> String {
        let path = self.path(file);
        let (count, seed) = (CONVERSATIONS.to_string(), seed.to_string());
        let output = headstart(&[
            "trace",
            "planted",
            "--out",
            &path,
            "--conversations",
            &count,
            "--seed",
            &seed,
            "--strength",
            "4",
            "--answer-words",
            "8",
        ]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("a folder");
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        entries.map(|entry| name(entry.expect("an entry"))).collect()
    }

    /// The file with the embeddings, of which there is one.
    fn embeddings(&self) -> PathBuf {
        let mut names = self.names();
        names.retain(|name| name.ends_with(".embeddings"));
        let [name] = &names[..] else {
            panic!("one file of embeddings: {names:?}");
        };
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn headstart(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.env("HEADSTART_PROGRESS_AFTER_MS", "3600000");
    command.args(args).stdin(Stdio::null());
    command.output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the output of a training, which must succeed and write nothing to standard error.
fn printed(args: &[&str]) -> String {
    let output = headstart(&[&["train"], args].concat());
    let complaint = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {complaint}");
    assert_eq!(complaint, "", "{args:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn json(args: &[&str]) -> Value {
    let printed = printed(&[args, &["--json", "-"]].concat());
    serde_json::from_str(&printed).expect("one JSON object")
}

fn number(report: &Value, pointer: &str) -> f64 {
    let found = report.pointer(pointer).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no number {pointer} in {report}"))
}

fn check_error(args: &[&str], code: i32, part: &str) {
    let output = headstart(&[&["train"], args].concat());
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {complaint}");
    assert!(complaint.contains(part), "{args:?}: {complaint}");
    assert!(!complaint.contains("panicked"), "{args:?}: {complaint}");
}

#[test]
fn a_planted_signal_is_found_told_and_kept_in_a_model() {
    let folder = Folder::new("found");
    let corpus = folder.planted("planted.jsonl", 1);
    let (model, page) = (folder.path("model.hsp"), folder.path("model.html"));
    let args = [&corpus, "--out", &model, "--report", &page, "--curve", "1"];
    let report = json(&args.map(|arg: &str| arg));
    assert!(number(&report, "/test/mcc") > 0.3, "{report}");
    assert!(number(&report, "/lift/low") > 0.0, "{report}");
    assert!(number(&report, "/attainable_mcc") > 0.6, "{report}");
    assert_eq!(report["inputs"][0]["conversations"], CONVERSATIONS);
    assert_eq!(report["curve"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["epochs"].as_array().map(Vec::len), Some(3 * 20));
    for field in ["train", "validation", "test", "turn_only"] {
        for figure in ["mcc", "mcc_low", "mcc_high", "macro_f1", "auc", "ece", "base_rate"] {
            number(&report, &format!("/{field}/{figure}"));
        }
        assert!(report[field]["bins"].is_array(), "{field} of {report}");
    }
    let samples = |part: &str| number(&report, &format!("/parts/{part}/samples"));
    let shared_out = samples("train") + samples("validation") + samples("test");
    let turns = number(&report, "/inputs/0/turns");
    assert_eq!(shared_out, turns - number(&report, "/unknown"));
    assert!(number(&report, "/times/train_s") > 0.0);
    assert!(report["words"][0].as_str().is_some_and(|said| said.contains("predicts better")));

    let page = fs::read_to_string(page).expect("a page");
    assert!(page.contains("planted.jsonl") && page.contains("default-src 'none'"));
    let bytes = fs::read(&model).expect("a model");
    let loaded = ContinuationModel::from_bytes(&bytes).expect("the model that was written");
    assert_eq!(report["fingerprint"], Value::from(loaded.fingerprint.clone()));
    assert_eq!(report["definition"]["encoder"], Value::from(loaded.definition.encoder));
    for at in (0..bytes.len()).step_by(bytes.len() / 50) {
        let mut bad = bytes.clone();
        bad[at] ^= 4;
        assert!(ContinuationModel::from_bytes(&bad).is_err(), "byte {at}");
    }
    let cut = ContinuationModel::from_bytes(&bytes[..bytes.len() - 1]);
    assert_eq!(cut.err(), Some(ModelError::Damaged));
    // Nothing half-written lies about.
    assert!(folder.names().iter().all(|name| !name.ends_with(".part")));
}

#[test]
#[cfg_attr(not(feature = "ablations"), ignore = "needs --features ablations")]
fn shuffled_labels_find_nothing_and_leave_no_model() {
    let folder = Folder::new("shuffled");
    let corpus = folder.planted("planted.jsonl", 2);
    let args = [corpus.as_str(), "--shuffle-labels", "--curve", "0", "--seeds", "3"];
    let report = json(&args);
    let (low, high) = (number(&report, "/test/mcc_low"), number(&report, "/test/mcc_high"));
    assert!(low <= 0.0 && 0.0 <= high, "{report}");
    for seed in report["seeds"].as_array().expect("seeds") {
        assert!(number(seed, "/mcc").abs() < 0.2, "{report}");
    }
    assert_eq!(report["seeds"].as_array().map(Vec::len), Some(3));
    assert_eq!(report["attainable_mcc"], Value::Null);
    assert_eq!(report["model"], Value::Null);
    assert_eq!(folder.names(), ["planted.jsonl"]);
}

#[test]
fn embeddings_are_kept_without_text_and_used_again() {
    let folder = Folder::new("kept");
    let turn = |role: &str, text: &str| serde_json::json!({"role": role, "text": text});
    let conversation = |index: usize| {
        let more = turn("user", &format!("MARKERWORD goes on {index}"));
        let mut turns = vec![turn("user", &format!("MARKERWORD begins {index}"))];
        if index.is_multiple_of(2) {
            turns.extend([turn("assistant", "ANSWERWORD"), more]);
        }
        let line = serde_json::json!({"id": format!("IDWORD{index}"), "turns": turns});
        format!("{line}\n")
    };
    let corpus: String = (0..400).map(conversation).collect();
    let corpus = folder.write("corpus.jsonl", &corpus);
    let model = folder.path("model.hsp");
    let args = [corpus.as_str(), "--out", &model, "--answers", "--curve", "0"];
    let texts = |report: &Value| ["texts", "texts_known"].map(|name| report["times"][name].clone());
    let first = json(&args);
    // First prompts are their own window; later ones are read by themselves as well.
    assert_eq!(texts(&first), [800, 0]);
    let second = json(&args);
    assert_eq!(texts(&second), [800, 800]);
    for field in ["fingerprint", "test", "epochs"] {
        assert_eq!(first[field], second[field], "the same data give the same {field}");
    }
    for file in [folder.embeddings(), PathBuf::from(&model)] {
        let bytes = fs::read(&file).expect("a file");
        for word in ["MARKERWORD", "ANSWERWORD", "IDWORD"] {
            let has_word = bytes.windows(word.len()).any(|part| part == word.as_bytes());
            assert!(!has_word, "{word} in {}", file.display());
        }
    }
    // A damaged file costs the time to embed, and is reported.
    let kept = folder.embeddings();
    let mut bytes = fs::read(&kept).expect("embeddings");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&kept, bytes).expect("writes");
    let output = headstart(&[&["train"], &args[..]].concat());
    assert!(output.status.success() && text(&output.stderr).contains("is damaged"));
    assert_eq!(texts(&json(&args)), [800, 800]);
    assert_eq!(texts(&json(&[&args[..], &["--no-cache"]].concat())), [800, 0]);
}

#[test]
fn a_model_of_two_corpora_is_tried_on_each() {
    let folder = Folder::new("two");
    let (one, two) = (folder.planted("one.jsonl", 3), folder.planted("two.jsonl", 4));
    let model = folder.path("model.hsp");
    let report =
        json(&[&one, &two, "--out", &model, "--test-on", &one, "--test-on", &two, "--curve", "0"]);
    assert_eq!(report["inputs"].as_array().map(Vec::len), Some(2));
    let samples = |index: usize| number(&report, &format!("/elsewhere/{index}/model/samples"));
    // Only what is in the test part was not seen.
    assert_eq!(samples(0) + samples(1), number(&report, "/parts/test/samples"));
    assert!(number(&report, "/elsewhere/0/seen_before") > 900.0, "{report}");
}

#[test]
fn a_trace_teaches_turns_and_gaps_and_no_text() {
    let folder = Folder::new("trace");
    let trace = folder.path("synth.jsonl");
    let output = headstart(&["trace", "synth", "chat", "-o", &trace, "--requests", "3000"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let model = folder.path("model.hsp");
    let report = json(&[&trace, "--out", &model, "--behaviour", "--curve", "0"]);
    assert_eq!(report["inputs"][0]["kind"], "trace");
    assert_eq!(report["definition"]["behaviour"], true);
    assert_eq!(report["times"]["texts"], 1, "the empty one");
    assert!(number(&report, "/test/auc") > 0.45, "{report}");
    check_error(&[&trace, "--out", &model, "--window", "2"], 2, "a trace has no text");
}

#[test]
fn a_log_is_learnt_from_as_it_was_read() {
    use headstart_core::{Probability, Rng};
    use headstart_predict::log::{OutcomeRecord, header_line};
    use headstart_predict::{ConversationOutcome, Definition, Parts, encoder};

    let folder = Folder::new("log");
    let encoder = encoder::open("ngram").expect("it is built in");
    let mut definition = Definition::new(&*encoder);
    definition.behaviour = true;
    definition.parts = Parts::Joined;
    let mut rng = Rng::new(5);
    let mut lines = header_line(&definition);
    for conversation in 0..600 {
        let row: Vec<f32> = (0..definition.width()).map(|_| rng.next_f64() as f32).collect();
        let goes_on = row[3] > 0.5;
        let record = OutcomeRecord {
            conversation,
            turn: 1,
            outcome: if goes_on {
                ConversationOutcome::Continued
            } else {
                ConversationOutcome::Ended
            },
            said: Probability::new(0.5),
            row,
        };
        lines += &record.line();
    }
    let log = folder.write("outcomes.log", &(lines + "half a li"));
    let model = folder.path("model.hsp");
    let report = json(&[&log, "--out", &model, "--curve", "0"]);
    assert_eq!(report["inputs"][0]["kind"], "log");
    assert_eq!(report["inputs"][0]["remarks"], serde_json::json!(["1 bad line left out"]));
    assert!(number(&report, "/test/auc") > 0.6, "{report}");
    let loaded =
        ContinuationModel::from_bytes(&fs::read(&model).expect("a model")).expect("a model");
    assert_eq!(loaded.definition, definition);
    check_error(&[&log, "--out", &model, "--answers"], 2, "as it was");
    let said = "{\"conversation\":1,\"turn\":1,\"outcome\":\"ended\",\"said\":7.5,\"row\":\"\"}\n";
    let bad = folder.write("bad.log", &(header_line(&definition) + &said.repeat(3)));
    check_error(&[&bad, "--out", &model], 2, "3 bad lines behind its header, the first at line 2");
    let corpus = folder.planted("planted.jsonl", 6);
    check_error(&[&log, &corpus, "--out", &model], 2, "inputs of one kind");
}

#[test]
fn what_cannot_be_learnt_from_is_told_with_exit_codes() {
    let folder = Folder::new("errors");
    let record = |head: &str, turns: usize| {
        let turns = vec![r#"{"role": "user", "text": "x"}"#; turns].join(",");
        format!("{{{head}\"turns\": [{turns}]}}\n")
    };
    let model = folder.path("model.hsp");
    let check = |file: &str, line: &str, times: usize, part: &str| {
        let path = folder.write(file, &line.repeat(times));
        check_error(&[&path, "--out", &model], 2, part);
    };
    check("censored", &record("\"truncated\": true, ", 1), 50, "none of 50 turns says");
    check("ends", &record("", 1), 50, "after each of the 50 turns of known outcome");
    check("few", &record("", 2), 20, "20 conversations with 40 turns of known outcome are too few");
    check("alike", &record("", 2), 200, "are of 1 such group");
    check("group", &record("\"group\": [1], ", 2), 200, "`group` is neither");
    check("prompts", &record("", 2), 119, "and 240 such turns are needed");
    check("bad", "not JSON\n", 2, "bad");
    check_error(&["absent.jsonl", "--out", &model], 2, "absent.jsonl");
    let path = folder.path("few");
    check_error(&[&path], 2, "--out");
    check_error(&[&path, "--out", &path], 2, "is an input");
    check_error(&[&path, "--out", &folder.path("no/model.hsp")], 2, "no such folder");
    check_error(&[&path, "--out", &model, "--encoder", "absent"], 2, "--encoder absent");
    check_error(&[&path, "--out", &model, "--epochs", "0"], 2, "--epochs");
    check_error(&[&path, "--out", &model, "--from", "magic"], 2, "--from");
    check_error(&[&path, "--out", &model, "--embeddings", &path], 2, "is an input");
    let letter = folder.write("letter", "a letter");
    let long = folder.planted("long", 9);
    check_error(&[&long, "--out", &model, "--embeddings", &letter], 2, "no file of embeddings");
    assert!(!Path::new(&model).exists());
}

#[test]
fn an_output_that_would_replace_something_is_refused_before_any_work() {
    let folder = Folder::new("outputs");
    // Read first, this would be another error.
    let input = folder.write("input", "not JSON\n");
    let (model, pipe) = (folder.path("model.hsp"), folder.path("pipe"));
    let again = folder.path("./model.hsp");
    for option in ["--json", "--report", "--embeddings"] {
        let args = [input.as_str(), "--out", &model, option, &again];
        check_error(&args, 2, "is what --");
    }
    let made = Command::new("mkfifo").arg(&pipe).status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no pipes here");
        return;
    }
    check_error(&[&input, "--out", &pipe], 2, "no regular file");
    for option in ["--json", "--report", "--embeddings"] {
        let args = [input.as_str(), "--out", &model, option, &pipe];
        check_error(&args, 2, "no regular file");
    }
    let mut names = folder.names();
    names.sort();
    assert_eq!(names, ["input", "pipe"]);
}
