"""The stub of the native module says what the module has."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

native = pytest.importorskip("headstart._native", reason="the wheel is not built")

STUB = Path(native.__file__).with_name("_native.pyi")
"""The stub that was installed with the module."""

TREE = ast.parse(STUB.read_text())
LEFT_OUT = {"__module__", "__doc__", "__new__", "__repr__", "__all__"}
"""Names that every class or module has."""

Parameter = tuple[str, str, bool]
"""Name, kind, and whether there is a default."""


def bodies(module: ast.Module | ast.ClassDef) -> dict[str, ast.stmt]:
    """Statements of a module or class of the stub, by name."""
    found: dict[str, ast.stmt] = {}
    for statement in module.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = statement
    return found


def is_property(statement: ast.stmt) -> bool:
    decorators = getattr(statement, "decorator_list", [])
    return any(isinstance(it, ast.Name) and it.id == "property" for it in decorators)


def is_protocol(statement: ast.stmt) -> bool:
    """Protocols exist for type checkers only."""
    bases = getattr(statement, "bases", [])
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in bases)


def written(function: ast.FunctionDef, is_method: bool) -> list[Parameter]:
    """The parameters of a function of the stub."""
    arguments = function.args
    positional = [
        *((it.arg, "POSITIONAL_ONLY") for it in arguments.posonlyargs),
        *((it.arg, "POSITIONAL_OR_KEYWORD") for it in arguments.args),
    ]
    first_default = len(positional) - len(arguments.defaults)
    found = [(name, kind, at >= first_default) for at, (name, kind) in enumerate(positional)]
    for it, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        found.append((it.arg, "KEYWORD_ONLY", default is not None))
    if arguments.vararg:
        found.append((arguments.vararg.arg, "VAR_POSITIONAL", False))
    return found[1:] if is_method else found


def actual(callable: object, is_method: bool) -> list[Parameter]:
    """The parameters of a function of the module, by its `__text_signature__`."""
    parameters = inspect.signature(callable).parameters.values()  # type: ignore[arg-type]
    found = [(it.name, it.kind.name, it.default is not it.empty) for it in parameters]
    return found[1:] if is_method else found


STUBS = bodies(TREE)
CLASSES = [
    name
    for name, it in STUBS.items()
    if isinstance(it, ast.ClassDef) and not is_protocol(it) and not name.startswith("_")
]


def members(name: str) -> dict[str, ast.stmt]:
    stub = STUBS[name]
    assert isinstance(stub, ast.ClassDef)
    return bodies(stub)


def test_the_stub_names_all_of_the_module() -> None:
    written_names = {name for name, it in STUBS.items() if not is_protocol(it)}
    assert written_names == {name for name in dir(native) if not name.startswith("__")}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_the_members_of_its_stub(name: str) -> None:
    stub, real = members(name), vars(getattr(native, name))
    assert set(stub) - LEFT_OUT == set(real) - LEFT_OUT
    for member, statement in stub.items():
        if member not in LEFT_OUT:
            assert is_property(statement) == inspect.isdatadescriptor(real[member]), member


@pytest.mark.parametrize("name", CLASSES)
def test_signatures_are_those_of_the_stub(name: str) -> None:
    real = getattr(native, name)
    for member, statement in members(name).items():
        assert isinstance(statement, ast.FunctionDef), member
        if member == "__new__":
            # A class tells the signature of its `__new__`, without the class itself.
            assert written(statement, True) == actual(real, False)
        elif not is_property(statement):
            assert written(statement, True) == actual(getattr(real, member), True), member


def test_signatures_of_functions() -> None:
    for name, statement in STUBS.items():
        if isinstance(statement, ast.FunctionDef):
            assert written(statement, False) == actual(getattr(native, name), False), name


@pytest.mark.parametrize("name", CLASSES)
def test_all_is_documented_and_typed(name: str) -> None:
    stub = STUBS[name]
    assert isinstance(stub, ast.ClassDef) and ast.get_docstring(stub)
    for member, statement in members(name).items():
        assert isinstance(statement, ast.FunctionDef) and statement.returns is not None, member
        arguments = statement.args
        rest = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs][1:]
        assert all(it.annotation is not None for it in rest), member
        assert member.startswith("__") or ast.get_docstring(statement), member


def test_a_class_is_documented_alike() -> None:
    for name in CLASSES:
        opening = inspect.getdoc(getattr(native, name)).split(".")[0]
        stub = STUBS[name]
        assert isinstance(stub, ast.ClassDef)
        assert " ".join(opening.split()) in " ".join((ast.get_docstring(stub) or "").split())


def test_policies_are_names() -> None:
    assert all(type(name) is str for name in native.POLICIES)
    assert Path(native.__file__).with_name("py.typed").exists()
