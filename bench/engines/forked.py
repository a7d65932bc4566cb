"""Engines of vLLM in forked processes: each starts in some seconds, and can be killed.

The parent imports vLLM once and makes no engine itself. A forked process runs the API and the
engine core; it reads numbers of prompts from a pipe, and writes answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field

from prompts import BLOCK_TOKENS, write_model

LINE_S = 60
"""Longest wait for an engine's start or a batch of answers."""
TOP = 20
"""Log-probabilities of each answer's first token."""


def prepare(work: pathlib.Path) -> None:
    """Writes the model, and imports vLLM. Call it once, before the first engine."""
    os.environ.update(
        # The engine core runs in the forked process itself.
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_CPU_KVCACHE_SPACE="1",
        HF_HUB_OFFLINE="1",
        PYTHONHASHSEED="0",
        VLLM_LOGGING_LEVEL="WARNING",
    )
    # vLLM imports modules of this folder by name.
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    write_model(work / "model")
    # In a process of its own: torch's threads, once started, do not survive a fork.
    program = "import pathlib, sys, prompts; prompts.write_weights(pathlib.Path(sys.argv[1]))"
    folder = pathlib.Path(__file__).parent
    command = [sys.executable, "-c", program, str(work / "model")]
    subprocess.run(command, check=True, cwd=folder)

    import torch  # noqa: F401
    import vllm  # noqa: F401


@dataclass
class EngineSetup:
    """What an engine is started with."""

    work: pathlib.Path
    """Has the model of `prepare`, and gets the log."""
    prompts: list[list[int]]
    batch: int
    """Requests that run at once."""
    transfer: dict | None = None
    """vLLM's `kv_transfer_config`; `None`: no cache at all."""
    environment: dict[str, str] = field(default_factory=dict)
    cgroups: list[pathlib.Path] = field(default_factory=list)
    """Groups that the process joins."""


class ForkedEngine:
    """A running engine, or one that did not start: see `is_alive` and `fault`."""

    def __init__(self, setup: EngineSetup) -> None:
        self.fault = ""
        asks, self._asks = os.pipe()
        self._answers, answers = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._asks)
            os.close(self._answers)
            run_engine(setup, asks, answers)
        os.close(asks)
        os.close(answers)
        # Without a buffer, so that `select` sees what is there.
        self._lines = os.fdopen(self._answers, "rb", buffering=0)
        self.is_alive = True
        if self.receive() is None:
            log = (setup.work / "engine.log").read_text().splitlines()[-30:]
            self.fault = self.fault or "an engine did not start: " + " | ".join(log)[-1500:]

    def send(self, numbers: list[int]) -> None:
        """Asks for answers to prompts; `receive` returns them in batches."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._asks, json.dumps(numbers).encode() + b"\n")

    def receive(self) -> list[dict] | None:
        """The next batch; `None` where the engine has ended."""
        if not self.is_alive:
            return None
        if not select.select([self._lines], [], [], LINE_S)[0]:
            self.fault = f"no answer in {LINE_S} s"
            self.kill()
        line = self._lines.readline()
        if not line.endswith(b"\n"):
            self.is_alive = False
            return None
        return json.loads(line)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """The engine ends as it does at SIGTERM: at once, without a word to the tier."""
        os.close(self._asks)
        os.waitpid(self.pid, 0)
        self._lines.close()


def run_engine(setup: EngineSetup, asks: int, answers: int) -> None:
    """The forked process; does not return."""
    code = 1
    try:
        log = os.open(setup.work / "engine.log", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(setup.environment)
        for group in setup.cgroups:
            (group / "cgroup.procs").write_text(str(os.getpid()))
        engine = start_engine(setup)
        os.write(answers, b"[]\n")
        with os.fdopen(asks) as lines:
            for line in lines:
                numbers = json.loads(line)
                for first in range(0, len(numbers), setup.batch):
                    batch = answer(engine, setup, numbers[first : first + setup.batch])
                    os.write(answers, json.dumps(batch).encode() + b"\n")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def start_engine(setup: EngineSetup) -> object:
    from vllm import LLM

    longest = max(map(len, setup.prompts)) + 1
    more = {} if setup.transfer is None else {"kv_transfer_config": setup.transfer}
    return LLM(
        str(setup.work / "model"),
        dtype="bfloat16",
        block_size=BLOCK_TOKENS,
        num_gpu_blocks_override=setup.batch * -(-longest // BLOCK_TOKENS) + 1,
        max_model_len=longest,
        max_num_batched_tokens=max(2048, longest),
        max_num_seqs=setup.batch,
        max_logprobs=TOP,
        enforce_eager=True,
        enable_prefix_caching=setup.transfer is not None,
        seed=0,
        **more,
    )


def answer(engine: object, setup: EngineSetup, numbers: list[int]) -> list[dict]:
    """A batch of requests: number, tokens, cached tokens, seconds, and `top` or an `error`."""
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": setup.prompts[number]} for number in numbers]
    wanted = SamplingParams(max_tokens=1, temperature=0, logprobs=TOP, ignore_eos=True)
    started = time.monotonic()
    try:
        outputs = engine.generate(prompts, wanted, use_tqdm=False)
    except Exception as error:
        return [{"number": number, "error": repr(error)[:300]} for number in numbers]
    seconds = time.monotonic() - started
    found = []
    for number, output in zip(numbers, outputs, strict=True):
        completion = output.outputs[0]
        one = {"number": number, "cached": output.num_cached_tokens or 0,
               "tokens": len(setup.prompts[number]), "seconds": seconds}
        if completion.finish_reason != "length" or not completion.logprobs:
            one["error"] = f"finish reason {completion.finish_reason}"
        else:
            one["top"] = {token: it.logprob for token, it in completion.logprobs[0].items()}
        found.append(one)
    return found
