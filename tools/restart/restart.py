"""What a restart costs: the token hit rate before a server is killed, and in the minute after.

    python tools/restart/restart.py --gib 10
    python tools/restart/restart.py --gib 1 --shared

Documents whose keys and values fill so many GiB of the context cache are asked about at random by a
few clients, each question new, while the device holds a small part of them. After a measured time
the server gets SIGKILL and is started again on the same folder; with --shared it goes on, and a
second server is started on the same store (a folder as an object store, unless --store names one).
What is compared are shares of prompt tokens that were found, from each answer's usage.

The model computes little and keeps 64 KiB a token (`export_toy DIR wide`). Standard library only,
127.0.0.1 only. Exit code 1 where less than --target of the hit rate is left, or a text differs.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "data" / "toy-tokenizer"
TOKEN_BYTES = 64 << 10
BLOCK_TOKENS = 16
WORDS = ("value", "record", "number", "system", "level", "order", "point", "case", "part", "time")
GIB = 1 << 30
STARTS_WITHIN_S = 120


class Server:
    """A `headstart serve`, ready when this is made."""

    def __init__(self, args, port, cache):
        blocks = int(args.device_gib * GIB / TOKEN_BYTES / BLOCK_TOKENS)
        command = [args.headstart, "serve", "--listen", f"127.0.0.1:{port}", "--replicas", "1"]
        command += ["--model", str(args.work / "model"), "--served-model-name", "wide"]
        command += ["--cache-blocks", str(blocks), "--context-cache", cache]
        command += ["--context-cache-gib", str(args.gib * 1.3 + 0.3)]
        self.port, begun = port, time.monotonic()
        self.log = open(args.work / f"server-{port}.log", "a")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        while True:
            try:
                self.get("/health")
                break
            except OSError as error:
                late = time.monotonic() - begun > STARTS_WITHIN_S
                if self.process.poll() is not None or late:
                    sys.exit(f"the server does not start ({error}): see {self.log.name}")
                time.sleep(0.02)
        self.ready_s = time.monotonic() - begun

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return answer.read().decode()

    def ask(self, text):
        body = {"model": "wide", "max_tokens": 1, "temperature": 0}
        body["messages"] = [{"role": "user", "content": text}]
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            sys.exit(f"the server answered {error.code}: {error.read().decode()}")

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait(60)
        self.log.close()


class Traffic:
    """Clients that ask one question after the other."""

    def __init__(self, documents, clients, seed):
        self.documents, self.clients = documents, clients
        self.rng, self.lock = random.Random(seed), threading.Lock()
        self.asked = 0

    def question(self):
        with self.lock:
            self.asked += 1
            words = " ".join(self.rng.choices(WORDS, k=12))
            return self.rng.choice(self.documents) + f" Question {self.asked}: {words}?"

    def all_once(self, server):
        """Each document alone; its tokens are computed and stored."""
        waiting = list(self.documents)

        def client():
            while True:
                with self.lock:
                    if not waiting:
                        return
                    text = waiting.pop()
                server.ask(text)

        run([client] * self.clients)

    def measure(self, server, seconds):
        """The share of prompt tokens that were found, all in all and by tenths of the time."""
        begun, results = time.monotonic(), []

        def client():
            while time.monotonic() - begun < seconds:
                sent = time.monotonic()
                usage = server.ask(self.question())["usage"]
                done = time.monotonic()
                found = usage["prompt_cache_hit_tokens"]
                results.append((sent - begun, done - sent, found, usage["prompt_tokens"]))

        run([client] * self.clients)
        tenths = [[r for r in results if int(r[0] / seconds * 10) == n] for n in range(10)]
        latencies = sorted(latency for _, latency, _, _ in results)
        return {
            "requests": len(results),
            "hit_rate": rate(results),
            "by_tenth": [rate(part) for part in tenths],
            "latency_p50_s": round(latencies[len(latencies) // 2], 4),
        }


def run(clients):
    threads = [threading.Thread(target=client) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def rate(results):
    tokens = sum(prompt for _, _, _, prompt in results)
    return round(sum(found for _, _, found, _ in results) / tokens, 4) if tokens else None


def documents(server, args):
    """Texts of about as many tokens as are wanted, whose keys and values fill the GiB."""
    rng, count = random.Random(args.seed), int(args.gib * GIB / TOKEN_BYTES / args.tokens)
    words = [f"{a}{b}" for a in WORDS for b in range(100)]
    sample = " ".join(rng.choices(words, k=200))
    tokens = server.ask(sample)["usage"]["prompt_tokens"]
    length = int(args.tokens * 200 / tokens)
    return [f"Document {n}. " + " ".join(rng.choices(words, k=length)) for n in range(count)]


def units(server):
    lines = server.get("/metrics").splitlines()
    stored = [line for line in lines if line.startswith("headstart_tier_units{") and "readable" in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in stored)


def settle(server):
    """Until no more is written."""
    before = -1
    while (now := units(server)) != before:
        before = now
        time.sleep(1)
    return now


def prepare(args):
    args.work.mkdir(parents=True, exist_ok=True)
    for name in ("kv", "objects"):
        shutil.rmtree(args.work / name, ignore_errors=True)
    command = ["cargo", "run", "--release", "-q", "-p", "headstart-engine", "--example", "export_toy"]
    if not (args.work / "model" / "config.json").exists():
        subprocess.run([*command, "--", str(args.work / "model"), "wide"], check=True, cwd=ROOT)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, args.work / "model" / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--device-gib", type=float, default=0.5)
    parser.add_argument("--tokens", type=int, default=1_500, help="of a document")
    parser.add_argument("--seconds", type=float, default=60, help="measured before and after")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--shared", action="store_true", help="a second server, not a restart")
    parser.add_argument("--store", help="object store for --shared")
    parser.add_argument("--target", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=18700)
    parser.add_argument("--headstart", default=str(ROOT / "target" / "release" / "headstart"))
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target" / "restart")
    args = parser.parse_args()
    args.work = args.work.resolve()
    prepare(args)
    store = args.store or f"file://{args.work / 'objects'}"
    cache = store if args.shared else str(args.work / "kv")
    server = Server(args, args.port, cache)
    traffic = Traffic(documents(server, args), args.clients, args.seed)
    begun = time.monotonic()
    traffic.all_once(server)
    filled = settle(server)
    fill_s = time.monotonic() - begun
    probes = traffic.documents[:8]
    texts = [server.ask(text)["choices"] for text in probes]
    before = traffic.measure(server, args.seconds)
    if not args.shared:
        server.end(signal.SIGKILL)
    other = Server(args, args.port + (1 if args.shared else 0), cache)
    after = traffic.measure(other, args.seconds)
    differ = sum(other.ask(text)["choices"] != right for text, right in zip(probes, texts))
    left = after["hit_rate"] / before["hit_rate"]
    result = {
        "documents": len(traffic.documents),
        "units": filled,
        "fill_s": round(fill_s, 1),
        "ready_s": round(other.ready_s, 3),
        "before": before,
        "after": after,
        "left": round(left, 4),
        "texts_that_differ": differ,
    }
    for one in {server, other}:
        if one.process.poll() is None:
            one.end(signal.SIGTERM)
    if not args.shared:
        kept = sum(os.stat(path).st_size for path in (args.work / "kv").rglob("*") if path.is_file())
        result["bytes_on_disk"] = kept
    print(json.dumps(result, indent=2))
    sys.exit(0 if left >= args.target and differ == 0 else 1)


if __name__ == "__main__":
    main()
