"""`HeadstartOffload` and its manager behind vLLM's own factory and scheduler, without torch.

Each version whose parts are there; offload_engine.py has the engine around them. test_offload.py
has the worker's copies, which need torch.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pathlib
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import engine_parts
from test_policy import conversations

np = pytest.importorskip("numpy", reason="needs numpy")
pytest.importorskip("headstart._native", reason="the wheel is not built")

import offload_engine  # noqa: E402
from offload_engine import ROW_BYTES, Engine, Request  # noqa: E402

ROWS = 48
DISK = {"type": "HeadstartTier", "module_path": "headstart.vllm.tier", "revision": "1"}
POLICY = {
    "eviction_policy": "headstart-hazard",
    "cache_policy_module_path": "headstart.vllm.policy",
}


@pytest.fixture
def vllm(parts: pathlib.Path) -> Iterator[types.SimpleNamespace]:
    """The modules of one version."""
    with offload_engine.imported(parts) as modules:
        yield modules


Make = Callable[..., Any]


@pytest.fixture
def make(vllm, tmp_path: pathlib.Path) -> Iterator[Make]:
    """Makes specs with vLLM's factory, and shuts them down. No file of theirs may stay."""
    specs = []

    def made(tiers: list[dict[str, Any]] | None = None, **extra: Any) -> Any:
        extra = {"cpu_bytes_to_use": ROWS * ROW_BYTES} | extra
        if tiers is not None:
            place = {"folder": str(tmp_path / "tier"), "budget_gib": 16 / 1024}
            extra["secondary_tiers"] = [DISK | place | tier for tier in tiers]
        options = {"enable_kv_cache_events": True}
        config = offload_engine.offloading_config(vllm.config, extra, **options)
        specs.append(vllm.factory.OffloadingSpecFactory.create_spec(config))
        return specs[-1]

    yield made
    for spec in specs:
        if spec._manager is not None:
            spec._manager.shutdown()
        assert files_of(spec) == []


def files_of(spec: Any) -> list[pathlib.Path]:
    return list(pathlib.Path("/dev/shm").glob(f"vllm_offload_{spec.config.engine_id}*"))


def assert_accepts(ours: Callable, theirs: Callable, *, skip: int = 0) -> None:
    """Asserts that `ours` takes each call that `theirs` takes; `skip`: the `self` of a class."""
    names = list(inspect.signature(theirs).parameters.values())[skip:]
    names = [item for item in names if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)]
    bind = inspect.signature(ours).bind
    this = [object()] * skip
    for wanted in (names, [item for item in names if item.default is item.empty]):
        bind(*this, **{item.name: None for item in wanted})
        plain = [item for item in wanted if item.kind is not item.KEYWORD_ONLY]
        named = {item.name: None for item in wanted if item.kind is item.KEYWORD_ONLY}
        bind(*this, *plain, **named)


def public(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("offload.HeadstartOffload", "base.OffloadingSpec"),
        ("worker.HeadstartWorker", "base.OffloadingWorker"),
        ("tier.HeadstartTier", "tiers.SecondaryTierManager"),
        ("policy.HeadstartPolicy", "policies.CachePolicy"),
    ],
)
def test_each_class_takes_the_calls_of_its_interface(vllm, ours: str, theirs: str) -> None:
    one, other = (
        getattr(getattr(vllm, module), name)
        for module, name in (ours.split("."), theirs.split("."))
    )
    assert issubclass(one, other)
    assert not one.__abstractmethods__
    for name in public(other):
        method = inspect.getattr_static(other, name)
        if inspect.isfunction(method):
            assert_accepts(getattr(one, name), method, skip=1)
        elif callable(getattr(other, name)):
            assert_accepts(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("tiers", [None, [{}]], ids=["cpu", "disk"])
def test_the_manager_takes_the_calls_of_its_interface(vllm, make: Make, tiers) -> None:
    manager = make(tiers).get_manager()
    assert isinstance(manager, vllm.manager.HeadstartManager) == (tiers is not None)
    interface = vllm.base.OffloadingManager
    for name in public(interface):
        theirs = inspect.getattr_static(interface, name)
        ours = getattr(manager, name)
        if inspect.isfunction(theirs):
            assert_accepts(ours, theirs.__get__(object()))
            assert ours.__func__ is not theirs or name not in interface.__abstractmethods__


def test_the_manager_replaces_only_methods_that_vllm_calls(vllm) -> None:
    ours = vars(vllm.manager.HeadstartManager)
    names = {name for name in ours if not name.startswith("_")}
    assert names <= set(dir(vllm.base.OffloadingManager))


def test_vllms_factory_makes_the_spec(vllm, make: Make) -> None:
    spec = make([{}])
    assert type(spec) is vllm.offload.HeadstartOffload
    assert spec.num_chunks == ROWS
    assert spec.get_manager() is spec.get_manager()
    kind = vllm.factory.OffloadingSpecFactory.get_spec_cls(spec.extra_config)
    assert kind is type(spec)
    assert kind.build_metric_definitions(spec.extra_config)
    if hasattr(kind, "config_info_keys"):
        keys = set(kind.config_info_keys(spec.extra_config))
        assert all(set(info) <= keys for info in spec.get_manager().config_info())


def test_the_managers_lock_is_the_one_of_vllms_manager(vllm, make: Make) -> None:
    if not vllm.manager.STORES_FIRST:
        pytest.skip("before 0.33 vLLM's manager has no lock")
    manager = make([{}]).get_manager()
    with manager.lock:
        assert not manager._manager.lock.acquire(blocking=False)


def churn(engine: Engine, requests: int, *, preempts: bool, resets: bool) -> None:
    """Serves conversations, and aborts some of them."""
    rng = engine.rng
    for number, chain in enumerate(conversations(rng.randrange(1000), requests)):
        engine.add(Request(f"request-{number}", chain))
        for _ in range(rng.randint(0, 4)):
            engine.step()
            running = [request for request in engine.running if request.num_computed_tokens]
            if preempts and running and rng.random() < 0.1:
                engine.preempt(rng.choice(running))
            elif running and rng.random() < 0.1:
                engine.end(rng.choice(running), "aborted")
        if resets and number % 20 == 9:
            engine.reset()
        if number % 8 == 7:
            # The disk is slower than this engine.
            engine.drain()
    engine.drain()


def assert_at_rest(engine: Engine) -> None:
    """Nothing is pinned, nothing is remembered of requests, and events told all."""
    ledger, vllm = engine.ledger, engine.vllm
    assert not ledger.running and not ledger.storing
    assert not any(ledger.pins.values())
    assert not ledger.has_pending_work()
    hit = vllm.base.LookupResult.HIT
    context = vllm.base.ReqContext("last")
    primary = ledger.primary_tier
    assert ledger.resident["CPU"] == {
        key for key in ledger.keys if primary.lookup(key, context) is hit
    }
    manager = engine.spec.get_manager()
    if isinstance(manager, vllm.manager.HeadstartManager):
        assert not manager._requests
        tier = manager._tier
        assert not tier._plans and not tier._chains._running
        assert ledger.resident["STORAGE"] == {key for key in ledger.keys if tier._tier.lookup(key)}
    # A new request can have each row, so no row is in use.
    ledger.on_new_request(context)
    keys = [vllm.base.make_offload_key(bytes([255, at]) * 16, 0) for at in range(ROWS)]
    output = ledger.prepare_store(keys, context)
    assert output is not None and len(output.keys_to_store) == ROWS
    ledger.complete_store(set(keys), context, False)
    ledger.on_request_finished(context)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tiers", [None, [{}]], ids=["cpu", "disk"])
@pytest.mark.parametrize("policy", [{}, POLICY], ids=["lru", "hazard"])
def test_a_schedule_of_vllms_scheduler_loses_no_block(vllm, make: Make, policy, tiers, seed):
    spec = make(tiers, **policy)
    engine = Engine(vllm, spec, seed)
    seen = []
    if tiers:
        # Without speeds, all that the disk has is loaded.
        spec.get_manager()._tier.observe_step = lambda entries, seconds: seen.append(entries)
    churn(engine, 60, preempts=seed > 0, resets=seed == 2)
    counts = engine.ledger.counts
    assert min(counts[name] for name in ("load", "store", "evict", "HIT", "MISS")) > 0, counts
    assert (counts["HIT_PENDING"] > 0) and (counts["reset"] > 0) == (seed == 2)
    assert_at_rest(engine)
    # 0.30 does not tell the order of a request's blocks. What is computed again is not always told.
    if tiers and seed == 0 and hasattr(vllm.base.ReqContext, "set_offload_key_position"):
        expected = [sorted(entries) for entries in engine.computed if entries]
        assert [sorted(entries) for entries in seen] == expected


def test_a_request_that_evicts_its_own_blocks_computes_the_rest(vllm, make: Make) -> None:
    spec = make([{}])
    engine = Engine(vllm, spec, seed=1)
    tier = spec.get_manager()._tier
    tier.observe_step = lambda entries, seconds: None
    submit, fetched = tier.submit_load, []
    tier.submit_load = lambda job, *more: (fetched.extend(job.keys), submit(job, *more))
    long, short = list(range(1, 32)), Request("short", list(range(101, 121)))
    for number, chain in enumerate((long, list(range(201, 241)))):
        engine.add(Request(f"before-{number}", chain), num_local=0)
        engine.drain()
    # While its stores run, the short prompt's rows stay; then its use is later than the long one's.
    engine.pace = 0
    engine.add(short, num_local=0)
    while not short.is_finished():
        engine.step()
    engine.add(Request("long", long), num_local=0)
    engine.step()
    engine.pace = 0.4
    engine.drain()
    assert 0 < len(fetched) <= vllm.manager.FETCHES_MAX * len(long)
    assert_at_rest(engine)


def test_a_disk_outlives_the_manager(vllm, make: Make) -> None:
    chain = list(range(1, 20))
    for name in ("one", "two"):
        engine = Engine(vllm, make([{}]), seed=1)
        engine.add(Request(name, chain))
        engine.drain()
        assert (engine.ledger.counts["load"] > 0) == (name == "two")
        assert_at_rest(engine)
        engine.scheduler.shutdown()


def test_the_scheduler_removes_the_name_of_the_region(vllm, make: Make) -> None:
    spec = make()
    module = importlib.import_module("vllm.v1.kv_offload.cpu.shared_offload_region")
    worker = module.SharedOffloadRegion(spec.config.engine_id, ROWS, 0, ROW_BYTES, ROW_BYTES)
    assert len(files_of(spec)) == 1
    rows = spec.get_manager().primary_tier.get_kv_memoryview()
    assert files_of(spec) == [], "all have mapped it, and none has shut down"
    np.asarray(rows)[3, 7] = 42
    assert worker._base.numpy()[3 * ROW_BYTES + 7] == 42
    worker._creator = False
    worker.cleanup()


@pytest.mark.parametrize(
    ("tier", "name"),
    [
        ({"folder": None}, "folder"),
        ({"budget_gib": None}, "budget_gib"),
        ({"budget_gib": 0}, "budget_gib"),
        ({"budget_gib": "100"}, "budget_gib"),
        ({"budget_gib": True}, "budget_gib"),
        ({"url": "s3://bucket/prefix"}, "not both"),
        ({"folder": "s3://bucket/prefix"}, "`url` in its place"),
        ({"folder": ""}, "folder"),
        ({"folder": "/proc/none"}, "folder"),
        ({"folder": None, "url": "bucket/prefix"}, "url"),
        ({"colour": "red"}, "colour"),
        ({"revision": None}, "revision"),
        ({"policy": "none"}, "unknown policy `none`"),
        ({"type": None}, "type"),
        ({"type": "HeadstartTear", "module_path": None}, "HeadstartTear"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_tier_fails_at_the_start_and_names_the_option(make: Make, tier, name) -> None:
    spec = make([tier])
    # An operator leaves an option out, and does not write `null`.
    for config in spec.secondary_tier_configs:
        for option in [option for option, value in tier.items() if value is None]:
            del config[option]
    with pytest.raises((ValueError, TypeError, OSError), match=name):
        spec.get_manager()
    assert files_of(spec) == []
    right = make([{}])
    right.get_manager()


@pytest.mark.parametrize(
    ("extra", "name"),
    [
        ({"cpu_bytes_to_use": 0}, "cpu_bytes_to_use"),
        ({"cpu_bytes_to_use": ROW_BYTES - 1}, "cpu_bytes_to_use has no room"),
        ({"secondary_tiers": {}}, "secondary_tiers"),
        ({"store_threshold": 2}, "store_threshold"),
        ({"eviction_policy": "most"}, "most"),
        (POLICY | {"eviction_policy": "headstart-none"}, "unknown policy `none`"),
        ({"spec_name": "HeadstartOnload"}, "HeadstartOnload"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_option_of_the_spec_fails_at_the_start_and_is_named(make: Make, extra, name):
    # vLLM raises a plain `Exception` for one of them.
    with pytest.raises(Exception, match=name):
        make(**extra).get_manager()


def test_vllms_own_specs_are_as_without_headstart(vllm) -> None:
    """The import changes no module and no class of vLLM, and registers nothing."""
    for name in [name for name in sys.modules if name.startswith("headstart.vllm")]:
        del sys.modules[name]
    modules = {name: module for name, module in sys.modules.items() if name.startswith("vllm.")}
    before = {name: described(module) for name, module in modules.items()}
    for name in ("offload", "manager", "policy", "tier", "worker"):
        importlib.import_module(f"headstart.vllm.{name}")
    for name, module in modules.items():
        assert described(module) == before[name], name
    extra = {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": ROWS * ROW_BYTES}
    config = offload_engine.offloading_config(vllm.config, extra)
    manager = vllm.factory.OffloadingSpecFactory.create_spec(config).get_manager()
    assert type(manager).__module__ == "vllm.v1.kv_offload.tiering.manager"
    manager.shutdown()


def described(module: types.ModuleType) -> dict[str, Any]:
    """The names of a module and of its classes, with what each one is. Stubs grow names."""
    kinds = {name: it for name, it in vars(module).items() if isinstance(it, type)}
    names = {} if isinstance(module, engine_parts._Stub) else vars(module).copy()
    for kind_name, kind in kinds.items():
        for name, it in vars(kind).items():
            # Written by `abc` as it likes.
            if not name.startswith("_abc"):
                names[f"{kind_name}.{name}"] = id(it) if callable(it) else repr(it)
    names.pop("__warningregistry__", None)
    return {name: it if isinstance(it, (int, str)) else id(it) for name, it in names.items()}


def test_the_package_imports_neither_vllm_nor_torch() -> None:
    code = (
        "import sys; sys.modules['vllm'] = sys.modules['torch'] = None\n"
        "import headstart, headstart.vllm; print('fine')"
    )
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout == "fine\n", done.stderr
