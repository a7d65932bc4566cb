#!/usr/bin/env python3
"""The share of LRU's gap to Belady that gradient boosting closes with the features of `hazard`.

    cargo build --release
    pip install -r tools/ceiling/requirements.txt
    target/release/headstart trace convert \\
        ../shared/data/agentic-claude-code/traces_rle.jsonl.zst --arrivals 300 -o trace.jsonl
    python3 tools/ceiling/ceiling.py trace.jsonl

| step | what happens |
|---|---|
| history | a block belongs to the last request that passed it; this needs no cache |
| samples | exposure and returns by request, part, superseded and step of age, as in `hazard` |
| models | two, each of one half of the sessions, predict the other half's hazards |
| replay | the leaf with the least Gittins index goes first, recomputed at each request |
| check | LRU and Belady in this replay hit exactly what `headstart replay` hits |

The models see a whole half of the trace, its future as well, and the policy only the past. They
are no bound in theory: another score or another kind of model may reach more.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time
import typing

import lightgbm
import numba
import numpy as np

AGES = 44  # steps of age: 0, then half-octaves from a quarter of a second, as in age.rs
EDGES = np.concatenate([[0.0], 0.25 * 2.0 ** (np.arange(AGES) / 2.0)])
LEVELS = 4  # superseded by a later request: not at all, up to 50 %, up to 95 %, more
STATES = 3 * LEVELS  # times part: matched, new, last block
NEVER = np.int32(2**31 - 1)
LAST_GAP = 0.3  # weight of the last gap in a lineage's mean gap
FINISHES = ["stop", "length", "tool_calls", "cancelled"]

# What `hazard` knows of a request, not sorted into bins.
SAME = ["finish", "output", "mean gap", "last gap", "new blocks", "lineage requests", "turn",
        "type", "blocks"]
# What a server knows of it as well.
WIDER = ["finish before", "output before", "new blocks before", "longest gap", "lineage age",
         "requests since a stop", "share of tool calls", "passes of the predecessor",
         "session requests", "session age", "session gap", "session finish", "matched blocks"]

started = time.monotonic()


def main():
    options = parse()
    for path in options.trace:
        with tempfile.TemporaryDirectory() as folder:
            report(options, path, pathlib.Path(folder))


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example:\n  python3 tools/ceiling/ceiling.py trace.jsonl --capacity 0.5%,1%,2%\n\n"
               "tools/ceiling/README.md explains the features and the tables.")
    parser.add_argument("trace", nargs="+", type=pathlib.Path, help="canonical trace")
    parser.add_argument("--binary", default="target/release/headstart", metavar="FILE",
                        help="[default: %(default)s]")
    parser.add_argument("--capacity", default="0.5%,1%,2%,5%,10%", metavar="LIST",
                        help="as in `headstart replay` [default: 0.5%%,1%%,2%%,5%%,10%%]")
    parser.add_argument("--merge", type=int, default=1, metavar="N",
                        help="merge N blocks to one; a partial last one is dropped [default: 1]")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FILE",
                        help="write the merged trace here, for `headstart replay`")
    parser.add_argument("--features", default="same,same+passed", metavar="LIST",
                        help="same, wider; each also with +passed or +session [default: "
                             "%(default)s]")
    parser.add_argument("--without", action="store_true",
                        help="also without each feature, for the last of --features")
    parser.add_argument("--with", action="store_true", dest="with_one",
                        help="also `same` with each single feature of `wider`")
    parser.add_argument("--trees", type=int, default=600,
                        help="trees of a model, at most [default: 600]")
    return parser.parse_args()


def say(text):
    print(f"{time.monotonic() - started:6.0f} s  {text}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------------- the trace


class Trace:
    """Requests in order; the blocks of all of them in one array."""

    def __init__(self, rows):
        chains = [expand(row["blocks"]) for row in rows]
        self.lengths = np.array([len(chain) for chain in chains], np.int64)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])
        ids = np.concatenate(chains) if chains else np.zeros(0, np.int64)
        self.distinct, self.blocks = dense(ids)
        self.clock = clock(np.array([row["arrival_ns"] for row in rows]) / 1e9)
        self.session = column(rows, "session", -1)
        self.turn = column(rows, "turn", 0)
        self.type = column(rows, "type", 0)
        self.output = column(rows, "output_tokens", -1)
        self.finish = np.array([1 + FINISHES.index(row["finish"]) if row.get("finish") in FINISHES
                                else 0 for row in rows])

    def __len__(self):
        return len(self.lengths)

    def halves(self):
        """The half of each request: by session, or by time where sessions are unknown."""
        if (self.session >= 0).all():
            return self.session % 2
        return (np.arange(len(self)) * 2 // len(self)).astype(np.int64)

    def quarters(self):
        """A quarter of each half, by which the number of trees is chosen."""
        if (self.session >= 0).all():
            return (self.session // 2) % 4 == 0
        return np.arange(len(self)) * 8 // len(self) % 4 == 3


def expand(runs):
    if not runs:
        return np.zeros(0, np.int64)
    return np.concatenate([np.arange(first, first + length) for first, length in runs])


def dense(ids):
    """Numbers the ids from 0, where they are not such numbers already."""
    if len(ids) and ids.max() < 4 * len(ids):
        seen = np.zeros(ids.max() + 1, bool)
        seen[ids] = True
        return int(seen.sum()), (np.cumsum(seen) - 1).astype(np.int32)[ids]
    unique, number = np.unique(ids, return_inverse=True)
    return len(unique), number.astype(np.int32)


def column(rows, name, missing):
    return np.array([missing if row.get(name) is None else row[name] for row in rows], np.int64)


def clock(arrivals):
    """Half seconds and half requests times their mean gap so far, as in clock.rs."""
    latest = np.maximum.accumulate(arrivals)
    number = np.arange(1, len(latest))
    mean = np.maximum((latest[1:] - latest[0]) / number, 0.01)
    return np.concatenate([[0.0], np.cumsum((np.diff(latest) + mean) / 2)])


def load(path, merge, target):
    """Reads a trace and, merged, writes it for the binary; the path to replay comes along."""
    rows = []
    lines = []
    for line in open(path):
        row = json.loads(line)
        if "arrival_ns" in row:
            if merge > 1:
                # A block's id stands for its whole prefix, so each N-th id is that of the merged.
                row["blocks"] = compress(expand(row["blocks"])[merge - 1::merge])
            rows.append(row)
        elif "block_tokens" in row:
            row["block_tokens"] *= merge
        lines.append(row)
    if merge > 1:
        target.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in lines))
        path = target
    return Trace(rows), path


def compress(ids):
    if not len(ids):
        return []
    breaks = np.flatnonzero(np.diff(ids) != 1) + 1
    return [[int(run[0]), len(run)] for run in np.split(ids, breaks)]


# -------------------------------------------------------------------------------- the history


@numba.njit(cache=True)
def passes_of(starts, blocks, distinct):
    """Which request takes which blocks of which owner: (request, owner, from, to), in order."""
    owner = np.full(distinct, -1, np.int32)
    passes = np.empty((1024, 4), np.int32)
    count = 0
    for request in range(len(starts) - 1):
        first, end = starts[request], starts[request + 1]
        at = first
        while at < end:
            of = owner[blocks[at]]
            begin = at
            while at < end and owner[blocks[at]] == of:
                owner[blocks[at]] = request
                at += 1
            if of < 0:
                continue
            if count == len(passes):
                larger = np.empty((2 * count, 4), np.int32)
                larger[:count] = passes
                passes = larger
            passes[count, 0], passes[count, 1] = request, of
            passes[count, 2], passes[count, 3] = begin - first, at - first
            count += 1
    return passes[:count]


@numba.njit(cache=True)
def next_uses(starts, blocks, distinct):
    """For each block of each request, the next request that has it."""
    following = np.full(distinct, NEVER, np.int32)
    result = np.empty(len(blocks), np.int32)
    for request in range(len(starts) - 2, -1, -1):
        for at in range(starts[request], starts[request + 1]):
            result[at] = following[blocks[at]]
            following[blocks[at]] = request
    return result


def features_of(trace, passes):
    """One row a request: SAME, then WIDER. Also the blocks that earlier requests had."""
    count = len(trace)
    last = np.full(count, -1)
    last[passes[:, 0]] = np.arange(len(passes))  # the last one of each request stays
    known = np.where(last >= 0, passes[last, 3] if len(passes) else 0, 0)
    table = {name: np.full(count, np.nan) for name in SAME + WIDER}
    table["finish"][:] = trace.finish
    table["output"][trace.output >= 0] = np.log2(1 + trace.output[trace.output >= 0])
    table["new blocks"][:] = np.log2(1 + trace.lengths - known)
    table["turn"][:] = trace.turn
    table["type"][:] = trace.type
    table["blocks"][:] = np.log2(1 + trace.lengths)
    table["matched blocks"][:] = np.log2(1 + known)
    lineages(trace, passes, last, known, table)
    sessions(trace, table)
    matrix = np.column_stack([table[name] for name in SAME + WIDER]).astype(np.float32)
    return matrix, known.astype(np.int32)


def lineages(trace, passes, last, known, table):
    """What a request inherits from the one that it continues: it has at least half of it."""
    tool_calls, stop = 1 + FINISHES.index("tool_calls"), 1 + FINISHES.index("stop")
    root = trace.clock.copy()
    passed = np.zeros(len(trace))
    calls = np.zeros(len(trace))
    since = np.zeros(len(trace))
    table["lineage requests"][:] = 0
    for request in range(len(trace)):
        calls[request] = trace.finish[request] == tool_calls
        before = passes[last[request], 1] if last[request] >= 0 else -1
        if before >= 0:
            passed[before] += 1
        if before >= 0 and known[request] * 2 >= trace.lengths[before]:
            gap = math.log2(0.25 + trace.clock[request] - trace.clock[before])
            old = table["mean gap"][before]
            mean = gap if math.isnan(old) else (1 - LAST_GAP) * old + LAST_GAP * gap
            longest = table["longest gap"][before]
            root[request] = root[before]
            calls[request] += calls[before]
            since[request] = 0 if trace.finish[before] == stop else since[before] + 1
            table["last gap"][request] = gap
            table["mean gap"][request] = mean
            table["lineage requests"][request] = table["lineage requests"][before] + 1
            table["longest gap"][request] = gap if math.isnan(longest) else max(gap, longest)
            for name in ("finish", "output", "new blocks"):
                table[f"{name} before"][request] = table[name][before]
            table["passes of the predecessor"][request] = passed[before]
        table["lineage age"][request] = math.log2(1 + trace.clock[request] - root[request])
        table["requests since a stop"][request] = since[request]
        number = 1 + table["lineage requests"][request]
        table["share of tool calls"][request] = calls[request] / number


def sessions(trace, table):
    """What a request's session did before it, in other conversations as well."""
    seen = {}
    for request in range(len(trace)):
        session = trace.session[request]
        if session < 0:
            continue
        now = trace.clock[request]
        first, before, number = seen.get(session, (now, -1, 0))
        table["session requests"][request] = number
        table["session age"][request] = math.log2(1 + now - first)
        if before >= 0:
            table["session gap"][request] = math.log2(0.25 + now - trace.clock[before])
            table["session finish"][request] = trace.finish[before]
        seen[session] = (first, request, number + 1)


# -------------------------------------------------------------------------------- the samples


@numba.njit(cache=True)
def step_of(age):
    if age < 0.25:
        return 0
    return min(AGES - 1, 1 + int(2 * math.log2(age / 0.25)))


@numba.njit(cache=True)
def expose(cells, share, start, end):
    for step in range(step_of(start), step_of(end) + 1):
        until = end if step == AGES - 1 else min(end, EDGES[step + 1])
        if until > max(start, EDGES[step]):
            cells[step, 0] += share * (until - max(start, EDGES[step]))


@numba.njit(cache=True)
def level_of(end, length, has_passed):
    """How far a request that passed the blocks up to `end` supersedes their owner."""
    covered = end * 100 // length
    if covered > 50:
        return 3 if covered > 95 else 2
    return 1 if has_passed else 0


@numba.njit(cache=True)
def samples_of(lengths, known, clock, passes, order, firsts, has_passed):
    """Rows (request, state, step), and for each the exposure and the returns."""
    rows = np.empty((1 << 16, 3), np.int32)
    values = np.empty((1 << 16, 2), np.float64)
    count = 0
    end_of_trace = clock[-1]
    for request in range(len(lengths)):
        length = lengths[request]
        if length == 0:
            continue
        old = min(known[request], length - 1)
        bounds = (0, old, length - 1, length)
        cells = np.zeros((STATES, AGES, 2))
        shares = np.array([min(old, 1), min(length - 1 - old, 1), 1]).astype(np.float64)
        age = 0.0
        superseded = 0
        for nth in range(firsts[request], firsts[request + 1] + 1):
            is_pass = nth < firsts[request + 1]
            now = (clock[passes[order[nth], 0]] if is_pass else end_of_trace) - clock[request]
            for part in range(3):
                if shares[part] > 0:
                    expose(cells[part * LEVELS + superseded], shares[part], age, now)
            age = max(age, now)
            if not is_pass:
                break
            first, end = passes[order[nth], 2], passes[order[nth], 3]
            for part in range(3):
                taken = min(end, bounds[part + 1]) - max(first, bounds[part])
                if taken > 0 and shares[part] > 0:
                    share = taken / (bounds[part + 1] - bounds[part])
                    share = min(share, shares[part])
                    cells[part * LEVELS + superseded, step_of(age), 1] += share
                    shares[part] -= share
                    if shares[part] < 1e-6:
                        shares[part] = 0.0
            superseded = max(superseded, level_of(end, length, has_passed))
        for state in range(STATES):
            for step in range(AGES):
                if cells[state, step, 0] + cells[state, step, 1] > 0:
                    if count == len(rows):
                        more_rows = np.empty((2 * count, 3), np.int32)
                        more_rows[:count] = rows
                        more_values = np.empty((2 * count, 2), np.float64)
                        more_values[:count] = values
                        rows, values = more_rows, more_values
                    rows[count, 0], rows[count, 1], rows[count, 2] = request, state, step
                    values[count] = cells[state, step]
                    count += 1
    return rows[:count], values[:count]


# --------------------------------------------------------------------------------- the models


def base_hazards(rows, values):
    """Hazards by state and step, shrunk as in rates.rs."""
    exposure = np.zeros((STATES, AGES))
    returns = np.zeros((STATES, AGES))
    np.add.at(exposure, (rows[:, 1], rows[:, 2]), values[:, 0])
    np.add.at(returns, (rows[:, 1], rows[:, 2]), values[:, 1])
    overall = np.zeros(AGES)
    for step in range(AGES):
        prior = overall[step - 1] * EDGES[step] / EDGES[step + 1] if step else 0.2
        overall[step] = (returns[:, step].sum() + 1) / (exposure[:, step].sum() + 1 / prior)
    ratio = (returns.sum(1) + 4) / (exposure @ overall + 4)
    prior = overall * ratio[:, None]
    return (returns + 4) / (exposure + 4 / prior)


def matrix_of(features, columns, rows):
    state = np.column_stack([rows[:, 1] // LEVELS, rows[:, 1] % LEVELS, rows[:, 2]])
    return np.hstack([features[rows[:, 0]][:, columns], state.astype(np.float32)])


class Model:
    """A factor on the base hazards by gradient boosting, with a Poisson loss."""

    SETTINGS = {"objective": "poisson", "learning_rate": 0.05, "num_leaves": 31, "max_bin": 127,
                "min_sum_hessian_in_leaf": 5.0, "min_data_in_leaf": 100, "lambda_l2": 5.0,
                "feature_fraction": 0.8, "num_threads": 1, "seed": 1, "verbose": -1}

    def __init__(self, features, columns, samples, is_held_out, trees):
        self.columns = columns
        rows, values = samples
        self.base = base_hazards(rows, values)
        matrix = matrix_of(features, columns, rows)
        expected = np.log(np.maximum(values[:, 0], 1e-3) * self.base[rows[:, 1], rows[:, 2]])

        def data(which):
            return lightgbm.Dataset(matrix[which], values[which, 1], init_score=expected[which],
                                    params={"max_bin": 127, "verbose": -1})
        held_out = is_held_out[rows[:, 0]]
        best = lightgbm.train(self.SETTINGS, data(~held_out), trees, valid_sets=[data(held_out)],
                              callbacks=[lightgbm.early_stopping(30, verbose=False)])
        self.trees = max(1, best.best_iteration)
        self.booster = lightgbm.train(self.SETTINGS, data(slice(None)), self.trees)

    def hazards(self, features, rows):
        matrix = matrix_of(features, self.columns, rows)
        factor = np.exp(self.booster.predict(matrix, raw_score=True, num_threads=1))
        return self.base[rows[:, 1], rows[:, 2]] * factor


def worths_of(features, columns, samples, trace, trees):
    """The Gittins index by request and state that occurs, and age; also the loss and the trees."""
    rows, values = samples
    keys, first = np.unique(rows[:, 0].astype(np.int64) * STATES + rows[:, 1], return_index=True)
    start = rows[first, 2]  # steps are sorted, so this is the least one of each key
    half, held_out = trace.halves(), trace.quarters()
    worths = np.zeros((len(keys), AGES), np.float32)
    loss, num_trees = 0.0, []
    for fold in (0, 1):
        known = half[rows[:, 0]] != fold
        model = Model(features, columns, (rows[known], values[known]), held_out, trees)
        num_trees.append(model.trees)
        hazard = model.hazards(features, rows[~known])
        loss += deviance(values[~known], hazard)
        wanted = np.flatnonzero(half[keys // STATES] == fold)
        for chunk in np.array_split(wanted, 1 + len(wanted) // 20_000):
            lengths = AGES - start[chunk]
            place = np.repeat(chunk, lengths)
            steps = np.concatenate([np.arange(at, AGES) for at in start[chunk]] or [[]])
            asked = np.column_stack([keys[place] // STATES, keys[place] % STATES, steps])
            curve = np.zeros((len(chunk), AGES))
            local = np.repeat(np.arange(len(chunk)), lengths)
            curve[local, steps.astype(np.int64)] = model.hazards(features, asked.astype(np.int64))
            worths[chunk] = gittins(curve, start[chunk])
    index = np.full(len(trace) * STATES, -1, np.int32)
    index[keys] = np.arange(len(keys))
    return worths, index.reshape(-1, STATES), loss / values[:, 1].sum(), num_trees


def deviance(values, hazard):
    """Poisson deviance of returns, up to what does not depend on the hazard."""
    expected = np.maximum(values[:, 0], 1e-3) * hazard
    return float((expected - values[:, 1] * np.log(hazard)).sum())


@numba.njit(cache=True)
def gittins(curves, starts):
    """The best rate over horizons of returns per second, from the middle of each step on."""
    worths = np.zeros(curves.shape, np.float32)
    for row in range(len(curves)):
        for start in range(starts[row], AGES):
            survival, returns, seconds, best = 1.0, 0.0, 0.0, 0.0
            for step in range(start, AGES):
                width = (EDGES[step + 1] - EDGES[step]) * (0.5 if step == start else 1.0)
                hazard = max(curves[row, step], 1e-15)
                chance = -math.expm1(-hazard * width)
                returns += survival * chance
                seconds += survival * chance / hazard
                survival *= 1 - chance
                best = max(best, returns / seconds)
                if survival < 1e-4:
                    break
            worths[row, start] = best
    return worths


# --------------------------------------------------------------------------------- the replay


LRU, BELADY, WHETHER, INDEX = 0, 1, 2, 3


class History(typing.NamedTuple):
    """What does not depend on the cache; blocks and next uses of all requests in one array."""

    starts: np.ndarray  # [requests + 1] into blocks
    blocks: np.ndarray
    following: np.ndarray  # the next request that has the block
    known: np.ndarray  # blocks that earlier requests had
    clock: np.ndarray
    passes: np.ndarray  # [passes, 4]
    firsts: np.ndarray  # [requests + 1] into passes
    has_passed: bool  # whether a pass of half the blocks or fewer supersedes


class Order(typing.NamedTuple):
    """What goes first."""

    kind: int
    worths: np.ndarray  # [rows, AGES]
    index: np.ndarray  # [requests, STATES], a row of worths


class Cache(typing.NamedTuple):
    """Request r owns [low, high) of its blocks that are resident; only leaves are evicted."""

    owner: np.ndarray  # by block; of one that is not resident, -1
    parent: np.ndarray  # by block
    children: np.ndarray  # by block, resident ones
    low: np.ndarray
    high: np.ndarray
    level: np.ndarray  # how far it is superseded


@numba.njit(cache=True, inline="always")
def score(history, order, cache, of, now):
    """The worth of a request's last resident block; the least goes first."""
    if order.kind == LRU:
        return float(of)
    depth, length = cache.high[of] - 1, history.starts[of + 1] - history.starts[of]
    use = history.following[history.starts[of] + depth]
    if order.kind == BELADY:
        return -1e18 + of if use == NEVER else -float(use)
    if order.kind == WHETHER:
        return (0.0 if use == NEVER else 1e18) + of
    part = 2 if depth + 1 == length else 0 if depth < history.known[of] else 1
    age = now - history.clock[of]
    step = step_of(age)
    row = order.index[of, part * LEVELS + cache.level[of]]
    here = order.worths[row, step]
    if step + 1 == AGES:
        return here
    fraction = (age - EDGES[step]) / (EDGES[step + 1] - EDGES[step])
    return here + (order.worths[row, step + 1] - here) * fraction


@numba.njit(cache=True)
def sift_down(scores, ids, size, at):
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and is_less(scores, ids, child + 1, child):
            child += 1
        if not is_less(scores, ids, child, at):
            return
        scores[at], scores[child] = scores[child], scores[at]
        ids[at], ids[child] = ids[child], ids[at]
        at = child


@numba.njit(cache=True)
def is_less(scores, ids, left, right):
    if scores[left] != scores[right]:
        return scores[left] < scores[right]
    return ids[left] < ids[right]


@numba.njit(cache=True)
def replay(capacity, distinct, history, order):
    """Hits of each request."""
    starts, blocks = history.starts, history.blocks
    count = len(starts) - 1
    cache = Cache(np.full(distinct, -1, np.int32), np.full(distinct, -1, np.int32),
                  np.zeros(distinct, np.int32), np.zeros(count, np.int64),
                  np.zeros(count, np.int64), np.zeros(count, np.int8))
    hits = np.zeros(count, np.int64)
    live, num_live = np.empty(count, np.int32), 0
    scores, ids = np.empty(count, np.float64), np.empty(count, np.int32)
    used = 0
    for request in range(count):
        chain = blocks[starts[request]:starts[request + 1]]
        match = 0
        while match < len(chain) and cache.owner[chain[match]] >= 0:
            match += 1
        hits[request] = match
        take_over(history, cache, request, chain[:match])
        size = 0
        if len(chain) - match > capacity - used:
            num_live, size = candidates(history, order, cache, request, live[:num_live], scores,
                                        ids)
        resident = match
        for block in chain[match:]:
            if used < capacity:
                used += 1
            elif size == 0:
                break
            else:
                size = evict(history, order, cache, request, scores, ids, size)
            cache.owner[block] = request
            if resident > 0:
                cache.parent[block] = chain[resident - 1]
                cache.children[chain[resident - 1]] += 1
            resident += 1
        cache.high[request] = resident
        if resident > 0:
            live[num_live] = request
            num_live += 1
    return hits


@numba.njit(cache=True)
def take_over(history, cache, request, matched):
    """The resident blocks change their owner, and those who had them are superseded."""
    for nth in range(history.firsts[request], history.firsts[request + 1]):
        of, end = history.passes[nth, 1], history.passes[nth, 3]
        cache.low[of] = max(cache.low[of], min(end, cache.high[of]))
        level = level_of(end, history.starts[of + 1] - history.starts[of], history.has_passed)
        cache.level[of] = max(cache.level[of], level)
    for block in matched:
        cache.owner[block] = request


@numba.njit(cache=True)
def candidates(history, order, cache, request, live, scores, ids):
    """A heap of the leaves that may go. Returns how many requests live, and how many leaves."""
    num_live = size = 0
    for of in live:
        if cache.low[of] >= cache.high[of]:
            continue
        live[num_live] = of
        num_live += 1
        last = history.blocks[history.starts[of] + cache.high[of] - 1]
        if cache.children[last] == 0:
            scores[size] = score(history, order, cache, of, history.clock[request])
            ids[size] = of
            size += 1
    for at in range(size // 2 - 1, -1, -1):
        sift_down(scores, ids, size, at)
    return num_live, size


@numba.njit(cache=True)
def evict(history, order, cache, request, scores, ids, size):
    """Evicts the first leaf; the block in front of it may become one. Returns the new size."""
    of = ids[0]
    victim = history.blocks[history.starts[of] + cache.high[of] - 1]
    cache.owner[victim] = -1
    cache.high[of] -= 1
    above, heir = cache.parent[victim], -1
    if above >= 0:
        cache.children[above] -= 1
        if cache.children[above] == 0 and cache.owner[above] != request:
            heir = cache.owner[above]
    if heir < 0:
        size -= 1
        scores[0], ids[0] = scores[size], ids[size]
    else:
        ids[0] = heir
        scores[0] = score(history, order, cache, heir, history.clock[request])
    sift_down(scores, ids, size, 0)
    return size


# --------------------------------------------------------------------------------- the report


def binary_hits(options, path):
    """Outcomes by (policy, capacity) of `headstart replay`."""
    command = [options.binary, "replay", str(path), "--policy", "lru,hazard,belady",
               "--capacity", options.capacity, "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in output.splitlines()]
    return {(row["policy"], row["capacity"]): row for row in rows if "policy" in row}


class Bench:
    """A trace with its history, replayed at each capacity under some order."""

    def __init__(self, options, path, folder):
        target = options.keep or folder / "merged.jsonl"
        self.trace, self.path = load(path, options.merge, target)
        trace = self.trace
        say(f"{path.name}: {len(trace)} requests, {len(trace.blocks)} look-ups, "
            f"{trace.distinct} distinct blocks")
        self.capacities = options.capacity.split(",")
        self.theirs = binary_hits(options, self.path)
        say("headstart replay is done")
        passes = passes_of(trace.starts, trace.blocks, trace.distinct)
        both = with_sessions(passes, trace.session)
        self.passes = {"": passes, "passed": passes, "session": both}
        self.following = next_uses(trace.starts, trace.blocks, trace.distinct)
        self.features, self.known = features_of(trace, passes)
        self.trees = options.trees
        self.samples = {}
        self.check()

    def check(self):
        for name, order in (("lru", LRU), ("belady", BELADY)):
            for capacity, hits in zip(self.capacities, self.hits(order)):
                expected = self.theirs[name, capacity]["hits"]
                assert hits.sum() == expected, f"{name} {capacity}: {hits.sum()}, not {expected}"
        say("LRU and Belady hit what `headstart replay` hits, at all capacities")

    def hits(self, kind, worths=None, index=None, event=""):
        if worths is None:
            worths, index = np.zeros((1, AGES), np.float32), np.zeros((1, STATES), np.int32)
        trace, passes = self.trace, self.passes[event]
        firsts = np.searchsorted(passes[:, 0], np.arange(len(trace) + 1))
        history = History(trace.starts, trace.blocks, self.following, self.known, trace.clock,
                          passes, firsts, event != "")
        sizes = [self.theirs["lru", capacity]["capacity_blocks"] for capacity in self.capacities]
        return [replay(size, trace.distinct, history, Order(kind, worths, index))
                for size in sizes]

    def samples_with(self, event):
        if event not in self.samples:
            passes, trace = self.passes[event], self.trace
            order = np.argsort(passes[:, 1], kind="stable")
            firsts = np.searchsorted(passes[order, 1], np.arange(len(trace) + 1))
            self.samples[event] = samples_of(trace.lengths, self.known, trace.clock, passes, order,
                                             firsts, event != "")
            rows, values = self.samples[event]
            say(f"{len(passes)} passes, {len(rows)} samples, {values[:, 1].sum():.0f} returns")
        return self.samples[event]

    def ceiling(self, names, event=""):
        """The shares closed by models of some features, and their loss per return."""
        begun = time.monotonic()
        columns = [(SAME + WIDER).index(name) for name in names]
        columns = [at for at in columns if not np.isnan(self.features[:, at]).all()]
        samples = self.samples_with(event)
        worths, index, loss, trees = worths_of(self.features, columns, samples, self.trace,
                                               self.trees)
        cells = self.shares(self.hits(INDEX, worths, index, event))
        say(f"{len(columns)} features, {trees} trees, {time.monotonic() - begun:.0f} s: "
            + " ".join(cells))
        return cells, f"{loss:.4f}"

    def shares(self, hits):
        return [share(self.theirs, capacity, one) for capacity, one in zip(self.capacities, hits)]


def with_sessions(passes, session):
    """The passes, and one of no block by each request of the one before it in its session."""
    latest, empty = {}, []
    for request, name in enumerate(session):
        if name >= 0 and name in latest:
            empty.append((request, latest[name], 0, 0))
        latest[name] = request
    both = np.concatenate([passes, np.array(empty, np.int32).reshape(-1, 4)])
    return both[np.argsort(both[:, 0], kind="stable")]


def report(options, path, folder):
    begun = time.monotonic()
    bench = Bench(options, path, folder)
    merged = f", {options.merge} blocks merged to one" if options.merge > 1 else ""
    print(f"\n### {path.name}{merged}\n")

    def line(name, cells, loss=""):
        print(f"| {name} | {' | '.join(cells)} | {loss} |", flush=True)

    def rates(policy):
        rows = [bench.theirs[policy, capacity] for capacity in bench.capacities]
        return [f"{100 * row['hits'] / row['lookups']:.2f} %" for row in rows]

    line("", bench.capacities, "loss")
    print("|---|" + "--:|" * (len(bench.capacities) + 1))
    line("LRU, block hit rate", rates("lru"))
    line("Belady, block hit rate", rates("belady"))
    line("`hazard`", [share(bench.theirs, capacity) for capacity in bench.capacities])
    for wanted in options.features.split(","):
        names = SAME + WIDER if wanted.startswith("wider") else SAME
        event = wanted.partition("+")[2]
        line(f"ceiling, {wanted}", *bench.ceiling(names, event))
    for dropped in names * options.without:
        rest = [name for name in names if name != dropped]
        line(f"{wanted} without {dropped}", *bench.ceiling(rest, event))
    for added in WIDER * options.with_one:
        line(f"same with {added}", *bench.ceiling(SAME + [added]))
    line("LRU that knows which blocks return", bench.shares(bench.hits(WHETHER)))
    print(f"\n{time.monotonic() - begun:.0f} s in all, one core.", flush=True)


def share(theirs, capacity, hits=None):
    """The share of the gap closed, in all and behind the first fifth of the requests."""
    lru, belady = theirs["lru", capacity], theirs["belady", capacity]
    cold = lru["cold"]["requests"]

    def closed(ours, skip):
        least, most = (row["hits"] - skip * row["cold"]["blocks"]["hits"] for row in (lru, belady))
        if (most - least) / lru["lookups"] < 0.0002:
            return "–"
        return f"{100 * (ours - least) / (most - least):.0f}"
    if hits is None:
        row = theirs["hazard", capacity]
        warm = row["hits"] - row["cold"]["blocks"]["hits"]
        return f"{closed(row['hits'], 0)} ({closed(warm, 1)})"
    return f"{closed(hits.sum(), 0)} ({closed(hits[cold:].sum(), 1)})"


if __name__ == "__main__":
    main()
