//! Files of what eviction policies have learned, so that a restart need not learn it again.
//!
//! ```text
//! folder/learned-0-device   replica 0, the engine's own cache
//!        learned-0-host     its host memory, and so on
//! ```
//!
//! They hold counts: no text, no tokens, no names of blocks. A hint: a file that cannot be used is
//! replaced, and one that cannot be written stays as it was.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use headstart_cache::Policy;
use headstart_core::Tier;

/// Read and written by its owner only.
const PRIVATE_FILE: u32 = 0o600;

/// Longest file that is read: ten times what a policy writes.
const BYTES_MAX: u64 = 4 << 20;

/// The tables of one replica, in a folder that its process has for itself.
#[derive(Clone, Debug)]
pub struct LearnedTables {
    folder: PathBuf,
    replica: u32,
    /// Whether a thread writes: one at a time, however slow the disk is.
    is_writing: Arc<AtomicBool>,
}

impl LearnedTables {
    /// Those of `replica` in `folder`, which exists.
    #[must_use]
    pub fn new(folder: &Path, replica: u32) -> Self {
        Self { folder: folder.to_owned(), replica, is_writing: Arc::default() }
    }

    fn path(&self, tier: Tier) -> PathBuf {
        self.folder.join(format!("learned-{}-{}", self.replica, tier.name()))
    }

    /// Starts a policy from what was saved, if that can be used. A policy that learns nothing is
    /// left alone.
    pub fn restore(&self, policy: &mut dyn Policy, tier: Tier) {
        if policy.learned().is_none() {
            return;
        }
        let path = self.path(tier);
        let restored = read(&path).map(|bytes| bytes.map(|bytes| policy.learn_from(&bytes)));
        let problem = match restored {
            Ok(None | Some(Ok(()))) => return,
            Ok(Some(Err(foreign))) => foreign.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(
            path = %path.display(),
            problem,
            "what the eviction policy had learned is lost; it starts from nothing"
        );
    }

    /// Saves tables without waiting for the disk. While an earlier save is under way, nothing
    /// happens.
    pub(crate) fn save_later(&self, tables: Vec<(Tier, Vec<u8>)>) {
        if self.is_writing.swap(true, Acquire) {
            return;
        }
        let kept = self.clone();
        let thread = std::thread::Builder::new().name("learned".to_owned()).spawn(move || {
            kept.save(&tables);
            kept.is_writing.store(false, Release);
        });
        if thread.is_err() {
            self.is_writing.store(false, Release);
        }
    }

    /// Saves tables, each by the tier that it belongs to.
    pub(crate) fn save(&self, tables: &[(Tier, Vec<u8>)]) {
        for (tier, bytes) in tables {
            let path = self.path(*tier);
            if let Err(error) = replace(&path, bytes) {
                let path = path.display();
                tracing::warn!(%path, %error, "cannot save what the eviction policy has learned");
            }
        }
    }
}

/// Reads a file; `None` if it is missing.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        // Reading from a pipe would wait, and from some devices never end.
        Ok(file) if file.is_file() && file.len() <= BYTES_MAX => fs::read(path).map(Some),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file of ours")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts a file in place of another one, whole. It is not forced to the disk: after a loss of power
/// it may be damaged, and its checksum tells.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(PRIVATE_FILE);
    let placed = options.open(&beside)?.write_all(bytes).and_then(|()| fs::rename(&beside, path));
    if placed.is_err() {
        // A partial file is of no use, least of all on a full disk.
        let _ = fs::remove_file(&beside);
    }
    placed
}

#[cfg(test)]
mod tests {
    use headstart_cache::policy::{Hazard, HazardOptions, Lru};
    use headstart_core::{Access, BlockId, FinishKind, Nanos};

    use super::*;

    fn hazard() -> Hazard {
        Hazard::new(8, HazardOptions::default())
    }

    /// A policy that has seen a return.
    fn experienced() -> Hazard {
        let mut policy = hazard();
        policy.insert(BlockId(0), headstart_core::BlockHash::from_u64(1), &Access::default());
        for second in 0..50 {
            let now = Nanos::from_secs_f64(f64::from(second));
            let access = Access { finish: FinishKind::ToolCalls, ..Access::at(now) };
            policy.release(&[BlockId(0)], &access);
        }
        policy
    }

    #[test]
    fn what_was_learned_comes_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let tables = LearnedTables::new(folder.path(), 0);
        let learned = experienced().learned().expect("it learns");
        assert_ne!(Some(&learned), hazard().learned().as_ref());
        let mut policy = hazard();
        tables.restore(&mut policy, Tier::Device);
        assert_eq!(policy.learned(), hazard().learned(), "nothing was saved");
        tables.save(&[(Tier::Device, learned.clone())]);
        LearnedTables::new(folder.path(), 1).restore(&mut policy, Tier::Device);
        tables.restore(&mut policy, Tier::Host);
        assert_eq!(policy.learned(), hazard().learned(), "others have their own");
        tables.restore(&mut policy, Tier::Device);
        assert_eq!(policy.learned(), Some(learned));
        tables.restore(&mut Lru::new(8), Tier::Device);
    }

    #[test]
    fn what_cannot_be_used_is_no_obstacle() {
        let folder = tempfile::tempdir().expect("a folder");
        let tables = LearnedTables::new(folder.path(), 0);
        let path = tables.path(Tier::Device);
        fs::write(&path, "something else").expect("written");
        let mut policy = hazard();
        tables.restore(&mut policy, Tier::Device);
        assert_eq!(policy.learned(), hazard().learned());
        fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        tables.restore(&mut policy, Tier::Device);
        assert_eq!(policy.learned(), hazard().learned());
        // A save replaces it; one that cannot be written is no error.
        tables.save(&[(Tier::Device, experienced().learned().expect("it learns"))]);
        tables.restore(&mut policy, Tier::Device);
        assert_ne!(policy.learned(), hazard().learned());
        let missing = LearnedTables::new(&folder.path().join("missing"), 0);
        missing.save(&[(Tier::Device, vec![1])]);
    }
}
