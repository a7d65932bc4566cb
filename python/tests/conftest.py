"""Fixtures that several files of tests share."""

from __future__ import annotations

import pathlib

import pytest

import engine_parts


@pytest.fixture(
    params=engine_parts.versions("vllm") or [None], ids=lambda path: path.name if path else "none"
)
def parts(request: pytest.FixtureRequest) -> pathlib.Path:
    """The parts of each version of vLLM that is there."""
    if request.param is None:
        pytest.skip("no parts of vLLM: tools/engines/unpack.py target/engines fetches them")
    return request.param
