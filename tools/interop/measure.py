"""Predicted and realised cached tokens, from the gateway's own metrics."""

from dataclasses import dataclass, fields

# Of what a stream counts, what tells a phase, and how the table calls it.
SEEN = {
    "restarts": "restarts",
    "lost_batches": "lost",
    "duplicate_batches": "repeated",
    "stale_batches": "stale",
    "replays_completed": "replays",
    "replays_failed": "replays failed",
}

ERROR = "headstart_cached_tokens_error"


@dataclass
class Counts:
    """What a gateway has counted; differences of two are what happened between."""

    requests: float = 0
    prompt_tokens: float = 0
    predicted: float = 0
    realised: float = 0
    exact: float = 0
    error_tokens: float = 0

    @classmethod
    def of(cls, gateway):
        """As they stand now."""
        return cls(
            requests=gateway.metric(f"{ERROR}_count"),
            predicted=gateway.metric("headstart_predicted_cached_tokens_total"),
            realised=gateway.metric("headstart_realised_cached_tokens_total"),
            exact=gateway.metric(f"{ERROR}_bucket", le="0"),
            error_tokens=gateway.metric(f"{ERROR}_sum"),
        )

    def _with(self, other, operation):
        return Counts(
            *(operation(getattr(self, f.name), getattr(other, f.name)) for f in fields(Counts))
        )

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._with(other, lambda a, b: a - b)


def stream_counts(gateway, num_engines):
    """Per stream, what it has counted: events lost, replays and so on."""
    streams = (gateway.stream(replica) or {} for replica in range(num_engines))
    return [{name: n for name, n in stream.items() if name in SEEN} for stream in streams]


def seen(before, after):
    """What the streams counted between, all together. A stream that was followed anew counts from
    0: then all that it has counted is new."""
    total = {}
    for old, new in zip(before, after):
        is_anew = any(new.get(name, 0) < count for name, count in old.items())
        for name, count in new.items():
            count -= 0 if is_anew else old.get(name, 0)
            total[name] = total.get(name, 0) + count
    return {SEEN[name]: count for name, count in total.items() if count}
