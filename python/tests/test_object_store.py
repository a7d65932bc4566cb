"""`BlockTier` over object storage: a folder as a store, and a server that does not answer."""

from __future__ import annotations

import http.server
import importlib
import pathlib
import shutil
import socket
import threading
import time
from collections.abc import Callable

import pytest

from tier_user import TierUser, key

ROWS, ROW_BYTES = 16, 8192
RECORD_BYTES = ROW_BYTES + 4096
"""A record has a page for its header."""
BENCHES = pathlib.Path(__file__).parents[2] / "bench/engines"


class StoreUser(TierUser):
    """An engine that uses the store at `url`."""

    def __init__(self, url: str, budget_blocks: int = 100, identity: bytes = bytes(16)) -> None:
        super().__init__(url, budget_blocks * RECORD_BYTES, (ROWS, ROW_BYTES), identity)


def objects(folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def size(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in objects(folder))


@pytest.fixture
def url(tmp_path: pathlib.Path) -> str:
    (tmp_path / "store").mkdir()
    return f"file://{tmp_path}/store"


def test_another_engine_finds_the_blocks(url: str) -> None:
    first = StoreUser(url)
    assert len(first.store(list(range(8)))) == 8
    second = StoreUser(url)
    assert len(second.tier) == 8
    assert len(second.load(list(range(8)))) == 8
    assert [row[0] for row in second.rows[:8]] == list(range(8))
    # Both use the store at once: a folder of one engine would be in use.
    assert len(second.store([8, 9])) == 2
    third = StoreUser(url)
    assert len(third.tier) == 10


def test_a_block_of_another_identity_is_never_loaded(url: str) -> None:
    StoreUser(url).store([1, 2])
    other = StoreUser(url, identity=bytes([1] * 16))
    assert not other.has(1)
    assert other.load([1]) == []


def test_a_damaged_object_is_not_loaded(url: str, tmp_path: pathlib.Path) -> None:
    StoreUser(url).store(list(range(8)))
    for path in objects(tmp_path / "store"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    user = StoreUser(url)
    user.rows[:] = 255
    assert user.load(list(range(8))) == []
    assert (user.rows == 255).all()
    assert dict(user.tier.counts())["damaged"] == 8
    assert not any(user.has(block) for block in range(8))


def test_an_object_that_another_engine_removed_is_missed(
    url: str, tmp_path: pathlib.Path
) -> None:
    StoreUser(url).store([1, 2])
    user = StoreUser(url)
    for path in objects(tmp_path / "store"):
        path.unlink()
    assert user.load([1, 2]) == []
    assert not user.has(1)


def test_the_budget_holds(url: str, tmp_path: pathlib.Path) -> None:
    user = StoreUser(url, budget_blocks=10)
    for first in range(0, 60, 4):
        user.store(list(range(first, first + 4)))
    assert user.tier.capacity == len(user.tier) == 10
    user.tier.close()
    assert size(tmp_path / "store") <= 10 * RECORD_BYTES
    # Another engine with a smaller budget takes the newest that fit.
    assert len(StoreUser(url, budget_blocks=5).tier) == 5


def test_wrong_places_have_clear_errors(url: str) -> None:
    with pytest.raises(OSError, match="no room for a record"):
        StoreUser(url, budget_blocks=0)
    with pytest.raises(OSError, match="is no store"):
        StoreUser("ftp://bucket/prefix")


def test_a_server_that_refuses_connections_delays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {
        "AWS_ACCESS_KEY_ID": "headstart",
        "AWS_SECRET_ACCESS_KEY": "headstart",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    user = StoreUser("s3://bucket/prefix")
    assert len(user.tier) == 0
    began = time.monotonic()
    assert user.store([1, 2]) == []
    assert user.load([1, 2]) == []
    assert time.monotonic() - began < 5
    user.tier.finished()
    assert "nothing is read or written" in user.tier.condition
    user.tier.close()


def test_blocks_of_a_server_that_is_gone_are_missed_until_it_is_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    if shutil.which("moto_server") is None:
        pytest.skip("no moto_server: pip install 'moto[server]'")
    monkeypatch.syspath_prepend(str(BENCHES))
    s3 = importlib.import_module("s3")
    server = s3.S3Server(tmp_path)
    try:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        user = StoreUser(f"s3://{s3.BUCKET}/prefix")
        assert len(user.store([1, 2])) == 2
        server.cut()
        # Some requests fail before the server counts as gone.
        wait_for(lambda: not user.load([1, 2]) and not user.has(1))
        assert user.tier.advise([key(1)], 8, 0, 16, 100)[0] == 0
        server.connect()
        wait_for(lambda: user.has(1) and user.has(2))
        assert len(user.load([1, 2])) == 2
        user.tier.close()
    finally:
        server.stop()


class DeniedReads(http.server.BaseHTTPRequestHandler):
    """An S3 server that takes objects and denies to read them."""

    protocol_version = "HTTP/1.1"
    LIST = b"<ListBucketResult><Name>b</Name><KeyCount>0</KeyCount></ListBucketResult>"

    def log_message(self, *args: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("ETag", '"a"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200)

    def do_GET(self) -> None:
        is_list = "list-type" in self.path
        self.answer(200, self.LIST) if is_list else self.answer(403)

    def do_DELETE(self) -> None:
        self.answer(204)


def test_a_block_that_cannot_be_read_is_absent_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), DeniedReads)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    try:
        user = StoreUser("s3://b/p")
        assert len(user.store([1, 2, 3, 4, 5, 6])) == 6
        assert user.has(1) and user.tier.condition == ""
        # An engine that finds the block again would load it again, without end.
        assert user.load([1]) == []
        assert not user.has(1) and user.tier.absence(key(1)) == "failed"
        assert user.has(2)
        assert user.load([2, 3, 4, 5, 6]) == []
        assert "loads fail" in user.tier.condition
        user.tier.close()
    finally:
        server.shutdown()
