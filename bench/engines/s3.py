"""An S3 server for benchmarks, whose network can fail: `moto_server` behind a forwarder of ports."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

BUCKET = "headstart"
START_S = 30
"""Longest wait for a server's start."""
AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=headstart/20260101/us-east-1/s3/aws4_request, "
    "SignedHeaders=host, Signature=0"
)


class S3Server:
    """Objects live in the server's memory. `cut` and `mute` leave them there."""

    def __init__(self, work: pathlib.Path) -> None:
        program = shutil.which("moto_server")
        if program is None:
            raise SystemExit("moto_server is missing: pip install 'moto[server]'")
        self._server_port, self._port = free_port(), free_port()
        self._log = (work / "s3.log").open("wb")
        command = [program, "--host", "127.0.0.1", "--port", str(self._server_port)]
        self._server = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        self._forwarder: subprocess.Popen | None = None
        self.connect()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._server_port}/{BUCKET}",
            method="PUT",
            headers={"Authorization": AUTHORIZATION},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        deadline = time.monotonic() + START_S
        while True:
            try:
                opener.open(request, timeout=5).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which Headstart finds the server."""
        return {
            "AWS_ACCESS_KEY_ID": "headstart",
            "AWS_SECRET_ACCESS_KEY": "headstart",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ALLOW_HTTP": "true",
            "NO_PROXY": "127.0.0.1",
        }

    def cut(self) -> None:
        """Connections end, and new ones are refused."""
        if self._forwarder:
            self._forwarder.kill()
            self._forwarder.wait()
            self._forwarder = None

    def connect(self) -> None:
        """Ends `cut`."""
        if self._forwarder is None:
            command = [sys.executable, __file__, str(self._port), str(self._server_port)]
            self._forwarder = subprocess.Popen(command)

    def mute(self) -> None:
        """The server accepts connections and does not answer."""
        self._server.send_signal(signal.SIGSTOP)

    def unmute(self) -> None:
        """Ends `mute`."""
        self._server.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.cut()
        self._server.kill()
        self._server.wait()
        self._log.close()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def forward(port: int, to: int) -> None:
    """Connects each caller of `port` with `to`, until the process ends."""
    with socket.create_server(("127.0.0.1", port), reuse_port=True) as listener:
        while True:
            caller, _ = listener.accept()
            try:
                server = socket.create_connection(("127.0.0.1", to), timeout=30)
            except OSError:
                caller.close()
                continue
            server.settimeout(None)
            for source, target in ((caller, server), (server, caller)):
                threading.Thread(target=pump, args=(source, target), daemon=True).start()


def pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    forward(int(sys.argv[1]), int(sys.argv[2]))
