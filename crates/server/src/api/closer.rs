//! The end of a connection from inside one of its requests.

use std::sync::Arc;

use tokio::sync::Notify;

/// A request extension: ends the request's connection, for clients that stopped reading.
#[derive(Clone, Debug, Default)]
pub struct Closer(pub Arc<Notify>);
