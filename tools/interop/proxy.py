"""A TCP proxy before a ZeroMQ publisher that misbehaves on command, message by message.

| mode | messages of the publisher |
|---|---|
| `pass` | pass |
| `drop` | vanish; the connection stays |
| `noise` | every third one comes twice, every fourth one after the next |
| `refuse` | connections are cut and refused |

It reads just enough of ZMTP 3 (greeting, frames) to cut between messages. Commands always pass.
"""

import select
import socket
import struct
import threading

GREETING_BYTES = 64
MORE, LONG, COMMAND = 1, 2, 4

# How often a waiting thread looks whether the mode has changed, seconds.
LOOK_S = 0.05


class Closed(Exception):
    """One side is gone."""


class Proxy:
    """Listens on a port of its own until the process ends."""

    def __init__(self, target):
        self._target = target
        self.mode = "pass"
        self.dropped = 0
        self._number = 0
        self._late = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self._listener.accept()
            try:
                if self.mode == "refuse":
                    raise OSError
                server = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                client.close()
                continue
            ends = (client, server)
            threading.Thread(target=self._up, args=ends, daemon=True).start()
            threading.Thread(target=self._down, args=ends, daemon=True).start()

    def _up(self, client, server):
        """What the subscriber says: as it is."""
        try:
            while data := self._receive(client, 65536):
                server.sendall(data)
        except (OSError, Closed):
            pass
        self._close(client, server)

    def _down(self, client, server):
        """What the publisher says."""
        self._late = None
        try:
            client.sendall(self._exactly(server, GREETING_BYTES))
            while True:
                is_command, message = self._message(server)
                for data in [message] if is_command else self._misbehave(message):
                    client.sendall(data)
        except (OSError, Closed):
            pass
        self._close(client, server)

    def _misbehave(self, message):
        if self.mode == "drop":
            self.dropped += 1
            return []
        late, self._late = self._late, None
        messages = [message]
        if self.mode == "noise":
            self._number += 1
            if self._number % 4 == 0:
                self._late, messages = message, []
            elif self._number % 3 == 0:
                messages = [message, message]
        return messages + ([late] if late else [])

    def _message(self, sock):
        """One message or command, all frames of it."""
        data = b""
        while True:
            flags = self._exactly(sock, 1)
            size = self._exactly(sock, 8 if flags[0] & LONG else 1)
            body = self._exactly(sock, struct.unpack("!Q" if len(size) == 8 else "!B", size)[0])
            data += flags + size + body
            if not flags[0] & MORE:
                return bool(flags[0] & COMMAND), data

    def _exactly(self, sock, count):
        data = b""
        while len(data) < count:
            part = self._receive(sock, count - len(data))
            if not part:
                raise Closed
            data += part
        return data

    def _receive(self, sock, count):
        while self.mode != "refuse":
            if select.select([sock], [], [], LOOK_S)[0]:
                return sock.recv(count)
        raise Closed

    @staticmethod
    def _close(*sockets):
        for sock in sockets:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
