"""Measures what explaining requests costs the live gateway; see README.md.

    python bench/insight/overhead.py --headstart target/release/headstart --rounds 8
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gateway"))
import contenders
import openloop
from contenders import EVENTS, GATEWAY, TOKENIZER, UPSTREAM, Process, Programs, Setting
from gateway import GATEWAY_CORE, LOAD_CORE, Others, others_waiting
from workloads import WORKLOADS

# Arms by name: the options of each. The second `off` says how far two that are alike differ.
ARMS = {"off": "--insight off", "on": "", "off again": "--insight off"}

# The first one is what the others are compared with.
BASE = next(iter(ARMS))

# Engines whose steps take no time, small enough that they evict within a run.
ENGINE = contenders.NO_TIME.replace("1_000_000", "200_000")

# Here the gateway's header says who answered.
openloop.UPSTREAM = re.compile(rb"\r\nx-headstart-replica: *(\d+)", re.IGNORECASE)


def engines(setting):
    """The upstreams: emulated engines that say what they cached, and publish KV events."""
    model = setting.folder / "engine.toml"
    model.write_text(ENGINE)
    started = []
    for index, url in enumerate(setting.urls()):
        command = [setting.programs.headstart, "serve", "--executor", f"cost-model={model}"]
        command += ["--listen", url.removeprefix("http://"), "--insight", "off"]
        command += ["--replicas", "1", "--kv-events-port"]
        command += [str(setting.base + EVENTS + 2 * index)]
        started.append(Process(command, setting, f"engine-{index}"))
    return started


def gateway(setting, port, options):
    command = [setting.programs.headstart, "serve", "--strategy", "precise"]
    command += ["--listen", f"127.0.0.1:{port}", *options.split()]
    for index, url in enumerate(setting.urls()):
        first = setting.base + EVENTS + 2 * index
        events = [f"kv=tcp://127.0.0.1:{first}", f"replay=tcp://127.0.0.1:{first + 1}"]
        command += ["--upstream", ",".join([url, f"tokenizer={TOKENIZER}", *events])]
    return Process(command, setting, f"gateway-{port}", setting.core)


def thread_ns(process):
    """Processor time of each thread so far, as the scheduler counts it: to the nanosecond, where
    `utime` and `stime` go by hundredths of a second."""
    times = {}
    for path in Path(f"/proc/{process.inner.pid}/task").glob("*/schedstat"):
        try:
            times[path.parent.name] = int(path.read_text().split()[0])
        except OSError:
            continue  # it has just ended
    return times


def used_s(before, after):
    return sum(ns - before.get(thread, 0) for thread, ns in after.items()) / 1e9


def counters(port):
    """Every sample of `/metrics`, by its name with labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def explained(samples):
    """Tokens by bucket, and what the engines said: their prompts' tokens, and those cached."""
    buckets, said = {}, {}
    for name, value in samples.items():
        if name.startswith("headstart_prompt_tokens_total{"):
            buckets[re.search(r'bucket="([^"]*)"', name)[1]] = value
        if name.startswith("headstart_prompt_tokens_by_source_total{"):
            source = re.search(r'source="([^"]*)"', name)[1]
            said[source] = said.get(source, 0) + value
    return {bucket: tokens for bucket, tokens in buckets.items() if tokens}, said


@dataclass
class Arm:
    """A gateway that runs."""

    name: str
    port: int
    process: Process


@contextlib.contextmanager
def running(setting, prompt):
    """All arms, each with its gateway, before one fleet of engines."""
    ours, arms = engines(setting), []
    try:
        for index, engine in enumerate(ours):
            contenders.wait_until_answered(setting.base + UPSTREAM + index, prompt, engine)
        for number, (name, options) in enumerate(ARMS.items()):
            port = setting.base + GATEWAY + number
            arms.append(Arm(name, port, gateway(setting, port, options)))
        for arm in arms:
            contenders.wait_until_answered(arm.port, prompt, arm.process)
        yield arms, Others([*ours, *(arm.process for arm in arms)])
    finally:
        for process in [*ours, *(arm.process for arm in arms)]:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                process.stop()


def measure(arm, made, rate, seconds):
    """A slice of load on one arm."""
    before, ticks = thread_ns(arm.process), arm.process.cpu_s()
    result = openloop.run(arm.port, made, rate, seconds)
    after, ticks = thread_ns(arm.process), arm.process.cpu_s() - ticks
    latencies = sorted(result.latencies_s)
    answered = len(latencies)
    return {
        "answered": answered,
        "cpu_us": used_s(before, after) * 1e6 / max(1, answered),
        "ticks_us": ticks * 1e6 / max(1, answered),
        "errors": result.errors,
        "p50_ms": latencies[answered // 2] * 1e3 if answered else float("nan"),
    }


def tokens(arm):
    """What became of all tokens of an arm. All that the engines counted must be in buckets; where
    nothing is explained, none."""
    buckets, said = explained(counters(arm.port))
    in_buckets, all_said = sum(buckets.values()), sum(said.values())
    if "--insight off" in ARMS[arm.name]:
        assert in_buckets == 0, f"{arm.name}: {in_buckets} tokens are explained"
    else:
        assert in_buckets == all_said > 0, f"{arm.name}: {in_buckets} tokens of {all_said}"
    return {"buckets": buckets, "said": said, "memory_mib": arm.process.memory_mib()}


def rounds(setting, args):
    """In each round new processes; in each turn of it a slice of load on every arm, in an order
    that changes from turn to turn."""
    rows, slices = [], 0
    for number in range(args.rounds):
        for workload in args.only:
            make = WORKLOADS[workload]
            with others_waiting(args.lock), running(setting, make(1, 0)[0].body) as (arms, others):
                for arm in arms:
                    slices += 1
                    made = make(args.rate * args.warm_up, 1_000_000 * os.getpid() + slices)
                    openloop.run(arm.port, made, args.rate, args.warm_up)
                for turn in range(args.turns):
                    first = turn % len(arms)
                    order = (arms[first:] + arms[:first])[:: 1 - turn // len(arms) % 2 * 2]
                    for arm in order:
                        slices += 1
                        made = make(args.rate * args.seconds, 1_000_000 * os.getpid() + slices)
                        row = measure(arm, made, args.rate, args.seconds)
                        place = {"workload": workload, "round": number, "turn": turn}
                        rows.append(place | {"arm": arm.name} | row)
                time.sleep(0.2)
                rows.extend(
                    {"workload": workload, "arm": arm.name, "others_cores": others.cores()}
                    | tokens(arm)
                    for arm in arms
                )
    return rows


def table(rows):
    """One line per workload and arm, as Markdown: the time of each request, and of every turn the
    ratio to the base."""
    print(
        "| prompts | arm | CPU per request | more than off, median of turns | quartiles | turns "
        "| memory | errors |\n|---|---|---|---|---|---|---|---|"
    )
    for workload in dict.fromkeys(row["workload"] for row in rows):
        mine = [row for row in rows if row["workload"] == workload]
        turns = {}
        for row in mine:
            if "turn" in row:
                at = (row.get("run"), row["round"], row["turn"])
                turns.setdefault(at, {})[row["arm"]] = row
        for arm in dict.fromkeys(row["arm"] for row in mine):
            pairs = [turn for turn in turns.values() if arm in turn and BASE in turn]
            cpu_us = statistics.median(turn[arm]["cpu_us"] for turn in pairs)
            ends = [row for row in mine if row["arm"] == arm and "memory_mib" in row]
            memory = statistics.median(row["memory_mib"] for row in ends)
            errors = sum(turn[arm]["errors"] for turn in pairs)
            more = "– | –"
            if arm != BASE:
                ratios = [turn[arm]["cpu_us"] / turn[BASE]["cpu_us"] - 1 for turn in pairs]
                low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
                more = f"{middle:+.1%} | {low:+.1%} to {high:+.1%}"
            print(
                f"| {workload} | {arm} | {cpu_us:.1f} µs | {more} | {len(pairs)} "
                f"| {memory:.0f} MiB | {errors} |"
            )


def where(rows):
    """Where tokens landed in the explained arms, per workload."""
    print()
    ends = [row for row in rows if "buckets" in row]
    for workload in dict.fromkeys(row["workload"] for row in ends):
        sums = {}
        for row in ends:
            if row["workload"] == workload:
                for bucket, count in row["buckets"].items():
                    sums[bucket] = sums.get(bucket, 0) + count
        total = max(1, sum(sums.values()))
        shares = (f"{bucket} {count / total:.1%}" for bucket, count in sums.items())
        print(f"- {workload}: {', '.join(shares)}")
    others = [row["others_cores"] for row in ends]
    middle, most = statistics.median(others), max(others)
    print(f"\nOther programs used {middle:.2f} cores meanwhile (median; at most {most:.2f}).")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--headstart", default="target/release/headstart", type=shutil.which)
    parser.add_argument("--only", help="workloads, by semicolon", default=";".join(WORKLOADS))
    parser.add_argument("--arm", action="append", default=[], metavar="NAME=OPTIONS",
                        help="another arm: `ghosts=--ghosts on`")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, help="with new processes each")
    parser.add_argument("--turns", type=int, default=30, help="per round: one slice of each arm")
    parser.add_argument("--seconds", type=int, default=1, help="of a slice")
    parser.add_argument("--warm-up", type=int, default=2, help="seconds of the same before")
    parser.add_argument("--rate", type=int, default=1000, help="requests/s")
    parser.add_argument("--ports", type=int, default=22000, help="the first of some forty")
    parser.add_argument("--lock", help="file that others lock too; held for a round at a time")
    parser.add_argument("--json", type=Path, help="where to add every run's figures")
    parser.add_argument("--table", type=Path, help="only the tables, of what --json wrote")
    args = parser.parse_args()
    args.only = args.only.split(";")
    if args.headstart is None and args.table is None:
        parser.error("--headstart names no program")
    return args


def main():
    # So that what was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    args = arguments()
    if args.table:
        rows = [json.loads(line) for line in args.table.read_text().splitlines()]
    else:
        ARMS.update(arm.split("=", 1) for arm in args.arm)
        os.sched_setaffinity(0, {LOAD_CORE})
        programs = Programs(os.path.abspath(args.headstart), "", "")
        with tempfile.TemporaryDirectory() as folder:
            setting = Setting(programs, Path(folder), args.ports, GATEWAY_CORE)
            rows = rounds(setting, args)
        if args.json:
            with open(args.json, "a") as file:
                run = {"run": time.time()}
                file.writelines(json.dumps(run | row) + "\n" for row in rows)
    table(rows)
    where(rows)


if __name__ == "__main__":
    main()
