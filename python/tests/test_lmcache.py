"""`HeadstartL2Adapter` behind LMCache's interface, with LMCache's own memory objects.

LMCache 0.5.6. No server runs here; bench/engines/l2.py runs LMCache's benchmark.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import pathlib
import random
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest

np = pytest.importorskip("numpy", reason="needs numpy")
torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("headstart._native", reason="the wheel is not built")
pytest.importorskip("lmcache.v1.distributed.l2_adapters", reason="needs lmcache")

from lmcache.v1.distributed.api import (  # noqa: E402
    GroupedObjectKeys,
    MemoryLayoutDesc,
    ObjectKey,
    PrefetchTaskSpec,
)
from lmcache.v1.distributed.config import (  # noqa: E402
    EvictionConfig,
    L1ManagerConfig,
    L1MemoryManagerConfig,
    StorageManagerConfig,
)
from lmcache.v1.distributed.internal_api import (  # noqa: E402
    L1MemoryDesc,
    L2AdapterListener,
)
from lmcache.v1.distributed.l2_adapters import create_l2_adapter  # noqa: E402
from lmcache.v1.distributed.l2_adapters.base import AdapterUsage  # noqa: E402
from lmcache.v1.distributed.l2_adapters.config import L2AdaptersConfig  # noqa: E402
from lmcache.v1.distributed.l2_adapters.plugin_l2_adapter import (  # noqa: E402
    PluginL2AdapterConfig,
)
from lmcache.v1.distributed.memory_manager.l1_memory_manager import (  # noqa: E402
    L1MemoryManager,
)
from lmcache.v1.distributed.quota_manager import QuotaManager  # noqa: E402
from lmcache.v1.distributed.storage_controllers.eviction_controller import (  # noqa: E402
    L2AdapterEvictionState,
    L2EvictionController,
)
from lmcache.v1.distributed.storage_manager import StorageManager  # noqa: E402
from lmcache.v1.memory_management import (  # noqa: E402
    MemoryFormat,
    MemoryObjMetadata,
    TensorMemoryObj,
)
from lmcache.v1.platform import consume_fd  # noqa: E402

from file_harm import harm  # noqa: E402
from headstart.lmcache.parts import keys_of, offsets_of  # noqa: E402

ROW_KIB = 64
ROW = ROW_KIB * 1024
OBJECT = 2 * ROW + 8 * 1024
"""Two rows and a part of a third."""
SLOTS = 64
BUDGET_GIB = 24 / 1024
PATIENCE_S = 20


def key_of(chunk: int, **changes: object) -> ObjectKey:
    key = ObjectKey(chunk.to_bytes(32, "big"), "org/model", 0x01000100)
    return dataclasses.replace(key, **changes)


def layout_of(size: int = OBJECT, dtype: torch.dtype = torch.bfloat16) -> MemoryLayoutDesc:
    return MemoryLayoutDesc([torch.Size([2, size // 4])], [dtype])


class World:
    """An adapter, the L1 buffer above it, and a listener."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.buffer = torch.zeros(SLOTS * OBJECT + 4096, dtype=torch.uint8)
        self.open()

    def open(self, **options: object) -> None:
        given = {"folder": str(self.folder), "budget_gib": BUDGET_GIB, "row_kib": ROW_KIB}
        config = PluginL2AdapterConfig(
            "headstart.lmcache.adapter", "HeadstartL2Adapter", given | options
        )
        place = L1MemoryDesc(self.buffer.data_ptr(), self.buffer.numel(), 1)
        self.adapter = create_l2_adapter(config, l1_memory_desc=place)
        self.listener = Listener()
        self.adapter.register_listener(self.listener)

    def reopen(self, **options: object) -> None:
        self.adapter.close()
        self.open(**options)

    def object(self, slot: int, layout: MemoryLayoutDesc | None = None) -> TensorMemoryObj:
        layout = layout or layout_of()
        size = sum(s.numel() * d.itemsize for s, d in zip(layout.shapes, layout.dtypes))
        # An odd address: nothing is aligned.
        start = slot * OBJECT + 1
        about = MemoryObjMetadata(
            shape=layout.shapes[0],
            dtype=layout.dtypes[0],
            address=start,
            phy_size=size,
            ref_count=1,
            fmt=MemoryFormat.KV_2LTD,
            shapes=layout.shapes,
            dtypes=layout.dtypes,
        )
        return TensorMemoryObj(self.buffer[start : start + size], about, None)

    def wait(self, fd: int, result: Callable[[], object]) -> object:
        """Waits for a task as LMCache does: for a signal, then for a result."""
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        while (found := result()) is None:
            assert poller.poll(PATIENCE_S * 1000), "no signal"
            consume_fd(fd)
        return found

    def store(self, chunks: list[int], first: int = 0, **changes: object) -> bool:
        objects = [self.object(first + at) for at in range(len(chunks))]
        for chunk, memory in zip(chunks, objects):
            memory.raw_data.copy_(bytes_of(chunk))
        task = self.adapter.submit_store_task([key_of(c, **changes) for c in chunks], objects)
        return self.stored(task)

    def stored(self, task: int) -> bool:
        ended = self.__dict__.setdefault("ended", {})

        def result() -> object:
            ended.update(self.adapter.pop_completed_store_tasks())
            return ended.pop(task, None)

        return self.wait(self.adapter.get_store_event_fd(), result).is_successful()

    def finds(
        self, chunks: list[int], layout: MemoryLayoutDesc | None = None, **changes: object
    ) -> list[int]:
        keys = [key_of(chunk, **changes) for chunk in chunks]
        task = self.adapter.submit_lookup_and_lock_task(keys, {0: layout or layout_of()})
        fd = self.adapter.get_lookup_and_lock_event_fd()
        bitmap = self.wait(fd, lambda: self.adapter.query_lookup_and_lock_result(task))
        assert self.adapter.query_lookup_and_lock_result(task) is None
        return [chunks[at] for at in bitmap.get_indices_list()]

    def load(self, chunks: list[int], first: int = SLOTS // 2, **changes: object) -> list[int]:
        """Loads chunks; asserts the bytes of those that succeed, and of the memory around."""
        objects = [self.object(first + at) for at in range(len(chunks))]
        for memory in objects:
            memory.raw_data.fill_(77)
        keys = [key_of(chunk, **changes) for chunk in chunks]
        task = self.adapter.submit_load_task(keys, objects)
        fd = self.adapter.get_load_event_fd()
        bitmap = self.wait(fd, lambda: self.adapter.query_load_result(task))
        assert self.adapter.query_load_result(task) is None
        for at in bitmap.get_indices_list():
            assert torch.equal(objects[at].raw_data, bytes_of(chunks[at])), chunks[at]
        return [chunks[at] for at in bitmap.get_indices_list()]


class Listener(L2AdapterListener):
    """The keys that LMCache heard of."""

    def __init__(self) -> None:
        self.stored, self.accessed, self.deleted = [], [], []

    def on_l2_keys_stored(self, keys: list[ObjectKey], sizes: list[int]) -> None:
        self.stored += keys

    def on_l2_keys_accessed(self, keys: list[ObjectKey]) -> None:
        self.accessed += keys

    def on_l2_keys_deleted(self, keys: list[ObjectKey]) -> None:
        self.deleted += keys


def bytes_of(chunk: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(chunk).integers(0, 256, OBJECT, dtype=np.uint8))


@pytest.fixture
def world(tmp_path: pathlib.Path) -> Iterator[World]:
    made = World(tmp_path / "tier")
    yield made
    made.adapter.close()


def test_objects_come_back_and_nothing_else_is_touched(world: World) -> None:
    adapter = world.adapter
    fds = {adapter.get_store_event_fd(), adapter.get_load_event_fd()}
    assert len(fds | {adapter.get_lookup_and_lock_event_fd()}) == 3
    assert world.store([1, 2, 3])
    assert world.finds([3, 9, 1]) == [3, 1]
    before = world.buffer.clone()
    assert world.load([2, 9, 1]) == [2, 1]
    start, end = SLOTS // 2 * OBJECT + 1, (SLOTS // 2 + 3) * OBJECT + 1
    assert torch.equal(world.buffer[:start], before[:start])
    assert torch.equal(world.buffer[end:], before[end:])
    assert [int.from_bytes(key.chunk_hash, "big") for key in world.listener.stored] == [1, 2, 3]
    assert len(world.listener.accessed) == 2


def test_a_restart_finds_everything(world: World) -> None:
    assert world.store(list(range(8)))
    used = world.adapter.get_usage()
    world.reopen()
    assert world.adapter.get_usage().total_bytes_used == used.total_bytes_used == 24 * ROW
    assert world.finds(list(range(9))) == list(range(8))
    assert world.load(list(range(8))) == list(range(8))
    # LMCache hears of what the lookup found.
    assert len(world.listener.stored) == 8


def test_a_flipped_bit_is_a_failed_load(world: World) -> None:
    assert world.store([1, 2])
    world.adapter.close()
    needle = bytes_of(1).numpy().tobytes()[ROW + 100 : ROW + 200]
    flipped = 0
    for path in world.folder.rglob("*"):
        data = bytearray(path.read_bytes()) if path.is_file() else bytearray()
        if (at := data.find(needle)) >= 0:
            data[at] ^= 4
            path.write_bytes(data)
            flipped += 1
    assert flipped == 1
    world.open()
    assert world.load([1, 2]) == [2]
    assert world.finds([1, 2]) == [2]
    assert world.adapter.report_status()["damaged"] == 1
    # Stored again, it is whole again.
    assert world.store([1])
    assert world.load([1, 2]) == [1, 2]


def test_objects_survive_harm_to_files_in_use(world: World) -> None:
    """`load` compares every byte. Harm hits a few records and, at times, the tier's own notes."""
    rng, chunks = random.Random(5), list(range(32))
    for _ in range(6):
        files = sorted(path for path in world.folder.rglob("*") if path.is_file())
        for _ in range(20):
            harm(rng.choice(files), rng)
        some = rng.sample(chunks, 8)
        world.store(some)
        found = world.finds(some)
        loaded = world.load(some)
        world.adapter.submit_unlock([key_of(chunk) for chunk in found])
        assert set(loaded) <= set(found)
    assert world.adapter.report_status()["locked_objects"] == 0
    world.reopen()
    for at in range(0, 32, 8):
        world.load(chunks[at : at + 8])
    for at in range(0, 32, 8):
        until(lambda: world.store(chunks[at : at + 8]))
    until(lambda: not world.adapter._news)
    counted = sum(world.adapter.get_usage().bytes_by_cache_salt.values())
    assert counted == OBJECT * len(world.adapter._resident)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk_stops_nothing(world: World, tmp_path: pathlib.Path) -> None:
    world.adapter.close()
    world.folder = tmp_path / "small"
    world.folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(world.folder)]
    if subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
        world.open()
        pytest.skip("mounts nothing here")
    try:
        # The budget is three times the disk.
        world.open()
        for chunk in range(0, 96, 8):
            world.store(list(range(chunk, chunk + 8)))
            world.load(list(range(chunk, chunk + 8)))
        found = world.finds(list(range(96)))
        assert 4 < len(found) < 96
        world.adapter.close()
    finally:
        subprocess.run(["umount", "-l", str(world.folder)], check=True)


def test_a_removed_folder_is_made_again(world: World) -> None:
    assert world.store([1, 2])
    shutil.rmtree(world.folder)
    until(lambda: world.load([1, 2]) == [] or time.sleep(0.1))
    until(lambda: world.store([3]) or time.sleep(0.1))
    assert world.load([1, 3]) == [3]


def test_the_budget_holds(world: World) -> None:
    for chunk in range(0, 320, 8):
        world.store(list(range(chunk, chunk + 8)))
    files = [path for path in world.folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_blocks * 512 for path in files) <= BUDGET_GIB * (1 << 30)
    usage = world.adapter.get_usage()
    assert 0 < usage.total_bytes_used <= usage.total_capacity_bytes <= BUDGET_GIB * (1 << 30)
    found = world.finds(list(range(320)))
    assert 20 < len(found) < 320
    for at in range(0, len(found), 16):
        assert world.load(found[at : at + 16]) == found[at : at + 16]
    assert len(world.listener.stored) - len(world.listener.deleted) == len(found)
    assert sum(usage.bytes_by_cache_salt.values()) == len(found) * OBJECT


@pytest.mark.parametrize(
    "changes",
    [
        {"model_name": "org/other"},
        {"kv_rank": 0x02010201},
        {"object_group_id": 1},
        {"cache_salt": "tenant"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_each_field_of_a_key_counts(world: World, changes: dict[str, object]) -> None:
    assert world.store([1])
    assert world.load([1], **changes) == []
    assert world.store([1], **changes)
    assert world.load([1], **changes) == [1]


def test_another_data_type_or_length_is_not_found(world: World) -> None:
    assert world.store([1])
    for layout in (layout_of(dtype=torch.float16), layout_of(OBJECT - 4096)):
        task = world.adapter.submit_load_task([key_of(1)], [world.object(3, layout)])
        fd = world.adapter.get_load_event_fd()
        assert world.wait(fd, lambda: world.adapter.query_load_result(task)).popcount() == 0
    world.reopen()
    assert world.finds([1], layout_of(dtype=torch.float16)) == []
    assert world.finds([1]) == [1]


def test_another_revision_finds_nothing(world: World) -> None:
    assert world.store([1])
    world.reopen(revision="2")
    assert world.finds([1]) == [] and world.load([1]) == []
    world.reopen()
    assert world.load([1]) == [1]


def test_a_lookup_without_a_layout_uses_the_last_one(world: World) -> None:
    assert world.store([1])
    assert world.finds([1, 2], MemoryLayoutDesc([], [])) == [1]


def test_locked_objects_outlive_any_number_of_newcomers(world: World) -> None:
    world.reopen(policy="lru")
    capacity = world.adapter.report_status()["capacity_records"] // 3
    chunks = list(range(capacity))
    for chunk in chunks:
        assert world.store([chunk])
    # The oldest ones, which would go first. The first one has two locks.
    held = chunks[:5]
    assert world.finds(held) == held and world.finds(held[:1]) == held[:1]
    assert world.adapter.report_status()["locked_objects"] == 5
    newcomers = iter(range(1000, 100_000))
    flood(world, newcomers, 2 * capacity)
    assert world.load(held) == held
    world.adapter.submit_unlock([key_of(chunk) for chunk in [*held, 77_777]])
    flood(world, newcomers, 2 * capacity)
    assert world.load(held) == held[:1]
    world.adapter.submit_unlock([key_of(held[0])])
    # One unlock too many changes nothing.
    world.adapter.submit_unlock([key_of(held[0])])
    flood(world, newcomers, 2 * capacity)
    assert world.finds(held) == [] and world.load(held) == []
    assert world.adapter.report_status()["locked_objects"] == 0


def flood(world: World, chunks: Iterator[int], count: int) -> None:
    for _ in range(count // 8):
        assert world.store([next(chunks) for _ in range(8)])


def test_a_lock_that_nobody_ends_ends_by_itself(world: World, monkeypatch) -> None:
    world.reopen(policy="lru")
    capacity = world.adapter.report_status()["capacity_records"] // 3
    assert world.store([1, 2])
    now = time.monotonic()
    assert world.finds([1, 2]) == [1, 2]
    newcomers = iter(range(1000, 100_000))
    flood(world, newcomers, 2 * capacity)
    assert world.load([1, 2]) == [1, 2]
    monkeypatch.setattr("headstart.lmcache.adapter.time.monotonic", lambda: now + 61)
    flood(world, newcomers, 2 * capacity)
    assert world.load([1, 2]) == []
    world.adapter.submit_unlock([key_of(1), key_of(2)])


def test_when_all_is_locked_newcomers_are_refused(world: World) -> None:
    capacity = world.adapter.report_status()["capacity_records"] // 3
    for chunk in range(2 * capacity):
        world.store([chunk])
    held = world.finds(list(range(2 * capacity)))
    assert not any(world.store([chunk]) for chunk in range(10_000, 10_000 + capacity // 2))
    for at in range(0, len(held), 16):
        assert world.load(held[at : at + 16]) == held[at : at + 16]
    world.adapter.submit_unlock([key_of(chunk) for chunk in held])
    assert world.store([20_000])


def test_a_deleted_object_is_gone(world: World) -> None:
    chunks = list(range(8))
    assert world.store(chunks)
    assert world.finds([1]) == [1]
    world.adapter.delete([key_of(chunk) for chunk in (1, 2, 3, 99)])
    # Number 1 is locked.
    assert world.finds(chunks) == [0, 1, 4, 5, 6, 7]
    assert world.load(chunks) == [0, 1, 4, 5, 6, 7]
    assert world.adapter.get_usage().total_bytes_used == 6 * 3 * ROW
    until(lambda: {key.chunk_hash[-1] for key in world.listener.deleted} == {2, 3})
    assert sum(world.adapter.get_usage().bytes_by_cache_salt.values()) == 6 * OBJECT
    world.adapter.submit_unlock([key_of(1), key_of(1)])
    world.adapter.delete([key_of(1)])
    assert world.load([1]) == []
    assert world.store([1, 2]) and world.load([1, 2]) == [1, 2]
    # After a restart, too, once something tells the layout.
    world.reopen()
    assert world.load([0]) == [0]
    world.adapter.delete([key_of(4)])
    assert world.load([4, 5]) == [5]


def test_deletes_while_objects_move(world: World) -> None:
    """Every load is whole or fails; what LMCache hears adds up."""
    chunks, stop = list(range(12)), threading.Event()
    keys = [key_of(chunk) for chunk in chunks]

    def delete() -> None:
        while not stop.is_set():
            world.adapter.delete(random.sample(keys, 4))
            time.sleep(0.002)

    thread = threading.Thread(target=delete)
    thread.start()
    for _ in range(20):
        world.store(chunks)
        world.load(chunks)
    stop.set()
    thread.join()
    assert world.store(chunks) and world.load(chunks) == chunks
    until(lambda: len(world.listener.stored) - len(world.listener.deleted) == 12)
    assert sum(world.adapter.get_usage().bytes_by_cache_salt.values()) == 12 * OBJECT


def test_lmcaches_quotas_free_bytes(world: World) -> None:
    state = L2AdapterEvictionState(
        0, world.adapter, EvictionConfig("IsolatedLRU", trigger_watermark=1.0, eviction_ratio=0.5)
    )
    quotas = QuotaManager()
    quotas.set_quota("small", 4 * OBJECT)
    quotas.set_quota("large", 100 * OBJECT)
    assert world.store(list(range(8)), cache_salt="small")
    assert world.store(list(range(8)), cache_salt="large")
    before = world.adapter.get_usage()
    assert dict(before.bytes_by_cache_salt) == {"small": 8 * OBJECT, "large": 8 * OBJECT}
    controller = L2EvictionController([state], quotas)
    for _ in range(2):
        controller._check_and_evict(state)
        until(lambda: not world.adapter._news)
    after = until(lambda: is_small(world.adapter.get_usage()))
    assert after.bytes_by_cache_salt["large"] == 8 * OBJECT
    assert before.total_bytes_used - after.total_bytes_used >= 5 * 3 * ROW
    left = world.finds(list(range(8)), cache_salt="small")
    # LMCache gives up tails first.
    assert left == [0, 1]
    assert len(world.finds(list(range(8)), cache_salt="large")) == 8


def is_small(usage: AdapterUsage) -> AdapterUsage | None:
    return usage if usage.bytes_by_cache_salt.get("small", 0) < 4 * OBJECT else None


def test_the_head_of_a_prompt_outlives_its_tail(world: World) -> None:
    world.reopen(policy="lru")
    capacity = world.adapter.report_status()["capacity_records"] // 3
    prompt = list(range(capacity // 2))
    assert world.finds(prompt) == []
    for chunk in prompt:
        assert world.store([chunk])
    for chunk in range(1000, 1000 + capacity * 3 // 4):
        assert world.store([chunk])
    left = world.finds(prompt)
    assert left == prompt[: len(left)] and 0 < len(left) < len(prompt)


def test_tasks_of_several_threads(world: World) -> None:
    faults: list[BaseException] = []
    gate = threading.Lock()
    world.ended = {}

    def work(lane: int) -> None:
        rng = random.Random(lane)
        try:
            for _ in range(12):
                chunks = rng.sample(range(24), 3)
                slot = 6 * lane
                objects = [world.object(slot + at) for at in range(3)]
                for chunk, memory in zip(chunks, objects):
                    memory.raw_data.copy_(bytes_of(chunk))
                task = world.adapter.submit_store_task([key_of(c) for c in chunks], objects)
                while task not in world.ended:
                    with gate:
                        world.ended.update(world.adapter.pop_completed_store_tasks())
                targets = [world.object(slot + 3 + at) for at in range(3)]
                task = world.adapter.submit_load_task([key_of(c) for c in chunks], targets)
                while (bitmap := world.adapter.query_load_result(task)) is None:
                    pass
                for at in bitmap.get_indices_list():
                    assert torch.equal(targets[at].raw_data, bytes_of(chunks[at]))
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(lane,)) for lane in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert world.load(list(range(8))) == world.finds(list(range(8)))


def test_close_ends_running_tasks_and_leaves_memory_alone(world: World) -> None:
    assert world.store(list(range(16)))
    adapter, objects = world.adapter, [world.object(at) for at in range(16)]
    tasks = [adapter.submit_load_task([key_of(c) for c in range(16)], objects) for _ in range(8)]
    fds = [adapter.get_store_event_fd(), adapter.get_load_event_fd()]
    adapter.close()
    assert all(adapter.query_load_result(task) is not None for task in tasks)
    assert not any(thread.name == "headstart-lmcache" for thread in threading.enumerate())
    for fd in fds:
        with pytest.raises(OSError):
            os.fstat(fd)
    before = world.buffer.clone()
    with pytest.raises(RuntimeError, match="closed"):
        adapter.submit_load_task([key_of(1)], objects[:1])
    adapter.close()
    assert torch.equal(world.buffer, before)
    assert not adapter.report_status()["is_healthy"]


def test_objects_that_no_row_holds_are_refused(world: World, caplog) -> None:
    logging.getLogger("lmcache.headstart").propagate = True
    small, outside = world.object(0, layout_of(ROW // 2)), world.object(1)
    outside.raw_data = torch.zeros(OBJECT, dtype=torch.uint8)
    world.object(2).raw_data.copy_(bytes_of(3))
    keys, objects = [key_of(1), key_of(2), key_of(3)], [small, outside, world.object(2)]
    assert not world.stored(world.adapter.submit_store_task(keys, objects))
    assert world.load([1, 2, 3]) == [3]
    assert "row_kib" in caplog.text


def test_a_listener_that_fails_stops_no_task(world: World) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a listener's fault")

    world.listener.on_l2_keys_stored = fail
    assert world.store([1]) and world.store([2])
    assert world.load([1, 2]) == [1, 2]


def test_wrong_options_are_named(world: World) -> None:
    world.adapter.close()
    for options, text in [
        ({"foldr": "x"}, "foldr"),
        ({"row_kib": 1 << 20}, "larger than the L1"),
        ({"row_kib": 2048}, "too large for `budget_gib`"),
        ({"policy": "none-such"}, "none-such"),
    ]:
        with pytest.raises(ValueError, match=text):
            world.open(**options)
    from headstart.lmcache.adapter import HeadstartL2Adapter

    with pytest.raises(ValueError, match="folder"):
        HeadstartL2Adapter({"budget_gib": 1}, None)
    with pytest.raises(ValueError, match="host memory"):
        HeadstartL2Adapter({"folder": "x", "budget_gib": 1}, None)
    world.open()


@pytest.mark.parametrize("use_lazy", [False, True])
def test_objects_of_lmcaches_own_allocator(tmp_path: pathlib.Path, use_lazy: bool) -> None:
    size = 16 << 20
    manager = L1MemoryManager(L1MemoryManagerConfig(size, use_lazy, size, shm_name=""))
    layout = layout_of(192 * 1024)
    given = {"folder": str(tmp_path), "budget_gib": BUDGET_GIB, "row_kib": ROW_KIB}
    config = PluginL2AdapterConfig("headstart.lmcache.adapter", "HeadstartL2Adapter", given)
    adapter = create_l2_adapter(config, l1_memory_desc=manager.get_l1_memory_desc())
    world = World.__new__(World)
    world.adapter = adapter
    _, objects = manager.allocate(layout, 4)
    for at, memory in enumerate(objects[:2]):
        memory.tensor.fill_(at + 1)
    keys = [key_of(1), key_of(2)]
    assert world.stored(adapter.submit_store_task(keys, objects[:2]))
    assert world.finds([1, 2], layout) == [1, 2]
    task = adapter.submit_load_task(keys, objects[2:])
    bitmap = world.wait(adapter.get_load_event_fd(), lambda: adapter.query_load_result(task))
    assert bitmap.popcount() == 2
    assert all(torch.equal(a.raw_data, b.raw_data) for a, b in zip(objects, objects[2:]))
    adapter.close()
    manager.free(objects)
    manager.close()


def until(condition: Callable[[], object]) -> object:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return found


def test_lmcaches_storage_manager_stores_and_prefetches(tmp_path: pathlib.Path) -> None:
    given = {"folder": str(tmp_path), "budget_gib": BUDGET_GIB, "row_kib": ROW_KIB}
    plugin = PluginL2AdapterConfig("headstart.lmcache.adapter", "HeadstartL2Adapter", given)
    size = 16 << 20
    config = StorageManagerConfig(
        L1ManagerConfig(L1MemoryManagerConfig(size, False, size, shm_name="")),
        EvictionConfig("LRU"),
        L2AdaptersConfig([plugin]),
    )
    layout = layout_of(192 * 1024)
    keys = [key_of(chunk) for chunk in range(6)]
    for is_again in (False, True):
        # The second manager finds what the first one left on the disk.
        manager = StorageManager(config)
        [(_, adapter)] = manager.l2_adapters()
        if not is_again:
            for key, memory in manager.reserve_write(keys[:5], layout).items():
                memory.tensor.fill_(key.chunk_hash[-1] + 1)
            manager.finish_write(keys[:5])
            until(lambda: adapter.get_usage().total_bytes_used == 5 * 192 * 1024)
            until(lambda: not adapter.report_status()["tasks_running"])
            manager.clear(force=True)
        row = GroupedObjectKeys(keys, 0, layout, -1)
        handle = manager.submit_prefetch_task(PrefetchTaskSpec([row]))
        result = until(lambda: manager.query_prefetch_status(handle))
        assert result.l2_hit_cells[0].get_indices_list() == [0, 1, 2, 3, 4]
        with manager.read_prefetched_results(keys[:5]) as objects:
            for at, memory in enumerate(objects):
                assert torch.all(memory.tensor == at + 1)
        manager.finish_read_prefetched(keys[:5])
        manager.close()


def test_parts_cover_an_object_and_stay_inside() -> None:
    for size in (ROW, ROW + 1, 2 * ROW - 1, 2 * ROW, 5 * ROW + 7):
        offsets = offsets_of(size, ROW)
        covered = {byte for start in offsets for byte in (start, start + ROW - 1)}
        assert min(covered) == 0 and max(covered) == size - 1
        assert all(b - a <= ROW for a, b in zip(offsets, offsets[1:]))
        assert len(set(keys_of(bytes(16), len(offsets)))) == len(offsets) == -(-size // ROW)
    assert offsets_of(ROW - 1, ROW) == []
    assert offsets_of(ROW, ROW) == [0]
