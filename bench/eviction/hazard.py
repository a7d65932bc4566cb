#!/usr/bin/env python3
"""`hazard` against LRU, every other policy and Belady: the share of LRU's gap that each closes.

    python3 bench/eviction/hazard.py [--binary target/release/headstart] [--data ../shared/data]
                                     [--work bench/eviction/work] [--only NAME ...] [--seeds 1,2,3]
                                     [--table cells|halves|ablations|times]

A cell is 100 * (hits - LRU's) / (Belady's - LRU's), in block hits, as the mean over the seeds; in
brackets the block hit rate less LRU's, in points, at the seed where it is least. Ablations need a
build with `--features headstart/ablations`.

`halves` splits the recorded sessions into two by their numbers and replays each half alone. The
policy's constants were chosen by replays of the even half, and the odd half is reported beside it.
`times` rounds the arrivals down to whole minutes, and sets them all to 0.
Traces that are not there are skipped, by name.
"""

import argparse
import json
import pathlib
import subprocess
import sys

CAPACITIES = ["0.5%", "1%", "2%", "5%", "10%"]
POLICIES = ["hazard", "fifo", "s3fifo", "sieve", "arc", "gdsf", "tlru", "wa"]
ABLATIONS = ["hazard", "hazard:no-guard", "hazard:no-ghosts", "hazard:no-finish",
             "hazard:no-output", "hazard:no-gap", "hazard:no-mean-gap", "hazard:no-new-blocks",
             "hazard:no-lineage", "hazard:no-turn", "hazard:no-type", "hazard:no-blocks"]
# Name, file below the data folder, options of `trace convert`, whether seeds change it.
RECORDED = [
    ("agent sessions, a start every 100 s", "agentic-claude-code/traces_rle.jsonl.zst",
     ["--arrivals", "100"], True),
    ("agent sessions, a start every 300 s", "agentic-claude-code/traces_rle.jsonl.zst",
     ["--arrivals", "300"], True),
    ("Mooncake conversation", "mooncake-fast25/conversation_trace.jsonl.zst", [], False),
    ("Mooncake synthetic", "mooncake-fast25/synthetic_trace.jsonl.zst", [], False),
    ("ShareGPT, a start every 10 s", "sharegpt-sample-1k/conversations.jsonl.zst",
     ["--arrivals", "10"], True),
]
GENERATED = [
    ("generated `agents`", ["agents", "--requests", "20000"]),
    ("generated `chat`", ["chat", "--rate", "3", "--requests", "20000"]),
    ("generated `mixed`", ["mixed", "--requests", "20000"]),
    ("ATC'25, exponential gaps", ["atc25-exponential", "--rate", "3"]),
    ("ATC'25, log-normal gaps",
     ["atc25-lognormal", "--gaps", "lognormal:4.82,1.25", "--rate", "3"]),
    ("ATC'25, drift", ["atc25-drift", "--rate", "3"]),
    ("ATC'25, wrong labels", ["atc25-wrong-labels", "--rate", "3"]),
    ("ATC'25, swapped labels", ["atc25-swapped-labels", "--rate", "3"]),
]


def main():
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    for name, traces in all_traces(options):
        if options.only and not any(word in name for word in options.only):
            continue
        if options.table == "halves":
            for half in ("even", "odd"):
                halves = [split(options, path, half) for path in traces()]
                if all(halves):
                    report(options, f"{name}, {half} sessions", halves, ["hazard", "wa"])
        elif options.table == "times":
            report(options, name, traces(), ["hazard"])
            for label, unit_ns in (("whole minutes", 60 * 10**9), ("all at 0", None)):
                rounded = [round_times(options, path, unit_ns) for path in traces()]
                report(options, f"{name}, arrivals: {label}", rounded, ["hazard"])
        elif options.table == "ablations":
            report(options, name, traces(), ABLATIONS)
        else:
            report(options, name, traces(), POLICIES)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default="target/release/headstart")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("../shared/data"))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("bench/eviction/work"))
    parser.add_argument("--only", nargs="*", help="workloads whose name contains one of these")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--table", choices=["cells", "halves", "ablations", "times"], default="cells")
    options = parser.parse_args()
    options.seeds = options.seeds.split(",")
    return options


def all_traces(options):
    """Each workload's name, and what makes its traces, one per seed."""
    for name, file, arguments, is_seeded in RECORDED:
        source = options.data / file
        if not source.exists():
            print(f"\nSKIPPED: {name}: {file} is absent", file=sys.stderr)
            continue
        seeds = options.seeds if is_seeded else options.seeds[:1]

        def convert(name=name, source=source, arguments=arguments, seeds=seeds,
                    is_seeded=is_seeded):
            seed_of = lambda seed: ["--arrivals-seed", seed] if is_seeded else []
            return [make(options, f"{name}-{seed}",
                         ["convert", str(source), *arguments, *seed_of(seed)]) for seed in seeds]
        yield name, convert
    for name, arguments in GENERATED:
        def synthesize(name=name, arguments=arguments):
            return [make(options, f"{name}-{seed}", ["synth", *arguments, "--seed", seed])
                    for seed in options.seeds]
        yield name, synthesize


def make(options, name, arguments):
    name = "".join(letter if letter.isalnum() else "-" for letter in name)
    path = options.work / f"hazard-{name}.jsonl"
    if not path.exists():
        command = [options.binary, "trace", *arguments, "-o", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


def split(options, path, half):
    """The requests of every other session; `None` for a trace without sessions."""
    target = options.work / f"{path.stem}-{half}.jsonl"
    wanted, has_sessions = half == "odd", False
    with open(path) as source, open(target, "w") as out:
        for line in source:
            row = json.loads(line)
            if "arrival_ns" in row:
                if row.get("session") is None:
                    return None
                has_sessions = True
                if (row["session"] % 2 == 1) != wanted:
                    continue
            out.write(line)
    return target if has_sessions else None


def round_times(options, path, unit_ns):
    """The trace with arrivals rounded down to a unit; `None` for all at 0."""
    target = options.work / f"{path.stem}-{unit_ns or 'still'}.jsonl"
    with open(path) as source, open(target, "w") as out:
        for line in source:
            row = json.loads(line)
            if "arrival_ns" in row:
                row["arrival_ns"] = row["arrival_ns"] // unit_ns * unit_ns if unit_ns else 0
                line = json.dumps(row, separators=(",", ":")) + "\n"
            out.write(line)
    return target


def report(options, name, paths, policies):
    rates = [replay(options, path, policies) for path in paths]
    print(f"\n### {name}\n")
    print("| policy | " + " | ".join(CAPACITIES) + " |")
    print("|---|" + "--:|" * len(CAPACITIES))
    for policy in ["lru", *policies, "belady"]:
        cells = [cell(rates, policy, capacity) for capacity in CAPACITIES]
        print(f"| {policy} | " + " | ".join(cells) + " |")
    sys.stdout.flush()


def replay(options, path, policies):
    """Block hit rate by (policy, capacity) of one trace, in percent."""
    command = [options.binary, "replay", str(path), "--policy",
               ",".join(["lru", *policies, "belady"]), "--capacity", ",".join(CAPACITIES),
               "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in output.splitlines()]
    rows = [row for row in rows if "policy" in row]
    sizes = sorted({row["capacity_blocks"] for row in rows})
    return {(row["policy"], CAPACITIES[sizes.index(row["capacity_blocks"])]):
            100 * row["hits"] / row["lookups"] for row in rows}


def cell(rates, policy, capacity):
    if policy in ("lru", "belady"):
        return f"{sum(rate[policy, capacity] for rate in rates) / len(rates):.2f}"
    gains = [rate[policy, capacity] - rate["lru", capacity] for rate in rates]
    gaps = [rate["belady", capacity] - rate["lru", capacity] for rate in rates]
    shares = [100 * gain / gap for gain, gap in zip(gains, gaps) if gap > 0.005]
    share = f"{sum(shares) / len(shares):.0f}" if shares else "–"
    return f"{share} ({min(gains):+.2f})"


if __name__ == "__main__":
    main()
