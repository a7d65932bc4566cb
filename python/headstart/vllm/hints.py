"""Hints: what a request tells Headstart's policies and tiers.

Hints in a request's `kv_transfer_params`, all optional:

    {"headstart": {"turn": 3, "kind": 1, "session": 17, "finish": "tool_calls",
                   "tools": ["Bash"], "output_tokens": 120, "p_continue": 0.8,
                   "now_ns": 1730000000000000000}}

| hint | value |
|---|---|
| `session` | a number of the conversation, below 2⁶⁴ |
| `turn` | the number of its user messages, from 1 |
| `kind` | the kind of request, below 2¹⁶; the gateway sends 1 for chat, 2 for completions |
| `p_continue` | the chance that the conversation has another request, 0 to 1 |
| `tools` | names of the tools that the answer calls, where they are known before |
| `finish` | how the answer will end: `stop`, `length`, `tool_calls`, …; known in replays |
| `output_tokens` | tokens of the answer, where they are known before |

A hint of another type is ignored, and logged once. `now_ns` replaces the clock where the variable
HEADSTART_CLOCK is `hints`, for replays of traces.
Otherwise it is ignored: a client must not set the clock of everyone.
"""

from __future__ import annotations

import functools
import logging
import os
import time
from typing import Any

from .._native import Use

logger = logging.getLogger("vllm.headstart")

WHOLE = {"turn": 2**16, "kind": 2**16, "session": 2**64, "output_tokens": 2**32, "now_ns": 2**64}
"""Hints that are whole numbers, and their limits."""


NAMES = {*WHOLE, "finish", "tools", "p_continue"}


def checked(given: dict[str, Any]) -> dict[str, Any]:
    """The hints of the right type; a client's mistake must not stop the engine."""
    hints: dict[str, Any] = {}
    for name, limit in WHOLE.items():
        value = given.get(name)
        if type(value) is int and 0 <= value < limit:
            hints[name] = value
    if is_text(given.get("finish")):
        hints["finish"] = given["finish"]
    tools = given.get("tools")
    if isinstance(tools, list) and all(map(is_text, tools)):
        hints["tools"] = tools
    p_continue = given.get("p_continue")
    if isinstance(p_continue, (int, float)) and 0 <= p_continue <= 1:
        hints["p_continue"] = float(p_continue)
    for name in NAMES & given.keys() - hints.keys():
        warn_once(name)
    return hints


def is_text(value: object) -> bool:
    """Whether it is a text of whole characters: JSON may have half a surrogate pair."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


@functools.cache
def warn_once(name: str) -> None:
    """Logs the name of a hint of a wrong type. Never its value, which is a client's."""
    logger.warning("a request's hint `%s` has a wrong type or range; such hints are ignored", name)


def use_of(req_context: Any, least_ns: int) -> Use:
    """What is known of a request now; of none where the context is `None`. The time is at least
    `least_ns`, so that it never falls."""
    if req_context is None:
        return Use(least_ns)
    params = req_context.kv_transfer_params
    given = params.get("headstart") if isinstance(params, dict) else None
    hints = checked(given) if isinstance(given, dict) else {}
    told = hints.pop("now_ns", None)
    if os.environ.get("HEADSTART_CLOCK") != "hints":
        told = None
    return Use(max(time.monotonic_ns() if told is None else told, least_ns), **hints)
