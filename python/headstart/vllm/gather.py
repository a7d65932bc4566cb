"""Blocks between the engine's tensors and packed rows, within one memory.

Packed rows have the layout of host rows (`layout`), whichever memory they are in. There are two
ways with one result: `by_index` is plain torch, for CPU tensors and as the reference; `Kernel` is
one Triton kernel for all tensors, for a GPU, and allocates nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

    from .layout import Layout


def has_kernel() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


class Packed(NamedTuple):
    """Rows in packed form: int8 [num_rows, row_bytes], and how many blocks are in a row."""

    rows: torch.Tensor
    blocks_per_row: int


def by_index(
    tensors: Sequence[torch.Tensor],
    packed: Packed,
    ids: torch.Tensor,
    *,
    is_store: bool,
) -> None:
    """Copies from the tensors to the rows, or back. `ids`: int64 [n, 2], pairs of block and slot,
    on the tensors' device.

    Costs two calls of torch and a temporary copy of the blocks for each tensor.
    """
    blocks, slots = ids.unbind(1)
    rows, positions = slots // packed.blocks_per_row, slots % packed.blocks_per_row
    start = 0
    for tensor in tensors:
        end = start + packed.blocks_per_row * tensor.shape[1]
        # [num_rows, blocks_per_row, bytes], a view
        part = packed.rows[:, start:end].unflatten(1, (packed.blocks_per_row, tensor.shape[1]))
        if is_store:
            part[rows, positions] = tensor[blocks]
        else:
            tensor[blocks] = part[rows, positions]
        start = end


class Kernel:
    """`by_index` in one direction, as one launch on the current stream.

    Its constructor compiles for about a second; a launch costs about 30 µs of the CPU.
    """

    def __init__(self, layout: Layout, *, is_store: bool) -> None:
        import torch

        from . import kernel

        device = layout.tensors[0].device
        self._launch = kernel.launch
        self._is_store = is_store
        self._table = torch.from_numpy(layout.table).to(device)  # [T, 4]
        self._blocks_per_row = layout.blocks_per_row
        self._block_bytes_max = max(tensor.shape[1] for tensor in layout.tensors)
        numbers = layout.table * [1, 1, 1, layout.blocks_per_row]
        self._is_wide = not (numbers % kernel.WIDE_BYTES).any()
        row = torch.empty((1, layout.row_bytes), dtype=torch.int8, device=device)
        no_ids = torch.empty((0, 2), dtype=torch.int64, device=device)
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream):
            self(row, no_ids)
        stream.synchronize()

    def __call__(self, rows: torch.Tensor, ids: torch.Tensor) -> None:
        """`rows`: int8 [num_rows, row_bytes], dense. `ids`: int64 [n, 2], dense, on the GPU."""
        self._launch(
            self._table,
            ids,
            rows,
            block_bytes_max=self._block_bytes_max,
            blocks_per_row=self._blocks_per_row,
            is_store=self._is_store,
            is_wide=self._is_wide,
        )
