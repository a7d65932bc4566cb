//! Preprocessing of a chat request by an engine, before its template sees it.
//!
//! ```text
//! fields of a request ─ Dialect::read ─ EngineConversation ─ ChatTemplate ─ text
//! ```
//!
//! Engines do not render what a client sent. They read it into typed objects, which changes the
//! order of keys and adds defaults; they parse the JSON text of tool calls, join text parts, and
//! turn top-level fields into variables of the template. Each difference is another prompt, and a
//! prefix cache that expects the wrong one misses from there on.
//!
//! | module | holds |
//! |---|---|
//! | [`content_format`] | [`ContentFormat`], whether a template wants one string or parts |
//! | `vllm` | vLLM's preprocessing, by version |
//! | `sglang` | SGLang's preprocessing |
//!
//! Requests that an engine refuses need no tokens; a dialect may render them or not. The oracle is
//! the engine itself: `tests/parity` holds what it answered for a matrix of shapes and templates.

pub mod content_format;
mod parts;
mod sglang;
mod vllm;

pub use content_format::ContentFormat;
pub use vllm::VllmVersion;

use serde_json::{Map, Value};

use crate::python_surrogate::read_halves;
use crate::{ChatTemplate, GenerationPrompt, read_json};

/// Engine whose preprocessing a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// vLLM's.
    Vllm(VllmVersion),
    /// SGLang's.
    Sglang,
}

impl std::fmt::Display for Dialect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Vllm(version) => write!(f, "vLLM {}.{}", version.major, version.minor),
            Self::Sglang => f.write_str("SGLang"),
        }
    }
}

impl Default for Dialect {
    /// The newest vLLM whose answers were captured.
    fn default() -> Self {
        Self::Vllm(VllmVersion::NEWEST)
    }
}

/// API of a request with a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// OpenAI's `/v1/chat/completions`.
    Chat,
    /// Anthropic's `/v1/messages`.
    Messages,
    /// OpenAI's `/v1/responses`.
    Responses,
}

/// Conversation as an engine reads it: inputs for rendering a template.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineConversation {
    /// The messages: an array of objects.
    pub messages: Value,
    /// The tools, where the request has some: an array.
    pub tools: Option<Value>,
    /// The ending of the text, with or without the opening of the model's answer.
    pub generation_prompt: GenerationPrompt,
    /// Whether the text ends inside the last message, for the model to continue it.
    pub continues_last: bool,
    /// The answer's beginning, which is encoded apart from the rendered text, behind it.
    pub answer_begins: String,
    /// Further variables of the template.
    pub variables: Map<String, Value>,
    /// The first message that holds an image, audio or video, if one does.
    pub medium_in: Option<usize>,
}

/// Why a chat request has no exact tokens here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoExactTokens {
    /// The model has no chat template.
    #[error("the model folder has no chat template")]
    NoTemplate,
    /// The template refused the conversation, in its own words.
    #[error("the chat template refused the conversation: {0}")]
    Refused(String),
    /// The template failed, or the tokenizer did.
    #[error("{0}")]
    Failed(String),
    /// A field asks for what only the engine can do.
    #[error("`{0}` changes the prompt in a way that only the engine computes")]
    Unsupported(&'static str),
    /// The request is not one that the engine takes.
    #[error("`{0}` has a shape that the engine refuses")]
    Malformed(&'static str),
    /// A message holds an image, audio or video.
    #[error("the prompt holds an image, audio or video")]
    Media {
        /// The exact text in front of the first one.
        before: String,
    },
}

impl NoExactTokens {
    /// A short name for metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoTemplate => "no-template",
            Self::Refused(_) => "template-refused",
            Self::Failed(_) => "template-failed",
            Self::Unsupported(_) => "unsupported-field",
            Self::Malformed(_) => "malformed",
            Self::Media { .. } => "media",
        }
    }
}

impl Dialect {
    /// The conversation that the engine renders with `template`, from a request's top-level fields.
    /// Fields that do not matter to a prompt may be absent.
    ///
    /// # Errors
    /// [`NoExactTokens::Malformed`] or [`NoExactTokens::Unsupported`].
    pub fn read(
        self,
        request: Map<String, Value>,
        api: Api,
        template: &ChatTemplate,
    ) -> Result<EngineConversation, NoExactTokens> {
        match (self, api) {
            (Self::Vllm(version), api) => vllm::read(request, api, template, version),
            (Self::Sglang, Api::Chat) => sglang::read(request, template),
            (Self::Sglang, Api::Messages) => Err(NoExactTokens::Unsupported("messages")),
            (Self::Sglang, Api::Responses) => Err(NoExactTokens::Unsupported("input")),
        }
    }
}

/// The fields of a tool call's arguments; `None` where its text is no JSON object.
fn arguments(text: &str) -> Option<Map<String, Value>> {
    // Python also reads half of a surrogate pair; only texts that failed are read a second time.
    let read = read_json(text).or_else(|_| read_json(&read_halves(text)));
    match read {
        Ok(Value::Object(fields)) => Some(fields),
        _ => None,
    }
}

/// Takes `name` from an object's fields; absent and `null` are the same.
fn take(fields: &mut Map<String, Value>, name: &str) -> Option<Value> {
    fields.shift_remove(name).filter(|value| !value.is_null())
}

/// Refuses a request that has one of the fields `names`.
fn refuse(request: &mut Map<String, Value>, names: &[&'static str]) -> Result<(), NoExactTokens> {
    let found = names.iter().find(|name| take(request, name).is_some());
    found.map_or(Ok(()), |name| Err(NoExactTokens::Unsupported(name)))
}

/// The fields of an object. `name` is the request's field, for the error about another type.
fn object(
    value: impl Into<Option<Value>>,
    name: &'static str,
) -> Result<Map<String, Value>, NoExactTokens> {
    match value.into() {
        Some(Value::Object(fields)) => Ok(fields),
        _ => Err(NoExactTokens::Malformed(name)),
    }
}

/// Sets a field to a value that is there.
fn set(fields: &mut Map<String, Value>, name: &str, value: impl Into<Option<Value>>) {
    if let Some(value) = value.into() {
        fields.insert(name.to_owned(), value);
    }
}

/// A tool of this function. The function is moved: `json!` would copy its schema, and for the many
/// tools of an agent that takes longer than all other steps.
pub fn function_tool(function: impl Into<Value>) -> Map<String, Value> {
    let mut tool = Map::new();
    set(&mut tool, "type", Value::from("function"));
    set(&mut tool, "function", function.into());
    tool
}

/// The request's messages as `read` makes them, and the first one that has media by its flag.
fn read_messages(
    request: &mut Map<String, Value>,
    read: impl Fn(Value, &mut bool) -> Result<Value, NoExactTokens>,
) -> Result<(Vec<Value>, Option<usize>), NoExactTokens> {
    let Some(Value::Array(messages)) = request.shift_remove("messages") else {
        return Err(NoExactTokens::Malformed("messages"));
    };
    let mut medium_in = None;
    let mut all = Vec::with_capacity(messages.len());
    for (index, message) in messages.into_iter().enumerate() {
        let mut has_media = false;
        all.push(read(message, &mut has_media)?);
        // The first medium matters: only the text in front of it is exact.
        medium_in = medium_in.or(has_media.then_some(index));
    }
    Ok((all, medium_in))
}

/// Moves the fields `order` to the front of an object, in that order; absent ones stay absent.
/// Pydantic writes typed dictionaries this way: declared keys first, unknown ones behind.
fn in_declared_order(mut fields: Map<String, Value>, order: &[&str]) -> Map<String, Value> {
    let mut ordered = Map::with_capacity(fields.len());
    for &name in order {
        if let Some((name, value)) = fields.shift_remove_entry(name) {
            ordered.insert(name, value);
        }
    }
    ordered.extend(fields);
    ordered
}

/// Converts a value that Pydantic accepts as a boolean. Others stay, and the engine refuses them.
fn boolean(value: Value) -> Value {
    let word = value.as_str().map(str::to_lowercase);
    match (word.as_deref(), value.as_f64()) {
        (Some("true" | "t" | "yes" | "y" | "on" | "1"), _) | (_, Some(1.0)) => true.into(),
        (Some("false" | "f" | "no" | "n" | "off" | "0"), _) | (_, Some(0.0)) => false.into(),
        _ => value,
    }
}
