"""Requests of the routes beside chat: Anthropic's messages, OpenAI's responses and completions."""

from shapes import PARAMETERS, collect

HELLO = {"role": "user", "content": "Hello there"}
SCHEMA_TOOL = {"name": "weather", "description": "Tells it.", "input_schema": PARAMETERS}
FLAT_TOOL = {
    "type": "function", "name": "weather", "description": "Tells it.", "parameters": PARAMETERS,
    "strict": True,
}


def message(*messages, **fields):
    """A request of Anthropic's API."""
    return {"max_tokens": 16, "messages": list(messages), **fields}


def text(value, **fields):
    """A text block."""
    return {"type": "text", "text": value, **fields}


def use(**fields):
    """A block that calls a tool."""
    return {"type": "tool_use", "id": "toolu_1", "name": "weather", **fields}


def result(content, **fields):
    """A block with a tool's answer."""
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **fields}


def dialogue(blocks, answer, **fields):
    """A conversation with these blocks of the assistant and these of the user behind them."""
    return message(
        HELLO, {"role": "assistant", "content": blocks}, {"role": "user", "content": answer},
        **fields,
    )


def message_contents():
    """System prompts and texts."""
    cache = {"type": "ephemeral"}
    header = "x-anthropic-billing-header: cch=1;"
    yield "plain", message(HELLO)
    yield "system", message(HELLO, system="Be brief.")
    yield "system-empty", message(HELLO, system="")
    yield "system-blocks", message(HELLO, system=[text("One. "), text("Two.", cache_control=cache)])
    yield "system-billing", message(HELLO, system=[text(header), text("Be brief.")])
    yield "system-billing-line", message(HELLO, system=[text(header + "\nBe brief.")])
    yield "system-billing-text", message(HELLO, system=header + "\nBe brief.")
    yield "system-inline", message(
        HELLO, {"role": "assistant", "content": "Hi"},
        {"role": "system", "content": "New rule."}, HELLO, system="Be brief.",
    )
    yield "system-inline-blocks", message(
        HELLO, {"role": "system", "content": [text("a"), text(header), text("b")]}, HELLO
    )
    yield "system-inline-two", message(
        {"role": "system", "content": "First."}, HELLO, {"role": "system", "content": "Second."},
        {"role": "assistant", "content": "Hi"}, HELLO,
    )
    yield "blocks-one", message({"role": "user", "content": [text("alone", cache_control=cache)]})
    yield "blocks-two", message({"role": "user", "content": [text("one"), text("two")]})
    yield "blocks-none", message({"role": "user", "content": []}, HELLO)
    yield "blocks-empty-text", message({"role": "user", "content": [text(""), text("x")]})
    yield "blocks-unknown", message({"role": "user", "content": [{"type": "poem"}]})
    yield "unicode", message({"role": "user", "content": "é 世界 🌞 <|im_end|>"})
    yield "turns", message(HELLO, {"role": "assistant", "content": "Hi"}, HELLO, system="Be brief.")
    yield "prefill", message(HELLO, {"role": "assistant", "content": "It is"})
    yield "prefill-space", message(HELLO, {"role": "assistant", "content": "It is "})
    yield "no-messages", message()
    yield "no-max-tokens", {"messages": [HELLO]}
    yield "ignored", message(
        HELLO, metadata={"user_id": "u"}, stop_sequences=["x"], temperature=1.0, top_p=0.9,
        top_k=3, stream=True, service_tier="auto", unknown=1,
    )


def message_tools():
    """Calls, answers, thinking, tools."""
    yield "use-and-result", dialogue([use(input={"city": "Paris", "days": 2})], [result("21")])
    yield "use-text-beside", dialogue([text("Look."), use(input={})], [result("21"), text("So?")])
    yield "use-two", dialogue(
        [use(input={"b": 1.0, "a": "é"}), {**use(input={"z": None}), "id": "toolu_2"}],
        [result("21"), {**result("22"), "tool_use_id": "toolu_2"}],
    )
    yield "use-no-input", dialogue([use()], [result("21")])
    yield "use-numbers", dialogue(
        [use(input={"a": 1e16, "b": 1e-7, "c": 12345678901234567890123, "d": 1.50})], [result("x")]
    )
    yield "result-blocks", dialogue([use(input={})], [result([text("one"), text("two")])])
    yield "result-empty", dialogue([use(input={})], [result("")])
    yield "result-null", dialogue([use(input={})], [{"type": "tool_result", "tool_use_id": "t"}])
    yield "result-error", dialogue([use(input={})], [result("failed", is_error=True)])
    yield "result-text-first", dialogue([use(input={})], [text("First."), result("21")])
    yield "result-reference", dialogue(
        [use(input={})], [result([{"type": "tool_reference", "tool_name": "weather"}])]
    )
    yield "result-of-assistant", dialogue([result("21")], [text("x")])
    thought = {"type": "thinking", "thinking": "Let me see.", "signature": "abc"}
    yield "thinking", dialogue([thought, text("Yes.")], [text("So?")])
    yield "thinking-two", dialogue([thought, thought, text("Yes.")], [text("So?")])
    yield "thinking-alone", dialogue([thought], [text("So?")])
    yield "thinking-and-use", dialogue([thought, use(input={})], [result("21")])
    yield "thinking-redacted", dialogue(
        [{"type": "redacted_thinking", "data": "x"}, text("Yes.")], [text("So?")]
    )
    yield "thinking-redacted-alone", dialogue(
        [{"type": "redacted_thinking", "data": "x"}], [text("So?")]
    )
    yield "thinking-enabled", message(
        HELLO, max_tokens=4096, thinking={"type": "enabled", "budget_tokens": 2048}
    )
    yield "thinking-disabled", message(HELLO, thinking={"type": "disabled"})
    yield "thinking-adaptive", message(HELLO, thinking={"type": "adaptive"})
    yield "effort-low", message(HELLO, output_config={"effort": "low"})
    yield "effort-and-disabled", message(
        HELLO, output_config={"effort": "low"}, thinking={"type": "disabled"}
    )
    yield "kwargs", message(HELLO, chat_template_kwargs={"enable_thinking": False})
    yield "tools", message(HELLO, tools=[SCHEMA_TOOL])
    yield "tools-system", message(HELLO, tools=[SCHEMA_TOOL], system="Be brief.")
    yield "tools-no-description", message(HELLO, tools=[{"name": "f", "input_schema": {}}])
    yield "tools-schema-without-type", message(
        HELLO, tools=[{"name": "f", "input_schema": {"properties": {"z": {}, "a": {}}}}]
    )
    yield "tools-no-schema", message(HELLO, tools=[{"name": "f"}])
    yield "tools-extra", message(
        HELLO,
        tools=[{"cache_control": {"type": "ephemeral"}, **SCHEMA_TOOL, "type": "custom",
                "strict": True, "defer_loading": True}],
    )
    yield "tools-server", message(HELLO, tools=[{"type": "web_search_20250305", "name": "web"}])
    yield "tools-empty", message(HELLO, tools=[])
    for kind in ("auto", "any", "none"):
        yield f"tool-choice-{kind}", message(
            HELLO, tools=[SCHEMA_TOOL], tool_choice={"type": kind}
        )
    yield "tool-choice-tool", message(
        HELLO, tools=[SCHEMA_TOOL], tool_choice={"type": "tool", "name": "weather"}
    )


def respond(value, **fields):
    """A request of the responses API."""
    return {"input": value, **fields}


def function_call(**fields):
    """An item that calls a function."""
    return {
        "type": "function_call", "call_id": "call_1", "name": "weather",
        "arguments": '{"city":"Paris","days":2}', **fields,
    }


def output(value, **fields):
    """An item with a function's output."""
    return {"type": "function_call_output", "call_id": "call_1", "output": value, **fields}


def answer(value, **fields):
    """An answer as the API gives it."""
    return {
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": value, "annotations": []}], **fields,
    }


def thought(**fields):
    """A reasoning item."""
    return {"type": "reasoning", "id": "rs_1", "summary": [], **fields}


def response_inputs():
    """What the input may be."""
    said = [{"type": "reasoning_text", "text": "Let me see."}]
    summary = [{"type": "summary_text", "text": "In short."}]
    yield "text", respond("Hello there")
    yield "text-empty", respond("")
    yield "instructions", respond("Hello there", instructions="Be brief.")
    yield "instructions-and-system", respond(
        [{"role": "system", "content": "Rules."}, HELLO], instructions="Be brief."
    )
    yield "items", respond([HELLO])
    yield "items-none", respond([])
    yield "items-typed", respond([{"type": "message", **HELLO}])
    yield "items-parts", respond(
        [{"role": "user", "content": [{"type": "input_text", "text": "one"},
                                      {"type": "input_text", "text": "two"}]}]
    )
    yield "items-developer", respond([{"role": "developer", "content": "Rules."}, HELLO])
    yield "items-easy-answer", respond([HELLO, {"role": "assistant", "content": "Hi"}, HELLO])
    yield "items-easy-answer-parts", respond(
        [HELLO, {"role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}, HELLO]
    )
    yield "items-answer", respond([HELLO, answer("Hi"), HELLO])
    yield "items-two-answers", respond([HELLO, answer("Hi"), answer("again", id="msg_2"), HELLO])
    yield "items-answer-two-parts", respond(
        [HELLO, answer("x", content=[{"type": "output_text", "text": t, "annotations": []}
                                     for t in ("one", "two")]), HELLO]
    )
    yield "items-answer-incomplete", respond([HELLO, answer("It is ", status="incomplete")])
    yield "items-answer-refusal", respond(
        [HELLO, answer("x", content=[{"type": "refusal", "refusal": "No."}]), HELLO]
    )
    yield "call", respond([HELLO, function_call(), output("21")])
    yield "call-id-status", respond(
        [HELLO, function_call(id="fc_1", status="completed"),
         output("21", id="o", status="completed")]
    )
    yield "calls-two", respond(
        [HELLO, function_call(), function_call(call_id="call_2", arguments="{}"),
         output("21"), output("22", call_id="call_2")]
    )
    yield "call-behind-answer", respond([HELLO, answer("Look."), function_call(), output("21")])
    yield "call-bad-arguments", respond([HELLO, function_call(arguments="{bad"), output("21")])
    yield "call-empty-arguments", respond([HELLO, function_call(arguments=""), output("21")])
    yield "call-output-parts", respond(
        [HELLO, function_call(), output([{"type": "input_text", "text": "one"},
                                         {"type": "input_text", "text": "two"}])]
    )
    yield "call-custom", respond(
        [HELLO, {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x\n"},
         {"type": "custom_tool_call_output", "call_id": "c", "output": "y"}]
    )
    yield "reasoning", respond([HELLO, thought(content=said), answer("Hi"), HELLO])
    yield "reasoning-no-id", respond(
        [HELLO, {"type": "reasoning", "summary": [], "content": said}, answer("Hi"), HELLO]
    )
    yield "reasoning-summary", respond([HELLO, thought(summary=summary), answer("Hi"), HELLO])
    yield "reasoning-empty", respond([HELLO, thought(), answer("Hi"), HELLO])
    yield "reasoning-encrypted", respond(
        [HELLO, thought(encrypted_content="abc"), answer("Hi"), HELLO]
    )
    yield "reasoning-and-call", respond(
        [HELLO, thought(content=said), function_call(), output("21"), answer("So."), HELLO]
    )
    yield "reasoning-behind-answer", respond([HELLO, answer("Hi"), thought(content=said), HELLO])
    yield "unknown-item", respond([{"type": "poem"}])
    yield "item-reference", respond([{"type": "item_reference", "id": "msg_1"}])
    yield "previous-response", respond("Hi", previous_response_id="resp_1")
    yield "previous-response-null", respond("Hi", previous_response_id=None)


def response_fields():
    """What else a request may have."""
    yield "tools", respond("Hello", tools=[FLAT_TOOL])
    yield "tools-key-order", respond(
        "Hello", tools=[{"parameters": {"z": 1, "a": 1.0}, "strict": None, "name": "f",
                         "type": "function", "extra": 1}]
    )
    yield "tools-no-parameters", respond("Hello", tools=[{"type": "function", "name": "f"}])
    yield "tools-nested", respond(
        "Hello", tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]
    )
    yield "tools-built-in", respond("Hello", tools=[{"type": "web_search"}, FLAT_TOOL])
    yield "tools-custom", respond("Hello", tools=[{"type": "custom", "name": "f"}])
    yield "tools-namespace", respond(
        "Hello",
        tools=[{"type": "namespace", "name": "n", "description": "d", "tools": [FLAT_TOOL]}],
    )
    yield "tools-empty", respond("Hello", tools=[])
    for choice in ("auto", "none", "required"):
        yield f"tool-choice-{choice}", respond("Hello", tools=[FLAT_TOOL], tool_choice=choice)
    yield "tool-choice-named", respond(
        "Hello", tools=[FLAT_TOOL], tool_choice={"type": "function", "name": "weather"}
    )
    yield "tool-choice-alone", respond("Hello", tool_choice="required")
    for effort in ("none", "low", "high", "extreme"):
        yield f"effort-{effort}", respond("Hello", reasoning={"effort": effort})
    yield "effort-null", respond("Hello", reasoning={"effort": None, "summary": "auto"})
    yield "kwargs", respond("Hello", chat_template_kwargs={"enable_thinking": False})
    yield "format", respond(
        "Hello", text={"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}}
    )
    yield "truncation", respond("Hello", truncation="auto")
    yield "ignored", respond(
        "Hello", store=False, metadata={"a": "b"}, user="u", prompt_cache_key="k",
        parallel_tool_calls=False, stream=True, include=["reasoning.encrypted_content"],
        service_tier="auto", text={"verbosity": "low"}, unknown=1, max_output_tokens=16,
    )


def completions():
    """Plain prompts."""
    yield "text", {"prompt": "Hello there, 12345 é <|im_end|>"}
    yield "text-empty", {"prompt": ""}
    yield "texts", {"prompt": ["Hello", "there"]}
    yield "texts-one", {"prompt": ["Hello"]}
    yield "texts-none", {"prompt": []}
    yield "ids", {"prompt": [39, 2315, 1697]}
    yield "ids-lists", {"prompt": [[39, 2315], [1697]]}
    yield "ids-one-list", {"prompt": [[39, 2315]]}
    yield "ids-mixed", {"prompt": [[39], "Hello"]}
    yield "ids-float", {"prompt": [39.0, 1]}
    yield "ids-unknown", {"prompt": [5000]}
    yield "ids-negative", {"prompt": [-1]}
    yield "prompt-null", {"prompt": None}
    yield "prompt-absent", {}
    yield "suffix", {"prompt": "a", "suffix": "b"}
    yield "echo", {"prompt": "Hello", "echo": True}
    yield "no-special-tokens", {"prompt": "Hello", "add_special_tokens": False}
    yield "truncated", {"prompt": "one two three four five six", "truncate_prompt_tokens": 3}
    yield "truncated-right", {
        "prompt": "one two three four five six", "truncate_prompt_tokens": 3,
        "truncation_side": "right",
    }


def by_route():
    """The requests of each route by name."""
    return {
        "messages": collect((message_contents, message_tools)),
        "responses": collect((response_inputs, response_fields)),
        "completions": collect((completions,)),
    }
