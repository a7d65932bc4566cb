"""Checks that schemathesis runs on every answer besides its own, and a tally of all answers."""

import atexit
import json
import os
import threading
from collections import Counter

import schemathesis

# What an answer of the gateway itself, not of an engine, has in `error.type`.
OWN_TYPES = {
    "server_error", "rate_limit_error", "authentication_error", "api_error", "overloaded_error",
    "timeout_error",
}  # fmt: skip

tally = {"statuses": Counter(), "slowest_s": 0.0, "slowest": None, "engine_errors": Counter()}
lock = threading.Lock()


def is_own(response):
    """Whether the server answers for itself: its errors have one shape, those of engines another."""
    try:
        error = json.loads(response.content)["error"]
        return error["type"] in OWN_TYPES and not isinstance(error.get("code"), int)
    except (ValueError, TypeError, KeyError):
        return False


def is_passed_on(case):
    """Whether an engine may have answered: the document leaves the status to it."""
    return "default" in case.operation.definition.raw["responses"]


@schemathesis.check
def documented_server_errors(ctx, response, case):
    """A 5xx is in the document, or it is an engine's own."""
    status, label = response.status_code, case.operation.label
    if status < 500 or str(status) in case.operation.definition.raw["responses"]:
        return
    if is_passed_on(case) and not is_own(response):
        with lock:
            tally["engine_errors"][f"{status} {label}"] += 1
        return
    raise AssertionError(f"{label}: {status} is not in the document")


@schemathesis.check
def counted(ctx, response, case):
    """Fails never: counts answers by status, and finds the slowest."""
    label = case.operation.label
    with lock:
        tally["statuses"][f"{label} {response.status_code}"] += 1
        if response.elapsed > tally["slowest_s"]:
            tally["slowest_s"], tally["slowest"] = response.elapsed, label


def write():
    with open(os.environ["HEADSTART_TALLY"], "w") as file:
        json.dump(tally, file)


if "HEADSTART_TALLY" in os.environ:
    atexit.register(write)
