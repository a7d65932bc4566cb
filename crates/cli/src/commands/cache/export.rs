//! `headstart cache export`: verified records to another folder or object store.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use headstart_core::figures::counted;
use headstart_store::disk::{DiskError, FolderInspector, unix_seconds};
use headstart_store::inspect::Item;
use headstart_store::inspect::copy::{CopyReport, copy, wakeups};
use headstart_store::remote::{Remote, RemoteOptions};
use headstart_store::{Backend, Disk, DiskOptions};
use headstart_terminal::{self as output, Progress, TaskProgress};
use serde_json::json;

use super::whose::TenantSelector;
use super::{CacheLocation, Form, in_use, progress, words};
use crate::exit::usage;

/// Budget of a folder where none is given, GiB: what `serve` takes.
const BUDGET_GIB: f64 = 10.0;

/// Copy verified records to another folder or object store.
#[derive(Args, Debug)]
#[command(after_help = include_str!("export.help.txt"))]
pub(crate) struct Export {
    #[command(flatten)]
    place: CacheLocation,
    /// Destination, a folder or URL
    #[arg(value_name = "DEST")]
    dest: String,
    #[command(flatten)]
    whose: TenantSelector,
    /// Budget of a destination folder, GiB [default: 10]
    ///
    /// Use the same budget for `serve`.
    #[arg(long, env = "HEADSTART_CONTEXT_CACHE_GIB", value_name = "GIB")]
    context_cache_gib: Option<f64>,
    #[command(flatten)]
    form: Form,
}

pub(super) fn run(export: &Export) -> Result<()> {
    let tenant = export.whose.tag()?;
    refuse_itself(export)?;
    let looking = TaskProgress::endless("reading the lists of records");
    let from = export.place.look()?;
    let mut items = from.survey(unix_seconds())?.items;
    items.retain(|item| tenant.is_none_or(|tag| item.resident.tenant == tag));
    let (waker, woken) = wakeups();
    let mut to: Box<dyn Backend> = if export.dest.contains("://") {
        Box::new(Remote::open(&RemoteOptions::new(&export.dest), waker)?.0)
    } else {
        let gib = export.context_cache_gib.unwrap_or(BUDGET_GIB);
        let budget_bytes = (gib * f64::from(1 << 30)) as u64;
        // This check comes before the folder is opened, because opening it evicts.
        refuse_to_shrink(&export.dest, budget_bytes)?;
        let options = DiskOptions::new(&export.dest, budget_bytes);
        match Disk::open(options, waker) {
            Ok((disk, _)) => Box::new(disk),
            Err(DiskError::InUse { path }) => return Err(in_use(&path)),
            Err(other) => return Err(other.into()),
        }
    };
    looking.end();
    let progress = progress("copying records", &items);
    let copied = copy(&from, &items, (to.as_mut(), &woken), |bytes| {
        progress.inc(bytes);
    })?;
    progress.end();
    // Its lists are written now.
    drop(to);
    tell(export, &items, &copied)
}

/// A folder deletes what its budget has no place for when it is opened: not because a budget was
/// left out.
fn refuse_to_shrink(dest: &str, budget_bytes: u64) -> Result<()> {
    let held = match FolderInspector::look(dest.as_ref()) {
        Ok(folder) => folder.file_bytes()?,
        // A folder that is no cache yet has nothing to lose.
        Err(DiskError::NoCache { .. }) => return Ok(()),
        Err(other) => return Err(other.into()),
    };
    if held <= budget_bytes {
        Ok(())
    } else {
        bail!(usage(format!(
            "{dest} has {} already, more than a budget of {}, and would lose what is beyond it: \
             give --context-cache-gib as `serve` has it",
            words::bytes(held),
            words::bytes(budget_bytes)
        )))
    }
}

/// A cache would be read while it is written, for nothing.
fn refuse_itself(export: &Export) -> Result<()> {
    // Links and relative paths can name one folder in two ways.
    let real = |place: &str| PathBuf::from(place).canonicalize().ok();
    let (from, to) = (&export.place.cache, &export.dest);
    // URLs have no canonical form, so only their spelling is compared.
    let is_same = from.trim_end_matches('/') == to.trim_end_matches('/')
        || real(from).is_some_and(|from| Some(from) == real(to));
    if is_same { bail!(usage(format!("{to} is the source itself; name another"))) } else { Ok(()) }
}

fn tell(export: &Export, items: &[Item], copied: &CopyReport) -> Result<()> {
    let mut failed: Vec<(String, u64)> =
        copied.failed.iter().map(|(failure, count)| (failure.to_string(), *count)).collect();
    // A map has no order; sorted lines are the same in each run.
    failed.sort();
    let lines = || {
        let mut lines = vec![format!(
            "{} of {} copied, {}",
            copied.stored.records,
            counted(items.len() as u64, "record"),
            words::bytes(copied.stored.bytes)
        )];
        for (count, what) in [
            (copied.damaged, "damaged, not copied (`cache verify` sets them aside)"),
            (copied.gone, "replaced or deleted meanwhile"),
            (copied.unreadable, "could not be read"),
            (copied.evicted, "given up by the destination to make room"),
        ] {
            if count > 0 {
                lines.push(format!("{count} {what}"));
            }
        }
        let failed = failed.iter();
        lines.extend(failed.map(|(why, count)| format!("{count} not written: {why}")));
        lines.join("\n")
    };
    output::line(&if export.form.json {
        json!({
            "records": items.len(),
            "stored": {"records": copied.stored.records, "bytes": copied.stored.bytes},
            "damaged": copied.damaged,
            "gone_meanwhile": copied.gone,
            "unreadable": copied.unreadable,
            "evicted": copied.evicted,
            "failed": failed.iter().cloned().collect::<BTreeMap<String, u64>>(),
        })
        .to_string()
    } else {
        lines()
    })?;
    // The report comes first, so a script gets the figures of a failed copy as well.
    let num_failed: u64 = copied.failed.values().sum();
    if num_failed > 0 {
        bail!("{} could not be written to {}", counted(num_failed, "record"), export.dest);
    }
    if copied.unreadable > 0 {
        bail!(
            "{} of {} could not be read: check that disk or store",
            counted(copied.unreadable, "record"),
            export.place.cache
        );
    }
    // Evicted copies were written and are gone again, so the copy is incomplete.
    if copied.evicted > 0 {
        bail!("{} is too small for all of them: raise --context-cache-gib", export.dest);
    }
    Ok(())
}
