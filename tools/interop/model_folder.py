"""Makes the model folder that the servers load: the built-in toy, as a Hugging Face folder, with
the toy's tokenizer, and in a folder within it a LoRA adapter of random numbers.

    python tools/interop/model_folder.py FOLDER [--other-template FOLDER]

The second folder gets the same tokenizer with a chat template that renders other text.
"""

import argparse
import json
import shutil
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TOKENIZER = REPOSITORY / "data" / "toy-tokenizer"
FILES = ("tokenizer.json", "tokenizer_config.json")

OTHER_TEMPLATE = """Welcome.
{% for message in messages %}{{ message.role }}: {{ message.content }}
{% endfor %}assistant:"""

# The adapter's name, folder and rank. It changes queries, and so what the model says.
ADAPTER = "sql"
ADAPTER_RANK = 8


def copy_tokenizer(folder):
    """Puts the toy's tokenizer there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copy(TOKENIZER / name, folder / name)


def make_adapter(model):
    """Writes the adapter in PEFT's layout."""
    import numpy
    from safetensors.numpy import save_file

    config = json.loads((model / "config.json").read_text())
    hidden, queries = config["hidden_size"], config["num_attention_heads"] * config["head_dim"]
    rng = numpy.random.default_rng(1)
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        shapes = {"lora_A": (ADAPTER_RANK, hidden), "lora_B": (queries, ADAPTER_RANK)}
        for half, shape in shapes.items():
            values = rng.normal(scale=0.02, size=shape).astype(numpy.float32)
            tensors[f"{name}.{half}.weight"] = values
    folder = model / ADAPTER
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    description = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "toy",
        "target_modules": ["q_proj"],
        "r": ADAPTER_RANK,
        "lora_alpha": 2 * ADAPTER_RANK,
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(description))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--other-template", type=Path)
    options = parser.parse_args()
    command = ["cargo", "run", "--release", "-p", "headstart-engine", "--example", "export_toy"]
    subprocess.run([*command, "--", options.folder.resolve()], check=True, cwd=REPOSITORY)
    copy_tokenizer(options.folder)
    make_adapter(options.folder)
    if options.other_template is not None:
        copy_tokenizer(options.other_template)
        (options.other_template / "chat_template.jinja").write_text(OTHER_TEMPLATE)


if __name__ == "__main__":
    main()
