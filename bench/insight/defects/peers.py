#!/usr/bin/env python3
"""Scores kvlint and prefixlens on the seen half of the logs of generate.py, as score.py does.

    bench/insight/defects/peers.py [--kvlint COMMAND] [--prefixlens COMMAND] [--tokenizer FOLDER]

Each peer gets the logs in the form that it documents:

- kvlint: OpenAI request bodies. Bodies of Anthropic are rewritten, parts of text are joined, tool
  calls, their ids and thinking become text. It refuses images, so those logs are not read.
- prefixlens: token ids. Four bytes of UTF-8 are a token, as in the simulator of generate.py, in its
  order: tools, fields, system, messages.

The peers have other names for causes, so that the rules here are generous:

- The first finding of kvlint is right if CAUSES has the kind for its rule. Rules that name no cause
  do not count as the first where another is there. "any" takes the right rule at any rank.
- prefixlens names blocks with many misses and says whether their content is unique ("a variable
  field"), mixed or shared ("thrashing"). Those with MIN_SHARE of the log's requests are taken as
  findings. Unique content is right for each kind of FIELDS if the block is in the faulty part.
  Shared content is right for evictions.
- A place is right if any finding names the faulty part: tools, system prompt or messages. What
  kvlint calls "prompt" is messages or tools. A quoted value that the defect has is right too.
- "lint" is an error or a warning: `kvlint lint --fail-on medium`. prefixlens has no such command.
- A clean log is quiet without a finding of any severity; "no warning" leaves out low ones.

Logs that a peer cannot read count as missed. Seconds are those of its processes, WORKERS at a time.
A row for headstart is there if its program is.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import score

CAUSES = {
    "dynamic_time": [
        "clock_first_user_message", "clock_minute_system", "clock_seconds_system",
        "clock_tool_description", "countdown_system", "elapsed_time_system", "epoch_value_system",
        "relative_ages_in_history",
    ],
    "dynamic_id": [
        "billing_header_line", "conversation_id_front", "environment_block_front",
        "epoch_value_system", "image_url_signed_anew", "message_ids_regenerated",
        "nonce_delimiter", "pii_pseudonyms_random", "request_uuid_system", "sampling_text_system",
        "token_budget_counter", "tool_call_ids_regenerated", "trace_id_in_tool_schema",
        "turn_counter",
    ],
    "user_in_system": [
        "conversation_id_front", "device_state_front", "environment_block_front",
        "locale_timezone_front", "memory_facts_grow", "user_name_greeting", "user_profile_front",
    ],
    "whitespace_drift": [
        "history_escaped_again", "json_format_alternates", "number_format_in_history",
        "tool_arguments_reserialised", "tool_schema_two_serializers", "unicode_normalisation",
        "whitespace_variants",
    ],
    "key_order": [
        "enum_or_required_order", "json_format_alternates", "json_key_order_context",
        "schema_property_order", "section_order_shuffled", "set_order_shuffled",
        "tool_arguments_reserialised", "tool_order_shuffled", "tool_schema_two_serializers",
    ],
    "volatile_fewshot": ["few_shot_random", "few_shot_shuffled"],
    "short_prefix": ["prefix_below_minimum"],
    "block_straddle": [],
}
"""Kinds that a rule of kvlint may mean."""
NO_CAUSE = {"short_prefix", "block_straddle"}
FIELDS = {
    *CAUSES["dynamic_time"], *CAUSES["dynamic_id"], *CAUSES["user_in_system"],
    "ab_prompt_variants", "enum_with_live_values", "event_log_grows_in_system", "few_shot_random",
    "file_listing_in_system", "history_summary_rewritten", "image_encoded_anew",
    "live_document_front", "live_metrics_system", "live_prices_system", "passages_sorted_by_score",
    "prompt_version_mixed", "query_copied_into_system", "rag_in_system", "random_tip_front",
    "roster_by_load", "router_labels_front", "sliding_recent_items", "task_list_updates",
    "tool_description_counts",
}
"""Kinds whose text varies from request to request, session to session or user to user."""

TOKEN_BYTES, BLOCK_TOKENS = 4, 16
MIN_SHARE = 0.1
"""Least share of a log's requests with a miss at a block, for a finding of prefixlens."""
UNIQUE, SHARED = 0.9, 0.3
"""From here on prefixlens calls content unique, up to here shared."""
TIMEOUT_S = 300
PARTS = {"system", "tools", "messages", "request fields"}


@dataclass
class Finding:
    kinds: set[str]
    """Kinds that it may mean."""
    parts: set[str]
    quotes: list[str] = field(default_factory=list)
    is_warning: bool = True
    names_cause: bool = True


@dataclass
class Outcome:
    findings: list[Finding] | None
    """None if the log was not read."""
    is_refused: bool
    seconds: float
    why: str = ""


class NotRead(Exception):
    """A form of log that the peer does not take."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kvlint", default="kvlint", help="its command [%(default)s]")
    parser.add_argument("--prefixlens", default="prefixlens", help="its command [%(default)s]")
    tokenizer = score.ROOT / "data" / "toy-tokenizer"
    parser.add_argument("--tokenizer", default=tokenizer, help="kvlint's [data/toy-tokenizer]")
    parser.add_argument("--headstart", default=score.ROOT / "target" / "release" / "headstart")
    parser.add_argument("--limit", type=int, help="only so many logs of each sort")
    parser.add_argument("--list", action="store_true", help="a line for each case")
    options = parser.parse_args()
    seen = sorted((score.LOGS / "seen").iterdir())[: options.limit]
    clean = sorted((score.LOGS / "clean").iterdir())[: options.limit]
    peers: dict[str, tuple[list[str], Callable]] = {
        "kvlint": (shlex.split(options.kvlint), run_kvlint),
        "prefixlens": (shlex.split(options.prefixlens), run_prefixlens),
    }
    rows = []
    for name, (command, runner) in peers.items():
        program = shutil.which(command[0])
        if program is None:
            print(f"{name} is not on PATH: pip install {name}")
            continue
        command[0] = program
        cells = row_of_peer(runner, command, options, seen, clean)
        rows.append([name, version(name, program), *cells])
    if shutil.which(options.headstart):
        rows.append(row_of_headstart(options.headstart, seen, clean))
    print_table(rows)


def row_of_peer(
    runner: Callable,
    command: list[str],
    options: argparse.Namespace,
    seen: list[pathlib.Path],
    clean: list[pathlib.Path],
) -> list[str]:
    def outcome(case: pathlib.Path) -> Outcome:
        truth = json.loads((case / "truth.json").read_text()) if case.parent.name == "seen" else {}
        with tempfile.TemporaryDirectory() as work:
            return runner(command, options, case, truth, pathlib.Path(work))

    with ThreadPoolExecutor(score.WORKERS) as pool:
        of_seen, of_clean = list(pool.map(outcome, seen)), list(pool.map(outcome, clean))
    sums: Counter[str] = Counter()
    for case, got in zip(seen, of_seen, strict=True):
        truth = json.loads((case / "truth.json").read_text())
        part = "prompts" if truth["in_prompt"] else "other"
        findings = got.findings or []
        ranked = [one for one in findings if one.names_cause] or findings
        is_first = truth["kind"] in ranked[0].kinds if ranked else False
        sums[part] += 1
        sums[f"{part} first"] += is_first
        if truth["in_prompt"]:
            sums["any"] += any(truth["kind"] in finding.kinds for finding in findings)
            sums["place"] += any(is_at_fault(finding, truth) for finding in findings)
            sums["refused"] += got.is_refused
        sums["not read"] += got.findings is None
        if options.list:
            said = [sorted(finding.parts) + finding.quotes for finding in ranked[:1]]
            print("ok " if is_first else "bad", truth["kind"], "|", got.why or str(said)[:120])
    quiet = sum(got.findings == [] for got in of_clean)
    calm = sum(
        got.findings is not None and not any(finding.is_warning for finding in got.findings)
        for got in of_clean
    )
    unread_clean = sum(got.findings is None for got in of_clean)
    has_lint = runner is run_kvlint
    return [
        f"{sums['prompts first']} of {sums['prompts']}",
        str(sums["any"]),
        str(sums["place"]),
        f"{sums['other first']} of {sums['other']}",
        f"{sums['refused']} of {sums['prompts']}" if has_lint else "none",
        f"{quiet} of {len(clean)}",
        str(calm),
        f"{sums['not read']} + {unread_clean}",
        f"{sum(got.seconds for got in of_seen + of_clean):.0f}",
    ]


def is_at_fault(finding: Finding, truth: dict) -> bool:
    examples = truth["where"]["examples"]
    quoted = any(
        quote in example or (len(example) > 2 and example in quote)
        for quote in finding.quotes
        for example in examples
    )
    return quoted or truth["where"]["part"] in finding.parts


# kvlint


def run_kvlint(
    command: list[str],
    options: argparse.Namespace,
    case: pathlib.Path,
    truth: dict,
    work: pathlib.Path,
) -> Outcome:
    log, out = work / "log.jsonl", work / "report.json"
    try:
        with log.open("w") as lines:
            for number, body in enumerate(bodies(case)):
                converted = {"request_id": f"r{number}", **chat_body(body, has_images=False)}
                lines.write(json.dumps(converted, ensure_ascii=False) + "\n")
    except NotRead as error:
        return Outcome(None, False, 0, str(error))
    done, seconds = timed(
        [*command, "lint", log, "--model", options.tokenizer, "--fail-on", "medium", "--json", out]
    )
    if not out.exists():
        return Outcome(None, False, seconds, (done.stderr or done.stdout).strip()[-200:])
    found = json.loads(out.read_text())["findings"]
    return Outcome([finding_of_kvlint(one) for one in found], done.returncode != 0, seconds)


def finding_of_kvlint(found: dict) -> Finding:
    evidence, rule = found["evidence"], found["rule_id"]
    if "system prompt" in evidence or rule == "volatile_fewshot":
        parts = {"system"}
    elif "tool schema" in evidence:
        parts = {"tools"}
    elif " in prompt " in evidence:
        parts = {"messages", "tools"}
    else:
        parts = set()
    quotes = [quote for quote in re.findall(r"'([^']*)'", evidence) if len(quote) >= 4]
    is_warning = found["severity"] != "low"
    return Finding(set(CAUSES[rule]), parts, quotes, is_warning, rule not in NO_CAUSE)


# prefixlens


def run_prefixlens(
    command: list[str],
    options: argparse.Namespace,
    case: pathlib.Path,
    truth: dict,
    work: pathlib.Path,
) -> Outcome:
    log = work / "log.jsonl"
    prompts = [list(pieces(body)) for body in bodies(case)]
    with log.open("w") as lines:
        for number, prompt in enumerate(prompts):
            row = {"request_id": f"r{number}", "route": "chat", "token_ids": tokens(prompt)}
            lines.write(json.dumps(row) + "\n")
    done, seconds = timed([*command, "analyze", log, "--json"])
    if done.returncode != 0:
        return Outcome(None, False, seconds, done.stderr.strip()[-200:])
    findings = []
    for place in json.loads(done.stdout)["by_tag_divergence"]["route"]["chat"]:
        if place["miss_count"] < MIN_SHARE * len(prompts):
            continue
        parts = parts_at(prompts, place["block_position"])
        kinds = set()
        if place["unique_content_ratio"] >= UNIQUE and truth:
            kinds = FIELDS if truth["where"]["part"] in parts else set()
        elif place["unique_content_ratio"] <= SHARED:
            kinds = {"cache_capacity_evictions"}
        findings.append(Finding(kinds, parts))
    return Outcome(findings, False, seconds)


def pieces(body: dict) -> Iterator[tuple[str, bytes]]:
    """A prompt's text by part, in the order of generate.py's simulator."""
    chat = chat_body(body, has_images=True)
    fields = {name: body[name] for name in ("response_format", "tool_choice", "thinking")
              if name in body}
    yield "tools", json.dumps(chat.get("tools", []), ensure_ascii=False).encode()
    yield "request fields", json.dumps(fields, ensure_ascii=False).encode()
    part = "system"
    for message in chat["messages"]:
        # A system message after others is one of the messages.
        part = "system" if part == "system" and message["role"] == "system" else "messages"
        yield part, f"<{message['role']}>\n{message['content']}\n".encode()


def tokens(prompt: list[tuple[str, bytes]]) -> list[int]:
    text = b"".join(piece for _, piece in prompt)
    return [int.from_bytes(text[at : at + TOKEN_BYTES]) for at in range(0, len(text), TOKEN_BYTES)]


def parts_at(prompts: list[list[tuple[str, bytes]]], block: int) -> set[str]:
    """Parts that the block touches in at least half of the prompts that reach it."""
    start = block * BLOCK_TOKENS * TOKEN_BYTES
    end = start + BLOCK_TOKENS * TOKEN_BYTES
    counts: Counter[str] = Counter()
    reached = 0
    for prompt in prompts:
        at, touched = 0, set()
        for part, piece in prompt:
            if at < end and at + len(piece) > start:
                touched.add(part)
            at += len(piece)
        counts.update(touched)
        reached += bool(touched)
    return {part for part in PARTS if counts[part] * 2 >= max(1, reached)}


# Logs


def bodies(case: pathlib.Path) -> Iterator[dict]:
    """The request bodies of a log."""
    with (case / "log.jsonl").open() as lines:
        for line in lines:
            row = json.loads(line)
            body = row.get("body") or row["proxy_server_request"]
            if isinstance(body, str):
                body = json.loads(body)
            yield body or {"messages": row["messages"], "model": row["model"]}


def chat_body(body: dict, has_images: bool) -> dict:
    """An OpenAI body whose messages have text only."""
    messages = []
    if body.get("system"):
        messages.append(text_message("system", body["system"], has_images))
    for message in body["messages"]:
        messages += chat_messages(message, has_images)
    chat = {"model": body.get("model"), "messages": messages}
    if body.get("tools"):
        chat["tools"] = [openai_tool(tool) for tool in body["tools"]]
    return chat


def openai_tool(tool: dict) -> dict:
    if "function" in tool:
        return tool
    names = {"input_schema": "parameters"}
    function = {names.get(name, name): value for name, value in tool.items()
                if name != "cache_control"}
    return {"type": "function", "function": function}


def chat_messages(message: dict, has_images: bool) -> Iterator[dict]:
    role = "system" if message["role"] == "developer" else message["role"]
    content = message.get("content") or ""
    # Each result of a tool in a message of Anthropic is a message of its own with OpenAI.
    if isinstance(content, list):
        for result in content:
            if result["type"] == "tool_result":
                text = text_message("tool", result["content"], has_images)["content"]
                yield {"role": "tool", "content": f"{result['tool_use_id']}: {text}"}
        content = [part for part in content if part["type"] != "tool_result"]
        if not content:
            return
    text = text_message(role, content, has_images)["content"]
    if message.get("reasoning_content"):
        text = f"<think>\n{message['reasoning_content']}\n</think>\n{text}"
    if message.get("tool_call_id"):
        text = f"{message['tool_call_id']}: {text}"
    for call in message.get("tool_calls") or []:
        text += "\n<tool_call>\n" + json.dumps(call, ensure_ascii=False) + "\n</tool_call>"
    yield {"role": role, "content": text}


def text_message(role: str, content: str | list, has_images: bool) -> dict:
    if isinstance(content, str):
        return {"role": role, "content": content}
    texts = []
    for part in content:
        if part["type"] == "text":
            texts.append(part["text"])
        elif part["type"] == "thinking":
            texts.append(f"<think>\n{part['thinking']}\n</think>")
        elif part["type"] == "tool_use":
            texts.append(f"<tool_call>\n{json.dumps(part, ensure_ascii=False)}\n</tool_call>")
        elif has_images:
            texts.append(json.dumps(part))
        else:
            raise NotRead(f"a part of type {part['type']}")
    return {"role": role, "content": "\n".join(texts)}


# Programs


def timed(command: list[object]) -> tuple[subprocess.CompletedProcess[str], float]:
    started = time.monotonic()
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S)
    return done, time.monotonic() - started


def version(name: str, program: str) -> str:
    """That of a package, by the Python that its program names in its first line."""
    first = pathlib.Path(program).read_text(errors="replace").splitlines()[0]
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    done, _ = timed([*shlex.split(first.removeprefix("#!")), "-c", code])
    return done.stdout.strip() or "?"


def row_of_headstart(
    program: pathlib.Path, seen: list[pathlib.Path], clean: list[pathlib.Path]
) -> list[str]:
    started = time.monotonic()
    with ThreadPoolExecutor(score.WORKERS) as pool:
        scored = list(pool.map(lambda case: score.score(program, case), seen))
        noisy = sum(pool.map(lambda case: score.has_finding(program, case), clean))
    seconds = (time.monotonic() - started) * score.WORKERS
    in_prompt = [one for one in scored if one[0]["in_prompt"]]
    other = [one for one in scored if not one[0]["in_prompt"]]
    done, _ = timed([program, "--version"])
    return [
        "headstart",
        done.stdout.split()[1],
        f"{sum(is_right for _, is_right, _, _ in in_prompt)} of {len(in_prompt)}",
        "",
        "",
        f"{sum(is_right for _, is_right, _, _ in other)} of {len(other)}",
        f"{sum(is_refused for _, _, is_refused, _ in in_prompt)} of {len(in_prompt)}",
        f"{len(clean) - noisy} of {len(clean)}",
        "",
        "0 + 0",
        f"{seconds:.0f}",
    ]


def print_table(rows: list[list[str]]) -> None:
    head = ["tool", "version", "right first", "any", "place", "other first", "lint fails",
            "clean quiet", "no warning", "not read", "seconds"]
    widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")


if __name__ == "__main__":
    main()
