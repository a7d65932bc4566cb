#!/usr/bin/env python3
"""Scores `headstart analyze` and `headstart lint` on the logs of generate.py.

    bench/insight/defects/score.py [--headstart target/release/headstart] [--half unseen] [--list]

The right cause is first if the first finding, or without one the first two headlines, match one of
the patterns that the case accepts. `lint` is right if it fails on a case whose prompts have the
defect. A clean log must have no finding.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).parents[3]
LOGS = ROOT / "target" / "defects"
WORKERS = 2
TIMEOUT_S = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headstart", default=ROOT / "target" / "release" / "headstart")
    parser.add_argument("--half", choices=["seen", "unseen"], default="unseen")
    parser.add_argument("--list", action="store_true", help="a line for each case")
    options = parser.parse_args()
    with ThreadPoolExecutor(WORKERS) as pool:
        cases = sorted((LOGS / options.half).iterdir())
        scored = list(pool.map(lambda case: score(options.headstart, case), cases))
        clean = sorted((LOGS / "clean").iterdir())
        noisy = sum(pool.map(lambda case: has_finding(options.headstart, case), clean))
    sums: Counter[str] = Counter()
    for truth, is_right, is_refused, said in scored:
        part = "prompts" if truth["in_prompt"] else "other"
        sums[part] += 1
        sums[f"{part} right"] += is_right
        sums["refused"] += is_refused and truth["in_prompt"]
        if options.list:
            print("ok " if is_right else "bad", truth["kind"], "|", said[:120])
    for part in ("prompts", "other"):
        print(f"{part}: right cause first in {sums[f'{part} right']} of {sums[part]}")
    print(f"lint fails on {sums['refused']} of {sums['prompts']} with the defect in prompts")
    print(f"clean logs without a finding: {len(clean) - noisy} of {len(clean)}")


def run(program: pathlib.Path, *args: object) -> subprocess.CompletedProcess[str]:
    command = [str(program), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


def score(program: pathlib.Path, case: pathlib.Path) -> tuple[dict, bool, bool, str]:
    truth = json.loads((case / "truth.json").read_text())
    log = case / "log.jsonl"
    report = json.loads(run(program, "analyze", log, "--json").stdout)
    if report["findings"]:
        first = report["findings"][0]
        said = " ".join(first[name] or "" for name in ("cause", "title", "fix", "place"))
    else:
        said = " ".join(report["headlines"][:2])
    is_right = any(re.search(pattern, said, re.IGNORECASE) for pattern in truth["accept"])
    return truth, is_right, run(program, "lint", log).returncode != 0, said


def has_finding(program: pathlib.Path, case: pathlib.Path) -> bool:
    return bool(json.loads(run(program, "analyze", case / "log.jsonl", "--json").stdout)["findings"])


if __name__ == "__main__":
    main()
