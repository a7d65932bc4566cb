"""The `litellm` package: OpenAI's chat and responses, and Anthropic's messages, by its own adapters."""

import importlib.metadata
import os

# Its list of prices is a download otherwise.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

import litellm  # noqa: E402

from command_line import long_text, ok, options, require  # noqa: E402


def chat(base_url: str, model: str, key: str) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
    }
    function = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
    answer = litellm.completion(
        model=f"openai/{model}",
        api_base=f"{base_url}/v1",
        api_key=key,
        messages=[
            {"role": "system", "content": long_text()},
            {"role": "user", "content": "Oslo?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        ],
        tools=[{"type": "function", "function": function}],
        max_tokens=8,
    )
    require(answer.usage.prompt_tokens > 100, "the history is part of the prompt")
    pieces = litellm.completion(
        model=f"openai/{model}",
        api_base=f"{base_url}/v1",
        api_key=key,
        messages=[{"role": "user", "content": "Hello"}],
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    ends = [piece.choices[0].finish_reason for piece in pieces if piece.choices]
    require(ends[-1] in ("stop", "length"), "a stream has an end")


def responses(base_url: str, model: str, key: str) -> None:
    answer = litellm.responses(
        model=f"openai/{model}",
        api_base=f"{base_url}/v1",
        api_key=key,
        input="Hello",
        max_output_tokens=16,
    )
    require(answer.usage.total_tokens > 0, "usage of a response")


def messages(base_url: str, model: str, key: str) -> None:
    answer = litellm.completion(
        model=f"anthropic/{model}",
        api_base=base_url,
        api_key=key,
        messages=[{"role": "user", "content": "Hello"}],
        max_tokens=8,
    )
    require(answer.usage.completion_tokens > 0, "usage of a message")


def main() -> None:
    given = options(__doc__)
    litellm.suppress_debug_info = True
    checks = [chat, responses, messages]
    for check in checks:
        check(given.base_url, given.model, given.api_key)
    version = importlib.metadata.version("litellm")
    ok("litellm", version, ", ".join(check.__name__ for check in checks))


if __name__ == "__main__":
    main()
