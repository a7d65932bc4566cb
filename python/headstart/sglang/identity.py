"""The identity of a pool's pages: all facts beside the tokens that decide their bytes.

SGLang's page keys cover tokens, the LoRA adapter and the salt. Two engines in one folder may
exchange pages only if their weights, data type, layout, page size and rank are equal.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
from dataclasses import dataclass
from typing import Any

from ..vllm.identity import add_weights

FORMAT = 1
"""Counts changes of the hashed facts, and of the order of a page's bytes in a record."""

RANKS = ("tp", "pp", "attn_cp", "dcp")
"""Kinds of ranks with different bytes of one page; each has a rank and a size."""

ARGUMENTS = (
    "dtype",
    "quantization",
    "quantization_param_path",
    "kv_cache_dtype",
    "json_model_override_args",
    "speculative_draft_model_path",
    "speculative_draft_model_revision",
)
"""Arguments of the server that decide the bytes of pages. A pool's own data type is not enough: it
is the same for both kinds of FP8."""

SHAPE = (
    "layout",
    "page_size",
    "layer_num",
    "start_layer",
    "end_layer",
    "head_num",
    "head_dim",
    "v_head_dim",
    "kv_cache_dim",
    "storage_format_tag",
    "temporal_dtype",
)
"""Facts of a host pool. A pool may lack some."""


@dataclass(frozen=True)
class Weights:
    """Stand for the weights: their folder, or a text of the operator's."""

    folder: pathlib.Path | None
    revision: str | None


def rank_identity(config: Any, arguments: Any, weights: Weights) -> bytes:
    """Returns 32 bytes for one rank of an engine. `config` is SGLang's `HiCacheStorageConfig`;
    `arguments` are the server's, or `None`.

    The hash covers names, lengths and samples of the files of weights, so a large model costs
    milliseconds.
    """
    told = {
        "format": FORMAT,
        "model": config.model_name,
        "revision": weights.revision,
        "ranks": {
            kind: [getattr(config, f"{kind}_rank", 0), getattr(config, f"{kind}_size", 1)]
            for kind in RANKS
        },
        # Its pages are those of any other, but each process needs a folder of its own.
        "dp_rank": getattr(config, "dp_rank", 0),
        "arguments": {name: str(getattr(arguments, name, None)) for name in ARGUMENTS},
    }
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    if weights.folder is not None:
        add_weights(digest, weights.folder)
    return digest.digest()


def pool_identity(rank: bytes, name: str, pool: Any, row_bytes: int) -> bytes:
    """Returns 16 bytes for one pool of a rank, with records of `row_bytes` bytes."""
    told = {
        "pool": name,
        "class": type(pool).__name__,
        "dtype": str(getattr(pool, "dtype", None)),
        "row_bytes": row_bytes,
        "shape": {fact: str(getattr(pool, fact, None)) for fact in SHAPE},
    }
    return hashlib.sha256(rank + json.dumps(told, sort_keys=True).encode()).digest()[:16]
