"""The gateway and its replicas: processes that are started, killed and started again."""

import asyncio
import os
import pathlib
import re
import socket
import subprocess
import time

from client import HOST, get

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Steps of some 25 ms, so that there is always something in flight and little to compute.
COST_MODEL = """\
overhead_s = 0.02
weights_s = 0.005
token_s = 200e-6
pair_s = 3e-9
kv_token_s = 24e-9
max_batched_tokens = 512
kv_tokens = 12_288
"""
MAX_SEQUENCES = 8

START_S = 20  # a replica starts in a fraction of a second, and later beside a compiler
POLL_S = 0.02


class Gone(Exception):
    """A server that should run does not."""


class Server:
    """A `headstart serve`, started, killed and started again."""

    def __init__(self, port, command, log):
        self.port = port
        self._command, self._log, self._process = command, log, None
        self._spent_s = 0.0

    def is_alive(self):
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def start(self):
        """Starts it, without waiting."""
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def until_ready(self):
        """Waits until it answers; seconds waited."""
        began = time.monotonic()
        while await get(self.port, "/health") is None:
            if not self.is_alive() or time.monotonic() - began > START_S:
                raise Gone(f"no server on port {self.port}; see {self._log}")
            await asyncio.sleep(POLL_S)
        return time.monotonic() - began

    def kill(self):
        """SIGKILL, and waits for its end."""
        if self._process:
            self._spent_s = self.cpu_s()
            self._process.kill()
            self._process.wait()
            self._process = None

    def cpu_s(self):
        """Processor time of all its lives."""
        if not self.is_alive():
            return self._spent_s
        stat = pathlib.Path(f"/proc/{self._process.pid}/stat").read_text()
        ticks = sum(map(int, stat.rpartition(")")[2].split()[11:13]))
        return self._spent_s + ticks / os.sysconf("SC_CLK_TCK")

    def sample(self):
        """Memory in KiB, open files and threads."""
        if not self.is_alive():
            raise Gone(f"the server on port {self.port} died; see {self._log}")
        folder = pathlib.Path(f"/proc/{self._process.pid}")
        status = (folder / "status").read_text()
        rss, threads = (int(re.search(rf"{it}:\s+(\d+)", status)[1]) for it in ("VmRSS", "Threads"))
        return {"rss_kib": rss, "fds": len(list((folder / "fd").iterdir())), "threads": threads}


def refuse_taken(port):
    """Fails where somebody else listens: he would answer in a replica's place."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        raise SystemExit(f"port {port}: {error.strerror}; choose others by --base-port") from None


def fleet(args, work):
    """The replicas and the gateway before them, not started."""
    cost_model = work / "engine.toml"
    cost_model.write_text(COST_MODEL)
    replicas, upstreams = [], []
    for index in range(args.replicas):
        port, kv = args.base_port + 1 + index, args.base_port + 100 + 2 * index
        serve = [args.headstart, "serve", "--listen", f"{HOST}:{port}", "--replicas", "1"]
        engine = ["--executor", f"cost-model={cost_model}", "--kv-events-port", str(kv)]
        command = [*serve, *engine, "--max-sequences", str(MAX_SEQUENCES)]
        for taken in (port, kv, kv + 1):
            refuse_taken(taken)
        replicas.append(Server(port, command, work / f"replica-{index}.log"))
        streams = f"kv=tcp://{HOST}:{kv},replay=tcp://{HOST}:{kv + 1}"
        tokenizer = ROOT / "data" / "toy-tokenizer"
        upstreams += ["--upstream", f"http://{HOST}:{port},{streams},tokenizer={tokenizer}"]
    refuse_taken(args.base_port)
    listen = ["--listen", f"{HOST}:{args.base_port}", "--strategy", args.strategy]
    command = [args.headstart, "serve", *listen, *upstreams]
    return replicas, Server(args.base_port, command, work / "gateway.log")
