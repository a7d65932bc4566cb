#!/usr/bin/env python3
"""Fetches the pure-Python parts of engines' wheels that the contract tests import.

    tools/engines/unpack.py FOLDER [NAME==VERSION …]

A wheel of vLLM has 320 MB, and the tests need 1 MB of it: the parts are read by HTTP ranges. Those
of SGLang have 44 MB, and their tests need torch: name sglang==0.5.23 to fetch them. The index is
pip's (`pip config get global.index-url`, PIP_INDEX_URL), else PyPI. What is there already is not
fetched again. Only the standard library is used.
"""

from __future__ import annotations

import io
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse
import urllib.request
import zipfile

PARTS = {
    "vllm": r"vllm/(v1/kv_offload/|v1/kv_hints|v1/metrics/cache_hit_source|utils/math_utils"
    r"|distributed/kv_transfer/kv_connector/v1/offloading/).*py$",
    # Its memory pools import most of it, so only large parts that nothing needs are left out.
    # They look for the sources of its kernels.
    "sglang": r"sglang/((?!multimodal_gen/|test/|benchmark/|srt/models/).*py$"
    r"|kernels/jit/(include|csrc)/)",
}
"""Files of each package."""

VERSIONS = ["vllm==0.30.0", "vllm==0.31.0", "vllm==0.32.0", "vllm==0.33.0"]

TIMEOUT_S = 60
BUFFER_BYTES = 256 * 1024
"""Read at once: the files of one folder lie near one another."""


class RemoteFile(io.RawIOBase):
    """A file behind a URL, read in ranges."""

    def __init__(self, url: str) -> None:
        self._url, self._at = url, 0
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            self._size = int(answer.headers["Content-Length"])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        headers = {"Range": f"bytes={self._at}-{end - 1}"}
        request = urllib.request.Request(self._url, headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            if answer.status != 206:
                raise OSError(f"{self._url}: the server does not serve ranges")
            data = answer.read()
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def index_url() -> str:
    """The package index that pip uses."""
    if url := os.environ.get("PIP_INDEX_URL"):
        return url
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "https://pypi.org/simple"


def wheel_url(name: str, version: str) -> str:
    """The wheel of a version for x86-64; its Python parts are those of every other platform."""
    page = f"{index_url().rstrip('/')}/{name}/"
    accept = {"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"}
    request = urllib.request.Request(page, headers=accept)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        text, kind = answer.read().decode(), answer.headers.get_content_type()
    if kind.endswith("json"):
        links = [file["url"] for file in json.loads(text)["files"]]
    else:
        links = re.findall(r'href="([^"]+)"', text)
    stem = f"/{name.replace('-', '_')}-{version}-"
    for link in links:
        url = urllib.parse.urljoin(page, link).partition("#")[0]
        if stem in url and re.search(r"(x86_64|none-any)\.whl$", url):
            return url
    raise SystemExit(f"{page}: no wheel of {name} {version} for x86-64")


def unpack(folder: pathlib.Path, name: str, version: str) -> pathlib.Path:
    """Fetches the parts of one version, and returns their folder."""
    target = folder / f"{name}-{version}"
    if target.is_dir():
        return target
    remote = io.BufferedReader(RemoteFile(wheel_url(name, version)), BUFFER_BYTES)
    partial = target.with_suffix(".partial")
    with zipfile.ZipFile(remote) as wheel:
        # In the order of the file, so that one range has several of them.
        members = sorted(wheel.infolist(), key=lambda member: member.header_offset)
        for member in members:
            if re.match(PARTS[name], member.filename):
                wheel.extract(member, partial)
    partial.rename(target)
    return target


def main() -> None:
    arguments = sys.argv[1:]
    if not arguments or arguments[0].startswith("-"):
        raise SystemExit(__doc__)
    folder = pathlib.Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for wanted in arguments[1:] or VERSIONS:
        name, _, version = wanted.partition("==")
        print(unpack(folder, name, version))


if __name__ == "__main__":
    main()
