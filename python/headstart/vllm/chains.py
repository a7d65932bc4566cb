"""The order of a request's chunks: which key is before which.

A key names a chunk and everything before it, so that the key before another is always the same.
vLLM's `CachePolicy` is told of keys one by one. Since 0.31 a request's context has the position of
each of its keys. In 0.30 only `touch` has the keys of a whole prompt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import Any

GROUP_BYTES = 4
"""Last bytes of an offload key: the group of layers. Each group has a chain of its own."""

REQUESTS_MAX = 4096
"""Requests whose chains are kept while they run: one that ends without a word is forgotten."""

KEYS_MIN = 65_536
"""Keys that are remembered at least, beside those of the tier."""


class Chains:
    """The chains of the requests that run, and the key before each of their keys.

    Cost: each key of a request is looked at once when it appears, and once when it ends.
    """

    def __init__(self, cache_capacity: int) -> None:
        self._keys_max = 4 * cache_capacity + KEYS_MIN
        self._before: OrderedDict[bytes, tuple[bytes | None, int]] = OrderedDict()
        self._running: OrderedDict[str, _Running] = OrderedDict()

    def before(self, key: bytes) -> bytes | None:
        """The key before another one; `None` for the first one, and where it is not known."""
        return self._before.get(key, (None, 0))[0]

    def offset(self, key: bytes) -> int:
        """The number of keys before one; 0 where it is not known."""
        return self._before.get(key, (None, 0))[1]

    def of(self, req_id: str, key: bytes) -> list[bytes]:
        """The chain of a request that `key` is in; empty for a request that is not known."""
        running = self._running.get(req_id)
        return running.chains.get(key[-GROUP_BYTES:], []) if running else []

    def see(self, req_context: Any) -> int:
        """Notes new keys of a request. Returns the tokens of a chunk; 0 if unknown."""
        # The attribute is private. Its public reader needs the keys, which only it has.
        positions = getattr(req_context, "_offload_key_positions", None)
        if not positions:
            return 0
        running = self._request(req_context.req_id)
        self._note(running, islice(positions, len(running.keys), None))
        return next(iter(positions.values()))

    def end(self, req_context: Any) -> list[list[bytes]]:
        """Forgets a request that ends. Returns its chains, one for each group."""
        self.see(req_context)
        running = self._running.pop(req_context.req_id, None)
        return list(running.chains.values()) if running else []

    def look(self, keys: Iterable[bytes], req_id: str) -> list[list[bytes]]:
        """Notes the keys that a request looks for, in their order. Returns the chains of other
        requests that looked before: 0.30 does not say when one ends."""
        others = [name for name in self._running if name != req_id]
        ended = [chain for name in others for chain in self._running.pop(name).chains.values()]
        running = self._request(req_id)
        # vLLM looks again where a chunk is on its way.
        self._note(running, (key for key in keys if key not in running.keys))
        return ended

    def _request(self, req_id: str) -> _Running:
        running = self._running.get(req_id)
        if running is None:
            running = self._running[req_id] = _Running()
            if len(self._running) > REQUESTS_MAX:
                self._running.popitem(last=False)
        return running

    def _note(self, running: _Running, keys: Iterable[bytes]) -> None:
        for key in keys:
            chain = running.chains.setdefault(key[-GROUP_BYTES:], [])
            self._before[key] = (chain[-1] if chain else None, len(chain))
            self._before.move_to_end(key)
            chain.append(key)
            running.keys.add(key)
        while len(self._before) > self._keys_max:
            self._before.popitem(last=False)


class _Running:
    """A request that runs: its keys, by group in the order of the prompt."""

    def __init__(self) -> None:
        self.chains: dict[bytes, list[bytes]] = {}
        self.keys: set[bytes] = set()
