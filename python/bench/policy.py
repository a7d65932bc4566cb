"""Block look-ups per second of a replay whose LRU policy is written in Python.

    HEADSTART_PROGRAM=target/release/headstart python python/bench/policy.py

The trace is that of `headstart trace synth agents`, in memory before the clock starts. A row is the
fastest of `ROUNDS` replays. All rows of one capacity must have the same hits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy

import headstart
from headstart import PrefixCache, Use

ROUNDS = 3
REQUESTS = 1_000


class ListLru:
    """LRU on plain Python numbers."""

    def __init__(self) -> None:
        self.clock = 0

    def use(self, blocks: list[int], hits: int, of: Use) -> Sequence[int]:
        self.clock += len(blocks)
        return list(range(self.clock, self.clock - len(blocks), -1))


class NumpyLru:
    """LRU on arrays of numpy."""

    def __init__(self) -> None:
        self.clock = 0

    def use(self, blocks: list[int], hits: int, of: Use) -> Any:
        self.clock += len(blocks)
        return numpy.arange(self.clock, self.clock - len(blocks), -1)


class SlotLru:
    """LRU that keeps an array of the slots, as a policy with more of a state would."""

    def __init__(self, capacity: int) -> None:
        self.clock = 0
        self.used = numpy.zeros(capacity)

    def use(self, blocks: list[int], hits: int, of: Use) -> Any:
        self.clock += len(blocks)
        slots = numpy.array(blocks)
        self.used[slots] = numpy.arange(self.clock, self.clock - len(blocks), -1)
        return self.used[slots]


def replay(policy: Any, capacity: int, prompts: list[Any], uses: list[Use]) -> tuple[float, int]:
    """Seconds and hits."""
    cache = PrefixCache(policy, capacity=capacity)
    started = time.perf_counter()
    for blocks, of in zip(prompts, uses):
        cache.serve(blocks, of)
    return time.perf_counter() - started, cache.hits


def main() -> None:
    # The first row describes the file.
    rows = [row for row in headstart.synth("agents", requests=REQUESTS) if "blocks" in row]
    lists = [
        [block for first, count in row["blocks"] for block in range(first, first + count)]
        for row in rows
    ]
    arrays = [numpy.array(blocks, dtype=numpy.int64) for blocks in lists]
    uses = [Use(row["arrival_ns"], turn=row["turn"], session=row["session"]) for row in rows]
    lookups = sum(map(len, lists))
    distinct = len({block for blocks in lists for block in blocks})
    print(f"{len(rows)} requests, {lookups} look-ups of {distinct} blocks")
    print("| capacity | policy | prompts | hit rate | million look-ups/s |")
    print("|--:|---|---|--:|--:|")
    for capacity in (distinct // 100, distinct // 10):
        policies: dict[str, Callable[[], Any]] = {
            "lru (native)": lambda: "lru",
            "Python, lists": ListLru,
            "Python, numpy": NumpyLru,
            "Python, numpy by slot": lambda: SlotLru(capacity),
        }
        found = set()
        for name, make in policies.items():
            for kind, prompts in {"lists": lists, "arrays": arrays}.items():
                runs = [replay(make(), capacity, prompts, uses) for _ in range(ROUNDS)]
                seconds, hits = min(runs)
                found.add(hits)
                rate = lookups / seconds / 1e6
                print(f"| {capacity} | {name} | {kind} | {hits / lookups:.3f} | {rate:.2f} |")
        assert len(found) == 1, found


if __name__ == "__main__":
    main()
