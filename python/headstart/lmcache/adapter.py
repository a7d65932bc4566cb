"""Headstart's disk tier as an L2 adapter of LMCache's multi-process server.

    --l2-adapter '{"type": "plugin", "module_path": "headstart.lmcache.adapter",
                   "class_name": "HeadstartL2Adapter",
                   "adapter_params": {"folder": "/var/cache/headstart", "budget_gib": 100}}'

| option | meaning |
|---|---|
| `folder` | created if it does not exist; one server at a time uses it |
| `budget_gib` | most bytes on disk, GiB |
| `policy` | eviction policy, as in `headstart replay --policy` [default: hazard] |
| `row_kib` | bytes of a record, KiB; smaller objects are not stored [default: 256] |
| `revision` | a text that stands for the weights; change it when they change [default: empty] |

Each record has a checksum. The tier verifies it before the bytes reach LMCache's memory. The load
of a damaged object fails. The name of an object covers its key, shapes, data types and length.
Objects survive a restart and a crash. A task fails after 30 s.

The tier reads and writes LMCache's L1 buffer itself. So all objects must lie in that buffer. The
adapter refuses an L1 without one.

A lookup locks the objects that it finds. A locked object is neither evicted nor deleted. Locks
count, and all locks of an object end 60 s after the last lookup that found it.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import pathlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from lmcache.lmcache_native import Bitmap
from lmcache.v1.distributed.internal_api import L2StoreResult
from lmcache.v1.distributed.l2_adapters.base import AdapterUsage, L2AdapterInterface
from lmcache.v1.platform import create_event_notifier

from .._native import BlockTier, Use
from .parts import Layout, keys_of, layout_of, layout_of_object, name_of, offsets_of

if TYPE_CHECKING:
    from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
    from lmcache.v1.distributed.internal_api import L1MemoryDesc
    from lmcache.v1.memory_management import MemoryObj

logger = logging.getLogger("lmcache.headstart")

GIB = 1 << 30

FORMAT = 1
"""Counts changes of what a name or a record contains."""

OPTIONS = ("folder", "budget_gib", "policy", "row_kib", "revision")

SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.0002, 0.002
"""Pauses between two checks of running jobs. The tier cannot wake a thread of Python."""

LOCK_S = 60.0
"""A lock's longest time. LMCache loads for 30 s at most; a caller may fail and never unlock."""

MOST_LINKS = 1 << 16
"""Objects of which the adapter remembers the place in a prompt, from the lookup to the store."""


@dataclass
class ObjectParts:
    """An object on its way, or on the disk."""

    key: ObjectKey
    layout: Layout
    name: bytes
    parts: list[bytes]
    """Keys of its records."""
    rows: list[int] = field(default_factory=list)


@dataclass
class AdapterTask:
    """A running store or load."""

    is_store: bool
    objects: list[ObjectParts | None]
    """In the order of the task's keys; `None` for an object that cannot be moved."""


@dataclass
class ObjectLock:
    """The lookups that keep an object."""

    count: int = 0
    end_s: float = 0.0
    """When the lock ends without an unlock, on the monotonic clock."""


@dataclass
class AdapterNews:
    """What LMCache hears, in this order."""

    deleted: list[ObjectParts] = field(default_factory=list)
    stored: list[ObjectParts] = field(default_factory=list)
    accessed: list[ObjectKey] = field(default_factory=list)
    signals: list[Any] = field(default_factory=list)


class HeadstartL2Adapter(L2AdapterInterface):
    """Objects on disk, for LMCache 0.5.6. Any thread may call any method."""

    def __init__(
        self, config: dict[str, Any], l1_memory_desc: L1MemoryDesc | None = None
    ) -> None:
        # 0 keeps LMCache from evicting here, which the tier's policy does.
        super().__init__(max_capacity_bytes=0)
        check_options(config, l1_memory_desc)
        self._row_bytes = int(config.get("row_kib", 256) * 1024)
        self._budget_bytes = int(config["budget_gib"] * GIB)
        self._base = l1_memory_desc.ptr
        self._end = l1_memory_desc.ptr + l1_memory_desc.size
        self._folder = pathlib.Path(config["folder"])
        self._folder.mkdir(parents=True, exist_ok=True)
        identity = f"lmcache {FORMAT} {self._row_bytes} {config.get('revision', '')}"
        self._tier = BlockTier(
            self._folder,
            self._budget_bytes,
            rows_of(l1_memory_desc, self._row_bytes),
            hashlib.sha256(identity.encode()).digest()[:16],
            policy=config.get("policy", "hazard"),
        )
        if self._tier.capacity == 0:
            self._tier.close()
            raise ValueError("HeadstartL2Adapter: `row_kib` is too large for `budget_gib`")
        self._wake = threading.Condition(threading.Lock())
        self._is_closed = False
        self._last_task = 0
        self._running: dict[int, AdapterTask] = {}
        self._stores: dict[int, L2StoreResult] = {}
        self._lookups: dict[int, Bitmap] = {}
        self._loads: dict[int, Bitmap] = {}
        self._resident: dict[bytes, ObjectParts] = {}
        self._names: dict[ObjectKey, set[bytes]] = {}
        # The lock that ends first stands first.
        self._locks: OrderedDict[bytes, ObjectLock] = OrderedDict()
        # The thread alone tells LMCache, so that it hears of changes in their order.
        self._news: list[AdapterNews] = []
        self._layouts: dict[tuple[str, int], Layout] = {}
        self._parents: OrderedDict[bytes, bytes] = OrderedDict()
        self._has_refused_object = False
        self._condition = ""
        self._store_signal = create_event_notifier()
        self._lookup_signal = create_event_notifier()
        self._load_signal = create_event_notifier()
        self._thread = threading.Thread(target=self._run, name="headstart-lmcache", daemon=True)
        self._thread.start()
        place = (self._folder, len(self._tier), self._tier.capacity, self._row_bytes >> 10)
        logger.info("disk tier %s: %d of %d records of %d KiB", *place)

    def get_store_event_fd(self) -> int:
        """The descriptor for finished stores."""
        return self._store_signal.fileno()

    def get_lookup_and_lock_event_fd(self) -> int:
        """The descriptor for finished lookups."""
        return self._lookup_signal.fileno()

    def get_load_event_fd(self) -> int:
        """The descriptor for finished loads."""
        return self._load_signal.fileno()

    def submit_store_task(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> int:
        """Stores objects, and does not write again what is on the disk. If one object cannot be
        stored or finds no room, the task fails, and the others are stored nevertheless."""
        task = AdapterTask(True, self._objects(keys, objects))
        parts, parents, rows = [], [], []
        with self._wake:
            for item in filter(None, task.objects):
                # From the last part to part 0: the tier evicts and refuses ends of chains first,
                # so that an object with a part 0 has all parts.
                chain = item.parts[::-1]
                parts += chain
                parents += [self._parents.pop(item.name, None), *chain[:-1]]
                rows += item.rows[::-1]
            self._end_old_locks()
            number = self._begin(task)
            self._tier.store(number, parts, parents, rows, use())
            self._settle(AdapterNews())
        return number

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        """The stores that ended since the last call."""
        with self._wake:
            ended, self._stores = self._stores, {}
        return ended

    def submit_lookup_and_lock_task(
        self, keys: list[ObjectKey], group_layout_descs: dict[int, MemoryLayoutDesc]
    ) -> int:
        """Looks objects up and locks those that it finds. They count as used now."""
        bitmap = Bitmap(len(keys))
        found: list[ObjectParts] = []
        with self._wake:
            self._check_open()
            self._end_old_locks()
            number = self._next()
            previous = None
            for at, key in enumerate(keys):
                likely = self._likely(key, group_layout_descs.get(key.object_group_id))
                item = next((item for item in likely if self._has(item)), None)
                if item is not None:
                    bitmap.set(at)
                    found.append(item)
                elif likely and previous is not None and family_of(previous.key) == family_of(key):
                    self._parents[likely[0].name] = previous.parts[0]
                previous = item or next(iter(likely), None)
            while len(self._parents) > MOST_LINKS:
                self._parents.popitem(last=False)
            for _, prompt in groupby(found, key=lambda item: family_of(item.key)):
                self._tier.touch([part for item in prompt for part in item.parts[::-1]], use())
            self._lookups[number] = bitmap
            self._settle(AdapterNews(), found)
            for item in found:
                self._lock(item)
            self._lookup_signal.notify()
        return number

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        """The objects found by a lookup; `None` after the first answer."""
        with self._wake:
            return self._lookups.pop(task_id, None)

    def submit_unlock(self, keys: list[ObjectKey]) -> None:
        """Ends one lock of each object."""
        with self._wake:
            for key in keys:
                name = next((name for name in self._names_of(key) if name in self._locks), None)
                if name is None:
                    # Its time was over, or the object was damaged.
                    continue
                self._locks[name].count -= 1
                if not self._locks[name].count:
                    self._unlock(name)

    def submit_load_task(self, keys: list[ObjectKey], objects: list[MemoryObj]) -> int:
        """Loads objects. After a failure an object's memory may hold some of its bytes."""
        task = AdapterTask(False, self._objects(keys, objects))
        items = [item for item in task.objects if item is not None]
        parts = [part for item in items for part in item.parts]
        rows = [row for item in items for row in item.rows]
        with self._wake:
            number = self._begin(task)
            self._tier.load(number, parts, rows)
        return number

    def query_load_result(self, task_id: int) -> Bitmap | None:
        """The loaded objects; `None` before the end, and after the first answer."""
        with self._wake:
            return self._loads.pop(task_id, None)

    def delete(self, keys: list[ObjectKey]) -> None:
        """Deletes objects. Those that are locked, or being stored or loaded, stay. LMCache's
        quotas call this, and call it again for what stayed."""
        with self._wake:
            self._end_old_locks()
            items = {name: self._resident[name] for key in keys for name in self._names_of(key)}
            for key in keys:
                # Found by no lookup since the start.
                items |= {item.name: item for item in self._likely(key, None)}
            # The tier keeps what is locked or being loaded, and a store under way ends whole.
            idle = [
                item
                for item in items.values()
                if all(self._tier.lookup(part) is not None for part in item.parts)
            ]
            self._tier.remove([part for item in idle for part in item.parts])
            self._settle(AdapterNews())

    def get_memory_tags(self) -> Any:
        """Storage of this host. LMCache 0.5.7 asks."""
        from lmcache.v1.distributed.api import MemoryResidency, MemorySegment, MemoryTags

        return MemoryTags(MemorySegment.STORAGE, MemoryResidency.LOCAL)

    def get_usage(self) -> AdapterUsage:
        """Bytes of records, exact also after a restart; bytes of each salt since the start."""
        by_salt = super().get_usage().bytes_by_cache_salt
        with self._wake:
            used = len(self._tier) * self._row_bytes
            capacity = self._tier.capacity * self._row_bytes
        return AdapterUsage(used, capacity, MappingProxyType(dict(by_salt)))

    def report_status(self) -> dict[str, Any]:
        """Whether the folder works, and counts of records since the start."""
        with self._wake:
            return {
                "is_healthy": not self._is_closed and not self._condition,
                "condition": self._condition,
                "folder": str(self._folder),
                "budget_bytes": self._budget_bytes,
                "records": len(self._tier),
                "capacity_records": self._tier.capacity,
                "tasks_running": len(self._running),
                "locked_objects": len(self._locks),
                **dict(self._tier.counts()),
            }

    def close(self) -> None:
        """Fails the running tasks and closes the folder. The tier touches no memory afterwards."""
        with self._wake:
            if self._is_closed:
                return
            self._is_closed = True
            self._tier.close()
            self._take()
            self._wake.notify_all()
        self._thread.join()
        for news in self._news:
            self._announce(news)
        for signal in (self._store_signal, self._lookup_signal, self._load_signal):
            signal.close()

    def _run(self) -> None:
        """Takes the results of jobs and tells LMCache, until closed."""
        wait_s = SHORTEST_WAIT_S
        while True:
            with self._wake:
                while not (self._running or self._news or self._is_closed):
                    self._wake.wait()
                    wait_s = SHORTEST_WAIT_S
                if self._is_closed:
                    return
                self._take()
                all_news, self._news = self._news, []
            for news in all_news:
                self._announce(news)
            if any(news.signals for news in all_news):
                wait_s = SHORTEST_WAIT_S
            else:
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _take(self) -> None:
        """Turns ended jobs into results. The caller holds the lock."""
        news, fresh = AdapterNews(), []
        for number, is_whole, moved, _, _ in self._tier.finished():
            task, moved = self._running.pop(number), set(moved)
            if task.is_store:
                fresh += filter(None, task.objects)
                self._stores[number] = self._stored(task, is_whole, moved)
                news.signals.append(self._store_signal)
                continue
            bitmap = Bitmap(len(task.objects))
            for at, item in enumerate(task.objects):
                if item is not None and moved.issuperset(item.parts):
                    bitmap.set(at)
                    news.accessed.append(item.key)
            self._loads[number] = bitmap
            news.signals.append(self._load_signal)
        if self._tier.condition != self._condition:
            self._condition = self._tier.condition
            logger.warning("disk tier %s: %s", self._folder, self._condition or "works again")
        self._settle(news, fresh)

    def _stored(self, task: AdapterTask, is_whole: bool, moved: set[bytes]) -> L2StoreResult:
        items = [item for item in task.objects if item is not None]
        is_stored = is_whole and len(items) == len(task.objects) and all(
            self._tier.lookup(part) is not False for item in items for part in item.parts
        )
        new = sum(item.layout.num_bytes for item in items if item.parts[0] in moved)
        return L2StoreResult(is_stored, new)

    def _settle(self, news: AdapterNews, fresh: Sequence[ObjectParts] = ()) -> None:
        """Updates the objects on the disk; `fresh` are candidates for new ones. An object is on
        the disk while all its parts are."""
        for name in {part[:16] for part, came in self._tier.changes() if not came}:
            if name in self._resident:
                if name in self._locks:
                    self._unlock(name)
                item = self._resident.pop(name)
                news.deleted.append(item)
                self._names[item.key].discard(name)
                if not self._names[item.key]:
                    del self._names[item.key]
        for item in fresh:
            if item.name not in self._resident and self._has(item):
                news.stored.append(item)
                self._resident[item.name] = item
                self._names.setdefault(item.key, set()).add(item.name)
        # Keys that the tier has learned from the lookups.
        self._tier.changes()
        if news != AdapterNews():
            self._news.append(news)
            self._wake.notify_all()

    def _names_of(self, key: ObjectKey) -> Iterable[bytes]:
        """The objects on the disk under a key: one for each layout."""
        return self._names.get(key, ())

    def _lock(self, item: ObjectParts) -> None:
        """Keeps an object on the disk."""
        if item.name not in self._locks:
            self._tier.pin(item.parts)
        lock = self._locks.setdefault(item.name, ObjectLock())
        lock.count += 1
        lock.end_s = time.monotonic() + LOCK_S
        self._locks.move_to_end(item.name)

    def _unlock(self, name: bytes) -> None:
        del self._locks[name]
        self._tier.unpin(self._resident[name].parts)

    def _end_old_locks(self) -> None:
        now_s = time.monotonic()
        while self._locks and next(iter(self._locks.values())).end_s <= now_s:
            self._unlock(next(iter(self._locks)))

    def _announce(self, news: AdapterNews) -> None:
        """Tells listeners, then signals results. No lock is held: listeners may call back."""
        for tell, items in (
            (self._notify_keys_deleted, news.deleted),
            (self._notify_keys_stored, news.stored),
        ):
            if items:
                keys, sizes = [it.key for it in items], [it.layout.num_bytes for it in items]
                self._tell(tell, keys, sizes)
        if news.accessed:
            self._tell(self._notify_keys_accessed, news.accessed)
        for signal in news.signals:
            signal.notify()

    def _tell(self, tell: Callable[..., None], *about: object) -> None:
        try:
            tell(*about)
        except Exception:
            # A listener of LMCache has failed; others wait for results.
            logger.exception("a listener failed")

    def _next(self) -> int:
        self._last_task += 1
        return self._last_task

    def _check_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("HeadstartL2Adapter is closed")

    def _begin(self, task: AdapterTask) -> int:
        self._check_open()
        number = self._next()
        for item in filter(None, task.objects):
            self._layouts[item.key.model_name, item.key.object_group_id] = item.layout
        self._running[number] = task
        self._wake.notify_all()
        return number

    def _objects(
        self, keys: list[ObjectKey], objects: list[MemoryObj]
    ) -> list[ObjectParts | None]:
        items: list[ObjectParts | None] = []
        for key, memory in zip(keys, objects, strict=True):
            layout, start = layout_of_object(memory), memory.data_ptr
            is_inside = self._base <= start and start + layout.num_bytes <= self._end
            if not is_inside or layout.num_bytes < self._row_bytes:
                self._refuse(layout)
                items.append(None)
                continue
            item = self._parts(key, layout)
            offsets = offsets_of(layout.num_bytes, self._row_bytes)
            item.rows = [start - self._base + offset for offset in offsets]
            items.append(item)
        return items

    def _refuse(self, layout: Layout) -> None:
        if not self._has_refused_object:
            self._has_refused_object = True
            logger.error(
                "an object of %d bytes is shorter than `row_kib` (%d KiB), or outside of the L1 "
                "buffer; such objects are neither stored nor loaded",
                layout.num_bytes,
                self._row_bytes >> 10,
            )

    def _parts(self, key: ObjectKey, layout: Layout) -> ObjectParts:
        name = name_of(key, layout)
        count = len(offsets_of(layout.num_bytes, self._row_bytes))
        return ObjectParts(key, layout, name, keys_of(name, count))

    def _likely(self, key: ObjectKey, told: MemoryLayoutDesc | None) -> list[ObjectParts]:
        """A key's objects in the layout of the lookup, and in the layout seen last. A serializer
        of LMCache changes the layout, and LMCache's benchmark passes no layout."""
        seen = self._layouts.get((key.model_name, key.object_group_id))
        layouts = [layout_of(told.shapes, told.dtypes)] if told and told.shapes else []
        layouts += [seen] if seen and seen not in layouts else []
        long = [layout for layout in layouts if layout.num_bytes >= self._row_bytes]
        return [self._parts(key, layout) for layout in long]

    def _has(self, item: ObjectParts) -> bool:
        """Whether all parts can be loaded; a part under way to the disk cannot."""
        return all(self._tier.lookup(part) for part in item.parts)


def check_options(config: dict[str, Any], l1_memory_desc: L1MemoryDesc | None) -> None:
    """Raises `ValueError` for unusable options or an unusable L1."""
    unknown = [name for name in config if name not in OPTIONS]
    if unknown:
        raise ValueError(f"HeadstartL2Adapter has no option {', '.join(unknown)}")
    for name in ("folder", "budget_gib"):
        if name not in config:
            raise ValueError(f"HeadstartL2Adapter needs the option `{name}`")
    if l1_memory_desc is None:
        raise ValueError("HeadstartL2Adapter needs an L1 that is one buffer in host memory")
    if not 0 < config.get("row_kib", 256) * 1024 <= l1_memory_desc.size:
        raise ValueError("HeadstartL2Adapter: `row_kib` is not positive, or larger than the L1")


def rows_of(l1: L1MemoryDesc, row_bytes: int) -> np.ndarray:
    """The L1 buffer as a matrix with a row at each byte: rows overlap, and any part is a row."""
    memory = np.frombuffer((ctypes.c_uint8 * l1.size).from_address(l1.ptr), np.uint8)
    shape = (l1.size - row_bytes + 1, row_bytes)
    return np.lib.stride_tricks.as_strided(memory, shape, (1, 1))


def family_of(key: ObjectKey) -> tuple[str, int, int, str]:
    """Equal for all objects of one prompt within a group and a rank."""
    return key.model_name, key.kv_rank, key.object_group_id, key.cache_salt


def use() -> Use:
    """A use now."""
    return Use(time.monotonic_ns())
