"""Offload of KV blocks for vLLM 0.30 to 0.33, on GPUs and on CPUs.

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {"spec_name": "HeadstartOffload",
        "spec_module_path": "headstart.vllm.offload", "cpu_bytes_to_use": 8589934592}}'

The scheduler's side is vLLM's: its manager, eviction policies and secondary tiers, with vLLM's
options; with a `HeadstartTier` it is a `HeadstartManager`. The worker's side is ours. vLLM's own
spec refuses engines on the CPU; this one does not.

The base is vLLM's tiering spec also where no secondary tier is named: it keeps blocks in a shared
region on every platform. It refuses `store_threshold` of 2 or more, which vLLM's other spec knows.

The region is a file in /dev/shm, which outlives its processes. With vLLM's default
`--shutdown-timeout 0` the engine is killed, often before a worker's `shutdown`. So the scheduler's
side, which maps the region last, removes its name. The memory is free once they have ended.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from .manager import HeadstartManager
from .tier import HeadstartTier
from .worker import HeadstartWorker

if TYPE_CHECKING:
    from vllm.v1.kv_offload.base import CanonicalKVCaches, OffloadingManager


class HeadstartOffload(TieringOffloadingSpec):
    """vLLM makes one for its scheduler, and one in each worker process."""

    def get_manager(self) -> OffloadingManager:
        """The scheduler's side. vLLM makes it after all workers have mapped the region.

        `ValueError`: an option is wrong, or there is too little memory.
        """
        self._check_room()
        manager = super().get_manager()
        region = self._scheduler_mmap
        # As the creator of the file, it would be first, and workers would still need the name.
        if region is not None and not region._creator:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(region.mmap_path)
        if not isinstance(manager, HeadstartManager):
            tiers = [tier for tier in manager.secondary_tiers if isinstance(tier, HeadstartTier)]
            if tiers:
                self._manager = manager = HeadstartManager(manager, tiers)
        return manager

    def get_worker(self, kv_caches: CanonicalKVCaches) -> HeadstartWorker:
        """The worker of this process; made at the first call. vLLM's spec refuses CPUs here."""
        if self._worker is None:
            self._worker = self.create_worker(kv_caches)
        return self._worker

    def create_worker(self, kv_caches: CanonicalKVCaches) -> HeadstartWorker:
        """`ValueError`: an option that the worker does not support, or too little memory."""
        if getattr(self.config, "canonical_layout", False):
            raise ValueError(
                "HeadstartOffload does not support canonical_layout; remove it from "
                "kv_connector_extra_config"
            )
        self._check_room()
        region = SharedOffloadRegion(
            engine_id=self.config.engine_id,
            num_chunks=self.num_chunks,
            rank=0 if self.replicated_layout else self.config.parallel.rank,
            kv_bytes_per_chunk=self.kv_bytes_per_chunk,
            cpu_page_size=self.cpu_page_size_per_worker,
        )
        return HeadstartWorker(kv_caches, region, self.blocks_per_chunk)

    def _check_room(self) -> None:
        if self.num_chunks < 1:
            raise ValueError(
                f"cpu_bytes_to_use has no room for one chunk of {self.kv_bytes_per_chunk} bytes"
            )
