"""LMCache's own benchmark of L2 adapters, through Headstart's adapter and LMCache's `fs`.

    VENV/bin/python bench/engines/l2.py
    VENV/bin/python bench/engines/l2.py --num-keys 32 --object-kib 32768 --folder /mnt/nvme

The environment needs lmcache 0.5.6, torch, and the wheel of this repository. Each run is one
process of `lmcache bench l2`. It stores, looks up and loads objects, and compares the bytes. Runs
of the adapters alternate. Each run has a mean, and the table has the medians of the means:

- GB/s of stores and loads, µs for the lookup of one object
- seconds of CPU per GB stored and loaded, of the whole process after its imports. LMCache's filling
  and comparing of buffers is part of it.

`fs` writes and reads through the page cache. Its stores may still be in memory when they end, and
its loads may not touch the disk. `fs, O_DIRECT` and Headstart bypass the page cache.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

QUIET = {
    "LMCACHE_DISABLE_BANNER": "1",
    "LMCACHE_LOG_LEVEL": "ERROR",
    "LMCACHE_TRACK_USAGE": "false",
}
"""LMCache prints less and reports nothing to its authors."""

RUN_S = 300
"""Longest time for one run."""


def main() -> None:
    """Runs and prints."""
    if len(sys.argv) > 1 and sys.argv[1] == "--one":
        run_here(sys.argv[2:])
        return
    options = parse()
    results: dict[str, list[dict[str, float]]] = {}
    for repeat in range(options.repeats):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="headstart-lmcache-", dir=options.folder))
        for name, adapter in adapters_in(folder, options).items():
            folder.mkdir(exist_ok=True)
            try:
                results.setdefault(name, []).append(run(options, adapter))
            finally:
                shutil.rmtree(folder)
            print(f"run {repeat + 1}, {name}: {json.dumps(results[name][-1])}", file=sys.stderr)
    print(table(results))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--folder", help="a folder on the measured disk [the system's temporary folder]")
    add("--num-keys", type=int, default=16, help="objects of a task [%(default)s]")
    add("--in-flight", type=int, default=2, help="tasks at once [%(default)s]")
    add("--object-kib", type=int, default=8192, help="length of an object [%(default)s]")
    add("--rounds", type=int, default=5, help="rounds of a run, after one more [%(default)s]")
    add("--repeats", type=int, default=3, help="runs of each adapter [%(default)s]")
    add("--row-kib", type=int, nargs="+", default=[256, 1024], help="values of Headstart's option")
    return parser.parse_args()


def adapters_in(folder: pathlib.Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Values of `--l2-adapter`."""
    stored_gib = num_bytes(options, options.rounds + 1) / (1 << 30)
    # Twice as much and the fixed part, so that the tier evicts nothing.
    place = {"folder": str(folder), "budget_gib": 2 * stored_gib + 1}
    plugin = {
        "type": "plugin",
        "module_path": "headstart.lmcache.adapter",
        "class_name": "HeadstartL2Adapter",
    }
    adapters: dict[str, dict[str, Any]] = {}
    for kib in options.row_kib:
        params = {"adapter_params": place | {"row_kib": kib}}
        adapters[f"Headstart, `row_kib` {kib}"] = plugin | params
    fs = {"type": "fs", "base_path": str(folder)}
    return adapters | {"`fs`": fs, "`fs`, O_DIRECT": fs | {"use_odirect": True}}


def num_bytes(options: argparse.Namespace, rounds: int) -> int:
    """Bytes of the objects of some rounds."""
    return rounds * options.num_keys * options.in_flight * options.object_kib * 1024


def run(options: argparse.Namespace, adapter: dict[str, Any]) -> dict[str, float]:
    """One run in a process of its own."""
    command = ["bench", "l2", "--l2-adapter", json.dumps(adapter), "--no-skip-verify"]
    command += ["--num-keys", str(options.num_keys), "--in-flight", str(options.in_flight)]
    command += ["--data-size-kb", str(options.object_kib), "--rounds", str(options.rounds)]
    command += ["--l1-align-bytes", "4096", "--lookup-max-hit-rate", "1"]
    ended = subprocess.run(
        # Without -P `import lmcache` finds this file.
        [sys.executable, "-P", __file__, "--one", *command],
        env=os.environ | QUIET,
        stdout=subprocess.PIPE,
        timeout=RUN_S,
        check=True,
        text=True,
    )
    told = json.loads(ended.stdout.splitlines()[-1])
    sections = told["metrics"].values()
    expected = options.rounds * options.num_keys * options.in_flight
    operations = {part["operation"]: part for part in sections if "operation" in part}
    for name, part in operations.items():
        if part["total_success"] != expected or part["rounds_timed_out"]:
            raise SystemExit(f"{name}: {part['total_success']} of {expected} objects")
    moved_gb = 2 * num_bytes(options, options.rounds + 1) / 1e9
    return {
        "store_gb_s": operations["Store"]["throughput_avg_mbps"] * (1 << 20) / 1e9,
        "load_gb_s": operations["Load"]["throughput_avg_mbps"] * (1 << 20) / 1e9,
        "lookup_us": operations["Lookup"]["latency_per_key_ms"] * 1000,
        "cpu_s_per_gb": told["cpu_s"] / moved_gb,
    }


def run_here(command: list[str]) -> None:
    """LMCache's command in this process; the last line has its measurements as JSON."""
    # The measurement leaves out imports.
    import lmcache.cli.commands.bench.l2_adapter_bench.data
    import lmcache.cli.commands.bench.l2_adapter_bench.runner
    import lmcache.v1.distributed.l2_adapters.fs_l2_adapter  # noqa: F401
    from lmcache.cli.main import main as lmcache_main

    import headstart.lmcache.adapter  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "measures.json"
        began_s = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                lmcache_main([*command, "--format", "json", "--output", str(path)])
            except SystemExit as end:
                if end.code:
                    sys.exit(f"{printed.getvalue()}\nlmcache ended with {end.code}")
        cpu_s = time.process_time() - began_s
        print(json.dumps({"cpu_s": cpu_s, "metrics": json.loads(path.read_text())["metrics"]}))


def table(results: dict[str, list[dict[str, float]]]) -> str:
    """Medians, as Markdown."""
    lines = ["| adapter | stores, GB/s | loads, GB/s | lookup, µs an object | CPU, s a GB |"]
    lines.append("|---|--:|--:|--:|--:|")
    for name, runs in results.items():
        store, load, lookup, cpu = (statistics.median(run[key] for run in runs) for key in runs[0])
        lines.append(f"| {name} | {store:.2f} | {load:.2f} | {lookup:.0f} | {cpu:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
