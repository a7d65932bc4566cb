//! Causes that `headstart why` and `headstart analyze` name alike.

use std::fs;

use serde_json::json;

use super::support::{output, text};
use super::{at_minute, log, object};

/// One word many times has few different windows to find it by.
#[test]
fn why_and_analyze_name_the_same_cause_of_a_text_that_repeats_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("log.jsonl");
    for word in ["word ", "data ", "yes no ", "hello "] {
        let body = word.repeat(600);
        let line = |number: usize| {
            let system = at_minute(number) + &body;
            let question = format!("{} is question {number}?", "Which ".repeat(number));
            let messages = json!([
                {"role": "system", "content": system}, {"role": "user", "content": question},
            ]);
            json!({"id": format!("req-{number}"), "model": "m", "messages": messages})
        };
        let lines: Vec<String> = (0..6).map(|number| line(number).to_string()).collect();
        fs::write(&file, lines.join("\n")).expect("writes");
        let path = file.display().to_string();
        let told = object(&output(["why", "req-3", &path, "--json"]));
        assert_eq!(told["cause"], "clock", "{word}: {told}");
        let analysis = object(&output(["analyze", &path, "--json"]));
        let findings = analysis["findings"].as_array().expect("findings");
        let told = findings.iter().map(|finding| (&finding["cause"], &finding["requests"]));
        let told: Vec<_> = told.collect();
        assert_eq!(told, [(&json!("clock"), &json!(5))], "{word}: {analysis}");
    }
}

#[test]
fn why_names_a_date_that_only_one_prompt_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("log.jsonl");
    let path = file.display().to_string();
    for (dated, title) in [
        (&[2][..], "a date or time was inserted"),
        (&[0, 1, 3, 4, 5][..], "a date or time was removed"),
    ] {
        let date = |number| if dated.contains(&number) { "Today is 2026-11-25.\n" } else { "" };
        log(&file, |number| format!("You answer questions.\n{}", date(number)));
        let told = object(&output(["why", "req-2", &path, "--json"]));
        assert_eq!((&told["cause"], &told["title"]), (&json!("clock"), &json!(title)), "{told}");
        let fix = told["fix"].as_str().expect("a fix");
        assert!(fix.contains("in every prompt or in none"), "{fix}");
        let told = text(&output(["why", "req-2", &path]).stdout);
        assert!(told.contains(title), "{told}");
    }
}

/// Too few words agree between both changes for the time alone to explain the difference.
#[test]
fn why_names_a_time_in_front_of_shuffled_tools() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("log.jsonl");
    let names = ["find_order", "cancel_order", "send_refund", "open_ticket"];
    let line = |number: usize| {
        let mut tools: Vec<_> = names
            .map(|name| {
                let says = format!("Does {name} for one customer, and answers with its result.");
                json!({"type": "function", "function": {"name": name, "description": says,
                    "parameters": {"type": "object", "properties": {"id": {"type": "string"}}}}})
            })
            .into();
        tools.rotate_left(number);
        let messages = json!([
            {"role": "system", "content": format!("It is 17:0{number}.")},
            {"role": "user", "content": format!("Where is order {number}?")},
        ]);
        json!({"id": format!("req-{number}"), "model": "m", "messages": messages, "tools": tools})
    };
    let lines: Vec<String> = (0..3).map(|number| line(number).to_string()).collect();
    fs::write(&file, lines.join("\n")).expect("writes");
    let path = file.display().to_string();
    let told = object(&output(["why", "req-1", &path, "--json"]));
    let causes = (&told["cause"], &told["also"]);
    assert_eq!(causes, (&json!("clock"), &json!("tool-order")), "{told}");
}
