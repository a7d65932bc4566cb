"""Headstart's Python side: the commands of the program `headstart` as functions.

>>> import headstart
>>> trace = headstart.synth("chat", requests=200)
>>> result = headstart.replay(trace, policies=["lru", "hazard"], capacities=[100, 1000])
>>> [(row.policy, row.capacity_blocks) for row in result.rows]
[('lru', 100), ('lru', 1000), ('hazard', 100), ('hazard', 1000)]

A function runs the program with `--json`, so its figures are those of the command line.
"""

from __future__ import annotations

# Type checkers know this name; importing `typing` would take longer than all of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._native import Index, PrefixCache, Use, decode_events
    from .commands import analyze, lint, plan, replay, simulate, synth, why
    from .program import HeadstartError
    from .results import Analysis, Explanation, Lint, Plan, Replay, Simulation

_HOMES = {
    **dict.fromkeys(("analyze", "lint", "plan", "replay", "simulate", "synth", "why"), "commands"),
    "HeadstartError": "program",
    **dict.fromkeys(("Index", "PrefixCache", "Use", "decode_events"), "_native"),
    **dict.fromkeys(("Analysis", "Explanation", "Lint", "Plan", "Replay", "Simulation"), "results"),
}

__all__ = [
    "Analysis",
    "Explanation",
    "HeadstartError",
    "Index",
    "Lint",
    "Plan",
    "PrefixCache",
    "Replay",
    "Simulation",
    "Use",
    "analyze",
    "decode_events",
    "lint",
    "plan",
    "replay",
    "simulate",
    "synth",
    "why",
]


def __getattr__(name: str) -> Any:
    # An engine that imports `headstart.vllm` should not pay for `subprocess` and the rest.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
