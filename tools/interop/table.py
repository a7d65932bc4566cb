"""The Markdown table: one row per phase."""

from dataclasses import dataclass, field

from judge import Verdict
from measure import Counts


@dataclass
class Phase:
    """A row of the table."""

    name: str
    counts: Counts = field(default_factory=Counts)
    failed: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    seen: dict = field(default_factory=dict)


HEAD = """\
| phase | requests | failed | prompt tokens | predicted | realised | exact | mean error, tokens \
| blocks compared | missing | too many | in doubt | probes right | batches and replays |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"""


def row(phase):
    """One line of the table."""
    counts, verdict = phase.counts, phase.verdict
    num = counts.requests
    exact = f"{counts.exact / num:.1%}" if num else ""
    error = f"{counts.error_tokens / num:.2f}" if num else ""
    streams = ", ".join(f"{count} {name}" for name, count in phase.seen.items())
    cells = [
        phase.name,
        f"{num:.0f}",
        phase.failed,
        f"{counts.prompt_tokens:,.0f}",
        f"{counts.predicted:,.0f}",
        f"{counts.realised:,.0f}",
        exact,
        error,
        verdict.blocks,
        verdict.missing,
        verdict.extra,
        verdict.in_doubt,
        f"{verdict.probes_right}/{verdict.probes}",
        streams,
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def together(phases):
    """The sum of all."""
    total = Phase("all")
    for phase in phases:
        total.counts += phase.counts
        total.failed += phase.failed
        for name, value in vars(phase.verdict).items():
            setattr(total.verdict, name, getattr(total.verdict, name) + value)
        for name, count in phase.seen.items():
            total.seen[name] = total.seen.get(name, 0) + count
    return total
