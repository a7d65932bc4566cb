"""Prompts and a small model for runs with a live vLLM.

Each whole block of a trace becomes one block of the engine, tokens drawn from the block's id. Each
prompt ends in a short tail of its own.
"""

from __future__ import annotations

import json
import pathlib
import random
import shutil
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK_TOKENS = 32
FIRST_TOKEN, TOKENS_END = 512, 4093
"""Range of the prompts' tokens: the toy tokenizer's, without its special ones."""
LAYERS, HIDDEN, HEADS, KV_HEADS = 4, 256, 4, 2
VOCABULARY = 4096
BLOCK_BYTES = LAYERS * 2 * KV_HEADS * (HIDDEN // HEADS) * BLOCK_TOKENS * 2


@dataclass(frozen=True)
class Prompt:
    blocks: tuple[int, ...]
    """Ids of the whole blocks."""
    tail_tokens: int
    """Tokens after them, at least one, so that the last whole block can be a hit."""
    row: dict
    """The request in the trace."""

    @property
    def num_tokens(self) -> int:
        return len(self.blocks) * BLOCK_TOKENS + self.tail_tokens

    @property
    def hints(self) -> dict:
        """`kv_transfer_params` for Headstart's policies. They take the trace's clock."""
        names = {"turn": "turn", "type": "kind", "session": "session", "finish": "finish",
                 "output_tokens": "output_tokens", "p_continue": "p_continue",
                 "arrival_ns": "now_ns"}
        known = {hint: self.row[name] for name, hint in names.items() if name in self.row}
        return {"headstart": known}


def prompts_of(trace: pathlib.Path, num_requests: int, max_blocks: int) -> list[Prompt]:
    """The first requests of a trace in Headstart's canonical format, plain JSON lines."""
    with trace.open() as lines:
        header = json.loads(next(lines))
        if header.get("headstart_trace") != 1:
            raise SystemExit(f"{trace}: use headstart trace convert first")
        rows = [json.loads(line) for _, line in zip(range(num_requests), lines)]
    prompts = []
    for row in rows:
        blocks = [first + i for first, count in row["blocks"] for i in range(count)]
        whole, rest = divmod(row["input_tokens"], header["block_tokens"])
        tail = max(1, rest * BLOCK_TOKENS // header["block_tokens"])
        prompts.append(Prompt(tuple(blocks[: min(whole, max_blocks)]), tail, row))
    return prompts


def block_tokens(block: int) -> list[int]:
    """The tokens of a whole block."""
    return random.Random(f"block {block}").choices(range(FIRST_TOKEN, TOKENS_END), k=BLOCK_TOKENS)


def tokens_of(prompt: Prompt, number: int) -> list[int]:
    """`number` is the request's, and decides about the tail."""
    tokens: list[int] = []
    for block in prompt.blocks:
        tokens += block_tokens(block)
    return tokens + random.Random(f"tail {number}").choices(
        range(FIRST_TOKEN, TOKENS_END), k=prompt.tail_tokens
    )


def write_model(folder: pathlib.Path) -> None:
    """A Qwen2 of four layers without weights, for `--load-format dummy`."""
    shutil.copytree(ROOT / "data" / "toy-tokenizer", folder)
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": HIDDEN,
        "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 32768,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "bos_token_id": 4093,
        "eos_token_id": 4093,
    }
    (folder / "config.json").write_text(json.dumps(config))


def write_weights(folder: pathlib.Path) -> None:
    """Random weights for the model. vLLM's dummy weights are so small that log-probabilities barely
    depend on the prompt; with these a wrong block is seen. Needs torch and safetensors."""
    import torch
    from safetensors.torch import save_file

    random_numbers = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        scale = shape[-1] ** -0.5
        values = torch.randn(*shape, generator=random_numbers) * scale
        return values.to(torch.bfloat16)

    head = HIDDEN // HEADS
    weights = {"model.embed_tokens.weight": normal(VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for name, rows in (("q", HIDDEN), ("k", KV_HEADS * head), ("v", KV_HEADS * head)):
            weights[f"{at}.self_attn.{name}_proj.weight"] = normal(rows, HIDDEN)
            weights[f"{at}.self_attn.{name}_proj.bias"] = normal(rows)
        weights[f"{at}.self_attn.o_proj.weight"] = normal(HIDDEN, HIDDEN)
        for name in ("gate", "up"):
            weights[f"{at}.mlp.{name}_proj.weight"] = normal(2 * HIDDEN, HIDDEN)
        weights[f"{at}.mlp.down_proj.weight"] = normal(HIDDEN, 2 * HIDDEN)
        for name in ("input", "post_attention"):
            weights[f"{at}.{name}_layernorm.weight"] = torch.ones(HIDDEN, dtype=torch.bfloat16)
    weights["model.norm.weight"] = torch.ones(HIDDEN, dtype=torch.bfloat16) * 4
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
