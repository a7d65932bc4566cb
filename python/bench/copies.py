"""Speed of block copies, and their cost to the engine beside them. Prints a Markdown table.

    python python/bench/copies.py [--device-gib 16] [--host-gib 2]

- GB/s: bytes over wall time of a queue of jobs, submits included. Median of three.
- of floor: against one copy of 1 GiB in the same direction and run; for both directions at once,
  against the sum.
- matmul +%: how much longer bf16 products of 4096 x 4096 take on another stream while jobs run.
  The products are timed alone before and after; the mean of both is the base.
- memory +%: the same for a kernel that only reads and writes GPU memory, as decode does.
- CPU s/GB: the submitting thread's CPU time in submits and polls.

A block of the table's size is in each of 32 tensors. Ids are random. The host region is a mmap,
registered with CUDA. An asterisk marks the method that `Method.of` chooses. "staged, torch" is the
reference without Triton.
"""

from __future__ import annotations

import argparse
import mmap
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from headstart.vllm import gather  # noqa: E402
from headstart.vllm.copies import DeviceCopier, Limits, Method  # noqa: E402
from headstart.vllm.layout import Layout, registered  # noqa: E402

NUM_TENSORS = 32
KIB, GIB = 1 << 10, 1 << 30
SIZES = [  # bytes of a block in a tensor, blocks of a job
    (4 * KIB, 512),
    (16 * KIB, 8),
    (16 * KIB, 64),
    (16 * KIB, 512),
    (32 * KIB, 64),
    (64 * KIB, 8),
    (64 * KIB, 512),
    (256 * KIB, 64),
    (2048 * KIB, 8),
]
JOBS_RUNNING = 4
"""Jobs in the queue while something else is timed."""
ROUND_BYTES = GIB
JOBS_MIN = 6
"""A round has this many bytes, and at least as many jobs."""


HEAD = """\
| block KiB | blocks | job MiB | way | method | GB/s | of floor | matmul +% | memory +% | CPU s/GB |
|--:|--:|--:|---|---|--:|--:|--:|--:|--:|"""
REFERENCE = "staged, torch"
WAYS = {"store": (True,), "load": (False,), "both": (True, False)}


class Case(NamedTuple):
    """A copier, and jobs in both directions that are repeated."""

    copies: DeviceCopier
    jobs: list[tuple[torch.Tensor, torch.Tensor]]
    directions: tuple[bool, ...]
    """True stores, False loads, by turns."""

    def submit(self, nth: int) -> bool:
        is_store = self.directions[nth % len(self.directions)]
        submit = self.copies.submit_store if is_store else self.copies.submit_load
        return submit(nth, *self.jobs[nth % len(self.jobs)])


def speed(case: Case, job_bytes: int) -> tuple[float, float]:
    """GB/s and CPU seconds per GB of a round."""
    num_jobs = max(JOBS_MIN, ROUND_BYTES // job_bytes)
    torch.cuda.synchronize()
    started, cpu_s, num_polled = time.perf_counter(), 0.0, 0
    for nth in range(num_jobs):
        before = time.thread_time()
        while not case.submit(nth):
            cpu_s += time.thread_time() - before
            case.copies.wait([num_polled])
            before = time.thread_time()
            num_polled += len(case.copies.poll())
        cpu_s += time.thread_time() - before
    case.copies.wait(range(num_jobs))
    before = time.thread_time()
    case.copies.poll()
    cpu_s += time.thread_time() - before
    gigabytes = num_jobs * job_bytes / 1e9
    return gigabytes / (time.perf_counter() - started), cpu_s / gigabytes


class Neighbour:
    """Work on another stream, as a graph of 20 launches."""

    def __init__(self, launch: Callable[[], object], num_replays: int) -> None:
        self.stream, self.num_replays = torch.cuda.Stream(), num_replays
        launch()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for _ in range(20):
                launch()

    def milliseconds(self, case: Case | None = None) -> tuple[float, int]:
        """Time of the replays, and how many jobs of `case` finished meanwhile."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with torch.cuda.stream(self.stream):
            start.record()
            for _ in range(self.num_replays):
                self.graph.replay()
            end.record()
        submitted = finished = 0
        while case is not None and not end.query():
            if submitted - finished < JOBS_RUNNING and case.submit(submitted):
                submitted += 1
            finished += len(case.copies.poll())
        torch.cuda.synchronize()
        if case is not None:
            case.copies.poll()
        return start.elapsed_time(end), finished

    def slowdown(self, case: Case, job_bytes: int) -> str:
        self.milliseconds()  # warm: the clock falls with heat
        before, _ = self.milliseconds()
        beside, jobs = self.milliseconds(case)
        after, _ = self.milliseconds()
        base = (before + after) / 2
        return f"{100 * (beside / base - 1):.0f} (at {jobs * job_bytes / beside / 1e6:.0f} GB/s)"


def floor(device: torch.Tensor, host: torch.Tensor, is_store: bool) -> float:
    """GB/s of one large copy, median of five."""
    speeds = []
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target, source = (host, device) if is_store else (device, host)
        target.copy_(source, non_blocking=True)
        end.record()
        torch.cuda.synchronize()
        speeds.append(host.numel() / 1e6 / start.elapsed_time(end))
    return statistics.median(speeds)


def kinds(block_bytes: int) -> list[tuple[str, Method]]:
    """The ways that are measured for a size."""
    reference = [(REFERENCE, Method.STAGED)] if block_bytes == 16 * KIB else []
    return [("direct", Method.DIRECT), ("staged", Method.STAGED), *reference]


def with_kernel(is_allowed: bool, make: Callable[[], DeviceCopier]) -> DeviceCopier:
    """Makes a copier that may use Triton, or the reference, which may not."""
    has_kernel = gather.has_kernel
    gather.has_kernel = lambda: is_allowed and has_kernel()
    try:
        return make()
    finally:
        gather.has_kernel = has_kernel


def jobs_of(layout: Layout, num_blocks: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Four jobs with random ids."""
    limits = (layout.num_blocks, layout.num_slots)
    return [tuple(torch.randperm(limit)[:num_blocks] for limit in limits) for _ in range(4)]


def measure(case: Case, job_bytes: int, floor_gbs: float, neighbours: list[Neighbour]) -> str:
    """Cells of a row, from GB/s on."""
    speed(case, job_bytes)
    rounds = [speed(case, job_bytes) for _ in range(3)]
    gbs = statistics.median(gbs for gbs, _ in rounds)
    cpu_s = statistics.median(cpu_s for _, cpu_s in rounds)
    slowdowns = " | ".join(neighbour.slowdown(case, job_bytes) for neighbour in neighbours)
    return f"{gbs:.1f} | {100 * gbs / floor_gbs:.0f} % | {slowdowns} | {cpu_s:.4f}"


def table(device: torch.Tensor, host: torch.Tensor, neighbours: list[Neighbour]) -> None:
    floors = [floor(device[:GIB], host[:GIB], is_store) for is_store in (True, False)]
    floor_gbs = dict(zip(WAYS, [*floors, sum(floors)]))
    print(f"floor: store {floors[0]:.1f} GB/s, load {floors[1]:.1f} GB/s\n")
    print(HEAD, flush=True)
    for block_bytes, num_blocks in SIZES:
        row_bytes = NUM_TENSORS * block_bytes
        job_bytes = num_blocks * row_bytes
        tensors = list(device.view(NUM_TENSORS, -1, block_bytes))
        layout = Layout(tensors, host[: len(host) // row_bytes * row_bytes].view(-1, row_bytes))
        jobs = jobs_of(layout, num_blocks)
        for name, method in kinds(block_bytes):
            copies = with_kernel(name != REFERENCE, lambda: DeviceCopier(layout, Limits(), method))
            is_chosen = method is Method.of(layout) and name != REFERENCE
            for way, directions in WAYS.items():
                case = Case(copies, jobs, directions)
                cells = measure(case, job_bytes, floor_gbs[way], neighbours)
                size = f"{block_bytes // KIB} | {num_blocks} | {job_bytes >> 20}"
                print(f"| {size} | {way} | {name}{'*' * is_chosen} | {cells} |", flush=True)
            copies.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device-gib", type=int, default=16)
    parser.add_argument("--host-gib", type=int, default=2)
    arguments = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    device = torch.empty(arguments.device_gib * GIB, dtype=torch.int8, device="cuda")
    device.view(torch.int64).random_()
    host = torch.frombuffer(mmap.mmap(-1, arguments.host_gib * GIB), dtype=torch.int8)
    host.fill_(1)
    left, right, product = (
        torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    )
    source, target = (torch.empty(GIB // 4, dtype=torch.int8, device="cuda") for _ in range(2))
    neighbours = [
        Neighbour(lambda: torch.mm(left, right, out=product), num_replays=12),
        Neighbour(lambda: torch.bitwise_not(source, out=target), num_replays=12),
    ]
    with registered(host[None, :]):
        table(device, host, neighbours)


if __name__ == "__main__":
    main()
