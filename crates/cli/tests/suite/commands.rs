//! The binary as users and scripts call it.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn headstart(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    command.env("HEADSTART_PROGRESS_AFTER_MS", "3600000");
    // A configuration or environment of the developer's must not matter.
    command.current_dir(std::env::temp_dir()).env_remove("HEADSTART_CONFIG").args(args);
    command.output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn scratch(name: &str, contents: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("headstart-{}-{name}", std::process::id()));
    std::fs::write(&path, contents).expect("writes");
    path
}

/// Wrong arguments: exit code 2 and a word on what is wrong.
fn check_usage(args: &[&str], part: &str) {
    let output = headstart(args);
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {complaint}");
    assert!(complaint.contains(part), "{args:?}: {complaint}");
}

#[test]
fn replay_counts_and_prints_json_lines() {
    let trace = scratch("trace.jsonl", "{\"hash_ids\": [1, 2]}\n{\"hash_ids\": [1, 2, 3]}\n");
    let path = trace.display().to_string();
    let output = headstart(&["replay", &path, "--capacity", "1,9", "--policy", "lru", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let text = text(&output.stdout);
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let counts: Vec<_> = lines
        .iter()
        .map(|line| {
            let number = |name: &str| line[name].as_u64().expect("a number");
            assert_eq!(line["policy"], "lru");
            (number("capacity_blocks"), number("lookups"), number("hits"))
        })
        .collect();
    assert_eq!(counts, [(1, 5, 1), (9, 5, 2)]);
    std::fs::remove_file(trace).expect("cleans up");
}

#[test]
fn what_is_wrong_is_said_with_exit_codes() {
    check_usage(&["replay", "x", "--capacity", "many"], "many");
    check_usage(&["replay", "x", "--capacity", "1", "--policy", "magic"], "known: lru");
    check_usage(&["serve", "--strategy", "magic"], "magic");
    check_usage(&["serve", "--dtype", "f8"], "known: f32, bf16");
    check_usage(&["serve", "--model", "./absent"], "./absent");
    check_usage(&["serve", "--upstream", "http://h:1,what"], "`what`");
    check_usage(&["serve", "--upstream", "http://h:1", "--replicas", "2"], "--replicas");
    check_usage(&["bench", "chat", "--probe-only", "--active", "0"], "--active");
    check_usage(&["nonsense"], "nonsense");
    check_usage(&["bench", "chat", "--probe-only", "--max-tokens", "0"], "--max-tokens");
    check_usage(&["serve", "--listen", "0.0.0.0:0"], "--api-key-file");
    check_usage(&["serve", "--replicas", "0"], "replica");
    check_usage(&["serve", "--cache-blocks", "0"], "cache blocks");
    check_usage(&["serve", "--cache-blocks", "18446744073709551615"], "memory");
    check_usage(&["serve", "--block-size", "17"], "multiple of 16");
    check_usage(&["serve", "--block-size", "1048576"], "--block-size");
    check_usage(&["serve", "--max-waiting", "0"], "--max-waiting");
    check_usage(&["serve", "--upstream", "ftp://h"], "http");
    check_usage(&["serve", "--upstream", "http://h:99999"], "port");
    check_usage(&["serve", "--upstream", "http://me:secret@h:1"], "http://…@h:1");
    check_usage(&["serve", "--upstream", "http://h", "--max-waiting", "9"], "--max-waiting");
    let nobody = ["bench", "chat", "--url", "http://127.0.0.1:1", "--probe-only"];
    assert_eq!(headstart(&nobody).status.code(), Some(2));
    let absent = headstart(&["replay", "absent.jsonl", "--capacity", "1"]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(text(&absent.stderr).contains("absent.jsonl"));
    let bad = scratch("bad.jsonl", "{\"hash_ids\": [1]}\nnot json\n");
    let output = headstart(&["replay", &bad.display().to_string(), "--capacity", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("line 2"), "{}", text(&output.stderr));
    std::fs::remove_file(bad).expect("cleans up");
}

/// 0 success, 1 a check failed, 2 could not run.
#[test]
fn exit_codes_are_the_same_in_all_commands() {
    const NOBODY: &str = "--url http://127.0.0.1:9";
    let folder = tempfile::tempdir().expect("a folder");
    let log = |times: [&str; 3]| {
        let body = |time: &&str| {
            let system = format!("It is {time}. {}", "You are a helpful assistant. ".repeat(40));
            let messages = serde_json::json!([{"role": "system", "content": system}]);
            serde_json::json!({"model": "m", "messages": messages}).to_string() + "\n"
        };
        times.iter().map(body).collect::<String>()
    };
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("writes");
    };
    write("good.jsonl", &log(["noon"; 3]));
    let clocks = ["2026-11-01 10:00:03", "2026-11-02 11:31:07", "2026-11-03 12:42:59"];
    write("clock.jsonl", &log(clocks));
    write("wrong.toml", "[serve]\nreplicass = 1\n");
    let rows = [
        (0, "--help"),
        (0, "config show"),
        (0, "lint good.jsonl"),
        (0, "analyze clock.jsonl"),
        (1, "lint clock.jsonl"),
        (2, "nonsense"),
        (2, "config show --insight onn"),
        (2, "config show --block-size 17"),
        (2, "config show --listen 0.0.0.0:9000"),
        (2, "config show --policy lur"),
        (2, "config show --state-dir state --policy lru"),
        (2, "config show --importance 0.5"),
        (2, "why chatcmpl-1 --show-text"),
        (2, "serve --replicas many"),
        (2, "serve --config absent"),
        (2, "serve --config wrong.toml"),
        (2, "serve --executor cost-model=absent"),
        (2, "serve --api-key-file absent"),
        (2, "serve --listen 1 --port 2"),
        (2, "config show --config absent"),
        (2, "analyze absent"),
        (2, "why 1 absent"),
        (2, "why no-such good.jsonl"),
        (2, "lint absent"),
        (2, "replay absent --capacity 1"),
        (2, "plan absent --model llama3-70b"),
        (2, "simulate fleet --trace absent"),
        (2, "simulate fleet --trace absent"),
        (2, "train absent --out m"),
        (2, "trace convert absent"),
        (2, "trace materialize absent"),
        (2, "bench trace absent"),
        (2, "bench chat absent"),
        (2, "savings --metrics absent"),
        (2, "cache stat absent"),
        (2, "cache verify absent"),
    ];
    let unreachable = ["index show", "index dump", "top --once", "shadow", "savings", "why x"];
    let unreachable = unreachable.map(|command| (2, format!("{command} {NOBODY}")));
    let rows = rows.into_iter().map(|(code, line)| (code, line.to_owned()));
    for (code, line) in rows.chain(unreachable) {
        let output = Command::new(env!("CARGO_BIN_EXE_headstart"))
            .env("HEADSTART_PROGRESS_AFTER_MS", "3600000")
            .current_dir(folder.path())
            .env_remove("HEADSTART_CONFIG")
            .args(line.split(' '))
            .output()
            .expect("the binary runs");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(code == 0 || said.contains("error: "), "{line}: {said}");
    }
}

#[test]
fn errors_of_values_name_their_variable_and_suggest_a_name() {
    let said = |variable: (&str, &str), args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_headstart"))
            .env("HEADSTART_PROGRESS_AFTER_MS", "3600000")
            .current_dir(std::env::temp_dir())
            .env_remove("HEADSTART_CONFIG")
            .env(variable.0, variable.1)
            .args(args)
            .output()
            .expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{variable:?}");
        text(&output.stderr)
    };
    for (name, value, parts) in [
        ("HEADSTART_REPLICAS", "many", &["(HEADSTART_REPLICAS)"][..]),
        (
            "HEADSTART_STRATEGY",
            "precize",
            &["HEADSTART_STRATEGY sets --strategy", "did you mean `precise`?"],
        ),
        ("HEADSTART_POLICY", "lur", &["HEADSTART_POLICY sets --policy", "did you mean `lru`?"]),
        ("HEADSTART_INSIGHT", "onn", &["did you mean `on`?"]),
        ("HEADSTART_CONFIG", "absent", &["HEADSTART_CONFIG: cannot read absent"]),
        ("HEADSTART_LOG", "a=b=c", &["HEADSTART_LOG a=b=c"]),
        ("HEADSTART_LOG_FORMAT", "jsn", &["HEADSTART_LOG_FORMAT", "did you mean `json`?"]),
    ] {
        let said = said((name, value), &["serve", "--listen", "0"]);
        for part in parts {
            assert!(said.contains(part), "{name}: {said}");
        }
    }
    let wrong = said(("HEADSTART_URL", "http://127.0.0.1:9"), &["index", "show"]);
    assert!(wrong.contains("(HEADSTART_URL)"), "{wrong}");
    let wrong = said(("HEADSTART_REPLICAS", "2"), &["serve", "--replicas", "many"]);
    assert!(!wrong.contains("HEADSTART_REPLICAS"), "{wrong}");
}

/// A reader that has seen enough is no failure, and no panic.
#[test]
fn a_secret_that_is_none_is_not_repeated() {
    let given = ["serve", "--upstream", "http://h:1", "--index-secret", "geheim"];
    let output = headstart(&given);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("--index-secret"), "{said}");
    assert!(!said.contains("geheim"), "{said}");
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_headstart"))
        .env("HEADSTART_PROGRESS_AFTER_MS", "3600000")
        .args(["completions", "zsh"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_tokenizer_of_another_model_is_refused() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let dir = std::env::temp_dir().join(format!("headstart-mixed-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let copy = |from: &str, name: &str| {
        std::fs::copy(root.join(from).join(name), dir.join(name)).expect("copies");
    };
    copy("../engine/tests/checkpoints/llama", "config.json");
    copy("../engine/tests/checkpoints/llama", "model.safetensors");
    copy("../../data/toy-tokenizer", "tokenizer.json");
    let output = headstart(&["serve", "--model", &dir.display().to_string()]);
    std::fs::remove_dir_all(&dir).expect("cleans up");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("do not belong together"), "{}", text(&output.stderr));
}

#[test]
fn help_has_examples_and_completions_print() {
    for command in [&["serve"][..], &["replay"], &["bench", "chat"]] {
        let mut args = command.to_vec();
        args.push("--help");
        assert!(text(&headstart(&args).stdout).contains("Examples:"), "{command:?}");
    }
    assert!(text(&headstart(&["completions", "bash"]).stdout).contains("headstart"));
}

#[test]
fn bench_chat_compares_strategies_and_probes() {
    let lines: String = (0..4)
        .map(|index| {
            let turn = |role: &str, text: &str| serde_json::json!({"role": role, "text": text});
            let question = format!("question {index} {}", "about the value of time ".repeat(12));
            let turns = [turn("user", &question), turn("assistant", "yes"), turn("user", "why")];
            format!("{}\n", serde_json::json!({"id": index.to_string(), "turns": turns}))
        })
        .collect();
    let file = scratch("chats.jsonl", &lines);
    let path = file.display().to_string();
    let output = headstart(&[
        "bench",
        "chat",
        &path,
        "--model",
        "toy-tiny",
        "--active",
        "2",
        "--max-tokens",
        "8",
        "--strategy",
        "random,precise",
        "--probe-rounds",
        "1",
        "--json",
    ]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 2);
    for run in runs {
        let report = &run["report"];
        assert_eq!((&report["failed"], &report["conversations"]), (&0.into(), &4.into()), "{run}");
    }
    assert!(
        runs[1]["report"]["later"]["hit_rate"].as_f64().is_some_and(|rate| rate > 0.5),
        "{runs:?}"
    );
    let probe = &report["reuse_probe"];
    assert_eq!(probe["invalid"], serde_json::json!([]));
    assert!(probe["prompt_tokens_mean"].as_f64().is_some_and(|tokens| tokens >= 2000.0));
    std::fs::remove_file(file).expect("cleans up");
}

#[test]
fn vllm_args_are_json_that_names_each_part() {
    let args = ["vllm-args", "./model", "--host-gib", "1.5", "--policy", "wa", "--json"];
    let more = ["--disk", "/var/cache/kv", "--disk-gib", "2", "--kv-events-port", "5557"];
    let output = headstart(&[&args[..], &more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let extra = &found["--kv-transfer-config"]["kv_connector_extra_config"];
    assert_eq!(extra["cpu_bytes_to_use"], 3 << 29);
    assert_eq!(extra["eviction_policy"], "headstart-wa");
    assert_eq!(extra["secondary_tiers"][0]["budget_gib"], 2.0);
    assert_eq!(extra["secondary_tiers"][0]["policy"], "wa");
    assert_eq!(found["--kv-transfer-config"]["kv_load_failure_policy"], "recompute");
    assert_eq!(found["--kv-events-config"]["replay_endpoint"], "tcp://*:5567");

    let shown = headstart(&["vllm-args", "M", "--host-gib", "1", "--kv-events-port", "5557"]);
    let shown = text(&shown.stdout);
    assert!(shown.starts_with("vllm serve M ") && shown.contains("kv=tcp://HOST:5557,"), "{shown}");
    let shown =
        headstart(&["vllm-args", "my model", "--host-gib", "1", "--disk", "/x", "--disk-gib", "1"]);
    let shown = text(&shown.stdout);
    assert!(shown.starts_with("vllm serve 'my model' ") && shown.contains("--revision"), "{shown}");
    check_usage(&["vllm-args", "M"], "--host-gib");
    check_usage(&["vllm-args", "M", "--host-gib", "1", "--disk", "/x"], "--disk-gib");
    for (args, part) in [
        ("vllm-args M --host-gib 0", "above 0"),
        ("vllm-args M --host-gib nan", "above 0"),
        ("vllm-args M --host-gib 1 --policy lur", "lru"),
        ("vllm-args M --host-gib 1 --kv-events-port 65530", "65525"),
        ("vllm-args M --host-gib 1 --disk /a'b --disk-gib 1", "--json"),
    ] {
        let output = headstart(&args.split(' ').collect::<Vec<_>>());
        let complaint = text(&output.stderr);
        assert!(!output.status.success() && complaint.contains(part), "{args}: {complaint}");
    }
}
