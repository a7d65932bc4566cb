"""Captures what the engine makes of the chat requests, and compares captures.

    python tools/parity/capture.py chat --server URL --out FILE
    python tools/parity/capture.py completions --server URL --out FILE
    python tools/parity/capture.py check FILE OTHER
    python tools/parity/capture.py difference BASE OTHER --out FILE
    python tools/parity/capture.py served --server URL
    python tools/parity/capture.py real --server URL FOLDER

README.md says how to start the server.
"""

import argparse
import concurrent.futures
import hashlib
import json
import struct
import urllib.error
import urllib.request
import zlib
from pathlib import Path

from tokenizers import Tokenizer

from shapes import write_lines

REPOSITORY = Path(__file__).resolve().parents[2]
TOKENIZER = REPOSITORY / "data" / "toy-tokenizer" / "tokenizer.json"
GOLDENS = REPOSITORY / "crates" / "prompt" / "tests" / "parity"
ROUTES = {
    "chat": "/v1/chat/completions/render",
    "messages": "/v1/messages/render",
    "responses": "/v1/responses/render",
    "completions": "/v1/completions/render",
}

# One cell in this many carries its token ids in full; all others a hash of them.
FULL_EVERY = 80
# The server works on one request at a time; two keep it from waiting for us.
CONNECTIONS = 2
PATIENCE_S = 60
# One template per content format is enough where the engine also computes.
SERVED_TEMPLATES = ("dump", "dump-parts")

tokenizer = Tokenizer.from_file(str(TOKENIZER))


def post(server, path, body):
    """The status and the JSON that the server answers."""
    data = json.dumps({"model": "toy", **body}).encode()
    request = urllib.request.Request(server + path, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def hash_ids(ids):
    """The first 16 digits of the SHA-256 of the ids as little-endian 32-bit numbers."""
    return hashlib.sha256(struct.pack(f"<{len(ids)}I", *ids)).hexdigest()[:16]


def cell_of(name, ids, counts):
    """A golden cell of these token ids."""
    text = tokenizer.decode(ids, skip_special_tokens=False)
    counts["cells"] += 1
    cell = {"text": text, "hash": hash_ids(ids)}
    if tokenizer.encode(text, add_special_tokens=False).ids != ids:
        counts["not encoded again to the same ids"] += 1
        cell["ids"] = ids
    elif zlib.crc32(name.encode()) % FULL_EVERY == 0:
        cell["ids"] = ids
    return cell


def new_counts():
    """What a capture counts."""
    return {"cells": 0, "refused": 0, "not encoded again to the same ids": 0}


def cell(name, status, answer, counts):
    """The golden cell of an answer: one prompt, several prompts, or a refusal."""
    if status != 200:
        counts["refused"] += 1
        return {"status": status}
    if isinstance(answer, list):
        return {"prompts": [cell_of(name, one["token_ids"], counts) for one in answer]}
    return cell_of(name, answer["token_ids"], counts)


def read_templates(folder):
    """Templates by name."""
    return {path.stem: path.read_text() for path in sorted(folder.glob("*.jinja"))}


def fold(cells):
    """Writes a shape that every template refuses with one status as one cell, `SHAPE/*`."""
    shapes = {}
    for key, value in cells.items():
        shapes.setdefault(key.rpartition("/")[0], {})[key] = value
    folded = {}
    for shape, found in shapes.items():
        first = next(iter(found.values()))
        if shape and "status" in first and all(value == first for value in found.values()):
            folded[f"{shape}/*"] = first
        else:
            folded.update(found)
    return dict(sorted(folded.items()))


def share(cells):
    """Writes a cell that equals an earlier shape's with the same template as that shape's name."""
    seen, shared = {}, {}
    for key, value in cells.items():
        shape, _, template = key.rpartition("/")
        first = seen.setdefault((template, json.dumps(bare(value))), shape)
        keep = first == shape or "ids" in value or "status" in value
        shared[key] = value if keep else {"as": first}
    return shared


def unshare(cells):
    """Undoes `share`, and `fold` is left: a reader looks for `SHAPE/*` too."""
    whole = {}
    for key, value in cells.items():
        name = f"{value['as']}/{key.rpartition('/')[2]}" if "as" in value else key
        whole[key] = cells[name]
    return whole


def capture_chat(server, templates, requests):
    """The cells of every shape with every template."""
    counts = new_counts()

    def one(job):
        shape, template = job
        body = {**requests[shape], "chat_template": templates[template]}
        return f"{shape}/{template}", *post(server, ROUTES["chat"], body)

    jobs = [(shape, template) for template in templates for shape in requests]
    with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
        cells = {
            name: cell(name, status, answer, counts)
            for name, status, answer in pool.map(one, jobs)
        }
    print(counts)
    return cells


def capture_completions(server, requests):
    """The cells of the plain prompts."""
    counts = new_counts()
    cells = {
        name: cell(name, *post(server, ROUTES["completions"], request), counts)
        for name, request in requests.items()
    }
    print(counts)
    return cells


def read(path):
    """A file of cells."""
    return json.loads(Path(path).read_text())


def read_cells(path):
    """A file of cells, each written out."""
    return unshare(read(path))


def bare(cell):
    """A cell without the ids that only some carry."""
    return {k: v for k, v in cell.items() if k != "ids"}


def differences(base, other):
    """The cells of `other` that are not in `base` or not the same there."""
    return {k: v for k, v in other.items() if k not in base or bare(base[k]) != bare(v)}


def check(path, other_path):
    """Prints where two captures differ; the exit code says whether they do."""
    base, other = read_cells(path), read_cells(other_path)
    names = sorted({*differences(base, other), *differences(other, base)})
    for name in names:
        print(name)
        print("  ", json.dumps(base.get(name)))
        print("  ", json.dumps(other.get(name)))
    print(f"{len(names)} of {len({*base, *other})} cells differ")
    return 1 if names else 0


def served(server):
    """Compares the goldens with what a serving engine says it prefilled; the exit code tells.

    The engine needs a model that it can run, with any weights.
    """
    templates = read_templates(GOLDENS / "templates")
    cells = read_cells(GOLDENS / "vllm-0.32.json")
    compared, differing = 0, []
    for shape, request in read(GOLDENS / "shapes.json").items():
        for template in SERVED_TEMPLATES:
            golden = cells.get(f"{shape}/{template}", cells.get(f"{shape}/*"))
            body = {**request, "chat_template": templates[template], "stream": False}
            body |= {"stream_options": None, "max_tokens": 1, "return_token_ids": True}
            status, answer = post(server, "/v1/chat/completions", body)
            found = status if status != 200 else hash_ids(answer["prompt_token_ids"])
            compared += 1
            if found != golden.get("status", golden.get("hash")):
                differing.append(f"{shape}/{template}: {found}, golden {json.dumps(golden)}")
    print("\n".join(differing))
    print(f"{len(differing)} of {compared} cells differ")
    return 1 if differing else 0


def real_table(server, folder):
    """Prints for each template of a folder how many shapes the engine takes and refuses."""
    templates = read_templates(folder)
    cells = capture_chat(server, templates, read(GOLDENS / "shapes.json"))
    print(f"{'template':40} {'rendered':>8} {'refused':>8}")
    for template in templates:
        mine = [v for k, v in cells.items() if k.endswith("/" + template)]
        refused = sum("status" in v for v in mine)
        print(f"{template:40} {len(mine) - refused:8} {refused:8}")
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("chat", "completions", "served", "real"):
        command = commands.add_parser(name)
        command.add_argument("--server", default="http://127.0.0.1:8000")
        command.add_argument("--out", type=Path)
        if name == "real":
            command.add_argument("folder", type=Path)
    for name in ("check", "difference"):
        command = commands.add_parser(name)
        command.add_argument("base", type=Path)
        command.add_argument("other", type=Path)
        if name == "difference":
            command.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "check":
        raise SystemExit(check(options.base, options.other))
    if options.command == "served":
        raise SystemExit(served(options.server))
    if options.command == "chat":
        templates = read_templates(GOLDENS / "templates")
        cells = share(fold(capture_chat(options.server, templates, read(GOLDENS / "shapes.json"))))
    elif options.command == "completions":
        cells = capture_completions(options.server, read(GOLDENS / "completions-shapes.json"))
    elif options.command == "real":
        cells = real_table(options.server, options.folder)
    else:
        cells = differences(read_cells(options.base), read_cells(options.other))
    if options.out:
        write_lines(options.out, cells)


if __name__ == "__main__":
    main()
