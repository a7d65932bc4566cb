//! From a request's prompt to its tokens.

use headstart_index_sync::clock::unix_seconds;
use headstart_prompt::{GenerationPrompt, PromptError, RenderInput};

use crate::conversation::TemplateInput;
use crate::gateway::{EmbeddedReplicas, HttpGateway};
use crate::openai::error::PromptLength;
use crate::openai::{ApiError, PromptInput};
use crate::prediction::{Chat, Scope};
use crate::prompt_tokens::{PromptTokens, TokenizedPrompt};

/// A prompt before tokenization.
pub(super) enum UntokenizedPrompt {
    /// Rendered by the model's chat template.
    Chat(TemplateInput),
    /// Taken as it is.
    Plain(PromptInput),
}

/// Tokenizes, and reads the conversation if there is a predictor. Runs off the network threads: a
/// long prompt takes milliseconds.
pub(super) async fn read(
    gateway: &HttpGateway,
    embedded: &EmbeddedReplicas,
    input: UntokenizedPrompt,
    scope: Scope,
) -> Result<(TokenizedPrompt, Option<Chat>), ApiError> {
    refuse_hopeless(embedded, &input)?;
    // `HttpGateway::new` takes it from the embedded model.
    let prompt = gateway.prompt_tokens().expect("embedded models have a tokenizer").clone();
    let predictions = embedded.predictions.clone();
    let vocab = embedded.model.config.vocab;
    let reading = tokio::task::spawn_blocking(move || {
        let chat = match (&input, predictions) {
            (UntokenizedPrompt::Chat(chat), Some(predictions)) => {
                predictions.read(&chat.messages, &scope)
            }
            _ => None,
        };
        let salt = scope.salt.as_deref();
        let prompted = match input {
            UntokenizedPrompt::Chat(chat) => chat_tokens(&prompt, chat, salt),
            UntokenizedPrompt::Plain(input) => plain_tokens(&prompt, input, salt),
        };
        prompted.map(|prompted| (prompted, chat))
    });
    let (prompted, chat) =
        reading.await.map_err(|_| ApiError::internal("the tokenizer failed"))??;
    let tokens = &prompted.tokens;
    if tokens.is_empty() {
        return Err(ApiError::invalid("prompt", "the prompt has no tokens"));
    }
    // A client may send token ids. One beyond the vocabulary has no row in the model's embedding
    // table.
    match tokens.iter().find(|&&token| token as usize >= vocab) {
        Some(token) => {
            let message = format!("token {token} is not in the vocabulary of {vocab}");
            Err(ApiError::invalid("prompt", message))
        }
        None => Ok((prompted, chat)),
    }
}

/// Longest text of one token, bytes; vocabularies stay below it.
const TOKEN_BYTES: usize = 256;

/// Refuses what cannot fit before any work is spent on it: by its bytes, as if all its tokens were
/// the longest ones.
fn refuse_hopeless(embedded: &EmbeddedReplicas, input: &UntokenizedPrompt) -> Result<(), ApiError> {
    let limit = embedded.context().saturating_sub(1);
    // Rounded up: a text that is not empty has a token.
    let at_least = |bytes: usize| bytes.div_ceil(TOKEN_BYTES);
    let (num_tokens, length) = match input {
        UntokenizedPrompt::Plain(PromptInput::Tokens(tokens)) => {
            (tokens.len(), PromptLength::Exactly(tokens.len()))
        }
        UntokenizedPrompt::Plain(PromptInput::Text(text)) => {
            (at_least(text.len()), PromptLength::MoreThan(limit))
        }
        UntokenizedPrompt::Chat(chat) => {
            let contents = chat.messages.as_array().into_iter().flatten();
            // Every content is one string by now: the parsers have joined its text parts.
            let texts = contents.filter_map(|message| message["content"].as_str());
            let bytes = texts.map(str::len).sum();
            (at_least(bytes), PromptLength::MoreThan(limit))
        }
    };
    if num_tokens > limit { Err(ApiError::context_length(length, limit)) } else { Ok(()) }
}

/// The tokens of a plain prompt.
///
/// # Errors
/// When the tokenizer fails.
pub(in crate::api) fn plain_tokens(
    prompt: &PromptTokens,
    input: PromptInput,
    salt: Option<&str>,
) -> Result<TokenizedPrompt, ApiError> {
    match input {
        PromptInput::Tokens(tokens) => Ok(tokens.into()),
        PromptInput::Text(text) => {
            let tokens = prompt.plain(&text, salt);
            tokens.map_err(|error| prompt_error(&error, "prompt"))
        }
    }
}

/// The tokens of a conversation, by the model's chat template.
///
/// # Errors
/// When the template refuses it.
fn chat_tokens(
    prompt: &PromptTokens,
    chat: TemplateInput,
    salt: Option<&str>,
) -> Result<TokenizedPrompt, ApiError> {
    let chat = chat.with_known_roles();
    let input = RenderInput {
        messages: &chat.messages,
        tools: chat.tools.as_ref(),
        generation_prompt: GenerationPrompt::Add,
        now_unix_s: unix_seconds() as i64,
        extra: &chat.variables,
    };
    prompt.chat(&input, salt).map_err(|error| prompt_error(&error, "messages"))
}

fn prompt_error(error: &PromptError, param: &str) -> ApiError {
    match error {
        PromptError::Refused(_) | PromptError::Render { .. } | PromptError::NoTemplate => {
            ApiError::invalid(param, error.to_string())
        }
        other => ApiError::internal(other.to_string()),
    }
}
