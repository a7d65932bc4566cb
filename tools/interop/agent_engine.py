"""vLLM servers for agents: long prompts, tools, a chat template from a file.

The model has the toy's tokenizer and weights of random numbers. Its configuration is Llama's: for
a Qwen2 configuration transformers rebuild the tokenizer, and split digits otherwise.
"""

import json
import shutil

from engines import Engine
from model_folder import copy_tokenizer

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 4096,
    "max_position_embeddings": 65536,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}

# Many real templates cannot be rendered without one; the toy's tokenizer has none.
BOS_TOKEN = "<|endoftext|>"


def make_model(folder, template):
    """A folder without weights, whose tokenizer has this template: for engine and gateway."""
    copy_tokenizer(folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["chat_template"]
    path.write_text(json.dumps({**settings, "bos_token": BOS_TOKEN}, indent=2))
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))
    shutil.copy(template, folder / "chat_template.jinja")


class AgentEngine(Engine):
    """One server whose model folder `make_model` made."""

    max_tokens = 49152
    max_sequences = 8
    # Two servers share the cores: neither is bound to one.
    own_environment = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OPENBLAS_NUM_THREADS": "1"}

    def own_options(self, model_folder):
        """Random weights, tools and the template."""
        return [
            "--load-format=dummy",
            "--enable-auto-tool-choice",
            "--tool-call-parser=hermes",
            f"--chat-template={model_folder / 'chat_template.jinja'}",
        ]
