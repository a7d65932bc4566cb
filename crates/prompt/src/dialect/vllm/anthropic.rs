//! Requests of Anthropic's Messages API as the chat requests that vLLM makes of them.
//!
//! | there | in the chat request |
//! |---|---|
//! | `system`, and system messages that the template does not take in place | the first message |
//! | `tool_use`, `thinking` blocks | `tool_calls`, `reasoning` of the assistant's message |
//! | `tool_result` blocks | tool messages, in front of the user's text |
//! | several texts | content parts, without their other fields |
//! | `tools[].input_schema` | `parameters`, with a `type` |
//! | `output_config.effort`, `thinking: disabled` | `reasoning_effort` |
//!
//! Source: vLLM 0.30 to 0.32, `entrypoints/anthropic/serving.py`. Not done here: blocks without an
//! id, whose id is the time.

use serde_json::{Map, Value, json};

use super::messages::BILLING_HEADER;
use crate::dialect::{NoExactTokens, function_tool, object, set, take};

/// Template properties that decide how a request is converted.
#[derive(Clone, Copy, Debug)]
pub(super) struct TemplateProperties {
    /// Whether it renders system messages behind the first message.
    pub takes_system: bool,
    /// The effort of requests that disable thinking; `None` where the engine ignores that wish.
    pub effort_when_disabled: Option<&'static str>,
}

/// Whether `request` disables thinking.
pub(super) fn disables_thinking(request: &Map<String, Value>) -> bool {
    (request.get("thinking")).is_some_and(|thinking| thinking["type"] == "disabled")
}

/// The chat request of `request`.
///
/// # Errors
/// When vLLM refuses the request, or makes of it what is not known here.
pub(super) fn to_chat(
    mut request: Map<String, Value>,
    probed: TemplateProperties,
) -> Result<Map<String, Value>, NoExactTokens> {
    let mut system = match take(&mut request, "system") {
        None => String::new(),
        Some(Value::String(text)) => text,
        Some(blocks) => system_text(&blocks)?,
    };
    let Some(Value::Array(messages)) = take(&mut request, "messages") else {
        return Err(NoExactTokens::Malformed("messages"));
    };
    let mut chat = Vec::with_capacity(messages.len() + 1);
    for message in messages {
        match message["role"].as_str() {
            Some("system") => {
                let text = system_text(&message["content"])?;
                if probed.takes_system {
                    chat.push(json!({"role": "system", "content": text}));
                } else {
                    system += &text;
                }
            }
            Some(role @ ("user" | "assistant")) => {
                let role = role.to_owned();
                read_message(&role, message, &mut chat)?;
            }
            _ => return Err(NoExactTokens::Malformed("messages")),
        }
    }
    // Inserted only now, because messages further on may have added to it.
    if !system.is_empty() {
        chat.insert(0, json!({"role": "system", "content": system}));
    }
    let mut fields = Map::new();
    set(&mut fields, "messages", Value::Array(chat));
    set(&mut fields, "tools", tools(take(&mut request, "tools"))?);
    let effort = take(&mut request, "output_config").map(|config| config["effort"].clone());
    // A request that disables thinking has its effort replaced.
    let effort = (probed.effort_when_disabled.map(Value::from))
        .or_else(|| effort.filter(|effort| !effort.is_null()));
    set(&mut fields, "reasoning_effort", effort);
    set(&mut fields, "chat_template_kwargs", take(&mut request, "chat_template_kwargs"));
    Ok(fields)
}

/// The texts of a system prompt, without blocks that begin with Claude Code's billing header.
fn system_text(content: &Value) -> Result<String, NoExactTokens> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block["text"].as_str());
            Ok(texts.filter(|text| !text.starts_with(BILLING_HEADER)).collect())
        }
        _ => Err(NoExactTokens::Malformed("system")),
    }
}

/// Contents of one message's blocks, by kind.
#[derive(Default)]
struct MessageBlocks {
    texts: Vec<Value>,
    calls: Vec<Value>,
    reasoning: String,
    results: Vec<Value>,
    media: Vec<Value>,
}

fn read_message(
    role: &str,
    mut message: Value,
    chat: &mut Vec<Value>,
) -> Result<(), NoExactTokens> {
    let blocks = match message["content"].take() {
        Value::Array(blocks) => blocks,
        text @ Value::String(_) => {
            chat.push(json!({"role": role, "content": text}));
            return Ok(());
        }
        _ => return Err(NoExactTokens::Malformed("content")),
    };
    let mut read = MessageBlocks::default();
    for block in blocks {
        read.add(role, block)?;
    }
    // Results answer the calls of the message before, so they precede the user's text.
    chat.append(&mut read.results);
    // vLLM puts media after all texts of the message.
    read.texts.append(&mut read.media);
    let mut message = json!({"role": role});
    match &read.texts[..] {
        [] => {}
        [one] if one["type"] == "text" => message["content"] = one["text"].clone(),
        _ => message["content"] = read.texts.clone().into(),
    }
    if role == "assistant" {
        if !read.reasoning.is_empty() {
            message["reasoning"] = read.reasoning.into();
        }
        if !read.calls.is_empty() {
            message["tool_calls"] = read.calls.into();
        }
        // Kept without content too: the message may hold calls only.
        chat.push(message);
    } else if !read.texts.is_empty() {
        chat.push(message);
    }
    Ok(())
}

impl MessageBlocks {
    fn add(&mut self, role: &str, mut block: Value) -> Result<(), NoExactTokens> {
        let malformed = NoExactTokens::Malformed("content");
        let is_assistant = role == "assistant";
        match block["type"].as_str() {
            Some("text") => match block["text"].as_str() {
                Some("") => {}
                Some(text) => self.texts.push(json!({"type": "text", "text": text})),
                None => return Err(malformed),
            },
            Some("image") => self.media.push(json!({"type": "image_url", "image_url": {}})),
            Some("thinking") => self.reasoning += block["thinking"].as_str().unwrap_or_default(),
            Some("redacted_thinking") => {}
            Some("tool_use") => {
                // vLLM makes an id from the time, and the prompt may hold it.
                if !block["id"].is_string() {
                    return Err(NoExactTokens::Unsupported("tool_use"));
                }
                let input = match block["input"].take() {
                    Value::Null => json!({}),
                    input => input,
                };
                self.calls.push(json!({
                    "id": block["id"],
                    "type": "function",
                    "function": {"name": block["name"], "arguments": input.to_string()},
                }));
            }
            Some("tool_result") if is_assistant => {
                let Value::String(text) = &block["content"] else {
                    return Err(NoExactTokens::Unsupported("tool_result"));
                };
                let text = format!("Tool result: {text}");
                self.texts.push(json!({"type": "text", "text": text}));
            }
            Some("tool_result") => self.add_result(&block)?,
            _ => return Err(malformed),
        }
        Ok(())
    }

    fn add_result(&mut self, block: &Value) -> Result<(), NoExactTokens> {
        let id = block["tool_use_id"].as_str().unwrap_or_default();
        let tool = |content: Value| json!({"role": "tool", "tool_call_id": id, "content": content});
        let parts = match &block["content"] {
            Value::Null => &[][..],
            Value::String(text) => {
                self.results.push(tool(text.as_str().into()));
                return Ok(());
            }
            Value::Array(parts) => parts,
            _ => return Err(NoExactTokens::Malformed("tool_result")),
        };
        let (mut texts, mut references) = (Vec::new(), Vec::new());
        for part in parts {
            match part["type"].as_str() {
                Some("text") => texts.extend(part["text"].as_str()),
                Some("tool_reference") => {
                    let name = &part["tool_name"];
                    references.push(json!({"type": "tool_reference", "name": name}));
                }
                Some("image") => self.media.push(json!({"type": "image_url", "image_url": {}})),
                _ => return Err(NoExactTokens::Malformed("tool_result")),
            }
        }
        // This message is sent even where its text is empty, and comes before the references.
        self.results.push(tool(texts.join("\n").into()));
        if !references.is_empty() {
            self.results.push(tool(references.into()));
        }
        Ok(())
    }
}

fn tools(tools: Option<Value>) -> Result<Option<Value>, NoExactTokens> {
    let tools = match tools {
        None => return Ok(None),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(NoExactTokens::Malformed("tools")),
    };
    let chat = |tool: Value| {
        let mut tool = object(tool, "tools")?;
        let mut schema = object(take(&mut tool, "input_schema"), "tools")?;
        schema.entry("type").or_insert_with(|| "object".into());
        let mut function = Map::new();
        set(&mut function, "name", take(&mut tool, "name"));
        set(&mut function, "parameters", Value::Object(schema));
        for name in ["description", "strict", "defer_loading"] {
            set(&mut function, name, take(&mut tool, name));
        }
        Ok(Value::Object(function_tool(function)))
    };
    let tools: Result<Vec<_>, _> = tools.into_iter().map(chat).collect();
    Ok(Some(tools?).filter(|tools| !tools.is_empty()).map(Value::from))
}
