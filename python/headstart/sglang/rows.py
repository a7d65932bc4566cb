"""The pages of an SGLang host pool as rows of a byte matrix. `BlockTier` moves such rows."""

from __future__ import annotations

from typing import Any

import numpy as np

PIECES_MAX = 2
"""Most records of a page: one for its keys and one for its values. A page in the layout
`layer_first` has two runs of memory for each layer, so the tier copies it instead."""

STAGED_PAGES = 128
"""Most staged pages for each direction: SGLang's own batch."""

STAGED_BYTES = 64 << 20
"""Most staged bytes for each direction, if a page is not larger."""


class DirectRows:
    """The memory of a pool itself: each page is one row, or one for its keys and one for its
    values. Nothing is copied in Python."""

    def __init__(self, matrix: np.ndarray, first: list[int], page_size: int) -> None:
        self.matrix = matrix
        self.pieces = len(first)
        self._first = first
        self._page_size = page_size

    def rows(self, index: int) -> list[int]:
        """The rows of the page whose first slot is `index`."""
        page, rest = divmod(index, self._page_size)
        # Behind the last page the keys' rows would be those of values.
        if rest or not 0 <= page < len(self.matrix) // self.pieces:
            raise ValueError(f"no page of the pool begins at slot {index}")
        return [first + page for first in self._first]


class StagedRows:
    """Memory beside the pool for copies of whole pages: one row for each page."""

    pieces = 1

    def __init__(self, page_bytes: int) -> None:
        self.count = min(STAGED_PAGES, max(1, STAGED_BYTES // page_bytes))
        # The first half for stores, the second for loads: neither waits for the other.
        self.matrix = np.zeros((2 * self.count, page_bytes), dtype=np.uint8)


def page_bytes(pool: Any) -> int:
    """Bytes of one page, as the pool gives it out."""
    return pool.get_dummy_flat_data_page().nbytes


def direct_rows(pool: Any) -> DirectRows | None:
    """The pool's memory as rows; `None` if its pages have too many runs, or move."""
    buffer = getattr(pool, "kv_buffer", None)
    is_plain = hasattr(buffer, "data_ptr") and buffer.device.type == "cpu"
    if not is_plain or not buffer.is_contiguous() or pool.shared_allocation_domain is not None:
        return None
    last = pool.page_num - 1
    try:
        starts, sizes = _runs(pool, 0)
        ends, _ = _runs(pool, last)
    except (AssertionError, NotImplementedError, ValueError):
        # The pool has no runs in this layout.
        return None
    size = sizes[0]
    if len(sizes) > PIECES_MAX or set(sizes) != {size}:
        return None
    if len(sizes) * size * pool.page_num != buffer.nbytes:
        return None
    offsets = [start - buffer.data_ptr() for start in starts]
    # A page follows the one before it, in each kind of run.
    if any(offset % size for offset in offsets) or any(
        end - start != last * size for start, end in zip(starts, ends)
    ):
        return None
    matrix = _bytes_of(buffer).reshape(-1, size)
    return DirectRows(matrix, [offset // size for offset in offsets], pool.page_size)


def _runs(pool: Any, page: int) -> tuple[list[int], list[int]]:
    """Addresses and lengths of the runs of one page."""
    import torch

    slots = torch.arange(page * pool.page_size, (page + 1) * pool.page_size)
    starts, sizes = pool.get_page_buffer_meta(slots)
    return list(starts), list(sizes)


def bytes_of_page(page: Any) -> np.ndarray:
    """The bytes of a flat page, without a copy where it is dense."""
    return _bytes_of(page.contiguous())


def _bytes_of(tensor: Any) -> np.ndarray:
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy()
