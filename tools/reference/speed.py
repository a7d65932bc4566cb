"""Measure transformers on the CPU, the peer that the Headstart engine is compared with.

Loads a Hugging Face folder in f32 and reports, for sdpa and eager attention,
prefill and decode speed, next to what this machine can do at best: f32 matrix
multiplication and memory read. Every round runs every measurement once, so a
slow spell of the machine hits all of them; the median of the rounds is shown.

Run with tools/reference/requirements.txt installed:

    python tools/reference/speed.py --model DIR --threads 2 [--json]
"""

import argparse
import json
import statistics
import time

import torch
import transformers
from transformers import AutoModelForCausalLM, DynamicCache

ROUNDS = 5
PROMPT = 2048
CONTEXT = 256
STEPS = 64
BATCHES = (1, 8)
GEMMS = ((512, 2048, 2048), (2048, 512, 2048))  # (m, k, n): an m×k matrix times a k×n one
READ_BYTES = 256 * 2**20


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def prefill(model, attention, prompt):
    """Tokens/s over one prompt that fills a new KV cache; logits of the last position only."""
    model.set_attn_implementation(attention)
    seconds = timed(lambda: model(prompt, past_key_values=DynamicCache(config=model.config), logits_to_keep=1))
    return prompt.numel() / seconds


def decode(model, attention, prompts, steps):
    """Tokens/s, over the whole batch, of greedy decoding after an untimed prefill."""
    model.set_attn_implementation(attention)
    cache = DynamicCache(config=model.config)

    def step(tokens):
        return model(tokens, past_key_values=cache, logits_to_keep=1).logits[:, -1:].argmax(-1)

    tokens = step(prompts)

    def run():
        nonlocal tokens
        for _ in range(steps):
            tokens = step(tokens)

    return prompts.shape[0] * steps / timed(run)


def gemm(a, b):
    """GFLOP/s of one matrix product."""
    return 2 * a.shape[0] * a.shape[1] * b.shape[1] / timed(lambda: a @ b) / 1e9


def read(tensor):
    """GB/s of summing a tensor larger than the caches."""
    return tensor.nbytes / timed(tensor.sum) / 1e9


def measurements(model):
    """(name, unit, function) for everything that one round measures."""
    generator = torch.Generator().manual_seed(0)
    limit = model.config.max_position_embeddings
    steps = min(STEPS, limit // 2)
    context = min(CONTEXT, limit - steps)
    prompt = torch.randint(model.config.vocab_size, (1, min(PROMPT, limit)), generator=generator)
    for attention in ("sdpa", "eager"):
        name = f"prefill {prompt.shape[1]} tokens, {attention}"
        yield name, "tokens/s", lambda a=attention: prefill(model, a, prompt)
        for batch in BATCHES:
            prompts = torch.randint(model.config.vocab_size, (batch, context), generator=generator)
            name = f"decode {steps} tokens at context {context}, batch {batch}, {attention}"
            yield name, "tokens/s", lambda a=attention, p=prompts: decode(model, a, p, steps)
    for m, k, n in GEMMS:
        a, b = torch.randn(m, k, generator=generator), torch.randn(k, n, generator=generator)
        yield f"f32 product {m}x{k} by {k}x{n}", "GFLOP/s", lambda a=a, b=b: gemm(a, b)
    tensor = torch.ones(READ_BYTES // 4)
    yield f"read {READ_BYTES >> 20} MiB", "GB/s", lambda: read(tensor)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="DIR", help="Hugging Face model folder")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()

    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    rows = list(measurements(model))
    samples = [[] for _ in rows]
    with torch.inference_mode():
        for _, _, measure in rows:
            measure()  # warm up
        for _ in range(ROUNDS):
            for (_, _, measure), values in zip(rows, samples):
                values.append(measure())

    results = [
        {"name": name, "unit": unit, "median": statistics.median(v), "min": min(v), "max": max(v)}
        for (name, unit, _), v in zip(rows, samples)
    ]
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "threads": args.threads}
    if args.json:
        print(json.dumps(versions | {"rounds": ROUNDS, "results": results}, indent=2))
        return
    print(", ".join(f"{key} {value}" for key, value in versions.items()) + f", median of {ROUNDS}\n")
    print("| measurement | median | min | max | unit |\n| --- | ---: | ---: | ---: | --- |")
    for r in results:
        print(f"| {r['name']} | {r['median']:.1f} | {r['min']:.1f} | {r['max']:.1f} | {r['unit']} |")


if __name__ == "__main__":
    main()
