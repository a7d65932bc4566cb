"""Reaches the encoder of headstart-predict: builds its bench and runs it."""

import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ["cargo", "bench", "-q", "-p", "headstart-predict", "--bench", "encoder"]


def binary():
    """Path of the built bench."""
    command = [*BENCH, "--no-run", "--message-format=json"]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    paths = [m["executable"] for m in messages if m.get("target", {}).get("name") == "encoder"]
    return next(path for path in paths if path)


def run(path, folder, arguments, text="", threads=None):
    """Output of the bench for a model folder."""
    environment = os.environ | {"HEADSTART_ENCODER": str(Path(folder).resolve())}
    if threads:
        environment["RAYON_NUM_THREADS"] = str(threads)
    command = [path, *map(str, arguments)]
    done = subprocess.run(
        command, env=environment, input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def vectors(path, folder, texts):
    """(token ids, vector) of each text."""
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    answers = map(json.loads, run(path, folder, ["vectors"], lines).splitlines())
    return [(answer["ids"], answer["vector"]) for answer in answers]
