"""Headstart's eviction policies in SGLang's prefix cache on the GPU.

    SGLang's RadixCache ── insert, lock, use, page by page ──► EvictionOrder
              ▲                                                     │
              └────────────── the pages to evict, in order ─────────┘

Three rules differ from SGLang's own tree:

- It evicts pages. SGLang evicts whole nodes.
- A use counts once, when a request ends. SGLang counts each match and insert.
- Pages of running requests go only when the others do not suffice.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sglang.srt.mem_cache.base_prefix_cache import EvictResult
from sglang.srt.mem_cache.radix_cache import RadixCache

from .._native import EvictionOrder, Use
from ..vllm.hints import checked

HINTS = "headstart"
"""The entry of `custom_params` with a request's hints, as in vllm/hints.py."""


class HeadstartRadixCache(RadixCache):
    """SGLang's tree with the policy `policy`. SGLang's scheduler calls it from one thread.

    Cost: O(1) per new page and per evicted page, and O(pages of the prompt) when a request ends.
    """

    def __init__(
        self, params: Any, policy: str, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        pages = params.token_to_kv_pool_allocator.size // params.page_size
        self._order = EvictionOrder(policy, pages, params.page_size)
        # Keys of the pages of each node, and the node of each last page.
        self._keys: dict[int, list[bytes]] = {}
        self._tails: dict[bytes, Any] = {}
        self._clock = clock
        self._group = params.tp_cache_group
        self._use = Use(0)
        self._is_checkpoint = False
        # The strategy of the base class is unused. `create_tree_cache` has checked the flag.
        super().__init__(replace(params, eviction_policy="lru", eviction_policy_config=None))

    def reset(self) -> None:
        """Drops all pages. What the policy has learned stays."""
        super().reset()
        self._order.clear()
        self._keys.clear()
        self._tails.clear()

    def insert(self, params: Any) -> Any:
        """Outside a checkpoint, an insert is a whole request: it counts as a use of the prompt."""
        if not self._is_checkpoint:
            self._use = self._use_of(None)
        result = super().insert(params)
        node = result.last_device_node
        if node is None or node is self.root_node:
            return result
        if node.id not in self._keys:
            self._adopt(node)
        if not self._is_checkpoint:
            self._touch(node)
        return result

    def checkpoint(self, req: Any, *, up_to: int) -> None:
        """A finished request counts as a use of its prompt and answer."""
        if self.disable:
            return
        self._use, self._is_checkpoint = self._use_of(req), True
        try:
            super().checkpoint(req, up_to=up_to)
        finally:
            self._is_checkpoint = False
        if req.finished():
            self._touch(req.last_node)

    def inc_lock_ref(self, node: Any) -> Any:
        """Locks a node and its ancestors."""
        result = super().inc_lock_ref(node)
        # A page stays as long as a later page of its chain is pinned, so one pin suffices.
        if keys := self._keys.get(node.id):
            self._order.pin(keys[-1])
        return result

    def dec_lock_ref(self, node: Any, params: Any = None) -> Any:
        """Ends one lock of a node."""
        result = super().dec_lock_ref(node, params)
        if keys := self._keys.get(node.id):
            self._order.unpin(keys[-1])
        return result

    def evict(self, params: Any) -> EvictResult:
        """Evicts as many pages as hold `num_tokens`, or all that are unlocked."""
        start = time.perf_counter()
        wanted = -(-params.num_tokens // self.page_size)
        count = min(wanted, self.evictable_size() // self.page_size)
        # A node comes before its parent, because tails go first.
        gone: dict[Any, int] = {}
        for key in self._order.evict(count, now=self._use.now) or []:
            node = self._tails.pop(key)
            keys = self._keys[node.id]
            keys.pop()
            if keys:
                self._tails[keys[-1]] = node
            gone[node] = gone.get(node, 0) + 1
        tokens = sum(self._drop(node, pages) for node, pages in gone.items())
        self.update_eviction_metrics(tokens, start)
        return EvictResult(num_tokens_evicted=tokens)

    def _drop(self, node: Any, pages: int) -> int:
        """Frees the last pages of a leaf; their keys are gone. Returns the number of tokens."""
        left = len(node.key) - pages * self.page_size
        if left:
            # The node keeps the tail; a new one gets the rest.
            self._split_node(node.key, node, left)
        del self._keys[node.id]
        self.token_to_kv_pool_allocator.free_segment(node.value, start_pos=0)
        self._delete_leaf(node)
        self.kv_events.record_remove(node)
        return len(node.value)

    def _split_node(self, key: Any, child: Any, split_len: int) -> Any:
        head = super()._split_node(key, child, split_len)
        keys, pages = self._keys[child.id], split_len // self.page_size
        self._keys[head.id], self._keys[child.id] = keys[:pages], keys[pages:]
        self._tails[keys[pages - 1]] = head
        return head

    def _adopt(self, node: Any) -> None:
        """Adds the pages of a new node to the order."""
        before = self._chain(node.parent)
        parent = before[-1] if before else None
        keys = self._keys[node.id] = []
        for offset, key in enumerate(page_keys(node.key, self.page_size, parent), len(before)):
            self._order.insert(key, parent, of=self._use, offset=offset)
            self._order.readable(key)
            keys.append(key)
            parent = key
        self._tails[keys[-1]] = node

    def _chain(self, node: Any) -> list[bytes]:
        """Keys of the pages from the root to a node."""
        parts = []
        while node is not self.root_node:
            parts.append(self._keys[node.id])
            node = node.parent
        return [key for part in reversed(parts) for key in part]

    def _touch(self, node: Any) -> None:
        self._order.touch(self._chain(node), of=self._use)

    def _use_of(self, req: Any) -> Use:
        """A use by a request, now. All ranks get the time of the first one: their trees must
        evict the same pages."""
        import torch

        now = self._clock()
        if self._group is not None and torch.distributed.get_world_size(self._group) > 1:
            told = torch.tensor([now])
            torch.distributed.broadcast(told, group=self._group, group_src=0)
            now = int(told)
        return Use(max(now, self._use.now), **facts(req))


def page_keys(key: Any, page_size: int, before: bytes | None) -> Iterator[bytes]:
    """A key for each page of a `RadixKey`; `before` is the key of the page before the first."""
    tokens = memoryview(key.raw_token_ids())
    # The adapter and the salt are in the first key, and so in all. A bigram is two tokens.
    last = before or repr((key.extra_key, key.cache_salt)).encode()
    for at in range(0, len(key), page_size):
        digest = hashlib.blake2b(last, digest_size=16)
        digest.update(tokens[at : at + page_size + key.is_bigram])
        yield (last := digest.digest())


def facts(req: Any) -> dict[str, Any]:
    """Arguments of `Use` for a request: SGLang's facts, then the client's hints."""
    if req is None:
        return {}
    known: dict[str, Any] = {"output_tokens": len(req.output_ids)}
    if req.finished_reason:
        known["finish"] = req.finished_reason.to_json()["type"].replace("abort", "cancelled")
    # A client may send anything.
    params = req.sampling_params.custom_params
    given = params.get(HINTS) if isinstance(params, dict) else None
    hints = checked(given) if isinstance(given, dict) else {}
    hints.pop("now_ns", None)
    return known | hints
