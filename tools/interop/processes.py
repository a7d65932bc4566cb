"""Servers under test: started, asked, killed. Each is a process group of its own."""

import os
import signal
import socket
import subprocess
import time

from http_json import is_up

# A vLLM takes half a minute alone on two cores, and longer beside a compiler.
START_S = 300


def free_port():
    """A port that nobody uses at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Process:
    """A command that serves `health` once it is up."""

    def __init__(self, command, health, log, env=None):
        self._command, self._health, self._log = command, health, log
        self._env = {**os.environ, **(env or {})}
        self._running = None

    def start(self):
        """Starts it, without waiting."""
        assert self._running is None
        with open(self._log, "ab") as log:
            self._running = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._env,
                start_new_session=True,
            )

    def wait_until_up(self):
        """Waits for it; fails if it ends or takes too long."""
        end = time.monotonic() + START_S
        while not is_up(self._health):
            if self._running.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{self._command[0]} did not start; see {self._log}")
            time.sleep(0.2)

    def kill(self):
        """SIGKILL to it and its children, and waits for its end."""
        if self._running is not None:
            os.killpg(self._running.pid, signal.SIGKILL)
            self._running.wait()
            self._running = None
