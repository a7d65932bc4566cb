"""Requests at random times, and what became of each."""

import asyncio
import dataclasses
import json
import random
import time

from client import SERVED, Broken, asked, events

# What is asked: more systems and questions than a replica has room for, so that it evicts.
SYSTEMS, SYSTEM_WORDS = 12, 500
QUESTIONS, QUESTION_WORDS = 100, 25
ANSWER_TOKENS = (24, 72)
WORDS = "the sea ship port wind crew sail map star night rope deck east west storm calm".split()
WHOLE_SHARE = 0.15  # of requests that are not streamed: any kill may hit them, and none may show


@dataclasses.dataclass(slots=True)
class Record:
    """One request and what became of it; times are seconds of the monotonic clock."""

    prompt: str
    max_tokens: int
    start: float
    first: float | None = None
    end: float = 0.0
    replica: int | None = None
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    outcome: str = ""
    detail: str = ""


def texts(source, count, length):
    """So many texts of `length` words."""
    return [" ".join(source.choices(WORDS, k=length)) for _ in range(count)]


class Load:
    """Sends requests, reads their answers, keeps the records."""

    def __init__(self, port, seed, limit_s):
        self._port, self._limit_s = port, limit_s
        self._random = random.Random(seed)
        words = random.Random(0)
        self._systems = texts(words, SYSTEMS, SYSTEM_WORDS)
        self._questions = texts(words, QUESTIONS, QUESTION_WORDS)
        self._texts = {}  # the longest text seen of each prompt
        self._tasks = set()
        self.records = []

    async def open_loop(self, rate, end):
        """Poisson arrivals until `end`, then waits for the last answer."""
        due = time.monotonic()
        while (due := due + self._random.expovariate(rate)) < end:
            await asyncio.sleep(due - time.monotonic())
            task = asyncio.create_task(self.ask())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.gather(*self._tasks)

    def in_flight(self):
        """Requests of the open loop that have not ended."""
        return len(self._tasks)

    async def closed_loop(self, end):
        """One request after the other until `end`."""
        while time.monotonic() < end:
            await self.ask()

    async def ask(self):
        """One request, chat or completion, to its end."""
        kind = self._random.choice(["chat", "text"])
        system, question = self._random.randrange(SYSTEMS), self._random.randrange(QUESTIONS)
        max_tokens = self._random.randint(*ANSWER_TOKENS)
        record = Record(f"{kind} {system}/{question}", max_tokens, time.monotonic())
        self.records.append(record)
        path, body = self._request(kind, system, question)
        body |= {"model": "toy", "max_tokens": max_tokens}
        if self._random.random() >= WHOLE_SHARE:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        try:
            async with asyncio.timeout(self._limit_s):
                await self._send(record, path, body)
        except TimeoutError:
            record.outcome, record.detail = "hung", f"after {record.tokens} tokens"
        except Broken as error:
            record.outcome, record.detail = "cut", str(error)
        record.end = time.monotonic()

    def _request(self, kind, system, question):
        system, question = self._systems[system], self._questions[question]
        if kind == "text":
            return "/v1/completions", {"prompt": f"{system}\n{question}"}
        roles = [("system", system), ("user", question)]
        messages = [{"role": role, "content": text} for role, text in roles]
        return "/v1/chat/completions", {"messages": messages}

    async def _send(self, record, path, body):
        async with asked(self._port, path, body) as answer:
            record.replica = int(answer.headers.get("x-headstart-replica", -1))
            if answer.status != SERVED:
                record.outcome = "refused"
                record.detail = f"{answer.status} {(await answer.body())[:400].decode()}"
            elif "stream" in body:
                await self._read(record, answer)
            else:
                whole = json.loads(await answer.body())
                choice = whole["choices"][0]
                text = choice["text"] if "text" in choice else choice["message"]["content"]
                usage = whole.get("usage") or {}
                record.tokens = usage.get("completion_tokens", 0)
                self._judge(record, text, choice["finish_reason"], usage)

    async def _read(self, record, answer):
        text, ended, usage, last = "", None, None, None
        async for last in events(answer):
            if last == "[DONE]":
                continue
            event = json.loads(last)
            if "error" in event:
                record.outcome = "broken off" if record.tokens else "no token"
                record.detail = event["error"].get("message", last)
                return
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                piece = choice.get("text") or choice.get("delta", {}).get("content")
                ended = choice["finish_reason"] or ended
                if piece:
                    text, record.tokens = text + piece, record.tokens + 1
                    record.first = record.first or time.monotonic()
        if last == "[DONE]":
            self._judge(record, text, ended, usage or {})
        else:
            record.outcome = "cut"
            record.detail = f"after {record.tokens} tokens without [DONE] and without an error"

    def _judge(self, record, text, ended, usage):
        record.prompt_tokens = usage.get("prompt_tokens", 0)
        details = usage.get("prompt_tokens_details") or {}
        record.cached_tokens = details.get("cached_tokens", 0)
        told = usage.get("completion_tokens")
        before = self._texts.setdefault(record.prompt, text)
        if not (before.startswith(text) or text.startswith(before)):
            record.outcome, record.detail = "wrong", f"text `{text}`, before it was `{before}`"
        elif (record.tokens, told, ended) != (record.max_tokens, record.max_tokens, "length"):
            record.outcome = "wrong"
            record.detail = f"{record.tokens} tokens of {record.max_tokens}, usage {usage}, {ended}"
        else:
            record.outcome = "complete"
        self._texts[record.prompt] = max(before, text, key=len)
