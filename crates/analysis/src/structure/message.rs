//! Messages within a prompt's text, by the markers of chat templates.

use super::floor;
use super::label::heading;
use super::tools::TOOLS_MARK;

/// Markers in front of a message's role, and behind it.
const ROLE_MARKS: [(&str, &str); 3] = [
    ("<|im_start|>", "\n"),
    ("<|start_header_id|>", "<|end_header_id|>"),
    ("<start_of_turn>", "\n"),
];

/// Marks behind a message.
const ENDS: [&str; 3] = ["<|im_end|>", "<|eot_id|>", "<end_of_turn>"];

/// Roles of messages.
const ROLES: [&str; 7] = ["system", "developer", "user", "assistant", "model", "tool", "function"];

/// The message that a byte is in.
pub(super) struct MessageStart {
    pub(super) role: &'static str,
    /// The first byte behind the role.
    pub(super) start: usize,
    /// The number of messages before it.
    pub(super) number: usize,
}

impl MessageStart {
    pub(super) fn before(text: &str, at: usize) -> Self {
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

/// The text of the message that begins at a byte.
pub(super) fn message(text: &str, start: usize) -> &str {
    let rest = &text[start..];
    let ends = ROLE_MARKS.iter().filter_map(|(mark, _)| rest.find(mark));
    &rest[..ends.min().unwrap_or(rest.len())]
}

/// A message of a rendered prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromptMessage<'t> {
    prompt: &'t str,
    role: &'static str,
    start: usize,
    number: usize,
}

impl<'t> PromptMessage<'t> {
    /// The message that a byte is in; `None` for a prompt without messages, and for definitions of
    /// tools, which no message holds.
    pub(crate) fn at(prompt: &'t str, byte: usize) -> Option<Self> {
        let byte = floor(prompt, byte);
        let MessageStart { role, start, number } = MessageStart::before(prompt, byte);
        let has_tools = prompt[start..byte].contains(TOOLS_MARK);
        (!role.is_empty() && !has_tools).then_some(Self { prompt, role, start, number })
    }

    pub(crate) fn is_system(&self) -> bool {
        matches!(self.role, "system" | "developer")
    }

    /// Whether it is the first message of the user.
    pub(crate) fn is_first(&self) -> bool {
        self.role == "user" && self.number <= 1
    }

    /// The first byte of its content in the prompt.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Its content.
    pub(crate) fn text(&self) -> &'t str {
        let text = message(self.prompt, self.start);
        // Templates end a message with a mark.
        ENDS.iter().find_map(|end| Some(&text[..text.rfind(end)?])).unwrap_or(text)
    }

    /// The heading above a byte of the prompt.
    pub(crate) fn heading(&self, byte: usize) -> Option<String> {
        heading(self.prompt, floor(self.prompt, byte), self.start)
    }
}

/// Whether an answer follows: then what stands before it was sent in an earlier request.
pub(crate) fn has_answer(rest: &str) -> bool {
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

/// The start of the first message that is not the system's.
pub(crate) fn first_message(text: &str) -> Option<usize> {
    let starts = ROLE_MARKS.iter().filter_map(|(mark, _)| {
        let marks = text.match_indices(mark);
        let others = marks.filter(|(at, _)| !text[at + mark.len()..].starts_with("system"));
        others.map(|(at, _)| at).next()
    });
    starts.min()
}

/// Whether a message begins within a text.
pub(crate) fn holds_message_start(text: &str) -> bool {
    ROLE_MARKS.iter().any(|(mark, _)| text.contains(mark))
}

/// Whether a system message begins within a text.
pub(super) fn holds_system_start(text: &str) -> bool {
    ROLE_MARKS.iter().any(|(mark, _)| text.contains(&format!("{mark}system")))
}
