//! Tokenizers in the shapes of well-known ones, out of the toy's vocabulary.

use std::collections::HashSet;
use std::sync::Arc;

use headstart_prompt::{BoundaryKind, Tokenizer};
use serde_json::{Value, json};

pub(crate) const TOY: &str = include_str!("../../../../../data/toy-tokenizer/tokenizer.json");

const LLAMA_3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const QWEN_2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const DEEPSEEK_3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    "|[^\r\n",
    r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[",
    "\r\n]*|",
    r"\s*[",
    "\r\n",
    r"]+|\s+(?!\S)|\s+"
);

/// A tokenizer, and where its texts are to be cut.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) kind: BoundaryKind,
}

/// All of them.
pub(crate) fn cases() -> Vec<Case> {
    let words = BoundaryKind::Words;
    let added_tokens = BoundaryKind::AddedTokens;
    let nfc = json!({"type": "NFC"});
    let digits = json!({"type": "Digits", "individual_digits": true});
    vec![
        case("toy", byte_level(Value::Null, vec![]), words),
        case("GPT-2", gpt_2(), words),
        case("Llama 3", llama_3(), words),
        case("Qwen 2", byte_level(nfc, vec![split(QWEN_2)]), words),
        case("o200k", byte_level(Value::Null, vec![split(O200K)]), words),
        case("Tekken", byte_level(Value::Null, vec![split(TEKKEN)]), words),
        case("DeepSeek 3", deepseek_3(), words),
        case("StarCoder", with_regex(byte_level(Value::Null, vec![digits])), words),
        case("GPT-NeoX", gpt_neox(), words),
        case("flags", flags(), words),
        case("no gaps", no_gaps(), added_tokens),
        case("unknown expression", byte_level(Value::Null, vec![split(r"\w+ ?|\W")]), added_tokens),
        case("Llama 2", llama_2(), added_tokens),
        case("Metaspace first", metaspace("first", false), added_tokens),
        case("Metaspace always", metaspace("always", true), added_tokens),
        case("Unigram", unigram(), added_tokens),
        case("WordPiece", word_piece(), added_tokens),
        case("nothing added", nothing_added(), BoundaryKind::Off),
    ]
}

fn case(name: &'static str, json: Value, kind: BoundaryKind) -> Case {
    let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes());
    Case {
        name,
        tokenizer: Arc::new(tokenizer.unwrap_or_else(|error| panic!("{name}: {error}"))),
        kind,
    }
}

fn toy() -> Value {
    serde_json::from_str(TOY).unwrap()
}

fn split(pattern: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
        "invert": false})
}

/// The toy with other stages before its bytes, or with its own where there are none.
fn byte_level(normalizer: Value, stages: Vec<Value>) -> Value {
    let mut json = toy();
    json["normalizer"] = normalizer;
    let own = json["pre_tokenizer"]["pretokenizers"].as_array_mut().unwrap();
    if !stages.is_empty() {
        own.splice(0..1, stages);
    }
    json
}

/// The byte-level stage with GPT-2's own expression.
fn with_regex(mut json: Value) -> Value {
    let stages = json["pre_tokenizer"]["pretokenizers"].as_array_mut().unwrap();
    stages.last_mut().unwrap()["use_regex"] = true.into();
    json
}

fn gpt_2() -> Value {
    let mut json = with_regex(toy());
    json["pre_tokenizer"] = json["pre_tokenizer"]["pretokenizers"][1].clone();
    json
}

/// A begin-of-sequence token, and 256 reserved ones.
fn llama_3() -> Value {
    let mut json = toy();
    for number in 0..256 {
        add(&mut json, &format!("<|reserved_special_token_{number}|>"), &[]);
    }
    let template = json!({"type": "TemplateProcessing", "pair": [],
        "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<|endoftext|>":
            {"id": "<|endoftext|>", "ids": [4093], "tokens": ["<|endoftext|>"]}}});
    let bytes = json["pre_tokenizer"]["pretokenizers"][1].clone();
    json["post_processor"] = json!({"type": "Sequence", "processors": [bytes, template]});
    json["pre_tokenizer"]["pretokenizers"][0] = split(LLAMA_3);
    json
}

fn deepseek_3() -> Value {
    let stages = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_3];
    byte_level(Value::Null, stages.map(split).to_vec())
}

/// Runs of spaces as added tokens that are looked up in the normalized text.
fn gpt_neox() -> Value {
    let mut json = gpt_2();
    json["normalizer"] = json!({"type": "NFC"});
    for num_spaces in 2..8 {
        add(&mut json, &" ".repeat(num_spaces), &["normalized"]);
    }
    json
}

/// Added tokens with every flag; only Chinese marks are left to cut at.
fn flags() -> Value {
    let mut json = toy();
    add(&mut json, "<left>", &["lstrip"]);
    add(&mut json, "<right>", &["rstrip"]);
    add(&mut json, "right", &["rstrip"]);
    add(&mut json, "<both>", &["lstrip", "rstrip"]);
    add(&mut json, "word", &["single_word"]);
    add(&mut json, "<word>", &["single_word", "normalized"]);
    add(&mut json, " the", &["single_word"]);
    add(&mut json, "end of\nit", &[]);
    add(&mut json, "<|im", &[]);
    json
}

/// Added tokens that forbid every gap.
fn no_gaps() -> Value {
    let mut json = toy();
    add(&mut json, "a b\nc、d。e，f", &["normalized"]);
    json
}

fn add(json: &mut Value, content: &str, flags: &[&str]) {
    let added = json["added_tokens"].as_array_mut().unwrap();
    let id = added.iter().map(|token| token["id"].as_u64().unwrap()).max();
    let mut token = json!({"id": id.unwrap() + 1, "content": content, "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    for &flag in flags {
        token[flag] = true.into();
    }
    added.push(token);
}

/// The toy's words in SentencePiece's spelling: those of printable ASCII, and its spaces.
fn pieces() -> Vec<String> {
    let toy = toy();
    let mut words: Vec<(u64, String)> = toy["model"]["vocab"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(word, _)| is_plain(word))
        .map(|(word, id)| (id.as_u64().unwrap(), word.replace('Ġ', "▁")))
        .collect();
    words.sort();
    words.into_iter().map(|(_, word)| word).collect()
}

fn is_plain(word: &str) -> bool {
    let plain = |character: char| character.is_ascii_graphic() || character == 'Ġ';
    !word.is_empty() && word.chars().all(plain)
}

fn model_with(vocab: &[String], model: Value) -> Value {
    let added: Vec<Value> = ["<unk>", "<s>", "</s>"]
        .iter()
        .enumerate()
        .map(|(id, content)| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let mut json = json!({"version": "1.0", "added_tokens": added, "model": model});
    if json["model"]["type"] != "Unigram" {
        let ids = vocab.iter().enumerate();
        json["model"]["vocab"] = ids.map(|(id, word)| (word.clone(), json!(id))).collect();
    }
    add(&mut json, "<|im_start|>", &[]);
    add(&mut json, "<|im_end|>", &[]);
    add(&mut json, "<tool>", &["normalized"]);
    add(&mut json, "<mask>", &["lstrip", "rstrip"]);
    json
}

/// A byte-pair model of SentencePiece, whose best merges reach across spaces.
fn sentence_piece() -> Value {
    let mut vocab: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    vocab.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    vocab.extend(pieces());
    let mut merges: Vec<Value> = ["e", "s", ".", "▁", "t"].map(|left| json!([left, "▁"])).to_vec();
    vocab.extend(["e▁", "s▁", ".▁", "▁▁", "t▁"].map(str::to_owned));
    vocab.sort();
    vocab.dedup();
    // The three named ones first, as `model_with` numbers them.
    vocab.retain(|word| !["<unk>", "<s>", "</s>"].contains(&word.as_str()));
    vocab.splice(0..0, ["<unk>", "<s>", "</s>"].map(str::to_owned));
    let held: HashSet<&str> = vocab.iter().map(String::as_str).collect();
    for merge in toy()["model"]["merges"].as_array().unwrap() {
        let merge = match merge {
            Value::String(pair) => pair.split_once(' ').unwrap(),
            pair => (pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        };
        if is_plain(merge.0) && is_plain(merge.1) {
            let pair = [merge.0, merge.1].map(|part| part.replace('Ġ', "▁"));
            if held.contains(pair.concat().as_str()) {
                merges.push(json!(pair));
            }
        }
    }
    let model = json!({"type": "BPE", "unk_token": "<unk>", "fuse_unk": true,
        "byte_fallback": true, "merges": merges});
    model_with(&vocab, model)
}

fn llama_2() -> Value {
    let mut json = sentence_piece();
    json["normalizer"] = json!({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
    json["post_processor"] = template(&["<s>"], &[]);
    json
}

fn metaspace(prepend: &str, split: bool) -> Value {
    let mut json = sentence_piece();
    json["pre_tokenizer"] = json!({"type": "Metaspace", "replacement": "▁",
        "prepend_scheme": prepend, "split": split});
    json
}

fn unigram() -> Value {
    let mut vocab = vec![json!(["<unk>", 0.0]), json!(["<s>", 0.0]), json!(["</s>", 0.0])];
    let scored = pieces().into_iter().enumerate();
    vocab.extend(scored.map(|(rank, word)| json!([word, -(1.0 + rank as f64).ln() - 1.0])));
    vocab.push(json!(["e▁t", -0.5]));
    let model = json!({"type": "Unigram", "unk_id": 0, "vocab": vocab});
    let mut json = model_with(&[], model);
    json["normalizer"] = json!({"type": "NFKC"});
    json["pre_tokenizer"] = json!({"type": "Metaspace", "replacement": "▁",
        "prepend_scheme": "always", "split": false});
    json["post_processor"] = template(&[], &["</s>"]);
    json
}

fn word_piece() -> Value {
    let mut vocab: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    for word in pieces() {
        vocab.push(match word.strip_prefix('▁') {
            Some(start) => start.to_lowercase(),
            None => format!("##{}", word.to_lowercase()),
        });
        if word.chars().count() == 1 {
            vocab.push(word.to_lowercase());
        }
    }
    let mut seen = HashSet::new();
    vocab.retain(|word| !word.is_empty() && seen.insert(word.clone()));
    let model = json!({"type": "WordPiece", "unk_token": "<unk>",
        "continuing_subword_prefix": "##", "max_input_chars_per_word": 100});
    let mut json = model_with(&vocab, model);
    json["normalizer"] = json!({"type": "BertNormalizer", "clean_text": true,
        "handle_chinese_chars": true, "strip_accents": null, "lowercase": true});
    json["pre_tokenizer"] = json!({"type": "BertPreTokenizer"});
    json["post_processor"] = template(&["<s>"], &["</s>"]);
    json
}

fn nothing_added() -> Value {
    let mut json = sentence_piece();
    json["added_tokens"] = json!([]);
    json
}

fn template(before: &[&str], after: &[&str]) -> Value {
    let special = |id: &&str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    let mut single: Vec<Value> = before.iter().map(special).collect();
    single.push(json!({"Sequence": {"id": "A", "type_id": 0}}));
    single.extend(after.iter().map(special));
    json!({"type": "TemplateProcessing", "single": single, "pair": [], "special_tokens": {
        "<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]},
        "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}})
}
