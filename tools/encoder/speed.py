"""Texts per second of torch and of our encoder on one model folder, tokenization included.

    python tools/encoder/speed.py DIR

Rounds are interleaved (torch, ours, torch, …) and medians reported. The bound is what torch's
own matrix products alone would take: 2 · weights · tokens operations plus those of attention, at
the rate measured for products of the same shapes.
"""

import argparse
import statistics
import time

import torch
from sentence_transformers import SentenceTransformer

import ours

WORDS = "the quick brown fox jumps over a lazy dog and then it rests near the old river".split()
CELLS = [(tokens, texts) for tokens in (32, 128, 512) for texts in (1, 16)]


def text_of(tokenizer, tokens):
    """Words that make `tokens` tokens; the bench builds the same."""
    text = ""
    for index in range(tokens):
        longer = text + WORDS[index % len(WORDS)] + " "
        if len(tokenizer(longer)["input_ids"]) > tokens:
            break
        text = longer
    return text


def torch_rate(model, cell, seconds):
    """(texts per second, CPU-ms per text) of sentence-transformers."""
    tokens, texts = cell
    batch = [text_of(model.tokenizer, tokens)] * texts

    def encode():
        model.encode(batch, batch_size=texts, show_progress_bar=False)

    encode()
    start, cpu, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < seconds:
        encode()
        count += texts
    elapsed = time.perf_counter() - start
    return count / elapsed, (time.process_time() - cpu) * 1e3 / count


def bound_rate(config, cell, seconds):
    """Texts per second of the matrix products alone."""
    tokens, texts = cell
    hidden, wide = config.hidden_size, config.intermediate_size
    shapes = [(hidden, 3 * hidden), (hidden, hidden), (hidden, wide), (wide, hidden)]
    rows = tokens * texts
    layers = []
    for _ in range(config.num_hidden_layers):
        layers.append([(torch.randn(rows, k), torch.randn(n, k)) for k, n in shapes])

    def products():
        for layer in layers:
            for x, weight in layer:
                torch.nn.functional.linear(x, weight)

    products()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        products()
        count += 1
    elapsed = time.perf_counter() - start
    linear = sum(k * n for k, n in shapes)
    attention = 2 * tokens * hidden
    return count * texts / elapsed * linear / (linear + attention)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="per cell and round")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = SentenceTransformer(options.folder, device="cpu")
    model.max_seq_length = 512
    config = model[0].auto_model.config
    binary = ours.binary()
    found = {cell: {"torch": [], "ours": [], "bound": []} for cell in CELLS}
    for _ in range(options.rounds):
        for cell in CELLS:
            with torch.inference_mode():
                bound = bound_rate(config, cell, options.seconds / 2)
            found[cell]["bound"].append((bound, 0.0))
            found[cell]["torch"].append(torch_rate(model, cell, options.seconds))
            arguments = ["speed", *cell, options.seconds]
            answer = ours.run(binary, options.folder, arguments, threads=options.threads)
            found[cell]["ours"].append(tuple(map(float, answer.split())))
    print("| tokens | texts | torch, texts/s | ours, texts/s | ours / torch | bound, texts/s |"
          " torch, CPU-ms | ours, CPU-ms |\n|---|---|---|---|---|---|---|---|")
    for (tokens, texts), kinds in found.items():
        rate, cpu = ({kind: statistics.median(run[part] for run in runs)
                      for kind, runs in kinds.items()} for part in (0, 1))
        print(f"| {tokens} | {texts} | {rate['torch']:.1f} | {rate['ours']:.1f} |"
              f" {rate['ours'] / rate['torch']:.2f} | {rate['bound']:.1f} |"
              f" {cpu['torch']:.2f} | {cpu['ours']:.2f} |")


if __name__ == "__main__":
    main()
