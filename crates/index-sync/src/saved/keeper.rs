//! Restores an index at the start and saves it every so often and at the end.
//!
//! It identifies replicas by their addresses, which [`Keeper::new`] gets, and reads the wall clock,
//! because ages outlive processes. A replica's part of a file is restored only if that replica is
//! configured, up, and serves the same models.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use headstart_core::ReplicaId;
use headstart_router::index::dump::{MAX_DUMP_BLOCKS, ReplicaDump};
use headstart_router::index::{DOUBT_TTL, IndexDump, RunIndex};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::folder::{Folder, remedy};
use super::format::{FileError, SavedIndex, SavedReplica};
use super::seal::Seal;
use crate::clock::{Clock, unix_seconds};

/// Shortest pause after a save, as a multiple of its duration: index updates wait for a save, at
/// most a twentieth of the time.
const PAUSE_PER_SAVE: u32 = 20;

/// A gateway's knowledge of its replicas, by which a saved index is taken over.
pub trait KnownReplicas: Send + Sync {
    /// The gateway's clock.
    fn clock(&self) -> Clock;

    /// Whether the replica is down.
    fn is_down(&self, replica: ReplicaId) -> bool;

    /// The models that the replica serves, sorted, without adapters; empty while unknown.
    fn base_models(&self, replica: ReplicaId) -> Vec<String>;

    /// Takes note of the replicas whose contents were restored.
    fn note_restored(&self, replicas: &[ReplicaId]);
}

/// Knows where an index is kept and whose it is.
#[derive(Debug)]
pub struct Keeper {
    folder: Folder,
    seal: Seal,
    model: String,
    index: Arc<RunIndex>,
    /// By replica, where it answers and publishes; none for one without events.
    endpoints: Vec<Option<String>>,
}

/// Replicas and blocks restored from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoredIndex {
    /// Of which replicas something was.
    pub replicas: Vec<ReplicaId>,
    /// Blocks times the places that hold them.
    pub holdings: usize,
    /// Age of the saved index.
    pub age: Duration,
}

/// Why an index was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// It is larger than one that would be restored.
    #[error("{0} blocks are more than the {MAX_DUMP_BLOCKS} that can be restored")]
    TooLarge(usize),
    /// It cannot be written.
    #[error("cannot write it: {cause}; {remedy}", cause = .0, remedy = remedy(.0))]
    Write(#[from] std::io::Error),
}

impl Keeper {
    /// Keeps `index`, made for `model`, whose replicas have these addresses, in `folder`.
    #[must_use]
    pub fn new(
        folder: Folder,
        index: Arc<RunIndex>,
        model: String,
        endpoints: Vec<Option<String>>,
    ) -> Self {
        Self { folder, seal: Seal::new(&model), model, index, endpoints }
    }

    /// Takes over what was saved, and says in one line what came of it. Before any event is
    /// applied, and after it is known who is up. Blocks.
    pub fn restore(&self, gateway: &dyn KnownReplicas) -> Option<RestoredIndex> {
        let path = self.folder.index_path();
        let path = path.display();
        match self.try_restore(gateway, unix_seconds()) {
            Ok(Some(restored)) => {
                tracing::info!(
                    %path,
                    blocks = restored.holdings,
                    replicas = restored.replicas.len(),
                    age_s = restored.age.as_secs_f64(),
                    "what the replicas held is restored, doubtful until their events confirm it"
                );
                Some(restored)
            }
            Ok(None) => {
                tracing::info!(%path, "no index was saved yet");
                None
            }
            Err(error) => {
                tracing::warn!(%path, %error, "the saved index is not used, and will be replaced");
                None
            }
        }
    }

    fn try_restore(
        &self,
        gateway: &dyn KnownReplicas,
        now: f64,
    ) -> Result<Option<RestoredIndex>, FileError> {
        let Some(saved) = self.folder.read(&self.seal)? else {
            return Ok(None);
        };
        // The age first: a file that is too old must not reach the index.
        let age = age(saved.saved_at, now)?;
        let dump = self.of_today(saved, gateway);
        let holdings = self.index.restore(&dump, gateway.clock().ago(age))?;
        let replicas: Vec<_> = dump.replicas.iter().map(|held| held.replica).collect();
        gateway.note_restored(&replicas);
        Ok(Some(RestoredIndex { replicas, holdings, age }))
    }

    /// Maps the saved index to the replicas that are present, under their current ids.
    fn of_today(&self, saved: SavedIndex, gateway: &dyn KnownReplicas) -> IndexDump {
        let ids = (0..).map(ReplicaId).zip(&self.endpoints);
        let mut ids: HashMap<&str, ReplicaId> =
            ids.filter_map(|(id, endpoint)| Some((endpoint.as_deref()?, id))).collect();
        let mut replicas = Vec::new();
        for replica in saved.replicas {
            let SavedReplica { endpoint, models, held } = replica;
            // Removed, so that a file which names an endpoint twice restores it once.
            let id = ids.remove(&endpoint[..]);
            let Some(id) = id.filter(|&id| !gateway.is_down(id)) else {
                tracing::info!(endpoint, "not there any more: what it held is not restored");
                continue;
            };
            let served = gateway.base_models(id);
            // Models that are not known yet are no contradiction: the replica may be starting.
            if !models.is_empty() && !served.is_empty() && models != served {
                tracing::warn!(endpoint, "serves other models: what it held is not restored");
                continue;
            }
            replicas.push(ReplicaDump { replica: id, ..held });
        }
        IndexDump { model: self.model.clone(), runs: saved.runs, replicas }
    }

    /// Saves what is held now. Blocks; updates of the index wait for a part of it, look-ups do
    /// not. Returns the file's bytes.
    ///
    /// # Errors
    /// When it cannot be written; what was saved before is still there then.
    pub fn save(&self, gateway: &dyn KnownReplicas) -> Result<u64, SaveError> {
        // The time first: nothing in the file is to look younger than it is.
        let saved_at = unix_seconds();
        let dump = self.index.dump(gateway.clock().now());
        let blocks: usize = dump.runs.iter().map(|run| run.keys.len()).sum();
        let size = blocks.saturating_add(dump.num_holdings());
        // Checked before the write, because a start would refuse the file.
        if size > MAX_DUMP_BLOCKS {
            return Err(SaveError::TooLarge(size));
        }
        let replicas = dump.replicas.into_iter().filter_map(|held| {
            let endpoint = self.endpoints.get(held.replica.0 as usize)?.clone()?;
            Some(SavedReplica { endpoint, models: gateway.base_models(held.replica), held })
        });
        let saved = SavedIndex { saved_at, runs: dump.runs, replicas: replicas.collect() };
        Ok(self.folder.write(&saved, &self.seal)?)
    }

    /// As [`Self::save`], and says what came of it.
    fn save_and_tell(&self, gateway: &dyn KnownReplicas) {
        let path = self.folder.index_path();
        let path = path.display();
        match self.save(gateway) {
            Ok(bytes) => tracing::debug!(%path, bytes, "the index is saved"),
            Err(error) => tracing::warn!(
                %path,
                %error,
                "the index was not saved; a start would know what was saved before, or nothing"
            ),
        }
    }
}

/// Returns the age of a file, or an error if it is too old or from the future.
fn age(saved_at: f64, now: f64) -> Result<Duration, FileError> {
    let age_s = now - saved_at;
    // Ages have no meaning once the clock was set back, and doubt ends by age.
    if age_s < 0.0 {
        return Err(FileError::FromTheFuture { ahead_s: -age_s });
    }
    match Duration::try_from_secs_f64(age_s) {
        Ok(age) if age < DOUBT_TTL => Ok(age),
        _ => Err(FileError::TooOld { age_s, limit_s: DOUBT_TTL.as_secs() }),
    }
}

/// A task that saves every so often. Dropping it ends it without a last save.
#[derive(Debug)]
pub struct Saving {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Saving {
    /// Saves `interval` after the start for the first time.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(keeper: Keeper, gateway: Weak<dyn KnownReplicas>, interval: Duration) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(save_on(Arc::new(keeper), gateway, interval, stopped));
        Self { stop, task }
    }

    /// Saves once more, and gives the folder back.
    pub async fn finish(mut self) {
        // There is no receiver if the task has ended by itself.
        let _ = self.stop.send(true);
        let _ = (&mut self.task).await;
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn save_on(
    keeper: Arc<Keeper>,
    gateway: Weak<dyn KnownReplicas>,
    interval: Duration,
    mut stopped: watch::Receiver<bool>,
) {
    let mut pause = interval;
    loop {
        let wait = tokio::time::timeout(pause, stopped.wait_for(|is_stopped| *is_stopped));
        let is_last = match wait.await {
            // The pause is over: time for a save.
            Err(_) => false,
            Ok(Ok(_)) => true,
            // The handle was dropped, and with it the wish for a last save.
            Ok(Err(_)) => return,
        };
        // Held weakly: the task must not keep a gateway alive that has ended.
        let Some(gateway) = gateway.upgrade() else {
            return;
        };
        let (keeper, start) = (keeper.clone(), Instant::now());
        // Writing waits for the disk, and a dump holds the index's lock for a part of the time.
        let saving = tokio::task::spawn_blocking(move || keeper.save_and_tell(&*gateway));
        if saving.await.is_err() {
            tracing::error!("saving the index failed by a defect of this program");
        }
        if is_last {
            return;
        }
        pause = interval.max(start.elapsed() * PAUSE_PER_SAVE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_decides() {
        let limit = DOUBT_TTL.as_secs_f64();
        for (saved_at, now, expected) in [
            (100.0, 100.0, Some(0.0)),
            (100.0, 130.5, Some(30.5)),
            (100.0, 99.0 + limit, Some(limit - 1.0)),
            (100.0, 100.0 + limit, None),
            (100.0, 1e300, None),
            (100.0, 99.0, None),
        ] {
            let age = age(saved_at, now).ok().map(|age| age.as_secs_f64());
            assert_eq!(age, expected, "{saved_at} at {now}");
        }
    }
}
