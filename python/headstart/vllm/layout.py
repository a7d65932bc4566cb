"""The two sides of a copy: the engine's KV tensors, and rows of host memory.

The engine has T tensors, one per layer or group. Block `b` is one row of each of them. The host
has rows of bytes. A row has room for `blocks_per_row` blocks, and this room is a *slot*: slot `s`
is position `s % blocks_per_row` of row `s // blocks_per_row`. Within a row the tensors follow one
another, and within a tensor the positions do. With two blocks per row:

    host row 3   | tensor 0: slot 6, slot 7 | tensor 1: slot 6, slot 7 | ...

vLLM's `SharedOffloadRegion` has this layout.

A layout does not know streams or devices, and it copies nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch


class BlockIds(NamedTuple):
    """Blocks of the engine and their slots on the host, sorted by slot. Both int64 [n]."""

    blocks: np.ndarray
    slots: np.ndarray


def as_blocks(tensor: torch.Tensor) -> torch.Tensor:
    """Views a KV tensor as int8 [num_blocks, bytes of a block].

    The first dimension counts blocks. The others lie dense; the distance between blocks may be
    larger. A tensor [2, num_blocks, ...] is two: `as_blocks(kv[0])` and `as_blocks(kv[1])`.
    Raises `RuntimeError` where only a copy could give this shape.
    """
    import torch

    return tensor.view(torch.int8).view(tensor.shape[0], -1)


@contextlib.contextmanager
def registered(host: torch.Tensor) -> Iterator[None]:
    """Pins memory that exists already, for example a shared mmap, while the block runs.

    Registering takes about 0.05 s per GiB of resident memory. Every copier of the region must be
    closed before the block ends.
    """
    import torch

    cudart = torch.cuda.cudart()
    num_bytes = (host.shape[0] - 1) * host.stride(0) + host.shape[1]
    _check_cuda(cudart.cudaHostRegister(host.data_ptr(), num_bytes, 0), "cudaHostRegister")
    try:
        yield
    finally:
        _check_cuda(cudart.cudaHostUnregister(host.data_ptr()), "cudaHostUnregister")


def _check_cuda(status: Any, call: str) -> None:
    if int(status) != 0:
        raise RuntimeError(f"{call} failed with CUDA error {int(status)}")


@dataclass(frozen=True)
class Layout:
    """Checked once, when it is made; `ValueError` names the tensor that does not fit."""

    tensors: Sequence[torch.Tensor]
    """The engine's side: T tensors, int8 [num_blocks, bytes of a block in this tensor]."""
    host: torch.Tensor
    """The host's side: int8 [num_rows, blocks_per_row * block_bytes]."""
    blocks_per_row: int = 1

    def __post_init__(self) -> None:
        if not self.tensors or self.blocks_per_row < 1:
            raise ValueError("a layout has at least one tensor and one block per row")
        for index, tensor in enumerate(self.tensors):
            _check_rows(f"tensor {index}", tensor)
            if tensor.shape[0] != self.num_blocks or tensor.device != self.tensors[0].device:
                raise ValueError(
                    f"tensor {index} has {tensor.shape[0]} blocks on {tensor.device}; tensor 0 has "
                    f"{self.num_blocks} on {self.tensors[0].device}"
                )
        _check_rows("the host region", self.host)
        if self.host.device.type != "cpu":
            raise ValueError(f"the host region is on {self.host.device}; it must be on the CPU")
        if self.host.shape[1] != self.row_bytes:
            raise ValueError(
                f"a row of the host region has {self.host.shape[1]} bytes; {self.blocks_per_row} "
                f"blocks of {self.block_bytes} bytes need {self.row_bytes}"
            )

    @property
    def num_blocks(self) -> int:
        """Blocks of the engine."""
        return self.tensors[0].shape[0]

    @property
    def num_slots(self) -> int:
        """Blocks for which the host has room."""
        return self.host.shape[0] * self.blocks_per_row

    @cached_property
    def block_bytes(self) -> int:
        """Bytes of one block over all tensors."""
        return sum(tensor.shape[1] for tensor in self.tensors)

    @property
    def row_bytes(self) -> int:
        """Bytes of a host row that blocks use; the distance between rows may be larger."""
        return self.blocks_per_row * self.block_bytes

    @cached_property
    def table(self) -> np.ndarray:
        """int64 [T, 4]: address, distance of blocks, bytes of a block, and the bytes that one
        block has in all tensors before this one."""
        rows, offset = [], 0
        for tensor in self.tensors:
            rows.append((tensor.data_ptr(), tensor.stride(0), tensor.shape[1], offset))
            offset += tensor.shape[1]
        return np.array(rows, dtype=np.int64)

    def check(self, blocks: Any, slots: Any) -> BlockIds:
        """Sorts a job's ids by slot. Takes sequences, NumPy arrays or CPU tensors of integers.

        `ValueError`: lengths differ, an id is out of range, or an id occurs twice.
        """
        blocks, slots = _integers(blocks), _integers(slots)
        if blocks.ndim != 1 or blocks.shape != slots.shape:
            shapes = f"{list(blocks.shape)} and {list(slots.shape)}"
            raise ValueError(f"blocks and slots are two lists of one length; they are {shapes}")
        order = slots.argsort()
        blocks, slots = blocks[order], slots[order]
        _check_ids("slot", slots, self.num_slots)
        _check_ids("block", np.sort(blocks), self.num_blocks)
        return BlockIds(blocks, slots)

    def block_addresses(self, blocks: np.ndarray) -> np.ndarray:
        """int64 [n * T]: where each tensor has each block, block by block."""
        address, distance, _, _ = self.table.T
        return (address + blocks[:, None] * distance).reshape(-1)

    def packed_addresses(self, base: int, row_stride: int, slots: np.ndarray) -> np.ndarray:
        """int64 [n * T]: where rows at `base` have each slot, slot by slot. The rows are the
        host's, or those of a buffer of the same layout."""
        _, _, size, offset = self.table.T
        rows, positions = np.divmod(slots[:, None], self.blocks_per_row)
        addresses = base + rows * row_stride + self.blocks_per_row * offset + positions * size
        return addresses.reshape(-1)

    def sizes(self, num_blocks: int) -> np.ndarray:
        """int64 [num_blocks * T]: bytes of each piece of the two lists above."""
        return np.tile(self.table[:, 2], num_blocks)


def _integers(ids: Any) -> np.ndarray:
    array = np.asarray(ids)
    if array.size > 0 and array.dtype.kind not in "iu":
        raise ValueError(f"ids are integers; these are {array.dtype}")
    return array.astype(np.int64, copy=False)


def _check_rows(name: str, rows: torch.Tensor) -> None:
    import torch

    if rows.dtype != torch.int8 or rows.ndim != 2 or rows.shape[0] < 1 or rows.shape[1] < 1:
        raise ValueError(f"{name} is {rows.dtype} {list(rows.shape)}; it must be int8 [n, bytes]")
    if rows.stride(1) != 1 or (rows.shape[0] > 1 and rows.stride(0) < rows.shape[1]):
        strides = f"{name} has strides {list(rows.stride())}"
        raise ValueError(f"{strides}; the bytes of a row lie dense, and rows do not overlap")


def _check_ids(name: str, ids: np.ndarray, limit: int) -> None:
    """Checks sorted ids."""
    if len(ids) == 0:
        return
    smallest, largest = int(ids[0]), int(ids[-1])
    if smallest < 0 or largest >= limit:
        wrong = smallest if smallest < 0 else largest
        raise ValueError(f"{name} {wrong} is out of range; there are {limit}")
    twice = ids[1:][ids[1:] == ids[:-1]]
    if len(twice):
        raise ValueError(f"{name} {int(twice[0])} occurs twice in one job")
