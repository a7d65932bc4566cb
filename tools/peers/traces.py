"""Seeded traces of independent objects: every object is one block, every request one object.

All are arrays of ids below the number of distinct objects, the same for everybody with the
numpy of requirements.txt.
"""

import numpy as np


def zipf(rng, lookups, objects, exponent):
    """Draws from a Zipf law whose popular objects have random ids."""
    weights = 1.0 / np.arange(1, objects + 1) ** exponent
    ranks = np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(lookups))
    return rng.permutation(objects)[np.minimum(ranks, objects - 1)]


def loop(lookups, objects):
    return np.arange(lookups) % objects


def scan_and_zipf(rng, rounds, per_round, objects, scan):
    """Zipf, with a scan after each round; every other scan repeats the one before."""
    parts = []
    for number in range(rounds):
        parts.append(zipf(rng, per_round, objects, 0.9))
        start = objects + scan * (number // 2)
        parts.append(np.arange(start, start + scan))
    return np.concatenate(parts)


def shifting(rng, lookups, window, step_every):
    """Uniform over a window of ids that moves on by one every `step_every` look-ups."""
    return np.arange(lookups) // step_every + rng.integers(0, window, lookups)


def long_traces():
    """Name and ids of the traces that fill caches of up to a thousand objects many times."""
    for exponent in (0.6, 0.9, 1.1):
        for lookups, objects in ((5_000, 500), (60_000, 5_000), (200_000, 20_000)):
            rng = np.random.default_rng([1, int(exponent * 10), lookups])
            yield f"zipf {exponent} {lookups}", zipf(rng, lookups, objects, exponent)
    yield "uniform", np.random.default_rng(2).integers(0, 1_500, 60_000)
    for objects in (11, 105, 1_100):
        yield f"loop {objects}", loop(40_000, objects)
    yield "scan+zipf", scan_and_zipf(np.random.default_rng(3), 16, 5_000, 4_000, 1_500)
    yield "shifting", shifting(np.random.default_rng(4), 100_000, 800, 33)


def short_traces(count):
    """Many short ones of random popularity: a rare slip shows in a count of few hits."""
    for seed in range(count):
        rng = np.random.default_rng([5, seed])
        objects, exponent = int(rng.integers(5, 400)), float(rng.random() * 1.3)
        yield f"short {seed}", zipf(rng, 1_500, objects, exponent)
