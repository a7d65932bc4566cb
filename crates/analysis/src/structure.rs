//! The place of a change within the form of a prompt: which label, which list, which tool, which
//! earlier message. It names differences that no kind of word explains.
//!
//! Only forms are looked at: lines, labels, headings, bullets, JSON. A label is a prompt's own
//! word, so callers show it only where several requests have it at the same place.

mod history;
mod label;
mod message;
mod reference;
mod same;
mod tools;
mod words;

use std::ops::Range;

use headstart_core::fnv1a;
use headstart_core::shown::one_line;
use headstart_insight::text::PromptChange;

use history::{OTHER_WRITING, rewriting};
use label::{VALUE_BYTES, call_id, heading, is_item, label, label_near};
pub(crate) use label::{heading_name, is_item as is_list_item};
use message::{MessageStart, holds_system_start, message};
pub(crate) use message::{PromptMessage, first_message, has_answer, holds_message_start};
use same::OrderedParts;
use tools::{TOOLS_MARK, tools};

/// Longest name that is shown, characters: a label with an outer one, a tool with its field.
const SHOWN_CHARS: usize = 100;

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
    /// The same items of a list in another order.
    ListOrder,
    /// The same fields with their values in another order.
    FieldOrder,
    /// An image or a file with other bytes.
    Image,
    /// A link to the same document with another query.
    Link,
    /// Names of one kind that were drawn again.
    Pseudonyms,
    /// A text that is there once more.
    Repeated,
    /// The same text in other characters.
    Characters,
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
        if holds_system_start(came) || holds_system_start(went) {
            return Some(found(ChangeForm::SystemMessage, None));
        }
        // A message with others behind it is history: it was sent before.
        let is_history = role != "system" && has_answer(&new[new_at..]) && message.number > 0;
        if is_history {
            let detail = rewriting(old, new, spans);
            let has_label =
                detail.is_empty() || [history::NUMBERS, history::RECOUNTED].contains(&detail);
            let named = || call_id(line_start(new, new_at)).or_else(|| label_near(old, new, spans));
            let label = named().filter(|_| has_label);
            let heading = heading(new, new_at, message.start).map(|heading| shown(&heading));
            // The first field of a record is no heading.
            let is_heading = |heading: &String| Some(heading) != label.as_ref();
            let heading = heading.filter(|heading| is_heading(heading) && !heading.contains('{'));
            return Some(Self { detail, heading, ..found(ChangeForm::History, label) });
        }
        if !matches!(role, "" | "system") && message.number > 0 {
            return None;
        }
        let (old_line, new_line) = (line_at(old, old_at), line_at(new, new_at));
        let is_over_lines = came.contains('\n') || went.contains('\n');
        let is_short = came.len().max(went.len()) <= VALUE_BYTES;
        let label = label_near(old, new, spans);
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

    /// The place of a change that leaves the content as it is: another order, other characters, a
    /// text twice, or another name for the same thing.
    pub(crate) fn of_same_content(old: &str, new: &str, changes: &[PromptChange]) -> Option<Self> {
        let change = changes.first()?;
        let (old_at, new_at) = (floor(old, change.old.start), floor(new, change.new.start));
        let start = MessageStart::before(new, new_at);
        let found = |form, label: Option<String>, heading: Option<String>| {
            let (label, heading) =
                (label.map(|label| shown(&label)), heading.map(|heading| shown(&heading)));
            Some(Self { form, role: start.role, label, heading, detail: "" })
        };
        if reference::is_image(old, old_at, new, new_at) {
            return found(ChangeForm::Image, None, None);
        }
        if reference::is_signed_link(old, old_at, new, new_at) {
            return found(ChangeForm::Link, None, None);
        }
        let (came, went) = (slice(new, &change.new), slice(old, &change.old));
        if is_boundary(came, went) && start.number > 0 && has_answer(&new[new_at..]) {
            let place = found(ChangeForm::History, None, None);
            return place.map(|place| Self { detail: "messages were joined or split", ..place });
        }
        let spans = changes.iter().map(|change| (&change.old, &change.new));
        if let Some(kind) = reference::pseudonyms(old, new, spans) {
            return found(ChangeForm::Pseudonyms, Some(kind), None);
        }
        let is_last = !matches!(start.role, "" | "system") && start.number > 0;
        if is_last && !has_answer(&new[new_at..]) || new[start.start..new_at].contains(TOOLS_MARK) {
            return None;
        }
        let old_message = message(old, MessageStart::before(old, old_at).start);
        let new_message = message(new, start.start);
        if is_repeated(came, new_message, went) || is_repeated(went, old_message, came) {
            return found(ChangeForm::Repeated, None, None);
        }
        let heading = || heading(new, new_at, start.start);
        match same::reordered(old_message, new_message) {
            Some(OrderedParts::Items) => return found(ChangeForm::ListOrder, None, heading()),
            Some(OrderedParts::Fields) => {
                let heading = label(line_start(new, new_at)).or_else(heading);
                return found(ChangeForm::FieldOrder, None, heading);
            }
            None => {}
        }
        let lines = (line_at(old, old_at), line_at(new, new_at));
        let is_same = same::is_other_characters(lines.0, lines.1);
        let name = || label(line_start(new, new_at));
        is_same.then(|| found(ChangeForm::Characters, name(), None)).flatten()
    }

    /// The same place without words of the prompt.
    pub(crate) fn without_names(&self) -> Self {
        Self { label: None, heading: None, ..self.clone() }
    }

    /// The words of the prompt that name it.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.label.iter().chain(self.heading_above());
        // A label may have an outer one in front, and a tool's name the path of a field behind.
        names.flat_map(|name| name.split([':', '.'])).map(str::trim).filter(|name| !name.is_empty())
    }

    /// Whether the words of a change may stand for another cause.
    pub(crate) fn is_name_of_content(&self) -> bool {
        matches!(self.form, ChangeForm::Image | ChangeForm::Link | ChangeForm::Pseudonyms)
    }

    /// The same place, named by the record that a byte is in: the words in front of an object, or a
    /// tag.
    pub(crate) fn of_record(mut self, text: &str, at: usize) -> Self {
        let front = line_start(text, floor(text, at));
        let name = match (front.find('{'), front.find('<')) {
            (Some(brace), _) => &front[..brace],
            (None, Some(tag)) => front[tag + 1..].split_whitespace().next().unwrap_or_default(),
            (None, None) => return self,
        };
        let name = name.trim_matches([' ', ':', '：', '=', '"', '`', '#', '*', '-']);
        self.label = (!name.is_empty() && name.chars().count() <= SHOWN_CHARS).then(|| shown(name));
        self
    }

    /// A number that stands for it: equal places have the same.
    pub(crate) fn number(&self) -> u64 {
        fnv1a(format!("{self:?}").as_bytes())
    }

    /// Whether a message of the history has the same content, written in another way.
    pub(crate) fn is_other_writing(&self) -> bool {
        self.form == ChangeForm::History && OTHER_WRITING.contains(&self.detail)
    }
}

/// Fewest bytes of a text that counts as repeated.
const REPEATED_BYTES: usize = 24;

/// Whether nothing but a text came into a message that has the same text elsewhere: by its first
/// sentence, because several copies may have come.
fn is_repeated(came: &str, message: &str, went: &str) -> bool {
    let came = came.trim();
    let mut sentences = came.split_inclusive(['.', '。', '!', '?', '\n']).map(str::trim);
    let first = sentences.find(|sentence| sentence.len() >= REPEATED_BYTES).unwrap_or_default();
    let is_copied = |text: &str| text.matches(first).count() >= 2;
    went.trim().is_empty() && !first.is_empty() && (is_copied(message) || is_copied(came))
}

/// Whether all that came or went is the end of one message and the beginning of another.
fn is_boundary(came: &str, went: &str) -> bool {
    let text = match (came.trim(), went.trim()) {
        ("", text) | (text, "") => text,
        _ => return false,
    };
    let words: String = text.chars().map(|c| if c.is_alphanumeric() { c } else { ' ' }).collect();
    let is_markup = |word: &str| {
        ["im", "start", "end", "of", "turn", "eot", "id", "header", "user", "assistant", "tool"]
            .contains(&word)
    };
    holds_message_start(text) && words.split_whitespace().all(is_markup)
}

/// A name from a prompt, as a terminal may show it.
fn shown(name: &str) -> String {
    one_line(&name.chars().take(SHOWN_CHARS).collect::<String>())
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
mod same_tests;

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
