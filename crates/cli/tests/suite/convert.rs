//! `headstart trace convert` as users and scripts call it.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn convert(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.env("HEADSTART_PROGRESS_AFTER_MS", "3600000");
    command
        .current_dir(std::env::temp_dir())
        .env_remove("HEADSTART_CONFIG")
        .args(["trace", "convert"])
        .args(args);
    command.output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of the test's own, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn path(name: &str) -> Self {
        let name = format!("headstart-convert-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn new(name: &str, contents: &str) -> Self {
        let scratch = Self::path(name);
        std::fs::write(&scratch.0, contents).expect("writes");
        scratch
    }

    fn name(&self) -> &str {
        self.0.to_str().expect("a plain name")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const MOONCAKE: &str = r#"{"timestamp": 0, "input_length": 1200, "hash_ids": [0, 1, 2]}
{"timestamp": 7.5, "input_length": 2300, "output_length": 3, "hash_ids": [0, 1, 3, 4, 5]}
"#;

const CONVERTED: &str = concat!(
    r#"{"headstart_trace":1,"block_tokens":512,"#,
    r#""types":["unknown","new","follow-up","repeat","template"],"#,
    r#""sessions":"inferred","turns":"inferred","types_from":"inferred"}"#,
    "\n",
    r#"{"arrival_ns":0,"type":1,"session":0,"turn":1,"input_tokens":1200,"blocks":[[0,3]]}"#,
    "\n",
    r#"{"arrival_ns":7500000,"type":2,"session":0,"turn":2,"input_tokens":2300,"output_tokens":3,"#,
    r#""blocks":[[0,2],[3,3]]}"#,
    "\n",
);

#[test]
fn a_trace_is_written_in_the_canonical_form_and_summed_up() {
    let trace = Scratch::new("plain.jsonl", MOONCAKE);
    let output = convert(&[trace.name()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), CONVERTED);
    let said = text(&output.stderr);
    assert!(
        said.starts_with("mooncake: 2 requests, 8 blocks of 512 tokens, 1 session (inferred)"),
        "{said}"
    );
    assert!(said.contains("inferred from shared prefixes"), "{said}");
}

#[test]
fn a_conversion_converts_to_itself_also_compressed() {
    let trace = Scratch::new("again.jsonl", MOONCAKE);
    let packed = Scratch::path("packed.jsonl.gz");
    assert!(convert(&[trace.name(), "-o", packed.name()]).status.success());
    let bytes = std::fs::read(&packed.0).expect("written");
    assert_eq!(bytes[..2], [0x1f, 0x8b]);
    assert!(convert(&[packed.name(), "-o", trace.name()]).status.success());
    let again = std::fs::read_to_string(&trace.0).expect("written");
    assert_eq!(again, CONVERTED);
}

#[test]
fn bad_lines_stop_or_are_counted_and_what_is_incomplete_is_named() {
    let trace = Scratch::new("bad.jsonl", &format!("{MOONCAKE}nonsense\n{MOONCAKE}"));
    let target = Scratch::new("target.jsonl", "as it was");
    let output = convert(&[trace.name(), "-o", target.name()]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("line 3: "), "{said}");
    let incomplete = format!("{} is incomplete", target.name());
    assert!(said.contains(&incomplete), "{said}");
    let output = convert(&[trace.name(), "-o", target.name(), "--skip-bad"]);
    assert!(output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("1 bad line left out"), "{said}");
    // The second copy begins at 0 again.
    assert!(said.contains("1 request earlier than"), "{said}");
}

#[test]
fn a_trace_without_a_request_is_an_error_and_touches_nothing() {
    let trace = Scratch::new("none.jsonl", "{\"hash_ids\": 7}\n{\"hash_ids\": 8}\n");
    let target = Scratch::new("kept.jsonl", "as it was");
    let output = convert(&[trace.name(), "--skip-bad", "-o", target.name()]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("has no request: 2 bad lines left out"), "{said}");
    assert!(!said.contains("inferred"), "{said}");
    let kept = std::fs::read_to_string(&target.0).expect("still there");
    assert_eq!(kept, "as it was");
}

#[cfg(unix)]
#[test]
fn links_modes_and_pipes_stay_what_they_are() {
    use std::os::unix::fs::PermissionsExt;
    let trace = Scratch::new("linked.jsonl", MOONCAKE);
    let target = Scratch::new("linked-target.jsonl", "");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&target.0, mode).expect("sets the mode");
    let link = Scratch::path("link.jsonl");
    std::os::unix::fs::symlink(&target.0, &link.0).expect("links");
    assert!(convert(&[trace.name(), "-o", link.name()]).status.success());
    assert!(link.0.symlink_metadata().expect("there").is_symlink());
    let written = std::fs::read_to_string(&target.0).expect("written");
    assert_eq!(written, CONVERTED);
    let mode = target.0.metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The trace by another name is the trace.
    check_usage(&[target.name(), "-o", link.name()], "is the trace itself");

    let pipe = Scratch::path("pipe");
    let made = Command::new("mkfifo").arg(&pipe.0).status();
    assert!(made.expect("mkfifo runs").success());
    let name = pipe.name().to_owned();
    let reader = std::thread::spawn(move || std::fs::read_to_string(name));
    assert!(convert(&[trace.name(), "-o", pipe.name()]).status.success());
    assert_eq!(reader.join().expect("reads").expect("text"), CONVERTED);
    assert!(!pipe.0.metadata().expect("there").is_file());
}

#[test]
fn synth_and_materialize_write_by_the_same_rule() {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
        command.env("HEADSTART_PROGRESS_AFTER_MS", "3600000");
        command.arg("trace").args(args);
        command.env_remove("HEADSTART_CONFIG").output().expect("the binary runs")
    };
    let packed = Scratch::path("synth.jsonl.gz");
    let synth = ["synth", "chat", "--requests", "20", "-o"];
    let prompts = Scratch::path("prompts.jsonl.gz");
    let materialize = ["materialize", packed.name(), "-o"];
    for (args, target) in [(&synth[..], &packed), (&materialize[..], &prompts)] {
        let output = run(&[args, &[target.name()]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let bytes = std::fs::read(&target.0).expect("written");
        assert_eq!(bytes[..2], [0x1f, 0x8b], "{args:?}");
        let refused = run(&[args, &["x.zst"]].concat());
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        let said = text(&refused.stderr);
        assert!(said.contains("zstd is read here but not written"), "{said}");
    }
}

#[test]
fn standard_input_is_read_and_a_closed_pipe_is_no_failure() {
    let trace = Scratch::new("pipe.jsonl", &MOONCAKE.repeat(20_000));
    let mut child = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .env("HEADSTART_PROGRESS_AFTER_MS", "3600000")
        .args(["trace", "convert", "-"])
        .stdin(std::fs::File::open(&trace.0).expect("opens"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut start = [0; 20];
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut start).expect("a header");
    drop(stdout);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(start.starts_with(b"{\"headstart_trace\":1"));
}

/// Wrong arguments: exit code 2 and a word on what is wrong.
fn check_usage(args: &[&str], part: &str) {
    let output = convert(args);
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {complaint}");
    assert!(complaint.contains(part), "{args:?}: {complaint}");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let trace = Scratch::new("refused.jsonl", MOONCAKE);
    let name = trace.name();
    check_usage(&[], "<FILE>");
    check_usage(&[name, "-o", name], "is the trace itself");
    check_usage(&[name, "-o", "x.zst"], "zstd is read here but not written");
    check_usage(&[name, "--format", "parquet"], "known: mooncake");
    check_usage(&[name, "--arrivals", "60"], "has arrival times");
    check_usage(&[name, "--arrivals-seed", "1"], "--arrivals");
    check_usage(&[name, "--tokenizer", "./absent"], "./absent");
    assert_eq!(convert(&["absent.jsonl"]).status.code(), Some(2));
}
