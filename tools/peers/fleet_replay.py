"""Measure `headstart simulate fleet --trace` beside Dynamo's offline replay, on the same trace.

The trace is made up from a seed, in Mooncake's format, which both read: prompts of 2,048 tokens,
half of each shared by one of so many groups, answers of 200 tokens, Poisson arrivals. Both route by
prefix among as many replicas with as many blocks of KV memory; what a step costs is each one's own
model, so that times in the simulation differ, while requests, tokens and blocks are the same.

Both run once a round, in turn; requests per second of wall time, median and range. Of Headstart the
whole process counts, reading included; of Dynamo the call alone.

Run from the repository root with the Python of an environment that has ai-dynamo 1.6.1 (see
README.md for how to install it):

    python tools/peers/fleet_replay.py [--requests 20000] [--replicas 8] [--rounds 5]
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BLOCK_TOKENS = 512  # of the trace
SHARED_BLOCKS, OWN_BLOCKS = 2, 2
OUTPUT_TOKENS = 200
GROUPS = 20
ENGINE_BLOCK_TOKENS = 64
KV_TOKENS = 262_144
RATE_PER_REPLICA = 3.0

DYNAMO = """
import json, sys, time
from dynamo.replay.api import run_trace_replay
trace, replicas, blocks, block_tokens, trace_block_tokens = sys.argv[1], *map(int, sys.argv[2:])
began = time.perf_counter()
report = run_trace_replay(
    [trace],
    extra_engine_args={"engine": {
        "backend": "vllm", "block_size": block_tokens, "num_gpu_blocks": blocks,
    }},
    num_workers=replicas,
    router_mode="kv_router",
    trace_format="mooncake",
    trace_block_size=trace_block_tokens,
)
took = time.perf_counter() - began
report = report if isinstance(report, dict) else report.to_dict()
print("\\nREPORT " + json.dumps({"took_s": took, "report": report}, default=str))
"""


def write_trace(path, requests, rate, seed):
    """One request a line; groups and gaps drawn."""
    draw = random.Random(seed)
    at_ms, own = 0.0, GROUPS * SHARED_BLOCKS
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(requests):
            group = draw.randrange(GROUPS) * SHARED_BLOCKS
            shared = list(range(group, group + SHARED_BLOCKS))
            line = {
                "timestamp": round(at_ms),
                "input_length": (SHARED_BLOCKS + OWN_BLOCKS) * BLOCK_TOKENS,
                "output_length": OUTPUT_TOKENS,
                "hash_ids": shared + list(range(own, own + OWN_BLOCKS)),
            }
            own += OWN_BLOCKS
            at_ms += draw.expovariate(rate) * 1e3
            file.write(json.dumps(line) + "\n")


def run(command):
    """Its output and how long it took; the end of this script if it fails."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout, took


def headstart(binary, trace, replicas, strategy):
    command = [binary, "simulate", "fleet", "--trace", trace, "--replicas", str(replicas)]
    command += ["--kv-tokens", str(KV_TOKENS), "--strategies", strategy, "--threads", "1", "--json"]
    out, took = run(command)
    last = json.loads(out.splitlines()[-1])
    return took, last["hit_rate"], last["answered"]


def dynamo(trace, replicas):
    sizes = [replicas, KV_TOKENS // ENGINE_BLOCK_TOKENS, ENGINE_BLOCK_TOKENS, BLOCK_TOKENS]
    out, _ = run([sys.executable, "-c", DYNAMO, trace, *map(str, sizes)])
    line = next(it for it in out.splitlines() if it.startswith("REPORT "))
    told = json.loads(line.removeprefix("REPORT "))
    return told["took_s"], told["report"]


def find(report, name):
    """The figure of that name, wherever it stands in the report."""
    if isinstance(report, dict):
        for key, value in report.items():
            if key == name:
                return value
            found = find(value, name)
            if found is not None:
                return found
    return None


def row(name, requests, took, hit_rate):
    rates = sorted(requests / it for it in took)
    middle = statistics.median(rates)
    print(f"| {name} | {middle:,.0f} | {rates[0]:,.0f} … {rates[-1]:,.0f} | {hit_rate} |")
    return middle


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headstart", default="target/release/headstart")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.jsonl")
        write_trace(trace, args.requests, RATE_PER_REPLICA * args.replicas, seed=1)
        ours, theirs = [], []
        for _ in range(args.rounds):
            took, hit_rate, answered = headstart(args.headstart, trace, args.replicas, "precise")
            assert answered == args.requests, answered
            ours.append(took)
            took, report = dynamo(trace, args.replicas)
            theirs.append(took)
    print(f"{args.requests:,} requests, {args.replicas} replicas, {args.rounds} rounds\n")
    print("| simulator | requests/s | range | hit rate |\n|---|---|---|---|")
    reused = find(report, "prefix_cache_reused_ratio")
    peer = row("Dynamo, offline replay, kv_router", args.requests, theirs, f"{reused:.1%}")
    best = row("Headstart, precise", args.requests, ours, f"{hit_rate:.1%}")
    print(f"\nHeadstart over Dynamo: {best / peer:.2f}")


if __name__ == "__main__":
    main()
