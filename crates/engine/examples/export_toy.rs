//! Writes the built-in toy as a Hugging Face folder, for peers to run the same weights; or a wide
//! one, which computes little and keeps 64 KiB of keys and values a token, to fill large tiers.
//!
//! `cargo run --release -p headstart-engine --example export_toy -- DIR [wide]`

use std::path::Path;

use headstart_engine::ModelConfig;
use headstart_engine::kv::Dtype;
use headstart_engine::model::toy;

#[path = "../tests/suite/checkpoint.rs"]
mod checkpoint;

fn main() -> std::io::Result<()> {
    let Some(dir) = std::env::args().nth(1) else {
        println!("usage: export_toy DIR [wide]; no folder given, nothing written");
        return Ok(());
    };
    // Any words will do: weights do not depend on what the toy may say.
    let toy = toy::build(toy::config(), &[300], Some(4095), Dtype::F32);
    let model = match std::env::args().nth(2).as_deref() {
        Some("wide") => toy::with_config(wide(), toy.generation, Dtype::F32),
        _ => toy,
    };
    checkpoint::write(&model, Path::new(&dir))?;
    println!("wrote {dir}");
    Ok(())
}

/// 8 layers of width 256 with 16 key-value heads of 64.
fn wide() -> ModelConfig {
    ModelConfig { hidden: 256, intermediate: 256, num_heads: 16, num_kv_heads: 16, ..toy::config() }
}
