"""Seeded conversations as agents hold them: tools, calls, results, thinking, odd contents.

The model under test speaks noise. So the answers in a history are written here, as an agent
framework would write them down, and a conversation is the same in each run.
"""

import base64
import json
import random
import struct
import zlib
from typing import Literal, Optional

from chats import prose
from openai import pydantic_function_tool
from pydantic import BaseModel, Field, create_model

# Tools of an agent, the fewest and the most. Agents in between have numbers in between.
FEWEST_TOOLS, MOST_TOOLS = 5, 60

VERBS = "get list find create update delete search open close send check run".split()
NOUNS = "file user order ticket page branch invoice event device report message build".split()
FIELDS = "path name query limit since until owner status labels draft score note".split()


class Place(BaseModel):
    """Where something is."""

    city: str
    latitude: float = 0.0


KINDS = [
    (str, ...),
    (int, Field(10, ge=1, le=500)),
    (float, 0.5),
    (bool, False),
    (list[str], Field(default_factory=list)),
    (Optional[str], None),
    (Literal["open", "closed", "all"], "open"),
    (str, Field(..., description="As the user wrote it; UTF-8 such as naïve or 世界.")),
    (Place, ...),
]


def make_tools(rng, count):
    """Tools as `openai.pydantic_function_tool` makes them, and a few as people write them."""
    names = rng.sample([f"{verb}_{noun}" for verb in VERBS for noun in NOUNS], count)
    tools = []
    for number, name in enumerate(names):
        fields = {field: rng.choice(KINDS) for field in rng.sample(FIELDS, rng.randint(0, 4))}
        model = create_model(name, **fields)
        described = prose(rng, rng.randint(4, 12)) if number % 3 else None
        tool = pydantic_function_tool(model, name=name, description=described)
        if number % 5 == 4:  # by hand: keys in another order, one that no engine knows
            function = tool["function"]
            parameters = {"properties": model.model_json_schema()["properties"], "type": "object"}
            own = {"parameters": parameters, "name": name, "x-source": "mcp"}
            tool = {"function": own, "type": "function", "cache_control": {"type": "ephemeral"}}
            if "description" in function:
                own["description"] = function["description"]
        tools.append(tool)
    return tools


class Agent:
    """A program that holds conversations: what all of them begin with."""

    def __init__(self, rng, number, num_agents):
        span = max(num_agents - 1, 1)
        self.number = number
        self.tools = make_tools(rng, FEWEST_TOOLS + (MOST_TOOLS - FEWEST_TOOLS) * number // span)
        self.system = f"You are agent {number}. {prose(rng, 120)}"


class Conversation:
    """One conversation with one agent. It counts as busy while its request is under way."""

    def __init__(self, seed, number, agent):
        self.rng = random.Random(f"{seed}/{number}")
        self.number, self.agent = number, agent
        self.turn, self.num_calls = 0, 0
        self.settings = self._settings()
        self.thought = self.rng.choice(["reasoning_content", "reasoning", "both", None])
        self.messages = [*self._head(), self._user()]

    def request(self):
        """The next request, as arguments of the SDK's `create`."""
        body = {
            "model": "toy",
            "messages": list(self.messages),
            "tools": self.agent.tools,
            "max_tokens": self.rng.randint(2, 4),
            "temperature": 0,
            **self.settings,
        }
        if self.rng.random() < 0.6:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    def go_on(self):
        """Writes down an answer, and what follows it until the agent asks again."""
        self.turn += 1
        kind = self.rng.random()
        if kind < 0.25:
            self.messages += [self._final(), self._user()]
            return
        count = 1 if kind < 0.7 else self.rng.randint(2, 4)
        calls = [self._call() for _ in range(count)]
        self.messages.append(self._calling(calls))
        results = [self._result(call) for call in calls]
        self.rng.shuffle(results)
        self.messages += results

    # What stays the same during a conversation

    def _settings(self):
        extra = {}
        choice = self.rng.randrange(4)
        if choice == 1:
            extra["chat_template_kwargs"] = {"enable_thinking": self.rng.random() < 0.5}
        settings = {"extra_body": extra} if extra else {}
        if choice == 2:
            settings["reasoning_effort"] = self.rng.choice(["low", "medium", "high"])
        if self.rng.random() < 0.3:
            settings["parallel_tool_calls"] = True
        return settings

    def _head(self):
        role = self.rng.choice(["system", "system", "developer"])
        head = {"role": role, "content": self._maybe_parts(self.agent.system)}
        if self.rng.random() < 0.2:
            more = {"role": "developer", "content": f"Conversation {self.number}: be brief."}
            return [head, more]
        return [head]

    # Messages

    def _maybe_parts(self, text, share=0.25):
        if self.rng.random() >= share:
            return text
        half = len(text) // 2
        texts = [text[:half], text[half:]] if self.rng.random() < 0.5 else [text]
        return [{"type": "text", "text": text} for text in texts]

    def _user(self):
        text = prose(self.rng, self.rng.randint(10, 40))
        message = {"role": "user", "content": self._maybe_parts(text)}
        if self.rng.random() < 0.2:
            message["name"] = self.rng.choice(["ana", "ben"])
        return message

    def _think(self, message):
        if self.thought is None or self.rng.random() < 0.2:
            if self.rng.random() < 0.3:
                message["reasoning_content"] = None
            return message
        text = prose(self.rng, self.rng.randint(8, 25))
        for key in ("reasoning_content", "reasoning"):
            if self.thought in (key, "both"):
                message[key] = text
        return message

    def _final(self):
        text = prose(self.rng, self.rng.randint(8, 30))
        message = {"role": "assistant", "content": self._maybe_parts(text)}
        odd = self.rng.randrange(4)
        if odd == 1:
            message["tool_calls"] = []
        elif odd == 2:
            # What `message.model_dump()` of the SDK leaves in a history.
            message |= {"refusal": None, "annotations": None, "audio": None, "tool_calls": None}
        return self._think(message)

    def _calling(self, calls):
        message = {"role": "assistant"}
        content = self.rng.randrange(6)
        if content == 0:
            message["content"] = ""
        elif content == 1:
            message["content"] = prose(self.rng, 6)
        elif content == 2:
            message["content"] = [{"type": "text", "text": prose(self.rng, 6)}]
        elif content < 5:
            message["content"] = None
        message["tool_calls"] = calls
        return self._think(message)

    def _call(self):
        self.num_calls += 1
        function = self.rng.choice(self.agent.tools)["function"]
        call = {
            "id": f"call_{self.number}_{self.num_calls}",
            "type": "function",
            "function": {"name": function["name"], "arguments": self._arguments(function)},
        }
        if self.rng.random() < 0.3:  # as collected from a stream
            call["index"] = 0
        return call

    def _arguments(self, function):
        names = function["parameters"].get("properties", {})
        values = {name: self._value() for name in names}
        separators = self.rng.choice([(",", ":"), (", ", ": ")])
        text = json.dumps(values, separators=separators, ensure_ascii=self.rng.random() < 0.5)
        return "" if not values and self.rng.random() < 0.5 else text

    def _value(self):
        return self.rng.choice(
            [
                prose(self.rng, 3),
                "naïve <b>&amp;</b> \"世界\"\n\ttab",
                self.rng.randrange(10**6),
                1.0,
                1e-7,
                2.5e20,
                True,
                None,
                [1, "two", None],
                {"city": "Zürich", "latitude": 47.4, "tags": []},
            ]
        )

    def _result(self, call):
        text = prose(self.rng, self.rng.randint(5, 60))
        kind = self.rng.randrange(8)
        if kind == 0:
            text = ""
        elif kind < 3:
            text = json.dumps({"ok": True, "rows": [self._value(), text]})
        result = {"role": "tool", "tool_call_id": call["id"], "content": self._maybe_parts(text)}
        if self.rng.random() < 0.2:
            result["name"] = call["function"]["name"]
        return result


class Picture(Conversation):
    """A conversation that is about an image: it stands in the first user message."""

    def __init__(self, seed, number, agent):
        super().__init__(seed, number, agent)
        first = next(message for message in self.messages if message["role"] == "user")
        texts = first["content"]
        if isinstance(texts, str):
            texts = [{"type": "text", "text": texts}]
        image = {"type": "image_url", "image_url": {"url": tiny_png(self.rng)}}
        where = self.rng.randint(0, len(texts))
        first["content"] = [*texts[:where], image, *texts[where:]]


def tiny_png(rng):
    """A data URL of an image with one pixel, of any colour."""

    def chunk(name, data):
        crc = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", crc)

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\0" + rng.randbytes(3))
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode()


def conversations(seed, count, num_agents, kind=Conversation):
    """Seeded conversations, and who holds them: each agent as many."""
    rng = random.Random(seed)
    agents = [Agent(rng, number, num_agents) for number in range(num_agents)]
    return [kind(seed, number, agents[number % num_agents]) for number in range(count)]
