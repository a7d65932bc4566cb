#!/usr/bin/env python3
"""Asks `headstart analyze`, `lint` and `why` about the logs that make.py wrote, and tells what they named."""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LOGS = os.path.join(HERE, "logs")


def said(binary, *args):
    """The answer of a command as JSON; nothing where it has none."""
    asked = subprocess.run([binary, *args, "--json"], capture_output=True, text=True)
    return json.loads(asked.stdout) if asked.stdout.strip() else {}


def first(answer):
    """The cause that was named first."""
    findings = answer.get("findings") or [{}]
    return findings[0].get("cause")


def asked_about(defect):
    """Two of the requests that the defect hit."""
    hit = defect["aff"]
    return [f"{defect['name']}-{hit[len(hit) * share // 3]:04d}" for share in (1, 2)]


def main(binary):
    with open(os.path.join(HERE, "meta.json")) as file:
        logs = json.load(file)
    right = {"analyze": 0, "lint": 0, "why": 0}
    defects = alarms = 0
    for log in logs:
        path = os.path.join(LOGS, f"{log['name']}.jsonl")
        named = {name: [first(said(binary, name, path))] for name in ("analyze", "lint")}
        if log["kind"] == "clean":
            if any(named[name] != [None] for name in named):
                alarms += 1
                print(f"clean {log['name']}: {named}")
            continue
        defects += 1
        whys = [said(binary, "why", request, path) for request in asked_about(log)]
        named["why"] = [why.get("cause") for why in whys]
        for name, causes in named.items():
            right[name] += sum(cause == log["cause"] for cause in causes)
        if any(cause != log["cause"] for causes in named.values() for cause in causes):
            print(f"{log['cause']} {log['name']}: {named}")
    print(f"{defects} defects: analyze {right['analyze']}, lint {right['lint']}, why {right['why']} of {2 * defects}")
    print(f"clean logs with a finding: {alarms}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "target/release/headstart")
