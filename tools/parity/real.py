"""Collects the chat templates that Python packages ship.

    pip download --no-deps --dest WHEELS axolotl trl
    python tools/parity/real.py FOLDER WHEEL ...

Writes each template once, as `PACKAGE-NAME.jinja`. Left out are variants for training and
templates that print the date, whose prompts change from day to day.
"""

import argparse
import zipfile
from pathlib import Path


def templates_of(wheel):
    """Name and text of each template in a wheel."""
    package = wheel.name.partition("-")[0]
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            path = Path(name)
            if path.suffix == ".jinja" and "chat_templates" in path.parts:
                yield f"{package}-{path.stem}", archive.read(name).decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("wheels", nargs="+", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    seen = {}
    for wheel in options.wheels:
        for name, text in templates_of(wheel):
            if name.endswith("_training") or "strftime_now" in text:
                print(f"left out: {name}")
            elif text in seen:
                print(f"left out: {name} is {seen[text]}")
            else:
                seen[text] = name
                (options.folder / f"{name}.jinja").write_text(text)
    print(f"{len(seen)} templates")


if __name__ == "__main__":
    main()
