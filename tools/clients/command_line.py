"""What the clients have in common: their options, a prompt, and how they say that all was well."""

import argparse
import uuid


def options(about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--base-url", required=True, help="such as http://127.0.0.1:8000")
    parser.add_argument("--model", required=True, help="a name from GET /v1/models")
    parser.add_argument("--api-key", default="none", help="the server's key, if it has one")
    given = parser.parse_args()
    given.base_url = given.base_url.rstrip("/").removesuffix("/v1")
    return given


def long_text(words: int = 150) -> str:
    """A text of several cache blocks that no earlier run has sent."""
    return f"{uuid.uuid4()} " + " ".join(f"item {number}" for number in range(words // 2))


def require(condition: bool, what: str) -> None:
    if not condition:
        raise SystemExit(f"FAILED {what}")


def ok(client: str, version: str, what: str) -> None:
    print(f"ok {client} {version}: {what}")
