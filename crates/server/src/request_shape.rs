//! Parts of a request that change how an engine prepares its prompt.
//!
//! Plain chats may come out right where histories with tool calls do not. So tokens are compared
//! with an engine's once for each shape, and a difference counts for requests of that shape.

use std::fmt;

use memchr::memmem;

use crate::openai::response::ApiKind;

/// The parts of a request, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestShape(u16);

/// Byte strings to find in a body, each with the name of its part. Words in a message's text match,
/// too: the request then gets a rarer shape, which is compared separately.
const PARTS: [(&str, &str); 11] = [
    ("\"tools\"", "tools"),
    ("\"tool_calls\"", "tool calls"),
    ("\"tool_call_id\"", "tool results"),
    ("\"type\"", "content parts"),
    ("\"reasoning", "reasoning"),
    ("\"developer\"", "a developer message"),
    ("\"name\"", "names"),
    ("\"chat_template_kwargs\"", "template variables"),
    ("\"documents\"", "documents"),
    ("\"chat_template\"", "a template"),
    ("\"continue_final_message\"", "a message to continue"),
];

/// Bits for the API, behind those of the parts.
const API_BIT: u32 = PARTS.len() as u32;

impl RequestShape {
    /// Of a request of this API. Costs a fast pass over the body for each part.
    #[must_use]
    pub fn of(kind: ApiKind, body: &[u8]) -> Self {
        let api = match kind {
            ApiKind::Chat => 0,
            ApiKind::Text => return Self(1 << API_BIT),
            ApiKind::Messages => 2,
            ApiKind::Responses => 3,
        };
        let found = (PARTS.iter().enumerate())
            .filter(|(_, (part, _))| memmem::find(body, part.as_bytes()).is_some())
            .map(|(bit, _)| 1 << bit);
        Self(found.fold(api << API_BIT, |bits, bit: u16| bits | bit))
    }
}

impl fmt::Display for RequestShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 >> API_BIT {
            0 => "chat",
            1 => "completion",
            2 => "messages",
            _ => "responses",
        })?;
        let has = |bit: &usize| self.0 & (1 << bit) != 0;
        for (nth, bit) in (0..PARTS.len()).filter(has).enumerate() {
            f.write_str(if nth == 0 { " with " } else { ", " })?;
            f.write_str(PARTS[bit].1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_named_by_their_parts() {
        let name = |kind, body: &str| RequestShape::of(kind, body.as_bytes()).to_string();
        assert_eq!(name(ApiKind::Chat, "{}"), "chat");
        assert_eq!(name(ApiKind::Text, "{\"tools\": 1}"), "completion");
        let body = r#"{"tools": [], "messages": [{"tool_calls": [], "reasoning_content": ""}]}"#;
        assert_eq!(name(ApiKind::Chat, body), "chat with tools, tool calls, reasoning");
        assert_eq!(name(ApiKind::Responses, "{\"tools\": 1}"), "responses with tools");
    }
}
