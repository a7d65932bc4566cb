//! `headstart cache ls` and `stat`: what a context cache holds.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use headstart_core::TenantTag;
use headstart_store::disk::{FolderInspector, Holder, unix_seconds};
use headstart_store::inspect::{Cache as Opened, Item, RecordTally, Survey};
use headstart_store::record::{Content, Exactness};
use headstart_terminal::{self as output, Progress, TaskProgress, aligned};
use serde_json::{Value, json};

use super::whose::TenantSelector;
use super::{CacheLocation, Form, words};

/// Tenants and identities that are shown to people.
const SHOWN: usize = 20;

/// List all records, oldest first.
#[derive(Args, Debug)]
#[command(after_help = include_str!("ls.help.txt"))]
pub(crate) struct Ls {
    #[command(flatten)]
    place: CacheLocation,
    #[command(flatten)]
    whose: TenantSelector,
    /// Maximum number of records
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    form: Form,
}

/// Show disk use, tenants, ages and the process that uses it.
#[derive(Args, Debug)]
#[command(after_help = include_str!("stat.help.txt"))]
pub(crate) struct Stat {
    #[command(flatten)]
    place: CacheLocation,
    /// Read only the lists of records, not the records
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    form: Form,
}

pub(super) fn ls(ls: &Ls) -> Result<()> {
    let tenant = ls.whose.tag()?;
    let progress = TaskProgress::endless("reading the lists of records");
    let cache = ls.place.look()?;
    let now_s = unix_seconds();
    let survey = cache.survey(now_s)?;
    let items = survey.items.into_iter();
    // The filter comes before the limit: the limit counts records of this tenant.
    let items = items.filter(|item| tenant.is_none_or(|tag| item.resident.tenant == tag));
    let mut items: Vec<Item> = items.take(ls.limit.unwrap_or(usize::MAX)).collect();
    // Reading the start of each record takes time, so only those shown are described.
    cache.describe(&mut items);
    progress.end();
    let text = if ls.form.json {
        let lines = items.iter().map(|item| as_json(item).to_string());
        lines.collect::<Vec<_>>().join("\n")
    } else {
        let rows = items.iter().map(|item| row(item, now_s).to_vec());
        let head = std::iter::once(HEAD.map(str::to_owned).to_vec());
        aligned(&head.chain(rows).collect::<Vec<_>>())
    };
    if text.is_empty() { Ok(()) } else { output::line(text.trim_end()) }
}

/// Columns of `ls`; `--json` has the parent too.
const HEAD: [&str; 8] = ["name", "type", "kind", "tenant", "tokens", "bytes", "age", "expires"];

fn row(item: &Item, now_s: u64) -> [String; 8] {
    let it = &item.resident;
    // Clocks of two machines may differ, so an age is never negative.
    let age = item.created_s.map(|at| now_s.saturating_sub(at));
    let left = it.expires_s.map(|at| at.saturating_sub(now_s));
    let span = |seconds: Option<u64>, none: &str| seconds.map_or(none.to_owned(), words::span);
    [
        words::short(it.name),
        it.content.name().to_owned(),
        item.exactness.map_or("-", Exactness::name).to_owned(),
        words::tenant(it.tenant),
        it.tokens.to_string(),
        words::bytes(it.bytes),
        span(age, "-"),
        span(left, "never"),
    ]
}

fn as_json(item: &Item) -> Value {
    let it = &item.resident;
    json!({
        "name": format!("{:?}", it.name),
        "parent": it.parent.map(|parent| format!("{parent:?}")),
        "tenant": words::tenant(it.tenant),
        "tokens": it.tokens,
        "content": it.content.name(),
        "bytes": it.bytes,
        "created_s": item.created_s,
        "expires_s": it.expires_s,
        "identity": item.identity.map(words::identity),
        "exactness": item.exactness.map(Exactness::name),
    })
}

pub(super) fn stat(stat: &Stat) -> Result<()> {
    let progress = TaskProgress::endless("reading records");
    let cache = stat.place.look()?;
    let now_s = unix_seconds();
    let mut survey = cache.survey(now_s)?;
    // The lists alone are fast; ages and identities need a read of each record.
    if !stat.quick {
        cache.describe(&mut survey.items);
    }
    progress.end();
    let folder = match &cache {
        Opened::Folder(folder) => Some(folder),
        Opened::Store(_) => None,
    };
    let told = CacheStatReport {
        place: &stat.place.cache,
        survey: &survey,
        budget_bytes: folder.and_then(FolderInspector::budget_bytes),
        holder: folder.map(FolderInspector::holder),
        now_s,
    };
    output::line(&if stat.form.json {
        told.json().to_string()
    } else {
        output::fitted(&told.text())
    })
}

/// Contents of the `stat` output.
struct CacheStatReport<'a> {
    place: &'a str,
    survey: &'a Survey,
    budget_bytes: Option<u64>,
    holder: Option<Holder>,
    now_s: u64,
}

impl CacheStatReport<'_> {
    /// Records, by what `key` makes of them; the largest first.
    fn by<K: Ord>(&self, key: impl Fn(&Item) -> Option<K>) -> Vec<(K, RecordTally)> {
        let mut tallies: BTreeMap<K, RecordTally> = BTreeMap::new();
        for item in &self.survey.items {
            if let Some(key) = key(item) {
                tallies.entry(key).or_default().add(item.resident.bytes);
            }
        }
        let mut tallies: Vec<(K, RecordTally)> = tallies.into_iter().collect();
        // The largest come first, and only the first ones are shown to people.
        tallies.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.bytes));
        tallies
    }

    fn tenants(&self) -> Vec<(TenantTag, RecordTally)> {
        self.by(|item| Some(item.resident.tenant))
    }

    fn identities(&self) -> Vec<(String, RecordTally)> {
        self.by(|item| item.identity.map(words::identity))
    }

    /// Exact ones, and those of fewer bits.
    fn kinds(&self) -> Vec<(&'static str, RecordTally)> {
        self.by(|item| item.exactness.map(Exactness::name))
    }

    /// Seconds since the oldest and the youngest were made.
    fn ages(&self) -> Option<(u64, u64)> {
        let made = self.survey.items.iter().filter_map(|item| item.created_s);
        let ages = made.map(|at| self.now_s.saturating_sub(at));
        Some((ages.clone().max()?, ages.min()?))
    }

    fn all(&self) -> RecordTally {
        let bytes = self.survey.items.iter().map(|item| item.resident.bytes);
        RecordTally { records: self.survey.items.len() as u64, bytes: bytes.sum() }
    }

    fn tokens(&self) -> u64 {
        let units = self.survey.items.iter();
        // Packs are copies.
        let units = units.filter(|item| item.resident.content == Content::Unit);
        units.map(|item| u64::from(item.resident.tokens)).sum()
    }

    /// Copies of units' parts with the tokens in another order, among all records.
    fn packs(&self) -> RecordTally {
        let mut packs = RecordTally::default();
        let items = self.survey.items.iter().map(|item| item.resident);
        let items = items.filter(|resident| resident.content == Content::Pack);
        items.for_each(|resident| packs.add(resident.bytes));
        packs
    }

    /// Returns the bytes that count against the budget.
    fn used_bytes(&self) -> u64 {
        // Segments take more room than their records.
        let files = self.survey.files;
        files.map_or_else(|| self.all().bytes, |files| files.bytes())
    }

    fn holder(&self) -> Option<String> {
        Some(match self.holder? {
            Holder::Nobody => "no process".to_owned(),
            Holder::Process(Some(process)) => format!("process {process}"),
            Holder::Process(None) => "another process".to_owned(),
            Holder::Unknown => "unknown: the system does not say".to_owned(),
        })
    }

    fn json(&self) -> Value {
        let tally = |tally: RecordTally| json!({"records": tally.records, "bytes": tally.bytes});
        let tenants = self.tenants().into_iter();
        let identities = self.identities().into_iter();
        let kinds = self.kinds().into_iter();
        let all = self.all();
        json!({
            "place": self.place,
            "records": all.records,
            "bytes": all.bytes,
            "tokens": self.tokens(),
            "packs": tally(self.packs()),
            "budget_bytes": self.budget_bytes,
            "used_bytes": self.used_bytes(),
            "segments": self.survey.files.map(|files| json!({
                "count": files.segments,
                "segment_bytes": files.segment_bytes,
                "bytes": files.bytes(),
                "allocated_bytes": files.allocated_bytes,
            })),
            "tenants": tenants
                .map(|(tag, tally)| named("tenant", words::tenant(tag), tally))
                .collect::<Vec<_>>(),
            "kinds": kinds
                .map(|(name, tally)| named("exactness", name.to_owned(), tally))
                .collect::<Vec<_>>(),
            "identities": identities
                .map(|(name, tally)| named("identity", name, tally))
                .collect::<Vec<_>>(),
            "oldest_s": self.ages().map(|(oldest, _)| oldest),
            "youngest_s": self.ages().map(|(_, youngest)| youngest),
            "expired": tally(self.survey.expired),
            "quarantined": tally(self.survey.quarantined),
            "garbage": tally(self.survey.garbage),
            "strangers": self.survey.strangers,
            "is_whole": self.survey.is_whole,
            "used_by": self.holder(),
        })
    }

    fn text(&self) -> String {
        let all = self.all();
        let mut lines = vec![
            row_of("records", &tallied(all)),
            row_of("tokens", &self.tokens().to_string()),
            self.budget(),
        ];
        if self.packs() != RecordTally::default() {
            lines.push(row_of("packs", &tallied(self.packs())));
        }
        if let Some(files) = self.survey.files {
            let text = format!(
                "{} of {}, {}; the disk has given {} to them",
                files.segments,
                words::bytes(files.segment_bytes),
                words::bytes(files.bytes()),
                words::bytes(files.allocated_bytes),
            );
            lines.push(row_of("segments", &text));
        }
        for (name, tally) in [
            ("garbage", self.survey.garbage),
            ("expired", self.survey.expired),
            ("quarantined", self.survey.quarantined),
        ] {
            lines.push(row_of(name, &tallied(tally)));
        }
        if let Some((oldest, youngest)) = self.ages() {
            let text = format!("{} to {}", words::span(youngest), words::span(oldest));
            lines.push(row_of("age", &text));
        }
        lines.extend(self.holder().map(|holder| row_of("used by", &holder)));
        if self.survey.strangers > 0 {
            let text = format!("{} that are no records of ours", self.survey.strangers);
            lines.push(row_of("strangers", &text));
        }
        if !self.survey.is_whole {
            lines.push("there is more: the listing was ended at its limit".to_owned());
        }
        let tenants = self.tenants().into_iter();
        lines.extend(list("tenants", tenants.map(|(tag, tally)| (words::tenant(tag), tally))));
        let kinds = self.kinds().into_iter();
        lines.extend(list("kinds", kinds.map(|(name, tally)| (name.to_owned(), tally))));
        lines.extend(list("identities", self.identities().into_iter()));
        lines.join("\n")
    }

    fn budget(&self) -> String {
        let used = self.used_bytes();
        // Object storage does not record a budget.
        let Some(budget) = self.budget_bytes else {
            return row_of("used", &words::bytes(used));
        };
        let share = used as f64 / budget.max(1) as f64 * 100.0;
        let (used, budget) = (words::bytes(used), words::bytes(budget));
        row_of("budget", &format!("{used} of {budget} used ({share:.1} %)"))
    }
}

/// A tally with its name under `key`.
fn named(key: &str, name: String, tally: RecordTally) -> Value {
    json!({
        key: name,
        "records": tally.records,
        "bytes": tally.bytes,
    })
}

fn row_of(name: &str, text: &str) -> String {
    format!("{name:<12} {text}")
}

fn tallied(tally: RecordTally) -> String {
    format!("{}, {}", tally.records, words::bytes(tally.bytes))
}

/// The largest of several, one a line.
fn list(title: &str, of: impl ExactSizeIterator<Item = (String, RecordTally)>) -> Vec<String> {
    let count = of.len();
    if count == 0 {
        return Vec::new();
    }
    let mut lines = vec![row_of(title, &count.to_string())];
    let shown = of.take(SHOWN);
    lines.extend(shown.map(|(name, tally)| format!("  {name}  {}", tallied(tally))));
    if count > SHOWN {
        lines.push(format!("  and {} more (--json shows all)", count - SHOWN));
    }
    lines
}
