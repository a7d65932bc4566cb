//! Bytes of keys and values per token, from a model's `config.json`.
//!
//! Source: the configuration classes of Hugging Face `transformers`, and what the serving
//! engines store: all key and value heads of every layer, or, under multi-head latent attention
//! (DeepSeek-V2), one latent and one rotary key per layer.
//!
//! Only models whose layers all keep every token have such a number. The others (sliding
//! windows, linear attention, state spaces, cross attention) are refused by the field that shows
//! them. The number is that of one replica, all its GPUs together, without padding or scales
//! that an engine may add.

use headstart_core::UsageError;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

/// Longest `config.json` that is read; the largest known have some 100 KiB.
const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// Layers, heads and widths beyond this are no model's, and would overflow.
const DIMENSION_MAX: u64 = 1 << 20;

/// Fields that hold the text configuration of multimodal models.
const NESTED: &[&str] = &["text_config", "llm_config", "language_config", "thinker_config"];

/// Fields that show layers without one size per token, and what they are.
const NOT_PER_TOKEN: &[(&str, &str)] = &[
    ("attention_chunk_size", "layers that attend to chunks"),
    ("attn_layer_indices", "layers without attention"),
    ("attn_layer_period", "layers without attention"),
    ("attn_type_list", "layers with linear attention"),
    ("block_configs", "layers of different shapes"),
    ("block_types", "layers without attention"),
    ("cla_share_factor", "layers that share keys and values"),
    ("conv_L_cache", "layers of convolution"),
    ("cross_attention_layers", "layers that attend to images"),
    ("full_attn_idxs", "layers without attention"),
    ("full_attention_interval", "layers with linear attention"),
    ("hybrid_override_pattern", "layers without attention"),
    ("index_topk", "an index beside the keys, whose layout is the engine's choice"),
    ("layers_block_type", "layers without attention"),
    ("linear_attn_config", "layers with linear attention"),
    ("num_key_value_heads_per_layer", "layers of different shapes"),
    ("num_kv_shared_layers", "layers that share keys and values"),
    ("sliding_window_pattern", "layers with a sliding window"),
];

/// Beginnings of the names of such fields.
const NOT_PER_TOKEN_PREFIXES: &[(&str, &str)] = &[
    ("linear_", "layers with linear attention"),
    ("mamba_", "state-space layers"),
    ("rwkv", "recurrent layers"),
    ("ssm_", "state-space layers"),
];

/// Beginnings of the model types that have no attention at all.
const STATE_ONLY: &[&str] = &["mamba", "falcon_mamba", "rwkv"];

/// Size of a token's keys and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvBytes {
    /// Bytes per token, all layers together.
    pub per_token: u64,
    /// Derivation of the size, for the reader of a report.
    pub shape: String,
}

/// Storage type of keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvDtype {
    name: &'static str,
    bytes: u64,
}

impl KvDtype {
    const ALL: [Self; 5] = [
        Self::new("f32", 4),
        Self::new("f16", 2),
        Self::new("bf16", 2),
        Self::new("fp8", 1),
        Self::new("int8", 1),
    ];

    const fn new(name: &'static str, bytes: u64) -> Self {
        Self { name, bytes }
    }

    /// By the name that PyTorch gives it.
    fn of_torch(name: &str) -> Option<Self> {
        // Older releases of `transformers` write `torch.float16`, newer ones `float16`.
        match name.strip_prefix("torch.").unwrap_or(name) {
            "float32" | "float" => "f32",
            "float16" | "half" => "f16",
            "bfloat16" => "bf16",
            "float8_e4m3fn" | "float8_e5m2" => "fp8",
            _ => return None,
        }
        .parse()
        .ok()
    }
}

impl std::str::FromStr for KvDtype {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|dtype| dtype.name == name);
        let names = Self::ALL.map(|dtype| dtype.name).join(", ");
        found.ok_or_else(|| format!("`{name}` is not known; known: {names}"))
    }
}

impl KvBytes {
    /// Reads `path`, a `config.json` or the folder that holds one. `dtype` replaces the type that
    /// the file names.
    ///
    /// # Errors
    /// When the file cannot be read, or the model has no single size per token.
    pub fn of_model(path: &Path, dtype: Option<KvDtype>) -> Result<Self, UsageError> {
        let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
        let wrong = |reason: String| UsageError(format!("--model {}: {reason}", file.display()));
        let mut text = String::new();
        let read = File::open(&file)
            // A limit instead of the file's length: the path may be a pipe or a huge file.
            .and_then(|file| file.take(CONFIG_BYTES_MAX).read_to_string(&mut text));
        read.map_err(|error| {
            wrong(format!("{error}; expected a folder with a config.json, or the file"))
        })?;
        let config: Value =
            serde_json::from_str(&text).map_err(|error| wrong(format!("not JSON: {error}")))?;
        Self::of(&config, dtype).map_err(wrong)
    }

    /// Reads a parsed `config.json`; `dtype` goes before what it says itself.
    fn of(config: &Value, dtype: Option<KvDtype>) -> Result<Self, String> {
        // Multimodal models nest the language model's fields; those outside describe other parts.
        let text = text_part(config);
        if config["is_encoder_decoder"].as_bool() == Some(true) {
            return Err(no_single_size("is_encoder_decoder", "keys of the encoder's"));
        }
        // Hybrids also have layers and heads, so they are refused before a size is computed.
        refuse_hybrids(text)?;
        // The flag wins: an engine can store another type than the checkpoint names.
        let (dtype, from) = match dtype {
            Some(dtype) => (dtype, ""),
            None => match quantized(text, config)? {
                Some(dtype) => (dtype, " (8 bits by `kv_cache_scheme`)"),
                None => (own_dtype(text, config)?, ""),
            },
        };
        let layers = number(text, &["num_hidden_layers", "n_layer", "n_layers", "num_layers"])?;
        let (values, shape) = values_per_layer(text)?;
        let name = dtype.name;
        Ok(Self {
            per_token: layers * values * dtype.bytes,
            shape: format!("{layers} layers × {shape}, {name}{from}"),
        })
    }
}

/// The configuration of the language model itself.
fn text_part(config: &Value) -> &Value {
    let nested = NESTED.iter().map(|name| &config[name]);
    match nested.into_iter().find(|nested| nested.is_object()) {
        Some(nested) => text_part(nested),
        None => config,
    }
}

/// Values that one layer stores per token, and how they come about.
fn values_per_layer(text: &Value) -> Result<(u64, String), String> {
    // Multi-head latent attention stores one latent for all heads, and keys and values share it.
    if let Some(rank) = optional(text, &["kv_lora_rank"])? {
        let rotary = number(text, &["qk_rope_head_dim"])?;
        return Ok((rank + rotary, format!("({rank} latent + {rotary} rotary)")));
    }
    let heads = number(text, &["num_attention_heads", "n_head", "n_heads"])?;
    let kv_heads = kv_heads(text, heads)?;
    // `head_dim` goes first: some models have wider heads than their share of the hidden size.
    let width = match optional(text, &["head_dim", "kv_channels", "attention_head_dim"])? {
        Some(width) => width,
        None => width_of_share(text, heads)?,
    };
    // Some models have values that are narrower than their keys.
    match optional(text, &["v_head_dim"])?.filter(|&values| values != width) {
        None => {
            let shape = format!("2 × {kv_heads} heads × {width}");
            Ok((2 * kv_heads * width, shape))
        }
        Some(values) => {
            let shape = format!("{kv_heads} heads × ({width} + {values})");
            Ok((kv_heads * (width + values), shape))
        }
    }
}

/// The width of a head where the hidden values are dealt out among them.
fn width_of_share(text: &Value, heads: u64) -> Result<u64, String> {
    let names = ["hidden_size", "n_embd", "d_model"];
    let hidden = number(text, &names)?;
    // Without this a rounded-down width would give a plausible but wrong size.
    if hidden.is_multiple_of(heads) {
        return Ok(hidden / heads);
    }
    let name = present(text, &names).unwrap_or_default();
    Err(format!(
        "`{name}` is {hidden}, no multiple of the {heads} attention heads, and `head_dim` is \
         missing"
    ))
}

/// Key-value heads, by the names that several families have for them.
fn kv_heads(text: &Value, heads: u64) -> Result<u64, String> {
    let is = |name: &str| text[name].as_bool() == Some(true);
    // Falcon's old form and StarCoder's share one head; Falcon's new one names how many.
    if is("multi_query") && !is("new_decoder_architecture") {
        return Ok(1);
    }
    if is("multi_query_attention") {
        return number(text, &["multi_query_group_num"]);
    }
    // MPT and DBRX nest the count.
    if let Some(kv_heads) = optional(&text["attn_config"], &["kv_n_heads"])? {
        return Ok(kv_heads);
    }
    let named = ["num_key_value_heads", "num_kv_heads", "n_head_kv"];
    // Without a count of its own each attention head has its own keys and values.
    let kv_heads = optional(text, &named)?.unwrap_or(heads);
    // The names may belong to another part of a model; a larger number cannot be right.
    if kv_heads > heads {
        let name = present(text, &named).unwrap_or_default();
        return Err(format!("`{name}` is {kv_heads}, more than the {heads} attention heads"));
    }
    Ok(kv_heads)
}

fn refuse_hybrids(text: &Value) -> Result<(), String> {
    let model_type = text["model_type"].as_str().unwrap_or_default();
    // These have no attention at all, and may have no field of the lists below.
    if STATE_ONLY.iter().any(|kind| model_type.starts_with(kind)) {
        return Err(format!(
            "`model_type` is `{model_type:.40}`, which has no KV cache per token; give the \
             capacity in blocks or tokens instead (6000, 160Ktok)"
        ));
    }
    for &(field, what) in NOT_PER_TOKEN {
        if is_set(&text[field]) {
            return Err(no_single_size(field, what));
        }
    }
    // Families name these fields differently, so any field with such a beginning counts.
    for (field, _) in text.as_object().into_iter().flatten().filter(|entry| is_set(entry.1)) {
        let known = NOT_PER_TOKEN_PREFIXES.iter();
        let mut found = known.filter(|(prefix, _)| field.starts_with(prefix));
        if let Some((_, what)) = found.next() {
            return Err(no_single_size(field, what));
        }
    }
    let types = text["layer_types"].as_array().into_iter().flatten();
    // One layer of another type is enough: then layers differ in what they keep of a token.
    let mut others = types.filter(|name| !matches!(name.as_str(), Some("full_attention")));
    if let Some(other) = others.next() {
        return Err(no_single_size("layer_types", &format!("layers of type {other}")));
    }
    // Qwen2 writes a window and turns it off by `use_sliding_window`.
    let is_off = text["use_sliding_window"].as_bool() == Some(false);
    let context = text["max_position_embeddings"].as_u64().unwrap_or(u64::MAX);
    match text["sliding_window"].as_u64() {
        // A window as long as the context never cuts anything. `layer_types` was judged above.
        Some(window) if !is_off && window < context && text["layer_types"].is_null() => {
            Err(no_single_size("sliding_window", "layers with a sliding window"))
        }
        _ => Ok(()),
    }
}

/// Configurations write defaults out: nothing, none and an empty list say nothing.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        value => value.as_u64() != Some(0),
    }
}

fn no_single_size(field: &str, what: &str) -> String {
    format!(
        "`{field}` tells of {what}, so a token has no one size in bytes; give the capacity in \
         blocks or tokens instead (6000, 160Ktok)"
    )
}

/// Returns the quantization of keys and values in the checkpoint, if any.
fn quantized(text: &Value, config: &Value) -> Result<Option<KvDtype>, String> {
    // Multimodal files have the scheme outside or inside the text part.
    let scheme = |place: &'_ Value| place["quantization_config"]["kv_cache_scheme"].clone();
    let schemes = [scheme(text), scheme(config)];
    let Some(scheme) = schemes.iter().find(|scheme| !scheme.is_null()) else {
        return Ok(None);
    };
    let name = match scheme["type"].as_str() {
        Some("int") => "int8",
        _ => "fp8",
    };
    match &scheme["num_bits"] {
        bits if bits.as_u64() == Some(8) => name.parse().map(Some),
        bits => Err(format!("`kv_cache_scheme` has {bits:.40} for `num_bits`; give --kv-dtype")),
    }
}

fn own_dtype(text: &Value, config: &Value) -> Result<KvDtype, String> {
    // The text part names its own type first; newer releases write `dtype`.
    let places =
        [text, config].into_iter().flat_map(|place| [&place["dtype"], &place["torch_dtype"]]);
    let name = places.into_iter().find_map(Value::as_str);
    let known = name.and_then(KvDtype::of_torch);
    known.ok_or_else(|| match name {
        Some(name) => format!("`torch_dtype` is `{name}`; give --kv-dtype"),
        None => "neither `dtype` nor `torch_dtype` is there; give --kv-dtype".to_owned(),
    })
}

/// The first of `names` that is there; `null` counts as absent.
fn present<'a>(text: &Value, names: &[&'a str]) -> Option<&'a str> {
    names.iter().copied().find(|&name| !text[name].is_null())
}

/// The number under the first of `names` that is there.
fn optional(text: &Value, names: &[&str]) -> Result<Option<u64>, String> {
    let Some(name) = present(text, names) else {
        return Ok(None);
    };
    let value = &text[name];
    // Zero would divide or multiply to nothing; the upper limit keeps products within 64 bits.
    let fits = |value: &u64| (1..=DIMENSION_MAX).contains(value);
    match value.as_u64().filter(fits) {
        Some(value) => Ok(Some(value)),
        None => {
            Err(format!("`{name}` is {value:.40}; expected a number from 1 to {DIMENSION_MAX}"))
        }
    }
}

fn number(text: &Value, names: &[&str]) -> Result<u64, String> {
    optional(text, names)?.ok_or_else(|| {
        let names = names.join("` or `");
        format!("`{names}` is missing; is this the config.json of a language model?")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(config: &Value, dtype: &str, expected: Result<u64, &str>) {
        let dtype = dtype.parse().ok();
        match (KvBytes::of(config, dtype), expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got.per_token, expected, "{}", got.shape),
            (Err(got), Err(part)) => assert!(got.contains(part), "{got}"),
            (got, expected) => panic!("{config}: {got:?} against {expected:?}"),
        }
    }

    /// `config` with the fields of `changes`.
    fn with(config: &Value, changes: &Value) -> Value {
        let mut config = config.clone();
        for (name, value) in changes.as_object().expect("an object") {
            config[name] = value.clone();
        }
        config
    }

    /// Llama 3 70B.
    fn llama() -> Value {
        json!({
            "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "num_hidden_layers": 80,
            "num_attention_heads": 64, "num_key_value_heads": 8, "torch_dtype": "bfloat16",
        })
    }

    #[test]
    fn well_known_shapes_take_what_they_take() {
        // 80 × 2 × 8 × 128 × 2.
        check(&llama(), "", Ok(327_680));
        check(&llama(), "fp8", Ok(163_840));
        check(&llama(), "f32", Ok(655_360));
        // Qwen2 7B: 28 × 2 × 4 × 128 × 2; the window is written down and not used.
        let qwen = json!({
            "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
            "num_key_value_heads": 4, "torch_dtype": "bfloat16", "max_window_layers": 28,
            "sliding_window": 131_072, "use_sliding_window": false,
        });
        check(&qwen, "", Ok(57_344));
        // DeepSeek-V3: 61 × (512 + 64) × 2.
        let deepseek = json!({
            "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
            "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128, "v_head_dim": 128, "torch_dtype": "bfloat16",
        });
        check(&deepseek, "", Ok(70_272));
        check(&deepseek, "fp8", Ok(35_136));
        // GPT-2: 12 × 2 × 12 × 64 × 4.
        let gpt2 = json!({"n_layer": 12, "n_head": 12, "n_embd": 768});
        check(&gpt2, "f32", Ok(73_728));
        // Qwen3 0.6B: head_dim is not hidden / heads. 28 × 2 × 8 × 128 × 2.
        let qwen3 = json!({
            "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
            "num_key_value_heads": 8, "head_dim": 128, "dtype": "bfloat16",
        });
        check(&qwen3, "", Ok(114_688));
        // Falcon 7B, one shared head: 32 × 2 × 1 × 64 × 2.
        let falcon = json!({
            "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
            "multi_query": true, "new_decoder_architecture": false, "torch_dtype": "bfloat16",
        });
        check(&falcon, "", Ok(8_192));
        // ChatGLM3 6B, two groups: 28 × 2 × 2 × 128 × 2.
        let glm = json!({
            "num_layers": 28, "num_attention_heads": 32, "kv_channels": 128,
            "multi_query_attention": true, "multi_query_group_num": 2, "torch_dtype": "float16",
        });
        check(&glm, "", Ok(28_672));
    }

    #[test]
    fn what_sees_pictures_is_read_by_its_text_part() {
        let nested = json!({"vision_config": {"num_hidden_layers": 2}, "text_config": llama()});
        check(&nested, "", Ok(327_680));
        let deeper = json!({"thinker_config": {"text_config": llama()}});
        check(&deeper, "", Ok(327_680));
        let mut text = llama();
        text["torch_dtype"] = Value::Null;
        let outside = json!({"text_config": text, "torch_dtype": "float32"});
        check(&outside, "", Ok(655_360));
    }

    #[test]
    fn keys_and_values_may_differ_in_width_and_null_is_absent() {
        let wide = with(&llama(), &json!({"head_dim": 192, "v_head_dim": 128}));
        check(&wide, "", Ok(80 * 8 * (192 + 128) * 2));
        let null = with(&llama(), &json!({"head_dim": null, "sliding_window": null}));
        check(&null, "", Ok(327_680));
    }

    #[test]
    fn a_quantized_cache_is_known_by_its_scheme_unless_told_otherwise() {
        let scheme = |bits: u32, kind: &str| {
            let scheme = json!({"num_bits": bits, "type": kind});
            let config = json!({"quantization_config": {"kv_cache_scheme": scheme}});
            with(&llama(), &config)
        };
        check(&scheme(8, "float"), "", Ok(163_840));
        check(&scheme(8, "float"), "bf16", Ok(327_680));
        check(&scheme(4, "int"), "", Err("give --kv-dtype"));
        let shape = KvBytes::of(&scheme(8, "int"), None).map(|kv| kv.shape);
        let shape = shape.expect("known");
        assert!(shape.ends_with(", int8 (8 bits by `kv_cache_scheme`)"), "{shape}");
        let none = json!({"quantization_config": {"kv_cache_scheme": null}});
        check(&with(&llama(), &none), "", Ok(327_680));
    }

    #[test]
    fn models_without_one_size_per_token_are_refused_by_name() {
        let refused = |changes: Value, part: &str| {
            check(&with(&llama(), &changes), "", Err(part));
        };
        refused(json!({"sliding_window": 4096}), "`sliding_window` tells of");
        refused(
            json!({"layer_types": ["full_attention", "sliding_attention"]}),
            "type \"sliding_attention\"",
        );
        refused(json!({"attn_layer_period": 8}), "`attn_layer_period`");
        refused(json!({"index_topk": 2048}), "`index_topk`");
        refused(json!({"is_encoder_decoder": true}), "`is_encoder_decoder`");
        for (field, _) in NOT_PER_TOKEN {
            refused(json!({*field: 4}), field);
        }
        for field in ["mamba_d_state", "ssm_cfg", "linear_num_key_heads", "rwkv_hidden_size"] {
            refused(json!({field: 4}), field);
        }
        for kind in ["mamba2", "rwkv6", "falcon_mamba"] {
            refused(json!({"model_type": kind}), "has no KV cache per token");
        }
        let fine = |changes: Value| check(&with(&llama(), &changes), "", Ok(327_680));
        fine(json!({"layer_types": ["full_attention", "full_attention"]}));
        fine(json!({"sliding_window": 262_144, "max_position_embeddings": 131_072}));
        fine(json!({"cross_attention_layers": [], "num_kv_shared_layers": 0}));
        fine(json!({"model_type": "llama", "mamba_d_state": null, "linear_attn": false}));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        check(&json!({}), "bf16", Err("`num_hidden_layers` or `n_layer`"));
        check(&json!([1]), "bf16", Err("`num_hidden_layers`"));
        check(&json!({"n_layer": 2}), "bf16", Err("`num_attention_heads`"));
        check(&json!({"n_layer": 2, "n_head": 4}), "bf16", Err("`hidden_size`"));
        let wrong = |changes: Value, part: &str| check(&with(&llama(), &changes), "", Err(part));
        wrong(json!({"num_hidden_layers": 0}), "`num_hidden_layers` is 0");
        wrong(json!({"num_hidden_layers": "80"}), "expected a number");
        wrong(json!({"num_key_value_heads": [8, 4]}), "`num_key_value_heads` is [8,4]");
        wrong(json!({"hidden_size": 1u64 << 60}), "expected a number");
        wrong(json!({"hidden_size": 8}), "`hidden_size` is 8, no multiple");
        wrong(json!({"hidden_size": 8200}), "`hidden_size` is 8200");
        wrong(json!({"num_key_value_heads": 65}), "`num_key_value_heads` is 65, more than the 64");
        wrong(json!({"torch_dtype": "auto"}), "give --kv-dtype");
        wrong(json!({"torch_dtype": null}), "give --kv-dtype");
        assert!("q4".parse::<KvDtype>().is_err_and(|error| error.contains("known: f32")));
    }
}
