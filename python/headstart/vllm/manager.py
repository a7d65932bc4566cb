"""The scheduler's side of `HeadstartOffload` where a `HeadstartTier` is among its tiers.

It is vLLM's manager with two additions:

- It times the engine's steps, so that the tier can weigh loading against computing.
- A block on disk that finds the CPU tier full is looked up again in the next steps, as long as
  that is worth it. vLLM's own manager treats it as if it had never been stored.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from vllm.v1.kv_offload.base import LookupResult

from .tier import HeadstartTier

STEPS_MAX = 16
"""Steps that are scheduled and have not ended: vLLM has two at most."""

REQUESTS_MAX = 4096
"""Requests whose positions are kept while they run."""


class HeadstartManager:
    """Does what vLLM's tiering manager does, which it calls; see the module."""

    def __init__(self, manager: Any, tier: HeadstartTier) -> None:
        self._manager = manager
        self._tier = tier
        self._steps: deque[_Step] = deque(maxlen=STEPS_MAX)
        self._ended_at = 0.0
        self._computed: OrderedDict[str, int] = OrderedDict()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def lookup(self, key: bytes, req_context: Any, **more: Any) -> LookupResult:
        """A block's place. The tier decides whether one on disk is loaded."""
        self._tier.offered = None
        result = self._manager.lookup(key, req_context, **more)
        if result is LookupResult.MISS and self._tier.offered == key:
            # The CPU tier has no row for it.
            return LookupResult.RETRY if self._tier.waits_for_row(req_context) else result
        return result

    def on_schedule_end(self, context: Any) -> None:
        """A step is scheduled; the calls of `prepare_store` behind it belong to it."""
        self._manager.on_schedule_end(context)
        self._steps.append(_Step(time.monotonic()))

    def prepare_store(self, keys: Collection[bytes], req_context: Any) -> Any:
        """The step computes these blocks."""
        self._note(keys, req_context)
        return self._manager.prepare_store(keys, req_context)

    def take_events(self) -> Iterable[Any]:
        """vLLM asks for events once after each step, in the order of the steps."""
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
        self._manager.complete_load(keys, req_context)

    def on_request_finished(self, req_context: Any) -> None:
        """A request has ended."""
        self._computed.pop(req_context.req_id, None)
        self._manager.on_request_finished(req_context)

    def _note(self, keys: Collection[bytes], req_context: Any) -> None:
        ends = getattr(req_context, "_offload_key_positions", None)
        known = [ends[key] for key in keys if key in ends] if ends else []
        if not known or not self._steps:
            return
        block_tokens = next(iter(ends.values()))
        # vLLM offers blocks again that found no room in an earlier step.
        before = max(self._computed.get(req_context.req_id, 0), min(known) - block_tokens)
        if max(known) > before:
            self._steps[-1].entries.append((before, max(known) - before))
            self._computed[req_context.req_id] = max(known)
            if len(self._computed) > REQUESTS_MAX:
                self._computed.popitem(last=False)


@dataclass
class _Step:
    """A step of the engine."""

    scheduled_at: float
    entries: list[tuple[int, int]] = field(default_factory=list)
    """Tokens before, and computed ones, of each prompt."""
