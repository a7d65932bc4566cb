"""Captures what a vLLM server publishes of prompts with images, for data/kv-events.

Sends prompts to one server. For each it writes a line with the cached tokens that the engine found
and the prompt as the render route describes it, and behind it the messages that the engine
published, in hexadecimal.

    python tools/interop/capture_media.py OUT.log
"""

import argparse
import json
import random
import tempfile
from pathlib import Path

import http_json
from agent_chats import tiny_png
from media_engine import MediaEngine, make_media_model

TEMPLATE = Path(__file__).parent / "agent_templates" / "parts.jinja"
NUM_BLOCKS = 400
WORDS = "the cat sat on a mat and saw two more cats that sat on mats".split()


def text(rng, words):
    """A part of some words."""
    return {"type": "text", "text": " ".join(rng.choices(WORDS, k=words))}


def image(url, **own):
    """A part with an image."""
    return {"type": "image_url", "image_url": {"url": url}, **own}


def prompts():
    """Prompts that share images and texts, equal and moved, with and without an id of the client."""
    rng = random.Random(1)
    cat, dog = tiny_png(rng), tiny_png(rng)
    question, other, long = text(rng, 5), text(rng, 6), text(rng, 80)
    yield [question, image(cat), long]
    yield [question, image(cat), long]
    yield [question, image(dog), long]
    yield [question, image(cat), other]
    yield [other, image(cat), long]
    yield [image(cat), image(dog), long]
    yield [image(dog), image(cat), long]
    yield [image(cat), image(dog), other]
    yield [image(cat), image(cat), image(cat), long]
    yield [long, image(cat), long, image(dog), long]
    yield [long, image(cat), long, image(cat), long]
    yield [long, image(cat), long]
    yield [image(cat, uuid="mine"), long]
    yield [image(dog, uuid="mine"), long]
    yield [image(dog, uuid="yours"), long]
    yield [long, long, image(dog)]
    yield [long, long]
    yield [question, image(dog), long, image(cat), other]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    make_media_model(folder / "model", TEMPLATE)
    engine = MediaEngine("vllm", str(folder / "model"), NUM_BLOCKS, folder)
    engine.process.start()
    lines, num_messages = [], 0
    try:
        engine.process.wait_until_up()
        url = f"{engine.url}/v1/chat/completions"
        for content in prompts():
            body = {"model": "toy", "messages": [{"role": "user", "content": content}]}
            answer = http_json.post(f"{url}/render", {**body, "mm_payload": "none"})
            rendered = {name: answer[name] for name in ("token_ids", "features")}
            usage = http_json.post(url, {**body, "max_tokens": 1, "temperature": 0})["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            lines.append(f"found {cached} {json.dumps(rendered, separators=(',', ':'))}")
            messages = engine.published(num_messages)[:-1]
            num_messages += len(messages)
            lines += [frames[-1].hex() for frames in messages]
    finally:
        engine.kill()
    options.out.write_text("".join(line + "\n" for line in lines))
    print(f"{num_messages} messages; logs in {folder}")


main()
