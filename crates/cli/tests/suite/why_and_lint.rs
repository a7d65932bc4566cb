//! `headstart why` and `headstart lint` as users and CI call them.

mod causes;
use crate::support;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use support::{Scratch, Served, headstart, output, text};

/// Instructions long enough to be worth caching, without a date or an id.
fn rules() -> String {
    let rule = |n: usize| format!("Rule {n}: say what is so, name the source, and stop there. ");
    (1..25).map(rule).collect()
}

/// A log of three conversations with two turns each; the front of each request's system prompt
/// is what `front` says for its number.
fn log(path: &Path, front: impl Fn(usize) -> String) {
    let questions = ["Where do storks winter?", "Who built the lighthouse?", "What is rye?"];
    let mut lines = String::new();
    for (number, (question, turn)) in
        questions.iter().flat_map(|question| [(question, 0), (question, 1)]).enumerate()
    {
        let system = front(number) + &rules();
        let mut messages = vec![
            json!({"role": "system", "content": system}),
            json!({"role": "user", "content": question}),
        ];
        if turn == 1 {
            let answer = format!("On {question} there is much to say.");
            messages.push(json!({"role": "assistant", "content": answer}));
            messages.push(json!({"role": "user", "content": "And on 2026-03-04?"}));
        }
        let id = format!("req-{number}");
        lines += &json!({"id": id, "model": "m", "messages": messages}).to_string();
        lines.push('\n');
    }
    fs::write(path, lines).expect("writes");
}

fn at_minute(number: usize) -> String {
    format!("It is 2026-11-23T17:{:02}:00Z. ", number * 3)
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)))
}

#[test]
fn why_names_the_cause_with_the_exact_text_and_only_if_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("log.jsonl");
    log(&file, at_minute);
    let path = file.display().to_string();
    let told = output(["why", "req-3", &path, "--json", "--show-text"]);
    assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
    let told = object(&told);
    assert_eq!(told["cause"], "clock");
    // Not the latest request, which has one turn: req-1 has two, like this one.
    assert_eq!(told["old"], "2026-11-23T17:03:00Z");
    assert_eq!(told["new"], "2026-11-23T17:09:00Z");
    assert_eq!(told["neighbour"]["request"], "req-1");
    assert!(told["lost_tokens"].as_u64() > Some(200), "{told}");
    assert_eq!(told["diverged_at"]["token"], told["shared_tokens"]);

    let told = object(&output(["why", "req-3", &path, "--json"]));
    assert_eq!(told["cause"], "clock");
    assert_eq!((&told["old"], &told["before"]), (&Value::Null, &Value::Null));
    assert_eq!((&told["kind"], &told["new_length"]), (&json!("time-like"), &json!(20)));
    let told = text(&output(["why", "req-3", &path]).stdout);
    assert!(told.contains("[redacted: 20 bytes, time-like]"), "{told}");
    assert!(!told.contains("2026") && !told.contains("storks"), "{told}");
    // The line's number names it too.
    let told = object(&output(["why", "4", &path, "--json"]));
    assert_eq!(told["request"], "req-3");
}

#[test]
fn why_says_when_nothing_was_lost_and_when_there_is_no_such_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("log.jsonl");
    log(&file, |_| String::new());
    let path = file.display().to_string();
    let told = text(&output(["why", "req-3", &path]).stdout);
    assert!(told.contains("continues req-2"), "{told}");
    let told = text(&output(["why", "req-0", &path]).stdout);
    assert!(told.contains("no earlier prompt"), "{told}");
    let told = object(&output(["why", "req-4", &path, "--json"]));
    assert_eq!((&told["cause"], &told["lost_tokens"]), (&Value::Null, &json!(0)));
    let absent = output(["why", "req-99", &path]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(text(&absent.stderr).contains("req-0, req-1"), "{}", text(&absent.stderr));
}

#[test]
fn lint_fails_on_a_cause_and_passes_without() {
    let folder = tempfile::tempdir().expect("a folder");
    let (clean, dirty) = (folder.path().join("clean.jsonl"), folder.path().join("dirty.jsonl"));
    log(&clean, |_| String::new());
    log(&dirty, at_minute);
    let (clean, dirty) = (clean.display().to_string(), dirty.display().to_string());

    let passed = output(["lint", &clean, "--json"]);
    assert_eq!(passed.status.code(), Some(0), "{}", text(&passed.stderr));
    let passed = object(&passed);
    assert_eq!((&passed["ok"], &passed["findings"]), (&json!(true), &json!([])));
    assert!(passed["stable_prefix_tokens"].as_u64() > Some(200), "{passed}");
    assert_eq!(passed["baseline_stable_prefix_tokens"], Value::Null);

    let failed = output(["lint", &dirty, "--json", "--show-text"]);
    assert_eq!(failed.status.code(), Some(1));
    let failed = object(&failed);
    assert_eq!(failed["ok"], false);
    let finding = &failed["findings"][0];
    assert_eq!((&finding["cause"], &finding["requests"]), (&json!("clock"), &json!(5)));
    let old = finding["example"]["old"].as_str().expect("a text");
    assert!(old.starts_with("2026-11-23T17:"), "{old}");
    let redacted = object(&output(["lint", &dirty, "--json"]));
    assert_eq!(redacted["findings"][0]["example"]["old"], Value::Null);
    let told = text(&output(["lint", &dirty]).stdout);
    assert!(told.contains("1. clock") && !told.contains("2026"), "{told}");
}

#[test]
fn lint_fails_when_the_stable_prefix_shrinks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (prompts, baseline) = (path("prompts"), path("prefix.json"));
    fs::create_dir(&prompts).expect("makes");
    let prompt = |name: &str, end: &str| {
        let file = Path::new(&prompts).join(name);
        fs::write(file, rules() + end).expect("writes");
    };
    prompt("a.txt", "Greet the guest.");
    prompt("b.txt", "Say farewell.");
    let written = output(["lint", &prompts, "--write-baseline", &baseline]);
    assert_eq!(written.status.code(), Some(0), "{}", text(&written.stderr));
    let file = fs::read_to_string(&baseline).expect("is there");
    assert!(file.contains("stable_prefix_tokens") && !file.contains("Rule"), "{file}");
    let same = output(["lint", &prompts, "--baseline", &baseline, "--json"]);
    assert_eq!(same.status.code(), Some(0));
    assert_eq!(object(&same)["begins_as_baseline"], true);

    // A change puts the guest's name in front.
    fs::write(Path::new(&prompts).join("b.txt"), format!("Dear Ann. {}", rules())).expect("writes");
    let shrank = output(["lint", &prompts, "--baseline", &baseline, "--json"]);
    assert_eq!(shrank.status.code(), Some(1));
    assert_eq!(object(&shrank)["ok"], false);
    let wrong = output(["lint", &prompts, "--baseline", &prompts]);
    assert_eq!(wrong.status.code(), Some(2));
    assert_eq!(output(["lint"]).status.code(), Some(2));
    // Lengths of another tokenizer cannot be compared.
    let other = fs::read_to_string(&baseline).expect("is there");
    fs::write(&baseline, other.replace("\"toy-", "\"model-")).expect("writes");
    let wrong = output(["lint", &prompts, "--baseline", &baseline]);
    assert_eq!(wrong.status.code(), Some(2));
    let said = text(&wrong.stderr);
    assert!(said.contains("another tokenizer"), "{said}");
}

#[test]
fn files_that_cannot_be_read_are_no_findings() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (empty, broken) = (path("empty.jsonl"), path("broken.jsonl"));
    fs::write(&empty, "").expect("writes");
    fs::write(&broken, "no JSON\n").expect("writes");
    for file in [&path("absent.jsonl"), &empty, &broken] {
        assert_eq!(output(["lint", file]).status.code(), Some(2), "{file}");
    }
    let absent = output(["why", "req-1", &path("absent.jsonl")]);
    assert_eq!(absent.status.code(), Some(2));
}

#[test]
fn lint_tells_what_changes_without_a_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("named.jsonl");
    let names = ["Ann", "Bob", "Cem", "Dee", "Eve", "Fay"];
    log(&file, |number| format!("You help {}. ", names[number]));
    let file = file.display().to_string();
    let told = output(["lint", &file, "--json", "--show-text"]);
    assert_eq!(told.status.code(), Some(1));
    let told = object(&told);
    assert_eq!(told["ok"], false);
    let finding = &told["findings"][0];
    assert_eq!((&finding["cause"], &finding["requests"]), (&Value::Null, &json!(5)));
    let old = finding["example"]["old"].as_str().expect("a text");
    assert!(names.contains(&old), "{old}");
}

#[test]
fn why_prefers_an_id_to_a_line_and_counts_as_the_log_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("numbered.jsonl");
    log(&file, at_minute);
    let lines = fs::read_to_string(&file).expect("is there");
    // The id of line 5 is the number of line 2; the log counts fewer tokens than the toy.
    let lines = lines.replace("\"req-4\"", "\"2\"");
    let counted = lines.replace("{\"id\"", "{\"usage\":{\"prompt_tokens\":50},\"id\"");
    fs::write(&file, counted).expect("writes");
    let file = file.display().to_string();
    let by_id = object(&output(["why", "2", &file, "--json"]));
    assert_eq!(by_id["neighbour"]["request"], "req-3");
    let by_line = object(&output(["why", "3", &file, "--json"]));
    assert_eq!(by_line["request"], "req-2");
    for told in [by_id, by_line] {
        let (shared, all) = (&told["shared_tokens"], &told["prompt_tokens"]);
        assert!(shared.as_u64() <= all.as_u64(), "{shared} of {all}");
    }
}

#[test]
fn a_server_with_a_key_is_asked_with_it() {
    let scratch = Scratch::new("why-key");
    let key = scratch.write("key", b"sesame\n");
    let server = Served::start(["--replicas", "1", "--api-key-file", &key]);
    let url = server.url();
    let asked = |more: &[&str]| {
        let told = output([&["why", "no-such", "--url", &url], more].concat());
        (told.status.code(), text(&told.stderr))
    };
    let (code, said) = asked(&[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("give --api-key-file FILE"), "{said}");
    let (code, said) = asked(&["--api-key-file", &key]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no such request among the latest"), "{said}");
    let said = text(&output(["why", "x", "f.jsonl", "--api-key-file", &key]).stderr);
    assert!(said.contains("--api-key-file"), "a log has none: {said}");
}

/// Answers with `input` on standard input.
fn piped<const N: usize>(args: [&str; N], input: &str) -> Output {
    let mut command = headstart(args);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("reads it");
    drop(stdin);
    child.wait_with_output().expect("ends")
}

#[test]
fn token_ids_are_tokens() {
    let body: Vec<u32> = (0..200).map(|n| 1_000 + n * 3).collect();
    let line = |number: u32| {
        let ids = [&[1, 2, 3, 70_000 + number][..], &body, &[number]].concat();
        let field = ["prompt", "prompt_token_ids"][number as usize % 2];
        json!({"id": format!("r{number}"), "model": "m", field: ids}).to_string() + "\n"
    };
    let log: String = (0..6).map(line).collect();
    let told = piped(["why", "r3", "-", "--json", "--show-text"], &log);
    assert_eq!(text(&told.stderr), "", "no tokenizer was used");
    let told = object(&told);
    assert_eq!((&told["prompt_tokens"], &told["lost_tokens"]), (&json!(205), &json!(200)));
    assert_eq!(told["diverged_at"], json!({"token": 3, "byte": null}));
    assert_eq!((&told["cause"], &told["new"]), (&Value::Null, &json!("70003")));
    assert_eq!((&told["before"], &told["unit"]), (&json!("1 2 3 "), &json!("token ids")));
    let told = text(&piped(["why", "r3", "-"], &log).stdout);
    assert!(told.contains("at token 3 of 205"), "{told}");
    assert!(told.contains("[redacted: 1 token id]") && !told.contains("70003"), "{told}");

    let told = piped(["lint", "-", "--json", "--show-text"], &log);
    assert_eq!(told.status.code(), Some(1));
    let told = object(&told);
    assert_eq!(told["stable_prefix_tokens"], 3);
    let finding = &told["findings"][0];
    assert_eq!((&finding["cause"], &finding["tokens"]), (&Value::Null, &json!(1000)));
    assert_eq!(finding["example"]["token"], 3);
}

#[test]
fn a_baseline_is_replaced_only_where_all_is_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (prompts, baseline) = (path("p.txt"), path("prefix.json"));
    let lint = |more: &[&str]| output([&["lint", &prompts][..], more].concat());
    let both = ["--baseline", &baseline, "--write-baseline", &baseline];
    fs::write(&prompts, rules()).expect("writes");
    assert_eq!(lint(&["--write-baseline", &baseline]).status.code(), Some(0));
    let written = fs::read_to_string(&baseline).expect("is there");

    fs::write(&prompts, &rules()[..800]).expect("writes");
    for _ in 0..2 {
        let shrank = lint(&both);
        assert_eq!(shrank.status.code(), Some(1));
        let said = text(&shrank.stderr);
        assert!(said.contains("prefix.json was not written"), "{said}");
        assert_eq!(fs::read_to_string(&baseline).expect("is there"), written);
    }
    fs::write(&prompts, rules() + "And be kind.").expect("writes");
    assert_eq!(lint(&both).status.code(), Some(0));
    assert_ne!(fs::read_to_string(&baseline).expect("is there"), written);
}

#[test]
fn another_text_as_long_as_the_baselines_passes_and_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (prompts, baseline) = (path("p.txt"), path("prefix.json"));
    let lint = |more: &[&str]| output([&["lint", &prompts][..], more].concat());
    fs::write(&prompts, rules()).expect("writes");
    assert_eq!(lint(&["--write-baseline", &baseline]).status.code(), Some(0));
    for (changed, expected) in [
        (
            rules().replacen("Rule 1:", "This is the first rule of all:", 1),
            "its text is not the baseline's:",
        ),
        (rules().replace("Rule 24:", "Rule 24, the last:"), "is the baseline's for the first"),
    ] {
        fs::write(&prompts, changed).expect("writes");
        let told = lint(&["--baseline", &baseline]);
        assert_eq!(told.status.code(), Some(0), "{}", text(&told.stderr));
        let told = text(&told.stdout);
        assert!(told.contains(expected) && told.contains("recomputes it once"), "{told}");
        let told = object(&lint(&["--baseline", &baseline, "--json"]));
        assert_eq!((&told["begins_as_baseline"], &told["ok"]), (&json!(false), &json!(true)));
        assert!(told["note"].as_str().is_some_and(|note| note.contains(expected)), "{told}");
    }
}

#[test]
fn logs_are_read_as_people_have_them() {
    let question = |number: usize| {
        let system = json!({"role": "system", "content": rules()});
        let user = json!({"role": "user", "content": format!("What of {number}?")});
        json!({"id": "same", "model": "m", "messages": [system, user]})
    };
    let array = serde_json::to_string_pretty(&json!([question(1), question(2), question(3)]));
    let array = array.expect("JSON");
    let told = object(&piped(["lint", "-", "--json"], &array));
    assert_eq!((&told["requests"], &told["ok"]), (&json!(3), &json!(true)));
    let said = piped(["why", "same", "-"], &array);
    let said = text(&said.stderr);
    assert!(said.contains("first request with that id; 2 more on line 2, 3"), "{said}");
    let told = object(&piped(["why", "2", "-", "--json"], &array));
    assert_eq!((&told["cause"], &told["old_length"]), (&Value::Null, &json!(1)));

    let said = |from: &str, value: &str| json!({"from": from, "value": value});
    let talk = json!({"id": "c", "conversations": [
        said("human", "Where do storks winter?"), said("gpt", "In Africa."), said("human", "All?"),
    ]});
    let talk = talk.to_string();
    let told = object(&piped(["why", "c.2", "-", "--json"], &talk));
    assert_eq!(told["neighbour"]["request"], "c.1");
    assert_eq!(object(&piped(["lint", "-", "--json"], &talk))["requests"], 2);

    let cut = r#"{"model": "m", "prompt": "half an emoji: \ud83d"}"#;
    assert_eq!(piped(["lint", "-"], cut).status.code(), Some(0));
    let blocks = piped(["lint", "-"], r#"{"hash_ids": [1, 2]}"#);
    assert_eq!(blocks.status.code(), Some(2));
    assert!(text(&blocks.stderr).contains("holds no prompts"), "{}", text(&blocks.stderr));
    let address = output(["why", "req-1", "http://127.0.0.1:9"]);
    assert_eq!(address.status.code(), Some(2));
    assert!(text(&address.stderr).contains("--url http://127.0.0.1:9"));
}
