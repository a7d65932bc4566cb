#!/usr/bin/env python3
"""Scores `analyze`, `lint` and `why` on the blind sets of defective request logs.

    cargo build --release
    python tools/blind_defects/run.py                # all sets
    python tools/blind_defects/run.py --set fourth --only clock

A set in data/blind_defects holds logs and truth.json: the cause of each log, requests for `why`, and
the texts that show the cause. `named`: the first finding (the answer of `why`) has the cause.
`shown`: one of its example texts has these texts as well. A clean log must have no finding.
"""

import argparse
import json
import subprocess
import tarfile
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETS = ("second", "third", "fourth")
COMMANDS = ("analyze", "lint", "why")
# Fields of an answer that hold parts of a prompt.
TEXT_FIELDS = ("before", "old", "new", "after", "text")
# Marks that stand for white space in an answer.
MARKS = "⏎␍␊↵→␣·␉⇥⍽¶"
TIMEOUT_S = 60


def plain(text):
    """`text` with each run of white space, or of marks for it, as one blank."""
    for mark in MARKS:
        text = text.replace(mark, " ")
    for escape in ("\\n", "\\r", "\\t"):
        text = text.replace(escape, " ")
    return " ".join(text.replace('\\"', '"').split())


def example_texts(answer):
    """The parts of prompts anywhere in an answer, alone and joined with their surroundings."""
    texts = []
    if isinstance(answer, dict):
        parts = {name: answer[name] for name in TEXT_FIELDS if isinstance(answer.get(name), str)}
        texts += parts.values()
        for name in ("old", "new"):
            if name in parts:
                texts.append(parts.get("before", "") + parts[name] + parts.get("after", ""))
        answer = list(answer.values())
    if isinstance(answer, list):
        texts += [text for value in answer for text in example_texts(value)]
    return [plain(text) for text in texts if text.strip()]


def is_shown(expected, texts, others):
    """Whether a text has `expected`, or a part of it that none of `others` has."""
    expected = plain(expected)
    others = [other for other in map(plain, others) if other != expected]
    is_own = lambda part: not any(part in other for other in others)
    for text in texts:
        part = text.strip("… .\"'").strip()
        if expected in text or (len(part) >= 4 and part in expected and is_own(part)):
            return True
        windows = (expected[at : at + 16] for at in range(len(expected) - 15))
        if len(expected) > 20 and any(window in text and is_own(window) for window in windows):
            return True
    return False


def shows(log, answer):
    """Whether an answer's texts show what is wrong with the log."""
    if not log["exact"] and not log["need"]:
        return True
    texts = example_texts(answer)
    values = list(dict.fromkeys(log["values"] + log["exact"])) if log["need"] > 1 else []
    if log["exact"] and all(is_shown(text, texts, values) for text in log["exact"]):
        return True
    hits = [value for value in dict.fromkeys(log["values"]) if is_shown(value, texts, values)]
    return len(hits) >= max(1, log["need"])


def ask(binary, *arguments):
    """A command's answer; an empty one where it failed."""
    line = [binary, *arguments, "--json", "--show-text"]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    return json.loads(ended.stdout) if ended.stdout.strip() else {}


def score(binary, folder, log):
    """Counts of one log by command: asked, named, shown. Lines say what was missed."""
    counts, missed = Counter(), []
    path = folder / log["file"]
    answers = []
    for command in ("analyze", "lint"):
        findings = ask(binary, command, path).get("findings")
        if log["cause"] is None:
            counts[command, "clean"] += 1
            counts[command, "quiet"] += findings == []
            if findings != []:
                missed.append(f"clean {log['file']} {command}: {findings and findings[0]['cause']}")
        else:
            answers.append((command, (findings or [{}])[0]))
    answers += [("why", ask(binary, "why", request, path)) for request in log["requests"]]
    for command, answer in answers:
        is_named = answer.get("cause") == log["cause"]
        counts[command, "asked"] += 1
        counts[command, "named"] += is_named
        counts[command, "shown"] += is_named and shows(log, answer)
        if not is_named:
            missed.append(f"{log['cause']} {log['file']} {command}: {answer.get('cause')}")
    return counts, missed


def run(name, options):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        with tarfile.open(ROOT / "data/blind_defects" / f"{name}.tar.xz") as packed:
            packed.extractall(folder, filter="data")
        logs = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
        logs = [log for log in logs if options.only in log["file"]]
        with ThreadPoolExecutor(options.jobs) as threads:
            scored = list(threads.map(lambda log: score(options.headstart, folder, log), logs))
    counts = sum((counts for counts, _ in scored), Counter())
    for line in (line for _, missed in scored for line in missed):
        print(" ", line)
    for command in COMMANDS:
        named, shown, asked = (counts[command, what] for what in ("named", "shown", "asked"))
        quiet = f", quiet on {counts[command, 'quiet']} of {counts[command, 'clean']} clean logs"
        print(f"{name} {command}: {named} of {asked} named, {shown} shown{quiet * (command != 'why')}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--headstart", default=ROOT / "target/release/headstart")
    parser.add_argument("--set", choices=SETS, action="append", help="default: all")
    parser.add_argument("--only", default="", help="logs whose name has this text")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    for name in options.set or SETS:
        run(name, options)


if __name__ == "__main__":
    main()
