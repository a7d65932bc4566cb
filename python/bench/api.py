"""Time of a call from Python beside the command line, on five files.

    HEADSTART_PROGRAM=target/release/headstart python python/bench/api.py

Each pair alternates `ROUNDS` times and counts by its fastest run. "rows" reads the file in Python,
and sends dicts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import headstart  # noqa: E402
from headstart import program  # noqa: E402

ROUNDS = 3
CASES: list[tuple[str, str, list[str], dict[str, Any]]] = [
    ("chat.jsonl", "replay", ["--policy=lru"], {"policies": "lru"}),
    ("agents.jsonl", "replay", ["--capacity=1%"], {"capacities": "1%"}),
    ("mixed.jsonl.gz", "analyze", [], {}),
    ("demo.jsonl", "analyze", [], {}),
    ("long.jsonl", "lint", [], {}),
]


def make(folder: Path) -> None:
    synth = [program.find(), "trace", "synth"]
    for name, arguments in {
        "chat.jsonl": ["chat", "--requests=20000", "--duration=20000"],
        "agents.jsonl": ["agents", "--requests=5000"],
        "mixed.jsonl.gz": ["mixed", "--requests=30000"],
    }.items():
        subprocess.run([*synth, *arguments, "-o", folder / name], check=True, capture_output=True)
    logs = [folder / f"demo{seed}.jsonl" for seed in range(1, 3)]
    for seed, log in enumerate(logs, 1):
        demo = [program.find(), "demo", f"--seed={seed}", "--log", log]
        subprocess.run(demo, check=True, capture_output=True, cwd=folder)
    (folder / "demo.jsonl").write_bytes(logs[0].read_bytes())
    (folder / "long.jsonl").write_bytes(b"".join(log.read_bytes() for log in logs))


def seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as lines:
        yield from map(json.loads, lines)


def main() -> None:
    print("| file | MB | command | command line s | path s | ratio | rows s | ratio |")
    print("|---|--:|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder)
        for file, command, arguments, options in CASES:
            path = folder / file
            line = [program.find(), command, str(path), "--json", *arguments]
            call = getattr(headstart, command)
            calls: list[Callable[[], Any]] = [
                lambda line=line: subprocess.run(line, capture_output=True, check=False),
                lambda call=call, path=path, options=options: call(path, **options),
            ]
            if path.suffix == ".jsonl":
                calls.append(
                    lambda call=call, path=path, options=options: call(rows(path), **options)
                )
            times = [min(one) for one in zip(*([seconds(c) for c in calls] for _ in range(ROUNDS)))]
            by_rows = f"{times[2]:.3f} | {times[2] / times[0]:.2f}" if len(times) > 2 else "- | -"
            print(
                f"| {file} | {path.stat().st_size / 1e6:.1f} | {command} {' '.join(arguments)} "
                f"| {times[0]:.3f} | {times[1]:.3f} | {times[1] / times[0]:.2f} | {by_rows} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
