#!/usr/bin/env python3
"""Recorded conversations as training data: Headstart's JSON lines, with honest labels only.

    python3 bench/lpc/prepare.py FOLDER [--data ../shared/data]

Writes into FOLDER, which must not be in the repository (the texts are not ours to publish):

    sharegpt-plain.jsonl      label: a user message follows in the record, as in the literature
    sharegpt-censored.jsonl   the same; records cut by their length do not say that they ended
    arena.jsonl               Chatbot Arena, WildChat and OpenAssistant; answers as lengths
    codechat.jsonl            coding conversations of which every prompt is there; no answers.
                              Short ones are too frequent: the table shows by how much

and prints what they hold beside what the sources' descriptions say of the whole source. The
samples at hand are smaller, so their shares differ by chance. What keeps a label from being honest
travels with the record: `truncated`, `labels_from`, `first_turn`, `group` (the fields are described
in crates/trace/src/format/conversation.rs). Sources that are absent are skipped.
"""

import argparse
import importlib
import json
import pathlib
import shutil
import subprocess
import sys

# The file that ShareGPT comes from cuts records at about 2,048 tokens; from here on, a record that
# ends may have been cut. Tokens are estimated, as the tokenizer that cut is not at hand.
CUT_TOKENS = 1900
CHARS_PER_TOKEN = 4.0
# Turns in the table.
SHOWN = 8
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def main():
    options = parse()
    folder = options.folder.resolve()
    if folder == REPOSITORY or REPOSITORY in folder.parents:
        sys.exit(f"{folder} is in the repository; name a folder outside of it")
    folder.mkdir(parents=True, exist_ok=True)
    for corpus in CORPORA:
        source = options.data / corpus["file"]
        if not source.exists():
            print(f"\nSKIPPED: {corpus['name']}: {source} is absent")
            continue
        records = list(corpus["convert"](read(source)))
        path = folder / f"{corpus['name']}.jsonl"
        with path.open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        report(corpus, path, records)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path, help="where to write, outside the repository")
    parser.add_argument("--data", type=pathlib.Path, default=REPOSITORY / "../shared/data")
    return parser.parse_args()


def read(path):
    """The records of a zstd file of JSON lines."""
    return [json.loads(line) for line in unpack(path).decode("utf-8").splitlines() if line.strip()]


def unpack(path):
    tool = shutil.which("zstd")
    if tool:
        return subprocess.run([tool, "-dc", str(path)], check=True, capture_output=True).stdout
    for name in ("compression.zstd", "zstandard"):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        with module.open(path, "rb") as file:
            return file.read()
    sys.exit("cannot unpack zstd: install the command `zstd` (apt-get install zstd, brew install "
             "zstd), use Python 3.14, or install the Python package zstandard")


def sharegpt(records, is_censored):
    last_chunks = {}
    for record in records:
        base, start = record["base_id"], record["chunk_start"]
        last_chunks[base] = max(start, last_chunks.get(base, 0))
    for record in records:
        turns = [{"role": turn["role"], "text": turn["text"]} for turn in record["turns"]]
        chars = sum(len(turn["text"]) for turn in turns)
        converted = {"id": record["id"], "group": record["base_id"], "turns": turns}
        if record["chunk_start"] > 0:
            # Its number counts messages of the original, some of which were cleaned away.
            converted["first_turn"] = None
        is_followed = record["chunk_start"] < last_chunks[record["base_id"]]
        if is_censored and (is_followed or tokens(turns, chars) > CUT_TOKENS):
            converted["truncated"] = True
        yield converted


def tokens(turns, chars):
    """About how many tokens a record has: text beyond ASCII has more of them per character."""
    beyond = sum(not sign.isascii() for turn in turns for sign in turn["text"])
    return (chars - beyond) / CHARS_PER_TOKEN + beyond


def arena(records):
    for record in records:
        keys = ("role", "text", "chars")
        turns = [{key: turn[key] for key in keys if key in turn} for turn in record["turns"]]
        yield {
            "id": record["id"],
            "group": record["prompt_group"],
            # Only conversations of two exchanges or more were kept.
            "labels_from": 2,
            "source": record["source"],
            "turns": turns,
        }


def codechat(records):
    for record in records:
        count = record["total_user_turns"]
        prompts = record["prompts"]
        if set(prompts) != {str(turn) for turn in range(1, count + 1)}:
            continue
        turns = [{"role": "user", "text": prompts[str(turn)]} for turn in range(1, count + 1)]
        # Only multi-turn conversations are in the slice. That every turn was drawn into it favours
        # short ones, so later turns end more often here than in the whole source.
        yield {"id": record["conversation_id"], "labels_from": 2, "turns": turns}


def labels(record):
    """Per user turn whether another follows; None where the record cannot say so."""
    count = sum(turn["role"] == "user" for turn in record["turns"])
    said = [turn < count for turn in range(1, count + 1)]
    if said and record.get("truncated"):
        said[-1] = None
    return [None if turn < record.get("labels_from", 1) else label
            for turn, label in enumerate(said, 1)]


def report(corpus, path, records):
    all_labels = [labels(record) for record in records]
    known = [label for said in all_labels for label in said if label is not None]
    # Shares by turn need to know which turn it is.
    placed = [said for record, said in zip(records, all_labels)
              if record.get("first_turn", 0) is not None]
    cut = sum(bool(record.get("truncated")) for record in records)
    print(f"\n{path.name}: {len(records)} records, {sum(map(len, all_labels))} user turns, "
          f"{len(known)} labelled, of which {percent(known)} continue"
          + (f"; {cut} records cut" if cut else ""))
    print("| share that continues after turn |" + "".join(f" {k} |" for k in range(1, SHOWN + 1)))
    print("|---|" + "---|" * SHOWN)
    row("here", [[said[k] for said in placed if k < len(said) and said[k] is not None]
                 for k in range(SHOWN)])
    for source, published in corpus["published"].items():
        if source in corpus.get("sources", {}):
            part = [said for record, said in zip(records, all_labels)
                    if record["source"] == corpus["sources"][source]]
            row(f"here, {source}", [[said[k] for said in part if k < len(said)
                                     and said[k] is not None] for k in range(SHOWN)])
        shares = [f" {share:.3f} |" for share in published]
        shares += [" – |"] * (SHOWN - len(published))
        print(f"| its description, {source} |" + "".join(shares[:SHOWN]))


def row(name, per_turn):
    cells = [f" {sum(said) / len(said):.3f} ({len(said)}) |" if said else " – |"
             for said in per_turn]
    print(f"| {name} |" + "".join(cells))


def percent(known):
    return f"{100 * sum(known) / max(len(known), 1):.1f} %"


SHAREGPT = "sharegpt-sample-1k/conversations.jsonl.zst"
# What the READMEs beside the files say of the whole source.
SHAREGPT_SHARES = {"first chunks": [.657, .782, .738, .636, .662, .644, .707, .732]}
CORPORA = [
    {
        "name": "sharegpt-plain",
        "file": SHAREGPT,
        "convert": lambda records: sharegpt(records, is_censored=False),
        "published": SHAREGPT_SHARES,
    },
    {
        "name": "sharegpt-censored",
        "file": SHAREGPT,
        "convert": lambda records: sharegpt(records, is_censored=True),
        "published": SHAREGPT_SHARES,
    },
    {
        "name": "arena",
        "file": "arena-wildchat-multiturn/conversations_user_text.jsonl.zst",
        "convert": arena,
        "sources": {"Chatbot Arena": "chatbot_arena", "WildChat": "wildchat"},
        "published": {
            "Chatbot Arena": [1.0, .556, .380, .435, .515, .510, .528],
            "WildChat": [.988, .600, .682, .714, .724, .740, .758],
        },
    },
    {
        "name": "codechat",
        "file": "codechat-wildchat/user_prompts_subset.jsonl.zst",
        "convert": codechat,
        "published": {"all 82,845 conversations": [.680, .719, .740, .759, .766, .766, .767, .766]},
    },
]

if __name__ == "__main__":
    main()
