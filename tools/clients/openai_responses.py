"""The `openai` package against /v1/responses."""

import openai

from command_line import long_text, ok, options, require

# A server that keeps no responses says so with one of these.
NOT_KEPT = (openai.BadRequestError, openai.NotFoundError, openai.APIStatusError)

ENDS = ("response.completed", "response.incomplete")


def plain_answer(client: openai.OpenAI, model: str) -> None:
    answer = client.responses.create(
        model=model, input="Hello", instructions="Be brief.", max_output_tokens=16
    )
    require(answer.object == "response", "the answer's object")
    require(answer.status in ("completed", "incomplete"), "status")
    if answer.status == "incomplete":
        require(answer.incomplete_details.reason == "max_output_tokens", "why it is incomplete")
    usage = answer.usage
    require(usage.total_tokens == usage.input_tokens + usage.output_tokens, "total_tokens")
    require(usage.input_tokens_details.cached_tokens <= usage.input_tokens, "cached_tokens")
    require(isinstance(answer.output_text, str), "output_text")


def streamed_answer(client: openai.OpenAI, model: str) -> None:
    with client.responses.stream(
        model=model, input="Count to three", max_output_tokens=24, temperature=0
    ) as stream:
        events = list(stream)
    kinds = [event.type for event in events]
    require(kinds[:2] == ["response.created", "response.in_progress"], f"the opening: {kinds}")
    require(kinds[-1] in ENDS, f"the end: {kinds}")
    numbers = [event.sequence_number for event in events]
    require(numbers == sorted(numbers), "sequence numbers rise")
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    done = [event for event in events if event.type == "response.output_text.done"]
    said = "".join(event.delta for event in deltas)
    require(said == "".join(event.text for event in done), "the pieces make the text")
    if deltas:
        require(deltas[-1].snapshot == said, "the package's own sum")
    require(events[-1].response.output_text == said, "the whole at the end")
    require(events[-1].response.usage.output_tokens > 0, "usage at the end")


def agent_history(client: openai.OpenAI, model: str) -> None:
    call = {
        "type": "function_call", "call_id": "call_1", "name": "weather",
        "arguments": '{"city": "Oslo"}',
    }  # fmt: skip
    tool = {
        "type": "function", "name": "weather", "strict": None,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }  # fmt: skip
    answer = client.responses.create(
        model=model,
        input=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "Oslo?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [],
             "content": [{"type": "reasoning_text", "text": "I look."}]},
            call,
            {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
        ],
        tools=[tool],
        max_output_tokens=16,
        prompt_cache_key="a-conversation",
        metadata={"origin": "headstart"},
        store=False,
    )  # fmt: skip
    require(answer.usage.input_tokens > 20, "the history is part of the prompt")


def chain(client: openai.OpenAI, model: str) -> str:
    """Says what was checked: a server need not keep responses."""
    first = client.responses.create(
        model=model, input=f"Remember: {long_text()}", max_output_tokens=16
    )
    try:
        second = client.responses.create(
            model=model, input="And then?", previous_response_id=first.id, max_output_tokens=16
        )
    except NOT_KEPT:
        return "no chain: the server keeps no responses"
    require(second.previous_response_id == first.id, "previous_response_id is repeated")
    require(second.usage.input_tokens > first.usage.input_tokens, "the chain is the prompt")
    require(client.responses.retrieve(second.id).id == second.id, "retrieve")
    try:
        client.responses.delete(second.id)
    except (openai.NotFoundError, openai.APIStatusError):
        return "chain (no delete)"
    try:
        client.responses.retrieve(second.id)
    except openai.NotFoundError:
        return "chain"
    raise SystemExit("FAILED a deleted response is gone")


def main() -> None:
    given = options(__doc__)
    client = openai.OpenAI(
        base_url=f"{given.base_url}/v1", api_key=given.api_key, max_retries=0
    )
    checks = [plain_answer, streamed_answer, agent_history]
    for check in checks:
        check(client, given.model)
    names = [check.__name__ for check in checks] + [chain(client, given.model)]
    ok("openai", openai.__version__, "responses: " + ", ".join(names))


if __name__ == "__main__":
    main()
