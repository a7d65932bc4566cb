//! Configurations that a server refuses, as far as that shows before it starts.

use headstart_cache::policy;
use headstart_index_sync::shared::SharedIndexError;
use headstart_router::profile::IndexKind;

use super::start::{EVENT_PORTS, setting};
use crate::config::{EmbeddedFleet, EngineBackend, ServeConfig};
use crate::observers;
use crate::serve_error::ServeError;

impl ServeConfig {
    /// Refuses what [`serve`](super::serve) refuses, without opening a file or a socket.
    ///
    /// # Errors
    /// [`ServeError`], saying what to change.
    pub fn check(&self) -> Result<(), ServeError> {
        // Anyone who reaches the port could use the engines.
        if !self.listen.ip().is_loopback() && self.api_key.is_none() {
            return Err(ServeError::Exposed(self.listen));
        }
        check_sharing(self)?;
        check_index(self)?;
        observers::check_shadow(self)?;
        match &self.backend {
            EngineBackend::Embedded(fleet)
                if self.state_dir.is_some() && !policy::learns_ends(&fleet.policy) =>
            {
                Err(ServeError::NothingToKeep(fleet.policy.clone()))
            }
            EngineBackend::Embedded(fleet) => check_fleet(fleet),
            EngineBackend::Upstreams(_) => Ok(()),
        }
    }
}

/// Refuses to share what cannot be shared.
fn check_sharing(config: &ServeConfig) -> Result<(), SharedIndexError> {
    match config {
        ServeConfig { shared_index: None, .. } => Ok(()),
        ServeConfig { backend: EngineBackend::Embedded(_), .. } => Err(SharedIndexError::Embedded),
        ServeConfig { state_dir: Some(_), .. } => Err(SharedIndexError::StateFolder),
        ServeConfig { index_secret: None, .. } => Err(SharedIndexError::NoSecret),
        _ => Ok(()),
    }
}

/// Refuses to keep or share what is guessed.
fn check_index(config: &ServeConfig) -> Result<(), ServeError> {
    let has_folder = config.state_dir.is_some();
    let is_proxy = matches!(config.backend, EngineBackend::Upstreams(_));
    let is_kept = has_folder && is_proxy || config.shared_index.is_some();
    if is_kept && config.profile.index != IndexKind::Events {
        return Err(ServeError::GuessedIndex(config.profile.name.clone()));
    }
    Ok(())
}

/// Refuses limits of replicas that cannot be.
fn check_fleet(config: &EmbeddedFleet) -> Result<(), ServeError> {
    policy::by_name(&config.policy, setting(&config.engine))?;
    let engine = &config.engine;
    let complaint = if config.replicas == 0 {
        return Err(ServeError::NoReplica);
    } else if engine.block_size == 0 || !engine.block_size.is_multiple_of(16) {
        "the block size must be a multiple of 16"
    } else if engine.cache_blocks < 2 {
        "a replica needs at least 2 cache blocks"
    } else if engine.max_waiting == 0 {
        "at least one request must be allowed to wait, or none is ever taken (--max-waiting)"
    } else if engine.max_batched_tokens == 0 || engine.max_sequences == 0 {
        "an engine must be allowed at least one token and one sequence a step"
    } else if !has_event_ports(config) {
        "every replica takes two ports from --kv-events-port on, all of them from 1 to 65535; give \
         another one, or none for free ports"
    } else {
        return Ok(());
    };
    Err(ServeError::Engine(complaint.to_owned()))
}

fn has_event_ports(config: &EmbeddedFleet) -> bool {
    let Some(base) = config.kv_events_port else {
        return true;
    };
    let end = config.replicas.saturating_mul(EVENT_PORTS).saturating_add(usize::from(base));
    base > 0 && end <= usize::from(u16::MAX) + 1
}
