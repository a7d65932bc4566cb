"""Metrics of `HeadstartTier` in vLLM's /metrics.

| metric | meaning |
|---|---|
| `tier_blocks_total{place, event}` | blocks, by event |
| `tier_computed_blocks_total{place, reason}` | blocks of prompts that the engine computed, by reason |
| `tier_resident_blocks{place}` | blocks there |
| `tier_capacity_blocks{place}` | blocks that fit the budget |
| `tier_up{place}` | 1 if the place works |

Each name begins with `headstart:`, and `place` is `disk` or `store`. Events are `stored`, `loaded`,
`evicted`, `declined` (no room), `damaged` and `failed`. The reason is that of the first block:

| reason | meaning |
|---|---|
| `not_stored` | not there, and not evicted lately |
| `evicted` | it was there, and went to make room |
| `unreachable` | nothing can be read from the place now |
| `failed` | a load of it failed less than 10 s ago |
| `reset` | vLLM reset its cache; see the option `fixed_weights` |
| `slower` | there, and loading was predicted to take longer than computing |
| `no_row` | there, and the CPU tier had no room for it |

A request counts once, when it ends. With several groups of layers no reason is counted.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._native import BlockTier

BLOCKS = "headstart:tier_blocks"
COMPUTED = "headstart:tier_computed_blocks"
RESIDENT = "headstart:tier_resident_blocks"
CAPACITY = "headstart:tier_capacity_blocks"
UP = "headstart:tier_up"


def definitions() -> dict[str, Any]:
    """The kind, the help and the labels of each metric, which vLLM needs before the first value."""
    from vllm.v1.kv_offload.base import OffloadingCounterMetadata, OffloadingGaugeMetadata

    return {
        BLOCKS: OffloadingCounterMetadata(
            "Blocks of HeadstartTier, by what happened to them.", ("place", "event")
        ),
        COMPUTED: OffloadingCounterMetadata(
            "Blocks of prompts that HeadstartTier did not load, by reason.", ("place", "reason")
        ),
        RESIDENT: OffloadingGaugeMetadata("Blocks in HeadstartTier.", ("place",)),
        CAPACITY: OffloadingGaugeMetadata("Blocks that fit HeadstartTier's budget.", ("place",)),
        UP: OffloadingGaugeMetadata("1 if the place of HeadstartTier works.", ("place",)),
    }


class TierMetrics:
    """Counts of one tier since vLLM asked last."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._blocks: dict[str, int] = {}
        """Counts of blocks when vLLM asked last."""
        self._computed: Counter[str] = Counter()
        self._gauges: dict[str, int] = {}

    def compute(self, reason: str, blocks: int) -> None:
        """The engine computed blocks of a prompt."""
        self._computed[reason] += blocks

    def take(self, tier: BlockTier) -> Any:
        """The changes, as vLLM's `OffloadingConnectorStats`. vLLM asks after each step."""
        from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (
            OffloadingConnectorStats,
        )

        stats = OffloadingConnectorStats()
        for event, count in tier.counts():
            if new := count - self._blocks.get(event, 0):
                stats.increase_counter(BLOCKS, new, (self._place, event))
            self._blocks[event] = count
        for reason, blocks in self._computed.items():
            stats.increase_counter(COMPUTED, blocks, (self._place, reason))
        self._computed.clear()
        gauges = {RESIDENT: len(tier), CAPACITY: tier.capacity, UP: int(not tier.condition)}
        for name, value in gauges.items():
            if value != self._gauges.get(name):
                stats.set_gauge(name, value, (self._place,))
        self._gauges = gauges
        return stats
