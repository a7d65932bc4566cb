"""Train the toy byte-level BPE tokenizer in data/toy-tokenizer/.

The corpus is the running interpreter's own standard library (PSF licence), so
nothing is downloaded: the language reference in pydoc_data, docstrings and
comments as prose, and the source itself as code. Prose is repeated
PROSE_WEIGHT times so that common English words become single tokens.

Run from the repository root, in a virtual environment outside it (the result
depends on the Python version; the committed files were made with CPython 3.11.7):

    pip install -r tools/toy_tokenizer/requirements.txt
    python tools/toy_tokenizer/train.py

Add --check to verify the committed files without writing anything.
"""

import argparse
import ast
import inspect
import io
import json
import re
import sysconfig
import tokenize
from pathlib import Path
from pydoc_data.topics import topics

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

OUT = Path(__file__).resolve().parents[2] / "data" / "toy-tokenizer"
VOCAB_SIZE = 4096
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PROSE_WEIGHT = 8
MAX_BYTES = 400_000

# Test data, generated tables and anything that is not the standard library.
SKIP_DIRS = {"test", "tests", "idle_test", "site-packages", "encodings", "pydoc_data", "__pycache__", "lib-dynload"}

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages and messages[0].role == 'system' %}
{{- messages[0].content + '\\n\\n' }}
{%- endif %}
{{- 'You may call these tools:\\n' + (tools | tojson) + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}
{{- raise_exception('Unknown role: ' + message.role) }}
{%- endif %}
{%- if not (tools and loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}"""

ODD_TEXTS = [
    "",
    " ",
    "Hello, world! I'm here; they'LL come. It's 12345.67",
    "def f(x):\n\tif x > 0:\r\n        return x ** 2  # naïve\n\n\n",
    "   leading\t\ttabs \n \n  and trailing   ",
    "👩‍👩‍👧‍👦 🇯🇵 e\u0301 \u00e9 \ufeff \u200b \x00\x01",
    "漢字かな交じり文、한국어 العربية हिन्दी ไทย",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start| <|im_end|><|endoftext|>x",
]


def stdlib_files():
    """Every standard library module, in a fixed order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = (p.relative_to(root) for p in root.rglob("*.py"))
    kept = (p for p in files if not SKIP_DIRS.intersection(p.parts))
    return [root / p for p in sorted(kept, key=lambda p: p.as_posix())]


def prose_of(source):
    """The docstrings of a module and its comments, runs of comment lines joined."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if doc := ast.get_docstring(node):
                yield doc
    comments = [
        token.string.lstrip("#! ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    yield "\n".join(comments)


def corpus():
    prose = [inspect.cleandoc(topics[name]) for name in sorted(topics)]
    code = []
    for path in stdlib_files():
        try:
            source = path.read_text(encoding="utf-8")
            prose.extend(prose_of(source))
        except (SyntaxError, UnicodeDecodeError):
            continue  # lib2to3 and friends ship deliberately odd files
        code.append(source)
    # Unwrap lines and drop markup rulers: prose is there for its words.
    prose = [re.sub(r"[-=*~^#]{4,}", "", re.sub(r"(?<=\w)\n(?=\w)", " ", text)) for text in prose]
    return prose * PROSE_WEIGHT + code


def train():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    # After training, so that they take the last ids and stay out of the BPE model.
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    return tokenizer


def config():
    ids = range(VOCAB_SIZE - len(SPECIALS), VOCAB_SIZE)
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(i): {"content": s, **flags} for i, s in zip(ids, SPECIALS)},
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "bos_token": None,
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 131072,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }


def check(tokenizer):
    """Assert the properties the project relies on; return the number of whole-word tokens."""
    assert tokenizer.get_vocab_size() == VOCAB_SIZE, tokenizer.get_vocab_size()
    for text in ODD_TEXTS:
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text, text
    words = 0
    for token, index in tokenizer.get_vocab().items():
        if re.fullmatch("Ġ[A-Za-z]+", token):
            words += tokenizer.encode(" " + token[1:]).ids == [index]
    assert words > 1000, words
    return words


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="check the committed files only")
    args = parser.parse_args()

    path = OUT / "tokenizer.json"
    if not args.check:
        OUT.mkdir(parents=True, exist_ok=True)
        path.write_text(train().to_str(pretty=False), encoding="utf-8")
        text = json.dumps(config(), indent=2, ensure_ascii=False) + "\n"
        (OUT / "tokenizer_config.json").write_text(text, encoding="utf-8")
    size = path.stat().st_size
    assert size < MAX_BYTES, size
    words = check(Tokenizer.from_file(str(path)))
    print(f"tokenizer.json: {size} bytes, {VOCAB_SIZE} tokens, {words} whole words of the form ' word'")


if __name__ == "__main__":
    main()
