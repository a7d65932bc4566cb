"""What a message should be decoded to, as readable text. Written here once more, so that neither
the decoder nor the encoder of headstart-server is its own judge.

    # a title
    ts 1.5 rank 0
    stored 2 in device size 4 group 0 full parent - adapter - salt -
      1f: 1 2 3 4
      2f: 5 6 7 8 + cat@0
    removed from host group 0: 1f 2f
    cleared
    skipped 3: unknown_type, may have removed
"""

TIERS = {
    "GPU": "device",
    "CPU": "host",
    "CPU_PINNED": "host",
    "DISK": "disk",
    "STORAGE": "disk",
    "EXTERNAL": "remote",
}


def handle(block_hash):
    """The low 128 bits of a hash, in hexadecimal."""
    if isinstance(block_hash, int):
        return format(block_hash & (2**64 - 1), "x")
    return format(int.from_bytes(block_hash[-16:], "big"), "x")


def name(text):
    """A name as it is, or its bytes where it is no printable ASCII."""
    raw = text if isinstance(text, bytes) else text.encode()
    printable = raw and all(33 <= byte < 127 for byte in raw)
    return raw.decode() if printable else "0x" + raw.hex()


def head(ts, rank=None):
    return f"ts {'-' if ts is None else repr(float(ts))} rank {'-' if rank is None else rank}"


def stored(
    hashes,
    tokens,
    size,
    parent=None,
    tier="device",
    group="0 full",
    adapter=None,
    salt=None,
    media=None,
):
    """`tokens` are flat, or none; `media` are (identifier, place) per block."""
    parent = "-" if parent is None else handle(parent)
    adapter = "-" if adapter is None else name(adapter)
    salt = "-" if salt is None else name(salt)
    lines = [
        f"stored {len(hashes)} in {tier} size {size} group {group} parent {parent}"
        f" adapter {adapter} salt {salt}"
    ]
    for index, block in enumerate(hashes):
        part = tokens[index * size : (index + 1) * size]
        line = f"  {handle(block)}: " + (" ".join(map(str, part)) or "no tokens")
        items = media[index] if media else []
        if items:
            line += " + " + ", ".join(f"{name(item)}@{place}" for item, place in items)
        lines.append(line)
    return "\n".join(lines)


def removed(hashes, tier="device", group=0):
    return f"removed from {tier} group {group}: " + (" ".join(map(handle, hashes)) or "nothing")


def cleared():
    return "cleared"


def skipped(index, label, may_have_removed):
    return f"skipped {index}: {label}" + (", may have removed" if may_have_removed else "")


def plain(batch):
    """The golden of a batch in map form without surprises, as vLLM sends it for one model with
    one cache group: for captured messages."""
    ts, events, rank = batch
    lines = [head(ts, rank)]
    for event in events:
        kind = event["type"]
        if kind == "BlockStored":
            assert event.get("kv_cache_spec_kind") == "full_attention", event
            adapter = event.get("lora_name")
            first, *rest = event["extra_keys"]
            salts = [key for key in first or [] if key != adapter]
            # Behind the first block there is the adapter, or nothing.
            assert len(salts) <= 1 and all(keys in (None, [adapter]) for keys in rest), event
            lines.append(
                stored(
                    event["block_hashes"],
                    event["token_ids"],
                    event["block_size"],
                    parent=event["parent_block_hash"],
                    tier=TIERS[event["medium"]],
                    group=f"{event['group_idx']} full",
                    adapter=adapter,
                    salt=salts[0] if salts else None,
                )
            )
        elif kind == "BlockRemoved":
            lines.append(removed(event["block_hashes"], TIERS[event["medium"]], event["group_idx"]))
        elif kind == "AllBlocksCleared":
            lines.append(cleared())
        else:
            raise ValueError(kind)
    return "\n".join(lines)
