"""Measure `headstart replay` beside libcachesim and kvcache-simulator, whole processes, one run.

For each stream (the agent sessions in file order and with drawn arrivals, every block looked up
one by one; independent objects from a Zipf law) and capacity (a share of its distinct blocks)
every contender runs once a round, in turn, so that a slow spell of the machine hits all of them;
medians over the rounds are shown. Speed is look-ups per second of CPU time (user + system, all
threads).

The peers are given their best: input in their own binary form, made before; libcachesim with
its hash table sized to the capacity (the default table, and text input, beside it for LRU);
kvcache-simulator's compiled core called directly (its command line beside it, on a prefix).
Headstart reads its input as anybody has it: zstd and JSON count.

Run from the repository root, with tools/peers/requirements.txt installed:

    python tools/peers/replay_speed.py [--policy lru,sieve] [--rounds 5]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from kvcache_sim import calculator, cpp_backend

from stream import Stream

HERE = Path(__file__).resolve().parent
PEER_POLICIES = ("lru", "fifo", "lfu", "s3fifo", "sieve", "arc", "gdsf")
CORE_POLICIES = ("lru", "fifo")  # kvcache-simulator's online ones
PERCENTS = (1, 5)
MEMORY_PERCENTS = (25, 50)
DEFAULT_HASHPOWER = 24
POLL_S = 0.01  # between two looks at a process: the error of a wall time
CLI_MODEL = "cohere-command-r-plus"  # any: its bytes per token do not depend on the length


@dataclass(frozen=True)
class Contender:
    """One line of the table."""

    program: str
    policy: str
    command: Callable  # of stream and capacity
    hits: Callable  # of the text it printed and the stream; None where it counts something else
    prefix: bool = False

    def lookups(self, stream):
        return stream.prefix_lookups if self.prefix else stream.lookups


@dataclass
class Series:
    """Measurements of one contender in one setting, a round each."""

    wall_s: list = field(default_factory=list)
    cpu_s: list = field(default_factory=list)
    rss_bytes: list = field(default_factory=list)
    hits: int | None = None


class Failed(Exception):
    """A contender did not run."""


def resident_peak(pid):
    """The largest resident set so far, in bytes, or 0 when the process is gone.

    The kernel's own account at the end cannot be used: it begins with the set of the parent.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def measure(command):
    """Runs a command; its output, wall and CPU seconds and largest resident set."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start, peak, done = time.monotonic(), 0, 0
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        while not done:
            peak = max(peak, resident_peak(process.pid))
            time.sleep(POLL_S)
            done, status, usage = os.wait4(process.pid, os.WNOHANG)
        wall = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        text, complaint = output.read().decode(), errors.read().decode(errors="replace").strip()
    if process.returncode != 0:
        raise Failed(complaint.splitlines()[-1] if complaint else f"exit {process.returncode}")
    return text, wall, usage.ru_utime + usage.ru_stime, peak


def headstart(binary, policy):
    def command(stream, capacity):
        trace = [stream.trace, *stream.options]
        return [binary, "replay", *trace, "--policy", policy, "--capacity", str(capacity), "--json"]

    def hits(text, stream):
        rows = [json.loads(line) for line in text.splitlines()]
        row = next(row for row in rows if row.get("policy") == policy)
        if row["lookups"] != stream.lookups:
            raise Failed(f"{row['lookups']} look-ups, but the peers have {stream.lookups}")
        return row["hits"]

    return Contender("headstart", policy, command, hits)


def fitting_hashpower(capacity):
    """Four to eight buckets an object: the fastest of one to sixty-four on two streams."""
    return capacity.bit_length() + 2


def libcachesim(policy, variant="", hashpower=None, ids="ids.u32"):
    def command(stream, capacity):
        script = str(HERE / "libcachesim_replay.py")
        power = hashpower or fitting_hashpower(capacity)
        values = map(str, (stream.lookups, policy, capacity, power))
        return [sys.executable, script, stream.file(ids), *values]

    name = "libcachesim" + variant
    return Contender(name, policy, command, lambda text, _: json.loads(text)["hits"])


def measured(row):
    """Refuses a result of kvcache-simulator's that stopped early; it counts half the tokens."""
    if row["measurementStartRequest"] is None or row["measurementStartRequest"] < 0:
        raise Failed("the cache was not full after half the requests, so the replay stopped")


def kvcache_core(policy):
    binary = str(cpp_backend.ensure_cpp_simulator())

    def command(stream, capacity):
        options = {
            "--policy": policy,
            "--ids": stream.file("ids.u32"),
            "--tokens": stream.file("tokens.u16"),
            "--request-ends": stream.file("ends.u32"),
            "--total-blocks": stream.lookups,
            "--request-count": stream.requests,
            "--warmup-requests": stream.requests // 2,
            "--capacity": capacity,
        }
        return [binary, *(str(part) for option in options.items() for part in option)]

    def hits(text, _):
        measured(json.loads(text))

    return Contender("kvcache-simulator, core", policy, command, hits)


def kvcache_cli(policy):
    models = calculator.load_models_data()
    model = calculator.models_by_id(models)[CLI_MODEL]
    size = calculator.calculate_cache_size(
        model,
        tokens=1,
        precision=None,
        indexer_precision=None,
        block_size=64,
        include_draft_kv_cache=False,
        include_linear_attention_state=False,
        models_data=models,
    )

    def command(stream, capacity):
        gib = (capacity + 0.5) * size.bytes_per_token * 64 / calculator.BYTES_PER_GIB
        program = [sys.executable, "-m", "kvcache_sim", "run", "--no-progress"]
        program += ["--trace", stream.file("prefix.jsonl"), "--model", CLI_MODEL]
        return program + ["--budgets-gib", repr(gib), "--policies", policy, "--format", "json"]

    def hits(text, _):
        points = json.loads(text)["points"]
        if not points:
            raise Failed("the cache was not full after half the requests of the prefix")
        measured(points[0]["results"][policy])

    return Contender("kvcache-simulator, CLI on a prefix", policy, command, hits, prefix=True)


def contenders(binary, policies):
    """Everybody, Headstart's LRU first."""
    found = [headstart(binary, policy) for policy in policies]
    found += [libcachesim(policy) for policy in policies if policy in PEER_POLICIES]
    if "lru" in policies:
        found.append(libcachesim("lru", ", default table", hashpower=DEFAULT_HASHPOWER))
        found.append(libcachesim("lru", ", text input", ids="ids.txt"))
    found += [kvcache_core(policy) for policy in policies if policy in CORE_POLICIES]
    if "lru" in policies:
        found.append(kvcache_cli("lru"))
    return found


def run(stream, capacity, everybody, rounds):
    """Series by contender; contenders that fail are said once and left out."""
    series = {contender: Series() for contender in everybody}
    for _ in range(rounds):
        for contender in list(series):
            try:
                text, wall, cpu, rss = measure(contender.command(stream, capacity))
                series[contender].hits = contender.hits(text, stream)
            except Failed as failure:
                print(f"NOT MEASURED: {contender.program} {contender.policy}: {failure}")
                del series[contender]
                continue
            series[contender].wall_s.append(wall)
            series[contender].cpu_s.append(cpu)
            series[contender].rss_bytes.append(rss)
    return series


def million_per_core_s(stream, contender, series):
    """Median, least and most."""
    rates = [contender.lookups(stream) / cpu / 1e6 for cpu in series.cpu_s]
    return statistics.median(rates), min(rates), max(rates)


def print_speed(stream, percent, capacity, series):
    print(f"\n### {stream.name}: {capacity} blocks, {percent} % of {stream.distinct}\n")
    print(f"{stream.lookups} look-ups in {stream.requests} requests.\n")
    print("| program | policy | hits | M look-ups per core-second (least–most) | CPU s | wall s "
          "| of Headstart's LRU | max RSS, MiB |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    rates = {who: million_per_core_s(stream, who, found) for who, found in series.items()}
    base = next((rates[who][0] for who in rates if is_headstart_lru(who)), None)
    for who, found in series.items():
        rate, least, most = rates[who]
        share = f"{rate / base:.2f}" if base else "–"
        hits = "–" if found.hits is None else found.hits
        cpu, wall = statistics.median(found.cpu_s), statistics.median(found.wall_s)
        rss = statistics.median(found.rss_bytes) / 2**20
        print(f"| {who.program} | {who.policy} | {hits} | {rate:.2f} ({least:.2f}–{most:.2f}) "
              f"| {cpu:.2f} | {wall:.2f} | {share} | {rss:.0f} |")
    print_ratios(rates, base)


def is_headstart_lru(contender):
    return contender.program == "headstart" and contender.policy == "lru"


def print_ratios(rates, base):
    """The two ratios that the issue names."""
    if base is None:
        return
    peers = {who: rate[0] for who, rate in rates.items()
             if who.policy == "lru" and who.program != "headstart"}
    if peers:
        fastest = max(peers, key=peers.get)
        print(f"\nHeadstart's LRU is {base / peers[fastest]:.2f}× the fastest peer's "
              f"({fastest.program}).")
    ours = {who.policy: rate[0] for who, rate in rates.items() if who.program == "headstart"}
    slowest = min(ours, key=ours.get)
    print(f"Headstart's slowest policy here: {slowest}, {base / ours[slowest]:.2f}× slower than "
          "its LRU.")


def print_memory(stream, everybody):
    """Bytes for each further resident block, so that what does not depend on the capacity cancels
    out: one run at each of two capacities, large enough to rise above reading the trace."""
    small, large = (stream.capacity(percent) for percent in MEMORY_PERCENTS)
    print(f"\n### {stream.name}: memory per resident block\n")
    print(f"Growth of the largest resident set from {small} to {large} blocks, per block.\n")
    print("| program | policy | bytes per block | max RSS at the larger, MiB |")
    print("|---|---|--:|--:|")
    for who in everybody:
        if who.prefix:
            continue
        try:
            few, many = (measure(who.command(stream, size))[3] for size in (small, large))
        except Failed as failure:
            print(f"| {who.program} | {who.policy} | not measured: {failure} | |")
            continue
        growth = (many - few) / (large - small)
        print(f"| {who.program} | {who.policy} | {growth:.0f} | {many / 2**20:.0f} |")


def prepared(work):
    """The streams; made in a process of their own if they are not there yet."""
    script = [sys.executable, str(HERE / "streams.py"), str(work)]
    done = subprocess.run(script, check=True, stdout=subprocess.PIPE, text=True)
    return [Stream(**json.loads(line)) for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headstart", default="target/release/headstart")
    parser.add_argument("--policy", default=",".join(PEER_POLICIES), help="by comma; lru first")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stream", help="only the stream of this name")
    parser.add_argument("--work", type=Path, default=Path("target/peers"), help="kept streams")
    arguments = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # it takes long; show what there is
    everybody = contenders(arguments.headstart, arguments.policy.split(","))
    streams = prepared(arguments.work)
    if not any(stream.name.startswith("agent") for stream in streams):
        print("SKIPPED: the agent sessions, because ../shared/data is absent.")
    print("libcachesim looks up independent objects: it knows no prefixes, so its hits on chains "
          "mean something else. kvcache-simulator replays a prefix tree (for FIFO without one) "
          "and counts hits over the second half only, so none are shown.")
    streams = [stream for stream in streams if arguments.stream in (None, stream.name)]
    for stream in streams:
        for percent in PERCENTS:
            capacity = stream.capacity(percent)
            series = run(stream, capacity, everybody, arguments.rounds)
            print_speed(stream, percent, capacity, series)
    if streams:
        print_memory(streams[0], everybody)


if __name__ == "__main__":
    main()
