//! The index beyond this process: its folder, its secret, its restore and its saves.

use std::sync::Arc;

use headstart_index_sync::saved::{Folder, Keeper, KnownReplicas, Saving, drawn_secret};

use crate::gateway::HttpGateway;
use crate::serve_error::ServeError;

/// Returns the secret for the index's keys: the given one, the saved one or a random one. It
/// prevents clients from crafting colliding texts, and readers of a dump from identifying prompts.
/// A saved index needs its secret, so both are kept together.
pub(super) fn index_secret(given: Option<u64>, folder: Option<&Folder>) -> Result<u64, ServeError> {
    match (given, folder) {
        (Some(secret), _) => Ok(secret),
        (None, Some(folder)) => Ok(folder.secret()?),
        (None, None) => Ok(drawn_secret()),
    }
}

/// Takes over what was saved, without holding up other tasks, and saves from now on.
pub(super) async fn keep(
    keeper: Option<Keeper>,
    gateway: &Arc<HttpGateway>,
) -> Result<Option<Saving>, ServeError> {
    let Some(keeper) = keeper else {
        return Ok(None);
    };
    let for_restore = gateway.clone();
    let restoring = tokio::task::spawn_blocking(move || {
        keeper.restore(&*for_restore);
        keeper
    });
    let keeper = restoring.await.map_err(std::io::Error::other)?;
    let interval = gateway.limits.save_interval;
    let known: Arc<dyn KnownReplicas> = gateway.clone();
    let saving = Saving::start(keeper, Arc::downgrade(&known), interval);
    Ok(Some(saving))
}
