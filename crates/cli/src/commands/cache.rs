//! `headstart cache`: a context cache looked at and looked after.
//!
//! | module | does |
//! |---|---|
//! | `whose` | tenants, as users name them |
//! | `look` | `ls` and `stat` |
//! | `verify`, `export`, `clear` | the other commands |
//! | `words` | sizes and ages, for people |

mod clear;
mod export;
mod look;
mod verify;
mod whose;
mod words;

use std::path::Path;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use headstart_store::Arena;
use headstart_store::disk::{DiskError, FolderInspector, Holder};
use headstart_store::inspect::{Cache as Opened, InspectError, Item, slot_bytes};
use headstart_terminal::{Progress, TaskProgress};

/// Slots for what is read: as many as are read at once, and some.
const SLOTS: usize = 32;

/// Inspect and clean a context cache.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// List all records, oldest first.
    Ls(look::Ls),
    /// Show disk use, tenants, ages and the process that uses it.
    Stat(look::Stat),
    /// Verify the checksums of all records; set damaged ones aside.
    Verify(verify::Verify),
    /// Remove expired and replaced records, and free their disk space.
    Gc(clear::Gc),
    /// Copy verified records to another folder or object store.
    Export(export::Export),
    /// Delete all records of a tenant, or all records.
    Purge(clear::Purge),
}

/// The context cache to open.
#[derive(Args, Debug)]
pub(crate) struct CacheLocation {
    /// Folder or URL, as for `serve --context-cache`
    ///
    /// URLs are s3://BUCKET/PREFIX, gs://…, az://… and file:///FOLDER. Credentials come from the
    /// environment.
    #[arg(env = "HEADSTART_CONTEXT_CACHE", value_name = "DIR|URL")]
    cache: String,
}

/// Output format.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Does what is asked for.
pub(crate) fn run(cache: &CacheCommand) -> Result<()> {
    match cache {
        CacheCommand::Ls(ls) => look::ls(ls),
        CacheCommand::Stat(stat) => look::stat(stat),
        CacheCommand::Verify(verify) => verify::run(verify),
        CacheCommand::Gc(gc) => clear::gc(gc),
        CacheCommand::Export(export) => export::run(export),
        CacheCommand::Purge(purge) => clear::purge(purge),
    }
}

impl CacheLocation {
    /// Without changing it, also while a server uses it.
    fn look(&self) -> Result<Opened> {
        Opened::look(&self.cache).map_err(explained)
    }

    /// To change it.
    fn open(&self) -> Result<Opened> {
        Opened::open(&self.cache).map_err(explained)
    }
}

/// Says who uses a folder, and what works all the same.
fn explained(error: InspectError) -> anyhow::Error {
    match error {
        // The store's own error knows the folder, but not which commands still work.
        InspectError::Disk(DiskError::InUse { path }) => in_use(&path),
        other => other.into(),
    }
}

fn in_use(path: &Path) -> anyhow::Error {
    // The holder is looked up without the lock, which the other process has.
    let holder = FolderInspector::look(path).map(|folder| folder.holder());
    let who = match holder {
        Ok(Holder::Process(Some(process))) => format!("process {process}"),
        _ => "another process".to_owned(),
    };
    anyhow!(
        "{} is used by {who}: stop that server first; beside it work `cache ls`, `cache stat`, \
         `cache export` from it, and `cache verify --dry-run`",
        path.display()
    )
}

/// Memory to read any of these.
fn arena(items: &[Item]) -> Result<std::sync::Arc<Arena>> {
    Ok(Arena::new(slot_bytes(items), SLOTS)?)
}

/// Progress over the items' bytes.
fn progress(what: &'static str, items: &[Item]) -> TaskProgress {
    let progress = TaskProgress::bytes(what);
    // Progress is in bytes, because records differ in size.
    progress.inc_length(items.iter().map(|item| item.resident.bytes).sum());
    progress
}
