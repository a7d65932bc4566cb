"""`HeadstartPolicy` behind vLLM's own manager, for each version whose parts are there."""

from __future__ import annotations

import importlib
import pathlib
import random
import types
from collections.abc import Iterator

import pytest

import engine_parts

headstart_native = pytest.importorskip("headstart._native", reason="the wheel is not built")

CHUNK_TOKENS = 32


@pytest.fixture
def vllm(parts: pathlib.Path) -> Iterator[types.SimpleNamespace]:
    """The modules of one version."""
    with engine_parts.imported(parts):
        yield types.SimpleNamespace(
            base=importlib.import_module("vllm.v1.kv_offload.base"),
            cpu=importlib.import_module("vllm.v1.kv_offload.cpu.manager"),
            policy=importlib.import_module("headstart.vllm.policy"),
        )


class Engine:
    """vLLM's manager, driven as its scheduler does it: look up, load, store, finish."""

    def __init__(self, vllm: types.SimpleNamespace, policy: str, num_chunks: int) -> None:
        self.vllm = vllm
        self.manager = vllm.cpu.CPUOffloadingManager(
            num_chunks=num_chunks,
            cache_policy=policy,
            cache_policy_module_path="headstart.vllm.policy",
        )
        self.tells_ends = hasattr(vllm.base.ReqContext, "get_offload_key_position")
        self.requests = 0

    def keys(self, chain: list[int], group: int = 0) -> list[bytes]:
        name = lambda block: block.to_bytes(16, "big") * 2
        return [self.vllm.base.make_offload_key(name(block), group) for block in chain]

    def begin(self, chain: list[int], params: dict | None = None, groups: int = 1):
        """A request comes, and the chunks that the tier has are loaded."""
        self.requests += 1
        context = self.vllm.base.ReqContext(f"request-{self.requests}", params)
        keys = [self.keys(chain, group) for group in range(groups)]
        for group in keys:
            for position, key in enumerate(group, 1):
                if self.tells_ends:
                    context.set_offload_key_position(key, position * CHUNK_TOKENS)
        self.manager.on_new_request(context)
        hits = min(self._hits(group, context) for group in keys)
        loaded = [key for group in keys for key in group[:hits]]
        if not self.tells_ends:
            for group in keys:
                self.manager.touch(group, context)
        if loaded:
            self.manager.prepare_load(loaded, context)
            self.manager.complete_load(loaded, context)
        return types.SimpleNamespace(context=context, keys=keys, hits=hits)

    def _hits(self, keys: list[bytes], context: object) -> int:
        hit = self.vllm.base.LookupResult.HIT
        found = [self.manager.lookup(key, context) is hit for key in keys]
        return (found + [False]).index(False)

    def store(self, request, first: int, last: int):
        """Chunks `first` to `last` of each group are computed, and copied to the tier."""
        keys = [key for group in request.keys for key in group[first:last]]
        output = self.manager.prepare_store(keys, request.context)
        if output is not None:
            self.manager.complete_store(output.keys_to_store, request.context)
        return output

    def finish(self, request) -> None:
        if hasattr(self.manager, "on_request_finished"):
            self.manager.on_request_finished(request.context)

    def serve(self, chain: list[int], params: dict | None = None, step: int = 8) -> int:
        """One request from its begin to its end, in prefill steps. Returns its hits, chunks."""
        request = self.begin(chain, params)
        for first in range(request.hits, len(chain), step):
            self.store(request, first, min(first + step, len(chain)))
        self.finish(request)
        return request.hits


class TailFirstLru:
    """The slow reference: the least recently used chunk without a cached one behind it goes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used: dict[int, tuple[int, int]] = {}
        self.head: dict[int, int | None] = {}
        self.now = 0

    def serve(self, chain: list[int]) -> int:
        self.now += 1
        hits = ([block in self.used for block in chain] + [False]).index(False)
        for at, block in enumerate(chain):
            self.head[block] = chain[at - 1] if at else None
            if block not in self.used and not self._insert(block, chain):
                break
        for at, block in enumerate(chain):
            if block in self.used:
                self.used[block] = (self.now, -at)
        return hits

    def _insert(self, block: int, chain: list[int]) -> bool:
        if len(self.used) == self.capacity:
            heads = {self.head[other] for other in self.used}
            free = [other for other in self.used if other not in heads and other not in chain]
            if not free:
                return False
            del self.used[min(free, key=self.used.__getitem__)]
        self.used[block] = (self.now, 0)
        return True


def conversations(seed: int, requests: int) -> Iterator[list[int]]:
    """Prompts that grow by a few blocks each turn, on one of three common heads."""
    rng = random.Random(seed)
    growing: list[list[int]] = []
    fresh = 1_000
    for _ in range(requests):
        if not growing or rng.random() < 0.3:
            head = rng.randrange(3)
            growing.append([100 * head + at for at in range(2 + head)])
        chain = rng.choice(growing)
        more = rng.randint(1, 6)
        chain += range(fresh, fresh + more)
        fresh += more
        if len(chain) > 40:
            growing.remove(chain)
        yield list(chain)


def test_hits_are_those_of_the_slow_reference(vllm) -> None:
    for seed, capacity in ((1, 64), (2, 128), (3, 400)):
        engine, reference = Engine(vllm, "headstart-lru", capacity), TailFirstLru(capacity)
        for number, chain in enumerate(conversations(seed, 400)):
            # One chunk a step, so that a prompt fills what room it finds, as in the reference.
            assert engine.serve(chain, step=1) == reference.serve(chain), (seed, number)


@pytest.mark.parametrize("policy", headstart_native.POLICIES)
def test_each_policy_has_the_hits_of_replay(
    vllm, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM gets the memory of a prefill step at once, and so does the cache beside it."""
    monkeypatch.setenv("HEADSTART_CLOCK", "hints")
    step = 8
    engine = Engine(vllm, f"headstart-{policy}", 96)
    # 0.30 does not tell how many tokens a chunk has.
    block_tokens = CHUNK_TOKENS if engine.tells_ends else 16
    cache = headstart_native.PrefixCache(policy, capacity=96, block_tokens=block_tokens)
    rng = random.Random(9)
    for number, chain in enumerate(conversations(5, 400)):
        finish = rng.choice(["tool_calls", "stop"])
        hints = {
            "turn": rng.randint(1, 4),
            "kind": rng.randint(1, 3),
            "finish": finish,
            "tools": [rng.choice(["Bash", "Read"])] if finish == "tool_calls" else [],
            "output_tokens": rng.randint(1, 400),
            "p_continue": rng.random(),
        }
        # The first time is 0, as in traces.
        now = number * 7_000_000_000
        hits = engine.serve(chain, {"headstart": {"now_ns": now, **hints}}, step)
        keys, use = engine.keys(chain), headstart_native.Use(now, **hints)
        assert hits == cache.serve(keys, use, step=step), number
    assert cache.hits > 0
    tier = engine.manager._policy
    assert len(tier._chunks) == len(tier._order) <= 96


def test_prompts_in_parallel_keep_their_heads(vllm) -> None:
    engine = Engine(vllm, "headstart-lru", 8)
    first, second = engine.begin([1, 2, 3, 4]), engine.begin([11, 12, 13, 14])
    assert engine.store(first, 0, 4).evicted_keys == []
    assert engine.store(second, 0, 4).evicted_keys == []
    engine.finish(first)
    third = engine.begin([1, 2, 21, 22])
    assert third.hits == 2
    # The second one still runs, and the head of the third is in use: 4 and 3 go.
    evicted = engine.store(third, 2, 4).evicted_keys
    if engine.tells_ends:
        assert list(evicted) == engine.keys([4, 3])
    assert engine.begin([1, 2]).hits == 2


def test_a_prompt_larger_than_the_tier_keeps_its_head(vllm) -> None:
    engine = Engine(vllm, "headstart-lru", 4)
    request = engine.begin([1, 2, 3, 4, 5, 6])
    assert engine.store(request, 0, 4) is not None
    # vLLM counts it as a failed allocation, and computes what is not there the next time.
    assert engine.store(request, 4, 6) is None
    engine.finish(request)
    assert engine.serve([1, 2, 3, 4, 5, 6]) == 4


def test_a_failed_store_leaves_no_trace(vllm) -> None:
    engine = Engine(vllm, "headstart-hazard", 4)
    request = engine.begin([1, 2])
    output = engine.manager.prepare_store(request.keys[0], request.context)
    engine.manager.complete_store(output.keys_to_store, request.context, success=False)
    engine.finish(request)
    assert engine.serve([1, 2]) == 0
    assert engine.serve([1, 2]) == 2


def test_a_reset_empties_the_tier(vllm) -> None:
    engine = Engine(vllm, "headstart-hazard", 8)
    engine.serve([1, 2, 3])
    engine.manager.reset_cache()
    assert [engine.serve([1, 2, 3]) for _ in range(2)] == [0, 3]


def test_groups_of_layers_have_chains_of_their_own(vllm) -> None:
    engine = Engine(vllm, "headstart-lru", 8)
    request = engine.begin([1, 2, 3], groups=2)
    engine.store(request, 0, 3)
    engine.finish(request)
    request = engine.begin([7], groups=2)
    engine.store(request, 0, 1)
    assert engine.begin([1, 2, 3], groups=2).hits == 3


def test_wrong_hints_are_ignored_and_times_never_fall(
    vllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(vllm, "headstart-hazard", 8)
    for hints in ("text", None, {"turn": -1, "session": "x", "p_continue": 7, "finish": 3}):
        engine.serve([1, 2, 3], {"headstart": hints})
    policy = engine.manager._policy
    engine.serve([1, 2, 3], {"headstart": {"turn": 1, "finish": "stop", "now_ns": 2**62}})
    assert policy._use.now < 2**62, "a client does not set the clock"
    monkeypatch.setenv("HEADSTART_CLOCK", "hints")
    for now_ns in (2**62, 5):
        assert engine.serve([1, 2, 3], {"headstart": {"now_ns": now_ns}}) == 3
        assert policy._use.now == 2**62


def test_an_unknown_policy_fails_at_the_start(vllm, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="unknown policy `none`; known: lru"):
        Engine(vllm, "headstart-none", 8)
    monkeypatch.setenv("HEADSTART_POLICY", "sieve")
    assert Engine(vllm, "HeadstartPolicy", 8).manager._policy._order.policy == "sieve"
