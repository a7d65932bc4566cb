//! Facts of a cost model that a server's metrics report.

use headstart_loadgen::LoadgenError;

use crate::engine::EnginePages;

/// Returns the tokens that fit the KV memory of the server at `url`, if its metrics say so: vLLM
/// reports blocks and their size, SGLang tokens.
///
/// # Errors
/// When no server answers there.
pub(super) async fn kv_tokens_of(url: &str) -> Result<Option<usize>, LoadgenError> {
    Ok(EnginePages::read(url, None).await?.facts().kv_tokens())
}

#[cfg(test)]
mod tests {
    use headstart_core::cost::roofline::{Gpu, ModelShape};

    use headstart_core::EngineModel;
    use headstart_report::calibrate::CostModelFile;

    use crate::config::cost_model;

    #[test]
    fn what_is_written_can_be_read() {
        let model = ModelShape::find("qwen3-8b").expect("known");
        let gpu = Gpu::find("a100").expect("known");
        let engine = EngineModel::derived(&model, &gpu, 1).expect("it fits");
        let written = CostModelFile {
            told: vec!["derived".to_owned()],
            engine,
            max_sequences: 256,
            latency_s: 0.002,
        };
        let name = format!("headstart-calibrate-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, written.to_toml()).expect("written");
        let read = cost_model::read(&path).expect("valid");
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!((read.max_sequences, read.latency_s), (256, 0.002));
        assert_eq!(read.engine.kv_tokens, engine.kv_tokens);
        let ratio = read.engine.cost.token_s / engine.cost.token_s;
        assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
    }
}
