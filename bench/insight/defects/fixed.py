#!/usr/bin/env python3
"""The gain that `headstart fix` predicts, beside that of a live engine.

    bench/insight/defects/fixed.py --url http://127.0.0.1:8000 [--headstart COMMAND] LOG...

Each log is fixed for one replica with the engine's blocks. Then `headstart validate` sends the log
as it is and the fixed one, and the hit rates that the engine reports are compared with the
predicted ones. The engine must be one cache and report cached tokens. --tokenizer names the engine's own
tokenizer, with which both commands render the same tokens.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import tempfile


def run(arguments: list[str], codes: tuple[int, ...] = (0,)) -> dict:
    """The JSON that a command prints."""
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr[-400:]}")
    return json.loads(done.stdout)


def reported(headstart: str, log: pathlib.Path, url: str, tokenizer: list[str]) -> float:
    """The hit rate of a log on the engine, in percent."""
    command = [headstart, "validate", str(log), "--url", url, "--json", *tokenizer]
    told = run(command, codes=(0, 1))
    return 100 * told["hit_rate"]["reported"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("logs", nargs="+", type=pathlib.Path)
    options.add_argument("--url", required=True)
    options.add_argument("--headstart", default="target/release/headstart")
    options.add_argument("--capacity", default="100000", help="KV blocks of the engine")
    options.add_argument("--block-tokens", default="16", help="tokens of a block")
    options.add_argument("--tokenizer", help="folder of the engine's tokenizer")
    given = options.parse_args()
    print("log | predicted before, after, gain | live before, after, gain | difference")
    worst = 0.0
    tokenizer = ["--tokenizer", given.tokenizer] if given.tokenizer else []
    for log in given.logs:
        with tempfile.TemporaryDirectory() as folder:
            fixed = pathlib.Path(folder) / "fixed.jsonl"
            command = [given.headstart, "fix", str(log), "--replicas", "1", "--json"]
            command += ["--capacity", given.capacity, "--write", str(fixed)]
            command += ["--block-tokens", given.block_tokens, *tokenizer]
            told = run(command)
            before, after = (100 * told[f"hit_rate_{when}"] for when in ("before", "after"))
            live = [reported(given.headstart, path, given.url, tokenizer) for path in (log, fixed)]
        difference = (after - before) - (live[1] - live[0])
        worst = max(worst, abs(difference))
        print(
            f"{log.parent.name}/{log.stem} | {before:.1f} {after:.1f} {after - before:+.1f} | "
            f"{live[0]:.1f} {live[1]:.1f} {live[1] - live[0]:+.1f} | {difference:+.1f}",
            flush=True,
        )
    print(f"largest difference {worst:.1f} points")


if __name__ == "__main__":
    main()
