"""Captures what SGLang makes of the chat requests, with its own code and without a GPU.

    PYTHONPATH=SGLANG:OVERLAY python tools/parity/sglang.py --model MODEL --out FILE

SGLANG is the unpacked wheel. README.md says which of its functions run and what is a stub.
"""

import argparse
import importlib.abc
import importlib.machinery
import json
import sys
import types
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

HERE = str(Path(__file__).resolve().parent)
# This file has the name of the package that it imports.
sys.path = [path for path in sys.path if str(Path(path).resolve()) != HERE]


class Anything:
    """Stands for each object of the kernels: has every attribute, and a call does nothing."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __call__(self, *_, **__):
        return None


class Kernels(types.ModuleType):
    """A module of the GPU kernels."""

    __path__ = []
    __getattr__ = Anything.__getattr__


class KernelFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers each import of `sgl_kernel`, which has no build without a GPU."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "sgl_kernel":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Kernels(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, KernelFinder())

from pydantic import ValidationError  # noqa: E402
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest  # noqa: E402
from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat  # noqa: E402
from sglang.srt.parser.template_manager import TemplateManager  # noqa: E402
from sglang.srt.runtime_context import get_context  # noqa: E402
from sglang.srt.utils.hf_transformers_utils import get_tokenizer  # noqa: E402
from transformers import AutoConfig  # noqa: E402

sys.path.insert(0, HERE)

import capture  # noqa: E402
from shapes import write_lines  # noqa: E402


def tokenizer_manager(model):
    """What the serving class reads of the tokenizer manager, which starts processes itself."""
    config = AutoConfig.from_pretrained(model)
    model_config = SimpleNamespace(
        hf_config=config,
        is_multimodal=False,
        context_len=config.max_position_embeddings,
        get_default_sampling_params=dict,
    )
    return SimpleNamespace(
        tokenizer=get_tokenizer(model),
        processor=None,
        model_config=model_config,
        model_path="toy",
        served_model_name="toy",
        server_args=None,
        config_value=lambda name: None,
    )


def serving(manager, template):
    """SGLang's serving class as if this template were the model's."""
    manager.tokenizer.chat_template = template
    templates = TemplateManager()
    templates.initialize_templates(manager, manager.model_path)
    return OpenAIServingChat(manager, templates), templates


def answer(chat, body, errors):
    """The status and the token ids, by the same steps as the server's route."""
    try:
        request = ChatCompletionRequest.model_validate(json.loads(body))
        refusal = chat._validate_request(request)
        if refusal:
            raise ValueError(refusal)
        adapted, _ = chat._convert_to_internal_request(request)
        return 200, {"token_ids": list(adapted.input_ids)}
    except ValidationError as error:
        first = error.errors()[0]
        errors[f"400 {first['type']} at {[p for p in first['loc'] if isinstance(p, str)]}"] += 1
        return 400, None
    except ValueError as error:
        errors[f"400 {str(error)[:90]}"] += 1
        return 400, None
    except Exception as error:
        errors[f"500 {type(error).__name__}: {str(error)[:90]}"] += 1
        return 500, None


def capture_chat(model):
    """The cells of every shape with every template."""
    manager = tokenizer_manager(model)
    requests = capture.read(capture.GOLDENS / "shapes.json")
    cells, counts, errors = {}, capture.new_counts(), Counter()
    for name, template in capture.read_templates(capture.GOLDENS / "templates").items():
        chat, templates = serving(manager, template)
        print(name, templates.jinja_template_content_format, templates.reasoning_config)
        for shape, request in requests.items():
            cell = f"{shape}/{name}"
            body = json.dumps({"model": "toy", **request})
            cells[cell] = capture.cell(cell, *answer(chat, body, errors), counts)
    for error, count in errors.most_common():
        print(f"{count:6} {error}")
    print(counts)
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with get_context().override_server_args(model_path=options.model):
        cells = capture_chat(options.model)
    write_lines(options.out, capture.share(capture.fold(cells)))


if __name__ == "__main__":
    main()
