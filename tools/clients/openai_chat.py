"""The `openai` package against /v1/chat/completions, /v1/completions and /v1/models."""

import json

import openai

from command_line import long_text, ok, options, require

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def plain_answer(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Hello"}], max_tokens=8
    )
    require(answer.object == "chat.completion", "the answer's object")
    require(answer.choices[0].finish_reason in ("stop", "length"), "finish_reason")
    usage = answer.usage
    require(usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, "total_tokens")
    require(0 < usage.completion_tokens <= 8, "max_tokens is a limit")


def streamed_answer(client: openai.OpenAI, model: str) -> None:
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": "Count to three"}],
        "max_tokens": 12,
        "temperature": 0,
    }
    whole = client.chat.completions.create(**asked).choices[0].message.content
    with client.chat.completions.stream(
        **asked, stream_options={"include_usage": True}
    ) as stream:
        kinds = [event.type for event in stream]
        # `get_final_completion` takes an answer that its limit ended for an error.
        final = stream.current_completion_snapshot
    require("content.delta" in kinds or not whole, "a stream has pieces of text")
    require(final.choices[0].message.content == (whole or None), "a stream says the same")
    require(final.usage is not None and final.usage.completion_tokens > 0, "usage of a stream")


def cached_prompt(client: openai.OpenAI, model: str) -> None:
    messages = [{"role": "user", "content": long_text()}]

    def usage():
        answer = client.chat.completions.create(model=model, messages=messages, max_tokens=2)
        return answer.usage

    first, second = usage(), usage()
    details = second.prompt_tokens_details
    # Engines report it by an option only; what is reported must be right.
    if details is not None and details.cached_tokens is not None:
        require(0 < details.cached_tokens <= second.prompt_tokens, "the second time is cached")
        created = getattr(first.prompt_tokens_details, "created_cache_tokens", None)
        if created is not None:
            require(created >= details.cached_tokens, "what is cached was created before")


def agent_history(client: openai.OpenAI, model: str) -> None:
    def call(name: str, arguments: dict) -> dict:
        function = {"name": "weather", "arguments": json.dumps(arguments)}
        return {"id": name, "type": "function", "function": function}

    calls = [call("call_1", {"city": "Oslo"}), call("call_2", {"city": "Rome"})]
    answer = client.chat.completions.create(
        model=model,
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Oslo or Rome?"}]},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            {"role": "tool", "tool_call_id": "call_2", "content": "sun"},
        ],
        tools=[WEATHER],
        max_tokens=8,
        prompt_cache_key="a-conversation",
        safety_identifier="a-user",
        metadata={"origin": "headstart"},
        store=False,
        user="a-user",
    )
    require(answer.usage.prompt_tokens > 20, "the history is part of the prompt")


def errors_are_typed(client: openai.OpenAI, model: str) -> None:
    try:
        client.chat.completions.create(
            model="no-such-model", messages=[{"role": "user", "content": "x"}]
        )
    except openai.NotFoundError:
        pass
    else:
        require(False, "an unknown model is a NotFoundError")
    try:
        client.chat.completions.create(model=model, messages=[{"content": "x"}])
    except (openai.BadRequestError, openai.UnprocessableEntityError):
        pass
    else:
        require(False, "a message without a role is a BadRequestError")


def plain_completion(client: openai.OpenAI, model: str) -> None:
    answer = client.completions.create(model=model, prompt="Once upon a time", max_tokens=4)
    require(answer.usage.completion_tokens <= 4, "max_tokens of a completion")
    nested = client.completions.create(model=model, prompt=[[40, 41, 42]], max_tokens=2)
    require(nested.usage.prompt_tokens >= 3, "a prompt of token ids")


def main() -> None:
    given = options(__doc__)
    client = openai.OpenAI(
        base_url=f"{given.base_url}/v1", api_key=given.api_key, max_retries=0
    )
    require(given.model in [model.id for model in client.models.list()], "the model is listed")
    checks = [
        plain_answer, streamed_answer, cached_prompt, agent_history, errors_are_typed,
        plain_completion,
    ]  # fmt: skip
    for check in checks:
        check(client, given.model)
    ok("openai", openai.__version__, ", ".join(check.__name__ for check in checks))


if __name__ == "__main__":
    main()
