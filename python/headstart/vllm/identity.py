"""The identity of KV blocks: all that decides about their bytes beside their tokens.

vLLM's keys cover tokens alone. Two engines that share a folder must not exchange blocks unless
their weights, data type and layout are the same.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import struct
from typing import Any

FORMAT = 1
"""Counts changes of what is hashed."""

SAMPLE_BYTES = 64 * 1024
"""Read at the front, in the middle and at the end of each file of weights."""

WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")


def identity_of(config: Any, model: pathlib.Path | None, revision: str | None) -> bytes:
    """Returns 16 bytes for an engine: `config` is vLLM's `OffloadingConfig`, `model` the folder of
    its weights where that is known, `revision` a text of the operator's that stands for them.

    Weights are known by their files' names, lengths and samples, so that a large model costs
    milliseconds. A change that no sample sees keeps the identity.
    """
    told = {
        "format": FORMAT,
        "model": config.model.name,
        "revision": revision,
        "dtype": config.model.dtype,
        "block_bytes": config.worker_kv_bytes_per_block,
        "blocks_per_chunk": config.cache.blocks_per_chunk,
        "tokens_per_hash": config.cache.tokens_per_hash,
        "groups": [[group.tokens_per_block, list(group.layer_names)] for group in config.groups],
        "parallel": [
            config.parallel.world_size,
            config.parallel.tp_size,
            config.parallel.pp_size,
            config.parallel.pcp_size,
            config.parallel.dcp_size,
        ],
        "layout": getattr(config, "kv_cache_layout", None),
        "canonical": getattr(config, "canonical_layout", False),
        "replicated": getattr(config, "replicated_layout", False),
    }
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    if model is not None and model.is_dir():
        add_weights(digest, model)
    return digest.digest()[:16]


def add_weights(digest: Any, model: pathlib.Path) -> None:
    files = {path for pattern in ("config.json", *WEIGHTS) for path in model.glob(pattern)}
    for path in sorted(files):
        size = path.stat().st_size
        digest.update(path.name.encode() + b"\0" + struct.pack("<Q", size))
        with path.open("rb") as file:
            for start in sorted({0, size // 2, max(0, size - SAMPLE_BYTES)}):
                file.seek(start)
                digest.update(file.read(SAMPLE_BYTES))
