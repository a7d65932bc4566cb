"""What a run shows: which failures were allowed, whether the gateway grew, and all figures."""

import bisect
import dataclasses
import itertools
import statistics

GROWTH_SHARE, GROWTH_KIB = 0.03, 2048  # of the gateway's memory, from the 2nd quarter to the last
GROWTH_COUNT = 16  # of its open files and threads, which follow the load: a leak is one a kill
SHOWN = 20  # failures that are printed in full


def quantile(values, share):
    """The value below which `share` of the values lie; 0 without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def slope_per_hour(samples, name):
    """Median slope between all pairs of samples."""
    pairs = itertools.combinations([(it["s"], it[name]) for it in samples], 2)
    slopes = [(late[1] - early[1]) / (late[0] - early[0]) for early, late in pairs]
    return statistics.median(slopes) * 3600 if slopes else 0.0


def spread(kills, name):
    """Median and maximum of what is known of all kills."""
    values = [value for kill in kills if (value := getattr(kill, name)) is not None]
    return {"median": statistics.median(values or [0.0]), "max": max(values, default=0.0)}


def growth(samples, name):
    """Medians of the second and the last quarter."""
    length = max(1, len(samples) // 4)
    values = [it[name] for it in samples]
    return statistics.median(values[length : 2 * length]), statistics.median(values[-length:])


def killed_during(record, kills):
    """When the replica that answered was killed during a request; none where it was not."""
    times = [kill.at for kill in kills if kill.replica == record.replica]
    at = bisect.bisect_left(times, record.start)
    return times[at] if at < len(times) and times[at] <= record.end else None


def failures(records, kills):
    """Answers that broke off as they may, with their kills, and those that must not have failed."""
    allowed, breaches = [], []
    for record in records:
        if record.outcome == "complete":
            continue
        killed = killed_during(record, kills)
        if record.outcome == "broken off" and killed is not None:
            allowed.append((record, killed))
        else:
            breaches.append(record)
    return allowed, breaches


def described(record, kills, began):
    """A failed request in a line."""
    since = [f"{record.start - kill.at:+.3f} s of {kill.replica}" for kill in kills]
    near = min(since, key=lambda it: abs(float(it.split()[0])), default="no kill")
    first = "none" if record.first is None else f"{record.first - record.start:.3f} s"
    return (
        f"{record.outcome}: {record.prompt} at {record.start - began:.3f} s (nearest kill {near}), "
        f"replica {record.replica}, first token {first}, {record.tokens} of {record.max_tokens}, "
        f"ended after {record.end - record.start:.3f} s: {record.detail}"
    )


def waiting_at_kills(records, kills):
    """How many requests had no token yet when some replica was killed, by outcome."""
    counts = {}
    times = [kill.at for kill in kills]
    for record in records:
        at = bisect.bisect_left(times, record.start)
        if at < len(times) and times[at] < (record.first or record.end):
            counts[record.outcome] = counts.get(record.outcome, 0) + 1
    return counts


def verdicts(result):
    """What was claimed and whether it holds, in words."""
    growths = result["gateway"]["growth"]
    before, after = growths["rss_kib"]
    limit = max(GROWTH_SHARE * before, GROWTH_KIB)
    counts = [growths["fds"], growths["threads"]]
    kills = result["kills"]
    return {
        "only answers in flight on a killed replica failed": not result["breaches"],
        "memory is flat": after - before <= limit,
        "open files and threads are flat": all(b - a <= GROWTH_COUNT for a, b in counts),
        "every killed replica came back": kills["back"] == kills["count"],
        "the index is what the replicas hold": not result["index_differences"],
    }


def summary(load, kills, samples, began, counters):
    """All figures of a run."""
    records = load.records
    allowed, breaches = failures(records, kills)
    complete = [record for record in records if record.outcome == "complete"]
    ttfts = [record.first - record.start for record in records if record.first]
    told = [record.end - killed for record, killed in allowed]
    outcomes = {}
    for record in records:
        outcomes[record.outcome] = outcomes.get(record.outcome, 0) + 1
    prompt_tokens = sum(record.prompt_tokens for record in complete)
    over = "headstart_cached_tokens_error_bucket"
    compared = counters.get('headstart_cached_tokens_error_count direction="over"', 0)
    names = ("rss_kib", "fds", "threads")
    half = samples[len(samples) // 2 :]
    return {
        "requests": len(records),
        "outcomes": outcomes,
        "allowed": len(allowed),
        "told_after_s_max": max(told, default=0.0),
        "breaches": [described(record, kills, began) for record in breaches],
        "waiting_at_kills": waiting_at_kills(records, kills),
        "retries": counters.get("headstart_retries_total", 0.0),
        "hit_rate": sum(record.cached_tokens for record in complete) / max(1, prompt_tokens),
        "overpredicted": compared - counters.get(f'{over} direction="over" le="16"', compared),
        "compared": compared,
        "ttft_s": {name: quantile(ttfts, share) for name, share in (("p50", 0.5), ("p99", 0.99))},
        "e2e_s_max": max((record.end - record.start for record in records), default=0.0),
        "kills": {
            "count": len(kills),
            "back": sum(kill.back_s is not None for kill in kills),
            "all": [dataclasses.asdict(kill) | {"at": kill.at - began} for kill in kills],
            **{name: spread(kills, name) for name in ("ready_s", "up_s", "back_s")},
        },
        "gateway": {
            "growth": {name: growth(samples, name) for name in names},
            "rss_kib_per_hour": slope_per_hour(half, "rss_kib"),
            "samples": samples,
        },
    }


def seconds(spread):
    """A spread in words."""
    return "{median:.2f} s, at most {max:.2f} s".format(**spread)


def print_table(result):
    """The figures as Markdown, then what fails."""
    kills, grown = result["kills"], result["gateway"]["growth"]
    outcomes = ", ".join(f"{count:,} {name}" for name, count in result["outcomes"].items())
    waiting = ", ".join(f"{count:,} {name}" for name, count in result["waiting_at_kills"].items())
    mib = [it / 1024 for it in grown["rss_kib"]]
    rows = [
        ("rate; what the fleet can take", "{rate:.1f}/s; {capacity}".format(**result)),
        ("requests", f"{result['requests']:,}: {outcomes}"),
        ("broken off by a kill, told at most", f"{result['told_after_s_max'] * 1e3:.0f} ms after"),
        ("without a token when some replica was killed", waiting or "none"),
        ("moved to another replica by the gateway, before a token", f"{result['retries']:.0f}"),
        ("hit rate", f"{result['hit_rate']:.1%}"),
        (
            "predicted more than a block too much",
            f"{result['overpredicted']:.0f} of {result['compared']:.0f}",
        ),
        ("TTFT p50, p99", "{p50:.3f} s, {p99:.3f} s".format(**result["ttft_s"])),
        ("longest request", f"{result['e2e_s_max']:.1f} s"),
        ("kills; replicas that came back", f"{kills['count']}; {kills['back']}"),
        ("after a kill: replica ready", seconds(kills["ready_s"])),
        ("used by the gateway", seconds(kills["up_s"])),
        ("its events complete", seconds(kills["back_s"])),
        ("gateway's memory, 2nd and last quarter", f"{mib[0]:.1f} MiB, {mib[1]:.1f} MiB"),
        (
            "its slope in the second half",
            f"{result['gateway']['rss_kib_per_hour'] / 1024:+.1f} MiB/h",
        ),
        ("gateway's open files; threads", f"{grown['fds']}; {grown['threads']}"),
        ("processors: gateway, replicas, load", "{0:.2f}, {1:.2f}, {2:.2f}".format(*result["cpu"])),
    ]
    print("| what | result |\n|---|---|")
    for what, value in rows:
        print(f"| {what} | {value} |")
    print()
    for claim, holds in result["verdicts"].items():
        print(f"{'holds' if holds else 'FAILS'}: {claim}")
    details = [*result["breaches"], *result["index_differences"]]
    for line in details[:SHOWN]:
        print(f"  {line}")
    if len(details) > SHOWN:
        print(f"  and {len(details) - SHOWN} more; --json has all of them")
