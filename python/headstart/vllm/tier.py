"""Headstart's tier below vLLM's CPU tier, on disk or in object storage.

    "secondary_tiers": [{"type": "HeadstartTier", "module_path": "headstart.vllm.tier",
                         "folder": "/var/cache/headstart", "budget_gib": 100}]

The list is part of vLLM's `kv_connector_extra_config`, with the spec `HeadstartOffload` or vLLM's
own tiering spec. Set `"kv_load_failure_policy": "recompute"` beside it: then a block that cannot be
read is computed, and no request fails.

| option | meaning |
|---|---|
| `folder` | made if need be; each engine has a folder of its own in it, named by its identity |
| `url` | instead of `folder`: `s3://BUCKET/PREFIX`, or another URL of `headstart serve --context-cache` |
| `budget_gib` | most bytes of one engine on disk, or of all engines of one identity in the store, GiB |
| `policy` | eviction policy, as in `headstart replay --policy` [default: hazard] |
| `revision` | a text that stands for the weights, where no folder of weights is found |
| `fixed_weights` | `true`: the weights never change while the engine runs [default: false] |

vLLM resets its cache when it sleeps, when its weights are updated, and on request. It does not say
which. After a reset the tier neither loads nor stores until a restart, unless `fixed_weights` is
set. The identity has the model, the weights' files or `revision`, the data type and the layout. It
does not have `--hf-overrides`, `--quantization`, or the contents of LoRA adapters, because vLLM
does not tell a tier: change `revision` with them. 0.30 knows an adapter by its name alone.

Each block has a checksum, which is verified before the block reaches vLLM's memory. A block of
other weights, or of another layout, is never found. Blocks survive a restart and a crash. A job
that takes longer than 30 s is reported as failed, and never touches memory afterwards. vLLM hears
of stored and removed blocks as KV events of the medium STORAGE. Engines of one identity share a
store: each finds the blocks of the others within a minute. The list may have a folder and then a
store; a block that both have comes from the first one. 0.30 does not tell the order of a
request's blocks; there all of them count as heads. metrics.py has the metrics.
"""

from __future__ import annotations

import logging
import pathlib
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadingEvent,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from .._native import BlockTier
from .chains import Chains
from .hints import use_of
from .identity import identity_of
from .metrics import TierMetrics, definitions

logger = logging.getLogger("vllm.headstart")

GIB = 1 << 30

REQUESTS_MAX = 4096
"""Requests whose plans are kept while they run."""

WAIT_S = 0.05
"""Wait for a row of the CPU tier where the gain is not known yet."""

ENGINES_MAX = 64
"""Engines of one identity that may use one folder at once."""


class HeadstartTier(SecondaryTierManager):
    """Blocks on disk, for vLLM 0.30 to 0.33."""

    medium = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        *,
        budget_gib: float | None = None,
        folder: str | None = None,
        url: str | None = None,
        policy: str = "hazard",
        revision: str | None = None,
        fixed_weights: bool = False,
        **unknown: Any,
    ) -> None:
        # 0.30 has no detector.
        more = () if backpressure_detector is None else (backpressure_detector,)
        super().__init__(offloading_spec, primary_kv_view, tier_type, *more)
        if unknown:
            raise ValueError(f"HeadstartTier has no option {', '.join(unknown)}")
        check_options(folder, url, budget_gib)
        if not isinstance(fixed_weights, bool):
            raise ValueError(
                f"HeadstartTier: `fixed_weights` is {fixed_weights!r}; give true or false"
            )
        rows = np.asarray(primary_kv_view).view(np.uint8)
        config = offloading_spec.config
        model = pathlib.Path(config.model.name)
        if not model.is_dir() and revision is None:
            raise ValueError(
                f"HeadstartTier: {model} is no folder of weights; name the weights with the option "
                "`revision`, for example the commit of the model on the hub"
            )
        identity = identity_of(config, model if model.is_dir() else None, revision)
        budget_bytes = int(budget_gib * GIB)

        def opened(place: str) -> BlockTier:
            return BlockTier(place, budget_bytes, rows, identity, policy=policy)

        if url is not None:
            self._place = f"{url.rstrip('/')}/{identity.hex()}"
            self._tier = opened(self._place)
        else:
            base = pathlib.Path(folder) / identity.hex()
            self._place, self._tier = open_first_free(base, opened)
        self._chains = Chains(self._tier.capacity)
        self._use = use_of(None, 0)
        self._condition = ""
        self._num_rows = len(rows)
        # With several groups of layers, one group cannot decide for the others.
        self._has_choice = len(config.groups) == 1
        self._plans: OrderedDict[str, LoadPlan] = OrderedDict()
        self._misses: OrderedDict[str, tuple[str, int]] = OrderedDict()
        """Of each request: why it loads no more, and the blocks that it computes."""
        self.offered: bytes | None = None
        """The key that `lookup` found last. The manager clears it."""
        self._has_fixed_weights = fixed_weights
        self._is_off = False
        """vLLM has reset its cache: the weights may be others now."""
        self._has_events = getattr(config, "enable_kv_cache_events", True)
        self._metrics = TierMetrics("disk" if url is None else "store")
        logger.info(
            "tier %s: %d of %d blocks", self._place, len(self._tier), self._tier.capacity
        )

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        return definitions()

    def get_stats(self) -> Any:
        return self._metrics.take(self._tier)

    def lookup(self, key: bytes, req_context: Any) -> LookupResult:
        if self._is_off:
            self.note_miss(key, req_context, "reset")
            return LookupResult.MISS
        found = self._tier.lookup(key)
        if found is None:
            return LookupResult.RETRY
        if not found:
            self.note_miss(key, req_context, self._tier.absence(key))
            return LookupResult.MISS
        if not self._is_worth_loading(key, req_context):
            self.note_miss(key, req_context, "slower")
            return LookupResult.MISS
        self.offered = key
        return LookupResult.HIT

    def submit_store(self, job_metadata: TransferJob) -> None:
        self._see(job_metadata.req_context)
        keys = [] if self._is_off else list(job_metadata.keys)
        parents = [self._chains.before(key) for key in keys]
        rows = [int(row) for row in job_metadata.chunk_ids][: len(keys)]
        self._tier.store(job_metadata.job_id, keys, parents, rows, self._use)

    def submit_load(self, job_metadata: TransferJob, *args: Any, **more: Any) -> None:
        rows = [int(row) for row in job_metadata.chunk_ids]
        self._tier.load(job_metadata.job_id, list(job_metadata.keys), rows)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        results = []
        for job, is_whole, moved, seconds, num_bytes in self._tier.finished():
            result = JobResult(job, is_whole, None if is_whole else moved, seconds)
            if hasattr(result, "transfer_bytes"):
                result.transfer_bytes = num_bytes
            results.append(result)
        if not self._has_events:
            # Nothing asks for them.
            self._tier.changes()
        if self._tier.condition != self._condition:
            self._condition = self._tier.condition
            logger.warning("tier %s: %s", self._place, self._condition or "works again")
        return results

    def has_pending_work(self) -> bool:
        return self._tier.is_busy

    def take_events(self) -> Iterable[OffloadingEvent]:
        for came, changes in groupby(self._tier.changes(), key=itemgetter(1)):
            keys = [key for key, _ in changes]
            yield OffloadingEvent(keys=keys, medium=self.medium, removed=not came)

    def touch(self, keys: Collection[bytes], req_context: Any) -> None:
        # 0.30 and later call it with the chunks of a prompt that the CPU tier has.
        self._see(req_context)

    def on_new_request(self, req_context: Any) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def observe_step(self, entries: list[tuple[int, int]], seconds: float) -> None:
        """The engine computed these prompts in one step: tokens before, and new ones."""
        self._tier.observe_step(entries, seconds)

    def loaded(self, req_context: Any) -> None:
        """The blocks of a request have reached the engine."""
        plan = self._plans.get(req_context.req_id)
        if plan and plan.load_s is not None:
            self._tier.observe_wait(plan.load_s, time.monotonic() - plan.made_at)
            plan.load_s = None

    def note_miss(self, key: bytes, req_context: Any, reason: str) -> None:
        """A request does not load this block, nor those behind it. The last reason counts: vLLM
        looks again for a request that waits."""
        if not self._has_choice or not self._chains.see(req_context):
            return
        chain = self._chains.of(req_context.req_id, key)
        self._misses[req_context.req_id] = reason, len(chain) - self._chains.offset(key)
        if len(self._misses) > REQUESTS_MAX:
            self._misses.popitem(last=False)

    def forget_miss(self, req_context: Any) -> None:
        """Another tier has the block."""
        self._misses.pop(req_context.req_id, None)

    def waits_for_row(self, req_context: Any) -> bool:
        """Whether a request that found the CPU tier full waits: as long as loading its blocks
        saves, from when it was decided."""
        plan = self._plans.get(req_context.req_id)
        gain_s = plan.gain_s if plan and plan.gain_s is not None else WAIT_S
        return plan is not None and time.monotonic() - plan.made_at < gain_s

    def on_request_finished(self, req_context: Any) -> None:
        self._plans.pop(req_context.req_id, None)
        if miss := self._misses.pop(req_context.req_id, None):
            self._metrics.compute(*miss)
        self._use = use_of(req_context, self._use.now)
        for chain in self._chains.end(req_context):
            self._tier.touch(chain, self._use)

    def drain_jobs(self) -> None:
        # vLLM calls it only when it resets its cache.
        self._tier.drain()
        if not self._has_fixed_weights and not self._is_off:
            self._is_off = True
            logger.warning(
                "tier %s: vLLM has reset its cache, perhaps for other weights; nothing is loaded "
                "or stored until a restart. Set `fixed_weights` if the weights never change.",
                self._place,
            )

    def shutdown(self) -> None:
        self._tier.close()

    def _is_worth_loading(self, key: bytes, req_context: Any) -> bool:
        """Decides once for each request, when its first block is found here."""
        plan = self._plans.get(req_context.req_id)
        if plan is None:
            plan = self._plans[req_context.req_id] = self._plan(key, req_context)
            if len(self._plans) > REQUESTS_MAX:
                self._plans.popitem(last=False)
        return plan.end is None or self._chains.offset(key) < plan.end

    def _plan(self, key: bytes, req_context: Any) -> LoadPlan:
        now = time.monotonic()
        block_tokens = self._chains.see(req_context) if self._has_choice else 0
        if not block_tokens:
            return LoadPlan(None, None, None, now)
        chain = self._chains.of(req_context.req_id, key)
        first = self._chains.offset(key)
        # A run that does not fit the CPU tier would evict its own head, again and again.
        units, load_s, gain_s = self._tier.advise(
            chain[first:],
            self._num_rows - 1,
            first * block_tokens,
            block_tokens,
            # Of the tail that is no whole block, its mean length.
            len(chain) * block_tokens + block_tokens // 2,
        )
        return LoadPlan(first + units, load_s, gain_s, now)

    def _see(self, req_context: Any) -> None:
        self._use = use_of(req_context, self._use.now)
        self._chains.see(req_context)


def check_options(folder: Any, url: Any, budget_gib: Any) -> None:
    """`ValueError`: an option is missing or wrong. Names it and says what to give."""

    def wrong(option: str, value: object, wanted: str) -> ValueError:
        return ValueError(f"HeadstartTier: `{option}` is {value!r}; give {wanted}")

    if (folder is None) == (url is None):
        raise ValueError("HeadstartTier needs either `folder` or `url`, and not both")
    if folder is not None and (not isinstance(folder, str) or not folder or "://" in folder):
        raise wrong("folder", folder, "a path, or `url` in its place")
    if url is not None and (not isinstance(url, str) or "://" not in url):
        raise wrong("url", url, "s3://BUCKET/PREFIX, gs://, az:// or file:///FOLDER")
    is_number = isinstance(budget_gib, (int, float)) and not isinstance(budget_gib, bool)
    if not is_number or not 0 < budget_gib < float("inf"):
        raise wrong("budget_gib", budget_gib, "a number above 0, GiB")


def open_first_free(
    folder: pathlib.Path, open_tier: Callable[[str], BlockTier]
) -> tuple[str, BlockTier]:
    """Opens the first folder that no other engine uses: `folder`, then `folder-1`, `folder-2`, …

    Engines of one identity, such as data-parallel replicas on one machine, cannot share a folder.
    After a restart each finds one that an engine like it has filled. Raises the `OSError` of a
    folder that cannot be used.
    """
    for number in range(ENGINES_MAX):
        path = folder.with_name(f"{folder.name}-{number}") if number else folder
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"HeadstartTier: `folder` cannot be used: {error}") from error
        try:
            return str(path), open_tier(str(path))
        except BlockingIOError:
            continue
    raise OSError(f"{ENGINES_MAX} engines use folders like {folder}; name another folder")


@dataclass
class LoadPlan:
    """How far the blocks of a request are loaded."""

    end: int | None
    """The number of the first block that is computed; `None`: as far as blocks are there."""
    load_s: float | None
    """Predicted seconds until they have reached the engine; `None` once they have."""
    gain_s: float | None
    """Predicted seconds that loading saves."""
    made_at: float
