"""`HeadstartRadixCache` beside `PrefixCache`, and beside SGLang's own tree.

Needs torch, the other packages that SGLang imports, and its parts, as test_sglang.py does.
"""

from __future__ import annotations

import array
import importlib
import multiprocessing
import pathlib
import random
import types
from collections.abc import Iterator

import pytest

pytest.importorskip("numpy", reason="needs numpy")
headstart_native = pytest.importorskip("headstart._native", reason="the wheel is not built")

from test_sglang import sglang as sglang_parts  # noqa: E402

__all__ = ["sglang_parts"]

POLICIES = ["lru", "wa", "hazard", "s3fifo", "sieve", "arc"]
SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def sglang(sglang_parts: types.SimpleNamespace) -> types.SimpleNamespace:
    """The modules of one version, with those for trees."""
    try:
        ours = importlib.import_module("headstart.sglang.radix")
    except ImportError as error:
        pytest.skip(f"headstart.sglang.radix does not import: {error}")
    params = importlib.import_module("sglang.srt.mem_cache.cache_init_params")
    return types.SimpleNamespace(**vars(sglang_parts), ours=ours, params=params)


def agents(seed: int, requests: int, page_size: int) -> Iterator[tuple[int, list[int]]]:
    """Time and prompt of requests: conversations that grow, behind one of four system prompts.
    A seventh of the requests asks once and never again. No length is a multiple of a page."""
    rng = random.Random(seed)
    fresh = lambda count: [rng.randrange(1, 150_000) for _ in range(count)]
    heads = [fresh(page_size * (2 + 3 * number) + 5) for number in range(4)]
    sessions: list[list[int]] = []
    now = 0
    for _ in range(requests):
        now += rng.randrange(1, 20 * SECOND)
        if rng.random() < 0.15:
            yield now, rng.choice(heads) + fresh(rng.randint(1, 4 * page_size))
            continue
        if len(sessions) < 6 or rng.random() < 0.1:
            sessions.append(list(rng.choice(heads)))
        session = rng.choice(sessions[-12:])
        session += fresh(rng.randint(1, 6 * page_size))
        if len(session) > 40 * page_size:
            sessions.remove(session)
        yield now, list(session)


class Pool:
    """The memory: slots of pages. A page that is freed twice, or used twice, is an error."""

    device = "cpu"

    def __init__(self, torch: types.ModuleType, pages: int, page_size: int) -> None:
        self.torch, self.page_size, self.size = torch, page_size, pages * page_size
        self.free_pages = set(range(pages))

    def available_size(self) -> int:
        return len(self.free_pages) * self.page_size

    def alloc(self, tokens: int) -> list[int]:
        """Slots for whole pages."""
        pages = [self.free_pages.pop() for _ in range(-(-tokens // self.page_size))]
        return [page * self.page_size + at for page in pages for at in range(self.page_size)]

    def free_segment(self, value: object, start_pos: int) -> None:
        assert start_pos % self.page_size == 0
        slots = value.tolist()
        # A partial page at the end of a row goes as a whole.
        pages = [slot // self.page_size for slot in slots[:: self.page_size]]
        assert all(slot % self.page_size == 0 for slot in slots[:: self.page_size])
        assert self.free_pages.isdisjoint(pages) and len(set(pages)) == len(pages)
        self.free_pages.update(pages)


class Tree:
    """A tree and its memory, driven as SGLang's scheduler does it."""

    def __init__(self, sglang, pages: int, page_size: int, policy: str | None, **options) -> None:
        self.sglang, self.page_size = sglang, page_size
        self.pool = Pool(sglang.torch, pages, page_size)
        self.rows = sglang.torch.zeros((8, 4096 * 4), dtype=sglang.torch.int64)
        self.now = self.asked = self.evicted = 0
        if policy is None:
            # SGLang's own.
            self.tree = sglang.radix.RadixCache.create_simulated(
                mock_allocator=self.pool, page_size=page_size
            )
            return
        params = sglang.params.CacheInitParams(
            disable=False,
            req_to_token_pool=self,
            token_to_kv_pool_allocator=self.pool,
            page_size=page_size,
            **options,
        )
        self.tree = sglang.ours.HeadstartRadixCache(params, policy, clock=lambda: self.now)

    @property
    def req_to_token(self):
        return self.rows

    def write(self, index: object, value: object) -> None:
        self.rows[index] = value

    def key(self, tokens: list[int], **namespace: str):
        return self.sglang.radix.RadixKey(array.array("q", tokens), **namespace)

    def match(self, tokens: list[int], **namespace: str):
        params = self.sglang.cache.MatchPrefixParams(key=self.key(tokens, **namespace))
        return self.tree.match_prefix(params)

    def make_room(self, tokens: int) -> None:
        shortfall = tokens - self.pool.available_size()
        if shortfall > 0:
            before = self.pool.available_size()
            found = self.tree.evict(self.sglang.cache.EvictParams(num_tokens=shortfall))
            assert found.num_tokens_evicted == self.pool.available_size() - before
            self.asked += shortfall
            self.evicted += found.num_tokens_evicted

    def serve(self, now: int, prompt: list[int], **namespace: str) -> int:
        """A request without a `Req`, as in simulations. Returns its cached tokens."""
        self.now = now
        found = self.match(prompt, **namespace)
        hits, whole = found.device_prefix_len, len(prompt) // self.page_size * self.page_size
        lock = self.tree.lock(found.last_device_node)
        self.make_room(whole - hits)
        row = self.tree.path_device_indices(found.last_device_node).tolist()
        row += self.pool.alloc(whole - hits)
        params = self.sglang.cache.InsertParams(
            key=self.key(prompt, **namespace), value=self.sglang.torch.tensor(row)
        )
        self.tree.insert(params)
        self.tree.unlock(lock)
        return hits

    def check(self) -> None:
        """The sizes are those of the nodes; the order has exactly their pages."""
        tree, sizes = self.tree, [0, 0]
        nodes = [node for node in tree.root_node.children.values()]
        for node in nodes:
            nodes.extend(node.children.values())
            sizes[node.lock_ref > 0] += len(node.key)
            keys = tree._keys[node.id]
            assert len(keys) * self.page_size == len(node.key) == len(node.value)
            assert tree._tails[keys[-1]] is node
            assert all(key in tree._order for key in keys)
        assert sizes == [tree.evictable_size(), tree.protected_size()]
        assert len(tree._order) * self.page_size == sum(sizes) == tree.total_size()
        assert len(tree._keys) == len(tree._tails) == len(nodes)


class Replay:
    """`headstart replay` with the page keys of the tree."""

    def __init__(self, sglang, pages: int, page_size: int, policy: str) -> None:
        self.ours, self.radix, self.page_size = sglang.ours, sglang.radix, page_size
        self.cache = headstart_native.PrefixCache(policy, capacity=pages, block_tokens=page_size)

    def serve(self, prompt: list[int], use, step: int | None = None) -> int:
        whole = len(prompt) // self.page_size * self.page_size
        key = self.radix.RadixKey(array.array("q", prompt[:whole]))
        chain = list(self.ours.page_keys(key, self.page_size, None))
        return self.page_size * self.cache.serve(chain, use, step=step or len(chain))


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("policy", POLICIES)
def test_each_request_has_the_cached_tokens_of_replay(sglang, policy: str, page_size: int) -> None:
    pages = 160
    tree = Tree(sglang, pages, page_size, policy)
    replay = Replay(sglang, pages, page_size, policy)
    for number, (now, prompt) in enumerate(agents(7, 500, page_size)):
        expected = replay.serve(prompt, headstart_native.Use(now))
        assert tree.serve(now, prompt) == expected, number
        if number % 50 == 0:
            tree.check()
    assert 0.2 < replay.cache.hits / replay.cache.lookups < 0.9
    # It evicts what SGLang asks for, in whole pages.
    assert tree.asked <= tree.evicted < tree.asked + 500 * page_size
    tree.check()


class Request:
    """The fields of SGLang's `Req` that its tree reads."""

    extra_key = cache_salt = priority = None

    def __init__(self, tree: Tree, prompt: list[int], answer: list[int], hints: dict) -> None:
        self.tree, self.origin_input_ids, self.output_ids = tree, prompt, answer
        self.full_untruncated_fill_ids = array.array("q", prompt)
        self.sampling_params = types.SimpleNamespace(custom_params={"headstart": hints})
        self.finished_reason = None
        self.kv = types.SimpleNamespace(req_pool_idx=0, cache_inserted_len=0, swa_evict_floor=0)

    def finished(self) -> bool:
        return self.finished_reason is not None

    def run(self, step: int) -> int:
        """Prefill in chunks of `step` tokens, then the end. Returns the cached tokens."""
        tree, pool, radix = self.tree.tree, self.tree.pool, self.tree
        prompt = self.origin_input_ids
        found = radix.match(prompt)
        hits = found.device_prefix_len
        self.last_node, self.lock = found.last_device_node, tree.lock(found.last_device_node)
        radix.rows[0, :hits] = tree.path_device_indices(self.last_node)
        self.kv.cache_protected_len = hits
        whole = len(prompt) // radix.page_size * radix.page_size
        for first in range(hits, whole, step):
            last = min(first + step, whole)
            radix.make_room(last - first)
            radix.rows[0, first:last] = radix.sglang.torch.tensor(pool.alloc(last - first))
            if last < whole:
                tree.checkpoint(self, up_to=last)
        self.full_untruncated_fill_ids = array.array("q", prompt[:whole])
        self.finished_reason = types.SimpleNamespace(to_json=lambda: {"type": "stop"})
        tree.checkpoint(self, up_to=whole)
        assert self.kv.cache_protected_len == whole
        tree.unlock(self.lock)
        return hits


@pytest.mark.parametrize("params", ["x", [1], None, {"headstart": {"finish": "\ud800"}}])
def test_wrong_hints_are_ignored(sglang, params: object) -> None:
    sampling = types.SimpleNamespace(custom_params=params)
    request = types.SimpleNamespace(output_ids=[1], finished_reason=None, sampling_params=sampling)
    assert sglang.ours.facts(request) == {"output_tokens": 1}


@pytest.mark.parametrize("policy", headstart_native.POLICIES)
def test_checkpoints_of_a_request_are_one_use(sglang, policy: str) -> None:
    """The scheduler's way: chunks, hints of the client, and a lock that moves."""
    pages, page_size, step = 160, 16, 5
    tree = Tree(sglang, pages, page_size, policy)
    replay = Replay(sglang, pages, page_size, policy)
    rng = random.Random(3)
    for number, (now, prompt) in enumerate(agents(11, 300, page_size)):
        hints = {"turn": rng.randint(1, 4), "kind": rng.randint(1, 3), "p_continue": rng.random()}
        answer = [1] * rng.randint(1, 300)
        use = headstart_native.Use(now, finish="stop", output_tokens=len(answer), **hints)
        tree.now = now
        request = Request(tree, prompt, answer, {**hints, "now_ns": 5, "turns": "two"})
        assert request.run(step * page_size) == replay.serve(prompt, use, step), number
    assert replay.cache.hits > 0
    tree.check()


@pytest.mark.parametrize("page_size", [1, 16])
def test_lru_is_sglang_s_until_a_whole_node_goes(sglang, page_size: int) -> None:
    """The one rule that differs: SGLang evicts whole nodes, and so more than it asks for."""
    pages = 160
    ours, theirs = (Tree(sglang, pages, page_size, policy) for policy in ("lru", None))
    hits, before_overshoot = [0, 0], 0
    for number, (now, prompt) in enumerate(agents(7, 500, page_size)):
        found = [ours.serve(now, prompt), theirs.serve(now, prompt)]
        if theirs.evicted == ours.evicted:
            before_overshoot += 1
            assert found[0] == found[1], number
        hits = [total + tokens for total, tokens in zip(hits, found)]
    assert before_overshoot > 10 and theirs.evicted > ours.evicted
    # SGLang's extra evictions cost it hits.
    assert hits[1] < hits[0]


def test_lru_is_sglang_s_if_each_page_is_a_node(sglang) -> None:
    pages, page_size = 160, 16
    ours, theirs = (Tree(sglang, pages, page_size, policy) for policy in ("lru", None))
    for number, (now, prompt) in enumerate(agents(7, 500, page_size)):
        hits = ours.serve(now, prompt)
        assert theirs.serve(now, prompt) == hits, number
        # A match that ends inside a node splits it.
        for end in range(page_size, len(prompt), page_size):
            theirs.match(prompt[:end])
        theirs.match(prompt)


@pytest.mark.parametrize("policy", POLICIES)
def test_locked_pages_stay_and_sizes_add_up(sglang, policy: str) -> None:
    """Requests in parallel: locks overlap, and inserts come in any order."""
    pages, page_size = 96, 16
    tree = Tree(sglang, pages, page_size, policy)
    rng = random.Random(5)
    running: list[tuple[object, list[int]]] = []
    for now, prompt in agents(13, 600, page_size):
        while len(running) > rng.randrange(4):
            lock, _ = running.pop(rng.randrange(len(running)))
            tree.tree.unlock(lock)
        if (len(prompt) // page_size) * page_size > tree.tree.evictable_size():
            if tree.pool.available_size() < len(prompt):
                continue
        tree.serve(now, prompt)
        running.append((tree.tree.lock(tree.match(prompt).last_device_node), prompt))
        if rng.random() < 0.1:
            # More than there is: all that is unlocked goes.
            want = tree.sglang.cache.EvictParams(num_tokens=tree.pool.size)
            unlocked = tree.tree.evictable_size()
            assert tree.tree.evict(want).num_tokens_evicted == unlocked
            assert tree.tree.evictable_size() == 0
        for _, locked in running:
            whole = len(locked) // page_size * page_size
            assert tree.match(locked).device_prefix_len == whole
        tree.check()
    for lock, _ in running:
        tree.tree.unlock(lock)
    assert tree.tree.protected_size() == 0
    tree.check()


def test_a_reset_clears_the_order(sglang) -> None:
    tree = Tree(sglang, 32, 16, "hazard")
    prompts = [list(range(first, first + 200)) for first in (0, 1_000, 2_000)]
    for now, prompt in enumerate(prompts):
        tree.serve(now, prompt)
    assert len(tree.tree._order) == 32
    tree.tree.reset()
    tree.pool.free_pages = set(range(32))
    tree.check()
    assert len(tree.tree._order) == len(tree.tree._tails) == tree.tree.evictable_size() == 0
    assert [tree.serve(3, prompts[0]), tree.serve(4, prompts[0])] == [0, 192]
    tree.check()


def test_adapters_and_salts_share_no_page(sglang) -> None:
    tree = Tree(sglang, 64, 16, "lru")
    prompt = list(range(100))
    for namespace in ({}, {"extra_key": "adapter"}, {"cache_salt": "tenant"}):
        assert tree.serve(1, prompt, **namespace) == 0
        assert tree.serve(2, prompt, **namespace) == 96
    assert tree.tree.evictable_size() == 3 * 96
    tree.check()


def test_bigrams_of_a_draft_model_have_pages(sglang) -> None:
    """A page of 16 bigrams is 17 tokens, so prompts that differ in the 17th differ in page 1."""
    tree = Tree(sglang, 64, 16, "lru", is_eagle=True)
    one, other = list(range(49)), [*range(16), 99, *range(17, 49)]
    keys = []
    for prompt in (one, other):
        key = tree.key(prompt)
        key.is_bigram = True
        keys.append(list(sglang.ours.page_keys(key, 16, None)))
    assert [len(chain) for chain in keys] == [3, 3] and keys[0][0] != keys[1][0]
    for number, hits in enumerate([0, 48, 0, 48]):
        params = [one, one, other, other][number]
        assert tree.match(params).device_prefix_len == hits
        value = sglang.torch.tensor(tree.pool.alloc(48) if not hits else list(range(48)))
        tree.tree.insert(sglang.cache.InsertParams(key=tree.key(params), value=value))
        tree.check()


def test_events_name_the_pages_that_went(sglang, monkeypatch: pytest.MonkeyPatch) -> None:
    def hashes(key: object, before: bytes | None, page_size: int) -> list[str]:
        """SGLang's compiled hash needs a compiler."""
        found = sglang.ours.page_keys(key, page_size, before)
        return [page.hex() * 2 for page in found]

    monkeypatch.setattr("sglang.srt.mem_cache.utils.get_native_hash", hashes)
    tree = Tree(sglang, 16, 16, "lru", enable_kv_cache_events=True)
    tree.serve(1, list(range(160)))
    tree.serve(2, list(range(1000, 1160)))
    stored, removed = [], []
    for event in tree.tree.take_events():
        if type(event).__name__ == "BlockStored":
            stored += event.block_hashes
        elif type(event).__name__ == "BlockRemoved":
            removed += event.block_hashes
    # The last four pages of the first prompt.
    assert len(set(stored)) == 20 and removed == stored[6:10]


def served_by(rank: int, sglang, folder: str, is_group: bool) -> list[int]:
    """The cached tokens of each request on one of two ranks, whose clocks differ."""
    dist = sglang.torch.distributed
    # A fork has none of its parent's threads.
    sglang.torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}", rank=rank, world_size=2)
    group = dist.group.WORLD if is_group else None
    tree = Tree(sglang, 160, 16, "hazard", tp_cache_group=group)
    rng = random.Random(rank)
    trace = agents(7, 300, 16)
    hits = [tree.serve(now + rng.randrange(SECOND * 60), prompt) for now, prompt in trace]
    tree.check()
    return hits


@pytest.mark.parametrize("is_group", [True, False])
def test_ranks_evict_the_same_pages(sglang, tmp_path: pathlib.Path, is_group: bool) -> None:
    """Ranks have clocks of their own. Without the first one's time, their trees would differ."""
    forked = multiprocessing.get_context("fork")
    results = forked.SimpleQueue()
    work = lambda rank: results.put(served_by(rank, sglang, str(tmp_path / "store"), is_group))
    ranks = [forked.Process(target=work, args=(rank,), daemon=True) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
        assert rank.exitcode == 0
    first, second = results.get(), results.get()
    assert (first == second) == is_group


def test_a_disabled_tree_keeps_nothing(sglang) -> None:
    tree = Tree(sglang, 16, 16, "lru")
    tree.tree.disable = True
    found = tree.match(list(range(64)))
    tree.tree.unlock(tree.tree.lock(found.last_device_node))
    tree.tree.insert(sglang.cache.InsertParams(key=tree.key(list(range(64)))))
    assert tree.tree.evict(sglang.cache.EvictParams(num_tokens=64)).num_tokens_evicted == 0
    assert len(tree.tree._order) == 0


def context(sglang, **changes) -> types.SimpleNamespace:
    params = sglang.params.CacheInitParams(
        disable=False,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=Pool(sglang.torch, 32, 16),
        page_size=16,
        eviction_policy="lru",
        pp_size=changes.pop("pp_size", 1),
    )
    fields = {"enable_hierarchical_cache": False, "is_hybrid_swa": False, "is_hybrid_ssm": False}
    return types.SimpleNamespace(params=params, **(fields | changes))


def test_sglang_builds_the_tree_by_name(sglang, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = importlib.import_module("sglang.srt.mem_cache.registry")
    plugin = importlib.import_module("headstart.sglang")
    plugin.register()
    plugin.register()
    assert {"headstart", "headstart-s3fifo"} <= set(registry.registered_radix_cache_backends())
    monkeypatch.setenv("HEADSTART_POLICY", "s3fifo:small=0.2")
    for name, policy in (("headstart", "s3fifo:small=0.2"), ("headstart-arc", "arc")):
        memory = types.SimpleNamespace(
            radix_cache_backend=name,
            enable_hierarchical_cache=False,
            enable_session_radix_cache=False,
            radix_eviction_policy="lru",
        )
        serving = types.SimpleNamespace(enable_streaming_session=False)
        monkeypatch.setattr(registry, "get_memory", lambda: memory)
        monkeypatch.setattr(registry, "get_serving", lambda: serving)
        tree = registry.create_tree_cache(context(sglang))
        assert (type(tree), tree._order.policy) == (sglang.ours.HeadstartRadixCache, policy)
    monkeypatch.setenv("HEADSTART_POLICY", "nonsense")
    with pytest.raises(ValueError, match="nonsense"):
        plugin.radix_cache(None, context(sglang))
    for changes, match in (
        ({"enable_hierarchical_cache": True}, "hierarchical"),
        ({"is_hybrid_swa": True}, "sliding"),
        ({"pp_size": 2}, "pipeline"),
    ):
        with pytest.raises(ValueError, match=match):
            plugin.radix_cache("lru", context(sglang, **changes))
