//! A place in words: the name of its cause, the title, the part of the prompt, and the fix.

use super::{ChangeForm, ChangePlace};

impl ChangePlace {
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
            ChangeForm::ListOrder => "list-order",
            ChangeForm::FieldOrder => "field-order",
            ChangeForm::Image => "image-bytes",
            ChangeForm::Link => "signed-link",
            ChangeForm::Pseudonyms => "pseudonyms",
            ChangeForm::Repeated => "repeated-text",
            ChangeForm::Characters => "character-form",
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
                let name = self.label.as_ref().or(self.heading_above());
                let at = name.map_or_else(String::new, |name| format!(" at `{name}`"));
                format!("an earlier {role} message in the history{at} was rewritten ({detail})")
            }
            ChangeForm::SystemMessage => {
                "a system message that moves, is repeated or is inserted".to_owned()
            }
            ChangeForm::ListOrder => {
                named("items of a list in changing order:", "items of a list in changing order")
            }
            ChangeForm::FieldOrder => {
                named("keys or fields in changing order:", "keys or fields in changing order")
            }
            ChangeForm::Image => "an image or file whose bytes change".to_owned(),
            ChangeForm::Link => "a link whose signature or query changes".to_owned(),
            ChangeForm::Pseudonyms => named(
                "pseudonyms or placeholders that change:",
                "pseudonyms or placeholders that change",
            ),
            ChangeForm::Repeated => "a text that is repeated: one copy more or less".to_owned(),
            ChangeForm::Characters => {
                "the same text in other characters: Unicode form, punctuation or escapes".to_owned()
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
        Some(match (&self.label, self.heading_above()) {
            (Some(label), Some(heading)) => format!("`{label}` under `{heading}` in {part}"),
            (Some(name), None) | (None, Some(name)) => format!("`{name}` in {part}"),
            (None, None) => part.to_owned(),
        })
    }

    /// The heading, unless it is the line itself: then it holds a part of what changes, which sets
    /// places apart and is not shown.
    pub(super) fn heading_above(&self) -> Option<&String> {
        let is_line = |heading: &&String| {
            self.label.as_ref().is_some_and(|label| heading.starts_with(label.as_str()))
        };
        self.heading.as_ref().filter(|heading| !is_line(heading))
    }

    /// The name of what changes: a value's label, a list's or a text's heading.
    pub(super) fn name(&self) -> Option<&String> {
        match self.form {
            ChangeForm::List
            | ChangeForm::Section
            | ChangeForm::ListOrder
            | ChangeForm::FieldOrder => self.heading_above().or(self.label.as_ref()),
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
            ChangeForm::ListOrder => "sort the items before each request",
            ChangeForm::FieldOrder => "serialize the fields in a fixed order",
            ChangeForm::Image => {
                "encode an image once, and send the same bytes again in every request"
            }
            ChangeForm::Link => {
                "sign a link once for a conversation, or send an id of the document in its place"
            }
            ChangeForm::Pseudonyms => {
                "give each name one pseudonym, and keep it for the whole conversation"
            }
            ChangeForm::Repeated => "put the text in once, not again in each request",
            ChangeForm::Characters => {
                "normalize text (Unicode NFC, one kind of quotes and escapes) in one place, before \
                 it is sent"
            }
        };
        fix.to_owned()
    }
}
