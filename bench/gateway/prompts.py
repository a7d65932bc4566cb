"""Chat requests of 4 KB with shared beginnings, and the wrk script that sends them.

A family is a system prompt of 3 KB; each of its prompts adds a question of 1 KB. The text is the
help of the running Python: prose of which a tokenizer makes as many tokens as of any other.
"""

import json
import random
from dataclasses import dataclass
from pydoc_data.topics import topics

FAMILIES = 8
QUESTIONS = 8  # of each family
SYSTEM_BYTES = 3072
QUESTION_BYTES = 1024
PATH = "/v1/chat/completions"


@dataclass(frozen=True)
class Prompt:
    """One request: whose beginning it shares, and its body."""

    family: int
    body: str


def prompts():
    """All of them, in an order that is the same each time and mixes the families."""
    text = " ".join(" ".join(topics[name].split()) for name in sorted(topics))
    text = text.encode("ascii", "ignore").decode()
    pieces = iter(range(0, len(text), SYSTEM_BYTES))
    made = []
    for family in range(FAMILIES):
        start = next(pieces)
        system = text[start : start + SYSTEM_BYTES]
        for _ in range(QUESTIONS):
            start = next(pieces)
            made.append(Prompt(family, body(system, text[start : start + QUESTION_BYTES])))
    random.Random(1).shuffle(made)
    return made


def body(system, question):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return json.dumps({"model": "toy", "max_tokens": 1, "messages": messages})


def wrk_script(bodies):
    """Sends them in turn, over and over."""
    literals = ",\n".join(f"[==[{body}]==]" for body in bodies)
    return f"""-- Written by bench/gateway.
local bodies = {{ {literals} }}
local requests, turn = {{}}, 0
function init(args)
  for i, body in ipairs(bodies) do
    requests[i] = wrk.format("POST", "{PATH}", {{["content-type"] = "application/json"}}, body)
  end
end
function request()
  turn = turn % #requests + 1
  return requests[turn]
end
"""
