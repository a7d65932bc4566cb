//! Naming a model: the built-in toy, a constructed model, a folder, or a name on the hub.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::exit::usage;
use anyhow::{Context, Result, anyhow, bail};
use headstart_engine::LanguageModel;
use headstart_engine::kv::Dtype;
use headstart_engine::model::constructed::{self, HeadLayout};
use headstart_engine::model::toy;
use headstart_prompt::PromptModel;
use headstart_terminal::{Progress, TaskProgress};

/// The built-in model's name.
pub(crate) const TOY: &str = "toy";

/// The name of the one that computes least.
const TINY_TOY: &str = "toy-tiny";

/// Whether `name` is a built-in model that speaks random words.
pub(crate) fn is_toy(name: &str) -> bool {
    matches!(name, TOY | TINY_TOY)
}

/// A model ready to serve.
pub struct ServableModel {
    /// Weights.
    pub model: Arc<LanguageModel>,
    /// Tokenizer and template.
    pub prompt: Arc<PromptModel>,
    /// Its name in the API, unless the user gives another.
    pub name: String,
}

/// Loads the model that `spec` names.
pub fn load(spec: &str, dtype: Dtype) -> Result<ServableModel> {
    if is_toy(spec) {
        let config = if spec == TOY { toy::config() } else { toy::tiny_config() };
        let prompt = PromptModel::toy();
        let model = toy::build(config, &prompt.stable_words(), prompt.eos_token(), dtype);
        let (model, prompt) = (Arc::new(model), Arc::new(prompt));
        return Ok(ServableModel { model, prompt, name: spec.to_owned() });
    }
    if let Some(shape) = HeadLayout::named(spec) {
        return Ok(ServableModel {
            model: Arc::new(constructed::build(shape, dtype)),
            // Its language has no text; the toy's tokenizer has as many tokens.
            prompt: Arc::new(PromptModel::toy()),
            name: shape.name().to_owned(),
        });
    }
    // An existing folder wins over a hub name of the same form.
    let dir = if Path::new(spec).is_dir() { PathBuf::from(spec) } else { fetch(spec)? };
    let progress = TaskProgress::endless(format!("loading {spec}"));
    let model = LanguageModel::load(&dir, dtype).with_context(|| format!("cannot load {spec}"))?;
    let prompt = PromptModel::from_dir(&dir).with_context(|| format!("cannot load {spec}"))?;
    progress.end();
    let (known, vocabulary) = (prompt.tokenizer.vocab_size(), model.config.vocab);
    // A larger vocabulary is padding and common; a smaller one lets ids index past the embeddings.
    if known > vocabulary {
        bail!(
            "{spec}: tokenizer.json has {known} tokens, but the model's vocabulary is \
             {vocabulary}; they do not belong together"
        );
    }
    let name = Path::new(spec).file_name().map_or(spec.into(), |name| name.to_string_lossy());
    Ok(ServableModel { model: Arc::new(model), prompt: Arc::new(prompt), name: name.into_owned() })
}

/// Downloads a model of the hub into its usual cache folder; what is there is not fetched again.
fn fetch(name: &str) -> Result<PathBuf> {
    // A hub name has one slash. A path without its folder should not start a download.
    let looks_like_path = name.starts_with(['.', '/', '~']) || name.matches('/').count() != 1;
    if looks_like_path {
        bail!(usage(format!(
            "--model {name}: there is no such folder, and it is not a hub name (OWNER/NAME) \
             either; `--model toy` needs neither"
        )));
    }
    // A model that was fetched before needs no network at all.
    if let Some(folder) = cached(name) {
        return Ok(folder);
    }
    let progress = TaskProgress::steps(format!("fetching {name} from the hub"), 0).announced();
    let api = hf_hub::api::sync::ApiBuilder::from_env().build().context("cannot set up the hub")?;
    let repository = api.model(name.to_owned());
    let offline = |error| {
        anyhow!(
            "cannot fetch {name} from the hub ({error}); without a network, download it elsewhere \
             and name its folder: --model ./FOLDER"
        )
    };
    let info = repository.info().map_err(offline)?;
    let files = info.siblings.iter().map(|sibling| &sibling.rfilename);
    let files: Vec<_> = files.filter(|file| wanted(file)).collect();
    progress.inc_length(files.len() as u64);
    // The hub's cache puts all files of a revision into one folder, so the last path will do.
    let mut folder = None;
    for file in files {
        let path = repository.get(file).map_err(offline)?;
        folder = path.parent().map(Path::to_path_buf);
        progress.inc(1);
    }
    folder.ok_or_else(|| anyhow!("{name} has no weights in the safetensors format"))
}

/// The hub's cache folder of a model that was fetched before, if it looks whole.
fn cached(name: &str) -> Option<PathBuf> {
    let repository = hf_hub::Cache::from_env().model(name.to_owned());
    let folder = repository.get("config.json")?.parent()?.to_path_buf();
    let mut files = std::fs::read_dir(&folder).ok()?.filter_map(Result::ok);
    // A download that was cut off may leave the small files without the weights.
    let has_weights = files.any(|file| file.path().extension().is_some_and(|e| e == "safetensors"));
    (has_weights && folder.join("tokenizer.json").exists()).then_some(folder)
}

/// Files of a repository that are read here; folders hold other formats.
fn wanted(file: &str) -> bool {
    let name =
        file.ends_with(".safetensors") || file.ends_with(".json") || file.ends_with(".jinja");
    // Files in subfolders are other formats of the same weights.
    name && !file.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_toys_cache_the_same_bytes_and_never_each_others() {
        let [full, tiny] =
            [TOY, TINY_TOY].map(|name| load(name, Dtype::F32).expect("it is built in").model);
        let cached = |config: &headstart_engine::ModelConfig| {
            (config.num_layers, config.num_kv_heads, config.head_dim)
        };
        assert_eq!(cached(&full.config), cached(&tiny.config));
        assert_ne!(full.revision, tiny.revision);
    }

    #[test]
    fn a_constructed_model_takes_every_token_of_its_tokenizer() {
        for shape in HeadLayout::ALL {
            let loaded = load(shape.name(), Dtype::Bf16).expect("it is built in");
            let known = loaded.prompt.tokenizer.vocab_size();
            assert!(known <= loaded.model.config.vocab, "{}", loaded.name);
        }
    }
}
