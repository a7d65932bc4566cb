"""Writes a small random BERT model with a SentencePiece-Unigram tokenizer, built like the one of
multilingual-e5-small: `<s>` and `</s>` around each text, NFKC, the metaspace.

    python tools/encoder/make_unigram.py OUT
    python tools/encoder/check.py OUT

The tokenizer is trained on this repository's own documents.
"""

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers
from transformers import BertConfig, BertModel

ROOT = Path(__file__).resolve().parents[2]
VOCAB = 2_000
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def tokenizer():
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    made.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCAB, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    documents = sorted(ROOT.glob("*.md"))
    lines = [line for path in documents for line in path.read_text("utf-8").splitlines()]
    made.train_from_iterator(lines, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    made = tokenizer()
    made.save(str(out / "tokenizer.json"))
    names = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
    names |= {"pad_token": "<pad>", "unk_token": "<unk>", "model_max_length": 512}
    names |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    (out / "tokenizer_config.json").write_text(json.dumps(names))
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=made.get_vocab_size() + 35,  # as there, rows beyond the vocabulary
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=6,
        intermediate_size=200,
        max_position_embeddings=512,
        pad_token_id=1,
        # Ten times the usual spread: attention that distinguishes tokens.
        initializer_range=0.2,
    )
    BertModel(config, add_pooling_layer=False).eval().save_pretrained(out)
    print(f"{out}: {made.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
