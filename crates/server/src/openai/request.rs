//! What clients ask for.

use headstart_core::TokenId;
use serde_json::{Value, json};

use super::ApiError;
use super::fields::Fields;

/// Most stop strings, as OpenAI documents.
const STOPS: usize = 4;

/// Longest stop string, bytes: bounds what a stream holds back.
const STOP_BYTES: usize = 1024;

/// Longest salt or user name, bytes.
const KEY_BYTES: usize = 512;

/// What chat and plain completions have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Generation {
    /// The model asked for.
    pub model: String,
    /// Whether to answer piece by piece.
    pub stream: bool,
    /// Whether a stream ends with the token counts.
    pub include_usage: bool,
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
    /// The how-maniest user message it answers, from 1; 0 where there are no messages.
    pub turn: u16,
    /// Tenant salt (vLLM's extension).
    pub cache_salt: Option<String>,
    /// The end user: the key of `session` routing, unless a header gives one.
    pub user: Option<String>,
}

/// `POST /v1/chat/completions`.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// Everything but the prompt.
    pub generation: Generation,
    /// The conversation: a non-empty array of objects with text contents.
    pub messages: Value,
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
        let messages = messages(fields.take("messages"))?;
        generation.turn = turn(&messages);
        let functions: &[Value] = &[json!([])];
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
            ("tools", functions),
            ("functions", functions),
            ("tool_choice", &[json!("none")]),
            ("parallel_tool_calls", &[json!(true), json!(false)]),
            ("modalities", &[json!(["text"])]),
            ("store", &[json!(false)]),
            ("service_tier", &[json!("auto"), json!("default")]),
        ])?;
        Ok(Self {
            generation,
            messages,
        })
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

fn generation(fields: &mut Fields, limit_name: &str) -> Result<Generation, ApiError> {
    let model = fields.string("model")?;
    let model = model.ok_or_else(|| missing("model", "GET /v1/models lists the names"))?;
    let stream = fields.boolean("stream")?.unwrap_or(false);
    let include_usage = stream_options(fields.take("stream_options"), stream)?;
    let tokens = 0..=i64::from(u32::MAX);
    let mut max_tokens = fields.integer("max_tokens", tokens.clone())?;
    if limit_name != "max_tokens" {
        max_tokens = fields.integer(limit_name, tokens)?.or(max_tokens);
    }
    let stop = stop(fields.take("stop"))?;
    let ignore_eos = fields.boolean("ignore_eos")?.unwrap_or(false);
    if let Some(min_tokens) = fields.integer("min_tokens", 0..=i64::from(u32::MAX))? {
        let may_end_early = !ignore_eos || !stop.is_empty();
        check_min_tokens(min_tokens, max_tokens, may_end_early)?;
    }
    Ok(Generation {
        turn: 0,
        model,
        stream,
        include_usage,
        max_tokens: max_tokens.map(|number| number as usize),
        temperature: fields
            .number("temperature", 0.0..=2.0)?
            .map(|number| number as f32),
        top_p: fields
            .number("top_p", 0.0..=1.0)?
            .map(|number| number as f32),
        top_k: fields
            .integer("top_k", -1..=i64::from(u32::MAX))?
            .map(|k| k.max(0) as usize),
        seed: fields
            .integer("seed", i64::MIN..=i64::MAX)?
            .map(|seed| seed as u64),
        stop,
        ignore_eos,
        cache_salt: key(fields, "cache_salt")?,
        user: key(fields, "user")?,
    })
}

/// vLLM's extension, as far as it holds by itself: an answer that nothing but its limit can end
/// is as long as that.
fn check_min_tokens(
    min_tokens: i64,
    max_tokens: Option<i64>,
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
    ApiError {
        code: "missing_required_parameter",
        ..error
    }
}

fn key(fields: &mut Fields, name: &str) -> Result<Option<String>, ApiError> {
    let text = fields.string(name)?;
    match &text {
        Some(text) if text.is_empty() || text.len() > KEY_BYTES => Err(ApiError::invalid(
            name,
            format!("`{name}` must have 1 to {KEY_BYTES} bytes"),
        )),
        _ => Ok(text),
    }
}

fn stream_options(value: Option<Value>, stream: bool) -> Result<bool, ApiError> {
    let Some(value) = value else { return Ok(false) };
    if !stream {
        let message = "`stream_options` needs `stream: true`";
        return Err(ApiError::invalid("stream_options", message));
    }
    let Value::Object(mut options) = value else {
        return Err(ApiError::invalid(
            "stream_options",
            "`stream_options` must be an object",
        ));
    };
    let include_usage = match options.shift_remove("include_usage") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(include)) => include,
        Some(_) => {
            let message = "`stream_options.include_usage` must be true or false";
            return Err(ApiError::invalid("stream_options.include_usage", message));
        }
    };
    match options.keys().next() {
        Some(other) => Err(ApiError::unsupported(
            &format!("stream_options.{other}"),
            "",
        )),
        None => Ok(include_usage),
    }
}

fn stop(value: Option<Value>) -> Result<Vec<String>, ApiError> {
    let texts = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(values)) => values,
        Some(other) => vec![other],
    };
    let text = |value: Value| match value {
        Value::String(text) if (1..=STOP_BYTES).contains(&text.len()) => Ok(text),
        _ => {
            let message = format!("each `stop` must be a string of 1 to {STOP_BYTES} bytes");
            Err(ApiError::invalid("stop", message))
        }
    };
    if texts.len() > STOPS {
        return Err(ApiError::invalid(
            "stop",
            format!("at most {STOPS} `stop` strings are taken"),
        ));
    }
    texts.into_iter().map(text).collect()
}

/// Messages as the chat template gets them: every content one string.
/// How many of the messages are a user's; a conversation has at least its first turn.
fn turn(messages: &Value) -> u16 {
    let messages = messages.as_array().map_or(&[][..], Vec::as_slice);
    let of_user = messages.iter().filter(|one| one["role"] == "user").count();
    u16::try_from(of_user).unwrap_or(u16::MAX).max(1)
}

fn messages(value: Option<Value>) -> Result<Value, ApiError> {
    let Some(value) = value else {
        return Err(missing("messages", "an array of messages"));
    };
    let Value::Array(mut messages) = value else {
        return Err(ApiError::invalid("messages", "`messages` must be an array"));
    };
    if messages.is_empty() {
        return Err(ApiError::invalid(
            "messages",
            "`messages` must hold at least one message",
        ));
    }
    for (index, message) in messages.iter_mut().enumerate() {
        let at = format!("messages[{index}]");
        let Value::Object(message) = message else {
            return Err(ApiError::invalid(&at, format!("`{at}` must be an object")));
        };
        if !message.get("role").is_some_and(Value::is_string) {
            return Err(ApiError::invalid(
                &at,
                format!("`{at}.role` must be a string"),
            ));
        }
        let content = message.get("content").cloned().unwrap_or(Value::Null);
        message.insert("content".to_owned(), flat_content(content, &at)?.into());
    }
    Ok(Value::Array(messages))
}

/// Text parts become lines of one text, as vLLM does for templates that take strings: the same
/// tokens here and in an engine behind us.
///
/// # Errors
/// When a part is no text; `at` names the message.
pub fn flat_content(content: Value, at: &str) -> Result<String, ApiError> {
    let wrong = || {
        let message = format!("`{at}.content` must be a string or an array of text parts");
        ApiError::invalid(at, message)
    };
    let text = |part: Value| match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text.to_owned()),
        (Some(kind), _) if kind != "text" => {
            Err(ApiError::unsupported(&format!("{at}.content: {kind}"), ""))
        }
        _ => Err(wrong()),
    };
    match content {
        Value::String(text) => Ok(text),
        Value::Array(parts) => {
            let lines: Result<Vec<_>, _> = parts.into_iter().map(text).collect();
            Ok(lines?.join("\n"))
        }
        _ => Err(wrong()),
    }
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
        Some(Value::Array(values)) if values.len() == 1 && values[0].is_string() => {
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
                assert_eq!(
                    (error.param.as_deref(), error.code),
                    (Some(param), code),
                    "{error:?}"
                );
                assert!(error.message.contains('`'), "{error:?} names what is wrong");
            }
            (got, expected) => panic!("{change}: {got:?} against {expected:?}"),
        }
    }

    #[test]
    fn the_turn_counts_user_messages() {
        let said = |role: &str| json!({"role": role, "content": "x"});
        for (roles, expected) in [
            (&["user"][..], 1),
            (&["system", "user", "assistant", "user"], 2),
            (&["system"], 1),
        ] {
            let messages: Vec<_> = roles.iter().map(|role| said(role)).collect();
            let body = json!({"model": "m", "messages": messages}).to_string();
            let request = ChatRequest::parse(body.as_bytes()).expect("a request");
            assert_eq!(request.generation.turn, expected, "{roles:?}");
        }
    }

    #[test]
    fn parameters_are_taken_or_refused_by_name() {
        check(json!({}), Ok(()));
        check(
            json!({"temperature": 0, "top_p": 1, "seed": -3, "stop": "x", "n": 1}),
            Ok(()),
        );
        check(
            json!({"presence_penalty": 0.0, "tools": [], "logit_bias": null}),
            Ok(()),
        );
        check(
            json!({"stream": true, "stream_options": {"include_usage": true}}),
            Ok(()),
        );
        let bad = |param, code| Err((param, code));
        check(json!({"n": 2}), bad("n", "unsupported_parameter"));
        check(
            json!({"presence_penalty": 0.5}),
            bad("presence_penalty", "unsupported_parameter"),
        );
        check(
            json!({"tools": [{}]}),
            bad("tools", "unsupported_parameter"),
        );
        check(
            json!({"made_up": 1}),
            bad("made_up", "unsupported_parameter"),
        );
        check(
            json!({"temperature": "hot"}),
            bad("temperature", "invalid_value"),
        );
        check(
            json!({"temperature": 3}),
            bad("temperature", "invalid_value"),
        );
        check(json!({"top_p": -1}), bad("top_p", "invalid_value"));
        check(json!({"max_tokens": 0}), Ok(()));
        check(
            json!({"max_tokens": -1}),
            bad("max_tokens", "invalid_value"),
        );
        check(
            json!({"max_completion_tokens": 1.5}),
            bad("max_completion_tokens", "invalid_value"),
        );
        check(
            json!({"stop": ["a", "b", "c", "d", "e"]}),
            bad("stop", "invalid_value"),
        );
        check(json!({"stop": [""]}), bad("stop", "invalid_value"));
        check(
            json!({"stream_options": {}}),
            bad("stream_options", "invalid_value"),
        );
        let forced =
            |min: u32| json!({"ignore_eos": true, "min_tokens": min, "max_completion_tokens": 5});
        check(forced(5), Ok(()));
        check(forced(6), bad("min_tokens", "invalid_value"));
        check(
            json!({"ignore_eos": true, "min_tokens": 5}),
            bad("min_tokens", "invalid_value"),
        );
        check(json!({"min_tokens": 0, "stop": "x"}), Ok(()));
        check(
            json!({"min_tokens": 5, "max_tokens": 5}),
            bad("min_tokens", "unsupported_parameter"),
        );
        check(
            json!({"min_tokens": 5, "max_tokens": 5, "ignore_eos": true, "stop": "x"}),
            bad("min_tokens", "unsupported_parameter"),
        );
        check(
            json!({"model": null}),
            bad("model", "missing_required_parameter"),
        );
        check(json!({"messages": []}), bad("messages", "invalid_value"));
        check(
            json!({"messages": [1]}),
            bad("messages[0]", "invalid_value"),
        );
        check(
            json!({"messages": [{"role": "user"}]}),
            bad("messages[0]", "invalid_value"),
        );
    }

    #[test]
    fn text_parts_are_joined_and_images_refused() {
        let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        let body = json!({"model": "m", "messages": [{"role": "user", "content": parts}]});
        let request = ChatRequest::parse(body.to_string().as_bytes()).expect("parses");
        assert_eq!(request.messages[0]["content"], "a\nb");
        let image = json!([{"role": "user", "content": [{"type": "image_url"}]}]);
        let param = "messages[0].content: image_url";
        check(
            json!({"messages": image}),
            Err((param, "unsupported_parameter")),
        );
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
        for bad in [
            json!(""),
            json!([]),
            json!(["a", "b"]),
            json!([-1]),
            json!(7),
        ] {
            assert!(parse(bad).is_err());
        }
    }
}
