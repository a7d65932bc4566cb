"""A gateway under load while its replicas are killed and restarted, one after the other.

    replica 0 ─┐                                 every --kill-every seconds SIGKILL to the next
    replica 1 ─┤ HTTP, KV events ── gateway ◀──  replica, which is started again at once
    replica 2 ─┤                       ▲
    replica 3 ─┘                       └──────── Poisson arrivals of streamed chats and completions

Each replica is a process: an emulated engine (`serve --executor cost-model=FILE`) with the real
scheduler, cache, API and KV events. Most answers are streamed; those that are not may never fail.
Each is read to its end and judged:

    complete     all tokens, the text that this prompt always gets, usage, [DONE] of a stream
    broken off   tokens, then an error event: allowed on a replica that was killed meanwhile
    no token     status 200, and an error before the first token
    refused      another status than 200
    cut          ended with neither [DONE] nor an error event
    wrong        ended well with other tokens, text or usage than it should have
    hung         not ended within --limit seconds

Whatever is neither complete nor allowed fails the run, and so does a gateway that grows, or whose
index is at the end not what the replicas hold. Standard library only, 127.0.0.1 only, Linux only.
"""

import argparse
import asyncio
import dataclasses
import itertools
import json
import pathlib
import signal
import sys
import time

from client import get, get_json, metrics
from load import Load
from servers import MAX_SEQUENCES, POLL_S, ROOT, Gone, fleet
from verdict import print_table, summary, verdicts

CALIBRATION_S, WARM_UP_S = 12, 4
SAMPLE_S = 5
TOLD_EVERY = 12  # samples between two lines on standard error
SETTLE_S = 5  # for the last events to arrive


@dataclasses.dataclass(slots=True)
class Kill:
    """One replica's death and return; seconds after the kill."""

    replica: int
    at: float
    ready_s: float | None = None
    up_s: float | None = None
    back_s: float | None = None


async def kill_in_turn(args, replicas, gateway, end, kills):
    """Kills a replica every so many seconds until `end`, and starts it again."""
    due = time.monotonic()
    for index in itertools.cycle(range(len(replicas))):
        due += args.kill_every
        if due > end:
            return
        await asyncio.sleep(due - time.monotonic())
        kill = Kill(index, time.monotonic())
        kills.append(kill)
        replicas[index].kill()
        await asyncio.sleep(args.down)
        replicas[index].start()
        await replicas[index].until_ready()
        kill.ready_s = time.monotonic() - kill.at
        await watch_return(gateway, kill, kill.at + args.kill_every * 0.9)


async def watch_return(gateway, kill, end):
    """Notes when the gateway uses a replica again, and when it has all of its events."""
    while kill.back_s is None and time.monotonic() < end:
        known = (await get_json(gateway.port, "/debug/index")).get("replicas")
        since = time.monotonic() - kill.at
        if known and known[kill.replica]["healthy"]:
            kill.up_s = kill.up_s or since
            if known[kill.replica]["stream"]["state"] == "complete":
                kill.back_s = since
        await asyncio.sleep(POLL_S)


async def watch(gateway, load, began, end, samples):
    """Samples the gateway's process until `end`. Clients' connections are not its own."""
    while time.monotonic() < end:
        sample = gateway.sample()
        sample["fds"] -= load.in_flight()
        samples.append({"s": round(time.monotonic() - began, 2), **sample})
        if len(samples) % TOLD_EVERY == 0:
            whole = sum(record.outcome == "complete" for record in load.records)
            counts = f"{len(load.records):,} requests, {whole:,} of them complete"
            print(f"{samples[-1]['s']:.0f} s: {counts}; {sample}", file=sys.stderr)
        await asyncio.sleep(SAMPLE_S)


async def settle(replicas, gateway):
    """Differences between the gateway's index and the replicas, once they had time to agree."""
    end = time.monotonic() + SETTLE_S
    while True:
        own = [await get_json(replica.port, "/debug/index") for replica in replicas]
        known = (await get_json(gateway.port, "/debug/index"))["replicas"]
        differences = []
        for index, (mine, theirs) in enumerate(zip(known, own, strict=True)):
            held = theirs["replicas"][0]["blocks"]
            if mine["blocks"] != held or mine["doubtful_blocks"]:
                doubtful = mine["doubtful_blocks"]
                text = f"index {mine['blocks']}, {doubtful} doubtful, held are {held}"
                differences.append(f"replica {index}: {text}")
            if mine["requests_in_flight"]:
                text = f"{mine['requests_in_flight']} requests in flight without load"
                differences.append(f"replica {index}: {text}")
        if not differences or time.monotonic() > end:
            return differences
        await asyncio.sleep(POLL_S)


async def calibrated(port, args):
    """Requests per second that the fleet can take, warm."""
    load, began = Load(port, args.seed + 1, args.limit), time.monotonic()
    workers = args.replicas * MAX_SEQUENCES * 5 // 4
    end = began + CALIBRATION_S
    await asyncio.gather(*(load.closed_loop(end) for _ in range(workers)))
    done = sum(began + WARM_UP_S <= record.end < end for record in load.records)
    return done / (CALIBRATION_S - WARM_UP_S)


async def soak(args, replicas, gateway):
    """Everything from the first start to the figures."""
    for server in replicas:
        server.start()
    for server in replicas:
        await server.until_ready()
    gateway.start()
    await gateway.until_ready()
    capacity = None if args.rate else await calibrated(gateway.port, args)
    rate = args.rate or capacity * args.load
    load, kills, samples = Load(gateway.port, args.seed, args.limit), [], []
    began = time.monotonic()
    end = began + args.minutes * 60
    spent = (gateway.cpu_s(), sum(it.cpu_s() for it in replicas), time.process_time())
    before = metrics(await get(gateway.port, "/metrics"))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch(gateway, load, began, end, samples))
        tasks.create_task(kill_in_turn(args, replicas, gateway, end, kills))
        tasks.create_task(load.open_loop(rate, end))
    took = time.monotonic() - began
    now = (gateway.cpu_s(), sum(it.cpu_s() for it in replicas), time.process_time())
    after = metrics(await get(gateway.port, "/metrics"))
    counters = {name: value - before.get(name, 0.0) for name, value in after.items()}
    result = summary(load, kills, samples, began, counters)
    result["cpu"] = [(b - a) / took for a, b in zip(spent, now, strict=True)]
    result["rate"] = rate
    result["capacity"] = "not measured" if capacity is None else f"{capacity:.1f}/s"
    result["index_differences"] = await settle(replicas, gateway)
    result["verdicts"] = verdicts(result)
    return result


async def run(args):
    """Whether all held."""
    work = args.work
    work.mkdir(parents=True, exist_ok=True)
    for log in work.glob("*.log"):
        log.unlink()
    replicas, gateway = fleet(args, work)
    task = asyncio.current_task()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        result = await soak(args, replicas, gateway)
    except* Gone as gone:
        raise SystemExit(gone.exceptions[0]) from None
    except* asyncio.CancelledError:
        raise SystemExit("stopped") from None
    finally:
        for server in [gateway, *replicas]:
            server.kill()
    print_table(result)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return all(result["verdicts"].values())


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description="Replicas die under load; nothing else may.")
    add = parser.add_argument
    add("--minutes", type=float, default=20, help="of load and kills (20)")
    add("--load", type=float, default=0.5, help="share of what the fleet can take (0.5)")
    add("--rate", type=float, help="requests per second, instead of measuring and --load")
    add("--strategy", default="precise", help="of the gateway (precise)")
    add("--replicas", type=int, default=4, help="processes (4)")
    add("--kill-every", type=float, default=10, help="seconds between two kills (10)")
    add("--down", type=float, default=0, help="seconds that a killed replica stays down (0)")
    add("--limit", type=float, default=30, help="seconds after which a request has hung (30)")
    add("--seed", type=int, default=1, help="of arrivals and prompts (1)")
    add("--headstart", default=str(ROOT / "target/release/headstart"), help="the binary")
    # Below the ephemeral ports: else an outgoing connection may take a dead replica's.
    add("--base-port", type=int, default=18400, help="first of some 110 ports (18400)")
    add("--work", type=pathlib.Path, default=ROOT / "target/soak", help="folder for logs")
    add("--json", type=pathlib.Path, help="file for all figures")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(run(arguments())) else 1)
