"""What is known of a prepared stream of block look-ups. Imports nothing large."""

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Stream:
    """`trace` is what Headstart reads, with `options`; the peers' files stand in `folder`, see
    streams.py."""

    name: str
    trace: str
    options: list
    lookups: int
    requests: int
    distinct: int
    prefix_lookups: int
    folder: str

    def file(self, name):
        return str(Path(self.folder) / name)

    def capacity(self, percent):
        """That share of the distinct blocks."""
        return self.distinct * percent // 100
