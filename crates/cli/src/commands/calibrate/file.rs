//! Facts of a cost model that a server's metrics report.

use headstart_loadgen::LoadgenError;

use crate::server::metrics_page;

/// Returns the tokens that fit the KV memory of the server at `url`, if its metrics say so: vLLM
/// reports blocks and their size, SGLang tokens.
///
/// # Errors
/// When no server answers there.
pub(super) async fn kv_tokens_of(url: &str) -> Result<Option<usize>, LoadgenError> {
    match metrics_page(url).await {
        // The server has no metrics or does not show them; that is no failure.
        Err(LoadgenError::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
        Ok(page) => Ok(kv_tokens(&page)),
    }
}

fn kv_tokens(page: &str) -> Option<usize> {
    page.lines().find_map(|line| {
        // vLLM puts the configuration into the labels of a gauge.
        if line.starts_with("vllm:cache_config_info{") {
            let blocks = label(line, "num_gpu_blocks")?;
            // A product beyond the type is no size of a memory.
            return blocks.checked_mul(label(line, "block_size")?);
        }
        let rest = line.strip_prefix("sglang:max_total_num_tokens")?;
        // The value is the last word: labels may hold spaces.
        let value = rest.split_whitespace().next_back()?;
        Some(value.parse::<f64>().ok()? as usize)
    })
}

fn label(line: &str, name: &str) -> Option<usize> {
    let (_, rest) = line.split_once(&format!("{name}=\""))?;
    rest.split_once('"')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use headstart_core::cost::roofline::{Gpu, ModelShape};

    use headstart_core::EngineModel;
    use headstart_report::calibrate::CostModelFile;

    use super::*;
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

    #[test]
    fn engines_say_their_memory() {
        let vllm = "vllm:cache_config_info{block_size=\"16\",cache_dtype=\"auto\",\
                    num_gpu_blocks=\"2000\"} 1.0";
        assert_eq!(kv_tokens(vllm), Some(32_000));
        let sglang = "# HELP x\nsglang:max_total_num_tokens{model_name=\"m\"} 123456.0";
        assert_eq!(kv_tokens(sglang), Some(123_456));
        assert_eq!(kv_tokens("vllm:cache_config_info{block_size=\"16\"} 1.0"), None);
        assert_eq!(kv_tokens(""), None);
        let most = vllm.replace("2000", &usize::MAX.to_string());
        assert_eq!(kv_tokens(&most), None);
    }
}
