"""The `openai` package against /v1/embeddings, of an engine that serves them."""

import math

import openai

from command_line import long_text, ok, options, require


def one_text(client: openai.OpenAI, model: str) -> None:
    answer = client.embeddings.create(model=model, input="Hello")
    require(answer.object == "list" and len(answer.data) == 1, "one text, one vector")
    vector = answer.data[0].embedding
    require(len(vector) > 1 and all(map(math.isfinite, vector)), "a vector of numbers")
    require(any(vector), "a vector that is not zero")
    require(answer.usage.prompt_tokens > 0, "usage")
    require(answer.usage.total_tokens == answer.usage.prompt_tokens, "total_tokens")


def both_formats(client: openai.OpenAI, model: str) -> None:
    """The package asks for base64 by default, and unpacks it."""
    packed = client.embeddings.create(model=model, input="Hello").data[0].embedding
    floats = client.embeddings.create(model=model, input="Hello", encoding_format="float")
    plain = floats.data[0].embedding
    require(len(packed) == len(plain), "both formats have the same length")
    close = all(math.isclose(a, b, abs_tol=1e-3) for a, b in zip(packed, plain))
    require(close, "both formats say the same")


def several_texts(client: openai.OpenAI, model: str) -> None:
    texts = ["Hello", long_text(), "Something else"]
    answer = client.embeddings.create(model=model, input=texts)
    require([each.index for each in answer.data] == [0, 1, 2], "a vector for each text, in order")
    lengths = {len(each.embedding) for each in answer.data}
    require(len(lengths) == 1, "all vectors have the same length")
    require(answer.data[0].embedding != answer.data[1].embedding, "texts differ, vectors too")
    ids = client.embeddings.create(model=model, input=[[40, 41, 42], [43]])
    require(len(ids.data) == 2 and ids.usage.prompt_tokens >= 4, "prompts of token ids")


def errors_are_typed(client: openai.OpenAI, model: str) -> None:
    try:
        client.embeddings.create(model="no-such-model", input="x")
    except openai.NotFoundError:
        pass
    else:
        require(False, "an unknown model is a NotFoundError")
    try:
        client.embeddings.create(model=model, input={"text": "x"})
    except (openai.BadRequestError, openai.UnprocessableEntityError):
        pass
    else:
        require(False, "an input that is no text is a BadRequestError")


def main() -> None:
    given = options(__doc__)
    client = openai.OpenAI(
        base_url=f"{given.base_url}/v1", api_key=given.api_key, max_retries=0
    )
    checks = [one_text, both_formats, several_texts, errors_are_typed]
    for check in checks:
        check(client, given.model)
    ok("openai", openai.__version__, "embeddings: " + ", ".join(c.__name__ for c in checks))


if __name__ == "__main__":
    main()
