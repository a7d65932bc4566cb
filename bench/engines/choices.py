"""`HeadstartTier` without its choice between loading and computing, for loading.py."""

from __future__ import annotations

import time
from typing import Any

from headstart.vllm.tier import HeadstartTier, LoadPlan


class AlwaysLoads(HeadstartTier):
    """Loads each block that is there, as vLLM's tiers do."""

    def _plan(self, key: bytes, req_context: Any) -> LoadPlan:
        return LoadPlan(None, None, None, time.monotonic())


class NeverLoads(HeadstartTier):
    """Computes each block."""

    def _plan(self, key: bytes, req_context: Any) -> LoadPlan:
        return LoadPlan(0, None, None, time.monotonic())
