"""Two vLLM servers behind a Headstart gateway: is its index what they hold, whatever happens?

Seeded chats go through the gateway while engines and gateway are killed and event streams are cut,
thinned and shuffled. Behind each such phase, once the streams are complete again, the index is
compared with the engines' own view (see judge.py). Prints a Markdown table, and fails where the
index was wrong.

    python tools/interop/vllm_index.py --model FOLDER --other-template FOLDER [--seed N]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import msgpack

from table import HEAD, row, together
from world import World

PHASES = {
    "steady": World.steady,
    "4 at once": World.together,
    "engine killed": World.engine_killed,
    "gateway killed": World.gateway_killed,
    "messages dropped": World.gap,
    "streams cut": World.cut,
    "doubled and late": World.noise,
    "cache cleared": World.cleared,
    "block held twice": World.twins,
}


def capture(world, path):
    """All messages of the engines' last lives, one a line, in hexadecimal."""
    with open(path, "w") as file:
        for engine in world.engines:
            for payload in engine.mirror.payloads:
                events = [event["type"] for event in msgpack.unpackb(payload)[1]]
                file.write(f"{engine.name} {','.join(events)} {payload.hex()}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headstart", default="target/release/headstart")
    parser.add_argument("--model", required=True, help="folder made by model_folder.py")
    parser.add_argument("--other-template", help="folder with another chat template")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=20, help="chats of half a phase")
    parser.add_argument("--probes", type=int, default=6, help="per engine and phase")
    parser.add_argument("--blocks", type=int, default=128, help="of 32 tokens, per engine")
    parser.add_argument("--phases", default=",".join(PHASES), help="some of them")
    parser.add_argument(
        "--no-replay",
        action="store_true",
        help="do not tell the gateway of the replay sockets; the index must still hold no block "
        "that an engine does not",
    )
    parser.add_argument("--logs", type=Path, help="folder for logs; a temporary one if not given")
    parser.add_argument("--json", type=Path, help="file for one line per request")
    parser.add_argument("--capture", type=Path, help="file for all messages of the engines")
    options = parser.parse_args()
    folder = options.logs or Path(tempfile.mkdtemp(prefix="headstart-interop-"))
    folder.mkdir(parents=True, exist_ok=True)
    world = World(options, folder)
    is_right = True
    try:
        world.start()
        for name in options.phases.split(","):
            world.run(name, lambda phase, act=PHASES[name]: act(world, phase))
        print(HEAD)
        for phase in world.rows:
            print(row(phase))
        print(row(together(world.rows)))
        is_right = all(phase.verdict.is_right for phase in world.rows)
        if options.other_template:
            right, wrong, told = world.drift()
            print(f"\nself-check: {right}; with another template: {wrong}, {len(told)} lines told")
            is_right &= right["equal"] > 0 and not right["differs"]
            is_right &= wrong["differs"] > 0 and not wrong["equal"] and bool(told)
        if options.capture:
            capture(world, options.capture)
        if options.json:
            lines = (json.dumps(request) + "\n" for request in world.requests)
            options.json.write_text("".join(lines))
    finally:
        world.stop()
    print("the index was right" if is_right else f"the index was WRONG; logs in {folder}")
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
