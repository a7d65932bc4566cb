//! One line of a log as a request.

use std::time::Duration;

use headstart_core::{FinishKind, TokenId, ToolClass, fnv1a};
use serde_json::{Value, json};

use super::fields::RawFields;
use super::marks;
use super::names::{
    ARRIVALS, BODIES, CACHE_MARK, IDS, PARAMETERS, PROMPTS, SESSIONS, SETTINGS, TTFTS, USERS,
};
use super::opaque::name_opaque;
use super::{LINE_BYTES_MAX, LoggedRequest, PromptPart, usage};

/// The request in `line`; its place in the file is the caller's to say.
///
/// # Errors
/// What is wrong with it, and what was expected.
pub(super) fn parse(line: &str) -> Result<LoggedRequest, String> {
    // Before parsing, which takes a multiple of the line's memory.
    if line.len() > LINE_BYTES_MAX {
        return Err(format!(
            "a request of {} bytes; the limit is {} MiB",
            line.len(),
            LINE_BYTES_MAX >> 20
        ));
    }
    let outer = RawFields::parse(line)
        .map_err(|error| format!("not a request ({error}); expected a JSON object a line"))?;
    let (prompt, inner) = asked(&outer)?;
    let both = Both([&outer, &inner]);
    let usage = usage::of(&outer);
    let (finish, tool) = (usage::finish(&outer), usage::tool(&outer));
    // Answers of the Responses API call tools without a reason for their end.
    let is_call = finish == FinishKind::Unknown && tool != ToolClass::default();
    Ok(LoggedRequest {
        id: both.name(IDS),
        line: 0,
        arrival: ARRIVALS.iter().find_map(|name| outer.time(name)),
        model: both.name(&["model"]),
        cache_salt: both.name(&["cache_salt"]),
        user: both.name_or_metadata(USERS, "user_id"),
        session: both.name_or_metadata(SESSIONS, "session_id"),
        prompt,
        prompt_tokens: usage.prompt,
        cached_tokens: usage.cached,
        output_tokens: usage.output,
        finish: if is_call { FinishKind::ToolCalls } else { finish },
        tool,
        ttft: ttft(&outer),
        settings: settings(line, &both),
    })
}

/// The settings of a call, each with a number that stands for its value.
fn settings(line: &str, fields: &Both<'_, '_>) -> Vec<(&'static str, u64)> {
    let value = |name: &str| fields.0.iter().find_map(|fields| fields.raw(name));
    let found = SETTINGS.iter().filter_map(|&name| Some((name, fnv1a(value(name)?.as_bytes()))));
    let is_marked = line.contains(CACHE_MARK);
    let marks = || {
        let mut marks = value("messages").map(marks::of).unwrap_or_default();
        // Tools and system messages stand in front of all messages.
        let mut front = ["system", "tools"].iter().filter_map(|name| value(name));
        marks.has_earlier |= front.any(|part| part.contains(CACHE_MARK));
        marks.packed()
    };
    found.chain(is_marked.then(|| (CACHE_MARK, marks()))).collect()
}

/// Whether `line` has a field for the time of its request, whatever stands in it.
pub(crate) fn has_time(line: &str) -> bool {
    let fields = RawFields::parse(line);
    fields.is_ok_and(|fields| ARRIVALS.iter().any(|name| fields.raw(name).is_some()))
}

/// Returns the prompt of `line`, and the first body that holds one. Without such a body, the prompt
/// is the line's own, and the first body comes with it.
fn asked<'a>(line: &RawFields<'a>) -> Result<(PromptPart, RawFields<'a>), String> {
    let (mut first, mut trouble) = (None, None);
    for body in bodies(line) {
        match prompt(&body) {
            Ok(Some(prompt)) => return Ok((prompt, body)),
            Ok(None) => {}
            // A later body may still hold the prompt.
            Err(error) => {
                trouble.get_or_insert(error);
            }
        }
        first.get_or_insert(body);
    }
    match trouble {
        Some(error) => Err(error),
        None => Ok((prompt_of_line(line)?, first.unwrap_or_default())),
    }
}

/// Objects in `line` that may be the request's body.
fn bodies<'a>(line: &RawFields<'a>) -> impl Iterator<Item = RawFields<'a>> {
    let direct = BODIES.iter().filter_map(move |name| line.object(name));
    let nested = move || line.object("proxy_server_request")?.object("body");
    // Parsed only if no direct body holds the prompt.
    direct.chain(std::iter::once_with(nested).flatten())
}

/// Returns the prompt of a line that is a body itself.
fn prompt_of_line(line: &RawFields<'_>) -> Result<PromptPart, String> {
    prompt(line)?.ok_or_else(|| {
        if let Some(name) = PROMPTS.iter().find(|name| line.raw(name).is_some_and(is_empty)) {
            return format!(
                "`{name}` is empty: the log was written without prompts; LiteLLM stores them with \
                 `store_prompts_in_spend_logs: true` in `general_settings`"
            );
        }
        let quoted = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            names.join(", ")
        };
        format!(
            "no prompt; expected one of {}, by itself or in one of {}; the line has {}",
            quoted(PROMPTS),
            quoted(BODIES),
            line.named()
        )
    })
}

/// Whether a field's JSON says nothing, as the columns of a database do by default.
fn is_empty(json: &str) -> bool {
    matches!(json.trim_matches('"').trim(), "" | "{}" | "[]" | "null")
}

/// Returns the prompt of `body`, if it has one.
fn prompt(body: &RawFields<'_>) -> Result<Option<PromptPart>, String> {
    if let Some(messages) = body.list("messages") {
        return Ok(Some(chat(behind_system(body, "system", messages), tools(body))));
    }
    for &name in PROMPTS {
        match body.value::<Value>(name) {
            // OpenAI's Responses API: `instructions` is the system prompt of a text `input`.
            Some(Value::String(text)) if name == "input" && body.raw("instructions").is_some() => {
                let user = json!([{"role": "user", "content": text}]);
                let messages = behind_system(body, "instructions", user);
                return Ok(Some(chat(messages, body.list("tools"))));
            }
            // A database's empty column.
            Some(Value::String(text)) if is_empty(&text) => {}
            Some(Value::String(text)) => return Ok(Some(PromptPart::Text(text))),
            Some(Value::Array(items)) => return items_as_prompt(body, name, items).map(Some),
            _ => {}
        }
    }
    Ok(None)
}

fn chat(mut messages: Value, tools: Option<Value>) -> PromptPart {
    name_opaque(&mut messages);
    PromptPart::Chat { messages, tools }
}

/// The tools, where `body` has some: beside the messages, or among the parameters as LiteLLM's and
/// Langfuse's logs have them.
fn tools(body: &RawFields<'_>) -> Option<Value> {
    // `functions` is OpenAI's older name for them.
    let own = |fields: &RawFields<'_>| fields.list("tools").or_else(|| fields.list("functions"));
    let mut parameters = PARAMETERS.iter().filter_map(|name| body.object(name));
    own(body).or_else(|| parameters.find_map(|fields| own(&fields)))
}

/// A list is one prompt (a text, or its token ids), or the messages of OpenAI's Responses API.
fn items_as_prompt(
    body: &RawFields<'_>,
    name: &str,
    mut items: Vec<Value>,
) -> Result<PromptPart, String> {
    // A batch of one prompt: its text, or its token ids.
    if items.len() == 1 && matches!(items[0], Value::String(_) | Value::Array(_)) {
        match items.swap_remove(0) {
            Value::String(text) => return Ok(PromptPart::Text(text)),
            Value::Array(ids) => items = ids,
            _ => {}
        }
    }
    let first = items.first();
    if first.is_some_and(Value::is_number) {
        return token_ids(name, &items);
    }
    // `all` holds for an empty list too, and that one asks for nothing.
    if first.is_some() && items.iter().all(Value::is_object) {
        let messages = behind_system(body, "instructions", Value::Array(items));
        return Ok(chat(messages, body.list("tools")));
    }
    Err(match first {
        Some(Value::String(_) | Value::Array(_)) => {
            let count = items.len();
            format!("`{name}` holds {count} prompts; expected one, so put each on its own line")
        }
        _ => format!("`{name}` is a list of something else than messages; expected a prompt"),
    })
}

fn token_ids(name: &str, items: &[Value]) -> Result<PromptPart, String> {
    let id = |item: &Value| TokenId::try_from(item.as_u64()?).ok();
    let ids: Option<Vec<TokenId>> = items.iter().map(id).collect();
    ids.map(PromptPart::Tokens).ok_or_else(|| {
        format!("`{name}` is a list of numbers that are no token ids; expected whole ones from 0")
    })
}

/// `messages` behind a system prompt that stands in a field of its own.
fn behind_system(body: &RawFields<'_>, field: &str, messages: Value) -> Value {
    let system: Option<Value> = body.value(field);
    match (system, messages) {
        (Some(system @ (Value::String(_) | Value::Array(_))), Value::Array(mut list)) => {
            list.insert(0, json!({"role": "system", "content": system}));
            Value::Array(list)
        }
        (_, messages) => messages,
    }
}

/// Time to the first token, seconds or their parts as the field's name says.
fn ttft(line: &RawFields<'_>) -> Option<Duration> {
    let said = TTFTS.iter().find_map(|(name, unit)| Some(line.number(name)? * unit));
    match said {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => {
            let first = line.time("completionStartTime")?;
            // LiteLLM writes the end here if the answer was not streamed.
            let is_end = line.time("endTime").is_some_and(|end| end <= first);
            let start = line.time("startTime")?;
            (first > start && !is_end).then(|| first.since(start))
        }
    }
}

/// The fields around the body and those in it, in this order.
struct Both<'f, 'a>([&'f RawFields<'a>; 2]);

impl Both<'_, '_> {
    fn name(&self, names: &[&str]) -> Option<String> {
        let mut named = names.iter();
        // By name first: an earlier name within the body wins over a later one around it.
        named.find_map(|name| self.0.iter().find_map(|fields| fields.name(name)))
    }

    fn name_or_metadata(&self, names: &[&str], in_metadata: &str) -> Option<String> {
        self.name(names).or_else(|| {
            let mut places = self.0.iter();
            places.find_map(|fields| fields.object("metadata")?.name(in_metadata))
        })
    }
}

#[cfg(test)]
mod tests {
    use headstart_core::{FinishKind, Nanos, ToolClass};

    use super::*;

    fn good(line: &str) -> LoggedRequest {
        parse(&line.replace('\n', " ")).expect(line)
    }

    fn check_bad(line: &str, part: &str) {
        let error = parse(line).expect_err(line);
        assert!(error.contains(part), "{error} lacks {part}");
    }

    fn chat(messages: Value, tools: Option<Value>) -> PromptPart {
        PromptPart::Chat { messages, tools }
    }

    #[test]
    fn tools_among_the_parameters_are_tools() {
        for name in ["model_parameters", "modelParameters", "optional_params"] {
            let got = good(&format!(
                r#"{{"messages": [{{"role": "user", "content": "x"}}],
                "{name}": {{"temperature": 0.2, "tools": [{{"name": "t"}}]}}}}"#
            ));
            let messages = json!([{"role": "user", "content": "x"}]);
            assert_eq!(got.prompt, chat(messages, Some(json!([{"name": "t"}]))), "{name}");
        }
    }

    #[test]
    fn an_openai_body_with_what_a_proxy_adds() {
        let got = good(
            r#"{"model": "m", "messages": [{"role": "user", "content": "x"}], "request_id": "r1",
            "tools": [{"b": 1, "a": 2}], "temperature": 0, "user": "u", "created": 1700000000,
            "usage": {"prompt_tokens": 5, "completion_tokens": 2}, "ttft_ms": 62.5,
            "cache_salt": "s", "metadata": {"session_id": "c"}}"#,
        );
        let messages = json!([{"role": "user", "content": "x"}]);
        let expected = LoggedRequest {
            id: Some("r1".to_owned()),
            line: 0,
            arrival: Some(Nanos(1_700_000_000_000_000_000)),
            model: Some("m".to_owned()),
            cache_salt: Some("s".to_owned()),
            user: Some("u".to_owned()),
            session: Some("c".to_owned()),
            prompt: chat(messages, Some(json!([{"b": 1, "a": 2}]))),
            prompt_tokens: Some(5),
            cached_tokens: None,
            output_tokens: Some(2),
            finish: FinishKind::Unknown,
            tool: ToolClass::default(),
            ttft: Some(Duration::from_micros(62_500)),
            settings: vec![("model", fnv1a(b"\"m\"")), ("cache_salt", fnv1a(b"\"s\""))],
        };
        assert_eq!(got, expected);
        let PromptPart::Chat { tools, .. } = got.prompt else {
            panic!("messages make a chat");
        };
        // The order of keys is part of the prompt.
        let tools = tools.expect("given").to_string();
        assert_eq!(tools, r#"[{"b":1,"a":2}]"#);
    }

    #[test]
    fn a_batch_line_has_its_body_inside() {
        let got = good(
            r#"{"custom_id": "c1", "method": "POST", "url": "/v1/chat/completions",
            "body": {"model": "m", "messages": [], "user": "u"}}"#,
        );
        assert_eq!(got.name(), "c1");
        assert_eq!((got.model, got.user), (Some("m".into()), Some("u".into())));
        assert_eq!(got.prompt, chat(json!([]), None));
        let nested = r#"{"proxy_server_request": {"body": {"prompt": "x"}}, "messages": {}}"#;
        assert_eq!(good(nested).prompt, PromptPart::Text("x".to_owned()));
    }

    #[test]
    fn the_body_is_what_asks() {
        let asks = r#"{"messages": [{"role": "user", "content": "x"}], "model": "m"}"#;
        for line in [
            format!(r#"{{"request": {{"method": "POST"}}, "request_body": {asks}}}"#),
            format!(r#"{{"input": {{"topic": "y"}}, "inputs": {asks}}}"#),
            format!(r#"{{"body": {{}}, "proxy_server_request": {{"body": {asks}}}}}"#),
            format!(r#"{{"input": {{"prompt": [true]}}, "inputs": {asks}}}"#),
        ] {
            let got = good(&line);
            let user = json!([{"role": "user", "content": "x"}]);
            assert_eq!(got.prompt, chat(user, None), "{line}");
            assert_eq!(got.model.as_deref(), Some("m"), "{line}");
        }
        // The line asks itself: what stands beside may still name the model.
        let beside = good(r#"{"prompt": "x", "request": {"model": "m"}, "input": {"a": 1}}"#);
        assert_eq!(beside.prompt, PromptPart::Text("x".to_owned()));
        assert_eq!(beside.model.as_deref(), Some("m"));
        check_bad(r#"{"body": {"prompt": [1, -2]}, "input": {}}"#, "no token ids");
    }

    #[test]
    fn a_litellm_log_says_when_its_answer_began() {
        let line = |first: &str| {
            good(&format!(
                r#"{{"id": "l", "messages": "[{{\"role\": \"user\", \"content\": \"x\"}}]",
                "startTime": "2025-10-20T21:29:36Z", "completionStartTime": {first},
                "endTime": "2025-10-20T21:29:38Z", "end_user": "e", "response": {{"usage":
                {{"prompt_tokens": 4}}}}, "model": "m"}}"#
            ))
        };
        let got = line(r#""2025-10-20T21:29:36.250Z""#);
        assert_eq!(got.ttft, Some(Duration::from_millis(250)));
        assert_eq!(got.arrival, Some(Nanos(1_760_995_776_000_000_000)));
        assert_eq!(got.prompt_tokens, Some(4));
        assert_eq!(got.user.as_deref(), Some("e"));
        let user = json!([{"role": "user", "content": "x"}]);
        assert_eq!(got.prompt, chat(user, None), "kept as text in a database");
        assert_eq!(line(r#""2025-10-20T21:29:38Z""#).ttft, None, "not streamed");
        assert_eq!(line("null").ttft, None);
    }

    #[test]
    fn prompts_as_text_are_read() {
        let got = good(
            r#"{"benchmark": "b", "file": "f", "step": 0, "timestamp": 1760995776640783,
            "session_id": "s1", "input": "user: hello", "output": "hi"}"#,
        );
        assert_eq!(got.prompt, PromptPart::Text("user: hello".to_owned()));
        assert_eq!(got.arrival, Some(Nanos(1_760_995_776_640_783_000)));
        assert_eq!(got.session.as_deref(), Some("s1"));
        let one = PromptPart::Text("x".to_owned());
        assert_eq!(good(r#"{"prompt": ["x"]}"#).prompt, one);
    }

    #[test]
    fn a_system_prompt_of_its_own_comes_first() {
        let user = json!({"role": "user", "content": "x"});
        let system = json!({"role": "system", "content": "s"});
        let expected = chat(json!([system, user]), None);
        let anthropic = r#"{"system": "s", "messages": [{"role": "user", "content": "x"}]}"#;
        assert_eq!(good(anthropic).prompt, expected);
        let responses = r#"{"instructions": "s", "input": [{"role": "user", "content": "x"}]}"#;
        assert_eq!(good(responses).prompt, expected);
    }

    #[test]
    fn instructions_come_before_an_input_that_is_a_text() {
        let got = good(r#"{"instructions": "s", "input": "x", "model": "m"}"#);
        let user = json!({"role": "user", "content": "x"});
        let system = json!({"role": "system", "content": "s"});
        assert_eq!(got.prompt, chat(json!([system, user]), None));
    }

    #[test]
    fn token_ids_are_a_prompt() {
        let expected = PromptPart::Tokens(vec![1, 2, 300_000]);
        assert_eq!(good(r#"{"prompt": [1, 2, 300000]}"#).prompt, expected);
        assert_eq!(good(r#"{"prompt": [[1, 2, 300000]]}"#).prompt, expected);
        let alone = r#"{"model": "m", "prompt_token_ids": [1, 2, 300000]}"#;
        assert_eq!(good(alone).prompt, expected);
        // Of both, the text: what it says can be read.
        let both = r#"{"prompt": "x", "prompt_token_ids": [1]}"#;
        assert_eq!(good(both).prompt, PromptPart::Text("x".to_owned()));
    }

    #[test]
    fn an_anthropic_body_with_blocks_and_tools() {
        let got = good(
            r#"{"model": "c", "max_tokens": 9, "system": [{"type": "text", "text": "s",
            "cache_control": {"type": "ephemeral"}}], "tools": [{"name": "t", "input_schema":
            {"type": "object"}}], "messages": [{"role": "user", "content": [{"type": "text",
            "text": "x"}]}], "usage": {"input_tokens": 3, "cache_read_input_tokens": 4,
            "cache_creation_input_tokens": 2, "output_tokens": 5}}"#,
        );
        let PromptPart::Chat { messages, tools } = &got.prompt else {
            panic!("messages make a chat");
        };
        assert_eq!(messages[0]["content"][0]["text"], "s");
        assert_eq!(messages[1]["content"][0]["text"], "x");
        assert_eq!(tools.as_ref().expect("given")[0]["name"], "t");
        let counted = (got.prompt_tokens, got.cached_tokens, got.output_tokens);
        assert_eq!(counted, (Some(9), Some(4), Some(5)));
    }

    #[test]
    fn exports_of_other_gateways_are_read() {
        let user = || json!([{"role": "user", "content": "x"}]);
        let langfuse = good(
            r#"{"id": "o", "traceId": "t", "sessionId": "s", "userId": "u", "model": "m",
            "startTime": "2025-10-20T21:29:36Z", "usage": {"input": 9, "output": 2},
            "input": {"messages": [{"role": "user", "content": "x"}]}}"#,
        );
        assert_eq!(langfuse.prompt, chat(user(), None));
        assert_eq!(langfuse.session.as_deref(), Some("s"));
        assert_eq!(langfuse.user.as_deref(), Some("u"));
        assert_eq!((langfuse.prompt_tokens, langfuse.output_tokens), (Some(9), Some(2)));
        assert_eq!(langfuse.arrival, Some(Nanos(1_760_995_776_000_000_000)));
        let helicone = good(
            r#"{"request_id": "h", "request_created_at": "2025-10-20T21:29:36Z",
            "request_body": {"model": "m", "messages": [{"role": "user", "content": "x"}]},
            "response_body": {"usage": {"prompt_tokens": 4}}}"#,
        );
        assert_eq!(helicone.prompt, chat(user(), None));
        assert_eq!((helicone.name(), helicone.prompt_tokens), ("h".to_owned(), Some(4)));
    }

    #[test]
    fn lines_without_a_prompt_say_what_was_expected() {
        check_bad("[1]", "not a request");
        check_bad("{\"prompt\"", "not a request");
        check_bad("{}", "expected one of `prompt`, `input`, `messages`, ");
        check_bad(r#"{"prompt": [1, -2]}"#, "no token ids");
        check_bad(r#"{"prompt": [[1], [2]]}"#, "holds 2 prompts");
        check_bad(r#"{"question": "x", "at": 1}"#, "the line has `at`, `question`");
        check_bad(r#"{"prompt": ["a", "b"]}"#, "holds 2 prompts");
        check_bad(r#"{"input": [true]}"#, "something else than messages");
        check_bad(r#"{"prompt": {"a": 1}}"#, "no prompt");
        let long = format!(r#"{{"prompt": "{}"}}"#, "x".repeat(LINE_BYTES_MAX));
        check_bad(&long, "the limit is 16 MiB");
    }
}
