"""Streams of block look-ups in the forms that the peers read fastest, made outside any timing.

A stream is a folder with

    ids.u32          every block looked up, in order        (libcachesim, kvcache-simulator)
    ids.txt          the same as text                       (libcachesim)
    ends.u32         behind the last look-up of each request           (kvcache-simulator)
    tokens.u16       tokens of each block                              (kvcache-simulator)
    prefix.jsonl     the first requests, for kvcache-simulator's own CLI
    stream.json      counts, and the trace that Headstart reads

all binary numbers little-endian. `python tools/peers/streams.py FOLDER` makes the streams that
are not there yet and prints each one's stream.json; replay_speed.py runs it, so that its own
process stays small.
"""

import io
import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import zstandard

import traces
from stream import Stream

AGENT_SESSIONS = Path("../shared/data/agentic-claude-code/traces_rle.jsonl.zst")
BLOCK_TOKENS = 64
MEAN_GAP_S = 300.0  # between two session starts: about thirty sessions under way
# What kvcache-simulator's CLI reads in some seconds.
PREFIX_LOOKUPS, PREFIX_REQUESTS = 6_000_000, 2_000_000
ZIPF_LOOKUPS, ZIPF_OBJECTS, ZIPF_EXPONENT = 10_000_000, 1_000_000, 0.9


def store(folder, name, trace, ids, ends, options=()):
    """Writes a stream's files."""
    ids.astype("<u4").tofile(folder / "ids.u32")
    ends.astype("<u4").tofile(folder / "ends.u32")
    np.full(len(ids), BLOCK_TOKENS, "<u2").tofile(folder / "tokens.u16")
    with (folder / "ids.txt").open("w") as file:
        for part in np.array_split(ids, len(ids) // 1_000_000 + 1):
            file.write("\n".join(map(str, part.tolist())) + "\n")
    distinct = int(np.count_nonzero(np.bincount(ids)))
    prefix = write_prefix(folder, ids, ends)
    counts = (len(ids), len(ends), distinct, prefix)
    stream = Stream(name, str(trace), list(options), *counts, str(folder))
    (folder / "stream.json").write_text(json.dumps(asdict(stream)))


def write_prefix(folder, ids, ends):
    """Writes the first requests as kvcache-simulator's JSONL and returns their look-ups."""
    start = 0
    with (folder / "prefix.jsonl").open("w") as file:
        for end in ends[ends <= PREFIX_LOOKUPS][:PREFIX_REQUESTS].tolist():
            blocks = ids[start:end].tolist()
            record = {
                "block_size": BLOCK_TOKENS,
                "input_length": BLOCK_TOKENS * len(blocks),
                "hash_ids": blocks,
            }
            file.write(json.dumps(record) + "\n")
            start = end
    return start


def requests_of(session):
    """Requests of a session and its sub-agents: (ns from its start, runs), by time."""
    found = []

    def add(steps, start):
        for step in steps:
            at = start + step["t"]
            if "requests" in step:
                add(step["requests"], at)
            else:
                found.append((round(at * 1e9), step["hash_ids"]))

    add(session["requests"], 0.0)
    return sorted(found, key=lambda request: request[0])


def agent_sessions():
    """The sessions, with ids of their own: each gets those behind the largest of the one before."""
    base = 0
    with AGENT_SESSIONS.open("rb") as file:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        for line in lines:
            requests = requests_of(json.loads(line))
            yield [
                (at, [(base + first, count) for first, count in runs]) for at, runs in requests
            ]
            base += max(first + count for _, runs in requests for first, count in runs)


def expand(requests):
    """Ids and request ends of lists of runs."""
    parts, ends, end = [], [], 0
    for runs in requests:
        for first, count in runs:
            parts.append(np.arange(first, first + count, dtype=np.uint32))
            end += count
        ends.append(end)
    return np.concatenate(parts), np.array(ends)


def agent_in_file_order(folder):
    """One session behind the other, as the file has them; Headstart reads that file."""
    runs = [runs for session in agent_sessions() for _, runs in session]
    options = ("--keep-duplicates",)
    store(folder, "agent sessions", AGENT_SESSIONS, *expand(runs), options)


def agent_with_drawn_arrivals(folder):
    """Sessions that start by a Poisson process and overlap; Headstart reads its own form."""
    sessions = list(agent_sessions())
    gaps = np.random.default_rng(7).exponential(MEAN_GAP_S, len(sessions))
    starts = np.round(np.cumsum(gaps) * 1e9).astype(np.int64).tolist()
    merged = sorted(
        (start + at, number, order, runs)
        for number, (start, session) in enumerate(zip(starts, sessions))
        for order, (at, runs) in enumerate(session)
    )
    trace = folder / "trace.jsonl"
    origins = {"sessions": "given", "turns": "absent", "types_from": "absent"}
    header = {"headstart_trace": 1, "block_tokens": BLOCK_TOKENS, "types": ["unknown"], **origins}
    with trace.open("w") as file:
        file.write(json.dumps(header) + "\n")
        for at, number, _, runs in merged:
            record = {"arrival_ns": at, "session": number, "blocks": runs}
            file.write(json.dumps(record) + "\n")
    name = "agent sessions, drawn arrivals"
    store(folder, name, trace, *expand(runs for _, _, _, runs in merged))


def zipf(folder):
    """Independent objects; Headstart reads them as Mooncake JSONL of one block a request."""
    rng = np.random.default_rng(6)
    ids = traces.zipf(rng, ZIPF_LOOKUPS, ZIPF_OBJECTS, ZIPF_EXPONENT)
    trace = folder / "trace.jsonl"
    with trace.open("w") as file:
        for time, block in enumerate(ids.tolist()):
            file.write(f'{{"timestamp": {time}, "hash_ids": [{block}]}}\n')
    store(folder, f"Zipf {ZIPF_EXPONENT}", trace, ids, np.arange(1, len(ids) + 1))


def prepared(folder, make):
    """A stream made before, or made now."""
    if not (folder / "stream.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        make(folder)
    return Stream(**json.loads((folder / "stream.json").read_text()))


def main():
    makers = {"zipf": zipf}
    if AGENT_SESSIONS.exists():
        makers = {"agent": agent_in_file_order, "drawn": agent_with_drawn_arrivals} | makers
    for name, make in makers.items():
        print(json.dumps(asdict(prepared(Path(sys.argv[1]) / name, make))))


if __name__ == "__main__":
    main()
