"""Measures what share of a live gateway's processor time is spent explaining requests; README.md.

    python bench/insight/profile.py --headstart target/profiling/headstart

Needs `perf` (Linux), and a build whose stacks can be walked:

    RUSTFLAGS="-C force-frame-pointers=yes" cargo build --profile profiling -p headstart
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import overhead
from overhead import GATEWAY, GATEWAY_CORE, LOAD_CORE, UPSTREAM, WORKLOADS
from overhead import Programs, Setting, contenders, openloop, others_waiting

# A frame of the code that explains, or of what it is made of: `<Path>::name`, `Path::name`, and the
# dropping of what it keeps.
OURS = re.compile(r"headstart_insight::|headstart_server::insight::|InsightMetrics")

# The thread that names causes; what it does is all ours, whoever is on its stack.
THREAD = "causes"

TARGET = 0.03


def record(pid, seconds, frequency, data):
    """Samples the stacks of a process for so long; ends by itself."""
    command = ["perf", "record", "-q", "-F", str(frequency), "--call-graph", "fp"]
    command += ["-e", "cpu-clock", "-p", str(pid), "-o", str(data), "--", "sleep", str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def stacks(data):
    """Each sample: its thread, and its frames from the innermost out."""
    command = ["perf", "script", "-i", str(data), "-F", "comm,ip,sym", "--no-inline"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for sample in done.stdout.split("\n\n"):
        lines = sample.strip("\n").splitlines()
        if lines:
            yield lines[0].strip(), [line.strip().partition(" ")[2] for line in lines[1:]]


def entry(frames):
    """By which function of ours, the outermost one, this sample was reached; none of another's."""
    ours = [frame for frame in frames if OURS.search(frame)]
    return short(ours[-1]) if ours else None


def short(frame):
    """A function without its crate, its hash and what it is generic in."""
    frame = re.sub(r"::h[0-9a-f]{16}$", "", frame)
    while (bare := re.sub(r"<[^<>]*>", "", frame)) != frame:
        frame = bare
    parts = [part for part in frame.split("::") if part and "{" not in part]
    return "::".join(parts[-2:])


class Profile:
    """Samples of one run."""

    def __init__(self, data):
        self.total = self.known = 0
        self.entries, self.inner = Counter(), Counter()
        for thread, frames in stacks(data):
            self.total += 1
            self.known += any("headstart" in frame for frame in frames)
            at = entry(frames)
            if at is None and thread == THREAD:
                at = "thread " + THREAD
            if at is not None:
                self.entries[at] += 1
                self.inner[short(frames[0])] += 1

    def ours(self):
        return sum(self.entries.values())


def settle(setting, make, args):
    """A gateway before engines under load, sampled."""
    with overhead.running(setting, make(1, 0)[0].body) as (arms, _others):
        [arm] = arms
        seconds = args.warm_up + args.seconds
        made = make(args.rate * seconds, 1_000_000 * os.getpid())
        data = setting.folder / "perf.data"
        # The load waits for nobody: the sampling begins when it has gone on for a while.
        started = []
        start = threading.Timer(
            args.warm_up,
            lambda: started.append(
                (record(arm.process.inner.pid, args.seconds - 1, args.frequency, data),
                 overhead.thread_ns(arm.process))
            ),
        )  # fmt: skip
        start.start()
        result = openloop.run(arm.port, made, args.rate, seconds)
        start.join()
        [(perf, before)] = started
        complaint = perf.communicate()[1]
        after = overhead.thread_ns(arm.process)
        if perf.returncode or not data.exists():
            sys.exit(f"perf record failed: {complaint.strip()}")
        row = overhead.tokens(arm)
        profile = Profile(data)
        data.unlink()
        row |= {
            "answered": len(result.latencies_s),
            "errors": result.errors,
            "samples": profile.total,
            "ours": profile.ours(),
            "known": profile.known,
            "entries": profile.entries,
            "inner": profile.inner,
            "cpu_s": overhead.used_s(before, after),
            "thread_s": thread_s(arm.process, before, after),
        }
        return row


def thread_s(process, before, after):
    """Processor time of the thread that names causes, as the scheduler counts it."""
    used = 0
    for task in Path(f"/proc/{process.inner.pid}/task").iterdir():
        with contextlib.suppress(OSError):
            if (task / "comm").read_text().strip() == THREAD:
                used += after.get(task.name, 0) - before.get(task.name, 0)
    return used / 1e9


def share(ours, samples):
    """The share, and the half-width of the interval that holds it 95 times in 100 (Wilson's, near
    enough: samples are drawn apart)."""
    part = ours / max(1, samples)
    return part, 1.96 * (part * (1 - part) / max(1, samples)) ** 0.5


def table(rows):
    print(
        "| prompts | share of the gateway's processor time | 95 % | samples | of a core "
        "| thread `causes` by the scheduler | requests/s, errors |\n|---|--:|--:|--:|--:|--:|--:|"
    )
    for workload in dict.fromkeys(row["workload"] for row in rows):
        mine = [row for row in rows if row["workload"] == workload]
        sums = {name: sum(row[name] for row in mine)
                for name in ("ours", "samples", "answered", "errors", "cpu_s", "thread_s")}  # fmt: skip
        part, half = share(sums["ours"], sums["samples"])
        cores = sums["samples"] / sum(row["seconds"] * row["frequency"] for row in mine)
        rate = sum(row["answered"] for row in mine) / sum(row["load_s"] for row in mine)
        print(
            f"| {workload} | {part:.2%} | ± {half:.2%} | {sums['samples']} | {cores:.3f} "
            f"| {sums['thread_s'] / max(1e-9, sums['cpu_s']):.2%} "
            f"| {rate:.0f}, {sums['errors']} |"
        )
    print()


def parts(rows, count):
    """Which calls the share is made of, and which functions are busy in them."""
    for workload in dict.fromkeys(row["workload"] for row in rows):
        mine = [row for row in rows if row["workload"] == workload]
        total = sum(row["samples"] for row in mine)
        for what in ("entries", "inner"):
            sums = Counter()
            for row in mine:
                sums.update(row[what])
            listed = ", ".join(f"{name} {n / total:.2%}" for name, n in sums.most_common(count))
            print(f"- {workload}, {'by call' if what == 'entries' else 'busiest'}: {listed}")
    print()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--headstart", default="target/release/headstart", type=shutil.which)
    parser.add_argument("--only", help="workloads, by semicolon", default=";".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=2, help="with new processes each")
    parser.add_argument("--seconds", type=int, default=16, help="that are sampled, per round")
    parser.add_argument("--warm-up", type=int, default=4, help="seconds of the same before")
    parser.add_argument("--rate", type=int, default=1000, help="requests/s")
    parser.add_argument("--frequency", type=int, default=1999, help="samples a second")
    parser.add_argument("--options", default="", help="of the gateway")
    parser.add_argument("--top", type=int, default=12, help="calls and functions that are named")
    parser.add_argument("--ports", type=int, default=23000, help="the first of some forty")
    parser.add_argument("--lock", help="file that others lock too; held for a run at a time")
    parser.add_argument("--json", type=Path, help="where to add every run's figures")
    parser.add_argument("--demand", action="store_true", help="fail where a share is 3 %% or more")
    args = parser.parse_args()
    args.only = args.only.split(";")
    if args.headstart is None:
        parser.error("--headstart names no program")
    if shutil.which("perf") is None:
        parser.error("perf is needed and not there: install linux-perf (Debian) or linux-tools")
    return args


def main():
    # So that what was started is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    args = arguments()
    overhead.ARMS.clear()
    overhead.ARMS["on"] = args.options
    os.sched_setaffinity(0, {LOAD_CORE})
    programs = Programs(os.path.abspath(args.headstart), "", "")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(programs, Path(folder), args.ports, GATEWAY_CORE)
        for _ in range(args.rounds):
            for workload in args.only:
                with others_waiting(args.lock):
                    row = settle(setting, WORKLOADS[workload], args)
                row |= {"workload": workload, "seconds": args.seconds - 1}
                row |= {"load_s": args.seconds + args.warm_up, "frequency": args.frequency}
                if row["known"] < row["samples"] * 0.5:
                    sys.exit("most stacks name nobody: build with frame pointers, see --help")
                rows.append(row)
    if args.json:
        with open(args.json, "a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    table(rows)
    parts(rows, args.top)
    if args.demand:
        sums = {name: [row for row in rows if row["workload"] == name] for name in args.only}
        over = [name for name, mine in sums.items()
                if sum(row["ours"] for row in mine) >= TARGET * sum(row["samples"] for row in mine)]  # fmt: skip
        sys.exit(f"not under {TARGET:.0%}: {', '.join(over)}" if over else 0)


if __name__ == "__main__":
    main()
