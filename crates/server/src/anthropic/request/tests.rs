use super::*;

fn parse(change: Value) -> Result<ChatRequest, ApiError> {
    let mut body = json!({
        "model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}],
    });
    for (name, value) in change.as_object().expect("an object") {
        body[name] = value.clone();
    }
    super::parse(body.to_string().as_bytes())
}

#[track_caller]
fn check(change: Value, expected: Value) {
    let request = parse(change).expect("a request");
    assert_eq!(request.conversation.messages, expected);
}

#[test]
fn blocks_become_messages() {
    check(
        json!({
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=1"},
                {"type": "text", "text": "be ", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "kind"},
            ],
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "weather?", "cache_control": {"type": "ephemeral"}},
                ]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "redacted_thinking", "data": "d"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}},
                    {"type": "tool_use", "id": "t2", "name": "g"},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "sunny"},
                    {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": [
                        {"type": "text", "text": "a"}, {"type": "text", "text": "b"},
                    ]},
                    {"type": "text", "text": "and now?"},
                ]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t3"}]},
            ],
        }),
        json!([
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "content": "I look.", "reasoning": "hm",
             "reasoning_content": "hm", "tool_calls": [
                {"id": "t1", "type": "function",
                 "function": {"name": "f", "arguments": {"x": 1}}},
                {"id": "t2", "type": "function", "function": {"name": "g", "arguments": {}}},
            ]},
            {"role": "tool", "tool_call_id": "t1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "t2", "content": "a\nb"},
            {"role": "user", "content": "and now?"},
            {"role": "tool", "tool_call_id": "t3", "content": ""},
        ]),
    );
}

#[test]
fn parameters_are_taken_or_refused_by_name() {
    let hints = json!({
        "metadata": {"user_id": "u"}, "service_tier": "auto", "temperature": 0.5, "top_k": 3,
        "top_p": 0.9, "stop_sequences": ["a", "b", "c", "d", "e"], "stream": true,
        "thinking": {"type": "adaptive"}, "output_config": {"effort": "low"},
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
        "tools": [{"name": "f", "input_schema": {"type": "object"}},
                  {"type": "web_search_20250305", "name": "web_search"}],
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    });
    let request = parse(hints).expect("taken");
    assert_eq!(request.generation.session.as_deref(), Some("u"));
    assert_eq!(request.generation.stop.len(), 5);
    let function = json!({"name": "f", "parameters": {"type": "object"}});
    let tools = json!([{"type": "function", "function": function}]);
    assert_eq!(request.conversation.tools, Some(tools));
    assert_eq!(request.conversation.variables["reasoning_effort"], "low");

    let content = |block: Value| json!({"messages": [{"role": "user", "content": [block]}]});
    let edits = json!([{"type": "clear_tool_uses_20250919"}]);
    for (change, param) in [
        (json!({"max_tokens": null}), "max_tokens"),
        (json!({"model": null}), "model"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": null}), "messages"),
        (json!({"messages": [{"role": "user"}]}), "messages[0]"),
        (json!({"messages": [{"role": "wizard", "content": "x"}]}), "messages[0]"),
        (json!({"messages": [{"role": "assistant", "content": "x"}]}), "messages"),
        (content(json!({"type": "image", "source": {}})), "messages[0].content: image"),
        (content(json!({"type": "text"})), "messages[0]"),
        (content(json!(5)), "messages[0].content: a block without a type"),
        (json!({"system": 5}), "system"),
        (json!({"tool_choice": {"type": "any"}}), "tool_choice"),
        (json!({"tools": [{"name": "f"}]}), "tools"),
        (json!({"output_config": {"format": {}}}), "output_config.format"),
        (
            json!({"context_management": {"edits": edits}}),
            "context_management.edits: clear_tool_uses_20250919",
        ),
        (json!({"container": "c"}), "container"),
        (json!({"made_up": 1}), "made_up"),
    ] {
        let error = parse(change).expect_err("refused");
        assert_eq!(error.param.as_deref(), Some(param), "{error:?}");
        assert!(error.message.contains('`'), "{error:?}");
    }
}
