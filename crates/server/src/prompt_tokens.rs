//! From a prompt's text to its tokens, for all requests of one model: a long conversation
//! tokenizes its new text only.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use headstart_core::TokenId;
use headstart_index_sync::clock::unix_seconds;
use headstart_index_sync::random_key;
use headstart_insight::text::Sketch;
use headstart_prompt::prefix_tokens::{CAPACITY_BYTES, PrefixTokens, PrefixTokensStats};
use headstart_prompt::{
    Api, Dialect, NoExactTokens, PromptError, PromptModel, RenderInput, SpecialTokensIn,
    SpecialTokensOut,
};
use serde_json::{Map, Value};

use crate::insight::Causes;
use crate::metrics::IndexMetrics;

/// A prompt's tokens, and a sketch of its text where one was made.
#[derive(Clone, Debug, Default)]
pub struct TokenizedPrompt {
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// Keyed hashes of its words.
    pub sketch: Option<Sketch>,
}

impl From<Vec<TokenId>> for TokenizedPrompt {
    /// Of a prompt that came as tokens.
    fn from(tokens: Vec<TokenId>) -> Self {
        Self { tokens, sketch: None }
    }
}

/// A model's template and tokenizer, with what was tokenized before.
pub struct PromptTokens {
    prompt: Arc<PromptModel>,
    known: PrefixTokens,
    metrics: Arc<IndexMetrics>,
    /// Causes of prompt divergence, which sketch each text; `None` where they are off.
    causes: Option<Arc<Causes>>,
}

impl PromptTokens {
    /// For `prompt`, with nothing known yet. Texts are looked at for `causes`.
    #[must_use]
    pub fn new(
        prompt: Arc<PromptModel>,
        metrics: Arc<IndexMetrics>,
        causes: Option<Arc<Causes>>,
    ) -> Self {
        let known = PrefixTokens::new(prompt.tokenizer.clone(), CAPACITY_BYTES, random_key());
        Self { prompt, known, metrics, causes }
    }

    /// The tokens of a conversation, by the model's template. Tenants with different salts learn
    /// nothing of each other from the time that it takes.
    ///
    /// # Errors
    /// As [`PromptModel::chat_tokens`].
    pub fn chat(
        &self,
        input: &RenderInput<'_>,
        salt: Option<&str>,
    ) -> Result<TokenizedPrompt, PromptError> {
        let start = Instant::now();
        let text = self.prompt.chat_text(input)?;
        self.timed(start, &text, SpecialTokensIn::ParseOnly, salt)
    }

    /// The tokens that an engine makes of a request with a conversation, given by its top-level
    /// fields.
    ///
    /// # Errors
    /// Why they are not known here.
    pub fn request(
        &self,
        dialect: Dialect,
        api: Api,
        fields: Map<String, Value>,
        salt: Option<&str>,
    ) -> Result<TokenizedPrompt, NoExactTokens> {
        let start = Instant::now();
        let own = fields.get("chat_template").and_then(Value::as_str);
        if own.is_some_and(|name| !self.prompt.named_templates.contains_key(name)) {
            // A client's program: it may loop, or take all memory. Engines refuse it by default.
            return Err(NoExactTokens::Unsupported("chat_template"));
        }
        let now_unix_s = unix_seconds() as i64;
        let chat = self.prompt.chat_prompt(dialect, api, fields, now_unix_s)?;
        let prompted = self.timed(start, &chat.text, chat.special, salt);
        let completed = prompted.and_then(|mut prompted| {
            self.prompt.complete(&chat, &mut prompted.tokens)?;
            Ok(prompted)
        });
        completed.map_err(|error| NoExactTokens::Failed(error.to_string()))
    }

    /// The tokens of the text in front of a prompt's first medium, less the last one: the medium
    /// may join it.
    #[must_use]
    pub fn before_medium(&self, text: &str, salt: Option<&str>) -> Option<TokenizedPrompt> {
        let special = SpecialTokensIn::ParseOnly;
        let mut prompted = self.timed(Instant::now(), text, special, salt).ok()?;
        prompted.tokens.pop();
        Some(prompted)
    }

    /// The text of tokens, special ones spelled out; none where the tokenizer does not know them.
    #[must_use]
    pub fn text_of(&self, tokens: &[TokenId]) -> Option<String> {
        let tokenizer = &self.prompt.tokenizer;
        tokenizer.decode(tokens, SpecialTokensOut::Keep).ok()
    }

    /// The tokens of a plain text.
    ///
    /// # Errors
    /// As [`headstart_prompt::Tokenizer::encode`].
    pub fn plain(&self, text: &str, salt: Option<&str>) -> Result<TokenizedPrompt, PromptError> {
        self.timed(Instant::now(), text, SpecialTokensIn::AddBosEos, salt)
    }

    /// Returns the hits, misses and size of the token cache.
    #[must_use]
    pub fn stats(&self) -> PrefixTokensStats {
        self.known.stats()
    }

    fn timed(
        &self,
        start: Instant,
        text: &str,
        special: SpecialTokensIn,
        salt: Option<&str>,
    ) -> Result<TokenizedPrompt, PromptError> {
        let tokens = self.known.encode_salted(text, special, salt);
        self.metrics.tokenize.observe(start.elapsed().as_secs_f64());
        // After the measurement: a look at the text is no part of tokenizing.
        let sketch = self.causes.as_ref().and_then(|causes| causes.look(text));
        Ok(TokenizedPrompt { tokens: tokens?, sketch })
    }
}

/// The templates and the tokenizer in a folder; `toy`, where there is no such folder, is the
/// built-in toy.
///
/// # Errors
/// As [`PromptModel::from_dir`].
pub(crate) fn model_in(folder: &Path) -> Result<PromptModel, PromptError> {
    if folder.as_os_str() == "toy" && !folder.exists() {
        Ok(PromptModel::toy())
    } else {
        PromptModel::from_dir(folder)
    }
}
