"""The functions of the package beside the command line, on the same files."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import json
import os
import pickle
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

FOLDER = Path(__file__).parents[1]
if importlib.util.find_spec("headstart") is None:
    sys.path.insert(0, str(FOLDER))

import headstart  # noqa: E402
from headstart import commands, options, program, results  # noqa: E402

try:
    PROGRAM = program.find()
except headstart.HeadstartError as missing:
    pytest.skip(str(missing), allow_module_level=True)

SEEDS = FOLDER.parent / "crates" / "trace" / "tests" / "seeds"
NOTEBOOK = FOLDER / "notebooks" / "headstart.ipynb"
WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa".split()
RULES = "Answer in one short sentence and stay polite. " * 20
PATIENCE_S = 60
"""A process that takes longer hangs."""

LOG: list[dict[str, Any]] = [
    {
        "request_id": f"q{number}",
        "model": "m",
        "timestamp": 1767225600 + 10 * number,
        "messages": [
            {"role": "system", "content": f"It is 2026-03-02T09:{number:02}:00. {RULES}"},
            {"role": "user", "content": " ".join(WORDS[number % 7 :])},
        ],
    }
    for number in range(40)
]
ROWS: list[dict[str, Any]] = [
    {
        "timestamp": 500 * number,
        "input_length": 1500 + number,
        "output_length": 20,
        "hash_ids": [0, 1, number % 5 + 2],
    }
    for number in range(50)
]
"""A trace in Mooncake's format, whose rows have fields that a table can hold."""


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Five files, one of each kind."""
    folder = tmp_path_factory.mktemp("files")
    for name, preset in {"chat.jsonl": "chat", "agents.jsonl.gz": "agents"}.items():
        command_line("trace", "synth", preset, "--requests=300", "-o", str(folder / name))
    (folder / "mooncake.jsonl").write_text(as_lines(ROWS))
    (folder / "log.jsonl").write_text(as_lines(LOG))
    talks = [
        {"turns": [{"role": "user", "text": RULES}, {"role": "assistant", "text": word}] * 2}
        for word in WORDS
    ]
    (folder / "conversations.jsonl").write_text(as_lines(talks))
    return {path.name.partition(".")[0]: path for path in folder.iterdir()}


FILES = ("agents", "chat", "conversations", "log", "mooncake")


def as_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def command_line(*arguments: str, accepted: tuple[int, ...] = (0,)) -> str:
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode in accepted, done.stderr
    return done.stdout


def comparable(value: Any) -> Any:
    """Without the memory of the process and the name of the input, which differ by run."""
    if isinstance(value, dict):
        left_out = {"memory", "file", "files", "asked"}
        return {key: comparable(item) for key, item in value.items() if key not in left_out}
    return [comparable(item) for item in value] if isinstance(value, list) else value


def script(path: Path, text: str) -> Path:
    """A program in place of the real one."""
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def child(code: str, **variables: str) -> subprocess.Popen[str]:
    found = importlib.util.find_spec("headstart")
    assert found is not None and found.origin is not None
    home = str(Path(found.origin).parents[1])
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "HEADSTART_PROGRAM": PROGRAM, "PYTHONPATH": home, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# --- The same figures as the command line ---------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_replay_equals_the_command_line(files: dict[str, Path], name: str) -> None:
    printed = command_line(
        "replay", str(files[name]), "--json", "--policy=lru,belady", "--capacity=10%,100"
    )
    result = headstart.replay(files[name], policies=["lru", "belady"], capacities=["10%", 100])
    assert result.raw == [json.loads(line) for line in printed.splitlines()]
    assert [row.policy for row in result.rows] == ["lru", "lru", "belady", "belady"]
    assert result.rows[0].token_hit_rate == result.raw[0]["token_hit_rate"]
    assert result.rows[0].steady_tokens_hit_rate == result.raw[0]["steady"]["tokens"]["hit_rate"]


@pytest.mark.parametrize("name", FILES)
def test_analyze_equals_the_command_line(files: dict[str, Path], name: str) -> None:
    printed = command_line("analyze", str(files[name]), "--json", "--replicas=2")
    result = headstart.analyze(files[name], replicas=2)
    whole, ours = json.loads(printed), dict(result.raw)
    for report in (whole, ours):
        del report["trace"]["memory"]
    assert ours == whole
    assert result.requests == whole["trace"]["requests"]
    served = [bucket for bucket in whole["waterfall"] if bucket["is_served"]]
    assert result.hit_rate == sum(bucket["share"] for bucket in served)


@pytest.mark.parametrize("name", ["conversations", "log", "requests", "text", "folder"])
def test_lint_equals_the_command_line(files: dict[str, Path], name: str, tmp_path: Path) -> None:
    for number, word in enumerate(WORDS):
        (tmp_path / f"{number}.txt").write_text(f"{RULES} {word}")
    others = {"text": tmp_path / "0.txt", "folder": tmp_path, "requests": SEEDS / "requests.jsonl"}
    path = {**files, **others}[name]
    if not path.exists():
        pytest.skip(f"no {path}")
    # The last rows of the seeds are wrong on purpose.
    printed = command_line("lint", str(path), "--json", "--skip-bad", accepted=(0, 1))
    result = headstart.lint(path, skip_bad=True)
    assert result.raw == json.loads(printed)
    assert result.ok == (not result.findings)


def test_the_other_commands_equal_the_command_line(files: dict[str, Path]) -> None:
    chat, log = str(files["chat"]), str(files["log"])
    why = json.loads(command_line("why", "q9", log, "--json", "--show-text"))
    explained = headstart.why("q9", log, show_text=True)
    assert explained.raw == why
    assert explained.cause == "clock" and explained.old != explained.new
    assert headstart.why(10, LOG, show_text=True).raw == why

    plan = json.loads(command_line("plan", chat, "--json", "--model=qwen3-8b", "--gpu=l40s"))
    planned = headstart.plan(chat, model="qwen3-8b", gpu="l40s")
    assert planned.raw == plan and planned.rows[0].times == plan["rows"][0]["times"]

    printed = command_line("simulate", "fleet", "--trace", chat, "--json", "--kv-tokens=9000,8000")
    simulated = headstart.simulate(chat, kv_tokens=[9000, 8000])
    assert simulated.raw == [json.loads(line) for line in printed.splitlines()]
    assert len(simulated.totals) == 4
    streamed = headstart.simulate(headstart.synth("chat", requests=300), kv_tokens=[9000, 8000])
    assert comparable(streamed.raw) == comparable(simulated.raw)


def test_options_are_those_of_the_program() -> None:
    ours = {"help", "version", "json"}
    cases: list[tuple[str, type, set[str]]] = [
        ("replay", options.ReplayOptions, {"csv"}),
        ("analyze", options.AnalyzeOptions, set()),
        ("why", options.WhyOptions, set()),
        ("lint", options.LintOptions, set()),
        ("plan", options.PlanOptions, {"model"}),
        ("simulate fleet", options.SimulateOptions, {"trace"}),
        ("trace synth", options.SynthOptions, {"list", "output"}),
    ]
    for command, known, left_out in cases:
        shown = command_line(*command.split(), "--help")
        offered = set(re.findall(r"^(?:      |  -\w, )--([a-z-]+)", shown, re.MULTILINE))
        names = {commands.ALIASES.get(name, name) for name in get_type_hints(known)}
        assert {name.replace("_", "-") for name in names} == offered - ours - left_out, command


# --- Inputs ---------------------------------------------------------------------------------------


def test_rows_give_what_a_file_gives(files: dict[str, Path]) -> None:
    whole = comparable(headstart.analyze(files["log"]).raw)
    assert comparable(headstart.analyze(LOG).raw) == whole
    assert comparable(headstart.analyze(row for row in LOG).raw) == whole
    lint = headstart.lint(files["log"])
    assert headstart.lint(iter(LOG)).raw == lint.raw


def test_several_paths(files: dict[str, Path]) -> None:
    path = files["log"]
    printed = command_line("analyze", str(path), str(path), "--json")
    for paths in ([path, str(path)], iter([path, path])):
        assert comparable(headstart.analyze(paths).raw) == comparable(json.loads(printed))
    with pytest.raises(TypeError, match="reads one file, not 2"):
        headstart.replay([path, path])


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_tables(package: str) -> None:
    module = pytest.importorskip(package, reason=f"needs {package}")
    as_table = module.Table.from_pylist if package == "pyarrow" else module.DataFrame
    expected = comparable(headstart.replay(ROWS, capacities=10).raw)
    assert comparable(headstart.replay(as_table(ROWS), capacities=10).raw) == expected
    report = comparable(headstart.analyze(LOG).raw)
    assert comparable(headstart.analyze(as_table(LOG)).raw) == report


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_nulls_of_tables_are_left_out(package: str) -> None:
    module = pytest.importorskip(package, reason=f"needs {package}")
    from headstart.inputs import source

    as_table = module.Table.from_pylist if package == "pyarrow" else module.DataFrame
    rows = [
        {"number": 1, "text": "a", "part": {"one": 1, "two": None}, "parts": [{"one": None}]},
        {"number": None, "text": None, "part": None, "parts": []},
    ] * 1500
    lines = source(as_table(rows)).lines
    assert lines is not None
    read = [json.loads(line) for line in lines]
    assert len(read) == 3000
    assert read[-2:] == [
        {"number": 1, "text": "a", "part": {"one": 1}, "parts": [{}]},
        {"parts": []},
    ]
    assert all(type(row.get("number", 0)) is int for row in read)


def test_values_beside_json() -> None:
    numpy = pytest.importorskip("numpy", reason="needs numpy")
    import datetime
    import decimal

    from headstart.inputs import source

    when = datetime.datetime(2026, 3, 2, 9, 30, tzinfo=datetime.timezone.utc)
    row = {"when": when, "ids": numpy.arange(3), "one": numpy.int64(7), "cost": decimal.Decimal(2)}
    lines = source([row]).lines
    assert lines is not None
    assert json.loads(next(lines)) == {
        "when": "2026-03-02T09:30:00+00:00",
        "ids": [0, 1, 2],
        "one": 7,
        "cost": 2.0,
    }


def test_a_long_generator_is_streamed() -> None:
    result = headstart.replay((row for _ in range(400) for row in ROWS), capacities=[10])
    assert result.rows[0].requests == 20_000


def test_the_generator_runs_in_the_thread_of_the_caller(tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "log.db") as connection:
        connection.execute("create table log (row text)")
        connection.executemany("insert into log values (?)", [[json.dumps(row)] for row in LOG])
        rows = (json.loads(row) for (row,) in connection.execute("select row from log"))
        assert headstart.lint(rows).requests == len(LOG)
    connection.close()


@pytest.mark.parametrize("given", [b"a.jsonl", {"prompt": "a"}, 7, None])
def test_other_inputs_are_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="is not an input"):
        headstart.replay(given)


# --- Errors ---------------------------------------------------------------------------------------


def test_errors_of_the_program() -> None:
    with pytest.raises(headstart.HeadstartError, match="^cannot open nix.jsonl: No such") as error:
        headstart.analyze("nix.jsonl")
    assert error.value.exit_code == 2
    again = pickle.loads(pickle.dumps(error.value))
    assert (str(again), again.exit_code) == (str(error.value), 2)
    with pytest.raises(headstart.HeadstartError, match="unexpected argument '--capacitys'"):
        headstart.replay(ROWS, capacitys=3)  # type: ignore[call-arg]
    with pytest.raises(headstart.HeadstartError, match="unknown policy `nix`"):
        headstart.replay(ROWS, policies="nix")
    with pytest.raises(headstart.HeadstartError, match="the input is empty"):
        headstart.replay([])
    with pytest.raises(headstart.HeadstartError, match="has no request nix"):
        headstart.why("nix", LOG)


def test_output_that_is_not_json() -> None:
    with pytest.raises(headstart.HeadstartError, match="not JSON"):
        headstart.replay(ROWS, help=True)  # type: ignore[call-arg]


def test_messages_have_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLICOLOR_FORCE", "1")
    with pytest.raises(headstart.HeadstartError) as error:
        headstart.replay(ROWS, capacitys=3)  # type: ignore[call-arg]
    assert "\x1b" not in str(error.value)


def test_broken_input_shows_the_error_of_the_program(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text(as_lines(ROWS[:3]) + "{broken\n")
    with pytest.raises(headstart.HeadstartError, match="line 4"):
        headstart.replay(broken)
    assert headstart.replay(broken, skip_bad=True, capacities=10).rows[0].requests == 3
    with pytest.raises(headstart.HeadstartError, match="line 4"):
        headstart.replay([*ROWS[:3], {"hash_ids": "no list"}, *ROWS * 1000])
    with pytest.raises(ValueError, match="row 2: Out of range float"):
        headstart.replay([ROWS[0], {"timestamp": float("nan")}])
    with pytest.raises(TypeError, match="row 2 is a int"):
        headstart.replay([ROWS[0], 3])
    with pytest.raises(TypeError, match="row 1: object is not a JSON value"):
        headstart.replay([{"prompt": object()}])


def test_an_early_end_stops_an_endless_generator() -> None:
    closed = []

    def endless() -> Iterator[dict[str, Any]]:
        try:
            yield {"nothing": "a trace has"}
            while True:
                yield ROWS[0]
        finally:
            closed.append(True)

    with pytest.raises(headstart.HeadstartError, match="line 1") as error:
        headstart.replay(endless())
    assert error.value.exit_code == 2
    del error
    assert closed


@pytest.mark.parametrize("after", [0, 1, 20_000])
@pytest.mark.parametrize("kind", [RuntimeError, BrokenPipeError, KeyboardInterrupt])
def test_an_exception_of_the_generator_reaches_the_caller(
    after: int, kind: type[BaseException]
) -> None:
    def raising() -> Iterator[dict[str, Any]]:
        for number in range(after):
            yield ROWS[number % len(ROWS)]
        raise kind("of the generator")

    with pytest.raises(kind, match="of the generator"):
        headstart.replay(raising())
    assert no_children()


def no_children() -> bool:
    """Whether every process that we started has ended and was waited for."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def test_a_program_ended_by_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = script(tmp_path / "killed", "#!/bin/sh\nkill -9 $$\n")
    monkeypatch.setenv("HEADSTART_PROGRAM", str(killed))
    with pytest.raises(headstart.HeadstartError, match="ended by signal 9") as error:
        headstart.replay(ROWS * 1000)
    assert error.value.exit_code == -9


@pytest.mark.parametrize("with_rows", [False, True])
def test_ctrl_c_ends_the_program(tmp_path: Path, with_rows: bool) -> None:
    number = tmp_path / "pid"
    sleeping = script(tmp_path / "sleeping", f"#!/bin/sh\necho $$ > {number}\nexec sleep 600\n")
    rows = "({'a': n} for n in itertools.count())" if with_rows else "'a.jsonl'"
    # A background job of a shell inherits that SIGINT is ignored.
    code = (
        "import itertools, signal, headstart\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"headstart.replay({rows})"
    )
    with child(code, HEADSTART_PROGRAM=str(sleeping)) as python:
        until(lambda: number.exists() and number.read_text().endswith("\n"))
        # The file may be there before Python has the number of the process.
        time.sleep(0.3)
        python.send_signal(signal.SIGINT)
        _, stderr = python.communicate(timeout=PATIENCE_S)
    assert stderr.strip().endswith("KeyboardInterrupt"), stderr
    assert python.returncode == -signal.SIGINT
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)


def until(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_other_threads_run_while_the_program_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = script(tmp_path / "slow", "#!/bin/sh\nsleep 0.5\nexit 2\n")
    monkeypatch.setenv("HEADSTART_PROGRAM", str(slow))
    calls = [threading.Thread(target=failing_call) for _ in range(4)]
    started = time.monotonic()
    for call in calls:
        call.start()
    turns = 0
    while any(call.is_alive() for call in calls):
        time.sleep(0.01)
        turns += 1
    assert turns >= 10 and time.monotonic() - started < 4 * 0.5


def failing_call() -> None:
    with pytest.raises(headstart.HeadstartError, match="failed with exit code 2"):
        headstart.replay(ROWS)


def test_a_terminal_shows_the_messages_of_the_program() -> None:
    pty = pytest.importorskip("pty", reason="needs pseudo-terminals")
    master, terminal = pty.openpty()
    code = (
        "import headstart\n"
        "try: headstart.replay('nix.jsonl')\n"
        "except headstart.HeadstartError as error: print(error)"
    )
    home = os.pathsep.join([str(Path(headstart.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HEADSTART_PROGRAM": PROGRAM, "PYTHONPATH": home},
        stdout=subprocess.PIPE,
        stderr=terminal,
        check=True,
    )
    os.close(terminal)
    assert b"cannot open the trace nix.jsonl" in os.read(master, 4096)
    os.close(master)
    assert b"exit code 2; its message is on the terminal" in done.stdout


# --- The program ----------------------------------------------------------------------------------


def test_where_the_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {name: tmp_path / name for name in ("named", "scripts", "beside", "path")}
    for folder in folders.values():
        folder.mkdir()
        script(folder / "headstart", "#!/bin/sh\n")
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(folders["scripts"]))
    monkeypatch.setattr("sys.executable", str(folders["beside"] / "python"))
    monkeypatch.setenv("PATH", str(folders["path"]))
    monkeypatch.setenv("HEADSTART_PROGRAM", str(folders["named"] / "headstart"))
    for name, folder in folders.items():
        assert program.find() == str(folder / "headstart"), name
        (folder / "headstart").unlink()
        if name == "named":
            with pytest.raises(headstart.HeadstartError, match="which is not a file"):
                program.find()
            monkeypatch.delenv("HEADSTART_PROGRAM")
    with pytest.raises(headstart.HeadstartError, match="set HEADSTART_PROGRAM") as error:
        program.find()
    assert error.value.exit_code is None


def test_a_program_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("no program")
    monkeypatch.setenv("HEADSTART_PROGRAM", str(tmp_path / "text"))
    with pytest.raises(headstart.HeadstartError, match="cannot start .*text"):
        headstart.replay(ROWS)


def test_the_import_is_light() -> None:
    code = (
        "import sys; old = set(sys.modules); import headstart; new = set(sys.modules) - old\n"
        "print(*sorted(new))"
    )
    with child(code) as python:
        stdout, _ = python.communicate(timeout=PATIENCE_S)
    loaded = {name.partition(".")[0] for name in stdout.split()}
    assert loaded <= {"headstart", "__future__"}, loaded
    assert set(headstart.__all__) <= set(dir(headstart))
    with pytest.raises(AttributeError):
        headstart.nothing  # noqa: B018


# --- Results --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def every_result(files: dict[str, Path]) -> list[results.Result]:
    return [
        headstart.replay(files["chat"], policies="all", capacities=["1%", "10%", "20%", 50, 60]),
        headstart.analyze(files["log"]),
        headstart.why("q9", files["log"], show_text=True),
        headstart.lint(files["log"]),
        headstart.plan(files["chat"], model="qwen3-8b", device_gib=0.5),
        headstart.simulate(files["chat"], strategies="random,precise"),
    ]


def test_results_print_as_tables(every_result: list[results.Result]) -> None:
    for result in every_result:
        assert result.columns[0] in str(result)
        html = result._repr_html_()
        assert html.count("<tr>") == min(len(result.records()), results.SHOWN_ROWS) + 1
        assert pickle.loads(pickle.dumps(result)) == result
    assert "2026-03-02T09:09:00" in str(every_result[2])


def test_tables_for_people_are_short_and_escaped() -> None:
    raw = [{"policy": "<b>", "capacity_blocks": number} for number in range(130)]
    replay = results.Replay.read(raw)
    assert replay.rows[0].evictions is None
    assert str(replay).endswith("30 more rows: to_pandas() has all")
    assert "<td>&lt;b&gt;</td>" in replay._repr_html_() and "<b>" not in replay._repr_html_()
    assert str(results.Replay.read([])) == results.Replay.read([])._repr_html_() == ""


def test_to_pandas(every_result: list[results.Result]) -> None:
    pytest.importorskip("pandas", reason="needs pandas")
    for result in every_result:
        frame = result.to_pandas()
        assert len(frame) == len(result.records()) and set(result.columns) <= set(frame.columns)
    assert "steady_tokens_hit_rate" in every_result[0].to_pandas()
    analysis = every_result[1]
    assert isinstance(analysis, results.Analysis)
    assert list(analysis.findings_to_pandas()["cause"]) == ["clock"]


def test_plots(every_result: list[results.Result]) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="needs matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    for result in every_result:
        axes = result.plot()
        assert result.plot(ax=axes) is axes
        assert axes.get_xlabel()
        axes.figure.canvas.draw()
        pyplot.close(axes.figure)


@pytest.mark.parametrize("method, package", [("to_pandas", "pandas"), ("plot", "matplotlib")])
def test_an_absent_package_is_named(
    method: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.pyplot", None)
    with pytest.raises(ImportError, match=rf"{method}\(\) needs {package}"):
        getattr(results.Replay.read([]), method)()


# --- Documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["headstart", "headstart.commands"])
def test_examples_in_docstrings(name: str) -> None:
    tested = doctest.testmod(importlib.import_module(name))
    assert tested.attempted > 0 and tested.failed == 0


def test_examples_in_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = FOLDER.parent / "docs" / "guide" / "python.md"
    if not guide.exists():
        pytest.skip(f"no {guide}")
    pytest.importorskip("headstart._native", reason="the wheel is not built")
    for package in ("pandas", "matplotlib"):
        pytest.importorskip(package, reason=f"needs {package}").__name__
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {}
    for example in re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL):
        exec(compile(example, str(guide), "exec"), names)


def test_the_notebook_runs() -> None:
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient")
    nbformat = pytest.importorskip("nbformat", reason="needs nbformat")
    for package in ("ipykernel", "matplotlib", "pandas"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "strip the outputs"
    home = str(Path(headstart.__file__).parents[1])
    manager = nbclient.NotebookClient(notebook, timeout=PATIENCE_S, kernel_name="python3")
    manager.create_kernel_manager()
    # This interpreter, whichever kernel is registered under that name.
    manager.km.kernel_spec.argv[0] = sys.executable
    manager.execute(env={**os.environ, "HEADSTART_PROGRAM": PROGRAM, "PYTHONPATH": home})
