#!/usr/bin/env python3
"""Measures how a Rust tree reads: sizes, comments and names.

    python tools/readability/measure.py [FOLDER]...      # default: this tree
    python tools/readability/measure.py --names          # the names that count as participles or twice
    python tools/readability/measure.py --crates         # a row per crate

Production code is every `.rs` file outside of tests, benches, examples and fuzz targets, without
items behind `#[cfg(test)]`. Of this tree, the crates that no package contains are a row of their own. docs/architecture.md has the figures of this tree and of others.
"""

import argparse
import re
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Simulated worlds for tests, and studies: no installed program has them.
NOT_SHIPPED = ("dst", "lab")
LEFT_OUT = {"tests", "benches", "examples", "fuzz", "target", ".git"}

DECLARES = re.compile(
    r"^(?:\s*(?:pub(?:\([^)]*\))?\s+)?(?:unsafe\s+)?(?:struct|enum|trait|union)"
    r"|(?:pub(?:\([^)]*\))?\s+)?type)\s+(\w+)"
)
FUNCTION = re.compile(
    r"^(\s*)(?:pub(?:\([^)]*\))?\s+)?(?:default\s+)?(?:const\s+)?(?:async\s+)?(?:unsafe\s+)?"
    r"(?:extern\s+\"C\"\s+)?fn\s+(\w+)"
)
OPENINGS = re.compile(r"^(What|Who|Whose|Whom|Where|How)\b")

# As in xtask/src/tidy/participle_type.rs.
IRREGULAR = set(
    "About Apart Begun Beside Beyond Bound Brought Built Drawn Found Gone Grown Held Kept Known "
    "Learnt Left Lost Made Meant Met Nothing Read Seldom Sent Set Shown Spent Split Told What "
    "Whose Won".split()
)
NOUNS = set("Bed Embed Feed Need Seed Shed Speed Token Unbounded".split())


def is_participle(name):
    """Whether a type's name is one word, and no noun."""
    if any(letter.isupper() for letter in name[1:]) or name in NOUNS:
        return False
    return name in IRREGULAR or name.endswith(("ed", "en"))


@dataclass
class Measures:
    code: int = 0
    docs: int = 0
    comments: int = 0
    tests: int = 0
    openings: int = 0
    paragraphs: int = 0
    files: list = field(default_factory=list)
    functions: list = field(default_factory=list)
    types: Counter = field(default_factory=Counter)


# Strings, comments and characters: what is in them are no braces of the code.
LITERALS = re.compile(
    r'r(?P<fence>#*)".*?"(?P=fence)|"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/|\'(?:\\.[^\']*|[^\'\\])\'', re.DOTALL
)
TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\n(?:#\[.*\]\n)*\s*(?:pub(?:\([a-z]+\))? )?mod (\w+);")


def without_literals(lines):
    """The same lines with strings, comments and characters blanked."""

    def blank(match):
        return "".join("\n" if character == "\n" else " " for character in match.group())

    return LITERALS.sub(blank, "\n".join(lines)).split("\n")


def production(lines):
    """The lines outside of items behind `#[cfg(test)]`, and the number of the others."""
    kept, skipped, number = [], 0, 0
    plain = without_literals(lines)
    while number < len(lines):
        if not lines[number].strip().startswith("#[cfg(test)]"):
            kept.append(lines[number])
            number += 1
            continue
        depth, start = 0, number
        while number < len(lines):
            line = plain[number]
            depth += line.count("{") - line.count("}")
            number += 1
            ends = line.rstrip().endswith((";", "}"))
            if depth <= 0 and ends and not line.strip().startswith("#["):
                break
        skipped += number - start
    return kept, skipped


def test_modules(folder):
    """Files of modules that are declared behind `#[cfg(test)]`, and their folders."""
    for path in folder.rglob("*.rs"):
        text = path.read_text(encoding="utf-8", errors="replace")
        for name in TEST_MODULE.findall(text):
            own = path.parent if path.stem in ("lib", "main", "mod") else path.with_suffix("")
            yield own / name


def function_lengths(lines):
    """Lines of each function, from its name to its closing brace."""
    for number, line in enumerate(lines):
        match = FUNCTION.match(line)
        if not match:
            continue
        end = match.group(1) + "}"
        for last in range(number, len(lines)):
            text = lines[last].rstrip()
            if text == end or (last == number and text.endswith(("}", ";"))):
                yield last - number + 1
                break
            # A declaration without a body, over several lines.
            if text.startswith(match.group(1) + ")") and text.endswith(";"):
                break


def measure_file(path, is_test, measures):
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if is_test:
        measures.tests += sum(1 for line in lines if line.strip())
        return
    kept, skipped = production(lines)
    measures.tests += skipped
    code, was_doc = 0, False
    for line in kept:
        text = line.strip()
        if text.startswith(("///", "//!")):
            measures.docs += 1
            words = text[3:].strip()
            if words and not was_doc:
                measures.paragraphs += 1
                measures.openings += bool(OPENINGS.match(words))
            was_doc = True
            continue
        was_doc = False
        if text.startswith("//"):
            measures.comments += 1
        elif text:
            code += 1
            measures.comments += " // " in text and '"' not in text
        if match := DECLARES.match(line):
            measures.types[match.group(1)] += 1
    measures.code += code
    measures.files.append(code)
    measures.functions.extend(function_lengths(kept))


def rust_files(folder):
    tests = set(test_modules(folder))
    for path in sorted(folder.rglob("*.rs")):
        parts = path.relative_to(folder).parts
        if any(part in ("target", ".git") for part in parts):
            continue
        is_test = any(part in LEFT_OUT for part in parts) or path.stem in ("tests", "testing")
        is_test |= any(place in tests for place in (path.with_suffix(""), *path.parents))
        yield path, is_test


def measure_all(folders):
    measures = Measures()
    for folder in folders:
        for path, is_test in rust_files(folder):
            measure_file(path, is_test, measures)
    return measures


def measure(folder):
    return measure_all([folder])


def quantile(values, share):
    values = sorted(values) or [0]
    return values[min(int(share * len(values)), len(values) - 1)]


def row(name, measures):
    code, types = max(measures.code, 1), measures.types
    declared = sum(types.values()) or 1
    participles = sum(count for type_name, count in types.items() if is_participle(type_name))

    def spread(values):
        return " / ".join(str(quantile(values, share)) for share in (0.5, 0.9, 1.0))
    return [
        name,
        f"{measures.code:,}",
        f"{100 * measures.docs / code:.0f} %",
        f"{100 * measures.comments / code:.1f} %",
        f"{100 * measures.tests / code:.0f} %",
        spread(measures.files),
        spread(measures.functions),
        f"{declared:,}",
        f"{100 * participles / declared:.1f} %",
        str(sum(count > 1 for count in types.values())),
        f"{100 * measures.openings / max(measures.paragraphs, 1):.1f} %",
    ]


HEAD = [
    "tree",
    "code lines",
    "doc comments",
    "other comments",
    "tests",
    "file p50 / p90 / max",
    "function p50 / p90 / max",
    "types",
    "participle types",
    "names declared twice",
    "relative openings",
]


def print_table(rows):
    widths = [max(len(one[column]) for one in [HEAD, *rows]) for column in range(len(HEAD))]
    for one in [HEAD, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(text.ljust(width) for text, width in zip(one, widths)) + " |")


def print_names(measures):
    print("participles:", *sorted(name for name in measures.types if is_participle(name)))
    twice = [(count, name) for name, count in measures.types.items() if count > 1]
    print("twice:", *(f"{name} {count}" for count, name in sorted(twice, reverse=True)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="trees to measure")
    parser.add_argument("--names", action="store_true", help="list the names that count")
    parser.add_argument("--crates", action="store_true", help="a row per crate of this tree")
    options = parser.parse_args()
    folders = options.folders or [ROOT / "crates"]
    if options.crates:
        folders = sorted(path for path in (ROOT / "crates").iterdir() if path.is_dir())
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    if missing:
        sys.exit(f"not a folder: {', '.join(missing)}")
    if options.folders or options.crates:
        found = [(folder.name, measure(folder)) for folder in folders]
    else:
        shipped = [path for path in sorted((ROOT / "crates").iterdir()) if path.name not in NOT_SHIPPED]
        found = [
            ("shipped", measure_all(shipped)),
            (" and ".join(NOT_SHIPPED), measure_all(ROOT / "crates" / name for name in NOT_SHIPPED)),
        ]
    print_table([row(name, measures) for name, measures in found])
    if options.names:
        for _, measures in found:
            print_names(measures)


if __name__ == "__main__":
    main()
