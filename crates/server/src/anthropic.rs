//! Bodies of Anthropic's Messages API.

pub mod error;
pub mod request;
pub mod response;

pub use response::MessageShape;
