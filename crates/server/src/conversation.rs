//! A conversation as the chat template gets it, whichever API it came by.

use serde_json::{Map, Value, json};

/// Input of a chat template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateInput {
    /// A non-empty array of objects with a text as `role` and as `content`, in OpenAI's form.
    pub messages: Value,
    /// The tools that the model may call, in OpenAI's form.
    pub tools: Option<Value>,
    /// Further variables of the template.
    pub variables: Map<String, Value>,
}

impl TemplateInput {
    /// Number of user messages, at least 1.
    #[must_use]
    pub fn turn(&self) -> u16 {
        let messages = self.messages.as_array().map_or(&[][..], Vec::as_slice);
        let of_user = messages.iter().filter(|one| one["role"] == "user").count();
        u16::try_from(of_user).unwrap_or(u16::MAX).max(1)
    }

    /// The same with the roles that chat templates know: `developer` is what `system` was called
    /// later, and `function` is what `tool` was called before.
    #[must_use]
    pub fn with_known_roles(mut self) -> Self {
        let messages = self.messages.as_array_mut();
        for message in messages.into_iter().flatten() {
            let known = match message["role"].as_str() {
                Some("developer") => "system",
                Some("function") => "tool",
                _ => continue,
            };
            message["role"] = known.into();
        }
        self
    }
}

/// A message of text.
#[must_use]
pub fn text_message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

/// A message with the result of the tool call `id`.
#[must_use]
pub fn tool_result(id: &str, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

/// One call in a message's `tool_calls`.
#[must_use]
pub fn tool_call(id: &str, name: &str, arguments: Value) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}
