//! Requests of the Responses API, converted to conversations in OpenAI's chat form.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::StoredResponse;
use super::input::push_input;
use super::store::{KEPT, MAX_RESPONSES};
use crate::conversation::{TemplateInput, text_message};
use crate::openai::fields::Fields;
use crate::openai::request::{
    check_tool_choice, function_tools, missing, sampling, service_tier, session,
    set_reasoning_effort, tokens,
};
use crate::openai::{ApiError, Generation};

/// Hints to other servers' caches, logs and tool loops. They change no answer here.
const HINTS: &[&str] = &[
    "prompt_cache_retention",
    "prompt_cache_options",
    "safety_identifier",
    "client_metadata",
    "parallel_tool_calls",
    "max_tool_calls",
];

/// `POST /v1/responses`.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponsesRequest {
    /// Everything but the prompt.
    pub generation: Generation,
    /// The prompt.
    pub conversation: TemplateInput,
    /// The fields of the request that its answer repeats.
    pub echo: Map<String, Value>,
    /// Messages to keep for a later `previous_response_id`, without `instructions`, which do not
    /// carry over. `None` if the client does not want them kept.
    pub history: Option<Vec<Value>>,
}

impl ResponsesRequest {
    /// Parses a body; whatever is not supported is refused by name. `earlier` finds the response
    /// that `previous_response_id` names.
    ///
    /// # Errors
    /// Names the parameter.
    pub fn parse(
        body: &[u8],
        earlier: impl FnOnce(&str) -> Option<Arc<StoredResponse>>,
    ) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body)?;
        // Read first: the calls below take the fields out.
        let echo = echo(&fields);
        let mut generation = sampling(&mut fields)?;
        generation.max_tokens = tokens(&mut fields, "max_output_tokens")?;
        generation.session = session(&mut fields, None)?;
        let instructions = fields.string("instructions")?;
        let mut history = Vec::new();
        if let Some(id) = fields.string("previous_response_id")? {
            let earlier = earlier(&id).ok_or_else(|| unknown_response(&id))?;
            // Copied, because another branch may continue the same response.
            history.clone_from(&earlier.messages);
            generation.session = generation.session.or_else(|| earlier.session.clone());
        }
        let input = fields.take("input");
        push_input(
            &mut history,
            input.ok_or_else(|| missing("input", "a string or an array of items"))?,
        )?;
        if history.is_empty() {
            let error = "`input` must hold at least one item";
            return Err(ApiError::invalid("input", error));
        }
        let tools = tools(&mut fields)?;
        let variables = variables(&mut fields)?;
        let is_kept = fields.boolean("store")?.unwrap_or(true);
        refuse_rest(fields)?;
        let instructions = instructions.map(|text| text_message("system", &text));
        let messages: Vec<_> = instructions.into_iter().chain(history.clone()).collect();
        let conversation = TemplateInput { messages: messages.into(), tools, variables };
        generation.turn = conversation.turn();
        Ok(Self { generation, conversation, echo, history: is_kept.then_some(history) })
    }
}

/// The error for a response that is not kept.
#[must_use]
pub fn unknown_response(id: &str) -> ApiError {
    let id: String = id.chars().take(80).collect();
    let minutes = KEPT.as_secs() / 60;
    let message = format!(
        "there is no response `{id}`: this server keeps the last {MAX_RESPONSES} for {minutes} \
         minutes and none with `store: false`; send the conversation in `input`"
    );
    let error = ApiError::invalid("previous_response_id", message);
    ApiError { status: StatusCode::NOT_FOUND, code: "previous_response_not_found", ..error }
}

/// Refuses what is left and would change the answer.
fn refuse_rest(mut fields: Fields) -> Result<(), ApiError> {
    fields.ignore(HINTS);
    fields.take("metadata");
    service_tier(&mut fields)?;
    if let Some(text) = fields.take("text") {
        let mut text = Fields::of(text, "text")?;
        text.ignore(&["verbosity"]);
        text.refuse_rest(&[("format", &[json!({"type": "text"})])])?;
    }
    if let Some(options) = fields.take("stream_options") {
        let mut options = Fields::of(options, "stream_options")?;
        options.boolean("include_obfuscation")?;
        options.refuse_rest(&[])?;
    }
    let include = fields.take("include").unwrap_or_default();
    for one in include.as_array().into_iter().flatten() {
        // Nothing here is encrypted, so there is nothing to include.
        if one != "reasoning.encrypted_content" {
            let name = format!("include: {}", one.as_str().unwrap_or_default());
            return Err(ApiError::unsupported(&name, ""));
        }
    }
    fields.refuse_rest(&[
        ("background", &[json!(false)]),
        ("truncation", &[json!("disabled")]),
        ("top_logprobs", &[json!(0)]),
        ("context_management", &[json!([])]),
    ])
}

/// Returns the request fields that the answer repeats, with defaults for missing ones.
fn echo(fields: &Fields) -> Map<String, Value> {
    let defaults = [
        ("instructions", Value::Null),
        ("max_output_tokens", Value::Null),
        ("metadata", json!({})),
        ("parallel_tool_calls", json!(true)),
        ("previous_response_id", Value::Null),
        ("prompt_cache_key", Value::Null),
        ("reasoning", json!({"effort": null, "summary": null})),
        ("safety_identifier", Value::Null),
        ("store", json!(true)),
        ("temperature", Value::Null),
        ("text", json!({"format": {"type": "text"}})),
        ("tool_choice", json!("auto")),
        ("tools", json!([])),
        ("top_p", Value::Null),
        ("truncation", json!("disabled")),
        ("user", Value::Null),
    ];
    let field = |(name, default): (&str, Value)| {
        let value = fields.get(name).cloned().unwrap_or(default);
        (name.to_owned(), value)
    };
    defaults.into_iter().map(field).collect()
}

/// Takes `tools` and `tool_choice`. The model sees functions and free-form tools. It does not see
/// tools that OpenAI's own servers run (such as `web_search`), so it calls none of them.
fn tools(fields: &mut Fields) -> Result<Option<Value>, ApiError> {
    check_tool_choice(fields)?;
    function_tools(fields.take("tools"), "{\"type\": …, \"name\": …}", |tool| {
        let Value::Object(mut function) = tool else {
            return None;
        };
        match function.shift_remove("type")?.as_str()? {
            "function" => {}
            "custom" => {
                function.shift_remove("format");
                let parameters = json!({
                    "type": "object", "properties": {"input": {"type": "string"}},
                    "required": ["input"],
                });
                function.insert("parameters".to_owned(), parameters);
            }
            _ => return Some(None),
        }
        function.get("name")?.is_string().then_some(Some(function))
    })
}

/// Further variables of the template: how much to think. A summary of the thinking is never made.
fn variables(fields: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    let mut variables = Map::new();
    if let Some(reasoning) = fields.take("reasoning") {
        let mut reasoning = Fields::of(reasoning, "reasoning")?;
        set_reasoning_effort(&mut variables, reasoning.string("effort")?);
        reasoning.ignore(&["summary", "generate_summary"]);
        reasoning.refuse_rest(&[])?;
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(change: Value) -> Result<ResponsesRequest, ApiError> {
        let mut body = json!({"model": "m", "input": "hi"});
        for (name, value) in change.as_object().expect("an object") {
            body[name] = value.clone();
        }
        let earlier = |id: &str| {
            (id == "resp_1").then(|| {
                Arc::new(StoredResponse {
                    messages: vec![text_message("user", "a"), text_message("assistant", "b")],
                    session: Some("s".to_owned()),
                    ..StoredResponse::default()
                })
            })
        };
        ResponsesRequest::parse(body.to_string().as_bytes(), earlier)
    }

    #[test]
    fn instructions_do_not_carry_over() {
        let change = json!({"instructions": "be kind", "previous_response_id": "resp_1"});
        let request = parse(change).expect("a request");
        let history = json!([
            {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
            {"role": "user", "content": "hi"},
        ]);
        assert_eq!(request.history.map(Value::from), Some(history));
        let messages = &request.conversation.messages;
        assert_eq!(messages[0], text_message("system", "be kind"));
        assert_eq!(messages.as_array().map(Vec::len), Some(4));
        assert_eq!(request.generation.session.as_deref(), Some("s"));
        assert_eq!(request.generation.turn, 2);
        let unknown = parse(json!({"previous_response_id": "resp_2"})).expect_err("unknown");
        assert_eq!(unknown.code, "previous_response_not_found");
        let unkept = parse(json!({"store": false})).expect("a request");
        assert_eq!(unkept.history, None);
    }

    #[test]
    fn parameters_are_taken_or_refused_by_name() {
        let function = json!({"type": "function", "name": "f", "parameters": {}, "strict": true});
        for taken in [
            json!({"prompt_cache_key": "k", "metadata": {"a": "b"}, "service_tier": "flex",
                   "text": {"format": {"type": "text"}, "verbosity": "low"},
                   "include": ["reasoning.encrypted_content"], "truncation": "disabled",
                   "stream": true, "stream_options": {"include_obfuscation": false},
                   "reasoning": {"effort": "low", "summary": "auto"}, "background": false}),
            json!({"tools": [function, {"type": "web_search"}], "tool_choice": "auto"}),
        ] {
            parse(taken).expect("taken");
        }
        for (refused, param) in [
            (json!({"text": {"format": {"type": "json_object"}}}), "text.format"),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"background": true}), "background"),
            (json!({"conversation": "c"}), "conversation"),
            (
                json!({"include": ["message.output_text.logprobs"]}),
                "include: message.output_text.logprobs",
            ),
            (json!({"input": []}), "input"),
            (json!({"input": null}), "input"),
            (json!({"max_output_tokens": "x"}), "max_output_tokens"),
        ] {
            let error = parse(refused).expect_err("refused");
            assert_eq!(error.param.as_deref(), Some(param), "{error:?}");
        }
    }

    #[test]
    fn tools_and_effort_reach_the_template() {
        let custom = json!({"type": "custom", "name": "patch", "format": {"type": "grammar"}});
        let request = parse(json!({"tools": [custom], "reasoning": {"effort": "none"}}));
        let conversation = request.expect("a request").conversation;
        let tools = conversation.tools.expect("a tool");
        assert_eq!(tools[0]["function"]["name"], "patch");
        assert_eq!(tools[0]["function"]["parameters"]["required"], json!(["input"]));
        let variables = Value::from(conversation.variables);
        let expected = json!({"enable_thinking": false, "reasoning_effort": "none"});
        assert_eq!(variables, expected);
    }
}
