#!/usr/bin/env python3
"""Learned prefix caching end to end: a server with `lpc` against one with `lru`, and the simulator.

    python3 bench/lpc/end_to_end.py [--binary target/release/headstart] [--data ../shared/data]
                                    [--work FOLDER] [--only planted sharegpt] [--think-seeds 1 2]

Two kinds of conversations: generated ones whose words tell whether they go on, and ShareGPT ones,
where the data is at hand. For each of them

1. a predictor is trained on conversations of another seed, or of other groups;
2. the first conversations are played one request at a time on a large cache. This gives what a
   step of the engine costs here and now, and how many tokens a waiting conversation keeps, from
   which the size of the cache follows: the working set (conversations at once times that) is
   PRESSURE times the cache. Neither looks at a hit rate;
3. both policies serve the same users: the toy engine, one replica, the same number of blocks,
   drawn think times and starts that do not depend on the server;
4. `headstart simulate` repeats the LRU run's record under both policies, in virtual time. It reads
   nothing of the LPC run, and of the LRU run only who asked when, and for how much.

In the table, MCC is that of the predictions in the run, at the threshold that suits them best, and
points are measured less simulated hit rate.

Needs an idle machine: on one where others work, answers take longer than the second step says.
Training and evaluation texts stay in the work folder, which must be outside of the repository.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import zlib

# Mean of the exponential think times, seconds, and what `lpc` is told of it.
THINK_S = 20
# Conversations at once, answers taken as immediate; of ShareGPT's fewer, because only some 150
# that begin where they should are left beside those trained on.
ACTIVE = {"planted": 96, "sharegpt": 20}
# Length of each run, seconds. Decided by the simulator before any server ran: its gains of eight
# seeds lie between 24 and 31 % with 96 conversations over 480 s (standard deviation 2.4), between
# 3 and 39 % with 32 over 240 s (12.7).
SECONDS = {"planted": 480, "sharegpt": 240}
# Tokens of an answer. The toy never ends by itself, so that all are as long.
ANSWER_TOKENS = 12
# Tokens of the longest prompt: behind it a conversation ends for either policy.
PROMPT_TOKENS_MAX = 1500
# Working set over cache. The gain depends on it: docs/benchmarks/lpc.md has it at several sizes.
PRESSURE = 2
# Tokens per block, and what else the simulated engine has in common with `serve`.
BLOCK = 16
LIMITS = ["--block-size", str(BLOCK), "--max-batched-tokens", "512", "--max-sequences", "64",
          "--max-context", "16384"]
# Conversations and blocks of the second step.
SIZING_CONVERSATIONS = 60
SIZING_BLOCKS = 8192
# Of a decode step's cost beyond its token, the share that does not grow with the batch. From the
# toy's decode rates at batch 1 and 8 (docs/benchmarks/engine.md).
FIXED_SHARE = 0.7
# Generated conversations: the default strength (best attainable MCC about 0.64).
TRAIN = {"conversations": 20000, "seed": 1}
EVALUATE = {"conversations": 3000, "seed": 6}
STRENGTH = 1
PROMPT_WORDS = 45
# One ShareGPT group in so many is played, the others are trained on.
PLAYED_GROUPS = 2
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def main():
    options = parse()
    options.work.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, corpus in {"planted": planted, "sharegpt": sharegpt}.items():
        if options.only and name not in options.only:
            continue
        made = corpus(options)
        if made:
            rows += compare(options, name, *made)
    table(rows)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/headstart"))
    parser.add_argument("--data", type=pathlib.Path, default=REPOSITORY / "../shared/data")
    parser.add_argument("--work", type=pathlib.Path,
                        default=pathlib.Path(tempfile.gettempdir()) / "headstart-lpc-end-to-end")
    parser.add_argument("--only", nargs="*", choices=["planted", "sharegpt"])
    parser.add_argument("--think-seeds", nargs="+", type=int, default=[1, 2])
    return parser.parse_args()


def planted(options):
    """Training and evaluation conversations, of different seeds."""
    files = []
    for name, part in {"train": TRAIN, "evaluate": EVALUATE}.items():
        path = options.work / f"planted-{name}.jsonl"
        headstart(options, "trace", "planted", "--prompt-words", PROMPT_WORDS,
                  "--strength", STRENGTH, "--conversations", part["conversations"],
                  "--seed", part["seed"], "-o", path)
        files.append(path)
    return files


def sharegpt(options):
    """The same of ShareGPT: which part a conversation is in is decided by its group."""
    prepare = REPOSITORY / "bench/lpc/prepare.py"
    command = [sys.executable, str(prepare), str(options.work), "--data", str(options.data)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    source = options.work / "sharegpt-plain.jsonl"
    if not source.exists():
        print("SKIPPED: sharegpt: the data is absent", file=sys.stderr)
        return None
    files = [options.work / f"sharegpt-{name}.jsonl" for name in ("train", "evaluate")]
    parts = [[], []]
    with source.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            group = str(record.get("group", record["id"])).encode()
            is_played = zlib.crc32(group) % PLAYED_GROUPS == 0
            # What was cut at its head is no conversation that begins.
            if not is_played or record.get("first_turn", 0) == 0:
                parts[is_played].append(line)
    for path, part in zip(files, parts):
        path.write_text("".join(part), encoding="utf-8")
    return files


def compare(options, name, train, evaluate):
    model = options.work / f"{name}.hsp"
    report = options.work / f"{name}-training.json"
    headstart(options, "train", train, "--output", model, "--json", report, "--curve", 0)
    blocks, engine = sizing(options, name, evaluate)
    rows = []
    for seed in options.think_seeds:
        rows += serve_and_simulate(options, name, seed, evaluate, model, blocks, engine)
    return rows


def serve_and_simulate(options, name, seed, evaluate, model, blocks, engine):
    policies = ["lru", f"lpc:interval={THINK_S}"]
    record = options.work / f"{name}-{seed}.jsonl"
    chat = bench(options, evaluate, record, "--policies", ",".join(policies),
                 "--predictor", model, "--cache-blocks", blocks, "--think", f"exp:{THINK_S}",
                 "--think-seed", seed, "--starts", "spaced", "--active", ACTIVE[name],
                 "--duration", SECONDS[name])
    output = headstart(options, "simulate", "prediction", "--record", record, "--engine", engine, *LIMITS,
                       "--sizes", blocks * BLOCK, "--policies", ",".join(policies),
                       "--lambda", THINK_S, "--charge", 0, "--json")
    simulated = {row["arm"]: row for row in map(json.loads, output.splitlines())}
    measured = {run["name"]: run["report"]["all"] | run["report"] for run in chat["runs"]}
    return [row(f"{name}, seed {seed}", blocks, policy, measured, simulated) for policy in policies]


def sizing(options, name, evaluate):
    """Blocks of the cache, and what a step of the engine costs."""
    record = options.work / f"{name}-sizing.jsonl"
    bench(options, evaluate, record, "--conversations", SIZING_CONVERSATIONS, "--policies", "lru",
          "--active", 1, "--cache-blocks", SIZING_BLOCKS)
    with record.open(encoding="utf-8") as lines:
        conversations = [json.loads(line)["turns"] for line in list(lines)[1:]]
    kept = [turn["prompt_tokens"] + turn["answer_tokens"]
            for turns in conversations for turn in turns[:-1]]
    blocks = round(ACTIVE[name] * sum(kept) / len(kept) / PRESSURE / BLOCK)
    turns = [turn for turns in conversations for turn in turns]
    token_s, step_s = costs(turns)
    rest_s = step_s - token_s
    engine = (f"overhead={rest_s * FIXED_SHARE:.6f},token={token_s:.6f},"
              f"sequence={rest_s * (1 - FIXED_SHARE):.6f}")
    print(f"{name}: {sum(kept) / len(kept):.0f} tokens kept by a waiting conversation, "
          f"{blocks} blocks; engine {engine}", file=sys.stderr)
    return blocks, engine


def costs(turns):
    """Seconds per prompt token and per decode step, of requests served alone: the median slope
    over all pairs and the median rest (Theil and Sen), which a few disturbed requests do not
    move."""
    rows = [(turn["prompt_tokens"] - turn["cached_tokens"], turn["answer_tokens"], turn["e2e_s"])
            for turn in turns]
    slopes = [(b[2] - a[2]) / (b[0] - a[0]) for a in rows for b in rows if b[0] > a[0]]
    token_s = max(statistics.median(slopes), 1e-6)
    # The step that computes the prompt gives the first token of the answer.
    steps = [(seconds - token_s * tokens) / answer for tokens, answer, seconds in rows]
    return token_s, max(statistics.median(steps), token_s)


def bench(options, conversations, record, *arguments):
    return json.loads(headstart(
        options, "bench", "chat", conversations, "--replicas", 1, "--max-tokens", ANSWER_TOKENS,
        "--max-prompt-tokens", PROMPT_TOKENS_MAX, "--probe-rounds", 0, "--record", record,
        *with_default(arguments, "--conversations", EVALUATE["conversations"]), "--json"))


def with_default(arguments, name, value):
    return arguments if name in arguments else (*arguments, name, value)


def headstart(options, *arguments):
    command = [options.binary, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def row(name, blocks, policy, measured, simulated):
    got, predicted = measured[policy], simulated[policy]
    gain = got["cached_tokens"] / max(measured["lru"]["cached_tokens"], 1) - 1
    rate, expected = got["hit_rate"] * 100, predicted["token_hit_rate"] * 100
    quality = f"{predicted['mcc']:.2f}" if policy.startswith("lpc") else ""
    return (f"| {name} | {policy} | {blocks} | {quality} | {got['requests']} | "
            f"{got['prompt_tokens']:,} | {got['cached_tokens']:,} | {gain:+.1%} | {rate:.1f} % | "
            f"{expected:.1f} % | {rate - expected:+.1f} | {got['ttft_ms_p50']:.0f} / "
            f"{got['ttft_ms_p90']:.0f} |")


def table(rows):
    print("| conversations | policy | blocks | MCC | requests | prompt tokens | token hits | "
          "over lru | hit rate | simulated | points | TTFT p50 / p90, ms |\n"
          "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
