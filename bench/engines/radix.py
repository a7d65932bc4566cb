#!/usr/bin/env python3
"""Hits and times of Headstart's policies in SGLang's prefix cache, beside SGLang's own `lru`.

    VENV/bin/python bench/engines/radix.py TRACE.jsonl --pages 20000 [--requests 1500]

The trace is canonical (`headstart trace convert`, `headstart trace synth`), and its block is a
page. Each tree serves it, one request at a time: match, lock, evict, insert. Beside a tree of ours
`headstart.PrefixCache` serves the same requests. The two must agree on each request. Policies get
the times of the trace and no hints.

It needs what python/tests/test_radix.py needs: torch, the other packages that SGLang imports, the
wheel of this repository, and the parts of SGLang in HEADSTART_ENGINE_PARTS or target/engines. No
GPU. It does no compute, so its times are those of the trees.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import sys
import time
from types import SimpleNamespace

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))

import engine_parts  # noqa: E402
from headstart import _native  # noqa: E402
from parity import POLICIES, requests, run_of  # noqa: E402
from test_radix import Replay, Tree  # noqa: E402
from test_sglang import MODULES, _Kernels  # noqa: E402


class CountedPool:
    """A memory that only counts, so that its time is not that of the tree."""

    device = "cpu"

    def __init__(self, torch, pages: int, page_size: int) -> None:
        self.torch, self.size = torch, pages * page_size
        self.free = self.size

    def available_size(self) -> int:
        return self.free

    def alloc(self, tokens: int) -> list[int]:
        self.free -= tokens
        return [0] * tokens

    def free_segment(self, value, start_pos: int) -> None:
        self.free += len(value)


class TimedTree(Tree):
    """A tree that sums the seconds of its calls."""

    def __init__(self, sglang, pages: int, page_size: int, policy: str | None) -> None:
        super().__init__(sglang, pages, page_size, policy)
        self.pool = CountedPool(sglang.torch, pages, page_size)
        self.tree.token_to_kv_pool_allocator = self.pool
        self.seconds = dict.fromkeys(("evict", "match_prefix", "insert", "lock", "unlock"), 0.0)
        for name in self.seconds:
            setattr(self.tree, name, self.timed(name, getattr(self.tree, name)))

    def timed(self, name: str, call):
        def timed_call(*arguments):
            started = time.perf_counter()
            result = call(*arguments)
            self.seconds[name] += time.perf_counter() - started
            return result

        return timed_call


def tokens_of(request: dict, page_size: int) -> list[int]:
    """Tokens for the whole blocks of a request: equal blocks have equal tokens."""
    runs = map(run_of, request["blocks"])
    blocks = [block for first, count in runs for block in range(first, first + count)]
    return [token for block in blocks for token in (block, *[0] * (page_size - 1))]


def row(sglang, trace: list[tuple[int, list[int]]], policy: str | None, shape: tuple) -> str:
    """Replays the trace with one policy; `None` is SGLang's own."""
    tree = TimedTree(sglang, *shape, policy)
    replay = Replay(sglang, *shape, policy) if policy else None
    total = hits = differ = 0
    for now, prompt in trace:
        found = tree.serve(now, prompt)
        total, hits = total + len(prompt), hits + found
        if replay is not None:
            differ += found != replay.serve(prompt, _native.Use(now))
    pages = max(tree.evicted // shape[1], 1)
    evict, everything = tree.seconds["evict"], sum(tree.seconds.values())
    name = f"headstart-{policy}" if policy else "SGLang's lru"
    return (
        f"| {name} | {hits / total:.1%} | {differ if policy else ''} | {pages} "
        f"| {evict / pages * 1e6:.2f} | {everything / len(trace) * 1e6:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--pages", type=int, required=True, help="pages of the GPU's memory")
    parser.add_argument("--requests", type=int, help="at most this many")
    parser.add_argument("--policies", default=",".join(POLICIES))
    arguments = parser.parse_args()

    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    versions = engine_parts.versions("sglang")
    if not versions:
        parser.error("no parts of SGLang: tools/engines/unpack.py target/engines sglang==0.5.23")
    sys.path.insert(0, str(versions[-1]))
    sys.meta_path.append(_Kernels())
    sglang = SimpleNamespace(
        torch=importlib.import_module("torch"),
        ours=importlib.import_module("headstart.sglang.radix"),
        params=importlib.import_module("sglang.srt.mem_cache.cache_init_params"),
        cache=importlib.import_module(f"sglang.srt.{MODULES['cache']}"),
        radix=importlib.import_module(f"sglang.srt.{MODULES['radix']}"),
    )
    with arguments.trace.open() as lines:
        page_size = json.loads(next(lines))["block_tokens"]
    found = requests(arguments.trace, arguments.requests)
    trace = [(request["arrival_ns"], tokens_of(request, page_size)) for request in found]
    shape = (arguments.pages, page_size)
    print(f"{versions[-1].name}, {len(trace)} requests, {shape[0]} pages of {page_size} tokens")
    print("| policy | cached | requests that differ | evicted pages | µs a page | µs a request |")
    print("|---|--:|--:|--:|--:|--:|")
    for policy in (*arguments.policies.split(","), None):
        print(row(sglang, trace, policy, shape), flush=True)


if __name__ == "__main__":
    main()
