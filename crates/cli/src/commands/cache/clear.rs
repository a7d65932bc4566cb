//! `headstart cache gc` and `purge`: what goes.

use anyhow::{Result, bail};
use clap::Args;
use headstart_core::TenantTag;
use headstart_core::figures::counted;
use headstart_store::disk::unix_seconds;
use headstart_store::inspect::{Cache as Opened, RecordTally};
use headstart_terminal::{self as output, Progress, TaskProgress};
use serde_json::json;

use super::whose::TenantSelector;
use super::{CacheLocation, Form, words};
use crate::exit::usage;

/// Remove expired and replaced records, and free their disk space.
#[derive(Args, Debug)]
#[command(after_help = include_str!("gc.help.txt"))]
pub(crate) struct Gc {
    #[command(flatten)]
    place: CacheLocation,
    #[command(flatten)]
    form: Form,
}

/// Delete all records of a tenant, or all records.
#[derive(Args, Debug)]
#[command(after_help = include_str!("purge.help.txt"))]
pub(crate) struct Purge {
    #[command(flatten)]
    place: CacheLocation,
    #[command(flatten)]
    whose: TenantSelector,
    /// Delete the records of all tenants
    #[arg(long, conflicts_with_all = ["tenant", "salt", "salt_file", "no_salt"])]
    all: bool,
    /// Confirm the deletion; required for --all and --no-salt
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    form: Form,
}

pub(super) fn gc(gc: &Gc) -> Result<()> {
    let progress = TaskProgress::endless("deleting expired records");
    let cleared = gc.place.open()?.clear(unix_seconds())?;
    progress.end();
    let tally = |tally: RecordTally| json!({"records": tally.records, "bytes": tally.bytes});
    let text = |tally: RecordTally| format!("{}, {}", tally.records, words::bytes(tally.bytes));
    output::line(&if gc.form.json {
        json!({
            "expired": tally(cleared.expired),
            "garbage": tally(cleared.garbage),
            "segments_deleted": cleared.segments,
            "won_bytes": cleared.won_bytes,
        })
        .to_string()
    } else {
        format!(
            "expired      {}\n\
             garbage      {}\n\
             segments     {} deleted\n\
             won          {}",
            text(cleared.expired),
            text(cleared.garbage),
            cleared.segments,
            words::bytes(cleared.won_bytes),
        )
    })
}

pub(super) fn purge(purge: &Purge) -> Result<()> {
    // A wrong tag fails before the cache is opened and locked.
    let tenant = purge.whose.tag()?;
    let progress = TaskProgress::endless("destroying records");
    let cache = purge.place.open()?;
    let purged = match (tenant, purge.all) {
        // Where no client sends a salt, the default tag covers all records.
        (Some(tag), _) if tag == TenantTag::default() && !purge.yes => {
            return Err(ask_back(&cache, Some(tag), &purge.place.cache)?);
        }
        (Some(tag), _) => cache.purge(tag)?,
        (None, true) if purge.yes => cache.purge_all()?,
        (None, true) => return Err(ask_back(&cache, None, &purge.place.cache)?),
        (None, false) => {
            bail!(usage(
                "whose records? Give --tenant TAG, --salt TEXT, --salt-file FILE, \
                           --no-salt, or --all"
            ));
        }
    };
    progress.end();
    let what = match (&cache, purge.all) {
        (Opened::Folder(_), false) => "record",
        (Opened::Folder(_), true) => "segment",
        (Opened::Store(_), _) => "object",
    };
    let tag = tenant.map(words::tenant);
    output::line(&if purge.form.json {
        json!({"tenant": tag, "destroyed": purged, "what": format!("{what}s")}).to_string()
    } else {
        match tag {
            Some(tag) => format!("destroyed {} of tenant {tag}", counted(purged as u64, what)),
            None => format!("destroyed {}", counted(purged as u64, what)),
        }
    })
}

/// Returns the error that names the records to destroy and asks for `--yes`.
fn ask_back(cache: &Opened, tenant: Option<TenantTag>, place: &str) -> Result<anyhow::Error> {
    // The survey shows the user the size of the loss before it happens.
    let mut items = cache.survey(unix_seconds())?.items;
    items.retain(|item| tenant.is_none_or(|tag| item.resident.tenant == tag));
    let bytes = items.iter().map(|item| item.resident.bytes).sum();
    let whose = tenant.map_or("all", |_| "all that have no salt:");
    let message = format!(
        "this destroys {whose} {} in {place}, {}: repeat it with --yes",
        counted(items.len() as u64, "record"),
        words::bytes(bytes),
    );
    Ok(usage(message))
}
