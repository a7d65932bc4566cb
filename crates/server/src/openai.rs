//! Bodies of OpenAI's API.

pub mod error;
pub mod fields;
pub mod messages;
pub mod request;
pub mod response;

pub use error::ApiError;
pub use request::{ChatRequest, CompletionRequest, Generation, PromptInput};
