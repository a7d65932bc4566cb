#!/usr/bin/env python3
"""Hits of Headstart's policies inside vLLM's CPU tier, beside `headstart replay` of the same trace.

    python bench/engines/parity.py TRACE.jsonl --capacity 10000 [--parts target/engines/vllm-0.32.0]

The trace is canonical (`headstart trace convert`). vLLM's own `CPUOffloadingManager` serves it,
driven as its scheduler does, with one request at a time and no device cache: look up, load, store,
finish. Beside it `headstart.PrefixCache` serves the same requests. The two must agree on each
request. vLLM's `lru` and `arc` come last, for comparison.

It needs the wheel of this repository (`python/check` installs one in target/python) and the parts
of vLLM that `tools/engines/unpack.py` fetches; no torch and no GPU.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import itertools
import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))

import engine_parts  # noqa: E402
from headstart import _native  # noqa: E402

POLICIES = ["lru", "wa", "hazard", "s3fifo", "sieve", "arc"]


def requests(path: pathlib.Path, limit: int | None) -> Iterator[dict]:
    """The requests of a canonical trace: its lines with a time."""
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else path.open()
    with opened as lines:
        found = (line for line in map(json.loads, lines) if "arrival_ns" in line)
        yield from itertools.islice(found, limit)


def keys_of(vllm: SimpleNamespace, request: dict) -> list[bytes]:
    """The offload keys of a request's blocks."""
    blocks = itertools.chain.from_iterable(
        range(first, first + count) for first, count in map(run_of, request["blocks"])
    )
    return [vllm.base.make_offload_key(block.to_bytes(16, "little") * 2, 0) for block in blocks]


def run_of(block: int | list[int]) -> tuple[int, int]:
    """A run of a trace: its first block and its length."""
    return (block, 1) if isinstance(block, int) else (block[0], block[1])


def hints_of(request: dict) -> dict:
    """What the trace knows of a request, as hints."""
    names = {"turn": "turn", "type": "kind", "session": "session", "finish": "finish"}
    hints = {to: request[name] for name, to in names.items() if name in request}
    if "output_tokens" in request:
        hints["output_tokens"] = request["output_tokens"]
    return hints


def serve(vllm: SimpleNamespace, manager, number: int, keys: list[bytes], hints: dict) -> int:
    """One request, from its begin to its end. Returns its hits, chunks."""
    context = vllm.base.ReqContext(str(number), {"headstart": hints})
    for position, key in enumerate(keys, 1):
        context.set_offload_key_position(key, position * 16)
    manager.on_new_request(context)
    hit = vllm.base.LookupResult.HIT
    hits = next((at for at, key in enumerate(keys) if manager.lookup(key, context) is not hit), len(keys))
    if hits:
        manager.prepare_load(keys[:hits], context)
        manager.complete_load(keys[:hits], context)
    if hits < len(keys):
        stored = manager.prepare_store(keys[hits:], context)
        if stored is not None:
            manager.complete_store(stored.keys_to_store, context)
    manager.on_request_finished(context)
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--capacity", type=int, required=True, help="chunks of the CPU tier")
    parser.add_argument("--parts", type=pathlib.Path, default=ROOT / "target/engines/vllm-0.32.0")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--requests", type=int, help="only so many")
    arguments = parser.parse_args()
    # The times of the trace, in the policies of both sides.
    os.environ["HEADSTART_CLOCK"] = "hints"

    with engine_parts.imported(arguments.parts):
        vllm = SimpleNamespace(
            base=importlib.import_module("vllm.v1.kv_offload.base"),
            cpu=importlib.import_module("vllm.v1.kv_offload.cpu.manager"),
        )
        trace = list(requests(arguments.trace, arguments.requests))
        print(f"{arguments.parts.name}, {len(trace)} requests, {arguments.capacity} chunks")
        print("| policy | hit rate | PrefixCache | requests that differ | µs a chunk |")
        print("|---|--:|--:|--:|--:|")
        names = [(f"headstart-{name}", name) for name in arguments.policies.split(",")]
        for name, ours in [*names, ("lru", None), ("arc", None)]:
            print(row(vllm, trace, name, ours, arguments.capacity), flush=True)


def row(vllm: SimpleNamespace, trace: list[dict], name: str, ours: str | None, capacity: int) -> str:
    """Replays the trace with one policy."""
    manager = vllm.cpu.CPUOffloadingManager(capacity, name, "headstart.vllm.policy")
    cache = _native.PrefixCache(ours, capacity=capacity) if ours else None
    chunks = hits = differ = 0
    seconds = 0.0
    for number, request in enumerate(trace):
        keys, hints = keys_of(vllm, request), hints_of(request)
        now = request["arrival_ns"]
        started = time.perf_counter()
        found = serve(vllm, manager, number, keys, {"now_ns": now, **hints})
        seconds += time.perf_counter() - started
        chunks, hits = chunks + len(keys), hits + found
        if cache is not None:
            step = max(len(keys), 1)
            differ += found != cache.serve(keys, _native.Use(now, **hints), step=step)
    beside = f"{cache.hits / cache.lookups:.2%} | {differ}" if cache else " | "
    return f"| {name} | {hits / chunks:.2%} | {beside} | {seconds / chunks * 1e6:.2f} |"


if __name__ == "__main__":
    main()
