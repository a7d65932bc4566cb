#!/usr/bin/env python3
"""Workload-aware eviction against its rivals: every cell, as Markdown.

    python3 bench/eviction/wa.py [--binary target/release/headstart] [--data ../shared/data]
                                 [--work bench/eviction/work] [--only NAME ...]

Traffic and seeds are fixed here: three seeds of each generated workload at three requests a
second, three draws of the agent sessions' arrivals at two rates. The generators and the first
version of this list (five seeds, the presets' own rate: hours of work) were committed before the
policy; it was only thinned since. A cell is the
mean block hit rate over the seeds, in percent; in brackets the least and the greatest difference
to LRU at the same seed. Agent sessions are left out, and that is said, where the data is absent.
"""

import argparse
import json
import pathlib
import subprocess
import sys

SEEDS = [1, 2, 3]
RATE = "3"
CAPACITIES = ["0.5%", "1%", "2%", "5%"]
RIVALS = ["lru", "fifo", "lfu", "s3fifo", "gdsf", "gdsf:admit-all", "wa", "belady"]
ABLATIONS = ["wa", "wa:published", "wa:published:no-guard", "wa:exponential", "wa:one-class",
             "wa:no-life", "wa:life=5", "wa:no-offset", "wa:no-guard"]
GENERATED = {
    "exponential gaps": ["atc25-exponential"],
    "log-normal gaps (mu 4.82, sigma 1.25)": ["atc25-lognormal", "--gaps", "lognormal:4.82,1.25"],
    "drifting classes, exponential": ["atc25-drift"],
    "drifting classes, log-normal": ["atc25-drift", "--gaps", "lognormal:4.82,1.25"],
    "wrong labels, exponential": ["atc25-wrong-labels"],
    "wrong labels, log-normal": ["atc25-wrong-labels", "--gaps", "lognormal:4.82,1.25"],
    "swapped labels, exponential": ["atc25-swapped-labels"],
}
ABLATED = ["exponential gaps", "log-normal gaps", "every 100 s"]
AGENTS = {
    "agent sessions, a start every 100 s": ["--arrivals", "100"],
    "agent sessions, a start every 300 s": ["--arrivals", "300"],
}
AGENT_FILE = "agentic-claude-code/traces_rle.jsonl.zst"


def main():
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    for name, preset in GENERATED.items():
        traces = [(synthesize(options, preset, seed), []) for seed in SEEDS]
        report(options, name, traces)
    source = options.data / AGENT_FILE
    for name, arrivals in AGENTS.items():
        if not source.exists():
            print(f"\nSKIPPED: {name}: {AGENT_FILE} is absent")
            continue
        traces = [(source, [*arrivals, "--arrivals-seed", str(seed)]) for seed in SEEDS]
        report(options, name, traces)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default="target/release/headstart")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("../shared/data"))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("bench/eviction/work"))
    parser.add_argument("--only", nargs="*", help="workloads whose name contains one of these")
    return parser.parse_args()


def synthesize(options, preset, seed):
    name = "-".join([*preset, RATE]).replace(":", "_").replace(",", "_")
    path = options.work / f"{name}-{seed}.jsonl"
    if not path.exists():
        command = [options.binary, "trace", "synth", *preset, "--rate", RATE, "--seed", str(seed),
                   "-o", str(path)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return path


def report(options, name, traces):
    if options.only and not any(word in name for word in options.only):
        return
    is_ablated = any(name.startswith(word) or name.endswith(word) for word in ABLATED)
    policies = RIVALS + (ABLATIONS if is_ablated else [])
    rates = [replay(options, path, reading, policies) for path, reading in traces]
    print(f"\n### {name}\n")
    table(rates, RIVALS)
    if is_ablated:
        print("\nAblations:\n")
        table(rates, ABLATIONS)
    sys.stdout.flush()


def replay(options, path, reading, policies):
    """Block hit rate by (policy, capacity) of one trace."""
    policies = ",".join(dict.fromkeys(policies))
    command = [options.binary, "replay", str(path), *reading, "--policy", policies,
               "--capacity", ",".join(CAPACITIES), "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cells = {}
    rows = [json.loads(line) for line in output.splitlines()]
    rows = [row for row in rows if "policy" in row]
    sizes = sorted({row["capacity_blocks"] for row in rows})
    for row in rows:
        capacity = CAPACITIES[sizes.index(row["capacity_blocks"])]
        cells[row["policy"], capacity] = row["hits"] / row["lookups"] * 100
    return cells


def table(rates, policies):
    print("| policy | " + " | ".join(CAPACITIES) + " |")
    print("|---|" + "--:|" * len(CAPACITIES))
    for policy in policies:
        print(f"| {policy} | " + " | ".join(cell(rates, policy, c) for c in CAPACITIES) + " |")


def cell(rates, policy, capacity):
    mean = sum(rate[policy, capacity] for rate in rates) / len(rates)
    if policy == "lru":
        return f"{mean:.2f}"
    gains = [rate[policy, capacity] - rate["lru", capacity] for rate in rates]
    return f"{mean:.2f} ({min(gains):+.2f} … {max(gains):+.2f})"


if __name__ == "__main__":
    main()
