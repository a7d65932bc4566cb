//! The output of each command fits a terminal of 80 columns, and the long ones show progress.

use crate::{progress, support};

use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use support::every::{self, Inputs};

/// Columns of a usual terminal.
const COLUMNS: usize = 80;

/// Commands that write for programs, with the reason.
const FOR_PROGRAMS: &[(&str, &str)] = &[
    ("index dump", "one JSON object per line"),
    ("completions", "a script for a shell"),
    ("vllm-args", "a command for a shell"),
];

/// Command lines that are refused: each error is wrapped.
const WRONG: &[&str] = &[
    "analyze ./a-folder-that-is-not-there/with-a-long-name/requests.jsonl",
    "replay ./a-folder-that-is-not-there/with-a-long-name/requests.jsonl --policy lru",
    "replay golden.jsonl --policy s3fifo:smal=0.2",
    "replay golden.jsonl --polcy lru",
    "lint golden.jsonl",
    "why 7 golden.jsonl",
    "plan golden.jsonl --model ./a-folder-that-is-not-there/with-a-long-name",
    "serve --config wrong.toml",
    "serve --upstream http://127.0.0.1:1 --cache-blocks 100",
    "serve --model ./a-folder-that-is-not-there/with-a-long-name",
    "calibrate --derive no-model --gpu h100",
    "simulate fleet --preset no-preset",
    "simulate fleet --preset no-preset",
    "bench chat golden.jsonl",
    "cache ls ./a-folder-that-is-not-there/with-a-long-name",
    "cache purge kv --all",
    "trace synth no-preset",
    "trace planted --strength many",
    "top --once --url http://127.0.0.1:1",
    "no-command",
];

/// Output of a command on a terminal, with progress from the start.
fn shown(folder: &Path, args: &str, codes: &[i32]) -> String {
    let variables = [("HEADSTART_LOG", "info"), progress::AT_ONCE];
    let (code, text) = every::on_terminal(folder, args, &variables);
    let text = every::plain(&text);
    assert!(codes.contains(&code), "{args}: exit code {code}: {text}");
    assert!(!text.trim().is_empty(), "{args}: prints something");
    text
}

/// Lines of a command's output that are too wide.
fn wide(folder: &Path, args: &str, codes: &[i32]) -> Vec<String> {
    wide_lines(args, &shown(folder, args, codes))
}

fn wide_lines(args: &str, text: &str) -> Vec<String> {
    // Bars are drawn below one another without line feeds, and are as wide as the terminal.
    let lines = text.lines().filter(|line| !line.contains(['█', '░']));
    let wide = lines.filter(|line| line.chars().count() > COLUMNS);
    wide.map(|line| format!("{args}: {line}")).collect()
}

#[test]
fn each_command_has_a_case_or_a_reason() {
    let without_case: Vec<_> = every::leaves()
        .into_iter()
        .filter(|leaf| every::SMALL.iter().all(|(name, _)| name != leaf))
        .collect();
    assert!(without_case.is_empty(), "add to SMALL: {without_case:?}");
    for (name, reason) in FOR_PROGRAMS {
        assert!(every::leaves().contains(name), "{name}: {reason}");
    }
}

#[test]
fn each_command_fits_80_columns_and_shows_progress() {
    if !every::has_terminal() {
        return;
    }
    let inputs = Inputs::new();
    let folder = inputs.folder.path();
    let mut all = Vec::new();
    for (name, args) in every::SMALL {
        // `lint` has findings, and `serve` is interrupted.
        let codes: &[i32] = match *name {
            "lint" => &[1],
            "serve" => &[0, 124],
            _ => &[0],
        };
        let args = inputs.args(name, args);
        let text = shown(folder, &args, codes);
        if FOR_PROGRAMS.iter().all(|(other, _)| name != other) {
            all.extend(wide_lines(&args, &text));
        }
        let missing = progress::missing(name, &args, &text);
        all.extend(missing.map(|part| format!("{args}: no `{part}`: {text}")));
    }
    all.extend(wide(folder, "trace synth --list", &[0]));
    assert!(all.is_empty(), "{all:#?}");
}

/// Codes of colours and of bold text.
fn has_colours(text: &str) -> bool {
    let codes = ["1", "31", "32", "36"];
    let mut codes = codes.iter().map(|code| format!("\u{1b}[{code}m"));
    codes.any(|code| text.contains(&code))
}

#[test]
fn colours_are_for_terminals() {
    if !every::has_terminal() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/traces/golden.jsonl");
    std::fs::copy(golden, folder.join("golden.jsonl")).expect("copies");
    let shown =
        |args: &str, variables: &[(&str, &str)]| every::on_terminal(folder, args, variables).1;
    for args in [
        "demo --log requests.jsonl",
        "analyze requests.jsonl --full",
        "why r0004 requests.jsonl",
        "lint requests.jsonl",
        "replay golden.jsonl",
        "plan golden.jsonl --model llama3-70b",
    ] {
        let args = if folder.join("requests.jsonl").exists() {
            args.trim_end_matches(" --log requests.jsonl")
        } else {
            args
        };
        let coloured = shown(args, &[("NO_COLOR", "")]);
        assert!(has_colours(&coloured), "{args}: {coloured}");
        // One place reads the variables, and each command asks it.
        if args.starts_with("replay ") {
            for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
                let plain = shown(args, &[variable]);
                assert!(!has_colours(&plain), "{args}, {variable:?}: {plain}");
            }
        }
        let mut piped = support::headstart(args.split(' '));
        let piped = piped.current_dir(folder).output().expect("runs");
        assert!(!has_colours(&support::text(&piped.stdout)), "{args}");
    }
}

#[test]
fn errors_and_help_fit_80_columns() {
    if !every::has_terminal() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/traces/golden.jsonl");
    std::fs::copy(golden, folder.join("golden.jsonl")).expect("copies");
    std::fs::write(folder.join("wrong.toml"), "[serve]\nreplica = 2\n").expect("writes");
    let mut all = Vec::new();
    for args in WRONG {
        all.extend(wide(folder, args, &[2]));
    }
    for leaf in every::leaves() {
        for help in ["-h", "--help"] {
            all.extend(wide(folder, &format!("{leaf} {help}"), &[0]));
        }
        all.extend(wide(folder, &format!("{leaf} --no-option"), &[2]));
    }
    assert!(all.is_empty(), "{all:#?}");
}

/// Log lines are wrapped on a terminal only: programs read the others line by line.
#[test]
fn log_lines_fit_the_terminal() {
    if !every::has_terminal() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let serve = "serve --listen 127.0.0.1:0 --upstream http://127.0.0.1:1";
    let shown = |variables: &[(&str, &str)]| {
        every::plain(&every::on_terminal(folder.path(), serve, variables).1)
    };
    let debug = ("HEADSTART_LOG", "debug");
    let text = shown(&[debug]);
    assert!(text.contains("127.0.0.1:1"), "{text}");
    let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > COLUMNS).collect();
    assert!(wide.is_empty(), "{wide:#?}");
    let at_once = ("HEADSTART_PROGRESS_AFTER_MS", "0");
    let json = shown(&[debug, at_once, ("HEADSTART_LOG_FORMAT", "json")]);
    assert!(!json.contains("starting the server"), "{json}");
    let mut lines = json.lines().filter(|line| line.starts_with('{'));
    let is_whole = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
    assert!(lines.clone().count() > 0 && lines.all(is_whole), "{json}");
}

#[test]
fn log_lines_in_a_pipe_are_whole() {
    let mut command = support::serve(["--upstream", "http://127.0.0.1:1"]);
    let command = command.env("HEADSTART_LOG", "warn").stderr(Stdio::piped());
    let mut served = support::Served::run(command);
    let mut stderr = served.process.stderr.take().expect("piped");
    served.end("-TERM");
    let mut log = String::new();
    stderr.read_to_string(&mut log).expect("text");
    let line = log.lines().find(|line| line.contains("prompts are routed"));
    assert!(line.is_some_and(|line| line.contains("strategy=")), "{log}");
}
