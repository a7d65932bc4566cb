"""Chat requests for the overhead of explaining them: the gateway bench's prompts, and others.

A workload gives the prompts of one run, from a seed: what is new in them is new in each run, and
the same for every arm of a round.
"""

import random
from pydoc_data.topics import topics

from prompts import FAMILIES, QUESTION_BYTES, SYSTEM_BYTES, Prompt, body, prompts

LONG_SYSTEM_BYTES, LONG_QUESTION_BYTES = 13 << 10, 2 << 10


class Text:
    """Words of English prose in an order of their own."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        text = " ".join(topics[name] for name in sorted(topics))
        self.words = text.encode("ascii", "ignore").decode().split()

    def of(self, length):
        """So many bytes."""
        words = self.random.choices(self.words, k=length // 3)
        return " ".join(words)[:length]


def families(system, question, count, seed):
    """Prompts of `count` new questions behind the same eight system prompts in every run."""
    fixed, new = Text(0), Text(seed)
    systems = [fixed.of(system) for _ in range(FAMILIES)]
    of = [new.random.randrange(FAMILIES) for _ in range(count)]
    return [Prompt(family, body(systems[family], new.of(question))) for family in of]


def repeated(_count, _seed):
    return prompts()


def questions(count, seed):
    return families(SYSTEM_BYTES, QUESTION_BYTES, count, seed)


def new(count, seed):
    """Nothing is shared but the template."""
    text = Text(seed)
    bodies = (body(text.of(SYSTEM_BYTES), text.of(QUESTION_BYTES)) for _ in range(count))
    return [Prompt(0, made) for made in bodies]


def long_repeated(_count, _seed):
    return families(LONG_SYSTEM_BYTES, LONG_QUESTION_BYTES, 64, 1)


def long_questions(count, seed):
    return families(LONG_SYSTEM_BYTES, LONG_QUESTION_BYTES, count, seed)


# By name: what makes the prompts of a run of so many requests.
WORKLOADS = {
    "repeated": repeated,
    "new questions": questions,
    "all new": new,
    "long, repeated": long_repeated,
    "long, new questions": long_questions,
}
