"""Compare `headstart replay` with libcachesim on traces of independent objects, hit for hit.

Each trace is written as Mooncake JSONL with one block a request, and as a binary trace for
libcachesim; both replay it per policy and capacity, and the numbers of hits must be equal. Where
they are not, the first look-up that differs is searched. A cell may differ only if DIFFERENCES
names it, and a name that excuses nothing is an error too.

Run from the repository root, with tools/peers/requirements.txt installed:

    python tools/peers/hit_for_hit.py [--policy lru,sieve] [--headstart target/release/headstart]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import libcachesim

import traces
from libcachesim_replay import PEERS

LONG_CAPACITIES = (10, 20, 37, 100, 1_000)
SHORT_CAPACITIES = (10, 19, 20, 21, 29, 30, 31, 45, 99)
SHORT_TRACES = 40
HASHPOWER = 14  # log2 of libcachesim's buckets; its default takes 128 MiB a table


@dataclass(frozen=True)
class Difference:
    """Cells in which the two are allowed to differ."""

    policy: str
    below_capacity: int
    reason: str


DIFFERENCES = (
    Difference(
        "s3fifo",
        20,
        "libcachesim refuses an object as large as its small queue, which is one block below "
        "capacity 20: it never caches anything there",
    ),
)


class Failed(Exception):
    """Headstart did not give a count."""


def headstart_hits(binary, ids, policy, capacities):
    """Hits by capacity."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        with path.open("w") as file:
            for time, block in enumerate(ids.tolist()):
                file.write(f'{{"timestamp": {time}, "hash_ids": [{block}]}}\n')
        listed = ",".join(map(str, capacities))
        command = [binary, "replay", path, "--policy", policy, "--capacity", listed, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(done.stderr.strip().splitlines()[0] if done.stderr.strip() else "no message")
    hits = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        if row.get("policy") == policy and "capacity_blocks" in row:
            if row["lookups"] != len(ids):
                raise Failed(f"{row['lookups']} look-ups counted in a trace of {len(ids)}")
            hits[row["capacity_blocks"]] = row["hits"]
    missing = [capacity for capacity in capacities if capacity not in hits]
    if missing:
        raise Failed(f"no row for capacity {missing[0]}")
    return hits


def peer_hits(ids, policy, capacities):
    """Hits by capacity."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.u64"
        ids.astype("<u8").tofile(path)
        hits = {}
        for capacity in capacities:
            fields = libcachesim.ReaderInitParam(binary_fmt_str="<Q")
            fields.obj_id_field = 1
            reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.BIN_TRACE, fields)
            cache = PEERS[policy](capacity, hashpower=HASHPOWER)
            miss_ratio, _ = cache.process_trace(reader)
            hits[capacity] = round(len(ids) * (1 - miss_ratio))
    return hits


def first_difference(binary, ids, policy, capacity):
    """A look-up (from 0) that one of the two hits and the other does not.

    The counts are equal before it and differ behind it; it is the first unless later ones cancel.
    """
    equal, differ = 0, len(ids)
    while differ - equal > 1:
        middle = (equal + differ) // 2
        ours = headstart_hits(binary, ids[:middle], policy, (capacity,))
        theirs = peer_hits(ids[:middle], policy, (capacity,))
        if ours == theirs:
            equal = middle
        else:
            differ = middle
    return differ - 1


def excuse(policy, capacity):
    """The named difference for this cell, if any."""
    for difference in DIFFERENCES:
        if difference.policy == policy and capacity < difference.below_capacity:
            return difference
    return None


class Comparison:
    """What was compared so far."""

    def __init__(self, binary):
        self.binary = binary
        self.cells = self.unexcused = 0
        self.used = set()
        self.failures = {}

    def trace(self, name, ids, policies, capacities):
        """Compares one trace and returns its rows."""
        rows = []
        for policy in policies:
            theirs = peer_hits(ids, policy, capacities)
            try:
                ours = headstart_hits(self.binary, ids, policy, capacities)
            except Failed as failure:
                self.failures.setdefault(policy, f"{name}: {failure}")
                continue
            for capacity in capacities:
                verdict = self.judge(ids, policy, capacity, ours[capacity], theirs[capacity])
                rows.append((name, policy, capacity, ours[capacity], theirs[capacity], verdict))
        return rows

    def judge(self, ids, policy, capacity, ours, theirs):
        self.cells += 1
        if ours == theirs:
            return "equal"
        allowed = excuse(policy, capacity)
        if allowed:
            self.used.add(allowed)
            return "differs, named"
        self.unexcused += 1
        where = first_difference(self.binary, ids, policy, capacity)
        return f"DIFFERS from look-up {where}"

    def unused(self, policies):
        """Named differences that were not seen, of the policies that were compared."""
        return [
            difference
            for difference in DIFFERENCES
            if difference.policy in policies
            and difference.policy not in self.failures
            and difference not in self.used
        ]


def print_rows(rows):
    for name, policy, capacity, ours, theirs, verdict in rows:
        print(f"| {policy} | {name} | {capacity} | {ours} | {theirs} | {verdict} |")


def report(comparison, policies):
    """Prints what remains to be said and returns whether all is well."""
    print()
    for difference in sorted(comparison.used, key=lambda used: used.policy):
        below = f"{difference.policy}, capacity below {difference.below_capacity}"
        print(f"Named difference: {below}: {difference.reason}.")
    unused = comparison.unused(policies)
    for difference in unused:
        print(f"NAMED DIFFERENCE NOT SEEN: {difference.policy}: {difference.reason}.")
    for policy, failure in comparison.failures.items():
        print(f"NOT COMPARED: {policy}: {failure}")
    print(f"{comparison.cells} cells, {comparison.unexcused} differ without a name")
    return not (comparison.unexcused or unused or comparison.failures)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headstart", default="target/release/headstart")
    parser.add_argument("--policy", default=",".join(PEERS), help="policies, by comma")
    parser.add_argument("--all-rows", action="store_true", help="list the short traces too")
    arguments = parser.parse_args()
    policies = arguments.policy.split(",")
    unknown = sorted(set(policies) - set(PEERS))
    if unknown:
        parser.error(f"no peer for {unknown[0]}; there are {', '.join(PEERS)}")
    comparison = Comparison(arguments.headstart)
    print("| policy | trace | capacity | hits, headstart | hits, libcachesim | |")
    print("|---|---|--:|--:|--:|---|")
    for name, ids in traces.long_traces():
        print_rows(comparison.trace(name, ids, policies, LONG_CAPACITIES))
    for name, ids in traces.short_traces(SHORT_TRACES):
        rows = comparison.trace(name, ids, policies, SHORT_CAPACITIES)
        print_rows(row for row in rows if arguments.all_rows or row[-1].startswith("DIFFERS"))
    sys.exit(0 if report(comparison, policies) else 1)


if __name__ == "__main__":
    main()
