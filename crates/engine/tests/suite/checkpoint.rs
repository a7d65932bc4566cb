//! Writing a model as a Hugging Face folder, so that peers can run the same weights.

use std::collections::BTreeMap;
use std::path::Path;

use headstart_engine::LanguageModel;
use headstart_engine::config::Family;
use headstart_engine::cpu::linear::Linear;
use headstart_engine::kv::Numbers;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;

/// A tensor by name: shape and little-endian f32.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

/// Writes `config.json`, `generation_config.json` and `model.safetensors` (f32) into `dir`.
/// Of the families, Llama only: the toy is one.
///
/// # Errors
/// When a file cannot be written, or the family is another.
pub(crate) fn write(model: &LanguageModel, dir: &Path) -> std::io::Result<()> {
    if model.config.family != Family::Llama || model.config.rope.llama3.is_some() {
        return Err(std::io::Error::other("only plain Llama models are exported"));
    }
    std::fs::create_dir_all(dir)?;
    let tensors = tensors(model);
    let views = tensors.iter().map(|(name, (shape, bytes))| {
        let view = TensorView::new(Dtype::F32, shape.clone(), bytes);
        (name, view.expect("shape and bytes agree"))
    });
    let bytes = safetensors::serialize(views, None).map_err(std::io::Error::other)?;
    std::fs::write(dir.join("model.safetensors"), bytes)?;
    std::fs::write(dir.join("config.json"), config_json(model).to_string())?;
    let generation = json!({"eos_token_id": &*model.generation.stop_tokens});
    std::fs::write(dir.join("generation_config.json"), generation.to_string())
}

fn config_json(model: &LanguageModel) -> serde_json::Value {
    let config = &model.config;
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": config.hidden, "intermediate_size": config.intermediate,
        "num_hidden_layers": config.num_layers, "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads, "head_dim": config.head_dim,
        "vocab_size": config.vocab, "max_position_embeddings": config.max_context,
        "rms_norm_eps": config.rms_eps, "rope_theta": config.rope.theta,
        "tie_word_embeddings": config.tied, "attention_bias": false, "mlp_bias": false,
        "eos_token_id": &*model.generation.stop_tokens, "dtype": "float32",
    })
}

fn tensors(model: &LanguageModel) -> Tensors {
    let config = &model.config;
    let (hidden, wide, vocab) = (config.hidden, config.intermediate, config.vocab);
    let (q, kv) = (config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim);
    let mut tensors = Tensors::new();
    let mut put = |name: String, shape: &[usize], values: &[f32]| {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        tensors.insert(name, (shape.to_vec(), bytes));
    };
    put("model.embed_tokens.weight".to_owned(), &[vocab, hidden], &whole(&model.embedding));
    put("model.norm.weight".to_owned(), &[hidden], &model.final_norm);
    if let Some(head) = &model.head {
        put("lm_head.weight".to_owned(), &[vocab, hidden], &whole(head));
    }
    for (index, layer) in model.layers.iter().enumerate() {
        let name = |part: &str| format!("model.layers.{index}.{part}.weight");
        put(name("input_layernorm"), &[hidden], &layer.attention_norm);
        put(name("post_attention_layernorm"), &[hidden], &layer.feed_forward_norm);
        let matrices: [(&Linear, &[(&str, usize)]); 4] = [
            (
                &layer.qkv,
                &[("self_attn.q_proj", q), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv)],
            ),
            (&layer.output, &[("self_attn.o_proj", hidden)]),
            (&layer.gate_up, &[("mlp.gate_proj", wide), ("mlp.up_proj", wide)]),
            (&layer.down, &[("mlp.down_proj", hidden)]),
        ];
        for (matrix, parts) in matrices {
            // Projections of one input are side by side here; a checkpoint has them apart.
            let mut first = 0;
            for &(part, n) in parts {
                let (k, rows) = matrix.columns_as_rows(first, n);
                put(name(part), &[n, k], &rows);
                first += n;
            }
        }
    }
    tensors
}

fn whole(numbers: &Numbers) -> Vec<f32> {
    numbers.widen(0..numbers.len(), &mut Vec::new()).to_vec()
}
