"""Results of the commands: typed fields, tables and plots.

`raw` holds the program's JSON with every field. The typed fields are those that most readers need.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

SHOWN_ROWS = 100
"""More rows than this are for `to_pandas`."""
SHOWN_CHARACTERS = 100
"""Of a cell: a prompt is long."""

T = TypeVar("T")
Record = dict[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """What the results have in common. `messages` is what the program said besides."""

    raw: Any
    messages: str

    columns: ClassVar[Sequence[str]] = ()
    """Columns of the printed table."""

    @classmethod
    def read(cls: type[T], raw: Any, messages: str = "") -> T:
        """From the program's JSON."""
        raise NotImplementedError

    def records(self) -> list[Record]:
        """Rows of the main table. Nested fields are joined: `ttft_s_p90`."""
        raise NotImplementedError

    def _sentences(self) -> Iterable[str]:
        """Sentences above the table."""
        return ()

    def to_pandas(self) -> pandas.DataFrame:
        """The main table, with all its columns."""
        return _frame(self.records())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the main figure. `ax`: where, instead of in a new figure."""
        if ax is None:
            try:
                import matplotlib.pyplot as pyplot
            except ImportError as error:
                raise _missing("plot", "matplotlib", error) from error
            _, ax = pyplot.subplots()
        self._draw(ax)
        return ax

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError

    def _cells(self) -> tuple[list[list[str]], str]:
        records = self.records()
        cells = [
            [_cell(column, record.get(column)) for column in self.columns]
            for record in records[:SHOWN_ROWS]
        ]
        hidden = len(records) - len(cells)
        return cells, f"{hidden:,} more rows: to_pandas() has all" if hidden else ""

    def __str__(self) -> str:
        cells, note = self._cells()
        lines = list(self._sentences())
        if cells:
            table = [list(self.columns), *cells]
            widths = [max(map(len, column)) for column in zip(*table)]
            lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        return "\n".join([*lines, note] if note else lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        cells, note = self._cells()
        head = "".join(f"<p>{escape(line)}</p>" for line in self._sentences())
        if not cells:
            return head
        rows = [_html_row("th", self.columns), *(_html_row("td", row) for row in cells)]
        foot = f"<p>{escape(note)}</p>" if note else ""
        return f"{head}<table>{''.join(rows)}</table>{foot}"


@dataclass(frozen=True, slots=True)
class ReplayRow:
    """One policy with one cache size. `steady` leaves out the warm-up, `infinite` never evicts."""

    policy: str
    capacity: str
    capacity_blocks: int
    capacity_bytes: float | None
    requests: int
    block_hit_rate: float
    token_hit_rate: float
    steady_tokens_hit_rate: float
    infinite_tokens_hit_rate: float
    share_of_belady: float | None
    insertions: int
    evictions: int
    knee_blocks: int | None


@dataclass(frozen=True, slots=True, repr=False)
class Replay(Result):
    """Result of `replay`."""

    rows: tuple[ReplayRow, ...] = ()

    columns = ("policy", "capacity_blocks", "token_hit_rate", "block_hit_rate", "evictions")

    @classmethod
    def read(cls, raw: Any, messages: str = "") -> Replay:
        return cls(raw, messages, tuple(_typed(ReplayRow, row) for row in raw))

    def records(self) -> list[Record]:
        return [_flat(row, without=("trace", "infinite")) for row in self.raw]

    def _draw(self, ax: Axes) -> None:
        for policy in dict.fromkeys(row.policy for row in self.rows):
            rows = [row for row in self.rows if row.policy == policy]
            ax.plot(
                [row.capacity_blocks for row in rows],
                [row.token_hit_rate for row in rows],
                marker=".",
                label=policy,
            )
        ax.set(xscale="log", xlabel="cache size, blocks", ylabel="token hit rate")
        ax.legend()


@dataclass(frozen=True, slots=True)
class Bucket:
    """Prompt tokens with one origin. docs/guide/explain.md lists the buckets."""

    bucket: str
    meaning: str
    is_served: bool
    tokens: int
    share: float
    seconds: float | None
    money: float | None


@dataclass(frozen=True, slots=True)
class Example:
    """A request and the earlier one it differs from. Texts are there with `show_text`."""

    request: str
    neighbour: str | None
    token: int | None
    before: str | None
    old: str | None
    new: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake in prompts that breaks their prefix."""

    cause: str
    title: str
    requests: int
    tokens: int
    seconds: float | None
    money: float | None
    fix: str | None
    place: str | None
    """The label, heading, tool or message at the change."""
    fix_saves_tokens: int | None
    example: Example | None


@dataclass(frozen=True, slots=True, repr=False)
class Analysis(Result):
    """Result of `analyze`. The main table is the waterfall: where prompt tokens came from."""

    requests: int = 0
    prompt_tokens: int = 0
    headlines: tuple[str, ...] = ()
    waterfall: tuple[Bucket, ...] = ()
    findings: tuple[Finding, ...] = ()

    columns = ("meaning", "tokens", "share", "seconds", "money")

    @classmethod
    def read(cls, raw: Any, messages: str = "") -> Analysis:
        return cls(
            raw,
            messages,
            raw["trace"]["requests"],
            raw["trace"]["prompt_tokens"],
            tuple(raw["headlines"]),
            tuple(_typed(Bucket, bucket) for bucket in raw["waterfall"]),
            _findings(raw),
        )

    @property
    def hit_rate(self) -> float:
        """Cached prompt tokens over prompt tokens."""
        return sum(bucket.share for bucket in self.waterfall if bucket.is_served)

    def records(self) -> list[Record]:
        return [_flat(bucket) for bucket in self.raw["waterfall"] if bucket["tokens"]]

    def findings_to_pandas(self) -> pandas.DataFrame:
        """A row for each finding."""
        return _frame([_flat(finding) for finding in self.raw["findings"]])

    def _sentences(self) -> Iterable[str]:
        return self.headlines

    def _draw(self, ax: Axes) -> None:
        buckets = [bucket for bucket in self.waterfall if bucket.tokens]
        _bars(ax, [bucket.meaning for bucket in buckets], [bucket.share for bucket in buckets])
        ax.set(xlabel="share of the prompt tokens")


@dataclass(frozen=True, slots=True, repr=False)
class Explanation(Result):
    """Result of `why`. `cause` is None if nothing was lost, or no cause was found.

    A running server reports buckets and no difference: they are in `raw`.
    """

    request: str | None = None
    prompt_tokens: int | None = None
    shared_tokens: int | None = None
    lost_tokens: int | None = None
    neighbour: str | None = None
    cause: str | None = None
    title: str | None = None
    fix: str | None = None
    before: str | None = None
    old: str | None = None
    new: str | None = None
    after: str | None = None

    columns = ("field", "value")

    @classmethod
    def read(cls, raw: Any, messages: str = "") -> Explanation:
        known = {name: raw.get(name) for name in _names(cls) if name not in _names(Result)}
        known["request"] = raw.get("request", raw.get("id"))
        known["neighbour"] = _flat(raw).get("neighbour_request")
        return cls(raw, messages, **known)

    def records(self) -> list[Record]:
        flat = _flat(self.raw)
        return [{"field": key, "value": value} for key, value in flat.items() if value is not None]

    def _draw(self, ax: Axes) -> None:
        shared, lost = self.shared_tokens or 0, self.lost_tokens or 0
        new = (self.prompt_tokens or 0) - shared - lost
        _bars(ax, ["shared", "lost", "new"], [shared, lost, new])
        ax.set(xlabel="prompt tokens", title=f"request {self.request}")


@dataclass(frozen=True, slots=True, repr=False)
class Lint(Result):
    """Result of `lint`. `ok`: no findings, and no prefix shorter than in the baseline."""

    ok: bool = False
    requests: int = 0
    findings: tuple[Finding, ...] = ()
    stable_prefix_tokens: int | None = None
    baseline_stable_prefix_tokens: int | None = None
    note: str | None = None

    columns = ("cause", "title", "requests", "tokens", "fix")

    @classmethod
    def read(cls, raw: Any, messages: str = "") -> Lint:
        return cls(
            raw,
            messages,
            raw["ok"],
            raw["requests"],
            _findings(raw),
            raw.get("stable_prefix_tokens"),
            raw.get("baseline_stable_prefix_tokens"),
            raw.get("note"),
        )

    def records(self) -> list[Record]:
        return [_flat(finding) for finding in self.raw["findings"]]

    def _sentences(self) -> Iterable[str]:
        passed = "passed" if self.ok else "failed"
        yield f"{passed}: {self.requests:,} prompts, {len(self.findings)} findings"
        if self.stable_prefix_tokens is not None:
            yield f"stable prefix: {self.stable_prefix_tokens:,} tokens"
        if self.note:
            yield self.note

    def _draw(self, ax: Axes) -> None:
        titles = [finding.title for finding in self.findings]
        _bars(ax, titles, [finding.tokens for finding in self.findings])
        ax.set(xlabel="lost tokens")


@dataclass(frozen=True, slots=True)
class PlanRow:
    """One cache size, `times` the device's. `saved` compares with the device alone."""

    times: float
    below_bytes: float
    token_hit_rate: float
    marginal_token_hit_rate: float | None
    saved_s_per_hour_host: float | None
    saved_s_per_hour_disk: float | None


@dataclass(frozen=True, slots=True, repr=False)
class Plan(Result):
    """Result of `plan`. `times_enough` is the smallest sufficient size."""

    rows: tuple[PlanRow, ...] = ()
    device: str = ""
    ideal_token_hit_rate: float = 0.0
    times_enough: float | None = None
    times_knee: float | None = None
    summary: tuple[str, ...] = ()

    columns = (
        "times",
        "below_bytes",
        "token_hit_rate",
        "saved_s_per_hour_host",
        "saved_s_per_hour_disk",
    )

    @classmethod
    def read(cls, raw: Any, messages: str = "") -> Plan:
        return cls(
            raw,
            messages,
            tuple(_typed(PlanRow, row) for row in raw["rows"]),
            raw["device"],
            raw["ideal_token_hit_rate"],
            raw.get("times_enough"),
            raw.get("times_knee"),
            tuple(raw.get("words") or ()),
        )

    def records(self) -> list[Record]:
        return [_flat(row) for row in self.raw["rows"]]

    def _sentences(self) -> Iterable[str]:
        return (self.device, *self.summary)

    def _draw(self, ax: Axes) -> None:
        times = [row.times for row in self.rows]
        ax.plot(times, [row.token_hit_rate for row in self.rows], marker=".")
        ax.axhline(self.ideal_token_hit_rate, linestyle=":", label="never evicts")
        ax.set(xscale="log", xlabel="cache size, times the device", ylabel="token hit rate")
        ax.legend()


@dataclass(frozen=True, slots=True)
class SimulationRow:
    """One strategy at one rate. `rung` is the number of the rate, or "all" for the whole run."""

    strategy: str
    rung: int | str
    rate: float
    answered: int
    refused: int
    failed: int
    hit_rate: float | None
    ttft_s_mean: float | None
    ttft_s_p50: float | None
    ttft_s_p90: float | None
    ttft_s_p99: float | None
    e2e_s_p50: float | None
    e2e_s_p90: float | None
    output_tokens_per_s: float | None
    preemptions: int | None
    origin: str


@dataclass(frozen=True, slots=True, repr=False)
class Simulation(Result):
    """Result of `simulate`."""

    rows: tuple[SimulationRow, ...] = ()

    columns = ("strategy", "rung", "rate", "hit_rate", "ttft_s_p50", "ttft_s_p90", "answered")

    @classmethod
    def read(cls, raw: Any, messages: str = "") -> Simulation:
        return cls(raw, messages, tuple(_typed(SimulationRow, row) for row in raw))

    @property
    def totals(self) -> tuple[SimulationRow, ...]:
        """A row for each strategy, over all rates."""
        return tuple(row for row in self.rows if row.rung == "all")

    def records(self) -> list[Record]:
        return [_flat(row) for row in self.raw]

    def _draw(self, ax: Axes) -> None:
        _bars(ax, [row.strategy for row in self.totals], [row.hit_rate for row in self.totals])
        ax.set(xlabel="hit rate")


def _flat(value: Record, without: Sequence[str] = ()) -> Record:
    """Nested objects become columns, named as `ttft_s_p90`. Lists of objects are left out."""
    flat: Record = {}
    for key, item in value.items():
        if key in without:
            continue
        if isinstance(item, dict):
            flat |= {f"{key}_{inner}": nested for inner, nested in _flat(item).items()}
        elif not isinstance(item, list):
            flat[key] = item
    return flat


def _names(kind: Any) -> list[str]:
    return [one.name for one in fields(kind)]


def _typed(kind: type[T], value: Record) -> T:
    """A field that another version of the program lacks is None."""
    flat = _flat(value)
    return kind(**{name: flat.get(name) for name in _names(kind)})


def _findings(raw: Record) -> tuple[Finding, ...]:
    findings = []
    for finding in raw["findings"]:
        known = {name: finding.get(name) for name in _names(Finding)}
        example = known["example"]
        known["example"] = None if example is None else _typed(Example, example)
        findings.append(Finding(**known))
    return tuple(findings)


def _frame(records: list[Record]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise _missing("to_pandas", "pandas", error) from error
    return pandas.DataFrame(records)


def _missing(method: str, package: str, error: ImportError) -> ImportError:
    return ImportError(f"{method}() needs {package} (pip install {package}): {error}")


def _cell(column: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        is_share = column.endswith(("hit_rate", "share"))
        if is_share:
            return f"{value:.1%}"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if type(value) is int:
        return f"{value:,}"
    text = str(value).replace("\n", "\\n")
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _html_row(tag: str, cells: Sequence[str]) -> str:
    inner = "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"


def _bars(ax: Axes, labels: Sequence[str], values: Sequence[float | None]) -> None:
    """Horizontal bars, the first on top."""
    ax.barh(labels, [value or 0 for value in values])
    ax.invert_yaxis()
