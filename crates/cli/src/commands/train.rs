//! `headstart train`.

mod corpus;
mod embed;
mod embeddings;
mod evaluate;
mod learn;
mod material;
mod samples;
mod sessions;
mod source;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, value_parser};
use indicatif::{ProgressBar, ProgressStyle};

use self::source::{Kind, Source};
use crate::config::{UsageError, parsed};
use crate::output;
use crate::report::train::{self as report, TrainReport};

/// Train the classifier that predicts whether a conversation goes on.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  headstart trace planted --conversations 5000 --out planted.jsonl
  headstart train planted.jsonl --out model.hsp --report model.html
  headstart train chats.jsonl.zst --out model.hsp --encoder ./multilingual-e5-small --behaviour
  headstart train chats.jsonl --shuffle-labels             must find nothing
  headstart train few.jsonl --out model.hsp --seeds 10     a small corpus: mean and spread
  headstart train predictions.log --out model.hsp          the opt-in log of `serve`

Conversations are JSON lines with text, as for bench chat. Traces have no text: a model learns
turn counts, and with --behaviour lengths and gaps, from their sessions. The log holds what the
model in service read and what became of it, and no text. Which of them a file is, its first line
tells.

The turns are shared out by conversation and by first prompt: 70 % train, 15 % choose checkpoint
and threshold, 15 % are the test that the report is about. Embeddings are kept beside the model,
under a hash of the text, never the text; a second training embeds only what is new. The model is
written whole or not at all.

What is read is the published choice, the prompt and four before it in 512 words without answers,
and beside it the prompt by itself, which --joined leaves out.")]
pub(crate) struct Train {
    /// Conversations, traces or prediction logs; plain, gzip or zstd
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Where the model goes
    #[arg(
        short,
        long,
        value_name = "MODEL.hsp",
        required_unless_present = "shuffle_labels"
    )]
    out: Option<PathBuf>,
    /// conversations, trace or log [default: by the first line]
    #[arg(long, value_name = "KIND", help_heading = "Reading")]
    from: Option<String>,
    /// Take at most so many conversations of each input
    #[arg(long, value_name = "N", help_heading = "Reading")]
    conversations: Option<std::num::NonZeroUsize>,
    /// `ngram`, which is built in, or the folder of a sentence encoder [default: ngram]
    #[arg(long, value_name = "NAME", help_heading = "What the model reads")]
    encoder: Option<String>,
    /// Prompts before the current one [default: 4]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(..=255))]
    #[arg(help_heading = "What the model reads")]
    window: Option<u16>,
    /// The answers between the prompts too
    #[arg(long, help_heading = "What the model reads")]
    answers: bool,
    /// Only the joined window, as published, and not the current prompt by itself beside it
    #[arg(long, help_heading = "What the model reads")]
    joined: bool,
    /// Lengths of prompts and answer, and the gap before the prompt
    #[arg(long, help_heading = "What the model reads")]
    behaviour: bool,
    /// Epochs of each of three classifiers; its weights of the lowest validation loss are kept
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20,
        help_heading = "Training"
    )]
    #[arg(value_parser = value_parser!(u16).range(1..=1000))]
    epochs: u16,
    /// Fixes the split, the weights and all draws
    #[arg(
        long,
        value_name = "SEED",
        default_value_t = 0,
        help_heading = "Training"
    )]
    seed: u64,
    /// Split and train so many times, with seeds from --seed on, and tell the spread; the model
    /// is that of --seed
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Training")]
    #[arg(value_parser = value_parser!(u16).range(1..=100))]
    seeds: u16,
    /// Deal the outcomes anew first: nothing must be found then. Writes no model
    #[arg(long, conflicts_with = "out", help_heading = "Training")]
    shuffle_labels: bool,
    /// Keep embeddings here [default: beside the model]
    #[arg(long, value_name = "FILE", help_heading = "Training")]
    embeddings: Option<PathBuf>,
    /// Keep no embeddings
    #[arg(long, conflicts_with = "embeddings", help_heading = "Training")]
    no_cache: bool,
    /// Evaluate on these conversations too, those left out that training has seen
    #[arg(long, value_name = "FILE", help_heading = "Reporting")]
    test_on: Vec<PathBuf>,
    /// Halvings of the learning curve, 0 for none [default: 4 up to 20,000 turns]
    #[arg(long, value_name = "STEPS", help_heading = "Reporting")]
    #[arg(value_parser = value_parser!(u16).range(..=12))]
    curve: Option<u16>,
    /// Also write a page with plots, which opens without a network
    #[arg(long, value_name = "FILE", help_heading = "Reporting")]
    report: Option<PathBuf>,
    /// Write the report as JSON; `-` prints it instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Reporting")]
    json: Option<PathBuf>,
}

/// Trains, tells how good the model is, and writes it.
pub(crate) fn run(train: &Train) -> Result<()> {
    check_outputs(train)?;
    let (sources, others) = sources(train)?;
    let plan = material::Plan::of(train, sources[0].kind)?;
    let material = material::gather(train, &plan, &sources, &others)?;
    let learnt = learn::learn(train, material)?;
    if let (Some(out), Some(model)) = (&train.out, &learnt.model) {
        replace(out, |file| io::Write::write_all(file, &model.to_bytes()))?;
    }
    tell(train, &learnt.report)
}

/// The files that are written are none of those that are read, and can be written.
///
/// # Errors
/// A usage error.
fn check_outputs(train: &Train) -> Result<()> {
    let json = train.json.as_deref().filter(|path| !is_stdout(path));
    let named = [
        ("--out", train.out.as_deref()),
        ("--embeddings", train.embeddings.as_deref()),
        ("--report", train.report.as_deref()),
        ("--json", json),
    ];
    let outputs: Vec<(&str, &Path)> = named
        .into_iter()
        .filter_map(|(option, path)| Some((option, path?)))
        .collect();
    let inputs = train.inputs.iter().chain(&train.test_on);
    let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).collect();
    output::files(&outputs, &inputs)
}

/// What to learn from, all of one kind, and what to look at besides.
fn sources(train: &Train) -> Result<(Vec<Source>, Vec<Source>)> {
    let kind = train.from.as_deref();
    let kind = kind
        .map(|name| parsed::<Kind>(name, "--from"))
        .transpose()?;
    let open = |paths: &[PathBuf]| -> Result<Vec<Source>> {
        paths.iter().map(|path| Source::new(path, kind)).collect()
    };
    let (inputs, others) = (open(&train.inputs)?, open(&train.test_on)?);
    let first = &inputs[0];
    for other in inputs.iter().chain(&others) {
        if other.kind != first.kind {
            bail!(UsageError(format!(
                "{} is taken for a {} and {} for a {}; give inputs of one kind, or name it \
                 (--from)",
                first.name(),
                first.kind.name(),
                other.name(),
                other.kind.name()
            )));
        }
    }
    Ok((inputs, others))
}

/// The report in the forms that were asked for.
fn tell(train: &Train, found: &TrainReport) -> Result<()> {
    if let Some(file) = &train.report {
        let page = report::page(found);
        replace(file, |file| io::Write::write_all(file, page.as_bytes()))?;
    }
    match &train.json {
        Some(path) if is_stdout(path) => return output::line(&report::json(found)),
        Some(path) => {
            let json = report::json(found) + "\n";
            replace(path, |file| io::Write::write_all(file, json.as_bytes()))?;
        }
        None => {}
    }
    output::line(&report::table(found))
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Puts what `write` writes in the place of `path`: all of it, or nothing where something goes
/// wrong or the process is stopped.
fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let written = File::create(&part).and_then(|mut file| {
        write(&mut file)?;
        file.sync_all()?;
        fs::rename(&part, path)
    });
    if written.is_err() {
        // What is wrong with the file is told; that a part of it stays is not worse.
        let _ = fs::remove_file(&part);
    }
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// A bar on standard error that says what is done; nothing where that is no terminal.
fn progress(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = "{msg:10} {wide_bar} {pos}/{len} {elapsed} (eta {eta})";
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.expect("the template is valid"));
    bar.set_message(what);
    bar
}
