"""Seeded conversations of several users over shared system prompts."""

import random
from dataclasses import dataclass, field

from model_folder import ADAPTER

WORDS = """time year people way day man thing woman life child world school state family student
group country problem hand part place case week company system program question work number night
point home water room mother area money story fact month lot right study book eye job word business
issue side kind head house service friend father power hour game line end member law car city name
president team minute idea body information back parent face others level office door health person
art war history party result change morning reason research girl guy moment air teacher force""".split()

# Tokens that an answer may have.
ANSWER_TOKENS = 24

# A conversation that has become longer ends, and its user begins another.
PROMPT_TOKENS_MAX = 1200


def prose(rng, num_words):
    """Some words."""
    return " ".join(rng.choice(WORDS) for _ in range(num_words)) + "."


@dataclass
class User:
    """Somebody who chats, with the messages so far."""

    system: str
    salt: str | None
    adapter: str | None
    messages: list = field(default_factory=list)


class Chats:
    """All users. Of eight, two have a salt of their own, and one of them and another one ask for
    the adapter."""

    def __init__(self, seed, num_users=8, num_systems=4):
        self.rng = random.Random(seed)
        systems = [prose(self.rng, 150) for _ in range(num_systems)]
        self.users = [
            User(
                systems[n % num_systems],
                salt=f"tenant-{n}" if n % 4 == 3 else None,
                adapter=ADAPTER if n in (1, 7) else None,
            )
            for n in range(num_users)
        ]
        self.sent = []  # (messages, user) of every prompt that was answered

    def next(self):
        """Whose turn it is, and the request."""
        user = self.rng.choice(self.users)
        if not user.messages:
            user.messages.append({"role": "system", "content": user.system})
        words = self.rng.randint(20, 70)
        user.messages.append({"role": "user", "content": prose(self.rng, words)})
        body = {
            "model": user.adapter or "toy",
            "messages": list(user.messages),
            "max_tokens": ANSWER_TOKENS,
            "temperature": 1,
            "seed": self.rng.randrange(2**31),
        }
        if user.salt is not None:
            body["cache_salt"] = user.salt
        return user, body

    def answered(self, user, body, message, prompt_tokens):
        """The answer came: it is part of the next prompt."""
        self.sent.append((body["messages"], user))
        user.messages.append({"role": "assistant", "content": message})
        if prompt_tokens > PROMPT_TOKENS_MAX:
            user.messages.clear()

    def lost(self, user):
        """No answer came: the user asks anew some other time."""
        user.messages.pop()
