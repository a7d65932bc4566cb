#!/usr/bin/env python3
"""Scores `headstart analyze` and `headstart lint` on the logs of generate.py.

    bench/insight/defects/score.py [--headstart target/release/headstart] [--half unseen] [--list]

The right cause is first if the first finding, or without one the first two headlines, match one of
the patterns that the case accepts. `lint` is right if it fails on a case whose prompts have the
defect. A clean log must have no finding.

The place is right if the first finding's title or place has the label that the truth names: counted
over prompts whose truth has a label. `why` is asked about the request that is the first finding's
example, and is right if what it says matches one of the patterns, too.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[3]
LOGS = ROOT / "target" / "defects"
WORKERS = 2
TIMEOUT_S = 120


class Score(NamedTuple):
    truth: dict
    is_right: bool
    is_refused: bool
    # None where the truth has no label.
    is_place_right: bool | None
    is_why_right: bool
    said: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headstart", default=ROOT / "target" / "release" / "headstart")
    parser.add_argument("--logs", type=pathlib.Path, default=LOGS, help="what generate.py wrote")
    parser.add_argument("--half", choices=["seen", "unseen"], default="unseen")
    parser.add_argument("--list", action="store_true", help="a line for each case")
    options = parser.parse_args()
    with ThreadPoolExecutor(WORKERS) as pool:
        cases = sorted((options.logs / options.half).iterdir())
        scored = list(pool.map(lambda case: score(options.headstart, case), cases))
        clean = sorted((options.logs / "clean").iterdir())
        noise = list(pool.map(lambda case: first_finding(options.headstart, case), clean))
    if options.list:
        for case, one in zip(cases, scored, strict=True):
            print(case.name, marks(one), one.truth["kind"], "|", one.said[:120])
        for case, finding in zip(clean, noise, strict=True):
            if finding:
                print(case.name, "clean |", finding["title"], finding["requests"])
    report(scored, [finding is None for finding in noise])


def marks(one: Score) -> str:
    if not one.truth["in_prompt"]:
        return "ok" if one.is_right else "bad"
    parts = [
        "ok" if one.is_right else "bad",
        "lint" if one.is_refused else "no-lint",
        {True: "place", False: "no-place", None: "-"}[one.is_place_right],
        "why" if one.is_why_right else "no-why",
    ]
    return " ".join(parts)


def report(scored: list[Score], clean: list[bool]) -> None:
    prompts = [one for one in scored if one.truth["in_prompt"]]
    other = [one for one in scored if not one.truth["in_prompt"]]
    labelled = [one for one in prompts if one.is_place_right is not None]
    for name, part in (("prompts", prompts), ("other", other)):
        print(f"{name}: right cause first in {sum(one.is_right for one in part)} of {len(part)}")
    refused = sum(one.is_refused for one in prompts)
    print(f"lint fails on {refused} of {len(prompts)} with the defect in prompts")
    placed = sum(bool(one.is_place_right) for one in labelled)
    print(f"place right in {placed} of {len(labelled)} whose truth has a label")
    why = sum(one.is_why_right for one in prompts)
    print(f"why: right cause for the example in {why} of {len(prompts)}")
    print(f"clean logs without a finding: {sum(clean)} of {len(clean)}")


def run(program: pathlib.Path, *args: object) -> subprocess.CompletedProcess[str]:
    command = [str(program), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


def score(program: pathlib.Path, case: pathlib.Path) -> Score:
    truth = json.loads((case / "truth.json").read_text())
    log = case / "log.jsonl"
    report = json.loads(run(program, "analyze", log, "--json").stdout)
    first = report["findings"][0] if report["findings"] else None
    said = described(first) if first else " ".join(report["headlines"][:2])
    label = truth["where"]["label"]
    # In brackets it is a description of the place.
    has_label = truth["in_prompt"] and label and not label.startswith("(")
    place = f"{first['title']} {first['place']}".lower() if first else ""
    return Score(
        truth=truth,
        is_right=matches(truth, said),
        is_refused=run(program, "lint", log).returncode != 0,
        is_place_right=any(one.lower() in place for one in label.split("/")) if has_label else None,
        is_why_right=truth["in_prompt"] and is_why_right(program, log, truth, first),
        said=said,
    )


def is_why_right(
    program: pathlib.Path, log: pathlib.Path, truth: dict, finding: dict | None
) -> bool:
    if not finding or not finding.get("example"):
        return False
    told = run(program, "why", finding["example"]["request"], log, "--json").stdout
    return bool(told) and matches(truth, described(json.loads(told)))


def described(told: dict) -> str:
    return " ".join(told.get(name) or "" for name in ("cause", "title", "fix", "place"))


def matches(truth: dict, said: str) -> bool:
    return any(re.search(pattern, said, re.IGNORECASE) for pattern in truth["accept"])


def first_finding(program: pathlib.Path, case: pathlib.Path) -> dict | None:
    report = json.loads(run(program, "analyze", case / "log.jsonl", "--json").stdout)
    return report["findings"][0] if report["findings"] else None


if __name__ == "__main__":
    main()
