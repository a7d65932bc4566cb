"""`HeadstartTier` behind vLLM's interface, for each version whose parts are there."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import importlib.util
import pathlib
import random
import sys
import time
import types
from collections.abc import Iterator

import pytest

import engine_parts

np = pytest.importorskip("numpy", reason="needs numpy")
pytest.importorskip("headstart._native", reason="the wheel is not built")

ROW_BYTES = 64 * 1024
ROWS = 32
BUDGET_GIB = 16 / 1024


@pytest.fixture
def vllm(parts: pathlib.Path) -> Iterator[types.SimpleNamespace]:
    """The modules of one version."""
    with engine_parts.imported(parts):
        yield types.SimpleNamespace(
            base=importlib.import_module("vllm.v1.kv_offload.base"),
            tiering=importlib.import_module("vllm.v1.kv_offload.tiering.base"),
            tier=importlib.import_module("headstart.vllm.tier"),
        )


def spec(model: pathlib.Path, **changes: object) -> types.SimpleNamespace:
    """An offload spec, as far as the tier reads it."""
    group = types.SimpleNamespace(tokens_per_block=16, layer_names=("layer.0", "layer.1"))
    parallel = {"world_size": 1, "tp_size": 1, "pp_size": 1, "pcp_size": 1, "dcp_size": 1}
    config = {
        "model": types.SimpleNamespace(name=str(model), dtype="bfloat16"),
        "worker_kv_bytes_per_block": ROW_BYTES,
        "cache": types.SimpleNamespace(blocks_per_chunk=1, tokens_per_hash=16),
        "groups": (group,),
        "parallel": types.SimpleNamespace(**parallel),
    }
    return types.SimpleNamespace(config=types.SimpleNamespace(**(config | changes)))


class World:
    """A tier, the memory above it, and jobs."""

    def __init__(self, vllm: types.SimpleNamespace, tmp_path: pathlib.Path) -> None:
        self.vllm = vllm
        self.folder = tmp_path / "tier"
        self.model = tmp_path / "model"
        self.model.mkdir(exist_ok=True)
        (self.model / "model.safetensors").write_bytes(b"weights")
        self.memory = np.zeros((ROWS, ROW_BYTES), dtype=np.int8)
        self.jobs = self.requests = 0
        self.open()

    def open(self, **options: object) -> None:
        options = {"folder": str(self.folder), "budget_gib": BUDGET_GIB} | options
        view = memoryview(self.memory)
        self.tier = self.vllm.tier.HeadstartTier(
            options.pop("spec", spec(self.model)), view, "headstart", **options
        )

    def key(self, block: int) -> bytes:
        return self.vllm.base.make_offload_key(block.to_bytes(16, "big") * 2, 0)

    def bytes_of(self, block: int) -> object:
        return np.random.default_rng(block).integers(-128, 128, ROW_BYTES, dtype=np.int8)

    def job(self, blocks: list[int], rows: list[int], is_promotion: bool):
        self.jobs += 1
        context = self.context(blocks)
        keys = [self.key(block) for block in blocks]
        return self.vllm.tiering.TransferJob(
            self.jobs, keys, np.array(rows), is_promotion, context
        )

    def finish(self, job_id: int):
        """Waits for one job."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for result in self.tier.get_finished_jobs():
                if result.job_id == job_id:
                    return result
            time.sleep(0.001)
        raise AssertionError(f"job {job_id} does not end")

    def store(self, blocks: list[int]):
        rows = list(range(len(blocks)))
        for row, block in zip(rows, blocks):
            self.memory[row] = self.bytes_of(block)
        job = self.job(blocks, rows, False)
        self.tier.submit_store(job)
        result = self.finish(job.job_id)
        self.tier.on_request_finished(job.req_context)
        return result

    def load(self, blocks: list[int]):
        """Loads blocks; asserts that each row has its block's bytes, or those it had."""
        rows = list(range(ROWS - len(blocks), ROWS))
        self.memory[rows] = 77
        job = self.job(blocks, rows, True)
        self.tier.submit_load(job)
        result = self.finish(job.job_id)
        moved = set(job.keys if result.success else result.successful_keys)
        for row, block in zip(rows, blocks):
            expected = self.bytes_of(block) if self.key(block) in moved else 77
            assert np.array_equal(self.memory[row], np.broadcast_to(expected, ROW_BYTES)), block
        return result

    def context(self, blocks: list[int]):
        """A request with these blocks."""
        self.requests += 1
        context = self.vllm.base.ReqContext(f"request-{self.requests}")
        if hasattr(context, "set_offload_key_position"):
            for position, block in enumerate(blocks, 1):
                context.set_offload_key_position(self.key(block), 16 * position)
        return context

    def finds(self, block: int) -> str:
        return self.tier.lookup(self.key(block), self.context([])).name

    def prompt_finds(self, blocks: list[int]) -> list[str]:
        """What one request finds."""
        context = self.context(blocks)
        found = [self.tier.lookup(self.key(block), context).name for block in blocks]
        self.tier.on_request_finished(context)
        return found


@pytest.fixture
def world(vllm, tmp_path: pathlib.Path) -> Iterator[World]:
    made = World(vllm, tmp_path)
    yield made
    made.tier.shutdown()


def test_blocks_come_back_also_after_a_restart(world: World) -> None:
    assert world.store([1, 2, 3]).success
    assert world.load([3, 1]).success
    assert [world.finds(block) for block in (1, 4)] == ["HIT", "MISS"]
    result = world.load([2, 9])
    assert not result.success
    assert list(result.successful_keys) == [world.key(2)]
    world.tier.shutdown()
    world.open()
    assert world.load([1, 2, 3]).success


def test_events_tell_what_came_and_went(world: World) -> None:
    world.store([1, 2])
    events = list(world.tier.take_events())
    assert [(list(event.keys), event.removed) for event in events] == [
        ([world.key(1), world.key(2)], False)
    ]
    assert {event.medium.name for event in events} == {"STORAGE"}
    assert list(world.tier.take_events()) == []
    world.tier.shutdown()
    world.open()
    # Their keys are not known before a request looks for them.
    assert list(world.tier.take_events()) == []
    world.finds(2)
    assert [list(event.keys) for event in world.tier.take_events()] == [[world.key(2)]]


def test_other_weights_find_nothing_and_change_nothing(world: World) -> None:
    world.store([1])
    world.tier.shutdown()
    weights = world.model / "model.safetensors"
    weights.write_bytes(b"Weights")
    world.open()
    assert world.finds(1) == "MISS"
    world.tier.shutdown()
    weights.write_bytes(b"weights")
    for change in ({"worker_kv_bytes_per_block": 1}, {"kv_cache_layout": "HND"}):
        world.open(spec=spec(world.model, **change))
        assert world.finds(1) == "MISS"
        world.tier.shutdown()
    world.open()
    assert world.load([1]).success


def test_flipped_bits_are_misses(world: World) -> None:
    blocks = list(range(1, 13))
    world.store(blocks)
    world.tier.shutdown()
    rng = random.Random(4)
    flipped = 0
    for path in sorted(world.folder.rglob("*")):
        if not path.is_file() or path.stat().st_size <= ROW_BYTES:
            continue
        data = bytearray(path.read_bytes())
        used = np.flatnonzero(np.frombuffer(data, dtype=np.uint8)).tolist()
        flipped += len(used) > ROW_BYTES
        for at in rng.sample(used, min(40, len(used))):
            data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    assert flipped == 1
    world.open()
    # `load` compares every byte.
    loaded = [world.load([block]).success for block in blocks if world.finds(block) == "HIT"]
    assert not all(loaded) or len(loaded) < len(blocks)
    assert world.store(blocks).success
    assert world.load(blocks).success


def test_the_budget_holds_and_heads_stay(world: World) -> None:
    capacity = world.tier._tier.capacity
    assert 60 < capacity < 256
    for first in range(0, 4 * capacity, 8):
        world.store(list(range(first, first + 8)))
    size = sum(path.stat().st_blocks * 512 for path in world.folder.rglob("*") if path.is_file())
    assert size <= BUDGET_GIB * (1 << 30)
    assert len(world.tier._tier) <= capacity
    counts = dict(world.tier._tier.counts())
    assert counts["evicted"] > 0 and counts["declined"] == 0
    assert {event.removed for event in world.tier.take_events()} == {True, False}


def test_without_events_nothing_piles_up(world: World) -> None:
    world.tier.shutdown()
    world.open(spec=spec(world.model, enable_kv_cache_events=False))
    world.store([1, 2])
    assert world.tier._tier.changes() == []


def test_a_tier_that_is_dropped_ends_its_thread(world: World) -> None:
    world.store([1])
    world.tier = None
    gc.collect()
    world.open()
    assert world.load([1]).success


def test_blocks_that_are_computed_faster_are_not_loaded(world: World) -> None:
    blocks = list(range(1, 9))
    world.store(blocks)
    # Neither speed is known.
    assert world.prompt_finds(blocks) == ["HIT"] * 8
    assert world.load(blocks).success
    for _ in range(30):
        world.tier.observe_step([(0, 64)], 60.0)
    assert world.prompt_finds(blocks) == ["HIT"] * 8
    for _ in range(3_000):
        world.tier.observe_step([(0, 64)], 1e-9)
    # 0.30 does not tell the order of a request's blocks, so there is no prompt to weigh.
    knows_order = hasattr(world.context([]), "set_offload_key_position")
    assert world.prompt_finds(blocks) == ["MISS" if knows_order else "HIT"] * 8
    assert world.finds(1) == "HIT"


def test_engines_of_one_identity_have_folders_of_their_own(world: World) -> None:
    world.store([1, 2])
    first = world.tier
    world.open()
    assert world.finds(1) == "MISS"
    world.store([3])
    world.tier.shutdown()
    first.shutdown()
    # After a restart each folder is found again.
    world.open()
    assert [world.finds(block) for block in (1, 2, 3)] == ["HIT", "HIT", "MISS"]
    first = world.tier
    world.open()
    assert [world.finds(block) for block in (1, 2, 3)] == ["MISS", "MISS", "HIT"]
    first.shutdown()


def test_a_folder_that_cannot_be_used_fails_at_the_start(world: World, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        world.open(folder=str(tmp_path / "file"))
    with pytest.raises(ValueError, match="no option colour"):
        world.open(folder=str(tmp_path / "other"), colour="red")
    with pytest.raises(ValueError, match="revision"):
        world.open(spec=spec(tmp_path / "absent"))


def test_jobs_end_when_the_tier_is_drained_or_closed(world: World) -> None:
    world.tier.shutdown()
    world.open(fixed_weights=True)
    jobs = [world.job([block], [block % ROWS], False) for block in range(20)]
    for job in jobs:
        world.tier.submit_store(job)
    assert world.tier.has_pending_work()
    world.tier.drain_jobs()
    assert not world.tier.has_pending_work()
    assert {result.job_id for result in world.tier.get_finished_jobs()} == {
        job.job_id for job in jobs
    }
    job = world.job([1], [0], True)
    world.tier.submit_load(job)
    world.tier.shutdown()
    assert [result.job_id for result in world.tier.get_finished_jobs()] == [job.job_id]
    # What comes after the end fails, and stops no engine.
    job = world.job([999], [0], False)
    world.tier.submit_store(job)
    assert [result.success for result in world.tier.get_finished_jobs()] == [False]


@pytest.fixture
def has_stats(vllm, parts: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads vLLM's own class of stats, whose package imports the whole engine."""
    name = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics"

    @dataclasses.dataclass
    class KVConnectorStats:
        data: dict = dataclasses.field(default_factory=dict)

    base = importlib.import_module("vllm.distributed.kv_transfer.kv_connector.v1.metrics")
    monkeypatch.setattr(base, "KVConnectorStats", KVConnectorStats, raising=False)
    path = parts / f"{name.replace('.', '/')}.py"
    loaded = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(loaded)
    monkeypatch.setitem(sys.modules, name, module)
    loaded.loader.exec_module(module)


def stats_of(world: World) -> dict[str, dict[tuple[str, ...], float]]:
    """What vLLM is given, with the metrics' labels checked against their definitions."""
    stats = world.tier.get_stats()
    definitions = world.tier.build_metric_definitions({})
    for name, values in stats._values.items():
        assert all(len(labels) == len(definitions[name].labelnames) for labels in values), name
        kind = type(definitions[name]).__name__
        assert stats._types[name] in kind.lower(), name
    return stats._values


def test_metrics_tell_what_happened_to_blocks(world: World, has_stats) -> None:
    world.store([1, 2, 3])
    world.load([1, 2])
    found = stats_of(world)
    assert found["headstart:tier_blocks"] == {("disk", "stored"): 3, ("disk", "loaded"): 2}
    assert found["headstart:tier_resident_blocks"] == {("disk",): 3}
    assert found["headstart:tier_capacity_blocks"] == {("disk",): world.tier._tier.capacity}
    assert found["headstart:tier_up"] == {("disk",): 1}
    # Each change is told once.
    assert stats_of(world) == {}


def test_metrics_tell_why_blocks_were_computed(world: World, has_stats) -> None:
    if not hasattr(world.context([]), "set_offload_key_position"):
        pytest.skip("0.30 does not tell the order of blocks")

    def computed() -> dict[tuple[str, ...], float]:
        return stats_of(world).get("headstart:tier_computed_blocks", {})

    capacity = world.tier._tier.capacity
    world.store([1, 2])
    assert world.prompt_finds([1, 2]) == ["HIT", "HIT"] and computed() == {}
    # vLLM stops at the first miss.
    context = world.context([1, 2, 3, 4, 5])
    assert [world.tier.lookup(world.key(block), context).name for block in (1, 2, 3)][2] == "MISS"
    assert computed() == {}, "a request that runs may be looked up again"
    world.tier.on_request_finished(context)
    assert computed() == {("disk", "not_stored"): 3}
    for first in range(100, 100 + 3 * capacity // 2, 8):
        world.store(list(range(first, first + 8)))
    assert world.prompt_finds([1]) == ["MISS"]
    assert computed() == {("disk", "evicted"): 1}
    world.tier.note_miss(world.key(1), context := world.context([1, 2]), "no_row")
    world.tier.on_request_finished(context)
    assert computed() == {("disk", "no_row"): 2}


@pytest.mark.parametrize("value", ["yes", 1, None])
def test_fixed_weights_is_true_or_false(world: World, value: object) -> None:
    world.tier.shutdown()
    with pytest.raises(ValueError, match="`fixed_weights`"):
        world.open(fixed_weights=value)


def test_after_a_reset_nothing_is_loaded_unless_the_weights_are_fixed(world: World) -> None:
    world.store([1])
    # vLLM calls it when it resets its cache, also for other weights.
    world.tier.drain_jobs()
    assert world.finds(1) == "MISS"
    assert world.store([2]).success
    world.tier.shutdown()
    world.open(fixed_weights=True)
    assert [world.finds(block) for block in (1, 2)] == ["HIT", "MISS"]
    world.tier.drain_jobs()
    assert world.finds(1) == "HIT"


@pytest.mark.parametrize("hints", [{"finish": "\ud800"}, {"tools": ["\ud800"]}, {"turn": "3"}, 7])
def test_hints_of_a_wrong_type_are_ignored(world: World, hints: object) -> None:
    context = world.context([1])
    context.kv_transfer_params = {"headstart": hints}
    world.tier.touch([world.key(1)], context)
    world.tier.on_request_finished(context)
