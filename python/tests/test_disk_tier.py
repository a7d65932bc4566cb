"""`BlockTier`, on which the plug-ins for vLLM, SGLang and LMCache stand."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tier_user import TierUser, key

SHAPE = (64, 64 * 1024)
BUDGET_BYTES = 16 << 20


@pytest.fixture
def disk(tmp_path: pathlib.Path) -> Iterator[TierUser]:
    made = TierUser(tmp_path, BUDGET_BYTES, SHAPE)
    yield made
    made.tier.close()


def test_pinned_blocks_outlive_any_number_of_others(disk: TierUser) -> None:
    disk.store([1, 2, 3])
    assert disk.tier.pin([key(1), key(9), key(2)]) == [True, False, True]
    for first in range(100, 100 + 4 * disk.tier.capacity, 8):
        disk.store(list(range(first, first + 8)))
    assert [disk.has(block) for block in (1, 2, 3)] == [True, True, False]
    assert disk.load([1, 2]) == [key(1), key(2)]
    assert (disk.rows[0] == 1).all() and (disk.rows[1] == 2).all()
    disk.tier.unpin([key(1), key(2), key(9)])
    for first in range(9_000, 9_000 + 4 * disk.tier.capacity, 8):
        disk.store(list(range(first, first + 8)))
    assert not disk.has(1) and not disk.has(2)


def test_removed_blocks_are_gone_and_others_stay(disk: TierUser) -> None:
    disk.store([1, 2, 3, 4])
    disk.tier.pin([key(3)])
    disk.tier.changes()
    # 3 is pinned, and 9 is not here.
    assert disk.tier.remove([key(2), key(3), key(9)]) == 1
    assert disk.tier.changes() == [(key(2), False)]
    assert [disk.has(block) for block in (1, 2, 3, 4)] == [True, False, True, True]
    assert disk.load([2]) == []
    assert disk.store([2]) == [key(2)]


def test_advice_follows_what_was_measured(disk: TierUser) -> None:
    blocks = list(range(8))
    keys = [key(block) for block in blocks]
    assert disk.tier.advise(keys, 99, 0, 16, 136) == (0, None, None)
    disk.store(blocks)
    assert disk.tier.advise(keys, 99, 0, 16, 136) == (8, None, None)
    assert disk.tier.advise([key(99), *keys], 99, 0, 16, 152) == (0, None, None)
    disk.load(blocks)
    units, load_s, gain_s = disk.tier.advise(keys, 5, 0, 16, 136)
    assert units == 5 and load_s > 0 and gain_s is None
    for _ in range(30):
        disk.tier.observe_step([(0, 64)], 10.0)
    units, _, gain_s = disk.tier.advise(keys, 99, 0, 16, 136)
    assert units == 8 and gain_s > 1
