//! Spaces, line ends and indentation.

use serde_json::Value;

use crate::clean;
use crate::defect::Defect;
use crate::log::text_of;
use crate::log::{Form, Mark, Request};

pub(super) fn defects() -> Vec<Defect> {
    let mut all = of_system_prompts();
    all.extend(of_messages());
    all
}

fn of_system_prompts() -> Vec<Defect> {
    vec![
        Defect::new(
            "white-space",
            "line ends of Windows",
            clean::long_chats(61),
            |request, prose| {
                let ends = prose.pick(&["\n", "\r\n"]);
                replace(request.system(), "\n", ends)
            },
        ),
        Defect::new(
            "white-space",
            "blanks at the ends of lines",
            clean::desk(62).written_as(Form::LiteLlm),
            |request, prose| {
                let ends = prose.pick(&["\n", " \n", "  \n", "   \n"]);
                replace(request.system(), "\n", ends)
            },
        ),
        Defect::new(
            "white-space",
            "more blank lines between parts",
            clean::agents(63),
            |request, prose| {
                let ends = prose.pick(&["\n\n", "\n\n\n", "\n\n\n\n", "\n\n\n\n\n"]);
                replace(request.system(), "\n\n", ends)
            },
        ),
        Defect::new(
            "white-space",
            "a template that is indented",
            clean::owners(64),
            |request, prose| {
                let ends = prose.pick(&["\n", "\n    ", "\n        ", "\n\t"]);
                replace(request.system(), "\n", ends)
            },
        ),
        Defect::new(
            "white-space",
            "blanks before a text prompt",
            clean::few_shot(65),
            |request, prose| {
                let blanks = " \n".repeat(prose.rng.below(40));
                let prompt = request.body["prompt"].as_str().expect("text");
                request.body["prompt"] = format!("{blanks}{prompt}").into();
                Mark::Text(blanks)
            },
        ),
    ]
}

fn of_messages() -> Vec<Defect> {
    vec![
        Defect::new(
            "white-space",
            "answers trimmed or not",
            clean::long_chats(66),
            |request, prose| {
                let end = prose.pick(&["", "\n", " ", "\n\n"]);
                for message in request.messages() {
                    if message["role"] == "assistant" {
                        text_of(message).push_str(end);
                    }
                }
                Mark::Text(end.to_owned())
            },
        ),
        Defect::new(
            "white-space",
            "results of tools indented or not",
            clean::desk(67),
            |request, prose| {
                let indent = prose.pick(&["", "  ", "    "]);
                for message in request.messages() {
                    if message["role"] == "tool" {
                        let value: Value = serde_json::from_str(text_of(message)).expect("JSON");
                        *text_of(message) = indented(&value, indent);
                    }
                }
                // What stands before the first key.
                Mark::Text(if indent.is_empty() { String::new() } else { format!("\n{indent}") })
            },
        ),
        Defect::new(
            "white-space",
            "arguments of calls as Python writes them",
            clean::agents(68),
            |request, prose| {
                let space = prose.pick(&["", " "]);
                reindent(request, space);
                Mark::Text(space.to_owned())
            },
        ),
    ]
}

fn replace(text: &mut String, old: &str, new: &str) -> Mark {
    *text = text.replace(old, new);
    Mark::Text(new.to_owned())
}

fn indented(value: &Value, indent: &str) -> String {
    if indent.is_empty() {
        return value.to_string();
    }
    let pretty = serde_json::to_string_pretty(value).expect("JSON");
    let lines = pretty.lines().map(|line| {
        let rest = line.trim_start();
        let depth = (line.len() - rest.len()) / 2;
        format!("{}{rest}", indent.repeat(depth))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Writes the arguments of all calls with `space` behind colons and commas.
fn reindent(request: &mut Request, space: &str) {
    for message in request.messages() {
        let Some(call) = message.get_mut("tool_calls") else {
            continue;
        };
        let arguments = &mut call[0]["function"]["arguments"];
        let value: Value = serde_json::from_str(arguments.as_str().expect("text")).expect("JSON");
        let pairs = value.as_object().expect("an object").iter();
        let pairs = pairs.map(|(key, value)| format!("\"{key}\":{space}{value}"));
        let all = pairs.collect::<Vec<_>>().join(&format!(",{space}"));
        *arguments = format!("{{{all}}}").into();
    }
}
