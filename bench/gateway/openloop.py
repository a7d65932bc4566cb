"""Requests at a fixed rate, whatever the answers do: wrk has no such mode.

One thread, plain sockets, `select` (whose time-outs are exact to the microsecond, unlike those of
`epoll`). A request is due at a fixed time; its latency counts from then, so that neither a slow
answer nor this program's own lateness is left out.
"""

import gc
import re
import select
import socket
import time
from collections import deque
from dataclasses import dataclass, field

from prompts import PATH

CONNECTIONS = 64
PATIENCE_S = 5.0  # for what is still open at the end
UPSTREAM = re.compile(rb'"system_fingerprint":"(\d+)"')
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass
class Outcome:
    """What came of a run."""

    latencies_s: list = field(default_factory=list)
    errors: int = 0
    served: dict = field(default_factory=dict)  # (family, upstream) -> requests

    def affinity(self):
        """Share of the requests that went where most of their family went."""
        families = {family for family, _ in self.served}
        most = sum(
            max(count for (of, _), count in self.served.items() if of == family)
            for family in families
        )
        return most / max(1, sum(self.served.values()))

    def spread(self):
        """Upstreams that served anything."""
        return len({upstream for _, upstream in self.served})


@dataclass(eq=False)
class Connection:
    """One kept open, with at most one request on it."""

    socket: socket.socket
    due: float = 0.0
    family: int = 0
    received: bytes = b""

    def fileno(self):
        return self.socket.fileno()

    def is_open(self):
        return self.socket.fileno() >= 0

    def send(self, due, prompt, request):
        self.due, self.family, self.received = due, prompt.family, b""
        sent = self.socket.send(request)
        assert sent == len(request), "a request fits a fresh socket buffer"

    def receive(self):
        """Whether the answer is complete; raises when the connection broke."""
        piece = self.socket.recv(65536)
        if not piece:
            raise ConnectionError("closed")
        self.received += piece
        head, gap, body = self.received.partition(b"\r\n\r\n")
        if not gap:
            return False
        length = LENGTH.search(head)
        return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")


def connect(port):
    made = socket.create_connection(("127.0.0.1", port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setblocking(False)
    return Connection(made)


def requests_of(prompts, port):
    def request(prompt):
        body = prompt.body.encode()
        head = f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode() + body

    return [(prompt, request(prompt)) for prompt in prompts]


def run(port, prompts, rate, seconds):
    """Sends `rate` requests a second to the port for so long; waits for the answers."""
    made = requests_of(prompts, port)
    outcome, waiting, busy = Outcome(), deque(), set()
    free = [connect(port) for _ in range(CONNECTIONS)]
    total, sent = int(rate * seconds), 0
    gc.disable()
    start = time.perf_counter() + 0.05
    end = start + seconds + PATIENCE_S
    while (sent < total or busy or waiting) and (now := time.perf_counter()) < end:
        while sent < total and start + sent / rate <= now:
            waiting.append((start + sent / rate, *made[sent % len(made)]))
            sent += 1
        while waiting and free:
            connection = free.pop()
            connection.send(*waiting.popleft())
            busy.add(connection)
        due = start + sent / rate if sent < total else end
        readable, _, _ = select.select(busy, [], [], max(0.0, due - time.perf_counter()))
        for connection in readable:
            if is_over(connection, outcome):
                busy.remove(connection)
                free.append(connection if connection.is_open() else connect(port))
    gc.enable()
    for connection in [*free, *busy]:
        connection.socket.close()
    outcome.errors += len(busy) + len(waiting) + total - sent
    return outcome


def is_over(connection, outcome):
    """Reads what has come; when that is the whole answer, or the end of it, notes it."""
    try:
        if not connection.receive():
            return False
    except OSError:
        connection.socket.close()
        outcome.errors += 1
        return True
    upstream = UPSTREAM.search(connection.received)
    if upstream is None or not connection.received.startswith(b"HTTP/1.1 200"):
        outcome.errors += 1
        return True
    outcome.latencies_s.append(time.perf_counter() - connection.due)
    place = (connection.family, int(upstream[1]))
    outcome.served[place] = outcome.served.get(place, 0) + 1
    return True
