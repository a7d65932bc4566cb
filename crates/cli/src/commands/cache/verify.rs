//! `headstart cache verify`: every byte of every record, against its checksums and its name.

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use headstart_core::figures::counted;
use headstart_store::disk::unix_seconds;
use headstart_store::inspect::{Item, RecordReadError, RecordTally};
use headstart_store::record::Wrong;
use headstart_terminal::{self as output, Progress, TaskProgress};
use serde_json::{Value, json};

use super::whose::TenantSelector;
use super::{CacheLocation, Form, arena, progress, words};
use crate::exit::CheckFailure;

/// Verify the checksums of all records.
#[derive(Args, Debug)]
#[command(after_help = include_str!("verify.help.txt"))]
pub(crate) struct Verify {
    #[command(flatten)]
    place: CacheLocation,
    #[command(flatten)]
    whose: TenantSelector,
    /// Change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    form: Form,
}

/// Results of the verification.
#[derive(Default)]
struct VerificationResults {
    intact: RecordTally,
    damaged: Vec<(Item, Wrong)>,
    unreadable: Vec<(Item, String)>,
    gone: u64,
    /// Damaged or hidden where no list of records tells it.
    harm: Vec<String>,
}

pub(super) fn run(verify: &Verify) -> Result<()> {
    let tenant = verify.whose.tag()?;
    let looking = TaskProgress::endless("reading the lists of records");
    // Setting records aside needs the lock; looking works beside a server.
    let cache = if verify.dry_run { verify.place.look()? } else { verify.place.open()? };
    let survey = cache.survey(unix_seconds())?;
    let mut items = survey.items;
    // The lists cover all tenants, and a check of one reads only its records.
    items.retain(|item| tenant.is_none_or(|tag| item.resident.tenant == tag));
    // Memory for the largest record, before any is read.
    let arena = arena(&items)?;
    looking.end();
    let progress = progress("reading records", &items);
    let began = Instant::now();
    let mut found = VerificationResults { harm: survey.harm, ..VerificationResults::default() };
    cache.read(
        &items,
        &mut || arena.take().expect("as many slots as are read at once"),
        &mut |item, read| {
            progress.inc(item.resident.bytes);
            match read {
                Ok(_) => found.intact.add(item.resident.bytes),
                Err(RecordReadError::Wrong(wrong)) => found.damaged.push((*item, wrong)),
                Err(RecordReadError::Unreadable(why)) => found.unreadable.push((*item, why)),
                Err(RecordReadError::Gone) => found.gone += 1,
            }
        },
    );
    progress.end();
    if !verify.dry_run {
        cache.set_aside(&found.damaged)?;
    }
    let seconds = began.elapsed().as_secs_f64();
    output::line(&if verify.form.json {
        found.json(verify.dry_run, seconds).to_string()
    } else {
        output::fitted(&found.text(verify.dry_run, seconds))
    })?;
    let wrong = found.damaged.len() + found.unreadable.len();
    let harm = found.harm.len();
    let harmed = format!("segments are harmed in {}", counted(harm as u64, "place"));
    let damaged = format!("{wrong} of {} damaged", counted(items.len() as u64, "record"));
    // Unreadable records fail the check as damaged ones do.
    match (wrong, harm) {
        (0, 0) => Ok(()),
        (0, _) => bail!(CheckFailure(harmed)),
        (_, 0) => bail!(CheckFailure(damaged)),
        _ => bail!(CheckFailure(format!("{damaged}, and {harmed}"))),
    }
}

impl VerificationResults {
    fn json(&self, is_dry: bool, seconds: f64) -> Value {
        let named = |item: &Item, wrong: String| {
            json!({
                "name": format!("{:?}", item.resident.name),
                "tenant": words::tenant(item.resident.tenant),
                "bytes": item.resident.bytes,
                "wrong": wrong,
            })
        };
        let damaged = self.damaged.iter();
        let unreadable = self.unreadable.iter();
        json!({
            "ok": {"records": self.intact.records, "bytes": self.intact.bytes},
            "damaged": damaged
                .map(|(item, wrong)| named(item, wrong.to_string()))
                .collect::<Vec<_>>(),
            "unreadable": unreadable
                .map(|(item, why)| named(item, why.clone()))
                .collect::<Vec<_>>(),
            "harm": self.harm,
            "gone_meanwhile": self.gone,
            "set_aside": !is_dry,
            "seconds": seconds,
        })
    }

    fn text(&self, is_dry: bool, seconds: f64) -> String {
        // A very fast run must not divide by zero.
        let rate = self.intact.bytes as f64 / seconds.max(1e-9);
        let mut lines = Vec::new();
        for (item, wrong) in &self.damaged {
            lines.push(line(item, &wrong.to_string()));
        }
        for (item, why) in &self.unreadable {
            lines.push(line(item, why));
        }
        lines.extend(self.harm.iter().cloned());
        lines.push(format!(
            "{} ok, {} in {seconds:.1} s ({}/s)",
            counted(self.intact.records, "record"),
            words::bytes(self.intact.bytes),
            words::bytes(rate as u64),
        ));
        if !self.damaged.is_empty() {
            let what = if is_dry {
                "damaged; nothing was changed"
            } else {
                "damaged and set aside; they will be recomputed"
            };
            lines.push(format!("{} {what}", self.damaged.len()));
        }
        if !self.unreadable.is_empty() {
            let count = self.unreadable.len();
            lines.push(format!("{count} could not be read: look after that disk or store"));
        }
        if self.gone > 0 {
            lines.push(format!("{} were replaced or deleted meanwhile", self.gone));
        }
        lines.join("\n")
    }
}

fn line(item: &Item, wrong: &str) -> String {
    format!("{:?} of tenant {}: {wrong}", item.resident.name, words::tenant(item.resident.tenant))
}
