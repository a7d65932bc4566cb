"""`Index.follow`, behind publishers on real sockets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

native = pytest.importorskip("headstart._native", reason="the wheel is not built")
msgspec = pytest.importorskip("msgspec", reason="needs msgspec")

from headstart import Index  # noqa: E402
from publisher import publisher  # noqa: E402

PATIENCE_S = 20
CLOCK = [time.time()]


def batch(*events: Any) -> bytes:
    """A batch as vLLM encodes it, each with a later time."""
    CLOCK[0] += 0.001
    return bytes(msgspec.msgpack.encode([CLOCK[0], list(events), 0]))


def stored(number: int) -> bytes:
    """A block of the tokens `number` to `number + 3`."""
    return batch(["BlockStored", [number], None, [number + at for at in range(4)], 4, None])


def removed(number: int) -> bytes:
    return batch(["BlockRemoved", [number]])


def overlap(index: Index, number: int) -> dict[str, int]:
    return index.overlap([number, number + 1, number + 2, number + 3])


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.005)


def test_a_publisher_is_followed() -> None:
    with publisher() as engine, Index() as index:
        index.follow(engine.endpoint, worker="a")
        assert engine.live.wait(PATIENCE_S)
        engine.send(stored(10), stored(20))
        wait(lambda: overlap(index, 20) == {"a": 4})
        assert overlap(index, 10) == {"a": 4} and index.workers() == ["a"]
        engine.send(removed(10))
        wait(lambda: overlap(index, 10) == {})
        engine.send(batch(["AllBlocksCleared"]))
        wait(lambda: overlap(index, 20) == {})
        state = index.stream("a")
        assert state is not None
        assert state["status"] == "complete" and state["applied_batches"] == 4
        assert state["problem"] is None and state["lost_batches"] == 0
        assert index.stream("nobody") is None


def test_a_replay_brings_what_came_before_and_what_was_lost() -> None:
    with publisher() as engine, Index() as index:
        engine.send(stored(10), stored(20))
        index.follow(engine.endpoint, worker="a", replay=engine.replay)
        wait(lambda: overlap(index, 10) == {"a": 4} == overlap(index, 20))
        assert engine.live.wait(PATIENCE_S)
        engine.lose(stored(30))
        engine.send(stored(40))
        wait(lambda: overlap(index, 30) == {"a": 4} == overlap(index, 40))
        wait(lambda: index.stream("a")["status"] == "complete")


def test_without_a_replay_what_was_lost_is_counted() -> None:
    with publisher() as engine, Index() as index:
        index.follow(engine.endpoint, worker="a")
        assert engine.live.wait(PATIENCE_S)
        engine.send(stored(10))
        wait(lambda: overlap(index, 10) == {"a": 4})
        engine.lose(removed(10))
        engine.send(stored(20))
        wait(lambda: index.stream("a")["lost_batches"] == 1)
        assert index.stream("a")["status"] == "partial"
        assert overlap(index, 20) == {"a": 4}


def test_bad_payloads_are_counted_and_cost_nothing_else() -> None:
    with publisher() as engine, Index() as index:
        index.follow(engine.endpoint, worker="a")
        assert engine.live.wait(PATIENCE_S)
        engine.send(b"\xc1", batch(["BlockNew"]), stored(10))
        wait(lambda: overlap(index, 10) == {"a": 4})
        state = index.stream("a")
        assert state["damaged_batches"] == 1 and state["lost_batches"] == 1


def test_several_workers_and_a_publisher_that_is_not_there() -> None:
    with publisher() as one, publisher() as other, Index() as index:
        index.follow(one.endpoint, worker="a")
        index.follow(other.endpoint, worker="b")
        index.follow("tcp://127.0.0.1:9", worker="c")
        assert one.live.wait(PATIENCE_S) and other.live.wait(PATIENCE_S)
        one.send(stored(10))
        other.send(stored(10))
        wait(lambda: overlap(index, 10) == {"a": 4, "b": 4})
        assert index.workers() == ["a", "b", "c"]
        assert index.stream("c")["status"] == "down"
        index.forget("a")
        assert overlap(index, 10) == {"b": 4}


def test_calls_that_make_no_sense_are_refused() -> None:
    with Index() as index:
        for endpoint in ("tcp://*:5557", "127.0.0.1:5557", "tcp://host", "ipc:///tmp/x"):
            with pytest.raises(ValueError, match="is not tcp://HOST:PORT"):
                index.follow(endpoint, worker="a")
            with pytest.raises(ValueError, match="is not tcp://HOST:PORT"):
                index.follow("tcp://127.0.0.1:5557", worker="a", replay=endpoint)
        assert index.workers() == []
        index.apply("a", stored(10))
        index.follow("tcp://127.0.0.1:9", worker="a")
        assert overlap(index, 10) == {}
        with pytest.raises(ValueError, match='worker "a" is followed already'):
            index.follow("tcp://127.0.0.1:9", worker="a")
        with pytest.raises(ValueError, match='worker "a" is followed'):
            index.apply("a", stored(10))


def test_closing_takes_no_time() -> None:
    index = Index()
    for worker in "abcdef":
        index.follow("tcp://127.0.0.1:9", worker=worker)
    started = time.monotonic()
    index.close()
    assert time.monotonic() - started < 2


PROGRAM = """
import sys, time
from headstart import Index
index = Index()
index.follow("tcp://127.0.0.1:9", worker="a")
print("ready", flush=True)
time.sleep(float(sys.argv[1]))
"""


def child(seconds: float) -> subprocess.Popen[str]:
    home = str(Path(native.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(seconds)],
        env={**os.environ, "PYTHONPATH": home},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_ends_a_program_that_follows() -> None:
    with child(60) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=PATIENCE_S)
        assert program.returncode != 0 and "KeyboardInterrupt" in errors


def test_a_program_ends_without_a_close() -> None:
    with child(0) as program:
        _, errors = program.communicate(timeout=PATIENCE_S)
        assert program.returncode == 0 and errors == ""


def test_a_publisher_of_pyzmq() -> None:
    zmq = pytest.importorskip("zmq", reason="needs pyzmq")
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket, Index() as index:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        index.follow(f"tcp://127.0.0.1:{port}", worker="a")
        assert socket.poll(PATIENCE_S * 1000) and socket.recv() == b"\x01"
        for seq, payload in enumerate([stored(10), stored(20)]):
            socket.send_multipart([b"kv", seq.to_bytes(8, "big"), payload])
        wait(lambda: overlap(index, 10) == {"a": 4} == overlap(index, 20))
