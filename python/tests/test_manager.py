"""`HeadstartManager` over a manager that notes its calls, for each version of vLLM."""

from __future__ import annotations

import importlib
import pathlib
import types
from collections.abc import Iterator

import pytest

import engine_parts

pytest.importorskip("numpy", reason="needs numpy")
pytest.importorskip("headstart._native", reason="the wheel is not built")


class Tier:
    """A tier that has every block, and notes what it hears."""

    def __init__(self) -> None:
        self.offered: bytes | None = None
        self.steps: list[list[tuple[int, int]]] = []
        self.seconds: list[float] = []
        self.waits = True
        self.num_loaded = 0
        self.misses: list[tuple[bytes, str]] = []

    def observe_step(self, entries: list[tuple[int, int]], seconds: float) -> None:
        self.steps.append(entries)
        self.seconds.append(seconds)

    def waits_for_row(self, req_context: object) -> bool:
        return self.waits

    def loaded(self, req_context: object) -> None:
        self.num_loaded += 1

    def forget_miss(self, req_context: object) -> None:
        self.misses.clear()

    def note_miss(self, key: bytes, req_context: object, reason: str) -> None:
        self.misses.append((key, reason))


class Inner:
    """vLLM's manager, as far as it is called. `rows` are those of the CPU tier."""

    colour = "red"

    def __init__(self, results: types.ModuleType, tier: Tier, rows: int) -> None:
        self.results, self.tier, self.rows = results, tier, rows
        self.calls: list[str] = []
        self.primary_tier = types.SimpleNamespace(lookup=lambda *args: results.MISS)

    def lookup(self, key: bytes, req_context: object) -> object:
        if key == b"absent":
            return self.results.MISS
        self.tier.offered = key
        if not self.rows:
            return self.results.MISS
        self.rows -= 1
        return self.results.HIT_PENDING

    def __getattr__(self, name: str) -> object:
        return lambda *args: self.calls.append(name)


@pytest.fixture
def world(parts: pathlib.Path) -> Iterator[types.SimpleNamespace]:
    with engine_parts.imported(parts):
        base = importlib.import_module("vllm.v1.kv_offload.base")
        module = importlib.import_module("headstart.vllm.manager")
        tier = Tier()
        inner = Inner(base.LookupResult, tier, rows=1)
        yield types.SimpleNamespace(
            base=base,
            tier=tier,
            inner=inner,
            manager=module.HeadstartManager(inner, [tier]),
            stores_first=module.STORES_FIRST,
            steps_max=module.STEPS_MAX,
        )


def context(world: types.SimpleNamespace, name: str, num_blocks: int):
    """A request of some blocks of 16 tokens, and its keys."""
    made = world.base.ReqContext(name)
    keys = [f"{name} {block}".encode() for block in range(num_blocks)]
    if not hasattr(made, "set_offload_key_position"):
        pytest.skip("0.30 does not tell the order of a request's blocks")
    for position, key in enumerate(keys, 1):
        made.set_offload_key_position(key, 16 * position)
    return made, keys


def schedule(world: types.SimpleNamespace, *stores: tuple[list[bytes], object]) -> None:
    """Schedules a step that computes blocks, in the order of calls of this version."""
    if not world.stores_first:
        world.manager.on_schedule_end(None)
    for keys, request in stores:
        world.manager.prepare_store(keys, request)
    if world.stores_first:
        world.manager.on_schedule_end(None)


def test_a_block_that_finds_no_row_waits_as_long_as_that_is_worth_it(world) -> None:
    made = world.base.ReqContext("request")
    found = [world.manager.lookup(key, made).name for key in (b"1", b"2", b"absent")]
    assert found == ["HIT_PENDING", "RETRY", "MISS"]
    world.tier.waits = False
    assert world.manager.lookup(b"2", made).name == "MISS"
    assert world.tier.misses == [(b"2", "no_row")]
    # Another tier has it.
    world.inner.rows = 1
    assert world.manager.lookup(b"2", made).name == "HIT_PENDING"
    assert world.tier.misses == []


def test_nothing_is_loaded_before_the_copies_of_a_reset_have_ended(world) -> None:
    made = world.base.ReqContext("request")
    world.manager.reset_cache()
    assert "reset_cache" in world.inner.calls
    # Since 0.33 vLLM itself waits.
    vllm_waits = hasattr(world.base.OffloadingManager, "on_reset_flushed")
    found = world.manager.lookup(b"1", made).name
    assert found == ("HIT_PENDING" if vllm_waits else "MISS")
    for _ in range(world.steps_max):
        world.manager.take_events()
    world.inner.rows = 1
    assert world.manager.lookup(b"1", made).name == "HIT_PENDING"


def test_steps_are_timed_in_their_order(world) -> None:
    one, keys = context(world, "one", 6)
    two, others = context(world, "two", 2)
    schedule(world, (keys[1:3], one), (others, two))
    # The next step is scheduled before the first one has ended. Two blocks found no room before,
    # and are offered again.
    schedule(world, (keys[1:6], one))
    for _ in range(3):
        world.manager.take_events()
    assert world.tier.steps == [[(16, 32), (0, 32)], [(48, 48)]]
    assert all(seconds >= 0.0 for seconds in world.tier.seconds)


def test_blocks_that_the_device_had_are_not_computed(world) -> None:
    made, keys = context(world, "request", 6)
    # The device has three blocks; vLLM looks for the others, and offers all.
    world.inner.rows = 0
    world.tier.waits = False
    for key in keys[3:]:
        world.manager.lookup(key, made)
    schedule(world, (keys[:5], made))
    world.manager.take_events()
    assert world.tier.steps == [[(48, 32)]]


def test_blocks_that_evict_each_other_are_not_fetched_without_end(world) -> None:
    made, keys = context(world, "request", 4)
    world.inner.rows = 100
    world.inner.primary_tier = types.SimpleNamespace(lookup=lambda key, made: "primary")
    find = lambda: [world.manager.lookup(key, made) for key in keys]
    pending = world.base.LookupResult.HIT_PENDING
    for _ in range(2):
        assert find() == [pending] * 4
    assert find() == [pending] + ["primary"] * 3
    assert find() == ["primary"] * 4
    # Its next load begins from the start.
    world.manager.complete_load([], made)
    assert find() == [pending] * 4


def test_steps_without_prompts_and_without_an_end_do_no_harm(world) -> None:
    manager = world.manager
    manager.take_events()
    for _ in range(100):
        manager.on_schedule_end(None)
    manager.prepare_store([b"unknown"], world.base.ReqContext("request"))
    for _ in range(100):
        manager.take_events()
    assert world.tier.steps == []


def test_all_else_is_left_to_the_manager(world) -> None:
    made = world.base.ReqContext("request")
    world.manager.complete_load([], made)
    world.manager.on_request_finished(made)
    world.manager.shutdown()
    assert world.manager.colour == "red"
    assert world.tier.num_loaded == 1
    assert world.inner.calls == ["complete_load", "on_request_finished", "shutdown"]
