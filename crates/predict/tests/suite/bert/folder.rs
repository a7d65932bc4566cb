//! A tiny model folder with random weights and a WordPiece tokenizer of twelve words.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use half::{bf16, f16};
use headstart_core::Rng;
use headstart_predict::encoder::bert::BertEncoder;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};

pub(crate) const HIDDEN: usize = 20;
pub(crate) const HEADS: usize = 5;
pub(crate) const WIDE: usize = 28;
pub(crate) const LAYERS: usize = 2;
pub(crate) const POSITIONS: usize = 70;
pub(crate) const WORDS: [&str; 12] =
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "##s", "query", ":", "on", "mat"];

/// Tensors by name: shape and values.
pub(crate) type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// A model folder, removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// The tiny model; `name` keeps tests apart.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hs-bert-{}-{name}", std::process::id()));
        fs::create_dir_all(path.join("1_Pooling")).unwrap();
        let folder = Self(path);
        folder.json("config.json", &config());
        folder.json("tokenizer.json", &tokenizer());
        folder.weights(&tensors(), Dtype::F32);
        folder
    }

    pub(crate) fn json(&self, file: &str, value: &Value) {
        fs::write(self.0.join(file), value.to_string()).unwrap();
    }

    pub(crate) fn weights(&self, tensors: &Tensors, dtype: Dtype) {
        let bytes = |values: &[f32]| -> Vec<u8> {
            let bytes = |x: &f32| match dtype {
                Dtype::F16 => f16::from_f32(*x).to_le_bytes().to_vec(),
                Dtype::BF16 => bf16::from_f32(*x).to_le_bytes().to_vec(),
                Dtype::I32 => (*x as i32).to_le_bytes().to_vec(),
                _ => x.to_le_bytes().to_vec(),
            };
            values.iter().flat_map(bytes).collect()
        };
        let stored: Vec<_> = tensors
            .iter()
            .map(|(name, (shape, values))| (name, shape.clone(), bytes(values)))
            .collect();
        let views = stored.iter().map(|(name, shape, data)| {
            (name, TensorView::new(dtype, shape.clone(), data).unwrap())
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        fs::write(self.0.join("model.safetensors"), bytes).unwrap();
    }

    pub(crate) fn open(&self) -> BertEncoder {
        BertEncoder::open(&self.0).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn config() -> Value {
    json!({
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": HIDDEN,
        "intermediate_size": WIDE,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": POSITIONS,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "position_embedding_type": "absolute",
        "type_vocab_size": 2,
        "vocab_size": WORDS.len(),
    })
}

pub(crate) fn tokenizer() -> Value {
    let vocab: serde_json::Map<_, _> =
        WORDS.iter().enumerate().map(|(id, word)| (word.to_string(), json!(id))).collect();
    let special = |id: usize| json!({"SpecialToken": {"id": WORDS[id], "type_id": 0}});
    let ids = |id: usize| json!({"id": WORDS[id], "ids": [id], "tokens": [WORDS[id]]});
    json!({
        "version": "1.0",
        // Left in the file by training; neither may be heeded.
        "truncation": {
            "direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0,
        },
        "padding": {
            "strategy": {"Fixed": 30}, "direction": "Right", "pad_to_multiple_of": null,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]",
        },
        "added_tokens": [],
        "normalizer": {
            "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": null, "lowercase": true,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special(2), {"Sequence": {"id": "A", "type_id": 0}}, special(3)],
            "pair": [special(2), {"Sequence": {"id": "A", "type_id": 0}}, special(3)],
            "special_tokens": {"[CLS]": ids(2), "[SEP]": ids(3)},
        },
        "decoder": null,
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocab,
        },
    })
}

pub(crate) fn tensors() -> Tensors {
    let mut shapes: Vec<(String, Vec<usize>)> = Vec::new();
    let mut add = |name: String, shape: &[usize]| shapes.push((name, shape.to_vec()));
    for (name, rows) in [("word", WORDS.len()), ("position", POSITIONS), ("token_type", 2)] {
        add(format!("embeddings.{name}_embeddings.weight"), &[rows, HIDDEN]);
    }
    let mut norm_or_dense = |name: &str, shape: &[usize]| {
        add(format!("{name}.weight"), shape);
        add(format!("{name}.bias"), &shape[..1]);
    };
    norm_or_dense("embeddings.LayerNorm", &[HIDDEN]);
    for layer in 0..LAYERS {
        for (part, shape) in [
            ("attention.self.query", &[HIDDEN, HIDDEN][..]),
            ("attention.self.key", &[HIDDEN, HIDDEN]),
            ("attention.self.value", &[HIDDEN, HIDDEN]),
            ("attention.output.dense", &[HIDDEN, HIDDEN]),
            ("attention.output.LayerNorm", &[HIDDEN]),
            ("intermediate.dense", &[WIDE, HIDDEN]),
            ("output.dense", &[HIDDEN, WIDE]),
            ("output.LayerNorm", &[HIDDEN]),
        ] {
            norm_or_dense(&format!("encoder.layer.{layer}.{part}"), shape);
        }
    }
    let mut rng = Rng::new(11);
    let random = |(name, shape): (String, Vec<usize>)| {
        let len = shape.iter().product();
        let center = if name.ends_with("LayerNorm.weight") { 1.0 } else { 0.0 };
        let values = (0..len).map(|_| center + (rng.next_f64() as f32 - 0.5));
        let values = values.collect();
        (name, (shape, values))
    };
    shapes.into_iter().map(random).collect()
}
