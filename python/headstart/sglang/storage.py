"""Headstart's disk tier as SGLang's third level of KV cache (HiCache L3).

    --enable-hierarchical-cache --hicache-mem-layout page_first
    --hicache-storage-backend dynamic
    --hicache-storage-backend-extra-config '{"backend_name": "headstart",
      "module_path": "headstart.sglang.storage", "class_name": "HeadstartStorage",
      "interface_v1": 1, "hicache_storage_pass_prefix_keys": true,
      "folder": "/var/cache/headstart", "budget_gib": 100}'

| option | meaning |
|---|---|
| `folder` | created if it does not exist; each identity has its own folder in it |
| `budget_gib` | most bytes of one rank on disk, GiB; or a table: `{"kv": 80, "mamba": 20}` |
| `policy` | eviction policy, as in `headstart replay --policy` [default: hazard] |
| `model` | folder of the weights [default: the server's `--model-path`] |
| `revision` | a text that stands for the weights; required without their folder |

With `interface_v1` and the layout `page_first` or `page_first_direct`, the tier works on the
memory of the host pool itself. Otherwise it copies each page once more. With
`hicache_storage_pass_prefix_keys` the tier learns the order of pages, and evicts tails before
heads.

Each load verifies the checksums of its pages. A damaged page is a miss. So is a page of other
weights, or of another data type, layout, page size or rank. Pages survive a restart and a crash. A
call waits for its bytes, at most 40 s for each job.
"""

from __future__ import annotations

import logging
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import (
    HiCacheStorage,
    HiCacheStorageConfig,
    HiCacheStorageExtraInfo,
    PoolHitPolicy,
    PoolName,
    PoolTransfer,
    PoolTransferResult,
)

from .identity import Weights, pool_identity, rank_identity
from .pool import Place, PoolTier
from .rows import DirectRows, StagedRows, direct_rows, page_bytes

logger = logging.getLogger("sglang.headstart")

GIB = 1 << 30

KV = PoolName.KV.value

OPTIONS = ("folder", "budget_gib", "policy", "model", "revision")

SGLANG_OPTIONS = (
    "backend_name",
    "module_path",
    "class_name",
    "interface_v1",
    "hicache_storage_pass_prefix_keys",
    "prefetch_threshold",
    "prefetch_timeout_base",
    "prefetch_timeout_per_ki_token",
    "tp_lcm_size",
    "allocator",
)
"""SGLang's own options. It leaves some of them in the table."""

METRICS_MAX = 4096
"""Most calls between two calls of `get_stats` with figures."""


class HeadstartStorage(HiCacheStorage):
    """Pages on disk, for SGLang 0.5.23."""

    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: Any = None) -> None:
        given = dict(storage_config.extra_config or {})
        unknown = [name for name in given if name not in OPTIONS + SGLANG_OPTIONS]
        if unknown:
            raise ValueError(f"HeadstartStorage has no option {', '.join(unknown)}")
        for name in ("folder", "budget_gib"):
            if name not in given:
                raise ValueError(f"HeadstartStorage needs the option {name}")
        budget = given["budget_gib"]
        if not (budget.get(KV, 0) if isinstance(budget, dict) else budget) > 0:
            raise ValueError(f"HeadstartStorage: no budget for the pool {KV}")
        if storage_config.is_mla_model and storage_config.tp_size > 1:
            raise ValueError(
                "HeadstartStorage: the ranks of an MLA model share their pages, and a folder "
                "serves one process; use one rank, or attention with data parallelism"
            )
        self._given = given
        self._rank = _rank_identity(storage_config, given)
        self._is_direct = bool(given.get("interface_v1", 0))
        self._pools: dict[str, Any] = {}
        self._tiers: dict[str, PoolTier] = {}
        self._has_metrics = storage_config.enable_storage_metrics
        self._figures: dict[str, list[tuple[int, float]]] = {"load": [], "store": []}
        if not self._is_direct:
            logger.warning('set "interface_v1": 1, or each page is copied once more')

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        if mem_pool_host.kv_buffer is None:
            raise ValueError("HeadstartStorage: the KV pool of this model has no memory of its own")
        self._pools[KV] = mem_pool_host

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        super().register_mem_host_pool_v2(host_pool, host_pool_name)
        name = str(host_pool_name)
        self._pools[name] = host_pool
        if self._tiers and name not in self._tiers:
            # A pool that comes after the others.
            self._open([name])

    def on_host_pools_registered(self) -> None:
        if not self._tiers:
            self._open(list(self._pools))

    def exists(self, key: str) -> bool:
        return self._tiers[KV].found([key])[0]

    def batch_exists(
        self, keys: list[str], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> int:
        tier = self._tiers[KV]
        # The only call that has the whole prompt: here it counts as one use of its pages.
        tier.touch([*_prefix(extra_info), *keys])
        return _leading(tier.found(keys))

    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[PoolTransfer] | None = None,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> PoolTransferResult:
        kv_pages = self.batch_exists(keys, extra_info)
        hits: dict[Any, int] = {PoolName.KV: kv_pages} if kv_pages else {}
        # Lengths of prefixes that every pool can restore.
        lengths = set(range(1, kv_pages + 1))
        for transfer in pool_transfers or ():
            if transfer.hit_policy == PoolHitPolicy.BLOCK_GROUPS or not lengths:
                # Block groups never shorten a hit; a pool without a report has no verdict.
                continue
            tier = self._side(transfer)
            found = tier.found(keys[:kv_pages]) if tier else [False] * kv_pages
            restorable = _restorable(found, transfer)
            if restorable:
                hits[transfer.name] = max(restorable)
            lengths &= restorable
            if tier and lengths:
                used = keys[: max(lengths)][-_window(transfer, max(lengths)) :]
                tier.touch(used)
        return PoolTransferResult(max(lengths, default=0), hits, sorted(lengths))

    def batch_get_v1(
        self,
        keys: list[str],
        host_indices: torch.Tensor,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> list[bool]:
        began = time.perf_counter()
        loaded = self._tiers[KV].load(keys, host_indices)
        self._note("load", sum(loaded), began)
        return loaded

    def batch_set_v1(
        self,
        keys: list[str],
        host_indices: torch.Tensor,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> list[bool]:
        began = time.perf_counter()
        stored = self._tiers[KV].store(keys, _last(extra_info), host_indices)
        self._note("store", sum(stored), began)
        return stored

    def batch_get_v2(
        self,
        transfers: list[PoolTransfer],
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> dict[str, list[bool]]:
        results: dict[str, list[bool]] = {}
        for transfer in transfers:
            keys, tier = transfer.keys or [], self._side(transfer)
            results[transfer.name] = [False] * len(keys)
            if tier:
                results[transfer.name] = tier.load(keys, transfer.host_indices)
        return results

    def batch_set_v2(
        self,
        transfers: list[PoolTransfer],
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> dict[str, list[bool]]:
        results: dict[str, list[bool]] = {}
        for transfer in transfers:
            keys, tier = transfer.keys or [], self._side(transfer)
            results[transfer.name] = [False] * len(keys)
            if tier:
                before, indices = _last(extra_info), transfer.host_indices
                results[transfer.name] = tier.store(keys, before, indices)
        return results

    def get(
        self, key: str, target_location: Any = None, target_sizes: Any = None
    ) -> torch.Tensor | None:
        return self.batch_get([key], None if target_location is None else [target_location])[0]

    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[torch.Tensor | None]:
        tier, pool = self._tiers[KV], self._pools[KV]
        began = time.perf_counter()
        pages = target_locations or [pool.get_dummy_flat_data_page() for _ in keys]
        loaded = tier.load_values(keys, pages)
        self._note("load", sum(loaded), began)
        return [page if has else None for page, has in zip(pages, loaded)]

    def set(
        self,
        key: str,
        value: Any = None,
        target_location: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        return self.batch_set([key], [value])

    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        began = time.perf_counter()
        stored = self._tiers[KV].store_values(keys, values)
        self._note("store", sum(stored), began)
        return all(stored)

    def clear(self) -> None:
        """Removes all pages. SGLang calls it when an operator clears the storage."""
        for tier in list(self._tiers.values()):
            tier.clear()

    def close(self) -> None:
        """Closes the folders. SGLang calls it when it detaches the storage."""
        for tier in list(self._tiers.values()):
            tier.close()

    def counts(self) -> dict[str, dict[str, int]]:
        """Counts of records of each pool since the start."""
        return {name: tier.counts() for name, tier in list(self._tiers.items())}

    def get_stats(self) -> Any:
        """Pages and GiB/s of the calls since the last time, for SGLang's metrics."""
        from sglang.srt.observability.metrics_collector import StorageMetrics

        figures, self._figures = self._figures, {"load": [], "store": []}
        return StorageMetrics(
            prefetch_pgs=[pages for pages, _ in figures["load"]],
            backup_pgs=[pages for pages, _ in figures["store"]],
            prefetch_bandwidth=[speed for _, speed in figures["load"]],
            backup_bandwidth=[speed for _, speed in figures["store"]],
        )

    def _side(self, transfer: PoolTransfer) -> PoolTier | None:
        """The tier of a transfer's pool; `None` without a budget."""
        return self._tiers.get(str(transfer.name))

    def _open(self, names: list[str]) -> None:
        """Opens a tier for each of the pools. They share the budget."""
        budget = self._given["budget_gib"]
        sizes = {name: page_bytes(self._pools[name]) for name in names}
        for name in names:
            pool = self._pools[name]
            if isinstance(budget, dict):
                share = budget.get(name, 0)
            elif self._tiers.keys() - names:
                share = 0
            else:
                share = budget * sizes[name] / sum(sizes.values())
            if not share:
                logger.warning("no budget for the pool %s: its pages are misses", name)
                continue
            rows = direct_rows(pool) if self._is_direct else None
            memory: DirectRows | StagedRows = rows or StagedRows(sizes[name])
            identity = pool_identity(self._rank, name, pool, memory.matrix.shape[1])
            place = Place(
                folder=pathlib.Path(self._given["folder"]) / f"{name}-{identity.hex()}",
                budget_bytes=int(share * GIB),
                identity=identity,
                policy=self._given.get("policy", "hazard"),
            )
            self._tiers[name] = PoolTier(pool, memory, place)

    def _note(self, kind: str, pages: int, began: float) -> None:
        figures = self._figures[kind]
        if self._has_metrics and len(figures) < METRICS_MAX:
            seconds = max(time.perf_counter() - began, 1e-9)
            figures.append((pages, pages * self._tiers[KV].page_bytes / GIB / seconds))


def _rank_identity(config: HiCacheStorageConfig, given: dict[str, Any]) -> bytes:
    from sglang.srt.runtime_context import get_server_args

    try:
        arguments = get_server_args()
    except ValueError:
        # Outside of a server.
        arguments = None
    model = given.get("model") or getattr(arguments, "model_path", None) or config.model_name
    folder = pathlib.Path(model) if model and pathlib.Path(model).is_dir() else None
    revision = given.get("revision")
    if folder is None and revision is None:
        raise ValueError(
            f"HeadstartStorage: {model} is no folder of weights; name the weights with the option "
            "`revision`, for example the commit of the model on the hub"
        )
    return rank_identity(config, arguments, Weights(folder, revision))


def _prefix(extra_info: HiCacheStorageExtraInfo | None) -> list[str]:
    return (extra_info.prefix_keys if extra_info else None) or []


def _last(extra_info: HiCacheStorageExtraInfo | None) -> str | None:
    prefix = _prefix(extra_info)
    return prefix[-1] if prefix else None


def _leading(found: Sequence[bool]) -> int:
    return found.index(False) if False in found else len(found)


def _window(transfer: PoolTransfer, length: int) -> int:
    """Pages that a pool needs at the end of a prefix."""
    if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
        return length
    return min(length, max(1, len(transfer.keys or ())))


def _restorable(found: Sequence[bool], transfer: PoolTransfer) -> set[int]:
    """The lengths of prefixes that a pool can restore."""
    lengths, run = set(), 0
    for length, is_found in enumerate(found, 1):
        run = run + 1 if is_found else 0
        if run >= _window(transfer, length):
            lengths.add(length)
    return lengths
