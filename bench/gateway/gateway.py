"""Measures the live gateway beside nginx, sglang-router and smg; see README.md.

    python bench/gateway/gateway.py --headstart target/release/headstart \\
      --sglang VENV/bin/python --smg VENV/bin/python --rounds 5
"""

import argparse
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import contenders
import openloop
from contenders import CONTENDERS, FLEET, GATEWAY, UPSTREAM, Programs, Setting
from prompts import prompts, wrk_script

CONNECTIONS = 64
WARM_UP_S = 3
GATEWAY_CORE, LOAD_CORE = 0, 1
WRK_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}

# Which figure of which contenders is compared, and what is asked of it.
TARGETS = [
    ("headstart round-robin", "nginx", 0.75),
    ("headstart precise", "sglang-router cache_aware", 2.0),
    ("headstart precise", "smg cache_aware", 2.0),
]
ADDED_P99_MS = 1.0


def saturate(port, script, seconds):
    """Requests/s, their p50 and p99 in ms, and errors, with every connection always busy."""
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-s", str(script)]
    output = subprocess.run(
        [*command, f"http://127.0.0.1:{port}"], capture_output=True, text=True, check=True
    ).stdout

    def percentile(name):
        value, unit = re.search(rf"{name}%\s+([\d.]+)(us|ms|s)", output).groups()
        return float(value) * WRK_MS[unit]

    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    broken = re.search(r"Socket errors: (.*)", output)
    return {
        "requests": int(re.search(r"(\d+) requests in", output)[1]),
        "requests_per_s": float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1]),
        "p50_ms": percentile(50),
        "p99_ms": percentile(99),
        "errors": int(refused[1] if refused else 0)
        + sum(int(count) for count in re.findall(r"\d+", broken[1] if broken else "")),
    }


def tell_fleet(setting, fleet, made):
    """Has each family computed by one replica, whose events then say that an upstream holds it."""
    for prompt in made:
        session = {"x-session-id": f"family {prompt.family}"}
        contenders.wait_until_answered(setting.base + FLEET, prompt.body, fleet, session)


def cpu_s(process):
    """Processor time of a contender; none where there is none."""
    return process.cpu_s() if process else 0.0


def measure(name, setting, made, script, args, ours):
    """One contender, started for this: saturated, then at a fixed rate."""
    start = CONTENDERS[name]
    port = setting.base + (GATEWAY if start else UPSTREAM)
    process = start(setting) if start else None
    others = Others([*ours, process] if process else ours)
    try:
        if process:
            contenders.wait_until_answered(port, made[0].body, process)
        saturate(port, script, WARM_UP_S)
        before, since = cpu_s(process), time.monotonic()
        row = saturate(port, script, args.seconds)
        used, lasted = cpu_s(process) - before, time.monotonic() - since
        row["cpu_ms_per_request"] = used * 1e3 / row["requests"]
        row["cores"] = used / lasted
        row["threads"] = process.threads() if process else 0
        row["memory_mib"] = process.memory_mib() if process else 0
        time.sleep(0.5)
        before = cpu_s(process)
        open_loop = openloop.run(port, made, args.rate, args.seconds)
        used = cpu_s(process) - before
        row["others_cores"] = others.cores()
    finally:
        if process:
            process.stop()
    latencies = sorted(open_loop.latencies_s)
    for share in (50, 99):
        at = min(len(latencies) - 1, len(latencies) * share // 100)
        row[f"fixed_p{share}_ms"] = latencies[at] * 1e3 if latencies else float("nan")
    row["fixed_cpu_ms_per_request"] = used * 1e3 / max(1, len(latencies))
    row["errors"] += open_loop.errors
    row["affinity"], row["upstreams"] = open_loop.affinity(), open_loop.spread()
    return row


class Others:
    """How busy the rest of the machine is: what disturbs a measurement."""

    def __init__(self, ours):
        self.ours = ours
        self.before, self.since = self.theirs_s(), time.monotonic()

    def theirs_s(self):
        busy = [int(ticks) for ticks in Path("/proc/stat").read_text().split()[1:8]]
        all_s = (sum(busy) - busy[3] - busy[4]) / os.sysconf("SC_CLK_TCK")
        # wrk counts in ours, as it has ended whenever this is asked.
        return all_s - sum(os.times()[:4]) - sum(process.cpu_s() for process in self.ours)

    def cores(self):
        return max(0.0, self.theirs_s() - self.before) / (time.monotonic() - self.since)


@contextlib.contextmanager
def others_waiting(path):
    """Holds a lock that whoever else uses this machine takes as well."""
    if path is None:
        yield
        return
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def rounds(setting, names, args):
    """Every contender once per round, each round beginning with another one."""
    made = prompts()
    script = setting.folder / "post.lua"
    script.write_text(wrk_script([prompt.body for prompt in made]))
    rows = []
    upstreams, fleet = contenders.upstreams(setting), contenders.event_fleet(setting)
    try:
        contenders.wait_until_answered(setting.base + UPSTREAM, made[0].body, upstreams)
        tell_fleet(setting, fleet, made)
        for number in range(args.rounds):
            first = number * len(names) // args.rounds
            with others_waiting(args.lock):
                for name in names[first:] + names[:first]:
                    row = measure(name, setting, made, script, args, [upstreams, fleet])
                    rows.append({"round": number, "name": name, **row})
                    print(json.dumps(rows[-1]), file=sys.stderr)
    finally:
        fleet.stop()
        upstreams.stop()
    return rows


def medians(rows, names):
    """Of every figure, by contender."""
    found = {}
    for name in names:
        own = [row for row in rows if row["name"] == name]
        figures = [key for key in own[0] if key not in ("round", "name")]
        found[name] = {key: statistics.median(row[key] for row in own) for key in figures}
        found[name]["errors"] = sum(row["errors"] for row in own)
    return found


def saturated_table(found, names):
    """With every connection always busy: one line per contender, as Markdown."""
    print(
        "| saturated | requests/s | of nginx | p50 | p99 | CPU per request | of nginx | cores "
        "| threads | memory | errors |\n|---|---|---|---|---|---|---|---|---|---|---|"
    )
    for name in names:
        row = found[name]

        def share(key, row=row):
            return f"{row[key] / found['nginx'][key]:.2f}" if "nginx" in found else "–"

        own = "– | – | – | – | –"  # of the contender's process
        if CONTENDERS[name]:
            own = (
                f"{row['cpu_ms_per_request'] * 1e3:.1f} µs | {share('cpu_ms_per_request')} "
                f"| {row['cores']:.2f} | {row['threads']:.0f} | {row['memory_mib']:,.0f} MiB"
            )
        print(
            f"| {name} | {row['requests_per_s']:,.0f} | {share('requests_per_s')} "
            f"| {row['p50_ms']:.1f} ms | {row['p99_ms']:.1f} ms | {own} | {row['errors']} |"
        )


def fixed_table(found, names, rate):
    """At the fixed rate: what each adds to the latency without it, and where it sent prompts."""
    direct = found["direct"]
    print(
        f"\n| {rate:,} requests/s | p50 | p99 | added at p50 | added at p99 | CPU per request "
        "| upstreams | share of a family in one place |\n|---|---|---|---|---|---|---|---|"
    )
    for name in names:
        row = found[name]
        added, where = "– | – | –", "– | –"
        if CONTENDERS[name]:
            more = [row[f"fixed_p{p}_ms"] - direct[f"fixed_p{p}_ms"] for p in (50, 99)]
            cpu_us = row["fixed_cpu_ms_per_request"] * 1e3
            added = f"{more[0]:.2f} ms | {more[1]:.2f} ms | {cpu_us:.0f} µs"
            where = f"{row['upstreams']:.0f} | {row['affinity']:.0%}"
        print(
            f"| {name} | {row['fixed_p50_ms']:.2f} ms | {row['fixed_p99_ms']:.2f} ms "
            f"| {added} | {where} |"
        )


def verdicts(found, rows):
    """What was asked for beside what came out; CPU as work per processor second."""
    others = [row["others_cores"] for row in rows]
    middle, most = statistics.median(others), max(others)
    print(f"\nOther programs used {middle:.2f} cores meanwhile (median; at most {most:.2f}).\n")
    for name, other, target in TARGETS:
        if name in found and other in found:
            row, base = found[name], found[other]
            rate = row["requests_per_s"] / base["requests_per_s"]
            work = base["cpu_ms_per_request"] / row["cpu_ms_per_request"]
            print(
                f"- {name} / {other}: {rate:.2f}× the requests/s, {work:.2f}× the requests per "
                f"CPU second (target {target}×)"
            )
    for name in found:
        if name.startswith("headstart"):
            row = found[name]
            added = row["fixed_p99_ms"] - found["direct"]["fixed_p99_ms"]
            print(f"- {name}: {added:.2f} ms added at p99 (target under {ADDED_P99_MS} ms)")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--headstart", default="target/release/headstart", type=shutil.which)
    parser.add_argument("--sglang", help="a Python that has sglang-router")
    parser.add_argument("--smg", help="a Python that has smg")
    parser.add_argument("--only", help="contenders, by comma; all that can be started by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=6, help="of each of the two loads")
    parser.add_argument("--rate", type=int, default=1000, help="of the fixed one, requests/s")
    parser.add_argument("--unpinned", action="store_true", help="everything on all cores")
    parser.add_argument("--ports", type=int, default=21000, help="the first of some forty")
    parser.add_argument("--lock", help="file that others lock too; held for a round at a time")
    parser.add_argument("--json", type=Path, help="where to write every round's figures")
    args = parser.parse_args()
    if args.headstart is None:
        parser.error("--headstart names no program")
    return args


def chosen(args):
    names = ["direct", *args.only.split(",")] if args.only else list(CONTENDERS)
    lacking = [peer for peer in ("sglang", "smg") if not getattr(args, peer)]
    return [name for name in names if not name.startswith(tuple(lacking))]


def main():
    # So that what was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    args = arguments()
    names = chosen(args)
    if not args.unpinned:
        # Of this process, and so of wrk and of the upstreams.
        os.sched_setaffinity(0, {LOAD_CORE})
    programs = Programs(os.path.abspath(args.headstart), args.sglang, args.smg)
    with tempfile.TemporaryDirectory() as folder:
        core = None if args.unpinned else GATEWAY_CORE
        rows = rounds(Setting(programs, Path(folder), args.ports, core), names, args)
    if args.json:
        args.json.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = medians(rows, names)
    saturated_table(found, names)
    fixed_table(found, names, args.rate)
    verdicts(found, rows)


if __name__ == "__main__":
    main()
