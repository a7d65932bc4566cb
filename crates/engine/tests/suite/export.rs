//! A model that is written as a folder and read back is the same model.

use headstart_engine::LanguageModel;
use headstart_engine::kv::Dtype;
use headstart_engine::model::{GenerationDefaults, toy};

use crate::{checkpoint, reference};

#[test]
fn what_is_exported_loads_as_the_same_model() {
    let mut config = toy::config();
    (config.hidden, config.intermediate, config.num_layers, config.vocab) = (64, 48, 2, 90);
    (config.num_heads, config.head_dim) = (4, 16);
    let model = toy::with_config(config, GenerationDefaults::default(), Dtype::F32);
    let dir = std::env::temp_dir().join(format!("headstart-export-{}", std::process::id()));
    checkpoint::write(&model, &dir).expect("writes");
    let loaded = LanguageModel::load(&dir, Dtype::F32).expect("loads");
    std::fs::remove_dir_all(&dir).expect("cleans up");
    let tokens: Vec<u32> = (0..40).map(|at| at * 7 % 90).collect();
    let logits = |model| reference::logits(model, &tokens);
    assert_eq!(logits(&model), logits(&loaded));
}
