"""`HeadstartManager` over a manager that notes its calls, for each version of vLLM."""

from __future__ import annotations

import importlib
import types
from collections.abc import Iterator

import pytest

import engine_parts

pytest.importorskip("numpy", reason="needs numpy")
pytest.importorskip("headstart._native", reason="the wheel is not built")

VERSIONS = engine_parts.versions("vllm")


class Tier:
    """A tier that has every block, and notes what it hears."""

    def __init__(self) -> None:
        self.offered: bytes | None = None
        self.steps: list[list[tuple[int, int]]] = []
        self.seconds: list[float] = []
        self.waits = True
        self.num_loaded = 0

    def observe_step(self, entries: list[tuple[int, int]], seconds: float) -> None:
        self.steps.append(entries)
        self.seconds.append(seconds)

    def waits_for_row(self, req_context: object) -> bool:
        return self.waits

    def loaded(self, req_context: object) -> None:
        self.num_loaded += 1


class Inner:
    """vLLM's manager, as far as it is called. `rows` are those of the CPU tier."""

    colour = "red"

    def __init__(self, results: types.ModuleType, tier: Tier, rows: int) -> None:
        self.results, self.tier, self.rows = results, tier, rows
        self.calls: list[str] = []

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


@pytest.fixture(params=VERSIONS or [None], ids=lambda path: path.name if path else "none")
def world(request: pytest.FixtureRequest) -> Iterator[types.SimpleNamespace]:
    if request.param is None:
        pytest.skip("no parts of vLLM: tools/engines/unpack.py target/engines fetches them")
    with engine_parts.imported(request.param):
        base = importlib.import_module("vllm.v1.kv_offload.base")
        module = importlib.import_module("headstart.vllm.manager")
        tier = Tier()
        inner = Inner(base.LookupResult, tier, rows=1)
        yield types.SimpleNamespace(
            base=base, tier=tier, inner=inner, manager=module.HeadstartManager(inner, tier)
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


def test_a_block_that_finds_no_row_waits_as_long_as_that_is_worth_it(world) -> None:
    made = world.base.ReqContext("request")
    found = [world.manager.lookup(key, made).name for key in (b"1", b"2", b"absent")]
    assert found == ["HIT_PENDING", "RETRY", "MISS"]
    world.tier.waits = False
    assert world.manager.lookup(b"2", made).name == "MISS"


def test_steps_are_timed_in_their_order(world) -> None:
    one, keys = context(world, "one", 6)
    two, others = context(world, "two", 2)
    manager = world.manager
    manager.on_schedule_end(None)
    manager.prepare_store(keys[1:3], one)
    manager.prepare_store(others, two)
    # The next step is scheduled before the first one has ended.
    manager.on_schedule_end(None)
    # Two blocks found no room before, and are offered again.
    manager.prepare_store(keys[1:6], one)
    for _ in range(3):
        manager.take_events()
    assert world.tier.steps == [[(16, 32), (0, 32)], [(48, 48)]]
    assert all(seconds >= 0.0 for seconds in world.tier.seconds)


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
