"""Finds the program `headstart`, runs it, and streams rows to its standard input."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

CHUNK_BYTES = 64 * 1024
"""Capacity of a pipe on Linux. Larger writes do not save system calls."""

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class HeadstartError(Exception):
    """The program failed, or is missing.

    `exit_code` is 2 for wrong arguments and unreadable input, and negative for a signal. It is None
    if the program did not start.
    """

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    def __reduce__(self) -> tuple[type[HeadstartError], tuple[str, int | None]]:
        # A process pool pickles errors, and by default it would lose the exit code.
        return type(self), (str(self), self.exit_code)


@dataclass(frozen=True)
class Output:
    """What a run printed. `messages` is empty if standard error went to the terminal."""

    stdout: bytes
    messages: str


def find() -> str:
    """Path of the program: HEADSTART_PROGRAM, this environment, then PATH."""
    named = os.environ.get("HEADSTART_PROGRAM")
    if named:
        if not Path(named).is_file():
            raise HeadstartError(f"HEADSTART_PROGRAM names {named}, which is not a file")
        return named
    folders = [sysconfig.get_path("scripts")]
    if sys.executable:
        folders.append(os.path.dirname(sys.executable))
    for folder in [*folders, None]:
        found = shutil.which("headstart", path=folder)
        if found:
            return found
    raise HeadstartError(
        "the program `headstart` is not installed: it is neither in "
        + " nor in ".join(dict.fromkeys(folders))
        + " nor on PATH; install it there, or set HEADSTART_PROGRAM to its path"
    )


def run(
    arguments: Sequence[str],
    lines: Iterable[bytes] | None = None,
    *,
    reads_stdin: bool = False,
    accepted: Collection[int] = (0,),
) -> Output:
    """Runs the program to its end, with `lines` or our own standard input as its input.

    The caller's thread reads `lines`, because cursors of databases must stay in their thread. Two
    other threads read what the program prints.
    """
    program = find()
    terminal = _terminal()
    try:
        process = subprocess.Popen(
            [program, *arguments],
            # With a buffer, closing the pipe after Ctrl-C would wait for a program that reads no
            # more.
            bufsize=0,
            stdin=_stdin(lines, reads_stdin),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if terminal is None else terminal,
        )
    except (OSError, ValueError) as error:
        raise HeadstartError(f"cannot start {program}: {error}") from error
    try:
        stdout, stderr = _Reader(process.stdout), _Reader(process.stderr)
        if lines is not None and process.stdin is not None:
            _feed(process.stdin, lines, stdout.ended)
        process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    messages = _COLOUR.sub("", stderr.content().decode(errors="replace")).strip()
    if process.returncode not in accepted:
        raise HeadstartError(_failure(process.returncode, messages, terminal), process.returncode)
    return Output(stdout.content(), messages)


def _stdin(lines: Iterable[bytes] | None, reads_stdin: bool) -> int | None:
    if lines is not None:
        return subprocess.PIPE
    # None inherits ours. Without need the program must not: in a notebook it is the kernel's.
    return None if reads_stdin else subprocess.DEVNULL


def _terminal() -> int | None:
    """The descriptor of `sys.stderr` if it is a terminal: the program shows its progress there."""
    try:
        return sys.stderr.fileno() if sys.stderr.isatty() else None
    except (AttributeError, OSError, ValueError):
        # None in a windowed program; closed; or an object that is no file, as in a notebook.
        return None


class _Reader:
    """Reads a pipe to its end in a thread. Without a pipe the content is empty."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        self.ended = threading.Event()
        self._content = b""
        self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def _read(self, pipe: IO[bytes] | None) -> None:
        try:
            if pipe is not None:
                with pipe:
                    self._content = pipe.read()
        finally:
            self.ended.set()

    def content(self) -> bytes:
        self._thread.join()
        return self._content


def _feed(stdin: IO[bytes], lines: Iterable[bytes], ended: threading.Event) -> None:
    """Writes until the lines or the program end. Errors of `lines` go to the caller."""
    pending = bytearray()
    try:
        for line in lines:
            pending += line
            if len(pending) >= CHUNK_BYTES:
                if not _write(stdin, bytes(pending)):
                    return
                pending.clear()
            if ended.is_set():
                return
        _write(stdin, bytes(pending))
    finally:
        stdin.close()


def _write(stdin: IO[bytes], content: bytes) -> bool:
    """False if the program has ended: its exit code and message say why."""
    rest = memoryview(content)
    try:
        while rest:
            rest = rest[stdin.write(rest) :]
    except BrokenPipeError:
        return False
    return True


def _failure(exit_code: int, messages: str, terminal: int | None) -> str:
    if messages:
        # Before the error there may be lines of progress.
        start = messages.rfind("\nerror: ") + 1
        return messages[start:].removeprefix("error: ")
    where = "; its message is on the terminal" if terminal is not None else ""
    if exit_code < 0:
        return f"headstart was ended by signal {-exit_code}{where}"
    return f"headstart failed with exit code {exit_code}{where}"
