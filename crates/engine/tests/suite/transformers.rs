//! Logits and greedy answers equal those of Python `transformers` on tiny random checkpoints of
//! every family (`tools/reference/make_checkpoints.py` wrote checkpoints and expectations).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use headstart_core::{BlockId, SeqId, TokenId};
use headstart_engine::kv::Dtype;
use headstart_engine::sampler::greedy;
use headstart_engine::{CpuExecutor, LanguageModel, LoadError, Sampling};
use headstart_scheduler::{Batch, Entry};
use serde_json::Value;

use crate::reference;

/// Largest difference of a logit, relative to the largest logit.
const TOLERANCE: f32 = 1e-4;

const BLOCK_SIZE: usize = 16;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checkpoints").join(name)
}

fn numbers(value: &Value) -> Vec<f32> {
    let values = value.as_array().expect("a list of numbers");
    values.iter().map(|number| number.as_f64().expect("a number") as f32).collect()
}

fn tokens(value: &Value) -> Vec<TokenId> {
    let values = value.as_array().expect("a list of tokens");
    values.iter().map(|token| token.as_u64().expect("a token") as TokenId).collect()
}

fn assert_close(got: &[f32], expected: &[f32], what: &str) -> f32 {
    let scale = expected.iter().fold(0.0f32, |scale, x| scale.max(x.abs()));
    let pairs = got.iter().zip(expected);
    let error = pairs.fold(0.0f32, |error, (a, b)| error.max((a - b).abs())) / scale;
    assert!(got.len() == expected.len() && error <= TOLERANCE, "{what}: off by {error}");
    error * scale
}

/// Logits of the last of `tokens`, at `start` of a sequence in the first blocks.
fn step(executor: &mut CpuExecutor, tokens: &[TokenId], start: usize) -> Vec<f32> {
    let blocks = (0..(start + tokens.len()).div_ceil(BLOCK_SIZE) as u32).map(BlockId).collect();
    let sampling = Some(Sampling::default());
    let entry =
        Entry { seq: SeqId(0), tokens: tokens.to_vec(), start, blocks, sampling, pruned: None };
    executor.logits(&Batch { entries: vec![entry], ..Batch::default() })
}

fn check(name: &str) {
    let dir = folder(name);
    let model = Arc::new(LanguageModel::load(&dir, Dtype::F32).expect("the checkpoint loads"));
    let text = std::fs::read(dir.join("expected.json")).expect("expectations are committed");
    let expected: Value = serde_json::from_slice(&text).expect("expectations parse");
    for case in expected["cases"].as_array().expect("cases") {
        let prompt = tokens(&case["tokens"]);
        let plain = reference::logits(&model, &prompt);
        for (row, logits) in case["logits_rows"].as_object().expect("rows") {
            let at = row.parse::<usize>().expect("a row") * model.config.vocab;
            assert_close(&plain[at..at + model.config.vocab], &numbers(logits), name);
        }
        let mut executor = CpuExecutor::new(model.clone(), Dtype::F32, 32, BLOCK_SIZE);
        let mut logits = step(&mut executor, &prompt, 0);
        let error = assert_close(&logits, &numbers(&case["logits_last"]), name);
        let gaps = numbers(&case["greedy_gap"]);
        for (at, (token, gap)) in tokens(&case["greedy"]).into_iter().zip(gaps).enumerate() {
            assert!(gap > 2.0 * error, "{name}: the script leaves wide gaps");
            assert_eq!(greedy(&logits, &[]), Some(token), "{name}: greedy token {at}");
            logits = step(&mut executor, &[token], prompt.len() + at);
        }
    }
}

#[test]
fn every_family_gives_the_logits_of_transformers() {
    for name in ["llama", "llama3-rope", "llama-sharded", "qwen2", "qwen3"] {
        check(name);
    }
}

#[test]
fn bf16_weights_stay_near_f32() {
    for name in ["llama", "qwen3"] {
        let tokens: Vec<TokenId> = (0..60).map(|i| (i * 37 + 11) % 160).collect();
        let logits = |dtype| {
            let model =
                Arc::new(LanguageModel::load(&folder(name), dtype).expect("the checkpoint loads"));
            let mut executor = CpuExecutor::new(model, dtype, 32, BLOCK_SIZE);
            step(&mut executor, &tokens, 0)
        };
        let (exact, rounded) = (logits(Dtype::F32), logits(Dtype::Bf16));
        let scale = exact.iter().fold(0.0f32, |scale, x| scale.max(x.abs()));
        let pairs = exact.iter().zip(&rounded);
        let error = pairs.fold(0.0f32, |error, (a, b)| error.max((a - b).abs())) / scale;
        // bf16 keeps 8 bits: one part in 256 per rounding, over two layers.
        assert!(error > 1e-5 && error < 0.05, "{name}: off by {error}");
    }
}

#[test]
fn unusable_folders_are_refused_by_name() {
    let fails = |name: &str, part: &str| {
        let error =
            LanguageModel::load(&folder(name), Dtype::F32).expect_err("must not load").to_string();
        assert!(error.contains(part), "{error}");
    };
    fails("unsupported", "MambaForCausalLM");
    fails("absent", "config.json");
    let dir = std::env::temp_dir().join(format!("headstart-load-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary folder");
    std::fs::copy(folder("llama").join("config.json"), dir.join("config.json")).expect("copies");
    let load = || LanguageModel::load(&dir, Dtype::F32).expect_err("must not load");
    assert!(matches!(load(), LoadError::NoWeights(_)));
    let whole = std::fs::read(folder("llama").join("model.safetensors")).expect("reads");
    let weights = dir.join("model.safetensors");
    std::fs::write(&weights, &whole[..whole.len() / 2]).expect("writes");
    assert!(matches!(load(), LoadError::Weights { .. }));
    std::fs::copy(folder("qwen3").join("model.safetensors"), &weights).expect("copies");
    assert!(matches!(load(), LoadError::Shape { .. } | LoadError::MissingTensor(_)));
    std::fs::remove_dir_all(&dir).expect("cleans up");
}
