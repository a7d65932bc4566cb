//! The fleet of a server that runs already, as its dashboard shows it.

use std::path::PathBuf;

use headstart_server::dashboard::Snapshot;

use crate::server::ServerOptions;

/// A fleet as its server describes it; a part is `None` if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunningFleet {
    /// Name of the routing strategy.
    pub(super) strategy: Option<String>,
    /// Replicas that are up.
    pub(super) replicas: Option<usize>,
    pub(super) block_tokens: Option<usize>,
}

impl RunningFleet {
    /// Asks the server at `url`. Other servers than Headstart describe nothing.
    pub(super) fn ask(url: &str, api_key_file: Option<PathBuf>) -> Self {
        let url = url.to_owned();
        let server = ServerOptions { url, api_key_file };
        // Any error means a server of another kind: it describes nothing, and the options must.
        let snapshot = server.snapshot().ok();
        let snapshot = snapshot.and_then(|json| serde_json::from_value(json).ok());
        snapshot.map(|snapshot: Snapshot| Self::of(&snapshot)).unwrap_or_default()
    }

    fn of(snapshot: &Snapshot) -> Self {
        let up = snapshot.replicas.iter().filter(|replica| replica.is_healthy);
        let block_tokens = up.clone().find_map(|replica| replica.block_tokens);
        Self {
            strategy: Some(snapshot.server.strategy.clone()),
            // Zero replicas cannot be simulated, so they count as unknown.
            replicas: Some(up.count()).filter(|&count| count > 0),
            block_tokens: block_tokens.and_then(|tokens| usize::try_from(tokens).ok()),
        }
    }
}
