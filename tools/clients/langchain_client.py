"""The `langchain-openai` package: a history with tool calls, by chat and by responses."""

import importlib.metadata

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI

from command_line import ok, options, require

HISTORY = [
    SystemMessage("Be brief."),
    HumanMessage("Oslo?"),
    AIMessage(
        "", tool_calls=[{"id": "call_1", "name": "weather", "args": {"city": "Oslo"}}]
    ),
    ToolMessage("rain", tool_call_id="call_1"),
    HumanMessage("And tomorrow?"),
]

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def check(model: ChatOpenAI) -> None:
    answer = model.bind_tools([WEATHER]).invoke(HISTORY)
    require(answer.usage_metadata["input_tokens"] > 20, "the history is part of the prompt")
    total = None
    for piece in model.stream(HISTORY):
        total = piece if total is None else total + piece
    require(total is not None and total.usage_metadata is not None, "usage of a stream")
    require(total.usage_metadata["output_tokens"] > 0, "a stream has an answer")
    # An answer is sent back as the package keeps it.
    follow_up = model.invoke([*HISTORY, answer, HumanMessage("Thanks")])
    before = answer.usage_metadata["input_tokens"]
    require(follow_up.usage_metadata["input_tokens"] > 0 and before > 0, "a further turn")


def main() -> None:
    given = options(__doc__)
    for use_responses_api in (False, True):
        model = ChatOpenAI(
            base_url=f"{given.base_url}/v1",
            api_key=given.api_key,
            model=given.model,
            max_tokens=24,
            max_retries=0,
            stream_usage=True,
            use_responses_api=use_responses_api,
        )
        check(model)
    version = importlib.metadata.version("langchain-openai")
    ok("langchain-openai", version, "chat, responses")


if __name__ == "__main__":
    main()
