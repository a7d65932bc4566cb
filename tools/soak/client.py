"""HTTP of which one sees how it ends: a body that breaks off is told from one that is whole."""

import asyncio
import contextlib
import json
import re

HOST = "127.0.0.1"
SERVED = 200


class Broken(Exception):
    """The connection ended before the answer did."""


class Answer:
    """Status and headers of an answer; its body is read piece by piece."""

    def __init__(self, reader, status, headers):
        self.status, self.headers = status, headers
        self._reader = reader

    async def pieces(self):
        """The body; raises Broken where it is not whole."""
        try:
            if self.headers.get("transfer-encoding") == "chunked":
                while size := int((await self._reader.readuntil(b"\r\n")).strip(), 16):
                    yield (await self._reader.readexactly(size + 2))[:-2]
            elif "content-length" in self.headers:
                yield await self._reader.readexactly(int(self.headers["content-length"]))
            else:
                yield await self._reader.read()
        except (asyncio.IncompleteReadError, ConnectionError, ValueError) as error:
            raise Broken(f"{type(error).__name__} in the body") from error

    async def body(self):
        """All of it."""
        return b"".join([piece async for piece in self.pieces()])


@contextlib.asynccontextmanager
async def asked(port, path, body=None):
    """The answer to a request on a connection of its own."""
    writer = None
    try:
        try:
            reader, writer = await asyncio.open_connection(HOST, port)
            data = b"" if body is None else json.dumps(body).encode()
            method = "GET" if body is None else "POST"
            head = f"{method} {path} HTTP/1.1\r\nhost: {HOST}:{port}\r\nconnection: close\r\n"
            head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Broken(f"{type(error).__name__} before the answer") from error
        pairs = (line.split(": ", 1) for line in lines[1:] if line)
        headers = {name.lower(): value for name, value in pairs}
        yield Answer(reader, int(lines[0].split()[1]), headers)
    finally:
        if writer:
            writer.close()


async def get(port, path, timeout_s=5.0):
    """The text at `path`; none where nobody answers with success."""
    try:
        async with asyncio.timeout(timeout_s), asked(port, path) as answer:
            text = (await answer.body()).decode()
            return text if answer.status == SERVED else None
    except (Broken, TimeoutError):
        return None


async def get_json(port, path):
    """The JSON at `path`; an empty object where there is none."""
    return json.loads(await get(port, path) or "{}")


async def events(answer):
    """The data of each server-sent event."""
    rest = b""
    async for piece in answer.pieces():
        *whole, rest = (rest + piece).split(b"\n\n")
        for event in whole:
            if event.startswith(b"data: "):
                yield event[len(b"data: ") :].decode()


def metrics(page):
    """Sums of a Prometheus page, by name; buckets also by their limit and direction."""
    sums = {}
    for line in (page or "").splitlines():
        found = re.match(r"([a-z_:0-9]+)(?:\{(.*)\})? (\S+)$", line)
        if found:
            name, labels, value = found.groups()
            kept = re.findall(r'(?:le|direction|outcome)="[^"]*"', labels or "")
            key = " ".join([name, *kept])
            sums[key] = sums.get(key, 0.0) + float(value)
    return sums
