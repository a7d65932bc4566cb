"""Names of LMCache's objects, and the parts that the disk tier keeps of them.

A record of the tier has the length of a row, and an object has the length of its layout. So an
object is cut into parts of one row each. The last part ends where the object ends:

    object   |------------------------------|
    parts    |----0----|----1----|----2----|
                                  |----3----|      shares bytes with part 2

All parts lie inside the object. Nothing is padded, and no byte outside the object is touched. Two
parts that share bytes write the same bytes there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple


class Layout(NamedTuple):
    """Decides the bytes of an object, together with its key."""

    text: str
    """Shapes and data types."""
    num_bytes: int
    """The length."""


def layout_of(shapes: Sequence[Any], dtypes: Sequence[Any]) -> Layout:
    """The layout of consecutive tensors."""
    pairs = list(zip(shapes, dtypes, strict=True))
    text = " ".join(f"{'x'.join(map(str, shape))}:{dtype}" for shape, dtype in pairs)
    return Layout(text, sum(prod(shape) * dtype.itemsize for shape, dtype in pairs))


def layout_of_object(memory: Any) -> Layout:
    """The layout of a memory object, with its used length."""
    about = memory.metadata
    # LMCache moves from one shape to several; an object has either.
    shapes, dtypes = about.shapes or [about.shape], about.dtypes or [about.dtype]
    return layout_of(shapes, dtypes)._replace(num_bytes=memory.get_size())


def name_of(key: Any, layout: Layout) -> bytes:
    """The 16 bytes that name an object: all fields of its key, its layout, and its length."""
    # The hash is last and the lengths of the texts stand first, so that no two keys look alike.
    texts = [key.model_name.encode(), key.cache_salt.encode(), layout.text.encode()]
    numbers = [*map(len, texts), key.kv_rank, key.object_group_id, layout.num_bytes]
    told = repr(numbers).encode() + b"".join(texts) + key.chunk_hash
    return hashlib.sha256(told).digest()[:16]


def offsets_of(num_bytes: int, row_bytes: int) -> list[int]:
    """Where the parts of an object begin; empty if the object is shorter than a row."""
    offsets = list(range(0, num_bytes - row_bytes + 1, row_bytes))
    if offsets and offsets[-1] + row_bytes < num_bytes:
        offsets.append(num_bytes - row_bytes)
    return offsets


def keys_of(name: bytes, count: int) -> list[bytes]:
    """The tier's keys of an object's parts."""
    return [name + part.to_bytes(4, "little") for part in range(count)]
