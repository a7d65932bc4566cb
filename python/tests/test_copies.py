"""Copies against a slow, obvious reference: one block at a time, through Python bytes."""

from __future__ import annotations

import mmap
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
sys.path.insert(0, str(Path(__file__).parents[1]))

from headstart.vllm import dma, gather  # noqa: E402
from headstart.vllm.copies import CpuCopier, DeviceCopier, Limits, Method, copier  # noqa: E402
from headstart.vllm.layout import Layout, as_blocks, registered  # noqa: E402

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
PATIENCE_S = 60
"""A job that takes longer hangs."""
LONG_CYCLES = 200_000_000
"""About 0.1 s of the GPU: longer than any copy here, and than any submit."""


@dataclass
class Shape:
    """A layout to be made. `gap`: bytes between blocks and between rows that belong to others."""

    sizes: tuple[int, ...] = (64, 64, 64)
    num_blocks: int = 40
    num_rows: int = 24
    blocks_per_row: int = 1
    gap: int = 0


SHAPES = {
    "even": Shape(),
    "one tensor": Shape(sizes=(4096,)),
    "odd": Shape(sizes=(17, 1, 250)),
    "eight": Shape(sizes=(24, 8)),
    "gaps": Shape(sizes=(48, 160), gap=32),
    "odd gaps": Shape(sizes=(33, 5), gap=3),
    "rows of three": Shape(blocks_per_row=3, num_rows=9),
    "rows of two, odd, gaps": Shape(sizes=(19, 40), blocks_per_row=2, gap=7),
    "chunks": Shape(sizes=(20_000, 16_400)),
}


def layout_of(shape: Shape, device: str = "cpu") -> Layout:
    """Random bytes on both sides, the gaps included."""
    tensors = []
    for size in shape.sizes:
        flat = torch.randint(-128, 128, (shape.num_blocks, size + shape.gap), dtype=torch.int8)
        tensors.append(flat.to(device)[:, :size])
    row_bytes = sum(shape.sizes) * shape.blocks_per_row
    host = torch.randint(-128, 128, (shape.num_rows, row_bytes + shape.gap), dtype=torch.int8)
    if device != "cpu":
        host = host.pin_memory()
    return Layout(tensors, host[:, :row_bytes], shape.blocks_per_row)


def whole(tensor) -> bytearray:
    """All bytes of a tensor's memory, also those between its rows."""
    storage = torch.empty(0, dtype=torch.int8, device=tensor.device).set_(tensor.untyped_storage())
    return bytearray(storage[tensor.storage_offset() :].cpu().numpy().tobytes())


class Reference:
    """The bytes of both sides, and jobs on them."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.tensors = [whole(tensor) for tensor in layout.tensors]
        self.host = whole(layout.host)

    def run(self, blocks, slots, is_store: bool) -> None:
        count = self.layout.blocks_per_row
        for block, slot in zip(blocks, slots):
            at = slot // count * self.layout.host.stride(0)
            for tensor, data in zip(self.layout.tensors, self.tensors):
                size = tensor.shape[1]
                host = slice(at + slot % count * size, at + (slot % count + 1) * size)
                device = slice(block * tensor.stride(0), block * tensor.stride(0) + size)
                if is_store:
                    self.host[host] = data[device]
                else:
                    data[device] = self.host[host]
                at += count * size

    def check(self) -> None:
        assert self.host == whole(self.layout.host)
        for index, tensor in enumerate(self.layout.tensors):
            assert self.tensors[index] == whole(tensor), f"tensor {index}"


def random_ids(rng: random.Random, layout: Layout) -> tuple[list[int], list[int]]:
    count = rng.randint(0, min(layout.num_blocks, layout.num_slots))
    return rng.sample(range(layout.num_blocks), count), rng.sample(range(layout.num_slots), count)


def drain(copies) -> dict[int, int]:
    """Polls until nothing runs; the bytes of each job."""
    finished, patience = {}, time.monotonic() + PATIENCE_S
    while copies._running if isinstance(copies, DeviceCopier) else copies._finished:
        assert time.monotonic() < patience, "a job hangs"
        finished.update((finish.job, finish.num_bytes) for finish in copies.poll())
    return finished


def random_jobs(layout: Layout, copies, seed: int) -> None:
    reference, rng = Reference(layout), random.Random(seed)
    for job in range(30):
        blocks, slots = random_ids(rng, layout)
        is_store = rng.random() < 0.5
        submit = copies.submit_store if is_store else copies.submit_load
        assert submit(job, blocks, slots)
        reference.run(blocks, slots, is_store)
        copies.wait([job])
        assert drain(copies) == {job: len(blocks) * layout.block_bytes}
    reference.check()
    copies.close()


# --- without a GPU ---


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_cpu_jobs_equal_the_reference(name, seed):
    layout = layout_of(SHAPES[name])
    copies = copier(layout)
    assert isinstance(copies, CpuCopier)
    random_jobs(layout, copies, seed)


@pytest.mark.parametrize(
    "blocks, slots, message",
    [
        ([1, 2], [3], "one length"),
        ([[1]], [[2]], "one length"),
        ([40], [0], "block 40 is out of range; there are 40"),
        ([-1], [0], "block -1 is out of range"),
        ([0], [24], "slot 24 is out of range; there are 24"),
        ([0], [-2], "slot -2 is out of range"),
        ([0.5], [0], "ids are integers"),
        ([5, 6, 5], [0, 1, 2], "block 5 occurs twice"),
        ([5, 6, 7], [0, 1, 1], "slot 1 occurs twice"),
        ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4], "split it, at most 4"),
    ],
)
def test_wrong_ids_are_refused_and_nothing_is_copied(blocks, slots, message):
    layout = layout_of(Shape())
    reference, copies = Reference(layout), CpuCopier(layout, Limits(blocks_max=4))
    for submit in (copies.submit_store, copies.submit_load):
        with pytest.raises(ValueError, match=message):
            submit(1, blocks, slots)
    assert copies.poll() == []
    reference.check()


def test_layouts_that_do_not_fit_are_refused():
    def check(message, tensors, host, blocks_per_row=1):
        with pytest.raises(ValueError, match=message):
            Layout(tensors, host, blocks_per_row)

    kv, host = torch.zeros((4, 8), dtype=torch.int8), torch.zeros((2, 16), dtype=torch.int8)
    Layout([kv, kv], host)
    Layout([kv], host, 2)
    check("at least one", [], host)
    check("at least one", [kv], host, 0)
    check("tensor 0 is torch.int16", [kv.view(torch.int16)], host)
    check("tensor 1 has 3 blocks", [kv, kv[:3]], host)
    check("16 bytes; 3 blocks of 8 bytes need 24", [kv], host, 3)
    check("strides", [kv.T], host)
    check("strides", [kv[0].expand(4, 8)], host)
    check("the host region is torch.int8", [kv, kv], host[0])


def test_a_kv_tensor_becomes_blocks():
    kv = torch.zeros((2, 10, 16, 4, 8), dtype=torch.bfloat16)  # [K/V, blocks, tokens, heads, dim]
    keys, values = as_blocks(kv[0]), as_blocks(kv[1])
    assert keys.shape == values.shape == (10, 1024)
    assert values.data_ptr() - keys.data_ptr() == 10 * 1024
    halves = kv.permute(1, 0, 2, 3, 4).contiguous()
    assert as_blocks(halves[:, 1]).stride() == (2048, 1)
    with pytest.raises(RuntimeError):
        as_blocks(kv.transpose(1, 2)[0])


def test_ids_come_in_any_integer_form():
    layout = layout_of(Shape())
    reference, copies = Reference(layout), CpuCopier(layout)
    for job, form in enumerate([list, tuple, torch.tensor, lambda ids: torch.tensor(ids).numpy()]):
        assert copies.submit_store(job, form([3, 1]), form([0, job + 1]))
        reference.run([3, 1], [0, job + 1], True)
    reference.check()


def test_an_id_in_use_is_refused_and_too_many_jobs_are_told():
    copies = CpuCopier(layout_of(Shape()), Limits(jobs_max=2))
    assert copies.submit_store(7, [0], [0])
    with pytest.raises(ValueError, match="job 7 was submitted before"):
        copies.submit_load(7, [0], [0])
    assert copies.submit_load(8, [1], [0])
    assert not copies.submit_load(9, [2], [0])
    assert [finish.job for finish in copies.poll()] == [7, 8]
    assert copies.submit_load(9, [2], [0])


def test_modules_import_without_torch():
    modules = "copies, dma, gather, lanes, layout"
    code = f"import sys; sys.modules['torch'] = None; from headstart.vllm import {modules}"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


# --- with one ---


@pytest.fixture(params=["direct", "staged", "staged without Triton", "direct, old driver"])
def on_device(request, monkeypatch):
    """Makes a copier of each kind."""
    method = Method.DIRECT if "direct" in request.param else Method.STAGED
    if "without Triton" in request.param:
        monkeypatch.setattr(gather, "has_kernel", lambda: False)
    if "old driver" in request.param:
        monkeypatch.setattr(dma, "_batch_call", lambda: (None, False))

    def make(layout, limits=Limits(jobs_max=4, staging_bytes=1 << 20)):
        return DeviceCopier(layout, limits, method)

    return make


@needs_cuda
@pytest.mark.parametrize("name", SHAPES)
def test_device_jobs_equal_the_reference(name, on_device):
    layout = layout_of(SHAPES[name], "cuda")
    random_jobs(layout, on_device(layout), seed=len(name))


@needs_cuda
@pytest.mark.parametrize("name", ["even", "rows of three", "chunks"])
def test_a_staging_buffer_of_one_row_is_enough(name, on_device):
    layout = layout_of(SHAPES[name], "cuda")
    random_jobs(layout, on_device(layout, Limits(staging_bytes=1)), seed=5)


@needs_cuda
def test_the_method_follows_the_size_of_a_block():
    large, small = Shape(sizes=(65536, 65536)), Shape(sizes=(65536, 16384))
    assert Method.of(layout_of(large)) is Method.DIRECT
    assert Method.of(layout_of(small)) is Method.STAGED


@needs_cuda
def test_a_pageable_region_is_refused():
    layout = layout_of(Shape(), "cuda")
    with pytest.raises(ValueError, match="not pinned"):
        copier(Layout(layout.tensors, layout.host.clone()))


@needs_cuda
def test_a_shared_mmap_is_a_host_region_while_registered(on_device):
    shape = Shape()
    tensors = layout_of(shape, "cuda").tensors
    region = torch.frombuffer(mmap.mmap(-1, 1 << 20), dtype=torch.int8)
    host = region[: 24 * 256].view(24, 256)[:, :192]
    with registered(host):
        layout = Layout(tensors, host)
        random_jobs(layout, on_device(layout), seed=3)
    assert not host.is_pinned()


@needs_cuda
def test_a_store_sees_what_the_engine_wrote_before_it(on_device):
    layout = layout_of(Shape(), "cuda")
    copies, engine = on_device(layout), torch.cuda.Stream()
    layout.tensors[0].fill_(10)  # first uses load kernels, and that may wait for running ones
    assert copies.submit_store(0, range(24), range(24))
    assert drain(copies)
    with torch.cuda.stream(engine):
        torch.cuda._sleep(LONG_CYCLES)
        for tensor in layout.tensors:
            tensor.fill_(11)
        started = time.monotonic()
        assert copies.submit_store(1, range(24), range(24))
        polled = copies.poll()
        submit_s = time.monotonic() - started
        assert not engine.query(), "the engine's kernel is too short for this test"
        assert polled == []
    copies.wait([1])
    assert bool((layout.host == 11).all())
    assert submit_s < 0.05, "a submit or a poll waited for the engine's stream"
    (finish,) = copies.poll()
    assert 0 < finish.seconds < 0.05, "the time of a job has the engine's kernel in it"


@needs_cuda
def test_the_engine_may_write_once_a_store_is_done_or_held(on_device):
    layout = layout_of(Shape(), "cuda")
    copies, engine = on_device(layout), torch.cuda.Stream()
    reference = Reference(layout)
    reference.run(range(24), range(24), True)
    with torch.cuda.stream(engine):
        assert copies.submit_store(1, range(24), range(24))
        copies.hold_stream([1, 99])
        for tensor in layout.tensors:
            tensor.fill_(12)
    engine.synchronize()
    assert reference.host == whole(layout.host)
    assert drain(copies) == {1: 24 * 192}
    for tensor in layout.tensors:
        tensor.fill_(13)
    torch.cuda.synchronize()
    assert reference.host == whole(layout.host)


@needs_cuda
def test_the_engine_reads_what_was_loaded_behind_hold_stream(on_device):
    layout = layout_of(SHAPES["chunks"], "cuda")
    copies, engine = on_device(layout), torch.cuda.Stream()
    reference = Reference(layout)
    reference.run(range(24), range(24), False)
    with torch.cuda.stream(engine):
        torch.cuda._sleep(LONG_CYCLES)
        before = [tensor.clone() for tensor in layout.tensors]
        assert copies.submit_load(1, range(24), range(24))
        copies.hold_stream([1])
        after = [tensor.clone() for tensor in layout.tensors]
    engine.synchronize()
    for index, (old, new) in enumerate(zip(before, after)):
        expected = bytes(reference.tensors[index][: 24 * new.shape[1]])
        assert new[:24].cpu().numpy().tobytes() == expected
        assert not torch.equal(old, new), "the load ran before the engine had read the blocks"
    reference.check()


@needs_cuda
def test_many_jobs_run_at_once_and_one_too_many_is_told(on_device):
    layout = layout_of(Shape(num_blocks=64, num_rows=64), "cuda")
    copies, engine = on_device(layout, Limits(jobs_max=16)), torch.cuda.Stream()
    reference = Reference(layout)
    with torch.cuda.stream(engine):
        torch.cuda._sleep(LONG_CYCLES)
        for job in range(16):  # stores and loads by turns, each with four blocks of its own
            ids = range(4 * job, 4 * job + 4)
            is_store = job % 2 == 0
            submit = copies.submit_store if is_store else copies.submit_load
            assert submit(job, ids, ids)
            reference.run(ids, ids, is_store)
        assert not copies.submit_store(16, [0], [0])
    assert sorted(drain(copies)) == list(range(16))
    reference.check()
    assert copies.submit_store(16, [0], [0])
    copies.close()


@needs_cuda
@pytest.mark.parametrize("method", Method)
def test_steady_state_allocates_nothing_on_the_gpu(method):
    layout = layout_of(SHAPES["chunks"], "cuda")
    copies = DeviceCopier(layout, Limits(staging_bytes=100_000), method)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    for job in range(50):
        submit = copies.submit_store if job % 2 else copies.submit_load
        assert submit(job, range(24), range(24))
        copies.wait([job])
        copies.poll()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
