"""The requests whose prompts are captured: each exercises one rule of the engine's preprocessing.

    python tools/parity/shapes.py FOLDER

Writes `shapes.json`, `messages.json`, `responses.json` and `completions.json` into the folder.
Names start with the part of a request that they vary.
"""

import argparse
import json
from pathlib import Path

SYSTEM = {"role": "system", "content": "Be brief."}
HELLO = {"role": "user", "content": "Hello there"}
ASK = {"role": "user", "content": "What is the weather in Paris?"}
ANSWER = {"role": "assistant", "content": "It is sunny."}
THANKS = {"role": "user", "content": "Thanks!"}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"}

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "The city's name"},
        "days": {"type": "integer", "minimum": 1, "default": 3},
        "unit": {"type": ["string", "null"], "enum": ["C", "F", None]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "description": "Tells it.", "parameters": PARAMETERS},
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time."}}


def chat(*messages, **fields):
    """A chat request of these messages."""
    return {"messages": list(messages), **fields}


def call(arguments, name="weather", call_id="call_1"):
    """A tool call as OpenAI's API writes it."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def calling(*calls, **fields):
    """An answer with tool calls and no text."""
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def agent(*calls, **fields):
    """A conversation in which these calls were made."""
    return chat(SYSTEM, ASK, calling(*calls, **fields), RESULT, THANKS)


def with_tools(*tools, **fields):
    """A question with these tools."""
    return chat(SYSTEM, ASK, tools=list(tools), **fields)


def function(**fields):
    """A tool whose function has these fields in this order."""
    return {"type": "function", "function": fields}


def said(content, role="user"):
    """A conversation in which one message of that role has this content."""
    return {
        "system": lambda m: chat(m, HELLO),
        "user": lambda m: chat(SYSTEM, m),
        "assistant": lambda m: chat(HELLO, m, THANKS),
        "tool": lambda m: chat(ASK, calling(call("{}")), {**m, "tool_call_id": "call_1"}),
    }[role]({"role": role, "content": content})


def part(text, **fields):
    """A text part."""
    return {"type": "text", "text": text, **fields}


def plain():
    """Conversations without anything special."""
    yield "plain", chat(HELLO)
    yield "plain-system", chat(SYSTEM, HELLO)
    yield "plain-turns", chat(SYSTEM, ASK, ANSWER, THANKS)
    yield "plain-two-systems", chat(SYSTEM, {"role": "system", "content": "Be kind."}, HELLO)
    yield "plain-late-system", chat(HELLO, ANSWER, SYSTEM, THANKS)
    yield "plain-two-users", chat(HELLO, THANKS)
    yield "plain-ends-with-answer", chat(HELLO, ANSWER)
    yield "plain-empty", chat()
    long = "One line after another, number 12345, and so forth.\n" * 24
    yield "plain-long", chat(SYSTEM, {"role": "user", "content": long}, ANSWER, THANKS)
    turns = [m for i in range(4) for m in ({**HELLO, "content": f"Question {i}?"}, ANSWER)]
    yield "plain-many-turns", chat(SYSTEM, *turns, THANKS)


def texts():
    """Characters that are easily treated differently."""
    yield "text-unicode", said("Grüße, 世界! 👩‍👩‍👧 e\u0301 \u00e9 \u200b \u2028 ß")
    yield "text-control", said("bell \u0007 null \u0000 escape \u001b del \u007f tab\t cr\r\nend")
    yield "text-pair", said("pair \ud83d\ude00 end")
    yield "text-special-token", said("<|im_start|>user\nmine<|im_end|>")
    yield "text-jinja", said("{{ messages }} {% if x %} {# no #}")
    yield "text-html", said("<b>\"bold\"</b> & 'single' \\ / `x`")
    yield "text-blank", said("  two before, three after   ")
    yield "text-newlines", said("\n\nfirst\n\n\nsecond\n")
    yield "text-only-spaces", said("   \n ")
    yield "text-digits", said("1 22 333 4444 55555 3.14159 1e10 0x1F")
    yield "text-empty", said("")


def contents():
    """What content may be."""
    for role in ("system", "user", "assistant", "tool"):
        yield f"content-null-{role}", said(None, role)
        yield f"content-one-part-{role}", said([part("alone")], role)
        yield f"content-parts-{role}", said([part(" one "), part("two\n"), part("three")], role)
        yield f"content-no-parts-{role}", said([], role)
    yield "content-absent-user", chat(SYSTEM, {"role": "user"})
    yield "content-absent-system", chat({"role": "system"}, HELLO)
    yield "content-absent-assistant", chat(HELLO, {"role": "assistant"}, THANKS)
    yield "content-absent-with-calls", chat(
        ASK, {"role": "assistant", "tool_calls": [call("{}")]}, RESULT
    )
    yield "content-empty-assistant", said("", "assistant")
    yield "content-number", said(5)
    yield "content-object", said({"text": "x"})


def parts():
    """What a part of a content may be."""
    cache = {"type": "ephemeral", "ttl": "1h"}
    yield "part-cache-control", said([part("kept", cache_control=cache), part("plain")])
    yield "part-extra-keys", said([{"zeta": 1, "text": "x", "alpha": [1.0], "type": "text"}])
    yield "part-known-keys", said([part("x", name="n", detail="low", refusal="r", uuid=None)])
    yield "part-breakpoint", said([part("x", prompt_cache_breakpoint={"mode": "explicit"})])
    yield "part-text-keys-cached-system", said([part("rules", cache_control=cache)], "system")
    yield "part-strings", said(["one", "two"])
    yield "part-strings-tool", said(["one", "two"], "tool")
    yield "part-empty-texts-tool", said([part(""), part("")], "tool")
    yield "part-empty-text-tool", said([part("a"), part(""), part("b")], "tool")
    yield "part-string-and-text", said([part("one"), "two"])
    yield "part-string-and-thinking", said(["one", {"type": "thinking", "thinking": "hm"}])
    yield "part-refusal", said([{"type": "refusal", "refusal": "No."}], "assistant")
    yield "part-refusal-and-text", said(
        [part("I think:"), {"type": "refusal", "refusal": "No."}], "assistant"
    )
    thought = {"type": "thinking", "thinking": "Let me see.", "closed": True}
    yield "part-thinking", said([thought, part("Yes.")], "assistant")
    yield "part-thinking-signature", said([{**thought, "signature": "abc"}], "assistant")
    yield "part-input-text", said([{"type": "input_text", "text": "asked"}])
    yield "part-output-text", said(
        [{"type": "output_text", "text": "told", "annotations": []}], "assistant"
    )
    yield "part-empty-text", said([part(""), part("after")])
    yield "part-no-text", said([{"type": "text"}])
    yield "part-null-text", said([{"type": "text", "text": None}, part("x")])
    yield "part-no-type", said([{"text": "x"}])
    yield "part-unknown-type", said([{"type": "poem", "text": "x"}])
    yield "part-tool-reference", said([{"type": "tool_reference", "name": "weather"}], "tool")
    yield "part-tool-reference-and-text", said(
        [part("see"), {"type": "tool_reference", "name": "weather"}], "tool"
    )
    yield "part-image", said([{"type": "image_url", "image_url": {"url": "data:,"}}])
    yield "part-uuid", said([part("x", uuid="1")])


def arguments():
    """What a call's arguments may be."""
    yield "arguments-object", agent(call({"city": "Paris"}))
    yield "arguments-text", agent(call('{"city": "Paris", "days": 2}'))
    yield "arguments-compact", agent(call('{"city":"Paris","days":2}'))
    yield "arguments-spaces", agent(call(' {\n "city" : "Paris" } '))
    yield "arguments-empty-object", agent(call("{}"))
    yield "arguments-empty", agent(call(""))
    yield "arguments-blank", agent(call("  "))
    yield "arguments-null", agent(call(None))
    yield "arguments-null-text", agent(call("null"))
    yield "arguments-list", agent(call("[1, 2]"))
    yield "arguments-number", agent(call("42"))
    yield "arguments-string", agent(call('"Paris"'))
    yield "arguments-invalid", agent(call('{"city": "Par'))
    yield "arguments-two-values", agent(call('{"a": 1}{"b": 2}'))
    yield "arguments-single-quotes", agent(call("{'city': 'Paris'}"))
    yield "arguments-trailing-comma", agent(call('{"a": 1,}'))
    yield "arguments-unicode", agent(call('{"ville": "Orléans 🌞", "e": "\\u00e9\\ud83d\\ude00"}'))
    yield "arguments-surrogate", agent(call('{"x": "\\ud800"}'))
    yield "arguments-control", agent(call('{"x": "a\tb"}'))
    yield "arguments-escapes", agent(call('{"x": "a\\n\\"b\\" \\\\ \\/ <&> \'q\' \\u0007\\u007f"}'))
    numbers = '{"a": 1.0, "b": 1e3, "c": -0.0, "d": 1E-7, "e": 12345678901234567890123, "f": 0.1, '
    numbers += '"g": 1e16, "h": 123456789.123456789, "i": -5, "j": 1.5e300, '
    numbers += '"k": 100000000000000000.0}'
    yield "arguments-numbers", agent(call(numbers))
    yield "arguments-not-json-numbers", agent(call('{"a": NaN, "b": Infinity, "c": -Infinity}'))
    yield "arguments-overflow", agent(call('{"a": 1e400}'))
    yield "arguments-leading-zero", agent(call('{"a": 01}'))
    yield "arguments-constants", agent(call('{"a": true, "b": false, "c": null, "d": []}'))
    yield "arguments-duplicates", agent(call('{"b": 1, "a": 2, "b": 3}'))
    yield "arguments-order", agent(call('{"z": 1, "a": {"y": 1, "b": 2}, "m": 3}'))
    nested = '{"filter": {"any": [{"k": "v", "n": 1.0}, [1, [2, {"x": null}]]]}, "list": ["a", 2]}'
    yield "arguments-nested", agent(call(nested))
    yield "arguments-deep", agent(call('{"a": ' + "[" * 60 + "]" * 60 + "}"))
    yield "arguments-multiline", agent(call('{"code": "def f():\\n    return 1\\n"}'))
    yield "arguments-empty-key", agent(call('{"": 1, " ": 2}'))


def calls():
    """What a call may be."""
    good = call('{"city": "Paris"}')
    yield "call-two", chat(
        SYSTEM, ASK, calling(good, call("{}", "clock", "call_2")), RESULT,
        {"role": "tool", "tool_call_id": "call_2", "content": "noon"}, THANKS,
    )
    yield "call-text-beside", agent(good, content="Let me look.")
    yield "call-empty-text-beside", agent(good, content="")
    yield "call-parts-beside", agent(good, content=[part("Let"), part("me")])
    yield "call-name-first", agent(
        {"function": {"name": "weather", "arguments": "{}"}, "type": "function", "id": "c"}
    )
    yield "call-extra-keys", agent({"index": 0, **good, "extra": {"b": 1, "a": 2}})
    yield "call-function-extra-keys", agent(
        {**good, "function": {"zeta": 1, "name": "weather", "arguments": "{}", "alpha": None}}
    )
    yield "call-no-id", agent({"type": "function", "function": {"name": "f", "arguments": "{}"}})
    yield "call-no-type", agent({"id": "c", "function": {"name": "f", "arguments": "{}"}})
    yield "call-no-arguments", agent({**good, "function": {"name": "weather"}})
    yield "call-no-name", agent({**good, "function": {"arguments": "{}"}})
    yield "call-custom", agent({"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}})
    yield "call-id-null", agent({**good, "id": None})
    yield "call-none", chat(HELLO, {**ANSWER, "tool_calls": []}, THANKS)
    yield "call-null", chat(HELLO, {**ANSWER, "tool_calls": None}, THANKS)
    yield "call-none-no-content", chat(HELLO, {"role": "assistant", "tool_calls": []}, THANKS)
    yield "call-of-user", chat({**HELLO, "tool_calls": [good]}, ANSWER, THANKS)
    yield "call-without-result", chat(ASK, calling(good))
    yield "call-with-tools", {**agent(good), "tools": [WEATHER, CLOCK]}
    yield "call-unicode-name", agent(call("{}", "wétter"))
    rounds = [
        m
        for i in range(3)
        for m in (
            calling(call(json.dumps({"city": f"City {i}"}), call_id=f"call_{i}")),
            {"role": "tool", "tool_call_id": f"call_{i}", "content": f"{20 + i} degrees"},
        )
    ]
    yield "call-rounds", chat(SYSTEM, ASK, *rounds, ANSWER, THANKS, tools=[WEATHER])


def fields():
    """What else a message may have."""
    yield "message-keys-reversed", chat(
        {"name": "bob", "content": "Hello", "role": "user"},
        {"tool_calls": None, "reasoning": "hm", "content": "Hi", "role": "assistant"}, THANKS,
    )
    yield "message-names", chat(
        {**SYSTEM, "name": "s"}, {**HELLO, "name": "bob"}, {**ANSWER, "name": "bot"}, THANKS
    )
    yield "message-name-null", chat({**HELLO, "name": None}, ANSWER, THANKS)
    yield "message-name-number", chat({**HELLO, "name": 5}, ANSWER, THANKS)
    yield "message-extra-keys", chat({**HELLO, "extra": {"a": 1}}, {**ANSWER, "extra": 1}, THANKS)
    yield "message-reasoning", chat(HELLO, {**ANSWER, "reasoning": "Sun."}, THANKS)
    yield "message-reasoning-content", chat(HELLO, {**ANSWER, "reasoning_content": "Sun."}, THANKS)
    yield "message-both-reasonings", chat(
        HELLO, {**ANSWER, "reasoning": "one", "reasoning_content": "two"}, THANKS
    )
    yield "message-reasoning-null", chat(
        HELLO, {**ANSWER, "reasoning": None, "reasoning_content": "two"}, THANKS
    )
    yield "message-reasoning-empty", chat(HELLO, {**ANSWER, "reasoning": ""}, THANKS)
    yield "message-reasoning-content-null", chat(
        HELLO, {**ANSWER, "reasoning_content": None}, THANKS
    )
    yield "message-reasoning-number", chat(HELLO, {**ANSWER, "reasoning": 5}, THANKS)
    yield "message-reasoning-of-user", chat({**HELLO, "reasoning": "x"}, ANSWER, THANKS)
    yield "message-reasoning-with-calls", agent(call("{}"), reasoning_content="I must look.")
    yield "message-reasoning-last", chat(HELLO, {**ANSWER, "reasoning": "Sun."})
    yield "message-think-tags", chat(
        HELLO, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}, THANKS
    )
    yield "message-thinking-field", chat(HELLO, {**ANSWER, "thinking": "x"}, THANKS)
    yield "message-refusal", chat(
        HELLO, {"role": "assistant", "content": None, "refusal": "No."}, THANKS
    )
    yield "message-sdk-dump", chat(
        ASK,
        {
            "content": "Yes.", "refusal": None, "role": "assistant", "annotations": [],
            "audio": None, "function_call": None, "tool_calls": None,
        },
        THANKS,
    )
    yield "message-sdk-dump-calls", chat(
        ASK,
        {
            "content": None, "refusal": None, "role": "assistant", "annotations": [],
            "audio": None, "function_call": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "function": {"arguments": '{"city":"Paris"}', "name": "weather"},
                    "type": "function",
                    "index": 0,
                }
            ],
        },
        RESULT,
    )
    yield "message-function-call", chat(
        HELLO, {**ANSWER, "function_call": {"name": "f", "arguments": "{}"}}, THANKS
    )
    yield "message-audio", chat(HELLO, {**ANSWER, "audio": {"id": "a1"}}, THANKS)
    yield "message-task", chat({**HELLO, "task": "sum"})
    yield "message-tool-name", chat(ASK, calling(call("{}")), {**RESULT, "name": "weather"})
    yield "message-tool-no-id", chat(
        ASK, calling(call("{}")), {"role": "tool", "content": "21 degrees"}
    )
    yield "message-tool-id-null", chat(ASK, calling(call("{}")), {**RESULT, "tool_call_id": None})
    yield "message-tool-extra", chat(ASK, calling(call("{}")), {**RESULT, "is_error": True})


def roles():
    """Who may speak."""
    rules = {"role": "developer", "content": "Follow the rules."}
    yield "role-developer", chat(rules, HELLO)
    yield "role-developer-late", chat(HELLO, ANSWER, rules, THANKS)
    yield "role-developer-and-system", chat(SYSTEM, rules, HELLO)
    yield "role-developer-twice", chat(rules, HELLO, ANSWER, {**rules, "content": "More."}, THANKS)
    yield "role-developer-empty", chat({**rules, "content": ""}, SYSTEM, HELLO)
    yield "role-developer-parts", chat({**rules, "content": [part("a"), part("b")]}, HELLO)
    yield "role-developer-parts-merged", chat(
        SYSTEM, {**rules, "content": [part("a"), part("b")]}, HELLO
    )
    yield "role-developer-name", chat({**rules, "name": "boss"}, HELLO)
    named = {**SYSTEM, "name": "s"}
    yield "role-developer-name-merged", chat(named, {**rules, "name": "b"}, HELLO)
    yield "role-developer-tools", chat({**rules, "tools": [WEATHER]}, HELLO)
    yield "role-developer-own-tools-reordered", chat(
        {**rules, "tools": [{"function": {"parameters": {}, "name": "f"}, "type": "function"}]},
        HELLO,
    )
    yield "role-developer-request-tools", chat(rules, ASK, tools=[WEATHER])
    yield "role-developer-null", chat({**rules, "content": None}, HELLO)
    yield "role-function", chat(ASK, {"role": "function", "name": "weather", "content": "21"})
    yield "role-function-null", chat(ASK, {"role": "function", "name": "weather", "content": None})
    yield "role-custom", chat(HELLO, {"role": "narrator", "content": "Later."}, THANKS)
    yield "role-custom-keys", chat(
        {"role": "narrator", "content": "x", "tool_calls": [call("{}")], "reasoning": "r"}, HELLO
    )
    yield "role-absent", chat({"content": "Hello"})
    yield "role-upper", chat({"role": "User", "content": "Hello"})
    header = "x-anthropic-billing-header: cc_version=2; cch=abc;"
    yield "billing-line", chat({"role": "system", "content": header + "\nBe brief."}, HELLO)
    yield "billing-alone", chat({"role": "system", "content": header}, HELLO)
    yield "billing-part", said([part(header), part("Be brief.")], "system")
    yield "billing-part-line", said([part(header + "\nBe brief.", cache_control={})], "system")
    yield "billing-later-line", chat({"role": "system", "content": "Be brief.\n" + header}, HELLO)
    yield "billing-of-user", said(header + "\nHello")
    yield "billing-of-developer", chat({"role": "developer", "content": header + "\nx"}, HELLO)


def tools():
    """What a tool may be."""
    yield "tools-one", with_tools(WEATHER)
    yield "tools-two", with_tools(WEATHER, CLOCK)
    yield "tools-no-description", with_tools(function(name="f", parameters=PARAMETERS))
    yield "tools-null-description", with_tools(function(name="f", description=None))
    yield "tools-name-only", with_tools(function(name="f"))
    yield "tools-null-parameters", with_tools(function(name="f", parameters=None))
    yield "tools-empty-parameters", with_tools(function(name="f", parameters={}))
    yield "tools-strict", with_tools(function(name="f", strict=True, parameters={"type": "object"}))
    yield "tools-strict-false", with_tools(function(name="f", strict=False))
    yield "tools-strict-null", with_tools(function(name="f", strict=None))
    yield "tools-strict-text", with_tools(function(name="f", strict="yes"))
    yield "tools-key-order", with_tools(
        {"function": {"parameters": {"z": 1, "a": 2}, "description": "d", "name": "f"},
         "type": "function"}
    )
    yield "tools-extra-keys", with_tools(
        {"zeta": 1, **function(name="f", zeta=1, description="d"), "cache_control": {"type": "x"}}
    )
    yield "tools-defer-loading", with_tools({**function(name="f"), "defer_loading": True})
    yield "tools-defer-loading-false", with_tools({**function(name="f"), "defer_loading": False})
    yield "tools-defer-loading-inside", with_tools(function(name="f", defer_loading=True))
    yield "tools-no-type", with_tools({"function": {"name": "f"}})
    yield "tools-other-type", with_tools({"type": "web_search"})
    yield "tools-no-function", with_tools({"type": "function", "name": "f", "parameters": {}})
    yield "tools-no-name", with_tools(function(description="d"))
    yield "tools-unicode", with_tools(
        function(name="météo", description="Prévision 🌞 <b> & 'q' \"d\" \u2028",
                 parameters={"type": "object", "properties": {"straße": {"type": "string"}}})
    )
    yield "tools-numbers", with_tools(
        function(name="f", parameters={"type": "object", "minimum": 1.0, "maximum": 1e5,
                                       "big": 12345678901234567890123, "small": 1e-7,
                                       "list": [1, 2.5, None, True], "exp": 1e22})
    )
    yield "tools-schema", with_tools(
        function(
            name="f", description="  spaces around  ",
            parameters={
                "type": "object",
                "properties": {
                    "x": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                    "y": {"type": "array", "items": {"$ref": "#/$defs/Y"}, "minItems": 1},
                },
                "$defs": {"Y": {"type": "object", "properties": {}}},
                "$schema": "http://json-schema.org/draft-07/schema#",
            },
        )
    )
    yield "tools-duplicates", with_tools(CLOCK, CLOCK)
    yield "tools-null", chat(SYSTEM, ASK, tools=None)
    yield "tools-empty", chat(SYSTEM, ASK, tools=[])
    yield "tools-no-system", chat(ASK, tools=[WEATHER])
    yield "tools-choice-none", with_tools(WEATHER, tool_choice="none")
    yield "tools-choice-auto", with_tools(WEATHER, tool_choice="auto")
    yield "tools-choice-required", with_tools(WEATHER, tool_choice="required")
    named = {"type": "function", "function": {"name": "weather"}}
    yield "tools-choice-named", with_tools(WEATHER, CLOCK, tool_choice=named)
    yield "tools-choice-unknown", with_tools(CLOCK, tool_choice=named)
    yield "tools-choice-null", with_tools(WEATHER, tool_choice=None)
    yield "tools-choice-alone", chat(ASK, tool_choice="auto")
    yield "tools-choice-none-alone", chat(ASK, tool_choice="none")
    yield "tools-parallel", with_tools(WEATHER, parallel_tool_calls=False)


def parameters():
    """What the template sees beside messages and tools."""
    for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max", "extreme", None):
        yield f"effort-{effort or 'null'}", chat(SYSTEM, HELLO, reasoning_effort=effort)
    yield "effort-in-kwargs", chat(HELLO, chat_template_kwargs={"reasoning_effort": "extreme"})
    yield "effort-in-both", chat(
        HELLO, reasoning_effort="low", chat_template_kwargs={"reasoning_effort": "high"}
    )
    yield "effort-and-thinking", chat(
        HELLO, reasoning_effort="high", chat_template_kwargs={"enable_thinking": False}
    )
    yield "effort-none-and-thinking", chat(
        HELLO, reasoning_effort="none", chat_template_kwargs={"enable_thinking": True}
    )
    yield "effort-and-null-thinking", chat(
        HELLO, reasoning_effort="high", chat_template_kwargs={"enable_thinking": None}
    )
    for name, kwargs in {
        "thinking": {"enable_thinking": True},
        "no-thinking": {"enable_thinking": False},
        "empty": {},
        "text": {"custom": "text"},
        "auto": {"custom": "auto"},
        "custom-null": {"custom": None},
        "number": {"custom": 1.0},
        "list": {"custom": [1e20, None, True, "it's", {"k": "v"}]},
        "unknown": {"nothing_reads_this": 1},
        "tools": {"tools": [WEATHER]},
        "documents": {"documents": [{"title": "t", "n": 1}]},
        "generation-prompt": {"add_generation_prompt": False},
        "continue": {"continue_final_message": True},
        "messages": {"messages": []},
        "bos": {"bos_token": "<s>"},
        "tokenize": {"tokenize": True},
        "chat-template": {"chat_template": "other"},
        "truncation": {"truncation": True, "max_length": 4, "padding": True},
    }.items():
        yield f"kwargs-{name}", chat(SYSTEM, HELLO, chat_template_kwargs=kwargs)
    yield "kwargs-null", chat(HELLO, chat_template_kwargs=None)
    yield "kwargs-tools-beside-tools", with_tools(CLOCK, chat_template_kwargs={"tools": [WEATHER]})
    yield "documents", chat(HELLO, documents=[{"title": "A", "text": "x"}, {"text": "é"}])
    yield "documents-empty", chat(HELLO, documents=[])
    yield "documents-null", chat(HELLO, documents=None)
    yield "documents-number", chat(HELLO, documents=[{"title": "A", "page": 1}])
    yield "documents-in-both", chat(
        HELLO, documents=[{"text": "x"}], chat_template_kwargs={"documents": [{"text": "y"}]}
    )
    yield "documents-empty-over-kwargs", chat(
        HELLO, documents=[], chat_template_kwargs={"documents": [{"text": "y"}]}
    )


def last_message(content, **message):
    """The last message is to be continued."""
    answer = {"role": "assistant", "content": content, **message}
    return chat(HELLO, answer, add_generation_prompt=False, continue_final_message=True)


def ends():
    """How the prompt ends."""
    yield "end-no-generation-prompt", chat(SYSTEM, HELLO, add_generation_prompt=False)
    yield "end-continue", last_message("It is")
    yield "end-continue-space", last_message("It is ")
    yield "end-continue-spaces", last_message("  It is\n\n")
    yield "end-continue-empty", last_message("")
    yield "end-continue-null", last_message(None)
    yield "end-continue-parts", last_message([part("It "), part("is ")])
    yield "end-continue-one-part", last_message([part("It is ")])
    yield "end-continue-calls", last_message(None, tool_calls=[call("{}")])
    yield "end-continue-text-and-calls", last_message("Hm", tool_calls=[call("{}")])
    yield "end-continue-reasoning", last_message("It is", reasoning="Sun.")
    yield "end-continue-think", last_message("<think>\nhm")
    yield "end-continue-repeated", last_message("Hello there")
    yield "end-continue-user", chat(
        SYSTEM, HELLO, add_generation_prompt=False, continue_final_message=True
    )
    yield "end-continue-tool", chat(
        ASK, calling(call("{}")), RESULT,
        add_generation_prompt=False, continue_final_message=True,
    )
    yield "end-continue-only", chat(HELLO, ANSWER, continue_final_message=True)
    yield "end-continue-and-prompt", chat(
        HELLO, ANSWER, continue_final_message=True, add_generation_prompt=True
    )
    yield "end-echo", chat(HELLO, ANSWER, echo=True)
    yield "end-special-tokens", chat(SYSTEM, HELLO, add_special_tokens=True)
    yield "end-truncated", chat(SYSTEM, HELLO, truncate_prompt_tokens=6)
    yield "end-truncated-right", chat(
        SYSTEM, HELLO, truncate_prompt_tokens=6, truncation_side="right"
    )
    yield "end-truncated-left", chat(
        SYSTEM, HELLO, truncate_prompt_tokens=6, truncation_side="left"
    )
    yield "end-truncated-to-context", chat(SYSTEM, HELLO, truncate_prompt_tokens=-1)
    yield "end-ignored-fields", chat(
        SYSTEM, HELLO, user="u", metadata={"a": "b"}, store=False, prompt_cache_key="k", seed=1,
        service_tier="auto", verbosity="low", unknown_field=1, stop=["x"], stream=True,
        stream_options={"include_usage": True}, response_format={"type": "json_object"},
    )


CHAT = (
    plain, texts, contents, parts, arguments, calls, fields, roles, tools, parameters, ends,
)


def chats():
    """Every chat request by its name."""
    return collect(CHAT)


def collect(builders):
    """The requests of these builders by name."""
    found = {}
    for builder in builders:
        for name, request in builder():
            assert name not in found, name
            found[name] = request
    return found


def dumps(value):
    """JSON with other scripts as they are, but nothing that is not valid UTF-8 or breaks lines."""
    text = json.dumps(value, ensure_ascii=False)
    if any("\ud800" <= c <= "\udfff" or c in "\u2028\u2029\u0085\u007f" for c in text):
        return json.dumps(value)
    return text


def write_lines(path, entries):
    """Writes a JSON object with one entry a line."""
    lines = [f"{json.dumps(k)}: {dumps(v)}" for k, v in entries.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return path


def main():
    import other_shapes

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    write_lines(folder / "shapes.json", chats())
    for name, requests in other_shapes.by_route().items():
        write_lines(folder / f"{name}-shapes.json", requests)


if __name__ == "__main__":
    main()
