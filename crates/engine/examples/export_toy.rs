//! Writes the built-in toy as a Hugging Face folder, for peers to run the same weights.
//!
//! `cargo run --release -p headstart-engine --example export_toy -- DIR`

use std::path::Path;

use headstart_engine::kv::Dtype;
use headstart_engine::model::toy;

fn main() -> std::io::Result<()> {
    let Some(dir) = std::env::args().nth(1) else {
        println!("usage: export_toy DIR; no folder given, nothing written");
        return Ok(());
    };
    // Any words will do: weights do not depend on what the toy may say.
    let model = toy::build(&[300], Some(4095), Dtype::F32);
    model.export(Path::new(&dir))?;
    println!("wrote {dir}");
    Ok(())
}
