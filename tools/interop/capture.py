"""Captures event messages of a vLLM server, for data/kv-events.

Sends a fixed series of prompts to one server with a tiny cache and writes what it published, one
payload a line in hexadecimal, and beside it (`.titles`) what each is.

    python tools/interop/capture.py --model FOLDER OUT.hex
"""

import argparse
import tempfile
from pathlib import Path

import http_json
from engines import BLOCK_SIZE, Engine
from model_folder import ADAPTER

# So few that three prompts fill them.
NUM_BLOCKS = 12


def prompt(first, num_blocks, more=1):
    """Token ids that begin with `first`: some whole blocks and some tokens more."""
    return [first] + [300 + 7 * n % 2000 for n in range(num_blocks * BLOCK_SIZE + more - 1)]


def send(engine, tokens, **fields):
    """One request; the server is idle behind it."""
    body = {"model": "toy", "prompt": tokens, "max_tokens": 1, **fields}
    http_json.post(f"{engine.url}/v1/completions", body)


def series(engine):
    """Sends the prompts. Yields what each message is, once it is published."""
    send(engine, prompt(1, 2), cache_salt="tenant-3")
    yield "two blocks behind a salt"
    send(engine, prompt(1, 2), model=ADAPTER, cache_salt="tenant-3")
    yield "two blocks of an adapter behind a salt"
    send(engine, prompt(2, 2, more=0), session_id="chat-7")
    yield "two blocks of a session"
    send(engine, prompt(2, 2, more=0), session_id="chat-8")
    yield "the second of the two again: the engine holds two copies of it"
    full = {"kv_cache_report_mode": "full"}
    send(engine, prompt(2, 2), session_id="chat-9", vllm_xargs=full)
    yield "the two blocks told again, because the request asked for that"
    send(engine, prompt(3, 4))
    yield "four blocks"
    send(engine, prompt(2, 2))
    send(engine, prompt(4, 4))
    yield "four blocks, and those that went for them"
    send(engine, prompt(5, 4))
    yield "four more; of the block with two copies one went"
    engine.clear()
    send(engine, prompt(6, 1))
    yield "a clear and a block in one message"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder made by model_folder.py")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    engine = Engine("vllm", options.model, NUM_BLOCKS, Path(tempfile.mkdtemp()))
    engine.process.start()
    try:
        engine.process.wait_until_up()
        titles = list(series(engine))
        messages = engine.published()
    finally:
        engine.kill()
    payloads = [frames[-1] for frames in messages[:-1]]
    options.out.write_text("".join(payload.hex() + "\n" for payload in payloads))
    options.out.with_suffix(".titles").write_text("".join(title + "\n" for title in titles))
    print(f"{len(payloads)} messages, {len(titles)} titles")
    for frames in (messages[0], messages[-1]):
        print("frames of the replay:", [frame.hex()[:24] for frame in frames])


main()
