#!/usr/bin/env python3
"""Agent sessions against a live server: what `hazard` gains over LRU, beside what `replay` predicts.

    python3 bench/eviction/live.py [--binary target/release/headstart] [--data ../shared/data]
                                   [--work bench/eviction/work] [--requests 4000] [--rounds 2]
                                   [--cache-blocks 4000] [--speed 10]

The recorded sessions start every 10 s on average. Eight blocks of 64 tokens become one block of 16,
and answers become 32 times shorter, so that prompts of 110,000 tokens have 3,500. The server is
`headstart serve` with an emulated engine: scheduler, cache and policy are the real ones. Each
request waits for the answers of its session and for the recorded pause, divided by the speed.
Policies take turns. Takes 4 minutes for each policy and round.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import time
import urllib.error
import urllib.request

MERGED = 8
SHORTER_ANSWERS = 32
POLICIES = ["lru", "hazard"]
PORT = 8123
ENGINE = """
overhead_s = 0.0002
weights_s = 0.0002
token_s = 2e-6
pair_s = 0.0
kv_token_s = 0.0
max_batched_tokens = 8192
kv_tokens = 1000000
"""


def main():
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    trace = merge(options)
    engine = options.work / "live-engine.toml"
    engine.write_text(ENGINE)
    predicted = replay(options, trace)
    print("| round | policy | live hit rate | replay | TTFT p50, ms | p90, ms | late p99, ms |")
    print("|--:|---|--:|--:|--:|--:|--:|")
    observed = {policy: [] for policy in POLICIES}
    for number in range(options.rounds):
        for policy in POLICIES[:: 1 if number % 2 == 0 else -1]:
            report = live(options, trace, engine, policy)
            assert report["failed"] == 0, report["failures"]
            observed[policy].append(100 * report["hit_rate"])
            print(f"| {number + 1} | {policy} | {100 * report['hit_rate']:.2f} % "
                  f"| {predicted[policy]:.2f} % | {report['ttft_ms_p50']:.1f} "
                  f"| {report['ttft_ms_p90']:.1f} | {report['late_ms_p99']:.1f} |", flush=True)
    means = {policy: statistics.mean(rates) for policy, rates in observed.items()}
    print(f"\ngain of hazard, points of token hit rate: {means['hazard'] - means['lru']:.2f} live, "
          f"{predicted['hazard'] - predicted['lru']:.2f} in replay")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default="target/release/headstart")
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("../shared/data"))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("bench/eviction/work"))
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cache-blocks", default="4000")
    parser.add_argument("--speed", default="10")
    return parser.parse_args()


def merge(options):
    """The trace with one block for eight."""
    source = options.data / "agentic-claude-code/traces_rle.jsonl.zst"
    recorded = options.work / "live-recorded.jsonl"
    command = [options.binary, "trace", "convert", str(source), "--arrivals", "10",
               "--arrivals-seed", "1", "-o", str(recorded)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    merged = options.work / "live.jsonl"
    requests = 0
    with open(recorded) as lines, open(merged, "w") as out:
        for line in lines:
            row = json.loads(line)
            if "arrival_ns" in row:
                requests += 1
                if requests > options.requests:
                    break
                blocks = [block for first, length in row["blocks"]
                          for block in range(first, first + length)]
                # A block id names its whole prefix, so the last of each eight names them all.
                row["blocks"] = [[block, 1] for block in blocks[MERGED - 1::MERGED]]
                row["input_tokens"] = 64 * len(row["blocks"]) + row["input_tokens"] % 64
                row["output_tokens"] = max(1, row["output_tokens"] // SHORTER_ANSWERS)
            out.write(json.dumps(row, separators=(",", ":")) + "\n")
    return merged


def replay(options, trace):
    """Predicted token hit rate by policy, percent."""
    command = [options.binary, "replay", str(trace), "--policy", ",".join(POLICIES),
               "--capacity", options.cache_blocks, "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in output.splitlines()]
    return {row["policy"]: 100 * row["token_hit_rate"] for row in rows if "policy" in row}


def live(options, trace, engine, policy):
    """The report of one run against a server of its own."""
    server = subprocess.Popen(
        [options.binary, "serve", "--port", str(PORT), "--executor", f"cost-model={engine}",
         "--replicas", "1", "--cache-blocks", options.cache_blocks, "--policy", policy],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(server)
        command = [options.binary, "bench", "trace", str(trace), "--mode", "sessions", "--speed",
                   options.speed, "--id-tokens", "16", "--url", f"http://127.0.0.1:{PORT}",
                   "--cache-blocks", options.cache_blocks, "--policy", policy, "--json"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return json.loads(output)["report"]
    finally:
        server.terminate()
        server.wait()


def wait(server):
    for _ in range(100):
        assert server.poll() is None, "the server stopped"
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health")
            return
        except urllib.error.URLError:
            time.sleep(0.1)
    raise SystemExit("the server did not start within 10 s")


if __name__ == "__main__":
    main()
