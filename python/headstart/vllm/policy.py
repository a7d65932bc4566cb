"""Headstart's eviction policies in vLLM's CPU tier.

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {"cpu_bytes_to_use": 64000000000,
        "eviction_policy": "headstart-hazard",
        "cache_policy_module_path": "headstart.vllm.policy"}}'

`headstart-NAME` is any policy of `headstart replay --policy`, with its options:
`headstart-s3fifo:small=0.2`. `HeadstartPolicy` is the one of the variable HEADSTART_POLICY, or
`hazard`.

vLLM owns the memory; the policy says which chunk goes. Three rules differ from vLLM's own:

- A chunk with a cached chunk behind it stays: without its head a tail cannot be found.
- Chunks of a request that runs go only where there are too few others.
- A request's use counts when the request ends, for its whole prompt: also for chunks that vLLM
  found on the GPU, and so neither loaded nor stored.

hints.py has what a request may tell the policy.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from typing import Any

from vllm.v1.kv_offload.cpu.policies.base import CachePolicy, ChunkStatus

from .._native import EvictionOrder
from .chains import Chains
from .hints import use_of

logger = logging.getLogger("vllm.headstart")

PREFIX = "headstart-"
"""Names of policies begin with it, because vLLM has an `lru` and an `arc` of its own."""

DEFAULT_POLICY = "hazard"

BLOCK_TOKENS = 16
"""Tokens of a chunk, as long as no request has told; 0.30 never does."""


class HeadstartPolicy(CachePolicy):
    """One of Headstart's policies, behind vLLM's interface of 0.30 to 0.33."""

    policy: str | None = None
    """The policy with its options; `None` reads HEADSTART_POLICY."""

    def __init__(self, cache_capacity: int) -> None:
        super().__init__(cache_capacity)
        self._name = self.policy or os.environ.get("HEADSTART_POLICY") or DEFAULT_POLICY
        self._chunks: dict[bytes, ChunkStatus] = {}
        self._chains = Chains(cache_capacity)
        self._use = use_of(None, 0)
        # Made at once, so that a wrong name fails at the start and not at the first request.
        self._order = EvictionOrder(self._name, cache_capacity, BLOCK_TOKENS)
        self._knows_block_tokens = False
        logger.info("eviction policy of the CPU tier: headstart %s", self._name)

    def get(self, key: bytes) -> ChunkStatus | None:
        return self._chunks.get(key)

    def insert(self, key: bytes, chunk: ChunkStatus, req_context: Any = None) -> None:
        # 0.33 passes the context; before, `on_store_miss` came with it.
        if req_context is not None:
            self._see(req_context)
        offset = self._chains.offset(key)
        self._order.insert(key, self._chains.before(key), of=self._use, offset=offset)
        self._chunks[key] = chunk
        if chunk.ref_cnt == 0:
            self._order.readable(key)

    def remove(self, key: bytes) -> None:
        del self._chunks[key]
        self._order.remove(key)

    def touch(self, keys: Iterable[bytes], req_context: Any) -> None:
        # 0.30 alone uses it: with the whole prompt, when it looks for a request's chunks. It never
        # says that a request has ended, so the use of the one before counts now.
        for chain in self._chains.look(keys, req_context.req_id):
            self._order.touch(chain, of=self._use)
        self._use = use_of(req_context, self._use.now)

    def on_store_miss(self, keys: Iterable[bytes], req_context: Any) -> None:
        self._see(req_context)

    def on_request_access(self, keys: Iterable[bytes], req_context: Any) -> None:
        self._see(req_context)

    def on_request_finished(
        self,
        key_groups: Sequence[Sequence[bytes]],
        insertion_only_keys: set[bytes],
        reused_keys: set[bytes],
        req_context: Any,
    ) -> None:
        self._use = use_of(req_context, self._use.now)
        for chain in self._chains.end(req_context) or [list(keys) for keys in key_groups]:
            self._order.touch(chain, of=self._use)

    def evict(
        self, n: int, protected: set[bytes]
    ) -> list[tuple[bytes, ChunkStatus]] | None:
        # The head of the prompt whose tail is to be stored stays, too.
        heads = (self._chains.before(key) for key in protected)
        keep = [*protected, *(head for head in heads if head is not None)]
        evicted = self._order.evict(n, keep, now=self._use.now)
        return None if evicted is None else [(key, self._chunks.pop(key)) for key in evicted]

    def clear(self) -> None:
        self._chunks.clear()
        self._order.clear()

    def mark_evictable(self, key: bytes) -> None:
        self._order.readable(key)

    def mark_non_evictable(self, key: bytes) -> None:
        self._order.pin(key)

    def _see(self, req_context: Any) -> None:
        """Notes the order of a request's chunks."""
        self._use = use_of(req_context, self._use.now)
        block_tokens = self._chains.see(req_context)
        if block_tokens and not self._knows_block_tokens:
            self._knows_block_tokens = True
            # Options in tokens depend on it. Nothing is cached yet.
            if block_tokens != BLOCK_TOKENS and not self._chunks:
                self._order = EvictionOrder(self._name, self.cache_capacity, block_tokens)


def __getattr__(name: str) -> type[HeadstartPolicy]:
    """The class of `headstart-NAME`, which vLLM looks up in this module."""
    if not name.startswith(PREFIX):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return type("HeadstartPolicy", (HeadstartPolicy,), {"policy": name.removeprefix(PREFIX)})
