"""Captures `/v1/messages`, `/v1/responses` and chat with templates of the server's own.

    PYTHONPATH=VLLM python tools/parity/routes.py --model FOLDER --out-prefix PREFIX [options]

These routes take no template in the request, so the server must be started with each. This does
in one process what the render server does when it starts: the same application, initialised by
the server's own function with `--chat-template FILE` for one template after the other, asked
over ASGI. Writes `PREFIXmessages.json` and `PREFIXresponses.json`, and with `--chat` also
`PREFIXchat.json` with cells that must equal those of a template sent in the request.
"""

import argparse
import asyncio
from pathlib import Path

import httpx
from vllm import AsyncEngineArgs
from vllm.config import VllmConfig
from vllm.entrypoints.launchers.app import build_app
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.entrypoints.launchers.render.app_state import init_render_app_state
from vllm.utils.argparse_utils import FlexibleArgumentParser

import capture
from shapes import write_lines

# One that shows every key, one per content format, one per kind of tool block, one that takes a
# system message only at the front, one with the effort, one with a tag of transformers.
TEMPLATES = (
    "dump",
    "dump-parts",
    "chatml-tools",
    "xml-calls",
    "raises",
    "effort",
    "developer",
    "generation",
    "thinking",
)


def parse_arguments():
    """The server's options and ours."""
    own = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    own.add_argument("--out-prefix", required=True)
    own.add_argument("--chat", action="store_true")
    mine, rest = own.parse_known_args()
    parser = make_arg_parser(FlexibleArgumentParser())
    args = parser.parse_args(
        [*rest, "--served-model-name", "toy", "--trust-request-chat-template"]
        + ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    )
    validate_parsed_serve_args(args)
    return mine, args


async def cells_of(app, route, requests, template, counts):
    """The cells of one route with the template that the server now has."""
    cells = {}
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
        for shape, request in requests.items():
            body = capture.json.dumps({"model": "toy", **request})
            headers = {"content-type": "application/json"}
            answer = await client.post(capture.ROUTES[route], content=body, headers=headers)
            found = answer.json() if answer.status_code == 200 else None
            name = f"{shape}/{template}"
            cells[name] = capture.cell(name, answer.status_code, found, counts)
    return cells


async def run(mine, args):
    """Captures every route with every template."""
    engine_args = AsyncEngineArgs.from_cli_args(args)
    model_config = engine_args.create_model_config()
    model_config.quantization = None
    config = VllmConfig(model_config=model_config)
    app = build_app(args, ("render",))
    routes = {
        route: capture.read(capture.GOLDENS / f"{route}-shapes.json")
        for route in ("messages", "responses")
    }
    if mine.chat:
        routes["chat"] = capture.read(capture.GOLDENS / "shapes.json")
    cells = {route: {} for route in routes}
    counts = capture.new_counts()
    for template in TEMPLATES:
        args.chat_template = str(capture.GOLDENS / "templates" / f"{template}.jinja")
        await init_render_app_state(config, app.state, args)
        for route, requests in routes.items():
            cells[route] |= await cells_of(app, route, requests, template, counts)
    print(counts)
    for route, found in cells.items():
        done = capture.share(capture.fold(found)) if route != "chat" else found
        write_lines(Path(f"{mine.out_prefix}{route}.json"), done)


if __name__ == "__main__":
    asyncio.run(run(*parse_arguments()))
