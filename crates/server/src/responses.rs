//! Bodies of OpenAI's Responses API.

mod input;
pub mod request;
pub mod response;
pub mod store;

pub use request::ResponsesRequest;
pub use response::ResponseShape;
pub use store::{ResponseStore, StoredResponse};
