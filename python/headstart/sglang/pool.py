"""The pages of one host pool on disk.

    SGLang's threads ── store, load ──► BlockTier ──► a thread that moves the bytes
          └─── wait for their job ◄── finished ──┘

SGLang's calls wait for their bytes. Several of its threads call at once. Each submits its own job.
A thread that checks for ended jobs also notes those of the others.
"""

from __future__ import annotations

import hashlib
import logging
import pathlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from .._native import BlockTier, Use
from .rows import DirectRows, StagedRows, bytes_of_page

logger = logging.getLogger("sglang.headstart")

NAME_BYTES = 16

WAIT_S = 40.0
"""The longest wait for a job. The tier gives a job up after 30 s, so a later one is a fault."""

PAUSE_S = (50e-6, 1e-3)
"""The pause between two checks for a job's end: the first one, and the longest."""


@dataclass(frozen=True)
class Place:
    """Where the tier keeps the pages, and how."""

    folder: pathlib.Path
    budget_bytes: int
    identity: bytes
    policy: str


class PoolTier:
    """Pages of one pool on disk. Any thread may call any function."""

    def __init__(self, pool: Any, memory: DirectRows | StagedRows, place: Place) -> None:
        self._pool = pool
        self._memory = memory
        self._place = place
        self._page_size = getattr(pool, "page_size", 1) or 1
        self._dtype = pool.get_dummy_flat_data_page().dtype
        # For each direction, where pages are staged.
        self._staging = {"store": threading.Lock(), "load": threading.Lock()}
        # For all below it.
        self._lock = threading.Lock()
        self._condition = ""
        self._last_job = 0
        self._last_ns = 0
        self._ended: dict[int, set[bytes]] = {}
        self._is_closed = False
        self._tier = self._opened()
        logger.info(
            "disk tier %s: %d of %d records, %d for each page; pages are %s",
            place.folder,
            len(self._tier),
            self._tier.capacity,
            memory.pieces,
            "moved in place" if isinstance(memory, DirectRows) else "staged",
        )

    @property
    def capacity(self) -> int:
        """Pages that fit the budget."""
        with self._lock:
            return self._tier.capacity // self._memory.pieces

    @property
    def page_bytes(self) -> int:
        """Bytes of a page."""
        return self._memory.pieces * self._memory.matrix.shape[1]

    def counts(self) -> dict[str, int]:
        """Counts of records since the start, as `BlockTier` has them."""
        with self._lock:
            return dict(self._tier.counts())

    def found(self, keys: Sequence[str]) -> list[bool]:
        """Whether each page can be loaded."""
        names = [self._names(key) for key in keys]
        with self._lock:
            if self._is_closed:
                return [False] * len(keys)
            here = [all(self._tier.lookup(name) for name in each) for each in names]
            # Nobody asks for them.
            self._tier.changes()
            return here

    def touch(self, keys: Sequence[str]) -> None:
        """One request's use of the pages of its prompt, in order from the first."""
        names = [name for key in keys for name in self._names(key)]
        with self._lock:
            self._tier.touch(names, self._use())

    def store(self, keys: Sequence[str], before: str | None, indices: Any) -> list[bool]:
        """Stores consecutive pages of the pool, behind the page `before`; `indices` are their
        slots. Returns whether each is on disk now."""
        slots = self._first_slots(keys, indices)
        if slots is None:
            return [False] * len(keys)
        if isinstance(self._memory, DirectRows):
            return self._store(keys, before, [self._memory.rows(slot) for slot in slots])
        return self._store_staged(keys, before, lambda at: self._pool.get_data_page(slots[at]))

    def load(self, keys: Sequence[str], indices: Any) -> list[bool]:
        """Loads pages into the slots `indices`. Returns whether each is there. The caller must not
        use the slots of a page that is not."""
        slots = self._first_slots(keys, indices)
        if slots is None:
            return [False] * len(keys)
        if isinstance(self._memory, DirectRows):
            return self._load(keys, [self._memory.rows(slot) for slot in slots])
        return self._load_staged(
            keys, lambda at, page: self._pool.set_from_flat_data_page(slots[at], page)
        )

    def store_values(self, keys: Sequence[str], values: Sequence[Any]) -> list[bool]:
        """Stores consecutive flat pages."""
        if isinstance(self._memory, StagedRows):
            return self._store_staged(keys, None, lambda at: values[at])
        with self._borrowed(len(keys)) as indices:
            for slot, value in zip(self._first_slots(keys, indices) or [], values):
                self._pool.set_from_flat_data_page(slot, value)
            return self.store(keys, None, indices)

    def load_values(self, keys: Sequence[str], values: Sequence[Any]) -> list[bool]:
        """Loads flat pages into tensors. Without its page, a tensor stays as it is."""

        def write(at: int, page: Any) -> None:
            values[at].copy_(page.reshape(values[at].shape))

        if isinstance(self._memory, StagedRows):
            return self._load_staged(keys, write)
        with self._borrowed(len(keys)) as indices:
            loaded = self.load(keys, indices)
            for at, slot in enumerate(self._first_slots(keys, indices) or []):
                if loaded[at]:
                    write(at, self._pool.get_data_page(slot))
            return loaded

    def clear(self) -> None:
        """Removes all pages. Jobs under way fail. Does nothing once closed: the folder may be
        another process's by then. If the folder cannot be emptied, the tier stays closed."""
        with self._lock:
            if self._is_closed:
                return
            self._close()
            try:
                # A removed record may be back after a restart, so the files go too.
                with suppress(FileNotFoundError):
                    shutil.rmtree(self._place.folder)
                self._tier = self._opened()
            except OSError as error:
                # SGLang's scheduler calls this, and ends with an exception.
                logger.error("disk tier %s is closed: %s", self._place.folder, error)
                return
            self._is_closed = False

    def close(self) -> None:
        """Fails the running jobs and closes the folder. Every page is a miss afterwards."""
        with self._lock:
            self._close()

    def _opened(self) -> BlockTier:
        place = self._place
        place.folder.mkdir(parents=True, exist_ok=True)
        return BlockTier(
            place.folder,
            place.budget_bytes,
            self._memory.matrix,
            place.identity,
            policy=place.policy,
            block_tokens=self._page_size,
        )

    def _close(self) -> None:
        self._is_closed = True
        self._tier.close()
        self._collect()

    def _names(self, key: str) -> list[bytes]:
        pieces = range(self._memory.pieces)
        digests = (hashlib.sha256(f"{piece}/{key}".encode()) for piece in pieces)
        return [digest.digest()[:NAME_BYTES] for digest in digests]

    def _first_slots(self, keys: Sequence[str], indices: Any) -> list[int] | None:
        """The first slot of each page; `None` if the slots do not fit the keys."""
        count = 0 if indices is None else len(indices)
        if count != len(keys) * self._page_size:
            logger.error("%d slots for %d pages of %d", count, len(keys), self._page_size)
            return None
        return [int(slot) for slot in indices[:: self._page_size]] if count else []

    @contextmanager
    def _borrowed(self, count: int) -> Iterator[Any]:
        """Pages of the pool for a while, because the tier moves only those; `None` if full."""
        indices = self._pool.alloc(count * self._page_size)
        try:
            yield indices
        finally:
            if indices is not None:
                self._pool.free(indices)

    def _store(
        self, keys: Sequence[str], before: str | None, rows: Sequence[Sequence[int]]
    ) -> list[bool]:
        pages = [self._names(key) for key in keys]
        names = [name for page in pages for name in page]
        head = None if before is None else self._names(before)[-1]
        # The pieces of a page are links of the chain, so that its last piece goes first.
        parents = [head, *names[:-1]]
        flat = [row for page in rows for row in page]
        stored = self._move(lambda job: self._tier.store(job, names, parents, flat, self._use()))
        return [all(name in stored or self._is_here(name) for name in page) for page in pages]

    def _load(self, keys: Sequence[str], rows: Sequence[Sequence[int]]) -> list[bool]:
        pages = [self._names(key) for key in keys]
        names = [name for page in pages for name in page]
        flat = [row for page in rows for row in page]
        loaded = self._move(lambda job: self._tier.load(job, names, flat))
        return [all(name in loaded for name in page) for page in pages]

    def _store_staged(
        self, keys: Sequence[str], before: str | None, read: Callable[[int], Any]
    ) -> list[bool]:
        stored: list[bool] = []
        count = self._memory.count
        with self._staging["store"]:
            for first in range(0, len(keys), count):
                part = keys[first : first + count]
                for row in range(len(part)):
                    self._memory.matrix[row] = bytes_of_page(read(first + row))
                stored += self._store(part, before, [[row] for row in range(len(part))])
                before = part[-1]
        return stored

    def _load_staged(self, keys: Sequence[str], write: Callable[[int, Any], None]) -> list[bool]:
        import torch

        loaded: list[bool] = []
        count = self._memory.count
        with self._staging["load"]:
            for first in range(0, len(keys), count):
                part = keys[first : first + count]
                rows = [count + at for at in range(len(part))]
                done = self._load(part, [[row] for row in rows])
                for at, row in enumerate(rows):
                    if done[at]:
                        page = torch.from_numpy(self._memory.matrix[row]).view(self._dtype)
                        write(first + at, page)
                loaded += done
        return loaded

    def _use(self) -> Use:
        """A use now; the caller holds the lock, so that the time never falls."""
        self._last_ns = max(self._last_ns, time.monotonic_ns())
        return Use(self._last_ns)

    def _move(self, submit: Callable[[int], object]) -> set[bytes]:
        """Runs one job to its end. Returns the names of the moved records."""
        with self._lock:
            self._last_job += 1
            job = self._last_job
            submit(job)
        deadline, pause = time.monotonic() + WAIT_S, PAUSE_S[0]
        while True:
            with self._lock:
                self._collect()
                if job not in self._ended and time.monotonic() > deadline:
                    logger.error("disk tier %s hangs, and is closed", self._place.folder)
                    # Afterwards no memory of the pool is touched.
                    self._close()
                if job in self._ended:
                    return self._ended.pop(job)
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_S[1])

    def _is_here(self, name: bytes) -> bool:
        """Whether a record is on disk. Waits for another thread's job that writes it."""
        deadline = time.monotonic() + WAIT_S
        while True:
            with self._lock:
                self._collect()
                found = self._tier.lookup(name)
            if found is not None or time.monotonic() > deadline:
                return bool(found)
            time.sleep(PAUSE_S[1])

    def _collect(self) -> None:
        """Notes the ended jobs; the caller holds the lock."""
        for job, _, moved, _, _ in self._tier.finished():
            self._ended[job] = set(moved)
        self._tier.changes()
        if self._tier.condition != self._condition:
            self._condition = self._tier.condition
            logger.warning(
                "disk tier %s: %s", self._place.folder, self._condition or "works again"
            )
