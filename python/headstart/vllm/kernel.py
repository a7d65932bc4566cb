"""The Triton kernel of `gather`. Importing this module needs Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

WIDE_BYTES = 16
"""Where every address, distance and size is a multiple of this, a thread moves 16 bytes at once."""
CHUNK_BYTES = 16 * 1024
"""Bytes of a program's turn: 64 for each of its 256 threads, four loads in flight."""
NUM_PROGRAMS = 132
"""Programs of a launch; they share the chunks. As many as an H100 or H200 has SMs. From 16 to 132
the copies are equally fast; with 132, matrix products beside them lost less than with 32 at most
sizes."""
NUM_WARPS = 8


@triton.jit(do_not_specialize=["packed", "row_stride", "num_blocks"])
def _move(
    table,  # int64 [T, 4], as Layout.table
    ids,  # int64 [num_blocks, 2]: block, slot
    packed,  # address of int8 [num_rows, row_stride]
    row_stride,
    num_blocks,
    NUM_TENSORS: tl.constexpr,
    NUM_CHUNKS: tl.constexpr,
    BLOCKS_PER_ROW: tl.constexpr,
    IS_STORE: tl.constexpr,
    IS_WIDE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    WORD: tl.constexpr = tl.int64 if IS_WIDE else tl.int8
    WORD_BYTES: tl.constexpr = 8 if IS_WIDE else 1
    lane = tl.arange(0, CHUNK // WORD_BYTES)
    num_turns = num_blocks * NUM_TENSORS * NUM_CHUNKS
    for turn in range(tl.program_id(0), num_turns, tl.num_programs(0)):
        nth = turn // (NUM_TENSORS * NUM_CHUNKS)
        tensor = table + (turn // NUM_CHUNKS % NUM_TENSORS) * 4
        start = (turn % NUM_CHUNKS) * CHUNK
        block, slot = tl.load(ids + 2 * nth), tl.load(ids + 2 * nth + 1)
        size = tl.load(tensor + 2)
        device = tl.load(tensor) + block * tl.load(tensor + 1) + start
        row = packed + (slot // BLOCKS_PER_ROW) * row_stride + tl.load(tensor + 3) * BLOCKS_PER_ROW
        host = row + (slot % BLOCKS_PER_ROW) * size + start
        words = (size - start) // WORD_BYTES
        device = device.to(tl.pointer_type(WORD))
        host = host.to(tl.pointer_type(WORD))
        if IS_WIDE:
            device, host = tl.multiple_of(device, 16), tl.multiple_of(host, 16)
            words = tl.multiple_of(words, 2)
        mask = lane < words
        if IS_STORE:
            tl.store(host + lane, tl.load(device + lane, mask=mask), mask=mask)
        else:
            tl.store(device + lane, tl.load(host + lane, mask=mask), mask=mask)


def launch(
    table: torch.Tensor,
    ids: torch.Tensor,
    rows: torch.Tensor,
    *,
    block_bytes_max: int,
    blocks_per_row: int,
    is_store: bool,
    is_wide: bool,
) -> None:
    """Copies `ids` (int64 [n, 2]) between the tensors of `table` and `rows`."""
    chunk = min(CHUNK_BYTES, triton.next_power_of_2(block_bytes_max))
    _move[(NUM_PROGRAMS,)](
        table,
        ids,
        rows.data_ptr(),
        rows.stride(0),
        ids.shape[0],
        NUM_TENSORS=table.shape[0],
        NUM_CHUNKS=triton.cdiv(block_bytes_max, chunk),
        BLOCKS_PER_ROW=blocks_per_row,
        IS_STORE=is_store,
        IS_WIDE=is_wide,
        CHUNK=chunk,
        num_warps=NUM_WARPS,
    )
