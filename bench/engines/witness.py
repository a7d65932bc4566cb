"""Secondary tiers under a witness: each block that a tier loads is compared with those stored.

vLLM loads a tier by module path, so `{"type": "WitnessedHeadstart", "module_path": "witness", …}`
puts the witness between vLLM and the tier. It notes a digest of each block's bytes before the tier
stores it, and compares the bytes of a row after the tier reports it as loaded. A key that is
computed twice can have two digests, because batches round differently.

HEADSTART_WITNESS names a folder. `stored` in it has a line for each stored block, which outlives a
killed process; `wrong` has one for each loaded block whose bytes were never stored under its key.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections import defaultdict
from typing import Any

import numpy as np
from choices import AlwaysLoads
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager


class _Witness:
    """What both tiers get; the tier itself is the next class."""

    def __init__(self, *args: Any, primary_kv_view: memoryview, **options: Any) -> None:
        super().__init__(*args, primary_kv_view=primary_kv_view, **options)
        self._bytes = np.asarray(primary_kv_view).view(np.uint8)
        self._loading: dict[int, list[tuple[bytes, int]]] = {}
        folder = pathlib.Path(os.environ["HEADSTART_WITNESS"])
        self._digests: dict[str, set[str]] = defaultdict(set)
        if (folder / "stored").exists():
            for line in (folder / "stored").read_text().splitlines():
                key, _, digest = line.partition(" ")
                self._digests[key].add(digest)
        self._stored = (folder / "stored").open("ab", buffering=0)
        self._wrong = (folder / "wrong").open("ab", buffering=0)
        self._loaded = (folder / "loaded").open("ab", buffering=0)

    def submit_store(self, job_metadata: Any) -> None:
        lines = []
        for key, row in zip(job_metadata.keys, job_metadata.chunk_ids, strict=True):
            digest = self._digest(int(row))
            if digest not in self._digests[key.hex()]:
                self._digests[key.hex()].add(digest)
                lines.append(f"{key.hex()} {digest}\n")
        self._stored.write("".join(lines).encode())
        super().submit_store(job_metadata)

    def submit_load(self, job_metadata: Any, *args: Any, **options: Any) -> None:
        rows = [int(row) for row in job_metadata.chunk_ids]
        self._loading[job_metadata.job_id] = list(zip(job_metadata.keys, rows, strict=True))
        super().submit_load(job_metadata, *args, **options)

    def get_finished_jobs(self) -> list[Any]:
        results = list(super().get_finished_jobs())
        for result in results:
            blocks = self._loading.pop(result.job_id, [])
            if not result.success:
                whole = set(result.successful_keys or ())
                blocks = [(key, row) for key, row in blocks if key in whole]
            for key, row in blocks:
                if self._digest(row) not in self._digests[key.hex()]:
                    self._wrong.write(f"{key.hex()}\n".encode())
            self._loaded.write(b"." * len(blocks))
        return results

    def _digest(self, row: int) -> str:
        return hashlib.blake2b(self._bytes[row].tobytes(), digest_size=16).hexdigest()


class WitnessedHeadstart(_Witness, AlwaysLoads):
    """Headstart's tier. It loads all that it has, or a small model would compute most of it."""


class WitnessedFs(_Witness, FileSystemTierManager):
    """vLLM's `fs` tier."""
