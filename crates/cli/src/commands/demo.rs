//! `headstart demo`.
use std::path::Path;

use anyhow::{Result, bail};
use clap::Args;
use headstart_analysis::sample_log;
use headstart_analysis::traffic::LogSource;
use headstart_terminal as output;

use super::analyze::{self, AnalyzeOptions};
use crate::exit::usage;

/// Default path of the page.
const PAGE: &str = "headstart-demo.html";

/// Default capacity of a demo replica, small enough that it evicts.
const CAPACITY: &str = "32Ktok";

/// Analyze a generated sample log.
#[derive(Args, Debug)]
#[command(after_help = include_str!("demo.help.txt"))]
pub(crate) struct Demo {
    #[command(flatten)]
    options: AnalyzeOptions,
    /// Also write the generated log
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    log: Option<std::path::PathBuf>,
    /// Seed of the log
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    #[arg(help_heading = "Input")]
    seed: u64,
}

/// Makes the log up, analyzes it and tells.
pub(crate) fn run(mut demo: Demo) -> Result<()> {
    // The default page is the only file that the user did not name, so its error names the option.
    if demo.options.html.is_none() {
        let can_be = output::files(&[("the page", Path::new(PAGE))], &[]);
        can_be.map_err(|error| usage(format!("{error}; --html FILE puts it elsewhere")))?;
    }
    demo.options.settle(Path::new(PAGE), CAPACITY);
    let page = demo.options.html.clone().unwrap_or_else(|| PAGE.into());
    let mut outputs = vec![("--html", page.as_path())];
    outputs.extend(demo.log.as_deref().map(|log| ("--log", log)));
    output::files(&outputs, &[])?;
    let log = sample_log::log(demo.seed);
    if let Some(path) = &demo.log {
        // The same log may be written again: a second run must not fail.
        if is_another_file(path, &log) {
            bail!(
                "{} exists and is another file; name a new one with --log, or remove it",
                path.display()
            );
        }
        output::to(path, |out| Ok(out.write_all(&log)?))?;
    }
    analyze::tell(&demo.options, &[LogSource::Made("generated log", log)])?;
    let again = demo.log.as_deref().map(|log| {
        let capacity = demo.options.capacity.as_deref().unwrap_or(CAPACITY);
        format!("Again:        headstart analyze {} --capacity {capacity}\n", log.display())
    });
    let hint = format!(
        "\nPlots:        {} (open it in a browser)\n\
         More figures: headstart demo --full\n\
         {}Your own log: headstart analyze requests.jsonl --html report.html",
        page.display(),
        again.unwrap_or_default(),
    );
    // With the page on standard output no page has a path to open.
    if analyze::is_stdout_path(&page) {
        return Ok(());
    }
    // Standard output may be JSON.
    output::note(&hint);
    Ok(())
}

/// Whether a file at `path` has other contents than `log`. Pipes and empty files do not count.
fn is_another_file(path: &Path, log: &[u8]) -> bool {
    let size = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    // A pipe has no length and holds nothing that could be lost.
    match size.map_or(0, |file| file.len()) {
        0 => false,
        // The lengths are compared first, so most other files are not read.
        size if size == log.len() as u64 => std::fs::read(path).is_ok_and(|known| known != log),
        _ => true,
    }
}
