"""Write the tiny random checkpoints in crates/engine/tests/checkpoints/.

Each is a Hugging Face folder with `expected.json`: the logits and the greedy
continuations that transformers computes from it (f32, eager attention, no KV
cache; the greedy loop ignores the end-of-sequence token).

Run from the repository root, with tools/reference/requirements.txt installed:

    python tools/reference/make_checkpoints.py
"""

import json
import shutil
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

OUT = Path(__file__).resolve().parents[2] / "crates" / "engine" / "tests" / "checkpoints"
CASE_LENGTHS = (1, 37, 150)
ROWS = (0, 17)
GREEDY_STEPS = 16
MIN_GAP = 0.01  # smallest allowed top-1 lead, so that rounding cannot change a greedy token

COMMON = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "float32",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "tie_word_embeddings": False,
}
# With head_dim 16 this leaves one frequency as it is, blends one and divides the rest.
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA = COMMON | {"rms_norm_eps": 1e-5}  # the Qwen configurations default to 1e-6
CONFIGS = {
    "llama": LlamaConfig(**LLAMA),
    "llama3-rope": LlamaConfig(**LLAMA | {"rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": True}),
    "qwen2": Qwen2Config(**COMMON | {"tie_word_embeddings": True}),
    "qwen3": Qwen3Config(**COMMON | {"head_dim": 32}),
    "llama-sharded": LlamaConfig(**LLAMA | {"num_key_value_heads": 4}),
}


def fill(model, seed):
    """Random weights wide enough for peaked logits; norms near 1, biases non-zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.2 * noise if "norm" in name else 0.15 * noise)


def use_old_config_form(folder):
    """Rewrite config.json as early transformers 4 wrote it.

    rope_theta and rope_scaling stand at the top; head_dim and layer_types are left to be derived.
    """
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["rope_scaling"] = None
    config["torch_dtype"] = config.pop("dtype")
    for key in ("head_dim", "layer_types", "transformers_version"):
        config.pop(key, None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def rounded(values):
    return [float(f"{v:.7g}") for v in values.tolist()]


@torch.inference_mode()
def logits(model, tokens):
    return model(torch.tensor([tokens]), use_cache=False).logits[0]


def case(model, tokens):
    prompt = logits(model, tokens)
    greedy, gaps, row = [], [], prompt[-1]
    for _ in range(GREEDY_STEPS):
        top = row.topk(2)
        greedy.append(top.indices[0].item())
        gaps.append(top.values[0] - top.values[1])
        row = logits(model, tokens + greedy)[-1]
    return {
        "tokens": tokens,
        "logits_last": rounded(prompt[-1]),
        "logits_rows": {str(i): rounded(prompt[i]) for i in ROWS if i < len(tokens)},
        "greedy": greedy,
        "greedy_gap": rounded(torch.stack(gaps)),
    }


def stable_case(model, length, seed):
    """The first random prompt whose greedy continuation never comes near a tie."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(100):
        tokens = torch.randint(3, model.config.vocab_size, (length,), generator=generator).tolist()
        result = case(model, tokens)
        if min(result["greedy_gap"]) >= MIN_GAP:
            return result
    raise RuntimeError("no stable prompt found")


def write_checkpoint(name, config, seed):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    model = AutoModelForCausalLM.from_config(config)
    fill(model, seed)
    model.save_pretrained(folder, max_shard_size="230KB" if name == "llama-sharded" else "1GB")
    if name == "qwen2":
        use_old_config_form(folder)
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors writes 0600

    # The reference is what a user of these files gets, so read them back.
    eager = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    sdpa = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), eager.state_dict().values()))
    cases = [stable_case(eager, n, seed + i) for i, n in enumerate(CASE_LENGTHS, 1)]
    expected = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0], "cases": cases}
    (folder / "expected.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")

    noise = max((logits(eager, c["tokens"]) - logits(sdpa, c["tokens"])).abs().max().item() for c in cases)
    peak = max(max(map(abs, c["logits_last"])) for c in cases)
    gap = min(min(c["greedy_gap"]) for c in cases)
    size = sum(p.stat().st_size for p in folder.iterdir())
    print(f"{name}: {size} bytes, |logit| <= {peak:.1f}, smallest gap {gap:.3g}, eager vs sdpa {noise:.1e}")


def main():
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    for i, (name, config) in enumerate(CONFIGS.items()):
        write_checkpoint(name, config, seed=1000 * (i + 1))
    unsupported = OUT / "unsupported"
    unsupported.mkdir(exist_ok=True)
    (unsupported / "config.json").write_text('{\n  "architectures": ["MambaForCausalLM"]\n}\n')


if __name__ == "__main__":
    main()
