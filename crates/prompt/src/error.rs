//! Errors between text and tokens, by what the caller can do about them.

use std::path::PathBuf;

/// Why a model's files cannot be used, or a conversation cannot become tokens.
///
/// The first four come up while a model is loaded and are for the operator of the server; the
/// others come up for one request. No message holds text of a prompt, except what a template
/// itself chose to say in [`Refused`](Self::Refused).
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// A file is missing or cannot be read.
    #[error("cannot read {}: {source}. {advice}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why the system refused it.
        source: std::io::Error,
        /// The suggested fix.
        advice: &'static str,
    },
    /// A file was read and makes no sense.
    #[error("{file} is malformed: {reason}. {advice}")]
    Malformed {
        /// The file, or what stands for it.
        file: String,
        /// The parser's message.
        reason: String,
        /// The suggested fix.
        advice: &'static str,
    },
    /// The chat template does not compile.
    #[error(
        "the chat template does not compile: {reason}. Correct it in chat_template.jinja or \
         tokenizer_config.json, or serve the model without a template"
    )]
    TemplateSyntax {
        /// The compiler's message, with the line.
        reason: String,
    },
    /// The model has no chat template.
    #[error(
        "the model has no chat template, so it takes no chat messages. Send a plain completion, \
         or put a chat_template.jinja into the model's directory"
    )]
    NoTemplate,
    /// The template itself refused the conversation: the client's to mend.
    #[error("the chat template refused the conversation: {0}")]
    Refused(String),
    /// The template failed on this conversation, by what it holds or by a fault of the template.
    #[error("the chat template failed: {reason}. Check roles, contents and tools of the request")]
    Render {
        /// The failure, with the template's line.
        reason: String,
    },
    /// The tokenizer failed on this text or these tokens.
    #[error(
        "the tokenizer failed: {reason}. This is a fault of its tokenizer.json, not of the request"
    )]
    Tokenize {
        /// The tokenizer's message.
        reason: String,
    },
}
