"""A `headstart serve` to look at, and clients that send it prompts which share prefixes."""

import http.client
import json
import queue
import random
import re
import subprocess
import threading
import time

# An engine that computes nothing: what it costs is a millisecond or two a step.
COST_MODEL = """\
overhead_s = 0.001
weights_s = 0.0005
token_s = 5e-6
pair_s = 1e-10
kv_token_s = 1e-9
max_batched_tokens = 512
kv_tokens = 12_288
"""


class Server:
    """A server on a free port, ready when this is made."""

    def __init__(self, headstart, work, *options, port=0):
        command = [str(headstart), "serve", "--listen", f"127.0.0.1:{port}", *options]
        self.log = open(work / "server.log", "a")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if not found:
            raise RuntimeError(f"the server does not start: {line!r}, see {self.log.name}")
        self.port = int(found.group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)
        self.process.stdout.close()
        self.log.close()

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=30)
        self.process.stdout.close()
        self.log.close()


class Clients:
    """Requests at a steady rate, from a few connections, until closed."""

    def __init__(self, server, rate, connections=12, seed=1):
        self.server, self.rate, self.seed = server, rate, seed
        self.sent = self.failed = 0
        self.due = queue.Queue(maxsize=connections)
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.pace, daemon=True)]
        self.threads += [
            threading.Thread(target=self.work, daemon=True) for _ in range(connections)
        ]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join(timeout=20)

    def pace(self):
        begun, count = time.monotonic(), 0
        rng = random.Random(self.seed)
        while not self.is_over.is_set():
            time.sleep(max(0.0, begun + count / self.rate - time.monotonic()))
            count += 1
            try:
                self.due.put(prompt(rng), timeout=0.5)
            except queue.Full:
                pass

    def work(self):
        connection = None
        while not self.is_over.is_set():
            try:
                tokens = self.due.get(timeout=0.2)
            except queue.Empty:
                continue
            try:
                connection = connection or http.client.HTTPConnection(
                    "127.0.0.1", self.server.port, timeout=60
                )
                ask(connection, tokens)
                self.sent += 1
            except (OSError, http.client.HTTPException):
                self.failed += 1
                connection = None


def emulated(work):
    """Options for a server whose engine only takes time: the page is to be measured, not it."""
    path = work / "cost-model.toml"
    path.write_text(COST_MODEL)
    return ["--executor", f"cost-model={path}"]


def prompt(rng):
    """One of three system prompts, one of eight documents, and a question of its own."""
    system, document = rng.randrange(3), rng.randrange(8)
    tokens = [10 + (system * 31 + at * 7) % 400 for at in range(96)]
    tokens += [10 + (system * 17 + document * 53 + at * 11) % 400 for at in range(64)]
    return tokens + [rng.randrange(10, 400) for _ in range(rng.randrange(8, 40))]


def ask(connection, tokens, model="toy"):
    body = json.dumps({"model": model, "prompt": tokens, "max_tokens": 1, "temperature": 0})
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise OSError(f"{answer.status}: {content[:200]!r}")
