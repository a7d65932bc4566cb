//! The normalizers on the same defects: what they undo, and that they do no harm.

use std::collections::BTreeSet;

use headstart_prompt::Normalizers;
use serde_json::Value;

use crate::log::{Log, Request};
use crate::{CAUSES, causes, clean, defect};

/// The defects that no normalizer undoes, and why.
const LEFT: [(&str, &str, &str); 18] = [
    ("clock", "unix seconds among facts", "a number may be anything"),
    ("clock", "the minute in a tool's description", "a time without a date may be anything"),
    ("clock", "the day, over three weeks", "the day stays"),
    ("clock", "a date and a time before a text prompt", "no text prompts"),
    ("clock", "compact, as in the names of files", "may be a name"),
    ("nonce", "eight hexadecimal digits before a text prompt", "stands in a sentence"),
    ("nonce", "a signature in base 64", "no known line"),
    ("nonce", "a folder for temporary files", "the model needs it"),
    ("nonce", "a fence against injected instructions", "the model needs it"),
    ("nonce", "a seed for variety", "stands in a sentence"),
    ("nonce", "the id of a span in a tool's description", "stands in a sentence"),
    ("tool-order", "in the text of the system prompt", "text"),
    ("json-keys", "results of tools", "text"),
    ("json-keys", "settings in the system prompt", "text"),
    ("json-keys", "an indented profile in a text prompt", "text"),
    ("white-space", "a template that is indented", "indentation can carry meaning"),
    ("white-space", "blanks before a text prompt", "no text prompts"),
    ("thinking", "left out by a template", "text"),
];

/// Of messages, where white space was sent.
const LEFT_OF_MESSAGES: [&str; 3] = [
    "answers trimmed or not",
    "results of tools indented or not",
    "arguments of calls as Python writes them",
];

fn normalized(log: &Log) -> Log {
    let mut log = log.clone();
    for request in &mut log.requests {
        Normalizers::all().apply(&mut request.body);
    }
    log
}

/// Whatever could be shared without the defect can be shared again.
#[test]
fn defects_are_undone_but_for_those_that_are_named() {
    let fixable = ["clock", "nonce", "tool-order", "json-keys", "white-space", "thinking"];
    let mut left = BTreeSet::new();
    for defect in fixable.into_iter().flat_map(causes::defects) {
        let clean = defect::shared(&normalized(&defect.clean));
        let spoiled = defect::shared(&normalized(&defect.spoiled));
        if clean.iter().zip(&spoiled).any(|(clean, spoiled)| spoiled < clean) {
            left.insert((defect.cause, defect.name));
        }
    }
    let mut named: BTreeSet<_> = LEFT.iter().map(|&(cause, name, _)| (cause, name)).collect();
    named.extend(LEFT_OF_MESSAGES.map(|name| ("white-space", name)));
    assert_eq!(left, named);
}

#[test]
fn twice_is_once() {
    let logs = clean::all().into_iter().map(|(_, log)| log);
    let defects = CAUSES.into_iter().flat_map(causes::defects);
    for log in logs.chain(defects.map(|defect| defect.spoiled)) {
        for request in normalized(&log).requests {
            let mut again = request.body.clone();
            let changed = Normalizers::all().apply(&mut again);
            assert!(changed.is_empty() && again == request.body, "{changed}: {}", request.body);
        }
    }
}

/// The unshared parts of two requests do not grow, if both have the same tools.
#[test]
fn clean_workloads_lose_nothing() {
    for (name, log) in clean::all() {
        let after = normalized(&log);
        let rest = |log: &Log, [one, other]: [usize; 2]| {
            let (one, other) = (log.requests[one].shown(), log.requests[other].shown());
            one.len() - defect::common_prefix(&one, &other)
        };
        for one in 1..log.requests.len() {
            for other in one.saturating_sub(40)..one {
                let pair = [one, other];
                if tools(&log.requests[one]) != tools(&log.requests[other]) {
                    continue;
                }
                let (before, after) = (rest(&log, pair), rest(&after, pair));
                assert!(after <= before, "{name}, {pair:?}: {before} to {after} bytes");
            }
        }
    }
}

#[test]
fn serve_refuses_what_it_does_not_know_and_what_contradicts_itself() {
    let refused = |arguments: &[&str], expected: &str| {
        let out = crate::support::output([&["serve"], arguments].concat());
        let said = crate::support::text(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains(expected), "{said}");
    };
    refused(&["--normalize", "tools,seam"], "no normalizer seam; known: tools, json-keys");
    let upstream = ["--upstream", "http://127.0.0.1:9", "--shadow", "--normalize", "all"];
    refused(&upstream, "--normalize does not go with --shadow");
}

fn tools(request: &Request) -> &Value {
    &request.body["tools"]
}
