//! All that stands between one model's text and its tokens, from the model's directory.
//!
//! | file | gives |
//! |---|---|
//! | `tokenizer.json` | the tokenizer; required |
//! | `tokenizer_config.json` | special tokens, and the template where it is a text |
//! | `chat_template.jinja` | the template; wins over the one in the configuration |
//! | `additional_chat_templates/NAME.jinja` | further templates by name |
//! | `chat_template.json` | the template of some multimodal models, where no other file has one |
//!
//! Not read: `tokenizer.model` (SentencePiece without `tokenizer.json`), and added tokens that
//! only the configuration lists.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use headstart_core::TokenId;
use serde_json::Value;

use crate::{
    ChatTemplate, PromptError, RenderInput, SpecialTokens, SpecialTokensIn, SpecialTokensOut,
    Tokenizer,
};

/// The tokenizer and the chat template of one model.
#[derive(Debug)]
pub struct PromptModel {
    /// Text to tokens and back; shared with the detokenizers of the answers.
    pub tokenizer: Arc<Tokenizer>,
    /// `None` for a model that knows no chats.
    pub template: Option<ChatTemplate>,
    /// Templates by name. `tool_use` serves requests with tools; a request may name any.
    pub named_templates: BTreeMap<String, ChatTemplate>,
    /// Texts of the special tokens.
    pub special_tokens: SpecialTokens,
}

impl PromptModel {
    /// Reads a model's directory, in the layout of the Hugging Face hub.
    ///
    /// # Errors
    /// [`PromptError::Unreadable`], [`PromptError::Malformed`] or
    /// [`PromptError::TemplateSyntax`].
    pub fn from_dir(directory: &Path) -> Result<Self, PromptError> {
        let tokenizer = Tokenizer::from_file(&directory.join("tokenizer.json"))?;
        let path = directory.join("tokenizer_config.json");
        let config = match read_if_there(&path)? {
            Some(text) => parse_config(&text, &path.display().to_string())?,
            None => Value::Null,
        };
        let mut sources = template_sources(&config);
        if let Some(source) = read_if_there(&directory.join("chat_template.jinja"))? {
            sources.insert(DEFAULT_TEMPLATE.to_owned(), source);
        }
        // A file wins over a template of the same name in the configuration.
        sources.extend(additional_templates(&directory.join("additional_chat_templates"))?);
        let legacy = directory.join("chat_template.json");
        if !sources.contains_key(DEFAULT_TEMPLATE)
            && let Some(text) = read_if_there(&legacy)?
        {
            sources.extend(template_sources(&parse_config(&text, &legacy.display().to_string())?));
        }
        Self::assemble(tokenizer, &config, sources)
    }

    /// The model of tests, demos and benchmarks that must run without a download: 4096 tokens,
    /// ChatML. See `data/toy-tokenizer`.
    ///
    /// # Panics
    /// Never: its files are part of the build, and tested.
    #[must_use]
    pub fn toy() -> Self {
        let tokenizer = include_bytes!("../../../data/toy-tokenizer/tokenizer.json");
        let config = include_str!("../../../data/toy-tokenizer/tokenizer_config.json");
        let tokenizer = Tokenizer::from_bytes(tokenizer).expect("the toy tokenizer is valid");
        let config = parse_config(config, "the toy's").expect("so is its configuration");
        let sources = template_sources(&config);
        Self::assemble(tokenizer, &config, sources).expect("and its template")
    }

    fn assemble(
        tokenizer: Tokenizer,
        config: &Value,
        sources: BTreeMap<String, String>,
    ) -> Result<Self, PromptError> {
        let special_tokens = special_tokens(config);
        let compiled: Result<BTreeMap<_, _>, _> = (sources.into_iter())
            .map(|(name, source)| Ok((name, ChatTemplate::new(&source, special_tokens.clone())?)))
            .collect();
        let mut named_templates = compiled?;
        Ok(Self {
            tokenizer: Arc::new(tokenizer),
            template: named_templates.remove(DEFAULT_TEMPLATE),
            named_templates,
            special_tokens,
        })
    }

    /// The tokens of a conversation, by the model's template. Nothing is added to what the
    /// template writes; special tokens spelled out in messages count as such, as everywhere.
    ///
    /// # Errors
    /// [`PromptError::NoTemplate`], or as [`ChatTemplate::render`] and [`Tokenizer::encode`].
    pub fn chat_tokens(&self, input: &RenderInput<'_>) -> Result<Vec<TokenId>, PromptError> {
        let text = self.chat_text(input)?;
        self.tokenizer.encode(&text, SpecialTokensIn::ParseOnly)
    }

    /// The text of a conversation, by the model's template.
    ///
    /// # Errors
    /// [`PromptError::NoTemplate`], or as [`ChatTemplate::render`].
    pub fn chat_text(&self, input: &RenderInput<'_>) -> Result<String, PromptError> {
        let template = self.template.as_ref().ok_or(PromptError::NoTemplate)?;
        template.render(input)
    }

    /// The token that ends a sequence, where the configuration names one. Models may end
    /// answers with others as well (`generation_config.json`).
    #[must_use]
    pub fn eos_token(&self) -> Option<TokenId> {
        self.tokenizer.token_id(self.special_tokens.eos.as_deref()?)
    }

    /// Tokens with which calls of tools begin in an answer, of those that common models use.
    ///
    /// Source: the tokenizers of Qwen and Hermes, Llama 3.1, Mistral, Granite, DeepSeek, Kimi and
    /// gpt-oss.
    #[must_use]
    pub fn tool_call_tokens(&self) -> Vec<TokenId> {
        let markers = [
            "<tool_call>",
            "<|python_tag|>",
            "[TOOL_CALLS]",
            "<|tool_call|>",
            "<｜tool▁calls▁begin｜>",
            "<|tool_calls_section_begin|>",
            "<|call|>",
        ];
        markers.iter().filter_map(|marker| self.tokenizer.token_id(marker)).collect()
    }

    /// Tokens that survive the way through text: any sequence of them decodes to a text that
    /// encodes to the same sequence. With these, prompts can be synthesized as tokens and sent
    /// as text. Ids ascending; a space and at least two lower-case ASCII letters each.
    ///
    /// Empty where the tokenizer joins words, or writes no space before them (SentencePiece).
    /// Encodes the whole vocabulary word by word; call it once.
    #[must_use]
    pub fn stable_words(&self) -> Vec<TokenId> {
        let num_ids = TokenId::try_from(self.tokenizer.vocab_size()).unwrap_or(TokenId::MAX);
        let words: Vec<_> = (0..num_ids)
            .filter(|&id| {
                self.text(&[id]).is_some_and(|text| is_word(&text) && self.gives(&text, &[id]))
            })
            .collect();
        // Words that survive by themselves may still join with their neighbours.
        match self.text(&words) {
            Some(text) if self.gives(&text, &words) => words,
            _ => Vec::new(),
        }
    }

    fn text(&self, tokens: &[TokenId]) -> Option<String> {
        self.tokenizer.decode(tokens, SpecialTokensOut::Keep).ok()
    }

    fn gives(&self, text: &str, tokens: &[TokenId]) -> bool {
        let encoded = self.tokenizer.encode(text, SpecialTokensIn::ParseOnly);
        encoded.is_ok_and(|encoded| encoded == tokens)
    }
}

fn is_word(text: &str) -> bool {
    let letters = text.strip_prefix(' ').unwrap_or_default();
    letters.len() >= 2 && letters.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// The content of a file that a model need not have.
fn read_if_there(path: &Path) -> Result<Option<String>, PromptError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        // A file that cannot be read must not pass for an absent one: prompts would differ.
        Err(source) => Err(PromptError::Unreadable {
            path: path.to_owned(),
            source,
            advice: "Check its permissions and that it is UTF-8, or remove it",
        }),
    }
}

fn parse_config(text: &str, file: &str) -> Result<Value, PromptError> {
    serde_json::from_str(text).map_err(|error| PromptError::Malformed {
        file: file.to_owned(),
        reason: error.to_string(),
        advice: "Download it again, or correct the JSON",
    })
}

/// Special tokens stand as a text, or as an object whose `content` is the text.
fn special_tokens(config: &Value) -> SpecialTokens {
    let text = |name: &str| {
        let token = &config[name];
        let text = token.as_str().or_else(|| token["content"].as_str());
        text.map(str::to_owned)
    };
    SpecialTokens {
        bos: text("bos_token"),
        eos: text("eos_token"),
        unk: text("unk_token"),
        pad: text("pad_token"),
    }
}

/// The name of the template that requests get unless another one fits better.
const DEFAULT_TEMPLATE: &str = "default";

/// Most templates that are read from a folder of further ones.
const TEMPLATES_MAX: usize = 64;

/// The templates of a configuration by name: one text, or a list of named ones.
fn template_sources(config: &Value) -> BTreeMap<String, String> {
    let template = &config["chat_template"];
    if let Some(source) = template.as_str() {
        return [(DEFAULT_TEMPLATE.to_owned(), source.to_owned())].into();
    }
    let entry = |entry: &Value| {
        let name = entry["name"].as_str()?.to_owned();
        Some((name, entry["template"].as_str()?.to_owned()))
    };
    template.as_array().into_iter().flatten().filter_map(entry).collect()
}

/// The templates of a folder, by their files' names.
fn additional_templates(folder: &Path) -> Result<BTreeMap<String, String>, PromptError> {
    let Ok(files) = std::fs::read_dir(folder) else {
        return Ok(BTreeMap::new());
    };
    let mut templates = BTreeMap::new();
    for path in files.take(TEMPLATES_MAX).filter_map(|file| Some(file.ok()?.path())) {
        let name = path.file_stem().and_then(|name| name.to_str());
        if let Some(name) = name.filter(|_| path.extension().is_some_and(|kind| kind == "jinja"))
            && let Some(source) = read_if_there(&path)?
        {
            templates.insert(name.to_owned(), source);
        }
    }
    Ok(templates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GenerationPrompt;
    use headstart_core::Rng;
    use serde_json::json;
    use std::path::PathBuf;

    fn chat<'a>(messages: &'a Value, extra: &'a serde_json::Map<String, Value>) -> RenderInput<'a> {
        RenderInput {
            messages,
            tools: None,
            generation_prompt: GenerationPrompt::Add,
            now_unix_s: 0,
            extra,
        }
    }

    #[test]
    fn a_chat_becomes_the_tokens_of_its_template() {
        let toy = PromptModel::toy();
        let messages = json!([{"role": "user", "content": "hello"}]);
        let tokens = toy.chat_tokens(&chat(&messages, &serde_json::Map::new())).unwrap();
        let text = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n";
        assert_eq!(toy.text(&tokens).unwrap(), text);
        assert_eq!(toy.eos_token(), toy.tokenizer.token_id("<|im_end|>"));
        assert!(toy.tool_call_tokens().is_empty(), "the toy calls no tools");
        assert_eq!(tokens.iter().filter(|&&token| Some(token) == toy.eos_token()).count(), 1);
    }

    /// 200 random sequences, alone and as an answer between special tokens.
    #[test]
    fn stable_words_survive_the_way_through_text() {
        let toy = PromptModel::toy();
        let words = toy.stable_words();
        assert!(words.len() > 1000, "{}", words.len());
        let start = toy.tokenizer.encode("<|im_start|>assistant\n", SpecialTokensIn::ParseOnly);
        let (start, end) = (start.unwrap(), toy.eos_token().unwrap());
        let mut rng = Rng::new(5);
        for _ in 0..200 {
            let length = 1 + rng.below(64);
            let tokens: Vec<_> = (0..length).map(|_| words[rng.below(words.len())]).collect();
            assert!(toy.gives(&toy.text(&tokens).unwrap(), &tokens), "{tokens:?}");
            let answer = [&start[..], &tokens, &[end]].concat();
            assert!(toy.gives(&toy.text(&answer).unwrap(), &answer), "{tokens:?}");
        }
    }

    /// A directory of the toy tokenizer and `files`, and what loading it gives.
    fn check(name: &str, files: &[(&str, &str)], expected: Result<Option<&str>, &str>) {
        let directory = scratch(name);
        let tokenizer = include_bytes!("../../../data/toy-tokenizer/tokenizer.json");
        std::fs::write(directory.join("tokenizer.json"), tokenizer).unwrap();
        for (file, content) in files {
            std::fs::write(directory.join(file), content).unwrap();
        }
        let extra = serde_json::Map::new();
        let loaded = PromptModel::from_dir(&directory).map(|model| {
            let template = model.template.as_ref();
            template.map(|template| template.render(&chat(&json!([]), &extra)).unwrap())
        });
        match (loaded, expected) {
            (Ok(text), Ok(expected)) => assert_eq!(text.as_deref(), expected),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (loaded, expected) => panic!("{loaded:?} is not {expected:?}"),
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    fn scratch(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("headstart-prompt-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn templates_are_found_where_models_keep_them() {
        const CONFIG: &str = "tokenizer_config.json";
        let text = r#"{"chat_template": "{{ bos_token }} a", "bos_token": {"content": "<s>"}}"#;
        check("text", &[(CONFIG, text)], Ok(Some("<s> a")));
        let list = r#"{"eos_token": "</s>", "chat_template": [{"name": "rag", "template": "r"},
            {"name": "default", "template": "d{{ eos_token }}"}]}"#;
        check("list", &[(CONFIG, list)], Ok(Some("d</s>")));
        check(
            "file",
            &[(CONFIG, text), ("chat_template.jinja", "{{ bos_token }} f\n")],
            Ok(Some("<s> f")),
        );
        check("none", &[(CONFIG, r#"{"bos_token": null}"#)], Ok(None));
        check("bare", &[], Ok(None));
    }

    #[test]
    fn broken_models_say_what_to_do() {
        check("json", &[("tokenizer_config.json", "{")], Err("tokenizer_config.json is malformed"));
        check("jinja", &[("chat_template.jinja", "{% if %}")], Err("does not compile"));
        let directory = scratch("empty");
        let message = PromptModel::from_dir(&directory).unwrap_err().to_string();
        assert!(message.contains("tokenizer.json") && message.contains("Download"), "{message}");
        std::fs::remove_dir(directory).unwrap();
    }

    #[test]
    fn chats_need_a_template() {
        let toy =
            PromptModel { named_templates: BTreeMap::new(), template: None, ..PromptModel::toy() };
        let tokens = toy.chat_tokens(&chat(&json!([]), &serde_json::Map::new()));
        assert!(matches!(tokens, Err(PromptError::NoTemplate)));
    }
}
