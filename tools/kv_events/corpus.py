"""The constructed messages: per origin, (title, payload, golden) in the order of the files.

Everything in them is made up after the descriptions that the titles and the README of
`data/kv-events` name: token ids, hashes, times. Nothing was copied from anybody's messages.
"""

import hashlib
import struct

import msgpack

from golden import TIERS, cleared, head, removed, skipped, stored

TS = 1789095808.8378847


def pack(value):
    return msgpack.packb(value, use_bin_type=True)


def message(title, batch, *expected):
    """A batch of `[ts, events]` or `[ts, events, rank]`, and its lines behind the first one."""
    rank = batch[2] if len(batch) > 2 else None
    return title, pack(batch), "\n".join([head(batch[0], rank), *expected])


def digest(number):
    return hashlib.sha256(f"block {number}".encode()).digest()


def number_of(number):
    """As an engine with integer hashes sends it: the low 64 bits of the digest."""
    return int.from_bytes(digest(number)[-8:], "big")


H = [number_of(number) for number in range(16)]
D = [digest(number) for number in range(16)]
T = list(range(100, 164))


def vllm():
    def event(hashes, parent, tokens, size, *rest):
        return ["BlockStored", hashes, parent, tokens, size, *rest]

    def named(hashes, parent, tokens, size, **rest):
        return {
            "type": "BlockStored",
            "block_hashes": hashes,
            "parent_block_hash": parent,
            "token_ids": tokens,
            "block_size": size,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            **rest,
        }

    yield message(
        "positional, ends at lora_id; no rank",
        [TS, [event(H[:2], None, T[:8], 4, None)]],
        stored(H[:2], T, 4),
    )
    yield message(
        "positional with medium: a child, a removal, a clear",
        [
            TS,
            [
                event([H[2]], H[1], T[8:12], 4, None, "GPU"),
                ["BlockRemoved", [H[2]], "GPU"],
                ["BlockRemoved", [H[1]]],
                ["AllBlocksCleared"],
            ],
            3,
        ],
        stored([H[2]], T[8:], 4, parent=H[1]),
        removed([H[2]]),
        removed([H[1]]),
        cleared(),
    )
    yield message(
        "positional, hashes and parent as SHA-256 digests",
        [TS, [event(D[1:3], D[0], T[:8], 4, None, "GPU"), ["BlockRemoved", [D[2]], "GPU"]], 0],
        stored(D[1:3], T, 4, parent=D[0]),
        removed([D[2]]),
    )
    yield message(
        "positional, an adapter by number alone, and by number and name",
        [
            TS,
            [
                event([H[0]], None, T[:4], 4, 3, "GPU"),
                event([H[1]], None, T[:4], 4, 3, "GPU", "sql"),
                event([H[2]], None, T[:4], 4, 0, "GPU", None),
            ],
            0,
        ],
        stored([H[0]], T, 4, adapter="3"),
        stored([H[1]], T, 4, adapter="sql"),
        stored([H[2]], T, 4),
    )
    yield message(
        "positional, extra keys of 0.18: bare identifiers of images",
        [
            TS,
            [
                event(H[:2], None, T[:8], 4, None, "GPU", None, [["cat"], ["cat", "dog"]]),
                event([H[2]], H[1], T[8:12], 4, None, "GPU", None, [["dog"]]),
            ],
            0,
        ],
        stored(H[:2], T, 4, media=[[("cat", 0)], [("cat", 0), ("dog", 0)]]),
        stored([H[2]], T[8:], 4, parent=H[1], media=[[("dog", 0)]]),
    )
    both = [["sql", ["cat", 2], "tenant", D[9]], ["sql", ["cat", -2]], ["sql"]]
    yield message(
        "positional, extra keys: adapter, image with its place, salt, digest of embeddings",
        [TS, [event(H[:3], None, T[:12], 4, 3, "GPU", "sql", both)], 0],
        stored(
            H[:3],
            T,
            4,
            adapter="sql",
            salt="tenant",
            media=[[("cat", 2), (D[9], 0)], [("cat", -2)], []],
        ),
    )
    yield message(
        "positional, extra keys: a salt alone, without and with a parent before it",
        [
            TS,
            [
                event(H[:2], None, T[:8], 4, None, "GPU", None, [["tenant"], None]),
                event([H[2]], H[1], T[8:12], 4, None, "GPU", None, [None]),
                event([H[3]], None, T[:4], 4, 3, "GPU", "sql", [["sql", "sql"]]),
            ],
            0,
        ],
        stored(H[:2], T, 4, salt="tenant"),
        stored([H[2]], T[8:], 4, parent=H[1]),
        stored([H[3]], T, 4, adapter="sql", salt="sql"),
    )
    yield message(
        "positional, groups before their kinds were sent: dense, and with tokens for more",
        [
            TS,
            [
                event([H[0]], None, T[:4], 4, None, "GPU", None, [None], 0),
                event([H[0]], None, T[:4], 4, None, "GPU", None, [None], 1),
                event([H[1]], H[0], T[:12], 4, None, "GPU", None, [None], 1),
                ["BlockRemoved", [H[0]], "GPU", 1],
            ],
            0,
        ],
        stored([H[0]], T, 4),
        stored([H[0]], T, 4, group="1 full"),
        stored([H[1]], [], 4, parent=H[0], group="1 full"),
        removed([H[0]], group=1),
    )
    hybrid = ["GPU", None, None]
    yield message(
        "positional, a hybrid model: full attention, a sliding window, a state; the latter sparse",
        [
            TS,
            [
                event(H[:3], None, T[:12], 4, None, *hybrid, 0, "full_attention"),
                event(H[1:3], None, T[:12], 4, None, *hybrid, 1, "sliding_window", 6),
                event([H[2]], None, T[:12], 4, None, *hybrid, 2, "mamba", None),
            ],
            0,
        ],
        stored(H[:3], T, 4),
        stored(H[1:3], [], 4, group="1 window 6"),
        stored([H[2]], [], 4, group="2 state"),
    )
    yield message(
        "positional, changes of tier: no tokens, newer and older names, block size 0",
        [
            TS,
            [
                event(H[:2], None, [], 4, None, "CPU"),
                event([H[0]], None, [], 0, None, "STORAGE"),
                ["BlockRemoved", H[:2], "CPU"],
            ],
            0,
        ],
        stored(H[:2], [], 4, tier="host"),
        stored([H[0]], [], 0, tier="disk"),
        removed(H[:2], "host"),
    )
    sample = named(
        [15760518052499183552],
        None,
        [151644, 872] + T[:14],
        16,
        extra_keys=[None],
        group_idx=0,
        kv_cache_spec_kind="full_attention",
    )
    yield message(
        "map form, after the message of 0.26.0 in kthena #1535, whose token ids are cut short",
        [TS, [sample], 0],
        stored([15760518052499183552], [151644, 872] + T[:14], 16),
    )
    yield message(
        "map form: a removal in a group, a clear, fields for tiers elsewhere",
        [
            TS,
            [
                named(
                    [H[0]], None, [], 4, medium="CPU", locality="REMOTE", ownership={"id": "pool"}
                ),
                {"type": "BlockRemoved", "block_hashes": [H[0]], "medium": "GPU", "group_idx": 2},
                {
                    "type": "BlockRemoved",
                    "block_hashes": [H[0]],
                    "medium": "CPU",
                    "group_idx": 0,
                    "locality": "LOCAL",
                    "ownership": None,
                },
                {"type": "AllBlocksCleared"},
            ],
            7,
        ],
        stored([H[0]], [], 4, tier="host"),
        removed([H[0]], group=2),
        removed([H[0]], "host"),
        cleared(),
    )
    kinds = [
        ("full_attention", None, "full"),
        ("mla_attention", None, "full"),
        ("sink_full_attention", None, "full"),
        ("sliding_window", 512, "window 512"),
        ("sliding_window_mla", 128, "window 128"),
        ("sliding_window", None, "full"),
        ("mamba", None, "state"),
        ("chunked_local_attention", None, "full"),
        ("unknown", None, "full"),
    ]
    events = [
        named(
            [H[0]],
            None,
            T[:4],
            4,
            group_idx=group,
            kv_cache_spec_kind=kind,
            kv_cache_spec_sliding_window=window,
        )
        for group, (kind, window, _) in enumerate(kinds)
    ]
    others = [
        named([H[0]], None, T[:4], 4, group_idx=9, kv_cache_spec_kind=kind)
        for kind in ["encoder_only_attention", "cross_attention"]
    ]
    yield message(
        "map form, a group of every kind; those of encoders say nothing of prefixes",
        [TS, events + others, 0],
        *[stored([H[0]], T, 4, group=f"{group} {kind}") for group, (_, _, kind) in enumerate(kinds)],
        skipped(9, "attention", False),
        skipped(10, "attention", False),
    )
    yield message(
        "map form, a parent of 0 is a parent",
        [TS, [named([H[1]], 0, T[:4], 4), named([H[1]], None, T[:4], 4)], 0],
        stored([H[1]], T, 4, parent=0),
        stored([H[1]], T, 4),
    )
    yield message(
        "both forms and both kinds of hashes in one batch",
        [
            TS,
            [
                event([H[0]], None, T[:4], 4, None, "GPU"),
                named([D[1]], H[0], T[4:8], 4),
                {"type": "BlockRemoved", "block_hashes": [H[0], D[1]], "medium": "GPU"},
            ],
            0,
        ],
        stored([H[0]], T, 4),
        stored([D[1]], T[4:], 4, parent=H[0]),
        removed([H[0], D[1]]),
    )
    yield message(
        "map form, an image over a salted prompt with an adapter",
        [
            TS,
            [
                named(
                    H[:2],
                    None,
                    T[:8],
                    4,
                    lora_name="sql",
                    extra_keys=[["sql", ["cat", 1], ["dog", 3], "tenant"], ["sql", ["dog", -1]]],
                )
            ],
            0,
        ],
        stored(
            H[:2],
            T,
            4,
            adapter="sql",
            salt="tenant",
            media=[[("cat", 1), ("dog", 3)], [("dog", -1)]],
        ),
    )


def sglang_hashes(tokens, page, parent=b""):
    """Chained SHA-256 over little-endian words, of which 64 bits travel as a signed number."""
    hashes = []
    for start in range(0, len(tokens), page):
        words = tokens[start : start + page]
        parent = hashlib.sha256(parent + struct.pack(f"<{len(words)}I", *words)).digest()
        hashes.append(struct.unpack(">q", parent[:8])[0])
    return hashes


def sglang():
    hashes = sglang_hashes(T[:16], 4)
    assert min(hashes) < 0 < max(hashes), "both signs"
    yield message(
        "positional, ends at lora_id; signed hashes",
        [TS, [["BlockStored", hashes[:2], None, T[:8], 4, None]], None],
        stored(hashes[:2], T, 4),
    )
    yield message(
        "positional with medium: a child, demoted to pinned memory, removed",
        [
            TS,
            [
                ["BlockStored", [hashes[2]], hashes[1], T[8:12], 4, None, "GPU"],
                ["BlockStored", [hashes[2]], hashes[1], T[8:12], 4, None, "CPU_PINNED"],
                ["BlockRemoved", [hashes[2]], "GPU"],
                ["BlockRemoved", [hashes[2]], "CPU_PINNED"],
            ],
            1,
        ],
        stored([hashes[2]], T[8:], 4, parent=hashes[1]),
        stored([hashes[2]], T[8:], 4, parent=hashes[1], tier="host"),
        removed([hashes[2]]),
        removed([hashes[2]], "host"),
    )
    salted = sglang_hashes(T[:8], 4, hashlib.sha256(b"sglang-cache-salt-v1\0tenant").digest())
    yield message(
        "positional since 0.5.18, a salted node: a map in position 7",
        [
            TS,
            [["BlockStored", salted, None, T[:8], 4, None, "GPU", {"cache_salt": "tenant"}]],
            0,
        ],
        stored(salted, T, 4, salt="tenant"),
    )
    pairs = [[T[at], T[at + 1]] for at in range(8)]
    yield message(
        "positional, speculative decoding: overlapping pairs of tokens",
        [TS, [["BlockStored", hashes[:2], None, pairs, 4, None, "GPU"]], 0],
        stored(hashes[:2], T, 4),
    )
    one = sglang_hashes(T[:3], 1)
    yield message(
        "positional, pages of one token",
        [TS, [["BlockStored", one, None, T[:3], 1, None, "GPU"]], 0],
        stored(one, T, 1),
    )
    yield message(
        "map form (#37482) with a salt and a session; a removal with a session; a clear",
        [
            TS,
            [
                {
                    "type": "BlockStored",
                    "block_hashes": salted,
                    "parent_block_hash": None,
                    "token_ids": T[:8],
                    "block_size": 4,
                    "lora_id": None,
                    "medium": "GPU",
                    "cache_salt": "tenant",
                    "session_id": "s-1",
                },
                {
                    "type": "BlockRemoved",
                    "block_hashes": [salted[1]],
                    "medium": "GPU",
                    "session_id": "s-1",
                },
                {"type": "AllBlocksCleared"},
            ],
            0,
        ],
        stored(salted, T, 4, salt="tenant"),
        removed([salted[1]]),
        cleared(),
    )
    yield message(
        "positional in the format `dynamo`: an adapter's name in position 7",
        [TS, [["BlockStored", hashes[:1], None, T[:4], 4, None, "GPU", "sql"]], 0],
        stored(hashes[:1], T, 4, adapter="sql"),
    )
    spellings = ["GPU", "gpu", "CPU_PINNED", "cpu_pinned", "Disk", "DISK", "External", "EXTERNAL"]
    yield message(
        "changes of tier without tokens, names in any case",
        [
            TS,
            [["BlockStored", hashes[:1], None, [], 4, None, medium] for medium in spellings],
            0,
        ],
        *[stored(hashes[:1], [], 4, tier=TIERS[medium.upper()]) for medium in spellings],
    )


def tensorrt_llm():
    yield message(
        "the structs of vLLM in positional form (#17023); low 64 bits of a radix key",
        [
            TS,
            [
                ["BlockStored", H[4:6], None, T[:64], 32, None, "GPU"],
                ["BlockStored", [H[6]], H[5], T[:32], 32, None, "GPU", None],
            ],
            0,
        ],
        stored(H[4:6], T, 32),
        stored([H[6]], T, 32, parent=H[5]),
    )
    yield message(
        "a removal of several blocks, and one from the host",
        [TS, [["BlockRemoved", H[4:6], "GPU"], ["BlockRemoved", [H[6]], "CPU"]], 0],
        removed(H[4:6]),
        removed([H[6]], "host"),
    )


def atom():
    def event(offset, hashes, parent, tokens):
        return {
            "type": "BlockStored",
            "block_hashes": hashes,
            "parent_block_hash": parent,
            "token_ids": tokens,
            "block_size": 16,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "token_offset": offset,
        }

    yield message(
        "the map form of vLLM with a token offset (#1316)",
        [TS, [event(0, H[:2], None, T[:32]), event(32, [H[2]], H[1], T[32:48])], 0],
        stored(H[:2], T, 16),
        stored([H[2]], T[32:], 16, parent=H[1]),
    )
    yield message(
        "a removal and a clear",
        [
            TS,
            [
                {"type": "BlockRemoved", "block_hashes": [H[2]], "medium": "GPU"},
                {"type": "AllBlocksCleared"},
            ],
        ],
        removed([H[2]]),
        cleared(),
    )


def odd():
    good = ["BlockStored", [H[0]], None, T[:4], 4, None, "GPU"]
    fine = stored([H[0]], T, 4)
    yield (
        "the outer form as a map (vLLM commit 0181ea3)",
        pack({"ts": TS, "events": [good], "data_parallel_rank": 2}),
        "\n".join([head(TS, 2), fine]),
    )
    yield (
        "the outer form as a map: other order, other keys, one key twice",
        pack({"rank": 9, "events": [good], "ts": 1})[:-1].replace(b"\x83", b"\x84", 1)
        + pack(1)
        + pack("events")
        + pack([]),
        "\n".join([head(1), fine]),
    )
    yield message("an empty batch", [TS, [], 0])
    yield (
        "elements behind the rank",
        pack([TS, [good], 4, "more", {"and": ["more"]}]),
        "\n".join([head(TS, 4), fine]),
    )
    for title, ts, shown in [
        ("a whole number", 1789095808, 1789095808),
        ("nil", None, None),
        ("not a number", float("nan"), None),
        ("infinite", float("inf"), None),
        ("a text", "now", None),
    ]:
        yield f"a time that is {title}", pack([ts, [good], 0]), "\n".join([head(shown, 0), fine])
    yield (
        "a time and a rank of other types",
        msgpack.packb([0.5, [good], "0"], use_single_float=True),
        "\n".join([head(0.5), fine]),
    )
    yield message(
        "events that cannot be used, between good ones",
        [
            TS,
            [
                good,
                7,
                good,
                None,
                [],
                {},
                ["Snapshot", 1],
                {"type": "BlockMoved"},
                ["BlockStored"],
                ["BlockStored", [H[0]], None, T[:4]],
                ["BlockStored", [H[0]], None, "tokens", 4, None],
                ["BlockStored", [H[0]], 1.5, T[:4], 4, None],
                ["BlockStored", [], None, [], 4, None],
                ["BlockStored", [H[0]], None, T[:4], 0, None],
                ["BlockStored", [H[0]], None, T[:4], 4, None, "TAPE"],
                ["BlockStored", [H[0]], None, T[:5], 4, None, "GPU"],
                ["BlockStored", [H[0]], None, [2**32, 1, 2, 3], 4, None, "GPU"],
                ["BlockStored", [H[0]], None, T[:4], 4, None, "GPU", None, None, 300],
                ["BlockRemoved"],
                ["BlockRemoved", [H[0], None]],
                ["BlockRemoved", [H[0]], "TAPE"],
                ["BlockRemoved", [H[0]], 3],
                ["BlockRemoved", [H[0]], "GPU", 300],
                good,
            ],
            0,
        ],
        fine,
        fine,
        fine,
        skipped(1, "not_an_event", True),
        skipped(3, "not_an_event", True),
        skipped(4, "not_an_event", True),
        skipped(5, "not_an_event", True),
        skipped(6, "unknown_type", True),
        skipped(7, "unknown_type", True),
        skipped(8, "missing_field", False),
        skipped(9, "missing_field", False),
        skipped(10, "invalid_field", False),
        skipped(11, "invalid_field", False),
        skipped(12, "invalid_field", False),
        skipped(13, "invalid_field", False),
        skipped(14, "unknown_tier", False),
        skipped(15, "length", False),
        skipped(16, "invalid_field", False),
        skipped(17, "group", False),
        skipped(18, "missing_field", True),
        skipped(19, "invalid_field", True),
        skipped(20, "unknown_tier", False),
        skipped(21, "invalid_field", True),
        skipped(22, "group", False),
    )
    short = [b"\x01\x02", 255, b"\xff" * 40, -1]
    yield message(
        "hashes short, small, long and negative; a removal of nothing; surplus elements",
        [
            TS,
            [
                ["BlockRemoved", short, "GPU", 0, "more"],
                ["BlockRemoved", []],
                ["AllBlocksCleared", "more"],
            ],
            0,
        ],
        removed(short),
        removed([]),
        cleared(),
    )
    typed = {"kind": "lora", "name": "sql"}
    yield message(
        "extra keys of types to come, and fewer of them than blocks",
        [TS, [["BlockStored", H[:2], None, T[:8], 4, None, "GPU", None, [[typed, 5]]]], 0],
        stored(H[:2], T, 4, media=[[(pack(typed), 0), (pack(5), 0)], []]),
    )
    yield message(
        "unknown fields, nested, before and behind those that count; a name that is no text",
        [
            TS,
            [
                {
                    "v": [[[[{"a": [1, {"b": None}]}]]]],
                    "block_hashes": [H[0]],
                    "type": "BlockRemoved",
                    b"medium": "CPU",
                    5: 6,
                    "z": msgpack.ExtType(3, b"1234"),
                }
            ],
            0,
        ],
        removed([H[0]]),
    )
    whole = pack([TS, [good, good], 0])
    yield "cut off", whole[:-20], "error: cut off, or not MessagePack"
    yield "an array that claims to be enormous", b"\x93\xc0\xdd\xff\xff\xff\xff", (
        "error: cut off, or not MessagePack"
    )
    yield "nothing", b"", "error: cut off, or not MessagePack"
    yield "no batch: a number", pack(7), "error: not a batch of events"
    yield "no batch: no events", pack([TS]), "error: not a batch of events"
    yield "no batch: events that are none", pack([TS, 7]), "error: not a batch of events"
    yield "no batch: a map without events", pack({"ts": TS}), "error: not a batch of events"


ORIGINS = {
    "vllm": vllm,
    "sglang": sglang,
    "tensorrt-llm": tensorrt_llm,
    "atom": atom,
    "odd": odd,
}
