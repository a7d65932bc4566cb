"""The worker of `HeadstartOffload`: vLLM's offload jobs on our copiers.

vLLM's scheduler names a job by device blocks and *chunks*. A chunk is a row of the shared region;
it has room for `blocks_per_chunk` consecutive blocks of a request. A job lists the blocks of each
KV cache group in turn, and then the chunks of each group. Only the first and the last chunk of a
group may be partial; `block_indices` says where the first one starts. `group_pairs` turns this
into pairs of block and slot, as copies.py wants them.

    job of vLLM  -->  pairs per group  -->  parts of at most `blocks_max`  -->  copier, or queue

A copier takes a limited number of jobs, and vLLM expects that a submit succeeds. So a part that
finds no room waits in a queue, which moves on at each submit, `get_finished` and `wait`. The
scheduler keeps the blocks and chunks of a job until the job is reported; waiting is safe.

Groups of which all layers lie in the same tensors share one copier. vLLM's hybrid models are of
this kind. Others get one copier for each set of tensors, which uses the front of the row.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult

from .copies import Copier, Limits, copier
from .layout import Layout, as_blocks, registered

if TYPE_CHECKING:
    import torch
    from vllm.v1.kv_offload.base import CanonicalKVCaches
    from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion

REGISTERED_BYTES = 64 << 30
"""Pinned in one piece at most. vLLM has the same bound, because of limits of the driver."""


class HeadstartWorker(OffloadingWorker):
    """Copies between the engine's KV tensors and this worker's part of the shared region."""

    def __init__(
        self,
        caches: CanonicalKVCaches,
        region: SharedOffloadRegion,
        blocks_per_chunk: int,
        limits: Limits = Limits(),
    ) -> None:
        """Owns the region: `shutdown`, and a failure here, clean it up.

        `ValueError`: the engine's tensors are on an unsupported device, or do not fit the region.
        """
        self._blocks_per_chunk = blocks_per_chunk
        self._limits = limits
        with ExitStack() as resources:
            resources.callback(_remove, region)
            tensors = [as_blocks(cache.tensor) for cache in caches.tensors]
            if tensors[0].device.type == "cuda":
                _pin(region, resources)
            sets = [
                tuple(sorted({reference.tensor_idx for reference in references}))
                for references in caches.group_data_refs
            ]
            host = region.create_next_worker_view(
                blocks_per_chunk * sum(tensor.shape[1] for tensor in tensors)
            )
            copiers: dict[tuple[int, ...], Copier] = {}
            for indices in sets:
                if indices not in copiers:
                    layout = _layout([tensors[i] for i in indices], host, blocks_per_chunk)
                    copiers[indices] = copier(layout, limits)
                    resources.callback(copiers[indices].close)
            self._resources = resources.pop_all()
        self._copiers = [copiers[indices] for indices in sets]
        """One for each group; some are the same object."""
        self._jobs: dict[int, _Job] = {}
        self._queue: deque[_Part] = deque()
        self._running: dict[int, _Part] = {}
        self._ids = itertools.count()
        self._results: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """Queues a copy of device blocks to chunks."""
        return self._submit(job_id, src_spec, dst_spec, is_store=True, is_first=False)

    def submit_load(
        self, job_id: int, src_spec: Any, dst_spec: Any, expedited: bool = False
    ) -> bool:
        """Queues a copy of chunks to device blocks. vLLM waits for an expedited one in the same
        step; it overtakes those that wait. vLLM before 0.33 has no such argument."""
        return self._submit(job_id, dst_spec, src_spec, is_store=False, is_first=expedited)

    def get_finished(self) -> list[TransferResult]:
        """Returns every finished job once. Never waits for the device."""
        self._advance()
        results, self._results = self._results, []
        return results

    def wait(self, job_ids: Iterable[int]) -> None:
        """Blocks until jobs are done; `get_finished` still returns them."""
        wanted = set(job_ids)
        self._advance()
        while not wanted.isdisjoint(self._jobs):
            parts = [
                part.id for part in self._running.values() if self._queue or part.job in wanted
            ]
            for each in _distinct(self._copiers):
                each.wait(parts)
            self._advance()

    def shutdown(self) -> None:
        """Ends what runs, closes the copiers, unpins and removes the region. Idempotent."""
        self._copiers = []  # They hold views of the region, which would keep it mapped.
        self._queue.clear()
        self._jobs, self._running = {}, {}
        self._resources.close()

    def _submit(
        self, job_id: int, device: Any, chunks: Any, *, is_store: bool, is_first: bool
    ) -> bool:
        if job_id in self._jobs:
            raise ValueError(f"job {job_id} was submitted before and has not ended")
        if len(device.group_sizes) != len(self._copiers):
            raise ValueError(
                f"job {job_id} has {len(device.group_sizes)} groups of KV cache; "
                f"this engine has {len(self._copiers)}"
            )
        pairs = group_pairs(
            Groups(device.block_ids, device.group_sizes, device.block_indices),
            np.asarray(chunks.block_ids),
            self._blocks_per_chunk,
        )
        parts = [
            _Part(next(self._ids), job_id, self._copiers[group], blocks, slots, is_store)
            for group, all_blocks, all_slots in pairs
            for blocks, slots in _pieces(all_blocks, all_slots, self._limits.blocks_max)
        ]
        self._jobs[job_id] = _Job(len(parts))
        if not parts:
            self._end(job_id)
        elif is_first:
            self._queue.extendleft(reversed(parts))
        else:
            self._queue.extend(parts)
        self._advance()
        return True

    def _advance(self) -> None:
        """Submits what has room. On a CPU each round also ends it, which makes room again."""
        self._collect()
        while self._submit_queued():
            self._collect()

    def _submit_queued(self) -> bool:
        """True: something was submitted."""
        num_before = len(self._queue)
        while self._queue:
            part = self._queue[0]
            submit = part.copier.submit_store if part.is_store else part.copier.submit_load
            if not submit(part.id, part.blocks, part.slots):
                break
            self._running[part.id] = self._queue.popleft()
        return len(self._queue) < num_before

    def _collect(self) -> None:
        for each in _distinct(self._copiers):
            for finish in each.poll():
                part = self._running.pop(finish.job)
                job = self._jobs[part.job]
                job.num_parts -= 1
                job.num_bytes += finish.num_bytes
                job.seconds += finish.seconds
                if job.num_parts == 0:
                    self._end(part.job)

    def _end(self, job_id: int) -> None:
        job = self._jobs.pop(job_id)
        self._results.append(
            TransferResult(
                job_id=job_id,
                success=True,
                transfer_size=job.num_bytes,
                transfer_time=job.seconds,
            )
        )


@dataclass
class _Job:
    num_parts: int
    """Those that have not ended."""
    num_bytes: int = 0
    seconds: float = 0.0
    """Sum over the parts, also where two of them ran at once."""


@dataclass(frozen=True)
class _Part:
    """Pairs of one group for one submit."""

    id: int
    job: int
    copier: Copier
    blocks: np.ndarray
    slots: np.ndarray
    is_store: bool


@dataclass(frozen=True)
class Groups:
    """The device's side of a job, as vLLM's `GPULoadStoreSpec` has it."""

    blocks: np.ndarray
    """Device blocks, group by group."""
    sizes: Sequence[int]
    """Blocks of each group."""
    first_indices: Sequence[int]
    """Position of each group's first block in its request, counted in blocks."""


def group_pairs(
    groups: Groups, chunks: np.ndarray, blocks_per_chunk: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields group, blocks and slots for each group that has blocks in a job.

    `ValueError`: the job has more or fewer chunks than its blocks need.
    """
    block_start = chunk_start = 0
    for group, (size, first) in enumerate(zip(groups.sizes, groups.first_indices)):
        if size == 0:
            continue
        skipped = first % blocks_per_chunk
        chunk_end = chunk_start + -(-(skipped + size) // blocks_per_chunk)
        rows = chunks[chunk_start:chunk_end].astype(np.int64)
        slots = (rows[:, None] * blocks_per_chunk + np.arange(blocks_per_chunk)).reshape(-1)
        slots = slots[skipped : skipped + size]
        blocks = groups.blocks[block_start : block_start + size]
        if len(slots) < size or len(blocks) < size:
            raise ValueError(f"group {group} has {size} blocks; the job has too few chunks or ids")
        yield group, blocks, slots
        block_start, chunk_start = block_start + size, chunk_end
    if block_start != len(groups.blocks) or chunk_start != len(chunks):
        raise ValueError(
            f"a job has {len(groups.blocks)} blocks and {len(chunks)} chunks; "
            f"its groups need {block_start} and {chunk_start}"
        )


def _pieces(
    blocks: np.ndarray, slots: np.ndarray, size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, len(blocks), size):
        yield blocks[start : start + size], slots[start : start + size]


def _distinct(copiers: list[Copier]) -> list[Copier]:
    return list({id(each): each for each in copiers}.values())


def _layout(tensors: list[torch.Tensor], host: torch.Tensor, blocks_per_chunk: int) -> Layout:
    row_bytes = blocks_per_chunk * sum(tensor.shape[1] for tensor in tensors)
    return Layout(tensors, host[:, :row_bytes], blocks_per_chunk)


def _remove(region: SharedOffloadRegion) -> None:
    if not os.path.exists(region.mmap_path):
        region._creator = False  # vLLM would warn that the file is not there.
    region.cleanup()


def _pin(region: SharedOffloadRegion, resources: ExitStack) -> None:
    """Pins all of the region until `resources` is closed: a worker's part need not start at a
    page."""
    rows = region.base_tensor.view(region.num_chunks, -1)
    rows_max = max(1, REGISTERED_BYTES // rows.shape[1])
    for first in range(0, len(rows), rows_max):
        resources.enter_context(registered(rows[first : first + rows_max]))
