"""Lanes of one direction, and the two methods that put a job on them.

A method enqueues and returns. It knows neither jobs nor the engine's stream; the order between
them is the copier's part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from . import dma, gather
from .layout import BlockIds, Layout

if TYPE_CHECKING:
    import torch

NUM_LANES = 2
"""One gathers while the other copies. A gather takes a twentieth of its copy's time, so that a
third lane would have nothing to do."""
HIGH_PRIORITY = -1
"""A gather starts before the waiting thread blocks of the engine's kernels; it is short."""


class Lane:
    """A stream, and a staging buffer that is used in this stream's order."""

    def __init__(self, device: torch.device, stage: torch.Tensor | None = None) -> None:
        import torch

        self.stream = torch.cuda.Stream(device, priority=HIGH_PRIORITY)
        self.stage = stage

    def copy(self, pieces: dma.Pieces) -> None:
        """Puts pieces on the copy engine."""
        dma.copy(pieces, self.stream.cuda_stream)


class IdBuffer:
    """A job's pairs of block and staging slot, for kernels. Allocated once, then reused."""

    def __init__(self, device: torch.device, blocks_max: int) -> None:
        import torch

        self._pinned = torch.empty((blocks_max, 2), dtype=torch.int64, pin_memory=True)
        self._device = torch.empty((blocks_max, 2), dtype=torch.int64, device=device)
        self._uploaded = torch.cuda.Event()

    def upload(self, blocks: np.ndarray, slots: np.ndarray, stream: torch.cuda.Stream) -> None:
        """Starts the copy to the GPU. Both arrays: int64 [n]."""
        import torch

        pinned = self._pinned[: len(blocks)]
        pinned.numpy()[:, 0] = blocks
        pinned.numpy()[:, 1] = slots
        with torch.cuda.stream(stream):
            self._device[: len(blocks)].copy_(pinned, non_blocking=True)
        self._uploaded.record(stream)

    def on_gpu(self, stream: torch.cuda.Stream) -> torch.Tensor:
        """int64 [blocks_max, 2]; `stream` waits until they are there."""
        stream.wait_event(self._uploaded)
        return self._device


class Direct:
    """One piece for every block of every tensor."""

    def __init__(self, layout: Layout, staging_bytes: int, *, is_store: bool) -> None:
        self._layout = layout
        self._is_store = is_store
        self.lanes = [Lane(layout.tensors[0].device) for _ in range(NUM_LANES)]
        """The first one is next."""

    def enqueue(self, ids: BlockIds, buffer: IdBuffer) -> None:
        """Costs 0.1 ms of the CPU, and about 0.8 µs per piece. `buffer` is not used."""
        layout, host = self._layout, self._layout.host
        device_side = layout.block_addresses(ids.blocks)
        host_side = layout.packed_addresses(host.data_ptr(), host.stride(0), ids.slots)
        sides = (host_side, device_side) if self._is_store else (device_side, host_side)
        self.lanes[0].copy(dma.Pieces(*sides, layout.sizes(len(ids.blocks))))
        self.lanes.reverse()


class _Chunk(NamedTuple):
    """Rows of a job that fit into one staging buffer, and their blocks."""

    rows: np.ndarray  # [r], of the host
    counts: np.ndarray  # [r], blocks that the job has of the row
    slots: np.ndarray  # [n], of the host
    staged: np.ndarray  # [n], slots of the buffer


class Staged:
    """Whole host rows, gathered into a staging buffer of the GPU or scattered from it.

    Rows of which a job has only some blocks are copied tensor by tensor.
    """

    def __init__(self, layout: Layout, staging_bytes: int, *, is_store: bool) -> None:
        import torch

        self._layout = layout
        self._is_store = is_store
        self._rows_max = max(1, staging_bytes // layout.row_bytes)
        self._kernel = gather.Kernel(layout, is_store=is_store) if gather.has_kernel() else None
        device, shape = layout.tensors[0].device, (self._rows_max, layout.row_bytes)
        stages = [torch.empty(shape, dtype=torch.int8, device=device) for _ in range(NUM_LANES)]
        self.lanes = [Lane(device, stage) for stage in stages]
        """The first one is next."""
        self._uploads = torch.cuda.Stream(device)

    def enqueue(self, ids: BlockIds, buffer: IdBuffer) -> None:
        """Costs 0.2 to 0.3 ms of the CPU for each staging buffer that the job fills, at least once.
        `buffer` is in use until the job's end."""
        rows, positions = np.divmod(ids.slots, self._layout.blocks_per_row)
        is_first = np.ones(len(rows), dtype=bool)
        np.not_equal(rows[1:], rows[:-1], out=is_first[1:])
        starts = np.flatnonzero(is_first)
        counts = np.diff(starts, append=len(rows))
        nth_in_buffer = (np.cumsum(is_first) - 1) % self._rows_max
        staged = nth_in_buffer * self._layout.blocks_per_row + positions
        buffer.upload(ids.blocks, staged, self._uploads)
        for first in range(0, len(starts), self._rows_max):
            some = slice(first, first + self._rows_max)
            start, end = starts[first], starts[some][-1] + counts[some][-1]
            chunk = _Chunk(
                rows[starts[some]], counts[some], ids.slots[start:end], staged[start:end]
            )
            self._enqueue_chunk(chunk, buffer.on_gpu(self.lanes[0].stream)[start:end])
            self.lanes.reverse()

    def _enqueue_chunk(self, chunk: _Chunk, ids: torch.Tensor) -> None:
        lane = self.lanes[0]
        host_side, stage_side, sizes = self._pieces(chunk, lane.stage)
        if self._is_store:
            self._gather(lane, ids)
            lane.copy(dma.Pieces(host_side, stage_side, sizes))
        else:
            lane.copy(dma.Pieces(stage_side, host_side, sizes))
            self._gather(lane, ids)

    def _pieces(
        self, chunk: _Chunk, stage: torch.Tensor
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Addresses on the host and in the buffer, and sizes."""
        layout, host = self._layout, self._layout.host
        host_side = host.data_ptr() + chunk.rows * host.stride(0)
        stage_side = stage.data_ptr() + np.arange(len(chunk.rows)) * layout.row_bytes
        sizes = np.full(len(chunk.rows), layout.row_bytes)
        is_whole = chunk.counts == layout.blocks_per_row
        if is_whole.all():
            return host_side, stage_side, sizes
        is_single = np.repeat(~is_whole, chunk.counts)
        slots, staged = chunk.slots[is_single], chunk.staged[is_single]
        host_singles = layout.packed_addresses(host.data_ptr(), host.stride(0), slots)
        stage_singles = layout.packed_addresses(stage.data_ptr(), layout.row_bytes, staged)
        return (
            np.concatenate([host_side[is_whole], host_singles]),
            np.concatenate([stage_side[is_whole], stage_singles]),
            np.concatenate([sizes[is_whole], layout.sizes(len(slots))]),
        )

    def _gather(self, lane: Lane, ids: torch.Tensor) -> None:
        """Between the tensors and the lane's buffer; for a load, a scatter."""
        import torch

        with torch.cuda.stream(lane.stream):
            if self._kernel is not None:
                self._kernel(lane.stage, ids)
                return
            packed = gather.Packed(lane.stage, self._layout.blocks_per_row)
            gather.by_index(self._layout.tensors, packed, ids, is_store=self._is_store)
