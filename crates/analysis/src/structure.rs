//! The place of a change within the form of a prompt: which label, which list, which tool, which
//! earlier message. It names differences that no kind of word explains.
//!
//! Only forms are looked at: lines, labels, headings, bullets, JSON. A label is a prompt's own
//! word, so callers show it only where several requests have it at the same place.

mod label;
mod tools;

use std::ops::Range;

use headstart_core::fnv1a;
use headstart_core::shown::one_line;

use label::{VALUE_BYTES, heading, is_item, label};
use tools::{TOOLS_MARK, tools};

/// Longest name that is shown, characters: a label with an outer one, a tool with its field.
const SHOWN_CHARS: usize = 100;

/// Markers in front of a message's role, and behind it.
const ROLE_MARKS: [(&str, &str); 3] = [
    ("<|im_start|>", "\n"),
    ("<|start_header_id|>", "<|end_header_id|>"),
    ("<start_of_turn>", "\n"),
];

/// Roles of messages.
const ROLES: [&str; 7] = ["system", "developer", "user", "assistant", "model", "tool", "function"];

/// A text of the history that was escaped once more, or once less.
const ESCAPED: &str = "escaped in another way";

/// A kind of change, by the form around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ChangeForm {
    /// A short text on a line, behind a label or some words.
    Value,
    /// Lines of a list.
    List,
    /// Lines under a heading.
    Section,
    /// Tools that come or go.
    ToolSet,
    /// A tool's description or schema.
    ToolDefinition,
    /// A message of the history.
    History,
    /// A system message within the history.
    SystemMessage,
}

/// The place of a change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChangePlace {
    pub(crate) form: ChangeForm,
    /// The role of the message; empty for a prompt without messages.
    pub(crate) role: &'static str,
    /// The label on the line, or the tool's name and field.
    pub(crate) label: Option<String>,
    /// The heading above.
    pub(crate) heading: Option<String>,
    /// The change of a message of the history, in words.
    pub(crate) detail: &'static str,
}

impl ChangePlace {
    /// The place at which `old` became `new`, by the bytes that changed.
    ///
    /// `None` for the last message, which is another one in each request by intent.
    pub(crate) fn of(old: &str, new: &str, spans: &(Range<usize>, Range<usize>)) -> Option<Self> {
        let (old_at, new_at) = (floor(old, spans.0.start), floor(new, spans.1.start));
        let message = MessageStart::before(new, new_at);
        let role = message.role;
        let found = |form, label: Option<String>| {
            let label = label.map(|label| shown(&label));
            Self { form, role, label, heading: None, detail: "" }
        };
        let own = &new[message.start..new_at];
        if role == "system" && own.contains(TOOLS_MARK) {
            let (form, label) = tools(old, new)?;
            return Some(found(form, Some(label)));
        }
        let (came, went) = (slice(new, &spans.1), slice(old, &spans.0));
        let is_system =
            |text: &str| ROLE_MARKS.iter().any(|(mark, _)| text.contains(&format!("{mark}system")));
        if is_system(came) || is_system(went) {
            return Some(found(ChangeForm::SystemMessage, None));
        }
        // A message with others behind it is history: it was sent before.
        let is_history = role != "system" && has_answer(&new[new_at..]) && message.number > 0;
        if is_history {
            let detail = rewriting(went, came);
            let label = label(line_start(new, new_at)).filter(|_| detail.is_empty());
            return Some(Self { detail, ..found(ChangeForm::History, label) });
        }
        if !matches!(role, "" | "system") && message.number > 0 {
            return None;
        }
        let (old_line, new_line) = (line_at(old, old_at), line_at(new, new_at));
        let is_over_lines = came.contains('\n') || went.contains('\n');
        let is_short = came.len().max(went.len()) <= VALUE_BYTES;
        let label = label(line_start(new, new_at));
        let heading = heading(new, new_at, message.start);
        let form = if is_item(old_line) || is_item(new_line) {
            ChangeForm::List
        } else if label.is_some() && is_short && !is_over_lines {
            ChangeForm::Value
        } else {
            ChangeForm::Section
        };
        // What stands in front of a change within a list is an item's.
        let label = label.filter(|_| form != ChangeForm::List);
        let heading = heading.filter(|heading| Some(heading) != label.as_ref());
        let heading = heading.map(|heading| shown(&heading));
        Some(Self { heading, ..found(form, label) })
    }

    /// A number that stands for it: equal places have the same.
    pub(crate) fn number(&self) -> u64 {
        fnv1a(format!("{self:?}").as_bytes())
    }

    /// Whether a message of the history was escaped in another way.
    pub(crate) fn is_escape(&self) -> bool {
        self.form == ChangeForm::History && self.detail == ESCAPED
    }

    /// Its name for programs.
    pub(crate) fn cause(&self) -> &'static str {
        match self.form {
            ChangeForm::Value => "changing-value",
            ChangeForm::List => "changing-list",
            ChangeForm::Section => "changing-text",
            ChangeForm::ToolSet => "tool-set",
            ChangeForm::ToolDefinition => "tool-definition",
            ChangeForm::History => "rewritten-history",
            ChangeForm::SystemMessage => "moved-system-message",
        }
    }

    /// The change as the subject of a sentence.
    pub(crate) fn title(&self) -> String {
        let named = |with: &str, without: &str| match self.name() {
            Some(name) => format!("{with} `{name}`"),
            None => without.to_owned(),
        };
        match self.form {
            ChangeForm::Value => named("a value that changes:", "a short text that changes"),
            ChangeForm::List => {
                let list = named("list", "list");
                format!("a {list} that changes: lines come, go or change")
            }
            ChangeForm::Section => named("text that changes:", "text that changes"),
            ChangeForm::ToolSet => {
                named("another set of tools: added or missing", "another set of tools")
            }
            ChangeForm::ToolDefinition => {
                named("a tool definition that changes:", "a tool definition that changes")
            }
            ChangeForm::History => {
                let role = &self.role;
                let detail = if self.detail.is_empty() { "changed" } else { self.detail };
                let at =
                    self.label.as_ref().map_or_else(String::new, |label| format!(": `{label}`"));
                format!("an earlier {role} message in the history was rewritten ({detail}){at}")
            }
            ChangeForm::SystemMessage => {
                "a system message that moves, is repeated or is inserted".to_owned()
            }
        }
    }

    /// The place in words: the label, and the part of the prompt.
    pub(crate) fn shown(&self) -> Option<String> {
        let part = match (self.form, self.role) {
            (ChangeForm::ToolSet | ChangeForm::ToolDefinition, _) => "the tool definitions",
            (_, "system") => "the system prompt",
            (ChangeForm::History, _) => "the history",
            (_, "") => "the prompt",
            _ => "the first message",
        };
        Some(match (&self.label, &self.heading) {
            (Some(label), Some(heading)) => format!("`{label}` under `{heading}` in {part}"),
            (Some(name), None) | (None, Some(name)) => format!("`{name}` in {part}"),
            (None, None) => part.to_owned(),
        })
    }

    /// The name of what changes: a value's label, a list's or a text's heading.
    fn name(&self) -> Option<&String> {
        match self.form {
            ChangeForm::List | ChangeForm::Section => self.heading.as_ref().or(self.label.as_ref()),
            _ => self.label.as_ref(),
        }
    }

    /// The suggested fix.
    pub(crate) fn fix(&self) -> String {
        let fix = match self.form {
            ChangeForm::Value | ChangeForm::List | ChangeForm::Section => {
                let what = self
                    .name()
                    .map_or_else(|| "the text that changes".to_owned(), |name| format!("`{name}`"));
                return format!(
                    "move {what} behind everything that stays the same, for example into the last \
                     message"
                );
            }
            ChangeForm::ToolSet => {
                "send all tools in every request of a conversation, and allow a part of them by \
                 `tool_choice` or by name"
            }
            ChangeForm::ToolDefinition => {
                "keep the definitions of tools constant; send what changes in the last message"
            }
            ChangeForm::History => "send earlier messages as they were sent before, byte for byte",
            ChangeForm::SystemMessage => {
                "leave system messages where they were first sent, and add new ones at the end"
            }
        };
        fix.to_owned()
    }
}

/// A name from a prompt, as a terminal may show it.
fn shown(name: &str) -> String {
    one_line(&name.chars().take(SHOWN_CHARS).collect::<String>())
}

/// The message that a byte is in.
struct MessageStart {
    role: &'static str,
    /// The first byte behind the role.
    start: usize,
    /// The number of messages before it.
    number: usize,
}

impl MessageStart {
    fn before(text: &str, at: usize) -> Self {
        let found = ROLE_MARKS.iter().filter_map(|&(mark, end)| {
            let marker = text[..at].rfind(mark)?;
            let role_at = marker + mark.len();
            let (role, _) = text[role_at..].split_once(end)?;
            // A user's text may hold such a mark, with anything behind it.
            let role = ROLES.iter().find(|known| **known == role).copied()?;
            let start = (role_at + role.len() + end.len()).min(at);
            let number = text[..marker].matches(mark).count();
            Some(Self { role, start, number })
        });
        found.max_by_key(|found| found.start).unwrap_or(Self { role: "", start: 0, number: 0 })
    }
}

/// Whether an answer follows: then what stands before it was sent in an earlier request.
fn has_answer(rest: &str) -> bool {
    ROLE_MARKS.iter().any(|&(mark, end)| {
        let answers = rest.match_indices(mark).filter(|(at, _)| {
            let behind = &rest[at + mark.len()..];
            ["assistant", "model"].iter().any(|role| {
                // The prompt ends with the mark of the answer to come.
                behind.strip_prefix(role).is_some_and(|text| text.len() > end.len() + 2)
            })
        });
        answers.count() > 0
    })
}

/// The change of a text of the history, in words.
fn rewriting(old: &str, new: &str) -> &'static str {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let escapes = |text: &str| {
        ["&amp;", "&lt;", "&quot;", "\\\\", "\\u", "\\\""]
            .iter()
            .map(|escape| text.matches(escape).count())
            .sum::<usize>()
    };
    if old.trim().is_empty() {
        "text was put in"
    } else if new.trim().is_empty() {
        "text was removed"
    } else if escapes(old) != escapes(new) {
        ESCAPED
    } else if !digits(old).is_empty() && digits(old) == digits(new) && old.len() < 80 {
        "numbers are written in another form"
    } else if new.len() * 2 < old.len() {
        "text was shortened"
    } else {
        ""
    }
}

/// Whether a message begins within a text.
pub(crate) fn holds_message_start(text: &str) -> bool {
    ROLE_MARKS.iter().any(|(mark, _)| text.contains(mark))
}

/// The bytes of a span; nothing where the span does not fit the text.
pub(crate) fn slice<'t>(text: &'t str, span: &Range<usize>) -> &'t str {
    text.get(span.clone()).unwrap_or_default()
}

fn floor(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

fn line_begin(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

fn line_start(text: &str, at: usize) -> &str {
    &text[line_begin(text, at)..at]
}

fn line_at(text: &str, at: usize) -> &str {
    let begin = line_begin(text, at);
    text[begin..].lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The place at which two toy prompts part, by their first difference.
    fn place(old: &str, new: &str) -> (ChangeForm, Option<String>) {
        let at = old.bytes().zip(new.bytes()).take_while(|(one, other)| one == other).count();
        let at = floor(new, at);
        let end = |text: &str| floor(text, at + 2).max(at);
        let found = ChangePlace::of(old, new, &(at..end(old), at..end(new))).expect("a place");
        let name = found.name().cloned();
        (found.form, name)
    }

    fn system(text: &str) -> String {
        let user = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
        format!("<|im_start|>system\n{text}<|im_end|>\n{user}")
    }

    #[test]
    fn labels_of_values_are_found() {
        for (line, label) in [
            ("Ticket: @ is open.", "Ticket"),
            ("Du hilfst. Sitzung: @. Sei kurz.", "Sitzung"),
            ("会话已进行：@秒", "会话已进行"),
            ("{\"city\": \"Rome\", \"load\": @}", "load"),
            ("Profile: {\"id\": @}", "Profile: id"),
            ("<user id=\"@\">", "user id"),
            ("Spring sale ends in @ days", "Spring sale ends in"),
            ("seed=@ temperature=1", "seed"),
        ] {
            let text =
                |value: &str| system(&format!("Be kind.\n{}\nRules.", line.replace('@', value)));
            let found = place(&text("12"), &text("94"));
            assert_eq!(found, (ChangeForm::Value, Some(label.to_owned())), "{line}");
        }
    }

    #[test]
    fn lists_have_their_heading() {
        let list = |items: &[&str]| {
            let items: String = items.iter().map(|item| format!("- {item}\n")).collect();
            system(&format!("Be kind.\n## Known facts\n{items}\nRules: none."))
        };
        let found = place(&list(&["Leeds", "York"]), &list(&["Leeds", "Hull", "York"]));
        assert_eq!(found, (ChangeForm::List, Some("Known facts".to_owned())));
        let files = |name: &str| system(&format!("Project files:\nsrc/a.rs\nsrc/{name}\nEnd."));
        assert_eq!(place(&files("b.rs"), &files("c.rs")).1.as_deref(), Some("Project files"));
    }

    #[test]
    fn tools_are_named() {
        let tools = |text: &str| system(&format!("Be kind.\n\n{TOOLS_MARK}{text}"));
        let two = tools(r#"[{"name": "a", "description": "1"}, {"name": "b"}]"#);
        let one = tools(r#"[{"name": "a", "description": "1"}]"#);
        assert_eq!(place(&one, &two), (ChangeForm::ToolSet, Some("b".to_owned())));
        let other = tools(r#"[{"name": "a", "description": "2"}, {"name": "b"}]"#);
        let found = place(&two, &other);
        assert_eq!(found, (ChangeForm::ToolDefinition, Some("a.description".to_owned())));
        // Order within a schema is no order of tools.
        let schema =
            |list: &str| tools(&format!(r#"[{{"name": "a", "parameters": {{"enum": {list}}}}}]"#));
        let found = place(&schema(r#"["x", "y"]"#), &schema(r#"["y", "x"]"#));
        assert_eq!(found, (ChangeForm::ToolDefinition, Some("a.enum".to_owned())));
    }

    #[test]
    fn earlier_messages_are_history() {
        let talk = |amount: &str| {
            format!(
                "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\npay {amount}<|im_end|>\n\
                 <|im_start|>assistant\ndone<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n\
                 <|im_start|>assistant\n"
            )
        };
        assert_eq!(place(&talk("12.50"), &talk("12,50")).0, ChangeForm::History);
    }

    #[test]
    fn any_text_has_a_place_or_none() {
        let texts =
            ["", "é", "<|im_start|>", "<|im_start|>system\n", "a\n- b", TOOLS_MARK, "：", "\"：\""];
        for old in texts {
            for new in texts {
                for at in 0..6 {
                    let spans = (at..at + 2, at..at + 3);
                    let _ = ChangePlace::of(old, new, &spans);
                }
            }
        }
    }
}
