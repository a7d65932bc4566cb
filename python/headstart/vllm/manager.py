"""The scheduler's side of `HeadstartOffload` where a `HeadstartTier` is among its tiers.

It is vLLM's manager with three additions:

- It times the engine's steps, so that the tier can weigh loading against computing.
- A block on disk that finds the CPU tier full is looked up again in the next steps, as long as
  that is worth it. vLLM's own manager treats it as if it had never been stored.
- A request whose blocks evict each other computes the rest. In vLLM 0.33, the blocks that a waiting
  request has loaded are the first to go, so it could load them again without end.
"""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.kv_offload.base import LookupResult, OffloadingManager

from .tier import HeadstartTier

STEPS_MAX = 16
"""Steps that are scheduled and have not ended: vLLM has two at most."""

REQUESTS_MAX = 4096
"""Requests that are remembered while they run."""

FETCHES_MAX = 3
"""How often a block is fetched from the tier for one load of a request."""

STORES_FIRST = hasattr(OffloadingManager, "lock")
"""Since 0.33 vLLM prepares the stores of a step before it calls `on_schedule_end`; before, after.
The same version has the lock."""


HOLDS_AFTER_RESET = hasattr(OffloadingManager, "on_reset_flushed")


class HeadstartManager:
    """Does what vLLM's tiering manager does, which it calls; see the module."""

    def __init__(self, manager: Any, tiers: list[HeadstartTier]) -> None:
        self._manager = manager
        self._tiers = tiers
        # It is asked first.
        self._tier = tiers[0]
        self._held_steps = 0
        """Steps that must end before blocks are loaded again, after a reset."""
        self._steps: deque[_Step] = deque(maxlen=STEPS_MAX)
        self._entries: list[tuple[int, int]] = []
        """What the step computes that vLLM schedules now."""
        self._ended_at = 0.0
        self._requests: OrderedDict[str, _Request] = OrderedDict()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def lookup(self, key: bytes, req_context: Any, **more: Any) -> LookupResult:
        """A block's place. The tier decides whether one on disk is loaded."""
        ends = positions(req_context)
        request = self._request(req_context.req_id) if key in ends else None
        if request is not None:
            # vLLM looks for the blocks behind those that the GPU has, and offers all of them.
            start = ends[key] - next(iter(ends.values()))
            request.computed = min(start, request.computed)
            if ends[key] >= request.load_end:
                result = self._manager.primary_tier.lookup(key, req_context)
                if result is LookupResult.MISS:
                    self._tier.note_miss(key, req_context, "no_row")
                return result
        self._tier.offered = None
        if self._held_steps:
            # A worker may still write a row that a block would be loaded into.
            return self._manager.primary_tier.lookup(key, req_context)
        result = self._manager.lookup(key, req_context, **more)
        if result is not LookupResult.MISS:
            for tier in self._tiers:
                tier.forget_miss(req_context)
        if self._tier.offered != key:
            return result
        if result is LookupResult.MISS:
            # The CPU tier has no row for it.
            if self._tier.waits_for_row(req_context):
                return LookupResult.RETRY
            self._tier.note_miss(key, req_context, "no_row")
            return result
        if request is not None:
            request.fetches[key] += 1
            if request.fetches[key] == FETCHES_MAX:
                request.load_end = ends[key]
        return result

    def on_schedule_end(self, context: Any) -> None:
        """A step is scheduled. See `STORES_FIRST` for the stores that belong to it."""
        self._manager.on_schedule_end(context)
        if STORES_FIRST:
            entries, self._entries = self._entries, []
        else:
            entries = self._entries = []
        self._steps.append(_Step(time.monotonic(), entries))

    def prepare_store(self, keys: Collection[bytes], req_context: Any) -> Any:
        """The step computes these blocks."""
        self._note(keys, req_context)
        return self._manager.prepare_store(keys, req_context)

    def reset_cache(self) -> None:
        """Since 0.33 vLLM itself waits for the worker's last copies."""
        self._manager.reset_cache()
        if not HOLDS_AFTER_RESET:
            self._held_steps = STEPS_MAX

    def take_events(self) -> Iterable[Any]:
        """vLLM asks for events once after each step, in the order of the steps."""
        self._held_steps = max(0, self._held_steps - 1)
        if self._steps:
            step, now = self._steps.popleft(), time.monotonic()
            # The engine computes one step after another.
            seconds = now - max(step.scheduled_at, self._ended_at)
            self._ended_at = now
            if step.entries:
                self._tier.observe_step(step.entries, seconds)
        return self._manager.take_events()

    def complete_load(self, keys: Collection[bytes], req_context: Any) -> None:
        """A request's blocks have reached the engine."""
        self._tier.loaded(req_context)
        if request := self._requests.get(req_context.req_id):
            request.fetches.clear()
            request.load_end = math.inf
        self._manager.complete_load(keys, req_context)

    def on_request_finished(self, req_context: Any) -> None:
        """A request has ended."""
        self._requests.pop(req_context.req_id, None)
        self._manager.on_request_finished(req_context)

    def _note(self, keys: Collection[bytes], req_context: Any) -> None:
        ends = positions(req_context)
        known = [ends[key] for key in keys if key in ends]
        if not known:
            return
        request = self._request(req_context.req_id)
        computed = 0 if request.computed == math.inf else request.computed
        # vLLM offers blocks again that found no room in an earlier step.
        before = max(computed, min(known) - next(iter(ends.values())))
        if max(known) > before:
            self._entries.append((before, max(known) - before))
            request.computed = max(known)

    def _request(self, req_id: str) -> _Request:
        request = self._requests.get(req_id)
        if request is None:
            request = self._requests[req_id] = _Request()
            if len(self._requests) > REQUESTS_MAX:
                self._requests.popitem(last=False)
        return request


def positions(req_context: Any) -> dict[bytes, int]:
    """The token behind each block of a request, in their order. 0.30 does not tell."""
    return getattr(req_context, "_offload_key_positions", None) or {}


@dataclass
class _Request:
    """A request that waits or runs."""

    computed: float = math.inf
    """Its tokens that are computed, or that the GPU had; infinite: not known."""
    fetches: Counter[bytes] = field(default_factory=Counter)
    """How often each block was fetched from the tier, since its last load reached the engine."""
    load_end: float = math.inf
    """No block that ends here or later is fetched."""


@dataclass
class _Step:
    """A step of the engine."""

    scheduled_at: float
    entries: list[tuple[int, int]]
    """Tokens before, and computed ones, of each prompt."""
