"""HTTP with JSON, from the standard library."""

import json
import urllib.error
import urllib.request

TIMEOUT_S = 120


class Refused(Exception):
    """No answer, or an error for an answer."""


def call(url, body=None, timeout_s=TIMEOUT_S):
    """Headers (names in lower case) and text of the answer; POST if there is a body."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        raise Refused(f"{url}: {error.code} {error.read()[:300]}") from error
    except OSError as error:
        raise Refused(f"{url}: {error}") from error


def get(url):
    """The JSON at `url`."""
    return json.loads(call(url)[1])


def post(url, body):
    """The JSON that `url` answers."""
    return json.loads(call(url, body)[1])


def is_up(url):
    """Whether somebody answers there with success."""
    try:
        call(url, timeout_s=5)
        return True
    except Refused:
        return False
