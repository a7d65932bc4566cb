"""vLLM servers that take images: a LLaVA of random weights with the toy's tokenizer.

They have `--enable-scale-out`, by which vLLM opens its render routes. These name the images of a
prompt as the events do.
"""

import json

from agent_engine import CONFIG, AgentEngine, make_model

# vLLM puts this text into prompts for LLaVA where a template takes no parts.
IMAGE = "<image>"
IMAGE_TOKEN = CONFIG["vocab_size"]

# Pixels along an image's edge and a patch's edge: an image takes 36 tokens, more than a block.
EDGE, PATCH = 84, 14


def make_media_model(folder, template):
    """A folder without weights for engine and gateway, whose tokenizer has an image token."""
    make_model(folder, template)
    added = {"content": IMAGE, "special": True}
    added |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    edit(folder / "tokenizer.json", lambda own: own["added_tokens"].append(
        {"id": IMAGE_TOKEN, **added}
    ))
    edit(folder / "tokenizer_config.json", lambda own: (
        own["added_tokens_decoder"].update({str(IMAGE_TOKEN): added}),
        own.update(image_token=IMAGE, processor_class="LlavaProcessor"),
    ))
    vision = {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": EDGE,
        "patch_size": PATCH,
    }
    # A multiple of 16 with room for the image token.
    text = CONFIG | {"vocab_size": IMAGE_TOKEN + 16, "tie_word_embeddings": False}
    write(folder / "config.json", {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "image_token_index": IMAGE_TOKEN,
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        "torch_dtype": "float32",
        "text_config": text,
        "vision_config": vision,
    })
    write(folder / "preprocessor_config.json", {
        "image_processor_type": "SiglipImageProcessor",
        "size": {"height": EDGE, "width": EDGE},
    })
    write(folder / "processor_config.json", {
        "processor_class": "LlavaProcessor",
        "patch_size": PATCH,
        "vision_feature_select_strategy": "full",
        "image_token": IMAGE,
        "num_additional_image_tokens": 0,
    })


def edit(path, change):
    """Changes the JSON in a file."""
    content = json.loads(path.read_text())
    change(content)
    write(path, content)


def write(path, content):
    """Writes JSON."""
    path.write_text(json.dumps(content, indent=1))


class MediaEngine(AgentEngine):
    """One server whose model folder `make_media_model` made."""

    def own_options(self, model_folder):
        """Those of an agent's engine, and the render routes."""
        return [*super().own_options(model_folder), "--enable-scale-out"]
