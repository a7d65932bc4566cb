"""Inputs of a command: paths, or rows that become lines of JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Path = Union[str, "os.PathLike[str]"]
Row = Mapping[str, Any]
Input = Union[
    Path, Iterable[Path], Iterable[Row], "pandas.DataFrame", "polars.DataFrame", "pyarrow.Table"
]

ROWS_PER_STEP = 1024
"""Rows of a table that become Python objects at a time."""
EXACT_INTEGERS = 2**53
"""Up to here a float has every integer."""


@dataclass(frozen=True)
class Source:
    """`paths` go to the command line; `lines`, if any, to standard input."""

    paths: list[str]
    lines: Iterator[bytes] | None = None

    @property
    def reads_stdin(self) -> bool:
        return self.lines is None and "-" in self.paths


def source(given: Input, *, several: bool = False) -> Source:
    """Tells paths from rows. `several`: the command takes more than one path."""
    if isinstance(given, (str, os.PathLike)):
        return Source([os.fspath(given)])
    for kind in type(given).__mro__:
        if _name(kind) in _TABLES:
            return Source(["-"], _lines(_TABLES[_name(kind)](given)))
    if isinstance(given, (bytes, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(
            f"{_name(type(given))} is not an input; give a path, an iterable of dicts, or a "
            "DataFrame of pandas or polars, or a Table of pyarrow"
        )
    # Only the first item tells, and a generator gives it once.
    items = iter(given)
    first = next(items, None)
    if isinstance(first, (str, os.PathLike)):
        paths = [os.fspath(path) for path in chain([first], items)]
        if len(paths) > 1 and not several:
            raise TypeError(f"this command reads one file, not {len(paths)}")
        return Source(paths)
    rows: Iterator[Any] = items if first is None else chain([first], items)
    return Source(["-"], _lines(rows))


def _name(kind: type) -> str:
    """Package and class, such as `pandas.DataFrame`, wherever the package defines it."""
    package = kind.__module__.partition(".")[0]
    return kind.__name__ if package == "builtins" else f"{package}.{kind.__name__}"


def _lines(rows: Iterable[Row]) -> Iterator[bytes]:
    encode = json.JSONEncoder(
        allow_nan=False, check_circular=True, separators=(",", ":"), default=_plain
    ).encode
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise TypeError(f"row {number} is a {_name(type(row))}, not a dict")
        try:
            line = encode(row if isinstance(row, dict) else dict(row))
        except (TypeError, ValueError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"row {number}: {error}") from error
        yield line.encode() + b"\n"


def _plain(value: Any) -> Any:
    """What JSON lacks: times, arrays and scalars of NumPy, and other mappings."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    if type(value).__name__ == "Decimal":
        return float(value)
    raise TypeError(f"{_name(type(value))} is not a JSON value")


def _without_nulls(value: Any) -> Any:
    """A column of structs gives each row the fields of all rows: those it lacked are null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)) and any(
        isinstance(item, (dict, list, tuple)) or hasattr(item, "tolist") for item in value[:1]
    ):
        return [_without_nulls(item) for item in value]
    return value


def _pandas_rows(frame: Any) -> Iterator[dict[str, Any]]:
    names = [str(name) for name in frame.columns]
    whole = [_was_integer(frame.iloc[:, column]) for column in range(len(names))]
    for start in range(0, len(frame), ROWS_PER_STEP):
        part = frame.iloc[start : start + ROWS_PER_STEP]
        columns = [part.iloc[:, column].tolist() for column in range(len(names))]
        for values, nulls in zip(zip(*columns), part.isna().to_numpy().tolist()):
            yield {
                name: int(value) if is_whole else _without_nulls(value)
                for name, value, is_null, is_whole in zip(names, values, nulls, whole)
                if not is_null
            }


def _was_integer(column: Any) -> bool:
    """Whether pandas made an integer column float, because a float can be null."""
    if column.dtype.kind != "f" or not column.isna().any():
        return False
    known = column.dropna()
    return bool(((known % 1 == 0) & (known.abs() <= EXACT_INTEGERS)).all())


def _polars_rows(frame: Any) -> Iterator[dict[str, Any]]:
    return map(_without_nulls, frame.iter_rows(named=True, buffer_size=ROWS_PER_STEP))


def _arrow_rows(table: Any) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=ROWS_PER_STEP):
        yield from map(_without_nulls, batch.to_pylist())


_TABLES: dict[str, Callable[[Any], Iterator[dict[str, Any]]]] = {
    "pandas.DataFrame": _pandas_rows,
    "polars.DataFrame": _polars_rows,
    "pyarrow.Table": _arrow_rows,
}
"""By name: an object of a package that is not imported cannot exist."""
