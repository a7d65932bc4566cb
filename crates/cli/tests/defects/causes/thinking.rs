//! Thinking blocks that are dropped, inserted or rewritten.

use serde_json::{Value, json};

use crate::clean;
use crate::defect::Defect;
use crate::log::{Form, Mark, Request, text_of};
use crate::markup::CHAT_ML;

const EMPTY: &str = "<think>\n\n</think>\n\n";

pub(super) fn defects() -> Vec<Defect> {
    let mut all = dropped();
    all.extend(changed());
    all
}

fn dropped() -> Vec<Defect> {
    vec![
        Defect::new(
            "thinking",
            "kept in the last answer only",
            clean::reasoning(71),
            |request, _| {
                drop_before(request, |index, messages| {
                    let later = &messages[index + 1..];
                    later.iter().any(|message| message["role"] == "assistant")
                })
            },
        ),
        Defect::new(
            "thinking",
            "dropped when the user speaks",
            clean::thinking_agents(72).written_as(Form::LiteLlm),
            |request, _| {
                drop_before(request, |index, messages| {
                    let later = &messages[index + 1..];
                    later.iter().any(|message| message["role"] == "user")
                })
            },
        ),
        Defect::new(
            "thinking",
            "in a field that is not sent back",
            clean::thinking_agents(73),
            |request, _| {
                let messages = request.messages();
                let last = messages.iter().rposition(|message| message["role"] == "user");
                let last = last.expect("a question");
                blocks(messages, |index, message| {
                    let (thought, rest) = split(text_of(message))?;
                    message["content"] = rest.into();
                    if index < last {
                        return None;
                    }
                    message["reasoning_content"] = thought.clone().into();
                    Some(thought)
                })
            },
        ),
        in_text(),
    ]
}

/// The client renders ChatML and leaves out what was thought before the last answer.
fn in_text() -> Defect {
    let clean = clean::reasoning(74);
    let mut text = clean.clone();
    for request in &mut text.requests {
        clean::as_text(request, CHAT_ML);
    }
    let mut chats = clean.requests.into_iter();
    Defect::new("thinking", "left out by a template", text, move |request, _| {
        let mut chat = chats.next().expect("as many");
        let mark = drop_before(&mut chat, |index, messages| index + 4 < messages.len());
        clean::as_text(&mut chat, CHAT_ML);
        request.body = chat.body;
        mark
    })
}

fn changed() -> Vec<Defect> {
    vec![
        Defect::new("thinking", "empty blocks put in", clean::long_chats(75), |request, prose| {
            let empty = prose.rng.below(2) == 0;
            blocks(request.messages(), |_, message| {
                if empty {
                    text_of(message).insert_str(0, EMPTY);
                }
                empty.then(|| "<think>".to_owned())
            })
        }),
        Defect::new("thinking", "summarized later on", clean::reasoning(76), |request, _| {
            let messages = request.messages();
            let recent = messages.len().saturating_sub(3);
            blocks(messages, |index, message| {
                let (thought, rest) = split(text_of(message))?;
                if index >= recent {
                    return Some(thought);
                }
                let last = thought.rsplit(". ").next()?;
                let short = format!("Earlier I weighed this: {last}");
                message["content"] = json!(format!("<think>\n{short}\n</think>\n\n{rest}"));
                Some(short)
            })
        }),
        Defect::new(
            "thinking",
            "another tag, kept for two answers",
            clean::reasoning(77),
            |request, _| {
                let messages = request.messages();
                let recent = messages.len().saturating_sub(5);
                blocks(messages, |index, message| {
                    let (thought, rest) = split(text_of(message))?;
                    let kept = index >= recent;
                    *text_of(message) =
                        if kept { format!("<thinking>{thought}</thinking>\n{rest}") } else { rest };
                    kept.then_some(thought)
                })
            },
        ),
    ]
}

/// Takes the thinking out of the answers for which `gone` says so.
fn drop_before(request: &mut Request, gone: impl Fn(usize, &[Value]) -> bool) -> Mark {
    let messages = request.messages();
    let before = messages.clone();
    blocks(messages, |index, message| {
        let (thought, rest) = split(text_of(message))?;
        if gone(index, &before) {
            *text_of(message) = rest;
            return None;
        }
        Some(thought)
    })
}

/// Changes each answer and notes the beginning of what is thought in it.
fn blocks(
    messages: &mut [Value],
    mut change: impl FnMut(usize, &mut Value) -> Option<String>,
) -> Mark {
    let answers = messages.iter_mut().enumerate();
    let answers = answers.filter(|(_, message)| message["role"] == "assistant");
    let noted = answers.map(|(index, message)| {
        let thought = change(index, message)?;
        Some(thought.chars().take(20).collect())
    });
    Mark::Block(noted.collect())
}

/// Splits an answer into the thought and the rest.
fn split(text: &str) -> Option<(String, String)> {
    let (thought, rest) = text.strip_prefix("<think>\n")?.split_once("\n</think>\n\n")?;
    Some((thought.to_owned(), rest.to_owned()))
}
