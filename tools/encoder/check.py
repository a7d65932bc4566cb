"""Compares our vectors of a model folder with those of sentence-transformers.

    python tools/encoder/check.py DIR

README.md beside this file says where a model comes from. Both cut texts at 512 tokens. Fails if a
token id differs or a cosine is 0.9999 or less.
"""

import argparse
import sys

import numpy as np
from sentence_transformers import SentenceTransformer

import ours

LEAST_COSINE = 0.9999
MAX_TOKENS = 512

PROSE = (
    "When the river rose in spring, the villagers moved their boats to the upper meadow, and "
    "the miller counted sacks of grain by lamplight, wondering how long the roads would stay "
    "closed this year. "
)
CODE = """fn main() {
    let xs: Vec<u32> = (0..10).filter(|x| x % 3 == 0).collect();
    println!("{xs:?} // 0x7f, \\u{1F600}");
}
"""
TEXTS = [
    "",
    " ",
    "\n\t",
    "a",
    "Hi!",
    "?",
    "hello world",
    "HELLO   World",
    "The quick brown fox jumps over the lazy dog.",
    "What is the capital of France?",
    "Explain how a suspension bridge carries its load, in simple words.",
    "naïve café, Ångström, façade, coöperate, Straße, İstanbul",
    "e\u0301 decomposed, ﬁ ligature, ① circled, ｆｕｌｌ ｗｉｄｔｈ",
    "今天天气怎么样？我想去公园散步。",
    "日本語のテキストとカタカナ、ひらがな。",
    "Привет, как дела? Расскажи мне о погоде.",
    "مرحبا كيف حالك",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "한국어 문장입니다.",
    "🙂",
    "👩‍👩‍👧‍👦 family 🇫🇷 flag 👍🏽 thumb",
    "zero\u200bwidth, soft\u00adhyphen, bom\ufeff, nul\u0000, bell\u0007",
    "[CLS] special [SEP] tokens [MASK] <s> in </s> text [PAD] <unk>",
    "1234567890 3.14159 1e-9 0xDEADBEEF 12:34:56 2026-01-31",
    "https://example.org/a/b?c=d&e=f#g user@example.org",
    "x" * 99,
    "x" * 101,
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    CODE,
    CODE * 20,
    "SELECT a, b FROM t WHERE c IN (1, 2, 3) ORDER BY d DESC;",
    "word " * 100,
    "word " * 509,
    "word " * 510,
    "word " * 511,
    "word " * 2000,
    PROSE,
    PROSE * 5,
    PROSE * 30,
    "今天天气怎么样？我想去公园散步。" * 60,
    "🙂 " * 700,
]


def reference(folder, texts, prefix):
    """Token ids and vectors by sentence-transformers."""
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = MAX_TOKENS
    texts = [prefix + text for text in texts]
    vectors = model.encode(texts, normalize_embeddings=True, prompt="")
    cut = {"truncation": True, "max_length": MAX_TOKENS}
    return [model.tokenizer(text, **cut)["input_ids"] for text in texts], vectors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--prefix", default="", help="what our encoder puts before each text")
    options = parser.parse_args()
    found = ours.vectors(ours.binary(), options.folder, TEXTS)
    ids, vectors = reference(options.folder, TEXTS, options.prefix)
    worst, wrong = 1.0, 0
    for text, (our_ids, our_vector), their_ids, theirs in zip(TEXTS, found, ids, vectors):
        our_vector = np.array(our_vector)
        cosine = our_vector @ theirs / (np.linalg.norm(our_vector) * np.linalg.norm(theirs))
        worst = min(worst, cosine)
        if our_ids != list(their_ids) or not cosine > LEAST_COSINE:
            wrong += 1
            print(f"{text[:40]!r}: ids equal {our_ids == list(their_ids)}, cosine {cosine:.8f}")
    print(f"{len(TEXTS)} texts, {wrong} wrong, least cosine {worst:.8f} (more than {LEAST_COSINE})")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
