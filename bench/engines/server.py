"""A live vLLM behind its OpenAI server, on a model of random weights."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from prompts import BLOCK_TOKENS

START_S, REQUEST_S, STOP_S = 180, 120, 30


@dataclass
class ServerSetup:
    """What a server is started with."""

    work: pathlib.Path
    """Has the folder `model`, and gets the log."""
    vllm: pathlib.Path
    """Python of an environment with vLLM."""
    port: int
    device_blocks: int
    longest: int
    """Tokens of the longest request with its answer."""
    extra: dict
    """vLLM's `kv_connector_extra_config`."""
    flags: dict[str, object] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Answer:
    prompt_tokens: int
    cached_tokens: int
    ttft_s: float


class Server:
    """vLLM's OpenAI server on a model of random weights."""

    def __init__(self, setup: ServerSetup) -> None:
        self._port = setup.port
        self._log = setup.work / f"server-{setup.port}.log"
        flags = {
            "--model": setup.work / "model",
            "--served-model-name": "tiny",
            "--port": setup.port,
            "--load-format": "dummy",
            "--dtype": "bfloat16",
            "--block-size": BLOCK_TOKENS,
            "--num-gpu-blocks-override": setup.device_blocks,
            "--max-model-len": setup.longest,
            # No prompt is computed in pieces.
            "--max-num-batched-tokens": max(2048, setup.longest),
            "--max-num-seqs": 4,
            "--kv-transfer-config": json.dumps({
                "kv_connector": "OffloadingConnector",
                "kv_role": "kv_both",
                "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": setup.extra,
            }),
            **setup.flags,
        }
        self._command = [str(setup.vllm), "-m", "vllm.entrypoints.openai.api_server"]
        self._command += [str(part) for flag in flags.items() for part in flag]
        self._command += ["--enforce-eager", "--enable-prefix-caching"]
        self._command += ["--enable-prompt-tokens-details"]
        self._environment = os.environ | {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONHASHSEED": "0",
            **setup.environment,
        }

    def __enter__(self) -> Server:
        started = time.monotonic()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log
            )
        try:
            while not self._is_healthy():
                if self._process.poll() is not None or time.monotonic() > started + START_S:
                    tail = "\n".join(self._log.read_text().splitlines()[-40:])
                    raise SystemExit(f"the server did not start:\n{tail}")
                time.sleep(0.5)
        except BaseException:
            self.__exit__()
            raise
        self.start_s = time.monotonic() - started
        print(f"  started in {self.start_s:.0f} s", flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            print("  the server did not stop; killed")
            self._process.kill()
            self._process.wait()

    def complete(self, tokens: list[int], output_tokens: int, hints: dict) -> Answer:
        body = {
            "model": "tiny",
            "prompt": tokens,
            "max_tokens": output_tokens,
            "min_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "kv_transfer_params": hints or None,
        }
        started = time.monotonic()
        ttft_s, usage = None, None
        with self._request("POST", "/v1/completions", json.dumps(body)) as answer:
            if answer.status != 200:
                raise SystemExit(f"status {answer.status}: {answer.read().decode()}")
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[len(b"data: ") :])
                if chunk["choices"] and ttft_s is None:
                    ttft_s = time.monotonic() - started
                usage = chunk.get("usage") or usage
        details = usage.get("prompt_tokens_details") or {}
        return Answer(usage["prompt_tokens"], details.get("cached_tokens") or 0, ttft_s)

    def counters(self) -> dict[str, float]:
        """Those of vLLM's /metrics that tell of offload and of cached tokens."""
        found = {}
        for line in self.metrics():
            wanted = line.startswith(("vllm:kv_offload", "vllm:prompt_tokens_cached_by_source"))
            if wanted and "_bucket" not in line and "_created" not in line:
                name, value = line.rsplit(" ", 1)
                name = name.replace('engine="0",', "").replace('model_name="tiny"', "")
                found[name] = float(value)
        return found

    def metrics(self) -> list[str]:
        """The lines of vLLM's /metrics."""
        with self._request("GET", "/metrics") as answer:
            return answer.read().decode().splitlines()

    def _is_healthy(self) -> bool:
        try:
            with self._request("GET", "/health") as answer:
                return answer.status == 200
        except OSError:
            return False

    @contextlib.contextmanager
    def _request(
        self, method: str, path: str, body: str | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=REQUEST_S)
        try:
            connection.request(method, path, body, {"content-type": "application/json"})
            yield connection.getresponse()
        finally:
            connection.close()
