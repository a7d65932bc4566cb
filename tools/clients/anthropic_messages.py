"""The `anthropic` package against /v1/messages and /v1/messages/count_tokens."""

import anthropic

from command_line import long_text, ok, options, require

WEATHER = {
    "name": "weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def prompt_tokens(usage: anthropic.types.Usage) -> int:
    """The three counts that Anthropic splits a prompt into."""
    read = usage.cache_read_input_tokens or 0
    return usage.input_tokens + read + (usage.cache_creation_input_tokens or 0)


def plain_answer(client: anthropic.Anthropic, model: str) -> None:
    answer = client.messages.create(
        model=model,
        max_tokens=8,
        system="Be brief.",
        messages=[{"role": "user", "content": "Hello"}],
        stop_sequences=["\n\n\n\n"],
        extra_body={"temperature": 0.0},
    )
    require(answer.type == "message" and answer.role == "assistant", "a message")
    require(answer.stop_reason in ("end_turn", "max_tokens", "stop_sequence"), "stop_reason")
    require(0 < answer.usage.output_tokens <= 8, "max_tokens is a limit")


def streamed_answer(client: anthropic.Anthropic, model: str) -> None:
    asked = {
        "model": model,
        "max_tokens": 12,
        "messages": [{"role": "user", "content": "Count to three"}],
        "extra_body": {"temperature": 0.0},
    }
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    require(kinds[0] == "message_start" and kinds[-1] == "message_stop", f"events: {kinds}")
    require("message_delta" in kinds, f"events: {kinds}")
    require(kinds.count("content_block_start") == kinds.count("content_block_stop"), "blocks")
    said = [block.text for block in final.content if block.type == "text"]
    expected = [block.text for block in whole.content if block.type == "text"]
    require(said == expected, "a stream says the same")
    require(final.stop_reason == whole.stop_reason, "and ends for the same reason")
    require(prompt_tokens(final.usage) == prompt_tokens(whole.usage), "usage of a stream")


def agent_history(client: anthropic.Anthropic, model: str) -> None:
    cached = {"cache_control": {"type": "ephemeral"}}
    asked = {
        "model": model,
        "system": [{"type": "text", "text": f"Be brief. {long_text()}", **cached}],
        "tools": [WEATHER],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Oslo or Rome?"}]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "t2", "name": "weather", "input": {"city": "Rome"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "rain"},
                {"type": "tool_result", "tool_use_id": "t2",
                 "content": [{"type": "text", "text": "sun"}], **cached},
            ]},
        ],
    }  # fmt: skip
    counted = client.messages.count_tokens(**asked).input_tokens
    answers = [
        client.messages.create(**asked, max_tokens=4, metadata={"user_id": "a-user"})
        for _ in range(2)
    ]
    for answer in answers:
        require(prompt_tokens(answer.usage) == counted, "count_tokens is what usage sums to")
    first, second = (answer.usage for answer in answers)
    if second.cache_read_input_tokens is not None:
        require(second.cache_read_input_tokens > 0, "the second time is read from the cache")
    if first.cache_creation_input_tokens is not None:
        created = first.cache_creation_input_tokens + (first.cache_read_input_tokens or 0)
        require(created >= second.cache_read_input_tokens, "what is read was created before")


def errors_are_typed(client: anthropic.Anthropic, model: str) -> None:
    try:
        client.messages.create(
            model="no-such-model", max_tokens=4, messages=[{"role": "user", "content": "x"}]
        )
    except anthropic.NotFoundError:
        pass
    else:
        require(False, "an unknown model is a NotFoundError")
    try:
        client.messages.create(
            model=model, max_tokens=4, messages=[{"role": "wizard", "content": "x"}]
        )
    except anthropic.BadRequestError as error:
        # vLLM answers what it cannot parse in OpenAI's shape.
        require("message" in error.body["error"], "an error with a message")
    else:
        require(False, "an unknown role is a BadRequestError")


def main() -> None:
    given = options(__doc__)
    client = anthropic.Anthropic(
        base_url=given.base_url, api_key=given.api_key, max_retries=0
    )
    checks = [plain_answer, streamed_answer, agent_history, errors_are_typed]
    for check in checks:
        check(client, given.model)
    ok("anthropic", anthropic.__version__, ", ".join(check.__name__ for check in checks))


if __name__ == "__main__":
    main()
