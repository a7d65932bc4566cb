//! `headstart train`.

mod host;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, value_parser};

use headstart_page::ReportProvenance;
use headstart_predict::training::{
    self, EmbeddingsCache, InputKind, TrainReport, TrainingParameters,
};
use headstart_report::train as report;
use headstart_terminal as output;

use self::host::{CommandHost, replace};
use super::analyze::is_stdout_path;
use crate::config::parsed;

/// Train a model that predicts whether a conversation continues.
#[derive(Args, Debug)]
// The same line with and without the feature `ablations`, which makes --output optional.
#[command(override_usage = "headstart train [OPTIONS] --output <MODEL.hsp> <INPUT>...")]
#[command(after_help = include_str!("train.help.txt"))]
pub(crate) struct Train {
    /// Conversations, traces or prediction logs, plain, gzip or zstd
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Model file to write
    #[arg(short, long, alias = "out", value_name = "MODEL.hsp")]
    #[arg(help_heading = "Output")]
    #[cfg_attr(feature = "ablations", arg(required_unless_present = "shuffle_labels"))]
    #[cfg_attr(not(feature = "ablations"), arg(required = true))]
    output: Option<PathBuf>,
    /// Kind of the inputs [default: by the first line]
    ///
    /// conversations, trace or log.
    #[arg(long, value_name = "KIND", help_heading = "Input")]
    from: Option<String>,
    /// Maximum conversations per input
    #[arg(long, value_name = "N", help_heading = "Input")]
    conversations: Option<std::num::NonZeroUsize>,
    /// Sentence encoder: ngram (built in) or a folder [default: ngram]
    #[arg(long, value_name = "NAME", help_heading = "Features")]
    encoder: Option<String>,
    /// Earlier prompts to read [default: 4]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(..=255))]
    #[arg(help_heading = "Features")]
    window: Option<u16>,
    /// Read the answers between the prompts
    #[arg(long, help_heading = "Features")]
    answers: bool,
    /// Leave out the embedding of the prompt alone
    #[cfg_attr(feature = "ablations", arg(long, hide = true))]
    #[cfg_attr(not(feature = "ablations"), arg(skip))]
    joined: bool,
    /// Read lengths of prompts and answers, and gaps
    #[arg(long, help_heading = "Features")]
    behaviour: bool,
    /// Epochs of each of the three classifiers
    ///
    /// The weights with the lowest validation loss are kept.
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(help_heading = "Training")]
    #[arg(value_parser = value_parser!(u16).range(1..=1000))]
    epochs: u16,
    /// Seed of the split, the weights and all random choices
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    #[arg(help_heading = "Training")]
    seed: u64,
    /// Number of splits and trainings, to report the spread
    ///
    /// Their seeds start at --seed. The written model is that of --seed.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Training")]
    #[arg(value_parser = value_parser!(u16).range(1..=100))]
    seeds: u16,
    /// Shuffle the outcomes, as a control; write no model
    ///
    /// The scores should be chance.
    #[cfg_attr(feature = "ablations", arg(long, conflicts_with = "output", hide = true))]
    #[cfg_attr(not(feature = "ablations"), arg(skip))]
    shuffle_labels: bool,
    /// File of cached embeddings [default: beside the model]
    #[arg(long, value_name = "FILE", help_heading = "Training")]
    embeddings: Option<PathBuf>,
    /// Do not cache embeddings
    #[arg(long, conflicts_with = "embeddings", help_heading = "Training")]
    no_cache: bool,
    /// Also evaluate on these conversations
    ///
    /// Conversations of the training are left out.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    test_on: Vec<PathBuf>,
    /// Steps of the learning curve; 0 for no curve [default: 4]
    ///
    /// Each step halves the training data. Above 20,000 turns the default is 0.
    #[arg(long, value_name = "STEPS", help_heading = "Output")]
    #[arg(value_parser = value_parser!(u16).range(..=12))]
    curve: Option<u16>,
    /// Also write an HTML report with plots
    #[arg(long, alias = "report", value_name = "FILE", help_heading = "Output")]
    html: Option<PathBuf>,
    /// Write the report as JSON; `-` prints it instead of the table
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    json: Option<PathBuf>,
}

/// Trains, tells how good the model is, and writes it.
pub(crate) fn run(train: &Train) -> Result<()> {
    check_outputs(train)?;
    let learnt = training::run(&parameters(train)?, &CommandHost::new())?;
    // The model is written before the report, which may fail at its own files.
    if let (Some(out), Some(model)) = (&train.output, &learnt.model) {
        written(out, &model.to_bytes())?;
    }
    tell(train, &learnt.report)
}

/// The files that are written are none of those that are read, and can be written.
///
/// # Errors
/// A usage error.
fn check_outputs(train: &Train) -> Result<()> {
    // `-` is standard output and no file.
    let json = train.json.as_deref().filter(|path| !is_stdout_path(path));
    let named = [
        ("--output", train.output.as_deref()),
        ("--embeddings", train.embeddings.as_deref()),
        ("--html", train.html.as_deref()),
        ("--json", json),
    ];
    let outputs: Vec<(&str, &Path)> =
        named.into_iter().filter_map(|(option, path)| Some((option, path?))).collect();
    let inputs = train.inputs.iter().chain(&train.test_on);
    let inputs: Vec<&Path> = inputs.map(PathBuf::as_path).collect();
    output::files(&outputs, &inputs)
}

/// The options as parameters of the training.
///
/// # Errors
/// A usage error for an unknown kind of input.
fn parameters(train: &Train) -> Result<TrainingParameters> {
    let kind = train.from.as_deref();
    Ok(TrainingParameters {
        inputs: train.inputs.clone(),
        test_on: train.test_on.clone(),
        kind: kind.map(|name| parsed::<InputKind>(name, "--from")).transpose()?,
        conversations: train.conversations,
        output: train.output.clone(),
        encoder: train.encoder.clone(),
        window: train.window,
        answers: train.answers,
        joined: train.joined,
        behaviour: train.behaviour,
        epochs: train.epochs,
        seed: train.seed,
        seeds: train.seeds,
        shuffle_labels: train.shuffle_labels,
        // The command line refuses both options together.
        embeddings: match &train.embeddings {
            Some(file) => EmbeddingsCache::File(file.clone()),
            None if train.no_cache => EmbeddingsCache::Off,
            None => EmbeddingsCache::BesideModel,
        },
        curve: train.curve,
    })
}

/// The report in the forms that were asked for.
fn tell(train: &Train, found: &TrainReport) -> Result<()> {
    if let Some(file) = &train.html {
        let page = report::page(found, &ReportProvenance::now("headstart"));
        written(file, page.as_bytes())?;
    }
    match &train.json {
        Some(path) if is_stdout_path(path) => return output::line(&report::json(found)),
        Some(path) => {
            let json = report::json(found) + "\n";
            written(path, json.as_bytes())?;
        }
        None => {}
    }
    output::line(&output::fitted(&report::table(found)))
}

/// Puts `bytes` in the place of the file at `path`: all of them, or none.
fn written(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = replace(path, &mut |file| file.write_all(bytes));
    written.with_context(|| format!("cannot write {}", path.display()))
}
