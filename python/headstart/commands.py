"""The commands of the program as functions.

A keyword argument is a long option: `kv_tokens=` is `--kv-tokens`, True is a flag, and a list is
joined by commas. None and False leave an option out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import program, results
from .inputs import Input, Source, source

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import options as known
    from .options import Path

ALIASES = {"policies": "policy", "capacities": "capacity", "predictors": "predictor"}
"""Options of `replay` that take several values: the plural reads better in a call."""
REPEATED = frozenset({"predictor"})
"""Options that are repeated for several values, because a value may hold a comma."""

R = TypeVar("R", bound=results.Result)


def replay(trace: Input, **options: Unpack[known.ReplayOptions]) -> results.Replay:
    """Compares eviction policies and cache sizes on a trace: `headstart replay`.

    >>> import headstart
    >>> trace = headstart.synth("chat", requests=200)
    >>> result = headstart.replay(trace, policies="lru,belady", capacities=["10%", 1000])
    >>> [f"{row.policy} {row.capacity_blocks} {row.token_hit_rate:.1%}" for row in result.rows]
    ['lru 238 38.4%', 'lru 1000 50.4%', 'belady 238 50.4%', 'belady 1000 54.6%']
    """
    return _rows(results.Replay, _run(["replay"], source(trace), options))


def analyze(log: Input, **options: Unpack[known.AnalyzeOptions]) -> results.Analysis:
    """Explains why prompts of a log were recomputed, and the cost: `headstart analyze`.

    >>> import headstart
    >>> rules = "Answer in one short sentence. " * 20
    >>> log = [
    ...     {"prompt": f"Now: 09:{n:02}. {rules} Question {n}", "timestamp": n} for n in range(60)
    ... ]
    >>> [finding.title for finding in headstart.analyze(log).findings]
    ['a date or time that changes']
    """
    given = source(log, several=True)
    return _object(results.Analysis, _run(["analyze"], given, options))


def why(
    request: str | int, log: Input | None = None, **options: Unpack[known.WhyOptions]
) -> results.Explanation:
    """Explains why the prompt of one request was recomputed: `headstart why`.

    `request` is an id, or the number of a line. Without `log` it asks a running server.

    >>> import headstart
    >>> log = [{"prompt": "The sky is blue. " * 30 + end} for end in ("Why?", "Since when?")]
    >>> found = headstart.why(2, log)
    >>> 0 < found.shared_tokens < found.prompt_tokens
    True
    """
    given = Source([]) if log is None else source(log)
    return _object(results.Explanation, _run(["why"], given, options, before=[str(request)]))


def lint(log: Input, **options: Unpack[known.LintOptions]) -> results.Lint:
    """Finds what breaks prefix caching in prompts: `headstart lint`. Findings are not an error.

    >>> import headstart
    >>> rules = "Answer in one short sentence. " * 20
    >>> checked = headstart.lint([{"prompt": f"{rules} Question {n}"} for n in range(60)])
    >>> checked.ok, checked.findings
    (True, ())
    """
    given = source(log, several=True)
    return _object(results.Lint, _run(["lint"], given, options, accepted=(0, 1)))


def plan(trace: Input, *, model: Path, **options: Unpack[known.PlanOptions]) -> results.Plan:
    """Sizes a KV cache in host memory or on disk for a trace: `headstart plan`.

    >>> import headstart
    >>> result = headstart.plan(headstart.synth("chat", requests=200), model="qwen3-8b")
    >>> result.rows[0].times
    1
    """
    return _object(results.Plan, _run(["plan"], source(trace), {"model": model, **options}))


def simulate(
    trace: Input | None = None, **options: Unpack[known.SimulateOptions]
) -> results.Simulation:
    """Compares routing strategies in virtual time: `headstart simulate fleet`.

    Without `trace`, name a published run: `preset="laptop"`.

    >>> import headstart
    >>> trace = headstart.synth("chat", requests=200)
    >>> result = headstart.simulate(trace, strategies=["random", "precise"], replicas=4)
    >>> [row.strategy for row in result.totals]
    ['random', 'precise']
    """
    given = Source([]) if trace is None else source(trace)
    output = _run(["simulate", "fleet"], given, options, path_option="--trace")
    return _rows(results.Simulation, output)


def synth(*presets: str, **options: Unpack[known.SynthOptions]) -> list[dict[str, Any]]:
    """Rows of a generated trace: `headstart trace synth`. Equal arguments give equal rows.

    The first row is the header of the canonical format.

    >>> import headstart
    >>> trace = headstart.synth("chat", "api", requests=50, seed=2)
    >>> len(trace), trace[0]["block_tokens"]
    (51, 16)
    """
    output = program.run(["trace", "synth", *_flags(options), "--", *presets])
    rows: list[dict[str, Any]] = _parsed(output.stdout.splitlines())
    return rows


def _run(
    command: Sequence[str],
    given: Source,
    options: Mapping[str, Any],
    *,
    before: Sequence[str] = (),
    path_option: str | None = None,
    accepted: Collection[int] = (0,),
) -> program.Output:
    """`before`: arguments before the paths. `path_option`: the option that takes the path."""
    arguments = [*command, "--json", *_flags(options)]
    if path_option is not None:
        arguments += [f"{path_option}={path}" for path in given.paths]
    elif before or given.paths:
        # A path may begin with a hyphen.
        arguments += ["--", *before, *given.paths]
    return program.run(arguments, given.lines, reads_stdin=given.reads_stdin, accepted=accepted)


def _object(kind: type[R], output: program.Output) -> R:
    """Result of a command that prints one object."""
    return kind.read(_parsed([output.stdout])[0], output.messages)


def _rows(kind: type[R], output: program.Output) -> R:
    """Result of a command that prints an object a line."""
    return kind.read(_parsed(output.stdout.splitlines()), output.messages)


def _parsed(texts: Iterable[bytes]) -> list[Any]:
    try:
        return [json.loads(text) for text in texts]
    except ValueError as error:
        raise program.HeadstartError(
            f"the program printed something that is not JSON ({error}); leave out options that "
            "change its output, and check its version with `headstart --version`",
            0,
        ) from error


def _flags(options: Mapping[str, Any]) -> list[str]:
    flags = []
    for name, value in options.items():
        name = ALIASES.get(name, name)
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            flags.append(flag)
        elif name in REPEATED and not isinstance(value, (str, os.PathLike)):
            flags += [f"{flag}={_text(item)}" for item in value]
        else:
            flags.append(f"{flag}={_text(value)}")
    return flags


def _text(value: Any) -> str:
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(_text(item) for item in value)
    return str(value)
