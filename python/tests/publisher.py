"""A publisher of KV events in a few lines of ZMTP 3.0, so that tests need no ZeroMQ library.

It sends on one connection at a time, and answers questions for a replay if it has a second port.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
END = b"\xff" * 8
PATIENCE_S = 20


def frame(body: bytes, flags: int) -> bytes:
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return bytes([flags | 2]) + len(body).to_bytes(8, "big") + body


def message(*parts: bytes) -> bytes:
    last = len(parts) - 1
    return b"".join(frame(part, at < last) for at, part in enumerate(parts))


class Peer:
    """One connection, behind its handshake."""

    def __init__(self, connection: socket.socket, kind: bytes) -> None:
        self.connection = connection
        connection.settimeout(PATIENCE_S)
        self.read_exactly = connection.makefile("rb").read
        connection.sendall(GREETING)
        self.read_exactly(len(GREETING))
        name, value = b"\x0bSocket-Type", len(kind).to_bytes(4, "big") + kind
        connection.sendall(frame(b"\x05READY" + name + value, 4))
        self.read()

    def read(self) -> list[bytes]:
        """One message; none at the end of the connection."""
        parts: list[bytes] = []
        while True:
            head = self.read_exactly(1)
            if not head:
                return []
            size = int.from_bytes(self.read_exactly(8 if head[0] & 2 else 1), "big")
            parts.append(self.read_exactly(size))
            if not head[0] & 1:
                return parts


class Publisher:
    """Batches are numbered from 0 and kept. `live` is set while a subscriber listens."""

    def __init__(self) -> None:
        self.listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.endpoint, self.replay = (
            f"tcp://127.0.0.1:{listener.getsockname()[1]}" for listener in self.listeners
        )
        self.batches: list[bytes] = []
        self.live = threading.Event()
        self.subscriber: Peer | None = None
        for listener, serve in zip(self.listeners, (self._subscribe, self._answer), strict=True):
            threading.Thread(target=self._accept, args=(listener, serve), daemon=True).start()

    def send(self, *payloads: bytes) -> None:
        """Publishes batches; without a subscriber they are only kept."""
        for payload in payloads:
            seq = len(self.batches).to_bytes(8, "big")
            self.batches.append(payload)
            if self.subscriber is not None:
                self.subscriber.connection.sendall(message(b"kv", seq, payload))

    def lose(self, payload: bytes) -> None:
        """A batch that is numbered and kept, but not sent."""
        self.batches.append(payload)

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()
        if self.subscriber is not None:
            self.subscriber.connection.close()

    def _accept(self, listener: socket.socket, serve) -> None:
        # The end of a connection, and of the listener, is no failure of the test.
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._serve, args=(connection, serve), daemon=True).start()

    def _serve(self, connection: socket.socket, serve) -> None:
        with contextlib.suppress(OSError, IndexError):
            serve(connection)

    def _subscribe(self, connection: socket.socket) -> None:
        peer = Peer(connection, b"PUB")
        peer.read()
        self.subscriber = peer
        self.live.set()

    def _answer(self, connection: socket.socket) -> None:
        peer = Peer(connection, b"ROUTER")
        while parts := peer.read():
            first = int.from_bytes(parts[-1], "big")
            for seq, payload in list(enumerate(self.batches))[first:]:
                connection.sendall(message(b"", b"kv", seq.to_bytes(8, "big"), payload))
            connection.sendall(message(b"", b"", END, b""))


@contextlib.contextmanager
def publisher() -> Iterator[Publisher]:
    made = Publisher()
    try:
        yield made
    finally:
        made.close()
