"""A small engine around vLLM's own scheduler of the OffloadingConnector, on its unpacked parts.

`Engine` does what vLLM's core does with the connector: it admits requests, allocates device blocks,
computes prompts in chunks, preempts, aborts and resets. It is the worker, too: a job copies blocks
to or from the rows of the shared region when it ends, and jobs end late and out of order.
`Ledger` is between the scheduler and the manager, and checks each call. There is no torch here;
`stand_ins` replaces the few functions of the engine that the parts call.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import pathlib
import random
import sys
import time
import types
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import engine_parts

BLOCK_TOKENS = 16
ROW_BYTES = 4096
DEVICE_BLOCKS = 96
CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.offloading"
MODULES = {
    "base": "vllm.v1.kv_offload.base",
    "config": "vllm.v1.kv_offload.config",
    "factory": "vllm.v1.kv_offload.factory",
    "policies": "vllm.v1.kv_offload.cpu.policies.base",
    "tiers": "vllm.v1.kv_offload.tiering.base",
    "common": f"{CONNECTOR}.common",
    "scheduler": f"{CONNECTOR}.scheduler",
    "offload": "headstart.vllm.offload",
    "manager": "headstart.vllm.manager",
    "worker": "headstart.vllm.worker",
    "policy": "headstart.vllm.policy",
    "tier": "headstart.vllm.tier",
}


@contextlib.contextmanager
def imported(parts: pathlib.Path) -> Iterator[types.SimpleNamespace]:
    """The modules of one version, until the end of the block."""
    with engine_parts.imported(parts):
        # Of this package, the connector is among the parts.
        sys.modules["vllm.distributed"].__path__ = [str(parts / "vllm" / "distributed")]
        stand_ins()
        yield types.SimpleNamespace(
            **{name: importlib.import_module(path) for name, path in MODULES.items()}
        )


class Tensor:
    """The part of `torch.Tensor` that the shared region uses on the scheduler's side."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def view(self, *shape: int) -> Tensor:
        return Tensor(self._array.reshape(shape))

    def numpy(self) -> np.ndarray:
        return self._array

    def data_ptr(self) -> int:
        return self._array.ctypes.data


@dataclasses.dataclass
class Stats:
    """The base of vLLM's statistics of connectors."""

    data: dict[str, Any] = dataclasses.field(default_factory=dict)


def stand_ins() -> None:
    """Fills the stubs of `engine_parts.imported` where the parts call them."""
    module = importlib.import_module
    module("torch").frombuffer = lambda buffer, dtype: Tensor(np.frombuffer(buffer, dtype=np.int8))
    module("vllm.distributed.kv_transfer.kv_connector.utils").yield_req_data = request_blocks
    module("vllm.distributed.kv_transfer.kv_connector.v1.metrics").KVConnectorStats = Stats
    module("vllm.v1.request").RequestStatus = types.SimpleNamespace(FINISHED_ABORTED="aborted")
    interface = module("vllm.v1.kv_cache_interface")
    full = types.SimpleNamespace(value="full_attention")
    interface.get_kv_cache_spec_kind = lambda spec: full
    interface.get_kv_cache_spec_sliding_window = lambda spec: None
    # Each block of full attention is worth a store.
    manager = types.SimpleNamespace(reachable_block_mask=lambda **arguments: None)
    registry = types.SimpleNamespace(get_manager_class=lambda spec: manager)
    module("vllm.v1.kv_cache_spec_registry").KVCacheSpecRegistry = registry


def request_blocks(output: Any) -> Iterator[tuple[str, tuple[list[int], ...] | None, bool]]:
    """Yields request, block ids, and whether they are all that it has; as in vLLM's `utils`."""
    for new in output.scheduled_new_reqs:
        yield new.req_id, new.block_ids, True
    cached = output.scheduled_cached_reqs
    resumed = [req_id in cached.resumed_req_ids for req_id in cached.req_ids]
    yield from zip(cached.req_ids, cached.new_block_ids, resumed)


def made(kind: type, **values: Any) -> Any:
    """An instance of a dataclass; fields without a value here and there become 1, () or False."""
    fills = {"int": 1, "tuple[str, ...]": (), "bool": False, "int | None": None}
    for item in dataclasses.fields(kind):
        has_default = item.default is not dataclasses.MISSING
        if item.name in ("rank", "group_id", "data_parallel_index"):
            values.setdefault(item.name, 0)
        elif item.name not in values and not has_default:
            name = item.type if isinstance(item.type, str) else getattr(item.type, "__name__", "")
            values[item.name] = fills.get(name, fills.get(str(item.type)))
    names = {item.name for item in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in values.items() if name in names})


def offloading_config(config: types.ModuleType, extra: dict[str, Any], **options: Any) -> Any:
    """What vLLM makes for an engine with one worker. Unknown fields are left out."""
    extra = {"spec_name": "HeadstartOffload", "spec_module_path": "headstart.vllm.offload"} | extra
    blocks = options.pop("blocks_per_chunk", 1)
    values = {
        "groups": (made(config.OffloadingGroupConfig, tokens_per_block=BLOCK_TOKENS),),
        "worker_kv_bytes_per_block": ROW_BYTES,
        "enable_kv_cache_events": False,
        "extra_config": extra,
        "engine_id": uuid.uuid4().hex,
        "model": made(config.OffloadingModelConfig, name="tiny", dtype="bfloat16"),
        "cache": made(
            config.OffloadingCacheConfig, tokens_per_hash=BLOCK_TOKENS, blocks_per_chunk=blocks
        ),
        "parallel": made(config.OffloadingParallelConfig, world_size=1),
    }
    return made(config.OffloadingConfig, **(values | options))


class Ledger:
    """A manager that checks what vLLM's scheduler and the manager below it do with blocks."""

    def __init__(self, manager: Any, results: Any) -> None:
        self._manager, self._results = manager, results
        self.running: set[str] = set()
        self.pins: Counter[bytes] = Counter()
        self.storing: set[bytes] = set()
        self.resident: dict[str, set[bytes]] = {"CPU": set(), "STORAGE": set()}
        self.keys: set[bytes] = set()
        self.counts: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def on_new_request(self, context: Any) -> Any:
        assert context.req_id not in self.running
        self.running.add(context.req_id)
        return self._manager.on_new_request(context)

    def on_request_finished(self, context: Any) -> None:
        self.running.remove(context.req_id)
        self._manager.on_request_finished(context)

    def lookup(self, key: bytes, context: Any) -> Any:
        self.keys.add(key)
        result = self._manager.lookup(key, context)
        self.counts[result.name] += 1
        if key in self.storing:
            assert result is self._results.HIT_PENDING, "its store has not ended"
        return result

    def touch(self, keys: Iterable[bytes], context: Any) -> None:
        self.counts["touch"] += 1
        self._manager.touch(keys, context)

    def prepare_load(self, keys: list[bytes], context: Any) -> Any:
        for key in keys:
            found = self._manager.primary_tier.lookup(key, context)
            assert found is self._results.HIT and key not in self.storing, "it is not complete"
        self.pins.update(keys)
        self.counts["load"] += len(keys)
        return self._manager.prepare_load(keys, context)

    def complete_load(self, keys: Iterable[bytes], context: Any) -> None:
        self.pins.subtract(keys)
        assert min(self.pins.values(), default=0) >= 0
        self._manager.complete_load(keys, context)

    def prepare_store(self, keys: list[bytes], context: Any) -> Any:
        self.keys.update(keys)
        output = self._manager.prepare_store(keys, context)
        if output is None:
            self.counts["full"] += 1
            return None
        assert set(output.keys_to_store) <= set(keys)
        assert self.storing.isdisjoint(output.keys_to_store)
        assert self.storing.isdisjoint(output.evicted_keys), "a row is written"
        assert not any(self.pins[key] for key in output.evicted_keys), "a row is read"
        self.storing.update(output.keys_to_store)
        self.counts["store"] += len(output.keys_to_store)
        self.counts["evict"] += len(output.evicted_keys)
        return output

    def complete_store(self, keys: set[bytes], context: Any, *success: bool) -> None:
        assert self.storing.issuperset(keys)
        self.storing.difference_update(keys)
        self._manager.complete_store(keys, context, *success)

    def take_events(self) -> Iterator[Any]:
        for event in self._manager.take_events():
            resident = self.resident[event.medium.name]
            resident.difference_update(event.keys) if event.removed else resident.update(event.keys)
            yield event

    def reset_cache(self) -> None:
        self._manager.reset_cache()
        # vLLM tells of a reset by another event.
        list(self.take_events())
        self.resident["CPU"].clear()
        self.pins.clear()
        self.storing.clear()
        self.counts["reset"] += 1


class Request:
    """vLLM's request, as far as the connector reads it. `chain` names its blocks."""

    def __init__(self, name: str, chain: list[int]) -> None:
        self.request_id = name
        self.block_hashes = [block.to_bytes(16, "big") * 2 for block in chain]
        self.num_prompt_tokens = self.num_tokens = len(chain) * BLOCK_TOKENS + 5
        self.all_token_ids = [0] * self.num_tokens
        self.num_computed_tokens = 0
        self.kv_transfer_params = self.kv_hints = self.lora_request = None
        self.shared_prefix_boundary = None
        self.skip_reading_prefix_cache = False
        self.status = "running"
        self.blocks: list[int] = []
        self.num_local = 0
        self.was_preempted = False

    def is_finished(self) -> bool:
        return self.status in ("finished", "aborted")


class Engine:
    """The core of an engine with one worker; see the module."""

    def __init__(self, vllm: types.SimpleNamespace, spec: Any, seed: int) -> None:
        self.vllm, self.spec, self.rng = vllm, spec, random.Random(seed)
        self.scheduler = self._scheduler()
        self.ledger = Ledger(self.scheduler.manager, vllm.base.LookupResult)
        self.scheduler.manager = self.ledger
        # vLLM's block 0 is the null block.
        self.free = list(range(1, DEVICE_BLOCKS))
        self.device: dict[int, bytes] = {}
        self.allocated: list[tuple[list[int], list[bytes]]] = []
        """Blocks of this step's new owners, and the names of those that the device had."""
        self.waiting: list[Request] = []
        self.loading: dict[str, Request] = {}
        self.loaded: list[Request] = []
        self.running: list[Request] = []
        self.preempted: list[str] = []
        self.finished: list[str] = []
        self.pace = 0.4
        """The part of the jobs that ends in a step."""
        self.jobs: dict[int, Any] = {}
        self.copied: set[int] = set()
        self.computed: list[list[tuple[int, int]]] = []
        """Tokens before, and computed ones in whole blocks, of each request of each step."""

    def _scheduler(self) -> Any:
        space = types.SimpleNamespace
        attention = importlib.import_module("vllm.v1.kv_cache_interface").FullAttentionSpec()
        attention.page_size_bytes = ROW_BYTES
        group = space(kv_cache_spec=attention, is_eagle_group=False, layer_names=("layer",))
        return self.vllm.scheduler.OffloadingConnectorScheduler(
            self.spec,
            space(
                cache_config=space(
                    prefix_cache_retention_interval=None, enable_prefix_caching=True
                ),
                speculative_config=None,
                parallel_config=space(decode_context_parallel_size=1, world_size=1),
            ),
            space(kv_cache_groups=[group], cache_hit_alignment_tokens=None),
        )

    def add(self, request: Request, num_local: int | None = None) -> None:
        """Queues a request. `num_local`: blocks in the device's prefix cache; `None`: some."""
        some = self.rng.choice([0, 0, 1, min(3, len(request.block_hashes) - 1)])
        request.num_local = some if num_local is None else num_local
        self.scheduler.on_new_request(request)
        self.waiting.append(request)

    def step(self) -> None:
        """Schedules, computes, ends some of the jobs, and reports them."""
        started = self._admit()
        tokens = {request.request_id: self._num_tokens(request) for request in self.running}
        new = [request for request in started if not request.was_preempted]
        resumed = [request for request in started if request.was_preempted]
        cached = [request for request in self.running if request not in new]
        space = types.SimpleNamespace
        output = space(
            scheduled_new_reqs=[space(req_id=r.request_id, block_ids=(r.blocks,)) for r in new],
            scheduled_cached_reqs=space(
                req_ids=[request.request_id for request in cached],
                new_block_ids=[(r.blocks,) if r in resumed else None for r in cached],
                resumed_req_ids={request.request_id for request in resumed},
            ),
            num_scheduled_tokens=tokens,
            preempted_req_ids=set(self.preempted),
            finished_req_ids=set(self.finished),
            kv_cache_block_copies=None,
            kv_connector_block_state=None,
        )
        self.preempted, self.finished = [], []
        meta = self.scheduler.build_connector_meta(output)
        self._start(meta)
        self._compute(tokens)
        self._report()

    def _admit(self) -> list[Request]:
        """Moves requests from the queue to device memory. Returns those that begin to compute."""
        started, self.loaded = self.loaded, []
        # vLLM admits none in a step that preempts.
        for request in [] if self.preempted else list(self.waiting):
            if len(self.free) < len(request.block_hashes) + 1 or len(self.running) > 4:
                break
            num_local = request.num_local * BLOCK_TOKENS
            hit, is_async = self.scheduler.get_num_new_matched_tokens(request, num_local)
            if hit is None:
                continue
            self._allocate(request, hit)
            self.waiting.remove(request)
            request.num_computed_tokens = num_local + hit
            if is_async:
                self.loading[request.request_id] = request
            else:
                started.append(request)
        self.running += started
        return started

    def _allocate(self, request: Request, hit: int) -> None:
        self.rng.shuffle(self.free)
        request.blocks = [self.free.pop() for _ in range(len(request.block_hashes) + 1)]
        self.allocated.append((request.blocks, request.block_hashes[: request.num_local]))
        names = request.block_hashes[: request.num_local] + [None] * len(request.blocks)
        blocks = [
            types.SimpleNamespace(block_id=block, is_null=False, block_hash=name)
            for block, name in zip(request.blocks, names)
        ]
        self.scheduler.update_state_after_alloc(
            request, types.SimpleNamespace(blocks=(blocks,)), hit
        )

    def _num_tokens(self, request: Request) -> int:
        chunk = self.rng.randint(1, 6) * BLOCK_TOKENS
        return min(chunk, request.num_tokens - request.num_computed_tokens)

    def _start(self, meta: Any) -> None:
        """Ends the jobs whose device blocks have a new owner, before the step computes."""
        self.jobs |= meta.store_jobs
        for job in sorted(meta.jobs_to_flush or ()):
            self._copy(job)
        for blocks, names in self.allocated:
            for block in blocks:
                self.device.pop(block, None)
            self.device.update(zip(blocks, names))
        self.allocated = []
        self.jobs |= meta.load_jobs

    def _copy(self, job: int) -> None:
        """Copies the blocks of a job. Those of a load must be the blocks that were asked for."""
        if job in self.copied or job not in self.jobs:
            return
        self.copied.add(job)
        transfer = self.jobs[job]
        is_store = isinstance(transfer.src_spec, self.vllm.base.GPULoadStoreSpec)
        device, host = transfer.src_spec, transfer.dst_spec
        if not is_store:
            device, host = host, device
        rows = np.asarray(self.ledger.primary_tier.get_kv_memoryview()).view(np.uint8)
        for block, row in zip(device.block_ids.tolist(), host.block_ids.tolist(), strict=True):
            if is_store:
                content = np.frombuffer(self.device[block], dtype=np.uint8)
                rows[row] = np.tile(content, ROW_BYTES // len(content))
            else:
                name = rows[row][:32].tobytes()
                assert rows[row].tobytes() == name * (ROW_BYTES // 32), "a row is torn"
                self.device[block] = name

    def _compute(self, tokens: dict[str, int]) -> None:
        entries = []
        for request in list(self.running):
            before = request.num_computed_tokens
            request.num_computed_tokens = after = before + tokens[request.request_id]
            first, last = before // BLOCK_TOKENS, min(after // BLOCK_TOKENS, len(request.blocks))
            for block, name in zip(request.blocks[:first], request.block_hashes):
                assert self.device[block] == name, "another prompt's block was loaded"
            self.device.update(zip(request.blocks[first:last], request.block_hashes[first:last]))
            if last > first:
                entries.append((first * BLOCK_TOKENS, (last - first) * BLOCK_TOKENS))
            if after == request.num_tokens:
                self.end(request, "finished")
        self.computed.append(entries)

    def end(self, request: Request, status: str) -> None:
        request.status = status
        self.running.remove(request)
        self.free += request.blocks
        self.finished.append(request.request_id)
        assert self.scheduler.request_finished(request) == (False, None)

    def preempt(self, request: Request) -> None:
        self.running.remove(request)
        self.free += request.blocks
        request.num_computed_tokens, request.was_preempted = 0, True
        self.preempted.append(request.request_id)
        self.waiting.insert(0, request)

    def reset(self) -> None:
        """A reset of the caches. The worker has copied all that it was told."""
        for job in self.jobs:
            self._copy(job)
        self.scheduler.reset_cache()

    def _report(self) -> None:
        """Ends some jobs, in any order, and tells the scheduler."""
        done = [job for job in self.jobs if job in self.copied or self.rng.random() < self.pace]
        self.rng.shuffle(done)
        for job in done:
            self._copy(job)
            transfer = self.jobs.pop(job)
            self.copied.discard(job)
            if not isinstance(transfer.src_spec, self.vllm.base.GPULoadStoreSpec):
                self.loaded.append(self.loading.pop(transfer.req_id))
        meta = self.vllm.common.OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(done, 1))
        self.scheduler.update_connector_output(
            types.SimpleNamespace(kv_connector_worker_meta=meta)
        )
        list(self.scheduler.take_events())
        self.scheduler.get_stats()

    def drain(self) -> None:
        """Steps until nothing is left to do."""
        deadline = time.monotonic() + 20
        while self._is_busy() or self.scheduler.has_pending_push_work():
            assert time.monotonic() < deadline, "the engine does not come to rest"
            self.step()
            time.sleep(0.001)
        self.step()

    def _is_busy(self) -> bool:
        requests = self.waiting or self.loading or self.loaded or self.running
        return bool(requests or self.finished or self.jobs)
