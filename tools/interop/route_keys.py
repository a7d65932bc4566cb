"""Names blocks as Headstart's router does (`crates/core/src/block/route.rs`), written once more, so
that a dump of the index can be compared with an engine's events, block for block.

Only for blocks of 32 tokens: behind their parent's key these are 136 bytes, and of XXH3 only what
it does with 129 to 240 bytes is here.
"""

import struct

from blake3 import blake3

CONTEXT = "headstart 2026 RouteKey v2"

# A gateway's keys are its own: they hang on a number that it draws, or is told by a hidden option.
SECRET = 2026

# The name that a gateway of upstreams hashes with, whatever they serve.
MODEL = f"upstream {SECRET:016x}"

# Of XXH3.
SECRET_BYTES = 192
LAST_OF_SECRET = 136 - 17
PRIME = 0x9E3779B185EBCA87
AVALANCHE = 0x165667919E3779F9
MASK = 2**64 - 1


def _fields(hasher, fields):
    for field in fields:
        if field is None:
            hasher.update(b"\0")
        else:
            text = field.encode()
            hasher.update(b"\1" + struct.pack("<Q", len(text)) + text)


def _avalanche(value):
    value ^= value >> 37
    value = value * AVALANCHE & MASK
    return value ^ value >> 32


def _mix(data, secret, at, secret_at):
    (low, high), (a, b) = (
        struct.unpack_from("<2Q", data, at),
        struct.unpack_from("<2Q", secret, secret_at),
    )
    product = (low ^ a) * (high ^ b)
    return (product ^ product >> 64) & MASK


def xxh3(secret, data):
    """XXH3, 64 bits, with a secret and without a seed."""
    assert 129 <= len(data) <= 240
    value = len(data) * PRIME + sum(_mix(data, secret, 16 * i, 16 * i) for i in range(8))
    value = _avalanche(value & MASK)
    rounds = range(8, len(data) // 16)
    value += sum(_mix(data, secret, 16 * i, 16 * (i - 8) + 3) for i in rounds)
    value += _mix(data, secret, len(data) - 16, LAST_OF_SECRET)
    return _avalanche(value & MASK)


class RouteHasher:
    """Keys of the blocks of one size."""

    def __init__(self, block_size, model=MODEL):
        assert block_size == 32
        self.block_size = block_size
        hasher = blake3(derive_key_context=CONTEXT)
        hasher.update(struct.pack("<I", block_size))
        _fields(hasher, [model])
        both = hasher.digest(length=32 + SECRET_BYTES)
        self._key, self._secret = both[:32], both[32:]

    def root(self, salt=None, adapter=None):
        """What the first block of a prompt follows."""
        hasher = blake3(key=self._key)
        _fields(hasher, [adapter, salt])
        return int.from_bytes(hasher.digest(length=8), "little")

    def next(self, parent, tokens):
        """The key of the block `tokens` behind `parent`."""
        return xxh3(self._secret, struct.pack(f"<Q{self.block_size}I", parent, *tokens))

    def chain(self, tokens, salt=None, adapter=None):
        """The keys of all full blocks."""
        parent, keys = self.root(salt, adapter), []
        for start in range(0, len(tokens) - self.block_size + 1, self.block_size):
            parent = self.next(parent, tokens[start : start + self.block_size])
            keys.append(parent)
        return keys
