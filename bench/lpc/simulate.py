#!/usr/bin/env python3
"""The closed-loop experiment of learned prefix caching: every table, as text and CSV.

    python3 bench/lpc/simulate.py [--binary target/release/headstart] [--work bench/out/lpc]
                                  [--only NAME ...] [--minutes 20] [--seeds 5]

Each data set is run four times: hit rate against cache size, against the mean gap, against the
predictor's quality (three kinds of noise), and against what the predictor takes off the cache.
The CSV files have every seed; the tables are printed, with the published figures at their end.
What the acceptance of the experiment asks of the noisy oracles is checked at the end: hit rate
rises with MCC, from MCC 0.1 on is not below LRU by more than the spread, and the spread is below
0.013.
"""

import argparse
import collections
import csv
import pathlib
import subprocess
import sys

DATA_SETS = ["lmsys", "sharegpt", "arena"]
# At MCC 1 the oracle's own figure; the noise is compared at one size in the middle.
SWEEPS = {
    "size": ["--sweep", "size"],
    "lambda": ["--sweep", "lambda", "--lambda", "100,25,50,200,400",
               "--policies", "lru,turn-only,lpc,oracle"],
    # What a quality is worth, apart from what its model costs; repeats of the same users, because
    # five draws of gaps differ by more than what is asked for.
    "mcc": ["--sweep", "size,mcc", "--sizes", "100K", "--policies", "lru,lpc,oracle",
            "--charge", "0", "--vary", "timing"],
    "charge": ["--sweep", "charge", "--at", "64K,160K", "--policies", "lpc"],
}


def main():
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in DATA_SETS:
        for sweep, arguments in SWEEPS.items():
            if options.only and sweep not in options.only and name not in options.only:
                continue
            out = options.work / f"{name}-{sweep}.csv"
            out.write_text(simulate(options, name, [*arguments, "--csv"]))
            print(f"\n## {name}, {sweep}\n\n```text")
            print(simulate(options, name, arguments).rstrip())
            print("```")
            if sweep == "mcc":
                failed |= not check(name, out)
    sys.exit(1 if failed else 0)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=pathlib.Path, default="target/release/headstart")
    parser.add_argument("--work", type=pathlib.Path, default="bench/out/lpc")
    parser.add_argument("--only", nargs="*", default=[], help="names of sweeps or data sets")
    parser.add_argument("--minutes", default="20")
    parser.add_argument("--seeds", default="5")
    return parser.parse_args()


def simulate(options, name, arguments):
    command = [options.binary, "simulate", "--preset", f"lpc-{name}", "--minutes",
               options.minutes, "--seeds", options.seeds, *arguments]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def check(name, path):
    """Whether the hit rate rises with MCC, and stays near LRU at least."""
    rates = collections.defaultdict(dict)
    with path.open() as lines:
        for row in csv.DictReader(lines):
            point = (row["sweep"], row["arm"], float(row["x"]))
            rates[point][row["seed"]] = float(row["hit_rate"])
    mean = lambda runs: sum(runs.values()) / len(runs)
    lru = next(runs for (_, arm, _), runs in rates.items() if arm == "lru")
    fine = True
    for arm in sorted({arm for sweep, arm, _ in rates if sweep == "mcc"}):
        points = sorted((x, runs) for (_, other, x), runs in rates.items() if other == arm)
        falls = [x for (_, a), (x, b) in zip(points, points[1:]) if mean(b) < mean(a)]
        below = [x for x, runs in points
                 if x >= 0.1 and mean(runs) < mean(lru) - (max(runs.values()) - min(runs.values()))]
        spread = max(max(runs.values()) - min(runs.values()) for _, runs in points)
        print(f"{name}, {arm}: falls at {falls or 'no MCC'}, "
              f"below LRU by more than the spread at {below or 'no MCC from 0.1'}, "
              f"spread at most {spread:.4f}")
        fine &= not falls and not below and spread < 0.013
    return fine


if __name__ == "__main__":
    main()
