//! State of the disk before a row is measured. Each row reads its own copy, so that it does not
//! find packs of other ratios or speeds.

use headstart_terminal as output;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Folder with a copy of the state; dropping it deletes the folder.
pub(super) struct DiskStateFolder(PathBuf);

impl DiskStateFolder {
    /// Copies the folder `stored` to `folder`, which must not exist yet. No process may have
    /// `stored` open.
    pub(super) fn copied(stored: &Path, folder: PathBuf) -> Result<Self> {
        // The guard exists before the copy, so a failed copy is deleted as well.
        let state = Self(folder);
        let copied = copy(stored, &state.0);
        copied.with_context(|| format!("cannot copy to {}", state.0.display()))?;
        Ok(state)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for DiskStateFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            // A drop cannot fail; the user learns which folder is left.
            output::note(&format!("{} could not be deleted: {error}", self.0.display()));
        }
    }
}

/// All of a folder, on the disk when it returns: writing it must not disturb what is measured.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copied = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &copied)?;
        } else {
            fs::copy(entry.path(), &copied)?;
            // Dirty pages would be written back during the measurement.
            File::open(&copied)?.sync_all()?;
        }
    }
    Ok(())
}
