//! Histories whose front is cut off.

use serde_json::{Value, json};

use crate::clean;
use crate::defect::Defect;
use crate::log::{Form, Mark, Request};
use crate::markup::VICUNA;

pub(super) fn defects() -> Vec<Defect> {
    vec![
        Defect::new("trimmed", "the last six messages", clean::long_chats(101), |request, _| {
            keep_from(request, 1, |messages| messages.len().saturating_sub(7));
            order(request)
        }),
        Defect::new(
            "trimmed",
            "as many messages as fit",
            clean::desk(102).written_as(Form::LiteLlm),
            |request, _| {
                keep_from(request, 1, |messages| {
                    let sizes = messages.iter().rev().map(|message| message.to_string().len());
                    let sums = sizes.scan(0, |sum, size| {
                        *sum += size;
                        Some(*sum)
                    });
                    let fit = sums.take_while(|&sum| sum < 4_000).count();
                    messages.len() - fit.max(1)
                });
                order(request)
            },
        ),
        Defect::new(
            "trimmed",
            "behind the first question",
            clean::long_chats(103),
            |request, _| {
                keep_from(request, 2, |messages| {
                    // What is left begins with a question.
                    messages.len().saturating_sub(8) / 2 * 2 + 1
                });
                order(request)
            },
        ),
        Defect::new(
            "trimmed",
            "with a note of how many are gone",
            clean::long_chats(104),
            |request, _| {
                let gone = keep_from(request, 1, |messages| messages.len().saturating_sub(7));
                if gone > 0 {
                    let note = format!("[{gone} earlier messages were left out]");
                    let messages = request.messages();
                    messages.insert(1, json!({"role": "user", "content": note}));
                }
                order(request)
            },
        ),
        Defect::new("trimmed", "steps of an agent", clean::agents(105), |request, _| {
            keep_from(request, 2, |messages| messages.len().saturating_sub(9) / 2 * 2);
            order(request)
        }),
        text(),
    ]
}

/// A text prompt of which only the last 6,000 bytes are sent, from the start of a line.
fn text() -> Defect {
    let log = clean::spoken(106, VICUNA);
    Defect::new("trimmed", "a text cut from the left", log, |request, _| {
        let prompt = request.body["prompt"].as_str().expect("text");
        let mut from = prompt.len().saturating_sub(6_000);
        if from > 0 {
            from += prompt.as_bytes()[from..].iter().position(|&b| b == b'\n').expect("a line") + 1;
        }
        let rest = prompt[from..].to_owned();
        let lines = rest.lines().filter(|line| !line.is_empty());
        let mark = Mark::Order(lines.map(beginning).collect());
        request.body["prompt"] = rest.into();
        mark
    })
}

/// Removes the messages behind the first `fixed` up to where `start` says; how many those were.
fn keep_from(request: &mut Request, fixed: usize, start: impl Fn(&[Value]) -> usize) -> usize {
    let messages = request.messages();
    let start = start(messages).max(fixed);
    messages.drain(fixed..start);
    start - fixed
}

fn order(request: &mut Request) -> Mark {
    let shown = request.messages().iter().map(|message| {
        let text = message["content"].as_str().expect("text");
        if text.is_empty() {
            let call = &message["tool_calls"][0]["function"];
            return longest_word(call["arguments"].as_str().expect("arguments"));
        }
        beginning(text)
    });
    Mark::Order(shown.collect())
}

/// Returns the longest word in `arguments` that needs no escapes.
fn longest_word(arguments: &str) -> String {
    let is_end = |c: char| !c.is_ascii_alphanumeric() && !"/._-".contains(c);
    let words = arguments.split(is_end);
    words.max_by_key(|word| word.len()).expect("a word").to_owned()
}

fn beginning(text: &str) -> String {
    text.chars().take(40).collect()
}
