"""An engine as `BlockTier` sees it: rows of memory, and jobs one after another."""

from __future__ import annotations

import pathlib
import time

import pytest

np = pytest.importorskip("numpy", reason="needs numpy")
native = pytest.importorskip("headstart._native", reason="the wheel is not built")

LONGEST_JOB_S = 40


class TierUser:
    """A tier and its rows; row and key of a block have its number."""

    def __init__(
        self,
        place: str | pathlib.Path,
        budget_bytes: int,
        shape: tuple[int, int],
        identity: bytes = bytes(16),
    ) -> None:
        self.place, self.budget_bytes, self.identity = place, budget_bytes, identity
        self.rows = np.zeros(shape, np.uint8)
        self.jobs = 0
        self.open()

    def open(self) -> None:
        self.tier = native.BlockTier(
            self.place, self.budget_bytes, self.rows, self.identity, policy="lru"
        )

    def finish(self) -> list[bytes]:
        """Keys that the job moved."""
        deadline = time.monotonic() + LONGEST_JOB_S
        while time.monotonic() < deadline:
            for job, _, moved, _, _ in self.tier.finished():
                assert job == self.jobs
                return moved
            time.sleep(0.001)
        raise AssertionError("the job does not end")

    def store(self, blocks: list[int]) -> list[bytes]:
        self.jobs += 1
        rows = [block % len(self.rows) for block in blocks]
        for block, row in zip(blocks, rows):
            self.rows[row] = block % 251
        keys = [key(block) for block in blocks]
        self.tier.store(self.jobs, keys, [None, *keys[:-1]], rows, native.Use(self.jobs))
        return self.finish()

    def load(self, blocks: list[int]) -> list[bytes]:
        """Loads blocks into the first rows."""
        self.jobs += 1
        self.tier.load(self.jobs, [key(block) for block in blocks], list(range(len(blocks))))
        return self.finish()

    def has(self, block: int) -> bool:
        assert self.tier.finished() == []
        return self.tier.lookup(key(block)) is True


def key(block: int) -> bytes:
    return block.to_bytes(8, "big")
