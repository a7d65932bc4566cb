"""`HeadstartStorage` behind SGLang's factory, on SGLang's own host pools.

Needs torch, the other packages that SGLang imports, and its parts:
`tools/engines/unpack.py target/engines sglang==0.5.23`. No GPU: its kernels are a stub.
"""

from __future__ import annotations

import array
import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import pathlib
import queue
import random
import shutil
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator

import pytest

import engine_parts
from file_harm import harm
from test_policy import conversations

np = pytest.importorskip("numpy", reason="needs numpy")
headstart_native = pytest.importorskip("headstart._native", reason="the wheel is not built")

VERSIONS = engine_parts.versions("sglang")
PAGE = 16
PAGES = 48
LAYERS, HEADS, WIDTH = 2, 2, 32
PAGE_BYTES = 2 * PAGE * LAYERS * HEADS * WIDTH * 2
BUDGET_GIB = 16 / 1024
MODULES = {
    "storage": "mem_cache.hicache_storage",
    "factory": "mem_cache.storage.backend_factory",
    "buffers": "mem_cache.device_pool_info",
    "mha": "mem_cache.pool_host.mha",
    "mla": "mem_cache.pool_host.mla",
    "mamba": "mem_cache.pool_host.mamba",
    "cache": "mem_cache.base_prefix_cache",
    "radix": "mem_cache.radix_cache",
    "controller": "managers.cache_controller",
}


class _Anything:
    """What a stub module has under each name."""

    def __call__(self, *args: object, **kwargs: object) -> None:
        return None

    def __getattr__(self, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


class _Stub(types.ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> _Anything:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything()


class _Kernels:
    """Finds a stub for SGLang's compiled kernels."""

    def find_spec(self, name: str, path: object = None, target: object = None):
        if name.split(".")[0] == "sgl_kernel":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


@pytest.fixture(scope="module", params=VERSIONS or [None], ids=lambda it: it.name if it else "none")
def sglang(request: pytest.FixtureRequest) -> Iterator[types.SimpleNamespace]:
    """The modules of one version."""
    if request.param is None:
        pytest.skip("no parts of SGLang: tools/engines/unpack.py target/engines sglang==0.5.23")
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch")
    os.environ["SGLANG_USE_CPU_ENGINE"] = "1"
    sys.path.insert(0, str(request.param))
    sys.meta_path.append(kernels := _Kernels())
    try:
        found = {name: importlib.import_module(f"sglang.srt.{it}") for name, it in MODULES.items()}
    except ModuleNotFoundError as error:
        pytest.skip(f"SGLang does not import: {error}")
    else:
        yield types.SimpleNamespace(torch=importlib.import_module("torch"), **found)
    finally:
        sys.meta_path.remove(kernels)
        sys.path.remove(str(request.param))


def kv_pool(sglang: types.SimpleNamespace, layout: str, pages: int = PAGES):
    """One of SGLang's host pools for keys and values."""
    torch = sglang.torch
    device = [torch.zeros((PAGE, HEADS, WIDTH), dtype=torch.bfloat16) for _ in range(2 * LAYERS)]
    pointers = torch.tensor([it.data_ptr() for it in device], dtype=torch.uint64)
    buffers = sglang.buffers.KVBuffers(
        k=tuple(device[:LAYERS]),
        v=tuple(device[LAYERS:]),
        k_data_ptrs=pointers[:LAYERS],
        v_data_ptrs=pointers[LAYERS:],
        layout=sglang.buffers.KVBufferLayout.NHD,
    )
    info = sglang.buffers.MHABufferInfo(
        buffers=buffers,
        page_size=PAGE,
        head_num=HEADS,
        head_dim=WIDTH,
        v_head_dim=WIDTH,
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
    )
    return sglang.mha.MHATokenToKVPoolHost(
        info,
        1.0,
        0,
        PAGE,
        layout,
        pin_memory=False,
        device_capacity_tokens=PAGE,
        start_layer=0,
        end_layer=LAYERS,
        host_token_capacity=pages * PAGE,
    )


def mla_pool(sglang: types.SimpleNamespace, layout: str):
    """One of SGLang's host pools for latent vectors: a page is one run."""
    torch = sglang.torch
    device = tuple(torch.zeros((PAGE, 1, 96), dtype=torch.bfloat16) for _ in range(LAYERS))
    info = sglang.buffers.MLABufferInfo(
        buffers=device,
        data_ptrs=torch.tensor([it.data_ptr() for it in device], dtype=torch.uint64),
        layer_indices=tuple(range(LAYERS)),
        device_layer_num=LAYERS,
        page_size=PAGE,
        kv_lora_rank=64,
        qk_rope_head_dim=32,
        kv_cache_dim=96,
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
    )
    return sglang.mla.MLATokenToKVPoolHost(
        info,
        1.0,
        0,
        PAGE,
        layout,
        pin_memory=False,
        device_capacity_tokens=PAGE,
        start_layer=0,
        end_layer=LAYERS,
        target_layer_num=LAYERS,
        host_token_capacity=PAGES * PAGE,
    )


def mamba_pool(sglang: types.SimpleNamespace):
    """One of SGLang's host pools for states: a page is one slot, in two tensors of two types."""
    torch = sglang.torch
    info = sglang.buffers.MambaStateBufferInfo(
        temporal=torch.zeros((LAYERS, 4, 8, 64), dtype=torch.float32),
        conv=(torch.zeros((LAYERS, 4, 3, 64), dtype=torch.bfloat16),),
    )
    return sglang.mamba.MambaPoolHost(
        info, 4.0, 0, layout="page_first", pin_memory=False, device_capacity=4
    )


def key(page: int) -> str:
    return page.to_bytes(4, "big").hex() * 8


def keys(*pages: int) -> list[str]:
    return [key(page) for page in pages]


class World:
    """A storage behind the factory, and the pools above it."""

    def __init__(self, sglang: types.SimpleNamespace, tmp_path: pathlib.Path, layout: str) -> None:
        self.sglang, self.torch = sglang, sglang.torch
        self.folder, self.model = tmp_path / "tier", tmp_path / "model"
        self.model.mkdir()
        (self.model / "model.safetensors").write_bytes(b"weights")
        self.layout = layout
        self.kv, self.mamba = kv_pool(sglang, layout), mamba_pool(sglang)
        self.open()

    def config(self, options: dict[str, object], **changes: object):
        given = {
            "backend_name": "headstart",
            "module_path": "headstart.sglang.storage",
            "class_name": "HeadstartStorage",
            "interface_v1": 1,
            "folder": str(self.folder),
            "budget_gib": BUDGET_GIB,
        }
        ranks = {"tp": (0, 2), "pp": (0, 1), "attn_cp": (0, 1)}
        fields = {f"{kind}_rank": rank for kind, (rank, _) in ranks.items()}
        fields |= {f"{kind}_size": size for kind, (_, size) in ranks.items()}
        fields |= {
            "is_mla_model": False,
            "enable_storage_metrics": True,
            "is_page_first_layout": self.layout == "page_first",
            "model_name": str(self.model),
            "extra_config": given | options,
        }
        return self.sglang.storage.HiCacheStorageConfig(**(fields | changes))

    def open(self, options: dict[str, object] | None = None, **changes: object) -> None:
        config = self.config(options or {}, **changes)
        factory = self.sglang.factory.StorageBackendFactory
        self.storage = factory.create_backend("dynamic", config, self.kv)
        self.storage.register_mem_pool_host(self.kv)
        self.storage.register_mem_host_pool_v2(self.kv, self.sglang.storage.PoolName.KV)
        self.storage.register_mem_host_pool_v2(self.mamba, self.sglang.storage.PoolName.MAMBA)
        self.storage.on_host_pools_registered()

    def reopen(self, options: dict[str, object] | None = None, **changes: object) -> None:
        self.storage.close()
        self.open(options, **changes)

    def extra(self, *pages: int):
        return self.sglang.storage.HiCacheStorageExtraInfo(prefix_keys=keys(*pages))

    def fill(self, pool: object, slot: int, page: int) -> None:
        rng = np.random.default_rng(page)
        like = pool.get_dummy_flat_data_page()
        data = rng.integers(0, 256, like.nbytes, dtype=np.uint8)
        pool.set_from_flat_data_page(slot, self.torch.from_numpy(data).view(like.dtype))

    def holds(self, pool: object, slot: int, page: int) -> bool:
        data = pool.get_data_page(slot).contiguous().view(self.torch.uint8).numpy()
        expected = np.random.default_rng(page).integers(0, 256, data.nbytes, dtype=np.uint8)
        return np.array_equal(data, expected)

    def slots(self, rows: list[int]):
        return self.torch.tensor([row * PAGE + at for row in rows for at in range(PAGE)])

    def store(self, *pages: int, first: int = 0, before: tuple[int, ...] = ()) -> list[bool]:
        rows = list(range(first, first + len(pages)))
        for row, page in zip(rows, pages):
            self.fill(self.kv, row * PAGE, page)
        info = self.extra(*before)
        return self.storage.batch_set_v1(keys(*pages), self.slots(rows), info)

    def load(self, *pages: int, first: int = 16) -> list[bool]:
        """Loads pages; asserts that each page that is said to be loaded has its bytes."""
        rows = list(range(first, first + len(pages)))
        for row in rows:
            self.fill(self.kv, row * PAGE, 999_999)
        loaded = self.storage.batch_get_v1(keys(*pages), self.slots(rows), self.extra())
        for row, page, is_loaded in zip(rows, pages, loaded):
            assert not is_loaded or self.holds(self.kv, row * PAGE, page), page
        return loaded

    def transfer(self, pool: str, pages: tuple[int, ...], slots: object, policy: str = "all_pages"):
        storage = self.sglang.storage
        return storage.PoolTransfer(
            name=storage.PoolName(pool),
            keys=keys(*pages),
            host_indices=slots,
            hit_policy=storage.PoolHitPolicy(policy),
        )


@pytest.fixture(params=["page_first", "page_first_direct", "layer_first"])
def world(sglang, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[World]:
    made = World(sglang, tmp_path, request.param)
    yield made
    made.storage.close()


@pytest.fixture
def direct(sglang, tmp_path: pathlib.Path) -> Iterator[World]:
    made = World(sglang, tmp_path, "page_first")
    yield made
    made.storage.close()


def test_pages_come_back_also_after_a_restart(world: World) -> None:
    assert world.store(1, 2, 3) == [True] * 3
    assert world.store(4, 5, before=(1, 2, 3)) == [True] * 2
    assert world.load(5, 1, 9, 3) == [True, True, False, True]
    assert world.storage.batch_exists(keys(1, 2, 3, 4, 5, 6), world.extra()) == 5
    assert world.storage.batch_exists(keys(9, 1)) == 0
    assert world.storage.exists(key(2)) and not world.storage.exists(key(9))
    world.reopen()
    assert world.storage.batch_exists(keys(1, 2, 3, 4, 5, 6)) == 5
    assert world.load(1, 2, 3, 4, 5) == [True] * 5
    # What is there is not written again.
    assert world.store(1, 2) == [True] * 2
    assert world.storage.counts()["kv"]["stored"] == 0


def test_records_are_the_pool_s_own_memory_where_a_page_is_dense(world: World) -> None:
    kind = type(world.storage._tiers["kv"]._memory).__name__
    assert kind == ("StagedRows" if world.layout == "layer_first" else "DirectRows")
    assert world.storage._tiers["kv"].page_bytes == PAGE_BYTES
    world.reopen({"interface_v1": 0})
    assert type(world.storage._tiers["kv"]._memory).__name__ == "StagedRows"


def test_latent_vectors_come_back_too(world: World) -> None:
    world.storage.close()
    world.kv = mla_pool(world.sglang, world.layout)
    world.open(is_mla_model=True, tp_rank=0, tp_size=1)
    # Two layers are two runs.
    pieces = LAYERS if world.layout == "layer_first" else 1
    assert world.storage._tiers["kv"]._memory.pieces == pieces
    assert world.store(1, 2, 3) == [True] * 3
    world.reopen(is_mla_model=True, tp_rank=0, tp_size=1)
    assert world.load(3, 9, 2, 1) == [True, False, True, True]


@pytest.mark.parametrize("interface", [0, 1])
def test_flat_pages_go_through_the_generic_interface(world: World, interface: int) -> None:
    world.reopen({"interface_v1": interface})
    free = world.kv.available_size()
    values = []
    for page in (1, 2, 3):
        world.fill(world.kv, 0, page)
        values.append(world.kv.get_data_page(0).clone())
    assert world.storage.batch_set(keys(1, 2, 3), values)
    assert world.storage.set(key(1), values[0])
    targets = [world.kv.get_dummy_flat_data_page() for _ in range(4)]
    got = world.storage.batch_get(keys(1, 9, 3, 2), targets)
    assert got[1] is None
    got[1] = world.storage.get(key(2))
    # Random bytes are not always numbers, and what is no number equals nothing.
    got, values = ([page.view(world.torch.uint8) for page in pages] for pages in (got, values))
    assert all(world.torch.equal(page, values[of]) for page, of in zip(got, (0, 1, 2, 1)))
    assert world.storage.get(key(9)) is None
    assert world.kv.available_size() == free


def test_other_weights_ranks_and_shapes_find_nothing(world: World) -> None:
    world.store(1)
    weights = world.model / "model.safetensors"
    weights.write_bytes(b"Weights")
    world.reopen()
    assert not world.storage.exists(key(1))
    weights.write_bytes(b"weights")
    for change in (
        {"tp_rank": 1},
        {"tp_size": 4},
        {"pp_rank": 1, "pp_size": 2},
        {"attn_cp_rank": 1, "attn_cp_size": 2},
        {"model_name": str(world.model) + "/."},
        {"options": {"revision": "another"}},
    ):
        world.reopen(**change)
        assert not world.storage.exists(key(1)), change
        assert world.load(1) == [False]
    for fact, other in (("dtype", world.torch.float16), ("layout", "other"), ("start_layer", 2)):
        before = getattr(world.kv, fact)
        setattr(world.kv, fact, other)
        with contextlib.suppress(ValueError):
            world.reopen()
            assert not world.storage.exists(key(1)), fact
        setattr(world.kv, fact, before)
    world.reopen()
    assert world.load(1) == [True]


def test_two_ranks_keep_their_pages_apart_at_once(world: World) -> None:
    world.store(1)
    first, world.storage = world.storage, None
    world.open(tp_rank=1)
    assert world.load(1) == [False]
    assert world.store(1) == [True]
    first.close()


def test_flipped_bits_are_misses(world: World) -> None:
    pages = range(1, 13)
    world.store(*pages)
    world.storage.close()
    rng = random.Random(4)
    flipped = 0
    for path in sorted(world.folder.glob("kv-*/**/*")):
        if not path.is_file() or path.stat().st_size <= PAGE_BYTES:
            continue
        data = bytearray(path.read_bytes())
        used = np.flatnonzero(np.frombuffer(data, dtype=np.uint8)).tolist()
        flipped += len(used) > 8 * PAGE_BYTES
        for at in rng.sample(used, min(20, len(used))):
            data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    assert flipped == 1
    world.open()
    # `load` compares every byte.
    loaded = [world.load(page)[0] for page in pages]
    assert not all(loaded)
    assert world.store(*pages) == [True] * 12
    assert world.load(*pages) == [True] * 12


def test_a_page_with_one_good_half_is_a_miss(direct: World) -> None:
    direct.store(1, 2, 3)
    direct.storage.close()
    data = np.random.default_rng(2).integers(0, 256, PAGE_BYTES, dtype=np.uint8)
    # The values of page 2.
    needle = data.tobytes()[-64:]
    for path in direct.folder.glob("kv-*/**/*"):
        found = path.read_bytes() if path.is_file() else b""
        if (at := found.find(needle)) >= 0:
            path.write_bytes(found[:at] + b"!" + found[at + 1 :])
    direct.open()
    assert direct.storage._tiers["kv"]._memory.pieces == 2
    assert direct.load(1, 2, 3) == [True, False, True]
    assert direct.storage.batch_exists(keys(1, 2, 3)) == 1
    assert direct.storage.counts()["kv"]["damaged"] == 1
    assert direct.store(2) == [True] and direct.load(2) == [True]


def test_pages_survive_harm_to_files_in_use(world: World) -> None:
    """`load` compares every byte."""
    rng = random.Random(6)
    for _ in range(6):
        files = sorted(path for path in world.folder.rglob("*") if path.is_file())
        for _ in range(20):
            harm(rng.choice(files), rng)
        pages = rng.sample(range(100), 12)
        world.store(*pages)
        world.load(*pages)
    world.reopen()
    world.load(*range(16))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk_stops_nothing(direct: World, tmp_path: pathlib.Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)]
    if subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("mounts nothing here")
    try:
        # The budget is four times the disk.
        direct.reopen({"folder": str(small)})
        for first in range(0, 480, 16):
            direct.store(*range(first, first + 16))
            direct.load(*range(first, first + 16))
        left = [page for page in range(480) if direct.storage.exists(key(page))]
        assert 16 < len(left) < 480
        direct.storage.clear()
        assert direct.store(1, 2) == [True] * 2 == direct.load(1, 2)
        direct.storage.close()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_the_budget_holds_and_heads_stay(world: World) -> None:
    capacity = world.storage._tiers["kv"].capacity
    assert 60 < capacity < 4096
    before: tuple[int, ...] = ()
    chain = range(1, capacity + 41)
    for first in range(0, len(chain), 20):
        part = tuple(chain[first : first + 20])
        if not all(world.store(*part, before=before)):
            # SGLang leaves the rest of a prompt out.
            break
        before = part
    size = sum(path.stat().st_blocks * 512 for path in world.folder.rglob("*") if path.is_file())
    assert size <= BUDGET_GIB * (1 << 30)
    # A prompt longer than the disk keeps its head.
    found = world.storage._tiers["kv"].found([key(page) for page in chain])
    assert found[:capacity] == [True] * capacity and not any(found[capacity:])
    # Others evict it from its tail.
    for first in range(10_000, 10_000 + 40, 20):
        assert all(world.store(*range(first, first + 20)))
    found = world.storage._tiers["kv"].found([key(page) for page in chain])
    assert found.index(False) >= capacity - 41 and not any(found[capacity - 20 :])
    counts = world.storage.counts()["kv"]
    assert counts["evicted"] > 0 and counts["declined"] > 0 and counts["damaged"] == 0


def test_a_second_pool_has_pages_of_its_own(world: World) -> None:
    torch, name = world.torch, world.sglang.storage.PoolName
    world.store(1, 2, 3, 4)
    for slot, page in ((0, 2), (1, 4)):
        world.fill(world.mamba, slot, 100 + page)
    transfer = world.transfer("mamba", (2, 4), torch.tensor([0, 1]), "trailing_pages")
    assert world.storage.batch_set_v2([transfer], world.extra(1)) == {name.MAMBA: [True, True]}

    def hit(*pages: int, window: int = 1, policy: str = "trailing_pages"):
        asked = world.transfer("mamba", pages[-window:], None, policy)
        return world.storage.batch_exists_v2(keys(*pages), [asked], world.extra())

    found = hit(1, 2, 3, 4, 5)
    assert (found.kv_hit_pages, found.restorable_prefix_pages) == (4, [2, 4])
    assert found.extra_pool_hit_pages == {name.KV: 4, name.MAMBA: 4}
    assert hit(1, 2, 3).kv_hit_pages == 2
    assert hit(1, 2, 3, 4, window=2).restorable_prefix_pages == []
    assert hit(2, 1, policy="all_pages").restorable_prefix_pages == [1]
    assert hit(1, 2, 3, policy="block_groups").kv_hit_pages == 3
    assert world.storage.batch_exists_v2(keys(1, 2, 9)).kv_hit_pages == 2
    world.reopen()
    asked = [
        world.transfer("mamba", (4, 3), torch.tensor([5, 6])),
        world.transfer("kv", (1,), world.slots([20])),
        world.transfer("swa", (1,), world.slots([21])),
        world.transfer("mamba", (4,), torch.tensor([5, 6])),
    ]
    got = world.storage.batch_get_v2(asked[:3])
    assert got == {name.MAMBA: [True, False], name.KV: [True], name.SWA: [False]}
    assert world.holds(world.mamba, 5, 104) and world.holds(world.kv, 20 * PAGE, 1)
    assert world.storage.batch_get_v2(asked[3:]) == {name.MAMBA: [False]}


def test_a_table_gives_each_pool_its_budget(direct: World) -> None:
    direct.reopen({"budget_gib": {"kv": BUDGET_GIB}})
    assert "mamba" not in direct.storage._tiers
    slots = direct.torch.tensor([0])
    asked = direct.transfer("mamba", (1,), slots)
    assert list(direct.storage.batch_set_v2([asked]).values()) == [[False]]
    direct.reopen({"budget_gib": {"kv": BUDGET_GIB, "mamba": BUDGET_GIB / 2}})
    assert list(direct.storage.batch_set_v2([asked]).values()) == [[True]]


def test_clear_removes_everything_and_goes_on(world: World) -> None:
    world.store(1, 2)
    world.storage.clear()
    assert world.load(1, 2) == [False] * 2
    assert world.store(1) == [True]
    world.reopen()
    assert world.storage.batch_exists(keys(1, 2)) == 1


def test_clear_makes_a_removed_folder_again(world: World) -> None:
    world.store(1)
    shutil.rmtree(world.folder)
    world.storage.clear()
    assert world.load(1) == [False]
    assert world.store(1) == [True] == world.load(1)


def test_clear_leaves_a_successor_alone(direct: World) -> None:
    direct.store(1)
    first = direct.storage
    direct.reopen()
    first.clear()
    assert first.batch_exists(keys(1)) == 0
    assert direct.load(1) == [True] and direct.store(2) == [True]


def test_clear_that_fails_finds_nothing(direct: World, monkeypatch: pytest.MonkeyPatch) -> None:
    direct.store(1)

    def fail(*_: object, **__: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr("headstart.sglang.pool.shutil.rmtree", fail)
    direct.storage.clear()
    assert direct.load(1) == [False] and not direct.storage.exists(key(1))


@pytest.mark.parametrize("end", ["close", "clear"])
def test_the_end_comes_while_calls_run(world: World, end: str) -> None:
    pages, failures = range(12), []
    world.store(*pages)
    began = threading.Barrier(5)

    def work(thread: int) -> None:
        rows = list(range(12 + 9 * thread, 21 + 9 * thread))
        began.wait()
        try:
            for _ in range(30):
                for row in rows:
                    world.fill(world.kv, row * PAGE, 999_999)
                loaded = world.storage.batch_get_v1(keys(*pages[:9]), world.slots(rows))
                for row, page, is_loaded in zip(rows, pages, loaded):
                    if is_loaded and not world.holds(world.kv, row * PAGE, page):
                        failures.append(page)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(it,)) for it in range(4)]
    for thread in threads:
        thread.start()
    began.wait()
    time.sleep(0.02)
    getattr(world.storage, end)()
    for thread in threads:
        thread.join(60)
    assert failures == [] and not any(thread.is_alive() for thread in threads)
    assert world.load(1) == [False]
    assert world.storage._tiers["kv"]._ended == {}


def test_calls_after_the_end_are_misses(world: World) -> None:
    world.store(1)
    world.storage.close()
    assert world.load(1) == [False]
    assert world.store(2) == [False]
    assert not world.storage.exists(key(1))


def test_a_tier_that_hangs_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.store(1)
    monkeypatch.setattr("headstart.sglang.pool.WAIT_S", -1.0)
    assert world.load(1, 1, 1, 1) == [False] * 4
    monkeypatch.undo()
    assert world.store(2) == [False]
    assert not world.storage.exists(key(1))
    world.reopen()
    assert world.load(1) == [True]


def test_threads_call_at_once(world: World) -> None:
    failures: list[object] = []

    def work(thread: int) -> None:
        # Each thread has six pages of the pool; keys overlap between threads.
        rng = random.Random(thread)
        rows = list(range(6 * thread, 6 * thread + 6))
        for _ in range(25):
            pages = rng.sample(range(30), 3)
            for row, page in zip(rows[:3], pages):
                world.fill(world.kv, row * PAGE, page)
            storage = world.storage
            if not all(storage.batch_set_v1(keys(*pages), world.slots(rows[:3]))):
                failures.append("store")
            storage.batch_exists(keys(*pages))
            if not all(storage.batch_get_v1(keys(*pages), world.slots(rows[3:]))):
                failures.append("load")
            for row, page in zip(rows[3:], pages):
                if not world.holds(world.kv, row * PAGE, page):
                    failures.append(page)

    threads = [threading.Thread(target=work, args=(it,)) for it in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)
    assert world.storage._tiers["kv"]._ended == {}


def test_stats_are_sglang_s(direct: World) -> None:
    direct.store(1, 2)
    direct.load(1, 2, 3)
    stats = direct.storage.get_stats()
    assert (stats.backup_pgs, stats.prefetch_pgs) == ([2], [2])
    assert stats.backup_bandwidth[0] > 0 and stats.prefetch_bandwidth[0] > 0
    assert direct.storage.get_stats().backup_pgs == []


@pytest.mark.parametrize("interface", [0, 1])
def test_sglang_s_controller_backs_up_and_prefetches(world: World, interface: int) -> None:
    """The functions of its threads, with more pages than a batch has."""
    module = world.sglang.controller
    pages = 130
    world.storage.close()
    world.kv = kv_pool(world.sglang, world.layout, 3 * pages)
    world.open({"interface_v1": interface})
    made = object.__new__(module.HiCacheController)
    made.storage_backend, made.storage_host_pool = world.storage, world.kv
    made.mem_pool_host, made.page_size = world.kv, PAGE
    made.page_get_func, made.page_set_func = made._generic_page_get, made._generic_page_set
    if interface:
        made.page_get_func, made.page_set_func = made._page_get_zero_copy, made._page_set_zero_copy
    made.prefetch_sync_queue = queue.Queue()
    names, first = keys(*range(pages)), world.slots(list(range(pages)))
    for page in range(pages):
        world.fill(world.kv, page * PAGE, page)
    backup = module.StorageOperation(first, [], hash_value=names, prefix_keys=[])
    made._page_backup(backup)
    assert backup.completed_tokens == pages * PAGE
    # The last page is not there.
    fetch = module.PrefetchOperation("request", [], prefix_keys=[])
    fetch.hash_value = [*names[:-1], key(pages)]
    fetch.host_indices = world.slots(list(range(pages, 2 * pages)))
    assert made._page_transfer(fetch) == pages - 1
    assert all(world.holds(world.kv, (pages + at) * PAGE, at) for at in range(pages - 1))


def test_what_cannot_work_fails_at_the_start(direct: World, tmp_path: pathlib.Path) -> None:
    first = direct.storage
    with pytest.raises(OSError, match="in use|another"):
        direct.open()
    first.close()
    for options, match in (
        ({"colour": "red"}, "no option colour"),
        ({"budget_gib": 0}, "no budget"),
        ({"budget_gib": {"mamba": 1}}, "no budget"),
        ({"policy": "nonsense"}, "nonsense"),
    ):
        with pytest.raises(ValueError, match=match):
            direct.reopen(options)
    with pytest.raises(ValueError, match="revision"):
        direct.reopen(model_name="absent")
    with pytest.raises(ValueError, match="MLA"):
        direct.reopen(is_mla_model=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        direct.reopen({"folder": str(tmp_path / "file")})


class RadixTree:
    """SGLang's prefix cache with its policy `lru`, one request at a time; a block is a token.

    SGLang evicts whole nodes. With `pages` each block has a node of its own.
    """

    device = "cpu"

    def __init__(self, sglang: types.SimpleNamespace, capacity: int, pages: bool) -> None:
        self.sglang, self.capacity, self.pages = sglang, capacity, pages
        self.tree = sglang.radix.RadixCache.create_simulated(mock_allocator=self)

    def free_segment(self, value: object, start_pos: int) -> None:
        """What is evicted; the tree counts it itself."""

    def serve(self, chain: list[int]) -> int:
        tree, cache, torch = self.tree, self.sglang.cache, self.sglang.torch
        key = lambda end: self.sglang.radix.RadixKey(array.array("q", chain[:end]))
        found = tree.match_prefix(cache.MatchPrefixParams(key=key(len(chain))))
        hits = found.device_prefix_len
        tree.inc_lock_ref(found.last_device_node)
        free = self.capacity - tree.evictable_size() - tree.protected_size()
        if len(chain) - hits > free:
            tree.evict(cache.EvictParams(num_tokens=len(chain) - hits - free))
        tree.dec_lock_ref(found.last_device_node)
        for end in range(hits + 1, len(chain) + 1) if self.pages else [len(chain)]:
            tree.insert(cache.InsertParams(key=key(end), value=torch.arange(end)))
        assert tree.total_size() <= self.capacity
        return hits


@pytest.mark.parametrize(("seed", "capacity"), [(1, 64), (2, 128), (3, 400)])
def test_lru_is_sglang_s_but_for_whole_nodes(sglang, seed: int, capacity: int) -> None:
    """SGLang gives up whole nodes, and so more than it needs."""
    trees = [RadixTree(sglang, capacity, pages) for pages in (True, False)]
    ours = headstart_native.PrefixCache("lru", capacity=capacity, block_tokens=1)
    whole = 0
    for number, chain in enumerate(conversations(seed, 400)):
        use = headstart_native.Use(number)
        hits = ours.serve(chain, use, step=len(chain))
        assert trees[0].serve(chain) == hits, number
        whole += trees[1].serve(chain)
    assert 0.93 * ours.hits < whole < ours.hits
