"""Harm to files, for the tests of tiers."""

from __future__ import annotations

import contextlib
import pathlib
import random


def harm(path: pathlib.Path, rng: random.Random) -> None:
    """Flips a bit, or cuts a file's end off."""
    with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
        if not (size := path.stat().st_size):
            return
        at = rng.randrange(size)
        if rng.random() < 0.05:
            file.truncate(at)
            return
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << rng.randrange(8)]))
