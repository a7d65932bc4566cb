//! Whether this machine has the memory and the disk that the tiers may take.

use std::path::Path;

use anyhow::Result;
use headstart_core::figures::counted;

use super::CONTEXT_CACHE_GIB;
use crate::config::ServeOptions;
use crate::exit::usage;
use crate::machine::memory_bytes;

const GIB: f64 = (1u64 << 30) as f64;

/// Refuses host memory that this machine does not have, and warns of a disk that has less room
/// than the budget: others may free it.
pub(super) fn check(options: &ServeOptions, place: &str) -> Result<()> {
    // Each replica has host memory of its own, so the budget counts once for each.
    let replicas = options.replicas.unwrap_or(2) as f64;
    let host_gib = options.host_cache_gib.unwrap_or(0.0) * replicas;
    if let Some(memory) = memory_bytes().map(|bytes| bytes as f64 / GIB)
        && host_gib > memory
    {
        return Err(usage(format!(
            "--host-cache-gib takes {host_gib:.1} GiB with {}, more than this \
             machine's memory of {memory:.1} GiB",
            counted(replicas as u64, "replica")
        )));
    }
    let budget = options.context_cache_gib.unwrap_or(CONTEXT_CACHE_GIB);
    let room = room_gib(place);
    // A warning and no error: other files on the disk may go before the cache is full.
    if let Some(room) = room.filter(|&room| room < budget) {
        tracing::warn!(
            budget_gib = budget,
            free_gib = format!("{room:.1}"),
            "the disk has less room than --context-cache-gib; it stores nothing while the \
             disk is full"
        );
    }
    Ok(())
}

/// Returns the free space of a folder's disk plus the bytes in the folder, GiB; `None` for an
/// object store.
fn room_gib(place: &str) -> Option<f64> {
    if place.contains("://") {
        return None;
    }
    let mut folder = Path::new(place);
    // The folder may not exist yet; the disk is that of its nearest parent.
    while !folder.exists() {
        folder = folder.parent()?;
    }
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let disk = rustix::fs::statvfs(folder).ok()?;
    // Files of the cache count as free, because the budget includes them.
    let files = std::fs::read_dir(place).into_iter().flatten().flatten();
    let held: u64 = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
    // `f_bavail` leaves out the blocks that only root can use.
    Some((disk.f_bavail.saturating_mul(disk.f_frsize).saturating_add(held)) as f64 / GIB)
}
