//! Requests of OpenAI's chat and completions APIs.

use headstart_core::{FinishKind, TokenId, ToolClass};
use headstart_prompt::dialect::function_tool;
use serde_json::{Map, Value, json};

use super::ApiError;
use super::fields::Fields;
pub use super::messages::flat_content;
use super::messages::messages;
use crate::conversation::TemplateInput;

/// Most stop strings, as OpenAI documents.
const STOPS: usize = 4;

/// Longest stop string, bytes: bounds what a stream holds back.
const STOP_BYTES: usize = 1024;

/// Longest salt or session key, bytes.
pub const KEY_BYTES: usize = 512;

/// Hints to other servers' caches, logs and tool loops. They change no answer here.
pub const HINTS: &[&str] = &[
    "prompt_cache_retention",
    "prompt_cache_options",
    "prediction",
    "metadata",
    "store",
    "safety_identifier",
    "verbosity",
    "cache_control",
    "parallel_tool_calls",
];

/// The service tiers that OpenAI documents; there is one here.
pub const SERVICE_TIERS: [&str; 6] = ["auto", "default", "flex", "scale", "priority", "fast"];

/// Fields common to chat and plain completions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    /// The model asked for.
    pub model: String,
    /// Whether to answer piece by piece.
    pub stream: bool,
    /// Pieces of a stream that have token counts.
    pub stream_usage: StreamUsage,
    /// Most tokens to generate; 0 only makes the prompt ready (an extension): it is placed,
    /// loaded or computed, and cached like any other.
    pub max_tokens: Option<usize>,
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// Nucleus.
    pub top_p: Option<f32>,
    /// Candidates; 0 is no limit (an extension that vLLM and SGLang have too).
    pub top_k: Option<usize>,
    /// Fixes the draws.
    pub seed: Option<u64>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Whether the model's end token is a token like others (vLLM's extension).
    pub ignore_eos: bool,
    /// 1-based index of the user message it answers; 0 where there are no messages.
    pub turn: u16,
    /// Tenant salt (vLLM's extension).
    pub cache_salt: Option<String>,
    /// The key of `session` routing, unless a header gives one: the prompt's cache key, else the
    /// end user.
    pub session: Option<String>,
    /// The end that `metadata.finish` says the answer had, when a recorded request is sent again
    /// (an extension): eviction policies learn from it.
    pub recorded_finish: FinishKind,
    /// The class of the tools that `metadata.tool` says it called, from 1 to 63.
    pub recorded_tool: ToolClass,
}

/// Pieces of a stream that have token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamUsage {
    /// None.
    #[default]
    Omit,
    /// One at the end.
    AtEnd,
    /// Each one (vLLM's extension).
    Continuous,
}

/// `POST /v1/chat/completions`.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// Everything but the prompt.
    pub generation: Generation,
    /// The prompt.
    pub conversation: TemplateInput,
}

/// `POST /v1/completions`.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// Everything but the prompt.
    pub generation: Generation,
    /// The prompt.
    pub prompt: PromptInput,
}

/// A plain prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptInput {
    /// To be tokenized.
    Text(String),
    /// Token ids.
    Tokens(Vec<TokenId>),
}

impl ChatRequest {
    /// Parses a body; whatever is not supported is refused by name.
    ///
    /// # Errors
    /// OpenAI-shaped, naming the parameter.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let mut generation = generation(&mut fields, "max_completion_tokens")?;
        let conversation = TemplateInput {
            messages: messages(fields.take("messages"))?,
            tools: tools(&mut fields)?,
            variables: variables(&mut fields)?,
        };
        generation.turn = conversation.turn();
        fields.ignore(HINTS);
        service_tier(&mut fields)?;
        fields.refuse_rest(&[
            ("n", &[json!(1)]),
            ("presence_penalty", &[json!(0)]),
            ("frequency_penalty", &[json!(0)]),
            ("repetition_penalty", &[json!(1)]),
            ("min_p", &[json!(0)]),
            ("logprobs", &[json!(false)]),
            ("top_logprobs", &[json!(0)]),
            ("logit_bias", &[json!({})]),
            ("response_format", &[json!({"type": "text"})]),
            ("functions", &[json!([])]),
            ("function_call", &[json!("auto"), json!("none")]),
            ("modalities", &[json!(["text"])]),
            ("add_generation_prompt", &[json!(true)]),
            ("continue_final_message", &[json!(false)]),
        ])?;
        Ok(Self { generation, conversation })
    }
}

impl CompletionRequest {
    /// Parses a body; whatever is not supported is refused by name.
    ///
    /// # Errors
    /// OpenAI-shaped, naming the parameter.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        let generation = generation(&mut fields, "max_tokens")?;
        let prompt = prompt(fields.take("prompt"))?;
        fields.ignore(HINTS);
        service_tier(&mut fields)?;
        fields.refuse_rest(&[
            ("n", &[json!(1)]),
            ("best_of", &[json!(1)]),
            ("echo", &[json!(false)]),
            ("presence_penalty", &[json!(0)]),
            ("frequency_penalty", &[json!(0)]),
            ("repetition_penalty", &[json!(1)]),
            ("min_p", &[json!(0)]),
            ("logit_bias", &[json!({})]),
            ("suffix", &[json!("")]),
        ])?;
        Ok(Self { generation, prompt })
    }
}

/// The fields of a chat or completion request that are not its prompt.
fn generation(fields: &mut Fields, limit_name: &str) -> Result<Generation, ApiError> {
    let mut generation = sampling(fields)?;
    generation.stream_usage = stream_options(fields.take("stream_options"), generation.stream)?;
    let mut max_tokens = tokens(fields, "max_tokens")?;
    if limit_name != "max_tokens" {
        // `max_completion_tokens` replaces `max_tokens` in OpenAI's API, so it wins.
        max_tokens = tokens(fields, limit_name)?.or(max_tokens);
    }
    generation.stop = stop(fields.take("stop"), "stop", STOPS)?;
    let ignore_eos = fields.boolean("ignore_eos")?.unwrap_or(false);
    if let Some(min_tokens) = tokens(fields, "min_tokens")? {
        let may_end_early = !ignore_eos || !generation.stop.is_empty();
        check_min_tokens(min_tokens, max_tokens, may_end_early)?;
    }
    generation.ignore_eos = ignore_eos;
    generation.max_tokens = max_tokens;
    generation.session = session(fields, None)?;
    let metadata = fields.get("metadata");
    let finish = metadata.and_then(|metadata| metadata["finish"].as_str());
    generation.recorded_finish = finish.map_or(FinishKind::Unknown, FinishKind::from_reason);
    // OpenAI's clients send metadata as texts.
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
    let tool = metadata.and_then(|metadata| number(&metadata["tool"]));
    let tool = tool.and_then(|tool| ToolClass::from_number(u8::try_from(tool).ok()?));
    generation.recorded_tool = tool.unwrap_or_default();
    Ok(generation)
}

/// Limits of a number of tokens.
const TOKENS: std::ops::RangeInclusive<i64> = 0..=u32::MAX as i64;

/// The fields that all APIs have under the same names.
///
/// # Errors
/// When the model is missing or a value is out of its range.
pub(crate) fn sampling(fields: &mut Fields) -> Result<Generation, ApiError> {
    Ok(Generation {
        model: model(fields)?,
        stream: fields.boolean("stream")?.unwrap_or(false),
        temperature: fields.number("temperature", 0.0..=2.0)?.map(|number| number as f32),
        top_p: fields.number("top_p", 0.0..=1.0)?.map(|number| number as f32),
        // As in vLLM, -1 is no limit; 0 means the same here.
        top_k: fields.integer("top_k", -1..=i64::from(u32::MAX))?.map(|k| k.max(0) as usize),
        // Any 64-bit number is a seed. A negative one keeps its bits.
        seed: fields.integer("seed", i64::MIN..=i64::MAX)?.map(|seed| seed as u64),
        cache_salt: key(fields, "cache_salt")?,
        ..Generation::default()
    })
}

/// The key of `session` routing: `prompt_cache_key`, else `metadata_user` (Anthropic's
/// `metadata.user_id`), else `user`. The first and the last are taken from `fields`.
///
/// # Errors
/// When one of the fields is no string.
pub(crate) fn session(
    fields: &mut Fields,
    metadata_user: Option<String>,
) -> Result<Option<String>, ApiError> {
    let cache_key = fields.string("prompt_cache_key")?;
    // Some clients send whole objects as their cache key or user id. Those name no session.
    let short = |text: &String| (1..=KEY_BYTES).contains(&text.len());
    let user = fields.string("user")?.filter(|user| !user.is_empty());
    if user.as_ref().is_some_and(|user| user.len() > KEY_BYTES) {
        let message = format!("`user` must have at most {KEY_BYTES} bytes");
        return Err(ApiError::invalid("user", message));
    }
    let hint = cache_key.filter(short).or(metadata_user.filter(short));
    Ok(hint.or(user))
}

/// Takes `tool_choice`: a forced call is refused.
pub(crate) fn check_tool_choice(fields: &mut Fields) -> Result<(), ApiError> {
    match fields.take("tool_choice") {
        None => Ok(()),
        Some(Value::String(choice)) if choice == "auto" || choice == "none" => Ok(()),
        Some(_) => {
            let hint = " beyond \"auto\" or \"none\": this server cannot force a tool call";
            Err(ApiError::unsupported("tool_choice", hint))
        }
    }
}

/// Takes `tools` and `tool_choice`. The model may call a tool and need not; a forced call is
/// refused.
fn tools(fields: &mut Fields) -> Result<Option<Value>, ApiError> {
    check_tool_choice(fields)?;
    match fields.take("tools") {
        None => Ok(None),
        Some(Value::Array(tools)) if tools.is_empty() => Ok(None),
        Some(Value::Array(mut tools))
            if tools.iter().all(|tool| tool["function"]["name"].is_string()) =>
        {
            tools.iter_mut().for_each(drop_hints);
            Ok(Some(tools.into()))
        }
        Some(_) => {
            let message = "`tools` must be an array of {\"type\": \"function\", \"function\": \
                           {\"name\": …}}";
            Err(ApiError::invalid("tools", message))
        }
    }
}

/// Tools of another API, whose entries have `form`. `function` makes the function of an entry. It
/// returns `Some(None)` for a tool that is left out, and `None` for an entry of another form.
pub(crate) fn function_tools(
    value: Option<Value>,
    form: &str,
    function: impl Fn(Value) -> Option<Option<Map<String, Value>>>,
) -> Result<Option<Value>, ApiError> {
    let wrong = || ApiError::invalid("tools", format!("`tools` must be an array of {form}"));
    let tools = match value {
        None => return Ok(None),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(wrong()),
    };
    let mut list = Vec::new();
    for tool in tools {
        let function = function(tool).ok_or_else(wrong)?;
        list.extend(function.map(|one| Value::Object(function_tool(one))));
    }
    Ok((!list.is_empty()).then(|| list.into()))
}

/// Takes a tool's hint where to cache, which is no part of the prompt.
fn drop_hints(tool: &mut Value) {
    let places = ["", "/function"];
    for place in places {
        if let Some(Value::Object(fields)) = tool.pointer_mut(place) {
            fields.shift_remove("cache_control");
        }
    }
}

/// Further variables of the chat template. As in vLLM, `reasoning_effort` also turns thinking on or
/// off, unless `chat_template_kwargs` does.
fn variables(fields: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    let mut variables = template_variables(fields)?;
    set_reasoning_effort(&mut variables, fields.string("reasoning_effort")?);
    Ok(variables)
}

/// Takes the variables of the chat template that a request sets by itself.
pub(crate) fn template_variables(fields: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    match fields.take("chat_template_kwargs") {
        None => Ok(Map::new()),
        Some(Value::Object(variables)) => Ok(variables),
        Some(_) => {
            let message = "`chat_template_kwargs` must be an object";
            Err(ApiError::invalid("chat_template_kwargs", message))
        }
    }
}

/// Tells the chat template how much to think.
pub(crate) fn set_reasoning_effort(variables: &mut Map<String, Value>, effort: Option<String>) {
    if let Some(effort) = effort {
        let is_thinking = effort != "none";
        variables.entry("enable_thinking").or_insert(is_thinking.into());
        variables.insert("reasoning_effort".to_owned(), effort.into());
    }
}

/// Takes `service_tier`: one that is documented.
///
/// # Errors
/// When it is something else.
pub(crate) fn service_tier(fields: &mut Fields) -> Result<(), ApiError> {
    match fields.string("service_tier")? {
        Some(tier) if !SERVICE_TIERS.contains(&&*tier) => {
            let message = format!("`service_tier` must be one of {}", SERVICE_TIERS.join(", "));
            Err(ApiError::invalid("service_tier", message))
        }
        _ => Ok(()),
    }
}

/// Takes the model's name.
pub(crate) fn model(fields: &mut Fields) -> Result<String, ApiError> {
    fields.string("model")?.ok_or_else(|| missing("model", "GET /v1/models lists the names"))
}

/// Takes a number of tokens.
pub(crate) fn tokens(fields: &mut Fields, name: &str) -> Result<Option<usize>, ApiError> {
    Ok(fields.integer(name, TOKENS)?.map(|number| number as usize))
}

/// vLLM's extension, as far as it holds by itself: an answer that nothing but its limit can end
/// is as long as that.
fn check_min_tokens(
    min_tokens: usize,
    max_tokens: Option<usize>,
    may_end_early: bool,
) -> Result<(), ApiError> {
    match max_tokens {
        _ if min_tokens == 0 => Ok(()),
        _ if may_end_early => {
            let hint = " without `ignore_eos: true`, or together with `stop`";
            Err(ApiError::unsupported("min_tokens", hint))
        }
        Some(max_tokens) if min_tokens <= max_tokens => Ok(()),
        _ => {
            let message = "`min_tokens` needs a `max_tokens` that is no smaller";
            Err(ApiError::invalid("min_tokens", message))
        }
    }
}

/// The error for a required parameter that is not there.
#[must_use]
pub fn missing(param: &str, hint: &str) -> ApiError {
    let error = ApiError::invalid(param, format!("`{param}` is required ({hint})"));
    ApiError { code: "missing_required_parameter", ..error }
}

fn key(fields: &mut Fields, name: &str) -> Result<Option<String>, ApiError> {
    let text = fields.string(name)?;
    match &text {
        Some(text) if text.is_empty() || text.len() > KEY_BYTES => {
            Err(ApiError::invalid(name, format!("`{name}` must have 1 to {KEY_BYTES} bytes")))
        }
        _ => Ok(text),
    }
}

fn stream_options(value: Option<Value>, stream: bool) -> Result<StreamUsage, ApiError> {
    let Some(value) = value else {
        return Ok(StreamUsage::Omit);
    };
    if !stream {
        let message = "`stream_options` needs `stream: true`";
        return Err(ApiError::invalid("stream_options", message));
    }
    let mut options = Fields::of(value, "stream_options")?;
    let include = options.boolean("include_usage")?.unwrap_or(false);
    let is_continuous = options.boolean("continuous_usage_stats")?.unwrap_or(false);
    options.boolean("include_obfuscation")?;
    options.refuse_rest(&[])?;
    // As in vLLM, the second option does nothing without the first.
    Ok(match (include, is_continuous) {
        (true, true) => StreamUsage::Continuous,
        (true, false) => StreamUsage::AtEnd,
        (false, _) => StreamUsage::Omit,
    })
}

/// Stop strings from the field `name`, at most `limit`.
///
/// # Errors
/// When there are more, or one is empty, too long or no string.
pub(crate) fn stop(
    value: Option<Value>,
    name: &str,
    limit: usize,
) -> Result<Vec<String>, ApiError> {
    let texts = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(values)) => values,
        Some(other) => vec![other],
    };
    let text = |value: Value| match value {
        Value::String(text) if (1..=STOP_BYTES).contains(&text.len()) => Ok(text),
        _ => {
            let message = format!("each `{name}` must be a string of 1 to {STOP_BYTES} bytes");
            Err(ApiError::invalid(name, message))
        }
    };
    if texts.len() > limit {
        let message = format!("at most {limit} `{name}` strings are taken");
        return Err(ApiError::invalid(name, message));
    }
    texts.into_iter().map(text).collect()
}

/// A prompt as text or tokens.
///
/// # Errors
/// When it is neither, or several.
pub fn prompt(value: Option<Value>) -> Result<PromptInput, ApiError> {
    let wrong = || {
        let message = "`prompt` must be a non-empty string or array of token ids; several \
                       prompts in one request are not supported";
        ApiError::invalid("prompt", message)
    };
    let token = |value: &Value| value.as_u64().and_then(|id| TokenId::try_from(id).ok());
    match value {
        None => Err(missing("prompt", "a string or an array of token ids")),
        Some(Value::String(text)) if !text.is_empty() => Ok(PromptInput::Text(text)),
        Some(Value::Array(values)) if values.len() == 1 && !values[0].is_number() => {
            match &values[0] {
                // One prompt in a list. Its own elements must not be lists again.
                Value::Array(ids) if ids.iter().all(Value::is_number) => {}
                Value::String(_) => {}
                _ => return Err(wrong()),
            }
            prompt(values.into_iter().next())
        }
        Some(Value::Array(values)) if !values.is_empty() => {
            let tokens: Option<Vec<_>> = values.iter().map(token).collect();
            tokens.map(PromptInput::Tokens).ok_or_else(wrong)
        }
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: Value, expected: Result<(), (&str, &str)>) {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        for (name, value) in change.as_object().expect("an object") {
            body[name] = value.clone();
        }
        match (ChatRequest::parse(body.to_string().as_bytes()), expected) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err((param, code))) => {
                assert_eq!((error.param.as_deref(), error.code), (Some(param), code), "{error:?}");
                assert!(error.message.contains('`'), "{error:?} names what is wrong");
            }
            (got, expected) => panic!("{change}: {got:?} against {expected:?}"),
        }
    }

    #[test]
    fn the_turn_counts_user_messages() {
        let said = |role: &str| json!({"role": role, "content": "x"});
        for (roles, expected) in
            [(&["user"][..], 1), (&["system", "user", "assistant", "user"], 2), (&["system"], 1)]
        {
            let messages: Vec<_> = roles.iter().map(|role| said(role)).collect();
            let body = json!({"model": "m", "messages": messages}).to_string();
            let request = ChatRequest::parse(body.as_bytes()).expect("a request");
            assert_eq!(request.generation.turn, expected, "{roles:?}");
        }
    }

    #[test]
    fn parameters_are_taken_or_refused_by_name() {
        check(json!({}), Ok(()));
        check(json!({"temperature": 0, "top_p": 1, "seed": -3, "stop": "x", "n": 1}), Ok(()));
        check(json!({"presence_penalty": 0.0, "tools": [], "logit_bias": null}), Ok(()));
        check(json!({"stream": true, "stream_options": {"include_usage": true}}), Ok(()));
        let bad = |param, code| Err((param, code));
        check(json!({"n": 2}), bad("n", "unsupported_parameter"));
        check(json!({"presence_penalty": 0.5}), bad("presence_penalty", "unsupported_parameter"));
        let tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
        for choice in [json!("auto"), json!("none"), Value::Null] {
            check(json!({"tools": [tool], "tool_choice": choice}), Ok(()));
        }
        for choice in [json!("required"), json!({"type": "function"})] {
            check(
                json!({"tools": [tool], "tool_choice": choice}),
                bad("tool_choice", "unsupported_parameter"),
            );
        }
        check(json!({"tools": [{}]}), bad("tools", "invalid_value"));
        check(
            json!({
                "prompt_cache_key": "k", "prompt_cache_retention": "24h", "metadata": {"a": "b"},
                "store": true, "safety_identifier": "s", "verbosity": "low",
                "service_tier": "flex", "cache_control": {"type": "ephemeral"},
                "parallel_tool_calls": false, "reasoning_effort": "low",
                "chat_template_kwargs": {"enable_thinking": false},
                "stream": true, "stream_options": {
                    "include_usage": true, "continuous_usage_stats": true,
                    "include_obfuscation": false,
                },
            }),
            Ok(()),
        );
        check(json!({"service_tier": "gold"}), bad("service_tier", "invalid_value"));
        check(json!({"chat_template_kwargs": 1}), bad("chat_template_kwargs", "invalid_value"));
        check(
            json!({"response_format": {"type": "json_schema"}}),
            bad("response_format", "unsupported_parameter"),
        );
        check(
            json!({"stream": true, "stream_options": {"x": 1}}),
            bad("stream_options.x", "unsupported_parameter"),
        );
        check(json!({"made_up": 1}), bad("made_up", "unsupported_parameter"));
        check(json!({"temperature": "hot"}), bad("temperature", "invalid_value"));
        check(json!({"temperature": 3}), bad("temperature", "invalid_value"));
        check(json!({"top_p": -1}), bad("top_p", "invalid_value"));
        check(json!({"max_tokens": 0}), Ok(()));
        check(json!({"max_tokens": -1}), bad("max_tokens", "invalid_value"));
        check(json!({"max_completion_tokens": 1.5}), bad("max_completion_tokens", "invalid_value"));
        check(json!({"stop": ["a", "b", "c", "d", "e"]}), bad("stop", "invalid_value"));
        check(json!({"stop": [""]}), bad("stop", "invalid_value"));
        check(json!({"stream_options": {}}), bad("stream_options", "invalid_value"));
        let forced =
            |min: u32| json!({"ignore_eos": true, "min_tokens": min, "max_completion_tokens": 5});
        check(forced(5), Ok(()));
        check(forced(6), bad("min_tokens", "invalid_value"));
        check(json!({"ignore_eos": true, "min_tokens": 5}), bad("min_tokens", "invalid_value"));
        check(json!({"min_tokens": 0, "stop": "x"}), Ok(()));
        check(
            json!({"min_tokens": 5, "max_tokens": 5}),
            bad("min_tokens", "unsupported_parameter"),
        );
        check(
            json!({"min_tokens": 5, "max_tokens": 5, "ignore_eos": true, "stop": "x"}),
            bad("min_tokens", "unsupported_parameter"),
        );
        check(json!({"model": null}), bad("model", "missing_required_parameter"));
        check(json!({"messages": []}), bad("messages", "invalid_value"));
        check(json!({"messages": [1]}), bad("messages[0]", "invalid_value"));
        check(json!({"messages": [{"role": "user"}]}), bad("messages[0]", "invalid_value"));
    }

    #[test]
    fn text_parts_are_joined_and_images_refused() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let body = json!({"model": "m", "messages": [{"role": "user", "content": parts}]});
        let request = ChatRequest::parse(body.to_string().as_bytes()).expect("parses");
        assert_eq!(request.conversation.messages[0]["content"], "a\nb");
        let image = json!([{"role": "user", "content": [{"type": "image_url"}]}]);
        let param = "messages[0].content: image_url";
        check(json!({"messages": image}), Err((param, "unsupported_parameter")));
    }

    #[test]
    fn hints_at_tools_are_no_part_of_the_prompt() {
        let hint = json!({"type": "ephemeral"});
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": [
            {"type": "function", "cache_control": hint,
             "function": {"name": "f", "cache_control": hint}},
        ]});
        let request = ChatRequest::parse(body.to_string().as_bytes()).expect("it is taken");
        let tools = json!([{"type": "function", "function": {"name": "f"}}]);
        assert_eq!(request.conversation.tools, Some(tools));
    }

    #[test]
    fn a_recorded_end_is_read_and_nothing_else_of_metadata() {
        let recorded = |metadata: Value| {
            let mut body = json!({"model": "m", "prompt": "p"});
            body["metadata"] = metadata;
            let request = CompletionRequest::parse(body.to_string().as_bytes());
            let generation = request.expect("metadata is never refused").generation;
            (generation.recorded_finish, generation.recorded_tool.number())
        };
        let whole = json!({"finish": "tool_calls", "tool": 9, "run": "7"});
        assert_eq!(recorded(whole), (FinishKind::ToolCalls, 9));
        assert_eq!(recorded(json!({"tool": "9"})), (FinishKind::Unknown, 9));
        for other in [json!(null), json!("stop"), json!({"finish": 3, "tool": 64}), json!([{}])] {
            assert_eq!(recorded(other), (FinishKind::Unknown, 0));
        }
    }

    #[test]
    fn a_session_has_one_key() {
        let session = |fields: Value| {
            let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
            body.as_object_mut()
                .expect("an object")
                .extend(fields.as_object().expect("an object").clone());
            let request = ChatRequest::parse(body.to_string().as_bytes()).expect("a request");
            request.generation.session
        };
        assert_eq!(session(json!({"user": "u"})).as_deref(), Some("u"));
        let both = json!({"user": "u", "prompt_cache_key": "k"});
        assert_eq!(session(both).as_deref(), Some("k"));
        let long = json!({"prompt_cache_key": "k".repeat(KEY_BYTES + 1)});
        assert_eq!(session(long), None);
    }

    #[test]
    fn template_variables_are_passed_on() {
        let body = json!({
            "model": "m", "messages": [{"role": "user", "content": "hi"}],
            "reasoning_effort": "none", "chat_template_kwargs": {"a": 1},
        });
        let request = ChatRequest::parse(body.to_string().as_bytes()).expect("a request");
        let expected = json!({"a": 1, "enable_thinking": false, "reasoning_effort": "none"});
        assert_eq!(Value::from(request.conversation.variables), expected);
    }

    #[test]
    fn prompts_are_texts_or_tokens() {
        let parse = |prompt: Value| {
            let body = json!({"model": "m", "prompt": prompt}).to_string();
            CompletionRequest::parse(body.as_bytes()).map(|request| request.prompt)
        };
        assert_eq!(parse(json!("a")), Ok(PromptInput::Text("a".to_owned())));
        assert_eq!(parse(json!(["a"])), Ok(PromptInput::Text("a".to_owned())));
        assert_eq!(parse(json!([1, 2])), Ok(PromptInput::Tokens(vec![1, 2])));
        assert_eq!(parse(json!([[1, 2]])), Ok(PromptInput::Tokens(vec![1, 2])));
        for bad in [
            json!(""),
            json!([]),
            json!(["a", "b"]),
            json!([[1], [2]]),
            json!([[[1]]]),
            json!([[]]),
            json!([["a"]]),
            json!([-1]),
            json!(7),
        ] {
            assert!(parse(bad).is_err());
        }
    }
}
