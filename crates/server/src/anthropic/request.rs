//! Requests of the Messages API, converted to a conversation in OpenAI's form. vLLM converts them
//! the same way.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::conversation::{TemplateInput, text_message, tool_call, tool_result};
use crate::openai::fields::Fields;
use crate::openai::request::{
    function_tools, missing, model, sampling, session, set_reasoning_effort, stop,
    template_variables, tokens,
};
use crate::openai::{ApiError, ChatRequest};

/// Most stop strings. Anthropic documents no limit.
const STOPS: usize = 16;

/// Request fields that have no effect on the answer here, such as region and speed.
const HINTS: &[&str] =
    &["cache_control", "diagnostics", "inference_geo", "speed", "user_profile_id", "betas"];

/// The line that Claude Code puts before its system prompt. It differs from request to request, so
/// no prefix behind it would ever be found again; vLLM leaves it out as well.
const BILLING_LINE: &str = "x-anthropic-billing-header";

/// Parses a body of `POST /v1/messages`; whatever is not supported is refused by name.
///
/// # Errors
/// Names the parameter.
pub fn parse(body: &[u8]) -> Result<ChatRequest, ApiError> {
    let mut fields = Fields::parse(body)?;
    let max_tokens = tokens(&mut fields, "max_tokens")?
        .ok_or_else(|| missing("max_tokens", "the longest answer to generate, in tokens"))?;
    let mut generation = sampling(&mut fields)?;
    generation.max_tokens = Some(max_tokens);
    generation.stop = stop(fields.take("stop_sequences"), "stop_sequences", STOPS)?;
    let user = fields.take("metadata").map(|metadata| metadata["user_id"].clone());
    let user = user.and_then(|id| id.as_str().map(str::to_owned));
    generation.session = session(&mut fields, user)?;
    let conversation = conversation(&mut fields)?;
    if let Some(message) = conversation.messages.as_array().and_then(|messages| messages.last())
        && message["role"] == "assistant"
    {
        let error = "`messages` must end with a user message: this server does not continue \
                     an answer that the request begins";
        return Err(ApiError::invalid("messages", error));
    }
    generation.turn = conversation.turn();
    refuse_rest(fields)?;
    Ok(ChatRequest { generation, conversation })
}

/// Parses the body of `POST /v1/messages/count_tokens`: the model and the conversation.
///
/// # Errors
/// Names the parameter.
pub fn parse_count(body: &[u8]) -> Result<(String, TemplateInput), ApiError> {
    let mut fields = Fields::parse(body)?;
    let model = model(&mut fields)?;
    let conversation = conversation(&mut fields)?;
    // They change the answer and not the prompt, and some clients send one body to both routes.
    fields.ignore(&[
        "max_tokens",
        "stop_sequences",
        "temperature",
        "top_p",
        "top_k",
        "metadata",
        "stream",
    ]);
    refuse_rest(fields)?;
    Ok((model, conversation))
}

/// Refuses what is left and would change the answer.
fn refuse_rest(mut fields: Fields) -> Result<(), ApiError> {
    fields.ignore(HINTS);
    check_context_management(fields.take("context_management"))?;
    fields.refuse_rest(&[
        ("service_tier", &[json!("auto"), json!("standard_only")]),
        ("mcp_servers", &[json!([])]),
    ])
}

/// Edits that clear earlier thinking are left to the chat template, which drops it or keeps it.
fn check_context_management(value: Option<Value>) -> Result<(), ApiError> {
    let edits = value.map(|management| management["edits"].clone()).unwrap_or_default();
    for edit in edits.as_array().into_iter().flatten() {
        let kind = edit["type"].as_str().unwrap_or_default();
        if !kind.starts_with("clear_thinking_") {
            let name = format!("context_management.edits: {kind}");
            return Err(ApiError::unsupported(&name, ""));
        }
    }
    Ok(())
}

fn conversation(fields: &mut Fields) -> Result<TemplateInput, ApiError> {
    let mut list = Vec::new();
    if let Some(system) = fields.take("system") {
        let text = system_text(&system, "system")?;
        if !text.is_empty() {
            list.push(text_message("system", &text));
        }
    }
    let num_before = list.len();
    let Some(Value::Array(messages)) = fields.take("messages") else {
        return Err(missing("messages", "an array of messages"));
    };
    for (index, message) in messages.iter().enumerate() {
        push_message(&mut list, message, &format!("messages[{index}]"))?;
    }
    if list.len() == num_before {
        let error = "`messages` must hold at least one message with a content";
        return Err(ApiError::invalid("messages", error));
    }
    check_tool_choice(fields.take("tool_choice"))?;
    Ok(TemplateInput {
        messages: list.into(),
        tools: tools(fields.take("tools"))?,
        variables: variables(fields)?,
    })
}

/// The text blocks of a system prompt, one behind the other.
fn system_text(content: &Value, at: &str) -> Result<String, ApiError> {
    let mut all = String::new();
    for block in blocks(content, at)? {
        match (kind(&block), block["text"].as_str()) {
            ("text", Some(text)) if text.starts_with(BILLING_LINE) => {}
            ("text", Some(text)) => all.push_str(text),
            _ => return Err(unknown_block(&block, at)),
        }
    }
    Ok(all)
}

/// Adds what one message says. A user message may hold results of tools, which are messages of
/// their own in OpenAI's form and come before the rest of it.
fn push_message(list: &mut Vec<Value>, message: &Value, at: &str) -> Result<(), ApiError> {
    let role = message["role"].as_str().unwrap_or_default();
    let content = &message["content"];
    match role {
        "system" => {
            let text = system_text(content, at)?;
            list.push(text_message(role, &text));
        }
        "user" => {
            let mut texts = Vec::new();
            for block in blocks(content, at)? {
                match kind(&block) {
                    "text" => texts.push(field(&block, "text", at)?.to_owned()),
                    "tool_result" => {
                        let id = field(&block, "tool_use_id", at)?;
                        list.push(tool_result(id, &result_text(&block["content"], at)?));
                    }
                    _ => return Err(unknown_block(&block, at)),
                }
            }
            texts.retain(|text| !text.is_empty());
            if !texts.is_empty() {
                list.push(text_message(role, &texts.join("\n")));
            }
        }
        "assistant" => list.push(earlier_answer(content, at)?),
        _ => {
            let error = format!("`{at}.role` must be \"user\" or \"assistant\"");
            return Err(ApiError::invalid(at, error));
        }
    }
    Ok(())
}

/// A message of the model with its text, its tool calls and its reasoning.
fn earlier_answer(content: &Value, at: &str) -> Result<Value, ApiError> {
    let (mut texts, mut calls, mut reasoning) = (Vec::new(), Vec::new(), String::new());
    for block in blocks(content, at)? {
        match kind(&block) {
            "text" => texts.push(field(&block, "text", at)?.to_owned()),
            "thinking" => reasoning.push_str(field(&block, "thinking", at)?),
            // Only Anthropic can read it.
            "redacted_thinking" => {}
            "tool_use" => {
                let id = field(&block, "id", at)?;
                let name = field(&block, "name", at)?;
                let input = match &block["input"] {
                    Value::Null => json!({}),
                    input => input.clone(),
                };
                calls.push(tool_call(id, name, input));
            }
            _ => return Err(unknown_block(&block, at)),
        }
    }
    texts.retain(|text| !text.is_empty());
    let mut message = text_message("assistant", &texts.join("\n"));
    if !reasoning.is_empty() {
        message["reasoning"] = reasoning.as_str().into();
        message["reasoning_content"] = reasoning.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    Ok(message)
}

/// Joins a tool result into one text. The content is a string, text blocks or null.
fn result_text(content: &Value, at: &str) -> Result<String, ApiError> {
    if content.is_null() {
        return Ok(String::new());
    }
    let mut lines = Vec::new();
    for block in blocks(content, at)? {
        match kind(&block) {
            "text" => lines.push(field(&block, "text", at)?.to_owned()),
            _ => return Err(unknown_block(&block, at)),
        }
    }
    Ok(lines.join("\n"))
}

/// The blocks of a content. A string is one text block.
fn blocks<'a>(content: &'a Value, at: &str) -> Result<Vec<Cow<'a, Value>>, ApiError> {
    match content {
        Value::String(text) => Ok(vec![Cow::Owned(json!({"type": "text", "text": text}))]),
        Value::Array(blocks) => Ok(blocks.iter().map(Cow::Borrowed).collect()),
        _ => {
            let error = format!("`{at}` needs a content: a string or an array of content blocks");
            Err(ApiError::invalid(at, error))
        }
    }
}

fn kind(block: &Value) -> &str {
    block["type"].as_str().unwrap_or("a block without a type")
}

fn field<'a>(block: &'a Value, name: &str, at: &str) -> Result<&'a str, ApiError> {
    block[name].as_str().ok_or_else(|| {
        let error = format!("`{at}.content`: a {} needs a string `{name}`", kind(block));
        ApiError::invalid(at, error)
    })
}

fn unknown_block(block: &Value, at: &str) -> ApiError {
    ApiError::unsupported(&format!("{at}.content: {}", kind(block)), "")
}

/// The model may call a tool and need not; a forced call is refused.
fn check_tool_choice(value: Option<Value>) -> Result<(), ApiError> {
    match value.as_ref().map(|choice| &choice["type"]) {
        None => Ok(()),
        Some(kind) if kind == "auto" || kind == "none" => Ok(()),
        Some(_) => {
            let hint = " beyond the types \"auto\" and \"none\": this server cannot force a call";
            Err(ApiError::unsupported("tool_choice", hint))
        }
    }
}

/// Tools in OpenAI's form. Tools that Anthropic's own servers run (they have a `type` such as
/// `web_search_20250305` and no schema) are not shown to the model, which so calls none of them.
fn tools(value: Option<Value>) -> Result<Option<Value>, ApiError> {
    function_tools(value, "{\"name\": …, \"input_schema\": {…}}", |mut tool| {
        if !matches!(tool["type"].as_str(), None | Some("custom")) {
            return Some(None);
        }
        if !tool["name"].is_string() || !tool["input_schema"].is_object() {
            return None;
        }
        let mut function = Map::new();
        function.insert("name".to_owned(), tool["name"].take());
        if tool["description"].is_string() {
            function.insert("description".to_owned(), tool["description"].take());
        }
        function.insert("parameters".to_owned(), tool["input_schema"].take());
        Some(Some(function))
    })
}

/// Reads the thinking settings as template variables. A token budget for thinking is not enforced:
/// `max_tokens` limits thinking and answer together.
fn variables(fields: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    let mut variables = template_variables(fields)?;
    let mut effort = None;
    if let Some(config) = fields.take("output_config") {
        let mut config = Fields::of(config, "output_config")?;
        effort = config.string("effort")?;
        config.refuse_rest(&[])?;
    }
    match fields.take("thinking") {
        Some(thinking) if thinking["type"] == "disabled" => effort = Some("none".to_owned()),
        Some(thinking) if thinking["type"] == "enabled" => {
            variables.entry("enable_thinking").or_insert_with(|| true.into());
        }
        // `adaptive` leaves it to the model.
        _ => {}
    }
    set_reasoning_effort(&mut variables, effort);
    Ok(variables)
}

#[cfg(test)]
mod tests;
