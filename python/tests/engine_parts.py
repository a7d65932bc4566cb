"""Imports the pure-Python parts of an engine's wheel without torch and without its C extension.

`tools/engines/unpack.py` fetches the parts. They import modules that are not among them, or that
need torch: those become stubs, of which any attribute is a class.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import logging
import os
import pathlib
import sys
import types
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = pathlib.Path(os.environ.get("HEADSTART_ENGINE_PARTS") or ROOT / "target" / "engines")


def versions(name: str) -> list[pathlib.Path]:
    """The folders of the unpacked versions of an engine, oldest first."""
    return sorted(FOLDER.glob(f"{name}-*[0-9]"))


class _Stub(types.ModuleType):
    __path__: list[str] = []

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__init__": lambda self, *args, **kwargs: None})
        setattr(self, name, made)
        return made


class _Logger(logging.Logger):
    def warning_once(self, *args: object) -> None:
        self.debug(*args)

    info_once = warning_once


class _Finder:
    """Finds a stub for each module below `names` that the parts do not have."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None):
        if name.split(".")[0] in self._names:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ == "vllm.logger":
            module.init_logger = _Logger


@contextlib.contextmanager
def imported(parts: pathlib.Path) -> Iterator[None]:
    """Lets `import vllm…` find the parts in `parts`, until the end of the block."""
    package = types.ModuleType("vllm")
    package.__path__ = [str(parts / "vllm")]
    finder = _Finder(("vllm", "torch"))
    with _forgotten():
        sys.modules["vllm"] = package
        # These import the whole engine, or need torch in the body of a class. torch cannot be
        # imported twice, so it is a stub also where it is there.
        gpu = "vllm.v1.kv_offload.cpu.gpu_worker"
        for name in ("vllm.distributed", "vllm.config", "vllm.logger", gpu, "torch"):
            sys.modules[name] = module = _Stub(name)
            finder.exec_module(module)
        sys.meta_path.append(finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)


@contextlib.contextmanager
def _forgotten() -> Iterator[None]:
    """Forgets modules of engines, and those of ours that import them."""
    before = dict(sys.modules)
    forget = ("vllm", "torch", "headstart.vllm")
    for name in before:
        if name.startswith(forget):
            del sys.modules[name]
    try:
        yield
    finally:
        for name in list(sys.modules):
            if name.startswith(forget):
                del sys.modules[name]
        sys.modules.update({name: it for name, it in before.items() if name.startswith(forget)})
