//! The transformer encoder against a slow forward pass that anybody can check, on a tiny model
//! that is written here.

mod folder;
mod plain;

use std::fs;
use std::path::Path;

use headstart_predict::Encoder;
use headstart_predict::encoder::bert::{BertEncoder, BertOptions};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use folder::{Folder, HIDDEN, POSITIONS, Tensors, config, tensors, tokenizer};
use plain::Plain;

fn texts() -> Vec<String> {
    let long = "cats sat on the mat ".repeat(9);
    let texts = ["the cat", "", "Cats SAT, on: mat!", "\u{7}\u{0}\u{200b}", "🧿 数据 mat", &long];
    let mut texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
    texts.extend((1..40).map(|words| "the cat sat ".repeat(words)));
    texts
}

/// Opens `folder` and compares its vectors with the definition's.
fn check(folder: &Folder, plain: &Plain<'_>, tolerance: f64) {
    let encoder = folder.open();
    let texts = texts();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let vectors = encoder.encode(&texts);
    assert_eq!((encoder.dims(), vectors.len()), (HIDDEN, texts.len() * HIDDEN));
    for (text, vector) in texts.iter().zip(vectors.chunks(HIDDEN)) {
        let expected = plain.encode(&encoder.token_ids(text));
        for (found, expected) in vector.iter().zip(&expected) {
            let distance = (f64::from(*found) - expected).abs();
            assert!(distance < tolerance, "{text:?}: {found} is not {expected}");
        }
    }
}

const TOLERANCE: f64 = 3e-6;

#[test]
fn vectors_match_a_plain_forward() {
    let folder = Folder::new("plain");
    let mut tensors = tensors();
    for activation in ["gelu", "gelu_new", "relu"] {
        let mut config = config();
        config["hidden_act"] = json!(activation);
        folder.json("config.json", &config);
        let plain = Plain { tensors: &tensors, activation, first_token: false };
        check(&folder, &plain, TOLERANCE);
    }
    folder.json("config.json", &config());
    folder.json("1_Pooling/config.json", &json!({"pooling_mode_cls_token": true}));
    let plain = Plain { tensors: &tensors, activation: "gelu", first_token: true };
    check(&folder, &plain, TOLERANCE);
    let named = tensors.iter().map(|(name, tensor)| (format!("bert.{name}"), tensor.clone()));
    folder.weights(&named.collect(), Dtype::F32);
    check(&folder, &plain, TOLERANCE);
    // What both half types can hold.
    for (_, values) in tensors.values_mut() {
        values.iter_mut().for_each(|x| *x = (*x * 64.0).round() / 64.0);
    }
    let plain = Plain { tensors: &tensors, activation: "gelu", first_token: true };
    for dtype in [Dtype::F16, Dtype::BF16] {
        folder.weights(&tensors, dtype);
        check(&folder, &plain, TOLERANCE);
    }
}

#[test]
fn texts_are_cut_between_special_tokens() {
    let encoder = Folder::new("cut").open();
    assert_eq!(encoder.token_ids("The cats ZZ"), [2, 4, 5, 7, 1, 3]);
    assert_eq!(encoder.token_ids(""), [2, 3]);
    let ids = encoder.token_ids(&"cat ".repeat(1_000));
    assert_eq!((ids.len(), ids[0], ids[POSITIONS - 1]), (POSITIONS, 2, 3));
}

#[test]
fn neighbours_change_no_vector() {
    let encoder = Folder::new("neighbours").open();
    // More tokens than a batch takes, in every alignment.
    let texts: Vec<String> = (0..200).map(|i| "the cat sat ".repeat(i * 7 % 24)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let together = encoder.encode(&texts);
    for (text, vector) in texts.iter().zip(together.chunks(HIDDEN)) {
        for (alone, found) in encoder.encode(&[text]).iter().zip(vector) {
            assert!((alone - found).abs() < 1e-6, "{text:?}");
        }
    }
}

#[test]
fn strange_texts_have_vectors() {
    let encoder = Folder::new("strange").open();
    let megabyte = "x".repeat(1 << 20);
    let controls = "\u{1}\u{2}\u{feff}\u{202e}".repeat(1_000);
    let emoji = "👩‍👩‍👧‍👦".repeat(50_000);
    let texts = [&megabyte, &controls, &emoji, "\0", "\u{10ffff}", &" ".repeat(1 << 20)];
    assert!(encoder.encode(&[]).is_empty());
    for (index, vector) in encoder.encode(&texts).chunks(HIDDEN).enumerate() {
        let length: f32 = vector.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5, "text {index} has length {length}");
    }
}

#[test]
fn values_beyond_f32_make_a_vector_of_zeros() {
    let folder = Folder::new("beyond");
    let mut tensors = tensors();
    let (_, values) = tensors.get_mut("encoder.layer.1.output.LayerNorm.weight").unwrap();
    values.fill(f32::MAX);
    folder.weights(&tensors, Dtype::F32);
    assert_eq!(folder.open().encode(&["the cat"]), [0.0; HIDDEN]);
}

#[test]
fn the_prefix_is_the_folders_or_the_callers() {
    let check = |config_name: &str, prompts: Option<Value>, expected: &str| {
        let folder = Folder::new("prefix");
        let mut config = config();
        config["_name_or_path"] = json!(config_name);
        folder.json("config.json", &config);
        if let Some(prompts) = prompts {
            folder.json("config_sentence_transformers.json", &prompts);
        }
        let encoder = folder.open();
        let identity = encoder.identity();
        let end = format!("prefix {expected:?}");
        assert!(identity.ends_with(&end), "{identity} of {config_name}");
        let plain = BertOptions { prefix: Some(String::new()) };
        let plain = BertEncoder::open_with(&folder.0, plain).unwrap();
        let prefixed = format!("{expected}cat");
        assert_eq!(encoder.token_ids("cat"), plain.token_ids(&prefixed));
    };
    check("nreimers/MiniLM-L6-H384-uncased", None, "");
    check("intfloat/multilingual-e5-small", None, "query: ");
    check("he5/l", None, "");
    let prompts = json!({"prompts": {"query": "query: the ", "document": "sat"}});
    check("", Some(prompts), "query: the ");
    let prompts = json!({"prompts": {"cat": "mat: "}, "default_prompt_name": "cat"});
    check("e5", Some(prompts), "mat: ");
}

#[test]
fn the_identity_follows_the_weights() {
    let folder = Folder::new("identity");
    let first = folder.open().identity().to_owned();
    assert_eq!(first, folder.open().identity());
    let mut tensors = tensors();
    let (_, values) = tensors.get_mut("embeddings.LayerNorm.bias").unwrap();
    values[0] += 1.0;
    folder.weights(&tensors, Dtype::F32);
    assert_ne!(first, folder.open().identity());
}

/// Checks that the folder is refused after `edit`, with a message that contains all of `expected`.
fn refused(name: &str, edit: impl Fn(&Folder), expected: &[&str]) {
    let folder = Folder::new(name);
    edit(&folder);
    let error = BertEncoder::open(&folder.0).expect_err(name).to_string();
    for part in expected {
        assert!(error.contains(part), "{name}: {error}");
    }
}

fn with_config(name: &str, key: &str, value: Value, expected: &[&str]) {
    let edit = |folder: &Folder| {
        let mut config = config();
        config[key] = value.clone();
        folder.json("config.json", &config);
    };
    refused(name, edit, expected);
}

#[test]
fn other_models_are_refused_by_name() {
    let relative = json!("relative_key");
    with_config("roberta", "model_type", json!("xlm-roberta"), &["model_type", "xlm-roberta"]);
    with_config("classes", "architectures", json!(["MPNetModel"]), &["MPNetModel"]);
    with_config("relative", "position_embedding_type", relative, &["relative_key"]);
    with_config("decoder", "is_decoder", json!(true), &["is_decoder"]);
    with_config("silu", "hidden_act", json!("silu"), &["hidden_act", "silu"]);
    let dense = json!([{"type": "sentence_transformers.models.Dense"}]);
    let edit = |folder: &Folder| folder.json("modules.json", &dense);
    refused("dense", edit, &["modules.json", "models.Dense"]);
    let max = json!({"pooling_mode_max_tokens": true, "pooling_mode_mean_tokens": true});
    let edit = |folder: &Folder| folder.json("1_Pooling/config.json", &max);
    refused("max", edit, &["1_Pooling", "max_tokens"]);
}

#[test]
fn files_that_do_not_fit_are_refused_by_name() {
    with_config("heads", "num_attention_heads", json!(7), &["hidden_size 20", "7 heads"]);
    with_config("zero", "num_attention_heads", json!(0), &["num_attention_heads", "not 0"]);
    with_config("huge", "hidden_size", json!(u64::MAX), &["hidden_size"]);
    with_config("words", "vocab_size", json!(500), &["word_embeddings", "[12, 20]", "[500, 20]"]);
    with_config("layers", "num_hidden_layers", json!(3), &["encoder.layer.2."]);
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        let gone = |folder: &Folder| fs::remove_file(folder.0.join(file)).unwrap();
        refused("gone", gone, &["cannot read", file]);
        let empty = |folder: &Folder| fs::write(folder.0.join(file), "{").unwrap();
        refused("torn", empty, &[file, "malformed"]);
    }
    let short = |folder: &Folder| {
        let path = folder.0.join("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        fs::write(path, &bytes[..bytes.len() - 1]).unwrap();
    };
    refused("short", short, &["model.safetensors", "malformed"]);
}

#[test]
fn damaged_tensors_are_refused_by_name() {
    const NAME: &str = "encoder.layer.1.output.dense.bias";
    let edit = |change: fn(&mut Tensors), dtype: Dtype| {
        move |folder: &Folder| {
            let mut tensors = tensors();
            change(&mut tensors);
            folder.weights(&tensors, dtype);
        }
    };
    let missing = edit(|tensors| drop(tensors.remove(NAME)), Dtype::F32);
    refused("missing", missing, &["no tensor", NAME]);
    let nan = edit(|tensors| tensors.get_mut(NAME).unwrap().1[3] = f32::NAN, Dtype::F32);
    refused("nan", nan, &[NAME, "no finite numbers"]);
    let transposed = edit(
        |tensors| {
            let name = "encoder.layer.0.output.dense.weight";
            tensors.get_mut(name).unwrap().0.reverse();
        },
        Dtype::F32,
    );
    refused("transposed", transposed, &["layer.0.output.dense", "[28, 20]", "[20, 28]"]);
    refused("whole", edit(|_| {}, Dtype::I32), &["I32"]);
}

#[test]
fn tokenizers_that_do_not_fit_are_refused() {
    let with = |change: fn(&mut Value)| {
        move |folder: &Folder| {
            let mut tokenizer = tokenizer();
            change(&mut tokenizer);
            folder.json("tokenizer.json", &tokenizer);
        }
    };
    let high = with(|tokenizer| tokenizer["model"]["vocab"]["dog"] = json!(12));
    refused("high", high, &["tokenizer.json", "token id 12", "12 embeddings"]);
    let unknown = with(|tokenizer| tokenizer["model"]["unk_token"] = json!("<oops>"));
    refused("unknown", unknown, &["tokenizer.json", "malformed"]);
    let none = |folder: &Folder| {
        let mut config = config();
        config["max_position_embeddings"] = json!(2);
        folder.json("config.json", &config);
        let mut tensors = tensors();
        let positions = "embeddings.position_embeddings.weight";
        tensors.insert(positions.into(), (vec![2, HIDDEN], vec![0.0; 2 * HIDDEN]));
        folder.weights(&tensors, Dtype::F32);
    };
    refused("none", none, &["2 special tokens", "2 positions"]);
}

/// The checks of the real model live in tools/encoder; this one runs only where its folder is set.
#[test]
fn a_real_model_tells_related_texts() {
    let Some(folder) = std::env::var_os("HEADSTART_ENCODER") else {
        eprintln!("SKIPPED: set HEADSTART_ENCODER to a folder with a BERT sentence encoder");
        return;
    };
    let encoder = BertEncoder::open(Path::new(&folder)).unwrap();
    let texts = ["How do I bake bread?", "A recipe for a loaf", "The kernel panics at boot"];
    let vectors = encoder.encode(&texts);
    let vectors: Vec<&[f32]> = vectors.chunks(encoder.dims()).collect();
    let cosine = |a: usize, b: usize| -> f32 {
        let terms = vectors[a].iter().zip(vectors[b]);
        terms.map(|(a, b)| a * b).sum()
    };
    assert!(cosine(0, 1) > cosine(0, 2) && cosine(0, 1) > cosine(1, 2));
}
