//! A text that changes in front of others: how to find it in each prompt, and to take it out.

use std::collections::BTreeMap;

use crate::structure::{PromptMessage, heading_name, is_list_item};

use super::ChangeSample;

/// Fewest bytes of a beginning that sentences share.
const BEGIN_MIN: usize = 3;

/// Ends of sentences.
const ENDS: [&str; 5] = [". ", "! ", "? ", "。", "；"];

/// A text that is found in each prompt by words that do not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedText {
    /// Whether it stands in the system message, and else in the first message.
    is_system: bool,
    part: MovedPart,
}

/// The part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MovedPart {
    /// The first sentence that begins so.
    Sentence(String),
    /// The first line.
    FirstLine,
    /// The lines under a heading.
    Block(String),
}

impl MovedText {
    /// The text that most of `samples` are in; `None` where they have no words in common.
    pub(super) fn of(samples: &[ChangeSample<'_>]) -> Option<Self> {
        let mut counts: BTreeMap<String, Vec<(bool, PromptMessage<'_>, ChangeSample<'_>)>> =
            BTreeMap::new();
        for sample in samples {
            let Some(message) = PromptMessage::at(sample.text, sample.start) else {
                continue;
            };
            let is_system = message.is_system();
            // What is behind the first message is history.
            if !is_system && !message.is_first() {
                continue;
            }
            let key = part_of(&message, sample).map_or_else(String::new, |part| match part {
                MovedPart::Block(heading) => format!("block {heading}"),
                MovedPart::FirstLine => "first line".to_owned(),
                MovedPart::Sentence(text) => {
                    format!("sentence {}", text.chars().take(BEGIN_MIN).collect::<String>())
                }
            });
            counts.entry(key).or_default().push((is_system, message, *sample));
        }
        let (_, most) = counts.into_iter().max_by_key(|(_, samples)| samples.len())?;
        let (is_system, message, sample) = most.first()?;
        let part = match part_of(message, sample)? {
            MovedPart::Sentence(first) => {
                let others = most.iter().filter_map(|(_, message, sample)| {
                    let part = part_of(message, sample)?;
                    if let MovedPart::Sentence(text) = part { Some(text) } else { None }
                });
                let begin = others.fold(first, |one, other| common_front(&one, &other));
                // Digits belong to what changes, also where all samples share them.
                let digit = begin.find(|char: char| char.is_ascii_digit());
                let words = begin[..digit.unwrap_or(begin.len())].trim_end();
                let is_enough = words.chars().filter(|char| char.is_alphabetic()).count() >= 2;
                let begin = if is_enough { words } else { begin.trim_end() }.to_owned();
                (begin.len() >= BEGIN_MIN).then_some(MovedPart::Sentence(begin))?
            }
            other => other,
        };
        Some(Self { is_system: *is_system, part })
    }

    /// Whether it stands in the system message, and else in the first message.
    pub(super) fn is_system(&self) -> bool {
        self.is_system
    }

    /// Takes it out of a message: what stays, and what was taken.
    pub(super) fn cut(&self, content: &str) -> Option<(String, String)> {
        let (start, end) = match &self.part {
            MovedPart::FirstLine => (0, content.find('\n').map_or(content.len(), |end| end + 1)),
            MovedPart::Sentence(begin) => {
                let mut sentences = sentences(content);
                sentences
                    .find(|&(start, end)| content[start..end].trim_start().starts_with(begin))?
            }
            MovedPart::Block(name) => block(content, name)?,
        };
        let taken = content[start..end].trim();
        let kept = format!("{}{}", &content[..start], &content[end..]);
        // A message must not become empty: some engines refuse it.
        (!taken.is_empty() && !kept.trim().is_empty()).then(|| (kept, taken.to_owned()))
    }
}

/// The part of a message that changed.
fn part_of(message: &PromptMessage<'_>, sample: &ChangeSample<'_>) -> Option<MovedPart> {
    let text = message.text();
    let at = sample.start.checked_sub(message.start())?;
    let end = sample.end.saturating_sub(message.start()).clamp(at, text.len());
    let changed = text.get(at..end).unwrap_or_default();
    let line_start = text.get(..at)?.rfind('\n').map_or(0, |start| start + 1);
    let line = text[line_start..].lines().next().unwrap_or_default();
    if is_list_item(line) || changed.trim_end().contains('\n') {
        return message.heading(sample.start).map(MovedPart::Block);
    }
    let (start, end) = sentences(text).find(|&(start, end)| start <= at && at < end)?;
    let front = &text[start..at];
    if front.trim_start().len() >= BEGIN_MIN {
        return Some(MovedPart::Sentence(text[start..end].trim_start().to_owned()));
    }
    if line_start == 0 {
        return Some(MovedPart::FirstLine);
    }
    message.heading(sample.start).map(MovedPart::Block)
}

/// The sentences of a text, each with the blanks or the line end behind it. A line with JSON is
/// one.
fn sentences(text: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        let line_end = rest.find('\n').map_or(rest.len(), |end| end + 1);
        let line = &rest[..line_end];
        let is_record = line.contains(['{', '[']) && line.contains('"');
        let ends = ENDS.iter().filter_map(|end| Some(line.find(end)? + end.len()));
        let end = ends.min().filter(|_| !is_record).unwrap_or(line_end);
        let start = at;
        at += end;
        Some((start, at))
    })
}

/// The lines from a heading to the next one, or to a blank line.
fn block(text: &str, name: &str) -> Option<(usize, usize)> {
    let mut at = 0;
    let mut start = None;
    let mut is_marked = false;
    let mut has_text = false;
    for line in text.split_inclusive('\n') {
        match start {
            None => {
                if heading_name(line).as_deref() == Some(name) {
                    start = Some(at);
                    is_marked = line.trim_start().starts_with('#');
                }
            }
            Some(start) => {
                let is_blank = line.trim().is_empty();
                let is_end = if is_marked {
                    line.trim_start().starts_with('#')
                } else {
                    is_blank && has_text
                };
                if is_end {
                    return Some((start, at));
                }
                has_text |= !is_blank;
            }
        }
        at += line.len();
    }
    start.map(|start| (start, text.len()))
}

fn common_front(one: &str, other: &str) -> String {
    let chars = one.chars().zip(other.chars()).take_while(|(one, other)| one == other);
    chars.map(|(char, _)| char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(system: &str) -> String {
        format!("<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n")
    }

    /// The text that is taken out of `content`, by the prompts that changed between `values`.
    fn taken(template: &str, values: &[&str]) -> Option<(String, String)> {
        let prompts: Vec<String> =
            values.iter().map(|value| prompt(&template.replace('@', value))).collect();
        let at = "<|im_start|>system\n".len() + template.find('@')?;
        let samples: Vec<ChangeSample<'_>> = prompts
            .iter()
            .zip(values)
            .map(|(text, value)| ChangeSample { text, start: at, end: at + value.len() })
            .collect();
        MovedText::of(&samples)?.cut(&template.replace('@', values[0]))
    }

    fn check(template: &str, values: &[&str], expected: (&str, &str)) {
        let (kept, moved) = taken(template, values).expect("a text");
        assert_eq!((kept.as_str(), moved.as_str()), expected);
    }

    #[test]
    fn a_line_or_a_sentence_is_taken() {
        let ids = ["0a1b", "77fe"];
        check("Request-ID: @\nBe kind.", &ids, ("Be kind.", "Request-ID: 0a1b"));
        check(
            "Be kind. It is @ now. Be short.",
            &["12:01", "13:44"],
            ("Be kind. Be short.", "It is 12:01 now."),
        );
        check("@\nBe kind.", &ids, ("Be kind.", "0a1b"));
        check(
            "Rules.\nUser: {\"id\": \"@\", \"a\": 1.5}\nEnd.",
            &ids,
            ("Rules.\nEnd.", "User: {\"id\": \"0a1b\", \"a\": 1.5}"),
        );
    }

    #[test]
    fn a_block_is_taken_with_its_heading() {
        let files = ["- a.rs\n- b.rs", "- c.rs"];
        check(
            "Rules.\n## Files\n@\n## End\nx",
            &files,
            ("Rules.\n## End\nx", "## Files\n- a.rs\n- b.rs"),
        );
        check(
            "Rules.\nOpen files:\n@\n\nBe kind.",
            &files,
            ("Rules.\n\nBe kind.", "Open files:\n- a.rs\n- b.rs"),
        );
    }

    #[test]
    fn a_message_does_not_become_empty() {
        assert_eq!(taken("Request-ID: @", &["0a1b", "77fe"]), None);
    }
}
