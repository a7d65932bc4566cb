"""`HeadstartOffload` and its worker against vLLM's own manager, region and job descriptions.

vLLM 0.30 to 0.33. No engine runs here; bench/engines/offload.py starts one.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("vllm.v1.kv_offload", reason="needs vllm")
from vllm.v1.kv_offload import base, config  # noqa: E402
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec  # noqa: E402
from vllm.v1.kv_offload.factory import OffloadingSpecFactory  # noqa: E402

import offload_engine  # noqa: E402
from headstart.vllm import worker as worker_module  # noqa: E402
from headstart.vllm.copies import Finish, Limits  # noqa: E402
from headstart.vllm.offload import HeadstartOffload  # noqa: E402
from headstart.vllm.worker import Groups, HeadstartWorker, group_pairs  # noqa: E402

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
NUM_BLOCKS = 24
PAGES = (1024, 512, 512)
"""Bytes of a block in each tensor."""
PAGE_BYTES = 4096


def offloading_config(blocks_per_chunk: int = 1, **options) -> config.OffloadingConfig:
    """What vLLM would make for an engine with one worker."""
    extra = {"cpu_bytes_to_use": options.pop("cpu_bytes_to_use", 16 * PAGE_BYTES)}
    values = {"worker_kv_bytes_per_block": sum(PAGES), "blocks_per_chunk": blocks_per_chunk}
    return offload_engine.offloading_config(config, extra, **(values | options))


def caches_of(
    device: str = "cpu", groups: tuple[tuple[int, ...], ...] = ((0, 1, 2),)
) -> base.CanonicalKVCaches:
    """Tensors of random bytes; `groups` lists the tensors of each KV cache group."""
    tensors = [
        torch.randint(-128, 128, (NUM_BLOCKS, size), dtype=torch.int8).to(device) for size in PAGES
    ]
    return base.CanonicalKVCaches(
        tensors=[
            base.CanonicalKVCacheTensor(tensor=tensor, page_size_bytes=tensor.shape[1])
            for tensor in tensors
        ],
        group_data_refs=[
            [base.CanonicalKVCacheRef(tensor_idx=i, page_size_bytes=PAGES[i]) for i in group]
            for group in groups
        ],
    )


def content(caches: base.CanonicalKVCaches, block: int, tensors=range(len(PAGES))) -> list[bytes]:
    return [caches.tensors[i].tensor[block].cpu().numpy().tobytes() for i in tensors]


def device_side(blocks: list[int], sizes=None, first=None) -> base.GPULoadStoreSpec:
    return base.GPULoadStoreSpec(
        blocks, group_sizes=sizes or [len(blocks)], block_indices=first or [0]
    )


def files_of(spec: HeadstartOffload) -> list[Path]:
    return list(Path("/dev/shm").glob(f"vllm_offload_{spec.config.engine_id}*"))


def finished(worker: HeadstartWorker, jobs: set[int]) -> dict[int, base.TransferResult]:
    """The results of jobs, each of which is reported once."""
    worker.wait(jobs)
    results = worker.get_finished()
    assert sorted(result.job_id for result in results) == sorted(jobs)
    assert all(result.success for result in results)
    assert worker.get_finished() == []
    return {result.job_id: result for result in results}


@pytest.fixture
def specs() -> Iterator[list[HeadstartOffload]]:
    """Specs to shut down after the test. No file of theirs may stay."""
    found: list[HeadstartOffload] = []
    yield found
    for spec in found:
        if spec._worker is not None:
            spec._worker.shutdown()
        if spec._manager is not None:
            spec._manager.shutdown()
        assert files_of(spec) == []


def made_spec(specs: list[HeadstartOffload], *args, **options) -> HeadstartOffload:
    specs.append(HeadstartOffload(offloading_config(*args, **options)))
    return specs[-1]


def test_vllm_finds_the_spec_by_name(specs):
    spec = OffloadingSpecFactory.create_spec(offloading_config())
    specs.append(spec)
    assert type(spec) is HeadstartOffload
    assert spec.num_chunks == 16
    assert HeadstartOffload.build_metric_definitions(spec.extra_config)


@pytest.mark.parametrize("device", DEVICES)
def test_blocks_return_through_vllms_manager(specs, device):
    spec = made_spec(specs)
    caches = caches_of(device)
    worker, manager = spec.get_worker(caches), spec.get_manager()
    assert spec.get_worker(caches) is worker
    context = base.ReqContext(req_id="first")
    manager.on_new_request(context)
    keys = [base.make_offload_key(bytes([i]) * 32, 0) for i in range(4)]
    blocks = [7, 3, 20, 11]
    stored = manager.prepare_store(keys, context)
    assert worker.submit_store(0, device_side(blocks), stored.store_spec)
    result = finished(worker, {0})[0]
    assert result.transfer_size == 4 * sum(PAGES)
    assert result.transfer_time >= 0
    manager.complete_store(keys, context)
    assert all(manager.lookup(key, context) is base.LookupResult.HIT for key in keys)

    before = [content(caches, block) for block in blocks]
    rows = manager.primary_tier.get_kv_memoryview()
    for pages, chunk in zip(before, stored.store_spec.block_ids):
        row = np.asarray(rows)[chunk].tobytes()
        assert row[: sum(PAGES)] == b"".join(pages), "a row has the tensors in vLLM's order"

    targets = [1, 2, 22, 5]
    loaded = manager.prepare_load(keys, context)
    assert worker.submit_load(1, loaded, device_side(targets))
    finished(worker, {1})
    manager.complete_load(keys, context)
    assert [content(caches, block) for block in targets] == before
    manager.on_request_finished(context)
    del rows


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [2, 3])
def test_chunks_of_several_blocks(specs, device, size):
    spec = made_spec(specs, size, cpu_bytes_to_use=12 * 2 * PAGE_BYTES)
    caches = caches_of(device)
    worker = spec.get_worker(caches)
    blocks = random.Random(size).sample(range(1, NUM_BLOCKS), 3 * size)
    before = [content(caches, block) for block in blocks]
    chunks = CPULoadStoreSpec([5, 0, 9])
    assert worker.submit_store(0, device_side(blocks), chunks)
    finished(worker, {0})
    for skipped in range(size):
        for missing in range(size):
            wanted = before[skipped : len(blocks) - missing]
            targets = list(range(1, 1 + len(wanted)))
            for cache in caches.tensors:
                cache.tensor.zero_()
            side = device_side(targets, first=[4 * size + skipped])
            assert worker.submit_load(1, chunks, side)
            finished(worker, {1})
            assert [content(caches, block) for block in targets] == wanted
            assert content(caches, 0) == [bytes(page) for page in PAGES]


@pytest.mark.parametrize("groups", [((0, 1, 2), (0, 1, 2)), ((0,), (1, 2)), ((0, 2), (2, 0), (1,))])
def test_groups(specs, groups):
    spec = made_spec(specs, 2, cpu_bytes_to_use=40 * PAGE_BYTES)
    caches = caches_of(groups=groups)
    worker = spec.get_worker(caches)
    blocks = [4, 9, 1, 2, 3, 12, 13][: 2 * len(groups)]
    sizes = [2] * len(groups)
    chunks = CPULoadStoreSpec(list(range(3, 3 + len(groups))))
    before = [content(caches, b, groups[i // 2]) for i, b in enumerate(blocks)]
    assert worker.submit_store(0, device_side(blocks, sizes, [0] * len(groups)), chunks)
    finished(worker, {0})
    for cache in caches.tensors:
        cache.tensor.zero_()
    # The first group is not in this job; of the others, only the second block.
    targets = [15 + i for i in range(len(groups) - 1)]
    loads = CPULoadStoreSpec(list(range(4, 3 + len(groups))))
    sizes = [0] + [1] * len(targets)
    assert worker.submit_load(1, loads, device_side(targets, sizes, [0] + [1] * len(targets)))
    finished(worker, {1})
    for number, target in enumerate(targets):
        assert content(caches, target, groups[number + 1]) == before[2 * number + 3]


def test_more_jobs_than_a_copier_takes(specs):
    spec = made_spec(specs)
    caches = caches_of()
    worker = spec.get_worker(caches)
    worker._limits = Limits(jobs_max=2, blocks_max=3)
    worker._copiers[0]._limits = worker._limits
    before = [content(caches, block) for block in range(16)]
    for job in range(4):
        blocks = list(range(4 * job, 4 * job + 4))
        assert worker.submit_store(job, device_side(blocks), CPULoadStoreSpec(blocks))
    results = finished(worker, {0, 1, 2, 3})
    assert {result.transfer_size for result in results.values()} == {4 * sum(PAGES)}
    for cache in caches.tensors:
        cache.tensor.zero_()
    everything = list(range(16))
    assert worker.submit_load(9, CPULoadStoreSpec(everything), device_side(everything))
    finished(worker, {9})
    assert [content(caches, block) for block in range(16)] == before


def test_job_without_blocks_ends(specs):
    worker = made_spec(specs).get_worker(caches_of())
    assert worker.submit_store(3, device_side([]), CPULoadStoreSpec([]))
    assert finished(worker, {3})[3].transfer_size == 0
    worker.wait({99})


class SlowCopier:
    """Takes one job, which ends at `wait`."""

    def __init__(self, layout, limits):
        self.running: list[int] = []
        self.ended: list[int] = []
        self.order: list[tuple[str, list[int]]] = []

    def submit_store(self, job, blocks, slots):
        return self._submit("store", job, blocks)

    def submit_load(self, job, blocks, slots):
        return self._submit("load", job, blocks)

    def _submit(self, kind, job, blocks):
        if self.running:
            return False
        self.running.append(job)
        self.order.append((kind, list(blocks)))
        return True

    def poll(self):
        ended, self.ended = self.ended, []
        return [Finish(job, 1, 0.5) for job in ended]

    def wait(self, jobs):
        for job in jobs:
            if job in self.running:
                self.running.remove(job)
                self.ended.append(job)

    def close(self):
        self.running = []


def test_queue_and_expedited_loads(specs, monkeypatch):
    monkeypatch.setattr(worker_module, "copier", SlowCopier)
    worker = made_spec(specs).get_worker(caches_of())
    copier = worker._copiers[0]
    assert worker.submit_store(0, device_side([1]), CPULoadStoreSpec([1]))
    assert worker.submit_store(1, device_side([2]), CPULoadStoreSpec([2]))
    assert worker.submit_load(2, CPULoadStoreSpec([3]), device_side([3]))
    assert worker.submit_load(3, CPULoadStoreSpec([4]), device_side([4]), expedited=True)
    assert worker.get_finished() == []
    worker.wait({3})
    assert copier.order[:2] == [("store", [1]), ("load", [4])], "the expedited load is next"
    assert [result.job_id for result in worker.get_finished()] == [0, 3]
    with pytest.raises(ValueError, match="job 2 was submitted before"):
        worker.submit_store(2, device_side([5]), CPULoadStoreSpec([5]))
    worker.wait({1, 2})
    assert copier.order[2:] == [("store", [2]), ("load", [3])]
    assert [result.job_id for result in worker.get_finished()] == [1, 2]


def test_shutdown_removes_and_unmaps_the_region(specs):
    spec = made_spec(specs)
    worker = spec.get_worker(caches_of())
    assert worker.submit_store(0, device_side([1]), CPULoadStoreSpec([1]))
    assert len(files_of(spec)) == 1
    assert spec.config.engine_id in Path("/proc/self/maps").read_text()
    worker.shutdown()
    assert files_of(spec) == []
    assert spec.config.engine_id not in Path("/proc/self/maps").read_text()
    worker.shutdown()


def test_a_killed_engine_leaves_no_file(specs):
    spec = made_spec(specs)
    spec.get_worker(caches_of())
    spec.get_manager()
    assert files_of(spec) == [], "all have mapped the region, and none has shut down"


def test_a_worker_after_the_scheduler_finds_the_region(specs):
    spec = made_spec(specs)
    rows = np.asarray(spec.get_manager().primary_tier.get_kv_memoryview())
    caches = caches_of()
    worker = spec.get_worker(caches)
    assert worker.submit_store(0, device_side([5]), CPULoadStoreSpec([2]))
    finished(worker, {0})
    assert rows[2].tobytes()[: sum(PAGES)] == b"".join(content(caches, 5))
    spec.get_manager()
    del rows


def test_failed_start_removes_the_region(specs):
    spec = made_spec(specs)
    caches = caches_of()
    caches.tensors[1].tensor = torch.zeros((NUM_BLOCKS + 1, PAGES[1]), dtype=torch.int8)
    with pytest.raises(ValueError, match="tensor 1 has 25 blocks"):
        spec.get_worker(caches)
    assert files_of(spec) == []


def test_refusals(specs):
    if "canonical_layout" in {item.name for item in dataclasses.fields(config.OffloadingConfig)}:
        with pytest.raises(ValueError, match="canonical_layout"):
            made_spec(specs, canonical_layout=True).get_worker(caches_of())
    with pytest.raises(ValueError, match="no room for one chunk of 4096 bytes"):
        made_spec(specs, cpu_bytes_to_use=100).get_worker(caches_of())
    worker = made_spec(specs).get_worker(caches_of())
    with pytest.raises(ValueError, match="has 2 groups of KV cache; this engine has 1"):
        worker.submit_store(0, device_side([1, 2], [1, 1], [0, 0]), CPULoadStoreSpec([1, 2]))
    with pytest.raises(ValueError, match="too few chunks"):
        worker.submit_store(0, device_side([1, 2]), CPULoadStoreSpec([1]))
    with pytest.raises(ValueError, match="1 blocks and 2 chunks"):
        worker.submit_store(0, device_side([1]), CPULoadStoreSpec([1, 2]))
    assert worker.submit_store(0, device_side([1]), CPULoadStoreSpec([1])), "nothing was queued"
    finished(worker, {0})


def test_pairs_are_those_of_a_slow_reference():
    generator = random.Random(5)
    for _ in range(300):
        size = generator.randint(1, 5)
        sizes = [generator.randint(0, 12) for _ in range(generator.randint(1, 3))]
        firsts = [generator.randint(0, 40) for _ in sizes]
        blocks = generator.sample(range(1000), sum(sizes))
        chunks, expected, rest = [], [], list(blocks)
        for group, (count, first) in enumerate(zip(sizes, firsts)):
            row_of: dict[int, int] = {}
            for index in range(first, first + count):
                row_of.setdefault(index // size, 100 * group + len(row_of))
                slot = row_of[index // size] * size + index % size
                expected.append((group, rest.pop(0), slot))
            chunks += row_of.values()
        pairs = group_pairs(
            Groups(np.array(blocks, dtype=np.int32), sizes, firsts),
            np.array(chunks, dtype=np.int32),
            size,
        )
        found = [
            (group, int(block), int(slot))
            for group, of_group, slots in pairs
            for block, slot in zip(of_group, slots, strict=True)
        ]
        assert found == expected
