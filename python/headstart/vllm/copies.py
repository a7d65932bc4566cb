"""Copies of KV blocks between an engine's tensors and host memory: the device side of an offload
worker.

A *store* copies blocks to host slots, a *load* copies slots to blocks. A job has an id and pairs
of block and slot. `poll` lists the jobs that are done; neither it nor a submit waits for the GPU.

    engine's stream  -- writes KV --*--------------------------------*-- uses the blocks --
                              ready |                    hold_stream |
    lane 0                          +--> gather, copy, gather, copy -+
    lane 1                          +--> ....... gather, copy ------ +

Each direction has two lanes: streams of their own, each with one staging buffer. The chunks of a
job take turns on them, so that one lane gathers while the other has the copy engine. A buffer is
reused in the order of its stream; no thread waits for a free one.

There are two methods, chosen by the size of a block (`Method.of`):

- `DIRECT`: the copy engine moves every block of every tensor on its own, without SMs.
- `STAGED`: a kernel gathers blocks into the staging buffer, or scatters them from it; the copy
  engine moves whole host rows. Small blocks need it: with pieces of 16 KiB the copy engine alone
  reached 31 GB/s for stores and 5 GB/s for loads on a link of 55 GB/s, and staged 52 and 53.

A third method was measured and removed: kernels that read and write host memory themselves. It
needs the least of the CPU, but holds SMs for the whole copy. Matrix products beside it took 40 to
100 % longer, against 3 to 20 %. The figures are in python/README.md.

Order, and the side that guarantees it:

- A job starts after all work that the engine's current stream had at the submit. So a store sees
  what was written, and a load overwrites nothing that is still read. (Copier.)
- Work that the engine submits after `hold_stream` starts after the job's end. (Copier.)
- Until `poll` returns a job, or behind `hold_stream`: the engine does not write blocks of a store
  and does not touch blocks of a load. No other job uses the same slots, except that loads may
  share them. (Caller. vLLM's scheduler holds such blocks, and its manager such slots.)

The copier knows neither the content of a block nor the user of a slot. It is not thread-safe.
It allocates when it is made, and later only where Triton is missing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from . import gather
from .lanes import NUM_LANES, Direct, IdBuffer, Staged
from .layout import BlockIds, Layout

if TYPE_CHECKING:
    import torch

DIRECT_BYTES = 64 * 1024
"""Bytes of a block in one tensor, on average. Pieces of this size keep the copy engine busy: 52 of
55 GB/s on an H200; with 32 KiB it was 31 to 51 from run to run. Staged is 4 % faster at this size,
but it needs SMs."""


class Method(Enum):
    """A way to move a GPU's blocks."""

    DIRECT = auto()
    STAGED = auto()

    @staticmethod
    def of(layout: Layout) -> Method:
        """The faster one for blocks of this size."""
        is_large = layout.block_bytes >= DIRECT_BYTES * len(layout.tensors)
        return Method.DIRECT if is_large else Method.STAGED


@dataclass(frozen=True)
class Limits:
    """Bounds of what a copier holds."""

    jobs_max: int = 32
    """Jobs that were submitted and that `poll` has not returned. An engine submits one or two in a
    step; where 32 wait, the link is the bottleneck, and the caller should store less."""
    blocks_max: int = 8192
    """Blocks of one job. Each job keeps 16 bytes for each on the GPU, and as many pinned."""
    staging_bytes: int = 32 << 20
    """One staging buffer. There are two per direction, and each has room for at least one row.
    With 16 MiB the copies were as fast, and cost the CPU up to twice as much."""


@dataclass(frozen=True)
class Finish:
    """A job that is done."""

    job: int
    num_bytes: int
    seconds: float
    """From the start of its first copy to the end of its last, on the device's clock."""


class Copier(Protocol):
    """The contract of `DeviceCopier` and `CpuCopier`."""

    def submit_store(self, job: int, blocks: Any, slots: Any) -> bool:
        """Queues a copy of blocks to slots, pair by pair. False: `jobs_max` jobs have not been
        polled; nothing was queued. `ValueError`: see `Layout.check`, or the id is in use, or the
        job has more than `blocks_max` blocks. `RuntimeError`: CUDA refused, and the copier is
        unusable."""

    def submit_load(self, job: int, blocks: Any, slots: Any) -> bool:
        """Queues a copy of slots to blocks; otherwise as `submit_store`."""

    def hold_stream(self, jobs: Iterable[int]) -> None:
        """Makes the engine's current stream wait for jobs. Returns at once; ids of jobs that are
        not running are ignored."""

    def poll(self) -> list[Finish]:
        """Returns every finished job once. Never waits."""

    def wait(self, jobs: Iterable[int]) -> None:
        """Blocks the calling thread until jobs are done; `poll` still returns them. Ids of jobs
        that are not running are ignored."""

    def close(self) -> None:
        """Waits for what runs and frees buffers and streams. Only `close` may follow."""


def copier(layout: Layout, limits: Limits = Limits()) -> Copier:
    """The copier for the device of the engine's tensors."""
    device = layout.tensors[0].device.type
    if device == "cpu":
        return CpuCopier(layout, limits)
    if device == "cuda":
        return DeviceCopier(layout, limits)
    raise ValueError(f"KV tensors on {device} are not supported; cpu and cuda are")


class CpuCopier:
    """For engines on the CPU: a submit copies before it returns."""

    def __init__(self, layout: Layout, limits: Limits = Limits()) -> None:
        self._layout = layout
        self._limits = limits
        self._finished: dict[int, Finish] = {}

    def submit_store(self, job: int, blocks: Any, slots: Any) -> bool:
        return self._submit(job, blocks, slots, is_store=True)

    def submit_load(self, job: int, blocks: Any, slots: Any) -> bool:
        return self._submit(job, blocks, slots, is_store=False)

    def _submit(self, job: int, blocks: Any, slots: Any, *, is_store: bool) -> bool:
        import torch

        ids = _checked(self._layout, self._limits, self._finished, job, blocks, slots)
        if len(self._finished) == self._limits.jobs_max:
            return False
        started = time.perf_counter()
        host = gather.Packed(self._layout.host, self._layout.blocks_per_row)
        pairs = torch.from_numpy(np.stack(ids, axis=1))
        gather.by_index(self._layout.tensors, host, pairs, is_store=is_store)
        seconds = time.perf_counter() - started
        num_bytes = len(ids.blocks) * self._layout.block_bytes
        self._finished[job] = Finish(job, num_bytes, seconds)
        return True

    def hold_stream(self, jobs: Iterable[int]) -> None:
        pass

    def poll(self) -> list[Finish]:
        finished, self._finished = list(self._finished.values()), {}
        return finished

    def wait(self, jobs: Iterable[int]) -> None:
        pass

    def close(self) -> None:
        self._finished = {}


class DeviceCopier:
    """For CUDA tensors and a pinned host region."""

    def __init__(
        self, layout: Layout, limits: Limits = Limits(), method: Method | None = None
    ) -> None:
        """Allocates everything: staging on the GPU, ids in pinned memory, streams and events.

        `method` overrides the choice by size. `ValueError`: the host region is pageable, which
        would turn each copy into one that blocks the caller.
        """
        if not layout.host.is_pinned():
            raise ValueError("the host region is not pinned; see `registered`")
        self._layout = layout
        self._limits = limits
        self._device = layout.tensors[0].device
        self._running: dict[int, _Job] = {}
        self._free = [_Job(self._device, limits.blocks_max) for _ in range(limits.jobs_max)]
        make = Direct if (method or Method.of(layout)) is Method.DIRECT else Staged
        self._stores = make(layout, limits.staging_bytes, is_store=True)
        self._loads = make(layout, limits.staging_bytes, is_store=False)

    def submit_store(self, job: int, blocks: Any, slots: Any) -> bool:
        return self._submit(job, blocks, slots, self._stores)

    def submit_load(self, job: int, blocks: Any, slots: Any) -> bool:
        return self._submit(job, blocks, slots, self._loads)

    def _submit(self, job: int, blocks: Any, slots: Any, direction: Direct | Staged) -> bool:
        import torch

        ids = _checked(self._layout, self._limits, self._running, job, blocks, slots)
        if not self._free:
            return False
        running = self._free.pop()
        running.num_bytes = len(ids.blocks) * self._layout.block_bytes
        running.ready.record(torch.cuda.current_stream(self._device))
        for lane in direction.lanes:
            lane.stream.wait_event(running.ready)
        running.start.record(direction.lanes[0].stream)
        direction.enqueue(ids, running.ids)
        for lane, end in zip(direction.lanes, running.ends):
            end.record(lane.stream)
        self._running[job] = running
        return True

    def hold_stream(self, jobs: Iterable[int]) -> None:
        import torch

        stream = torch.cuda.current_stream(self._device)
        for job in self._found(jobs):
            for end in job.ends:
                stream.wait_event(end)

    def poll(self) -> list[Finish]:
        finished = []
        for job, running in list(self._running.items()):
            if all(end.query() for end in running.ends):
                milliseconds = max(running.start.elapsed_time(end) for end in running.ends)
                finished.append(Finish(job, running.num_bytes, milliseconds / 1e3))
                self._free.append(self._running.pop(job))
        return finished

    def wait(self, jobs: Iterable[int]) -> None:
        for job in self._found(jobs):
            for end in job.ends:
                end.synchronize()

    def close(self) -> None:
        self.wait(list(self._running))
        self._running, self._free = {}, []
        self._stores = self._loads = None

    def _found(self, jobs: Iterable[int]) -> list[_Job]:
        return [self._running[job] for job in jobs if job in self._running]


class _Job:
    """Events and a buffer for ids, used by one job after another."""

    def __init__(self, device: torch.device, blocks_max: int) -> None:
        import torch

        self.ids = IdBuffer(device, blocks_max)
        self.ready = torch.cuda.Event()
        self.start = torch.cuda.Event(enable_timing=True)
        self.ends = [
            torch.cuda.Event(enable_timing=True, blocking=True) for _ in range(NUM_LANES)
        ]
        self.num_bytes = 0


def _checked(
    layout: Layout, limits: Limits, in_use: dict[int, Any], job: int, blocks: Any, slots: Any
) -> BlockIds:
    if job in in_use:
        raise ValueError(f"job {job} was submitted before and has not been polled")
    ids = layout.check(blocks, slots)
    if len(ids.blocks) > limits.blocks_max:
        raise ValueError(
            f"job {job} has {len(ids.blocks)} blocks; split it, at most {limits.blocks_max}"
        )
    return ids
