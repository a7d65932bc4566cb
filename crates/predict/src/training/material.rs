//! From parameters and inputs to rows.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use headstart_core::figures::counted;
use headstart_core::{Progress, UsageError};
use headstart_trace::source::decompress;

use super::embed::{Embedder, EmbeddingWork};
use super::embeddings::{self, EmbeddingFileState, Embeddings};
use super::host::{StageWork, TrainingHost};
use super::input::{InputKind, TrainingFile, TrainingFiles};
use super::parameters::{EmbeddingsCache, TrainingParameters};
use super::results::{InputFacts, PhaseTimes};
use super::samples::Samples;
use super::{TrainingError, corpus, sessions};
use crate::{
    ConversationOutcome, Dataset, Definition, Encoder, Label, Parts, TrainOptions, encoder, log,
};

/// Records of one prediction log.
const RECORDS_MAX: usize = 1 << 19;

/// With fewer conversations of known outcome nothing is learnt, and nothing said of it.
const CONVERSATIONS_MIN: usize = 30;

/// Turns of known outcome, likewise: each part must have its share.
const TURNS_MIN: usize = TrainOptions::EXAMPLES_MIN;

/// Groups: training, validation and test take one each at least.
const GROUPS_MIN: usize = 3;

/// Settings for making rows.
pub(super) struct MaterialPlan {
    /// Encoder and definition for new rows; `None` for a log, which holds rows.
    encoder: Option<(Arc<dyn Encoder>, Definition)>,
}

/// Rows to learn from.
pub(super) struct Material {
    pub(super) data: Dataset,
    pub(super) inputs: Vec<InputFacts>,
    /// Rows to look at besides.
    pub(super) others: Vec<(InputFacts, Dataset)>,
    pub(super) times: PhaseTimes,
}

/// An input, read.
struct LoadedInput {
    facts: InputFacts,
    turns: InputTurns,
}

enum InputTurns {
    Text(Samples),
    Rows(Dataset),
}

impl MaterialPlan {
    /// Builds the plan from the parameters, for inputs of this kind.
    ///
    /// # Errors
    /// A usage error for options that do not go with it, or an encoder that there is not.
    pub(super) fn of(
        parameters: &TrainingParameters,
        kind: InputKind,
    ) -> Result<Self, TrainingError> {
        let given = [
            ("--encoder", parameters.encoder.is_some(), false),
            ("--window", parameters.window.is_some(), false),
            ("--answers", parameters.answers, false),
            ("--joined", parameters.joined, false),
            ("--embeddings", parameters.embeddings.named().is_some(), false),
            ("--behaviour", parameters.behaviour, kind == InputKind::Trace),
        ];
        // An option without effect is refused by name instead of being ignored.
        let refused = given.iter().find(|(_, is_given, fits)| *is_given && !fits);
        if let (Some((option, ..)), true) = (refused, kind != InputKind::Conversations) {
            let why = match kind {
                InputKind::Log => "a log holds what the model in service read, as it was",
                _ => "a trace has no text",
            };
            return Err(UsageError(format!("{option}: {why}")).into());
        }
        if kind == InputKind::Log {
            return Ok(Self { encoder: None });
        }
        let name = parameters.encoder.as_deref().unwrap_or("ngram");
        let encoder = encoder::open(name)
            .map_err(|error| UsageError(format!("--encoder {name}: {error}")))?;
        let mut definition = Definition::new(&*encoder);
        definition.text.answers = parameters.answers;
        definition.behaviour = parameters.behaviour;
        if let Some(window) = parameters.window {
            definition.text.window = usize::from(window);
        }
        if parameters.joined {
            definition.parts = Parts::Joined;
        }
        if kind == InputKind::Trace {
            // So that all texts are empty: columns that never vary are left out of a model.
            definition.text.window = 0;
            definition.parts = Parts::Joined;
        }
        Ok(Self { encoder: Some((encoder, definition)) })
    }
}

/// Reads all inputs, and makes rows of them.
///
/// # Errors
/// When something cannot be read, or cannot be learnt from.
pub(super) fn gather(
    parameters: &TrainingParameters,
    host: &dyn TrainingHost,
    plan: &MaterialPlan,
    files: &TrainingFiles,
) -> Result<Material, TrainingError> {
    let TrainingFiles { inputs, others, .. } = files;
    let begin = host.now();
    let progress = host.begin("reading", StageWork::Bytes);
    let limit = parameters.conversations.map(NonZeroUsize::get);
    let mut loaded = Vec::new();
    for (number, source) in inputs.iter().chain(others).enumerate() {
        loaded.push(load(plan, source, number as u64, limit, &*progress)?);
    }
    progress.end();
    let labels = |loaded: &LoadedInput| match &loaded.turns {
        InputTurns::Text(samples) => samples.labels().to_vec(),
        InputTurns::Rows(data) => data.labels.clone(),
    };
    // Only training inputs are checked: files of `--test-on` need no such number.
    let of_inputs: Vec<Label> = loaded[..inputs.len()].iter().flat_map(labels).collect();
    // Embedding takes most of the time, so the check comes before it.
    check(&of_inputs)?;
    let read_s = host.now().since(begin).as_secs_f64();
    let (mut rows, embedded) = rows(parameters, host, plan, loaded)?;
    let times = PhaseTimes {
        read_s,
        embed_s: embedded.seconds,
        texts: embedded.texts,
        texts_known: embedded.known,
        ..PhaseTimes::default()
    };
    let others = rows.split_off(inputs.len());
    let (facts, data): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    Ok(Material { data: joined(data)?, inputs: facts, others, times })
}

fn load(
    plan: &MaterialPlan,
    source: &TrainingFile,
    number: u64,
    limit: Option<usize>,
    progress: &dyn Progress,
) -> Result<LoadedInput, TrainingError> {
    let (turns, remarks) = match (&plan.encoder, source.kind) {
        (Some((_, definition)), kind) => {
            let mut samples = Samples::new(definition.clone());
            let read = match kind {
                InputKind::Conversations => corpus::read,
                _ => sessions::read,
            };
            let remarks = read(source, number, limit, &mut samples, progress)?;
            (InputTurns::Text(samples), remarks)
        }
        (None, _) => {
            let (data, remarks) = read_log(source, number, progress)?;
            (InputTurns::Rows(data), remarks)
        }
    };
    let labels = match &turns {
        InputTurns::Text(samples) => samples.labels(),
        InputTurns::Rows(data) => &data.labels,
    };
    Ok(LoadedInput { facts: facts(source, labels, remarks), turns })
}

fn read_log(
    source: &TrainingFile,
    number: u64,
    progress: &dyn Progress,
) -> Result<(Dataset, Vec<String>), TrainingError> {
    let cannot_read = || format!("cannot read the log {}", source.name());
    let text = decompress(source.open(progress)?).map_err(TrainingError::file(cannot_read()))?;
    let mut read = log::read(text, RECORDS_MAX)
        .map_err(|source| TrainingError::Log { what: cannot_read(), source })?;
    // A log that was read in part would train on its oldest records only.
    if read.truncated {
        return Err(TrainingError::Unsuitable(format!(
            "{} has more than {RECORDS_MAX} records; split it",
            source.name()
        )));
    }
    // Some bad lines are left out; a log of bad lines only is a wrong file.
    if let (true, Some((line, wrong))) = (read.said.is_empty(), &read.first_skipped) {
        return Err(TrainingError::Unsuitable(format!(
            "{} holds no record: {} behind its header, the first at line {line}: {wrong}",
            source.name(),
            counted(read.skipped as u64, "bad line")
        )));
    }
    // Each log numbers its conversations from the start, and groups by the first of them.
    let renamed = |named: u64| {
        let [file, named] = [number, named].map(u64::to_le_bytes);
        corpus::number_of(&[&file, &named])
    };
    for label in &mut read.dataset.labels {
        label.conversation = renamed(label.conversation);
        label.group = renamed(label.group);
    }
    let skipped = counted(read.skipped as u64, "bad line");
    let remarks = (read.skipped > 0).then(|| format!("{skipped} left out"));
    Ok((read.dataset, remarks.into_iter().collect()))
}

fn facts(source: &TrainingFile, labels: &[Label], remarks: Vec<String>) -> InputFacts {
    let distinct = |of: fn(&Label) -> u64| labels.iter().map(of).collect::<HashSet<u64>>().len();
    let unknown = labels.iter().filter(|label| label.outcome == ConversationOutcome::Unknown);
    InputFacts {
        file: source.file(),
        kind: source.kind.name(),
        conversations: distinct(|label| label.conversation),
        groups: distinct(|label| label.group),
        turns: labels.len(),
        unknown: unknown.count(),
        remarks,
    }
}

/// Whether there is something to learn, before much time goes into it.
fn check(labels: &[Label]) -> Result<(), TrainingError> {
    let known: Vec<&Label> =
        labels.iter().filter(|label| label.outcome != ConversationOutcome::Unknown).collect();
    if labels.is_empty() {
        return Err(TrainingError::Unsuitable(
            "there is no turn to learn from: the input holds none".to_owned(),
        ));
    }
    if known.is_empty() {
        return Err(TrainingError::Unsuitable(format!(
            "none of {} turns says whether the conversation went on: every record is cut, or has \
             its labels from a turn that it does not reach",
            labels.len()
        )));
    }
    let continued = known.iter().filter(|label| label.outcome == ConversationOutcome::Continued);
    let ended = known.len() - continued.count();
    // One class alone leaves nothing to separate.
    if ended == 0 || ended == known.len() {
        let what = if ended == 0 { "continues" } else { "ends" };
        return Err(TrainingError::Unsuitable(format!(
            "after each of the {} turns of known outcome the conversation {what}; both kinds are \
             needed to tell them apart",
            known.len()
        )));
    }
    let distinct = |of: fn(&Label) -> u64| {
        let distinct: HashSet<u64> = known.iter().map(|label| of(label)).collect();
        distinct.len()
    };
    let conversations = distinct(|label| label.conversation);
    if conversations < CONVERSATIONS_MIN || known.len() < TURNS_MIN {
        return Err(TrainingError::Unsuitable(format!(
            "{} with {} of known outcome are too few to train, choose and test by; at least \
             {CONVERSATIONS_MIN} conversations and {TURNS_MIN} such turns are needed, and some \
             thousands to say much",
            counted(conversations as u64, "conversation"),
            counted(known.len() as u64, "turn")
        )));
    }
    let groups = distinct(|label| label.group);
    if groups < GROUPS_MIN {
        return Err(TrainingError::Unsuitable(format!(
            "equal first prompts (or equal `group`s) are kept on one side of the split into \
             train, validation and test part, and all {conversations} conversations are of {}; \
             at least {GROUPS_MIN} are needed",
            counted(groups as u64, "such group")
        )));
    }
    Ok(())
}

/// Embeds what is text, and counts that work.
fn rows(
    parameters: &TrainingParameters,
    host: &dyn TrainingHost,
    plan: &MaterialPlan,
    loaded: Vec<LoadedInput>,
) -> Result<(Vec<(InputFacts, Dataset)>, EmbeddingWork), TrainingError> {
    let progress = host.begin("embedding", StageWork::Steps(0));
    let mut embedder = match &plan.encoder {
        Some((encoder, _)) => Some(embedder(parameters, host, &**encoder, &*progress)?),
        None => None,
    };
    let mut rows = Vec::new();
    for LoadedInput { facts, turns } in loaded {
        let data = match (turns, &mut embedder) {
            (InputTurns::Text(samples), Some(embedder)) => samples.embed(embedder)?,
            (InputTurns::Rows(data), _) => data,
            // The plan has an encoder for every input with text.
            (InputTurns::Text(_), None) => unreachable!("text is read with an encoder only"),
        };
        rows.push((facts, data));
    }
    progress.end();
    Ok((rows, embedder.map(|embedder| embedder.done).unwrap_or_default()))
}

/// An encoder with the embeddings that are kept, as the parameters say.
fn embedder<'e>(
    parameters: &TrainingParameters,
    host: &'e dyn TrainingHost,
    encoder: &'e dyn Encoder,
    progress: &'e dyn Progress,
) -> Result<Embedder<'e>, TrainingError> {
    let (identity, dims) = (encoder.identity(), encoder.dims());
    let file: Option<PathBuf> = match &parameters.embeddings {
        EmbeddingsCache::Off => None,
        // Without a model file there is no place beside it.
        EmbeddingsCache::BesideModel => {
            parameters.output.as_deref().map(|model| embeddings::beside(model, identity))
        }
        EmbeddingsCache::File(file) => Some(file.clone()),
    };
    let embedder = Embedder::new(encoder, host, progress);
    let Some(file) = file else {
        return Ok(embedder);
    };
    let is_named = parameters.embeddings.named().is_some();
    let (known, opened) = Embeddings::open(&file, identity, dims, is_named)?;
    if let EmbeddingFileState::Damaged(what) = opened {
        let name = file.display();
        host.note(&format!("{name} is damaged ({what}): embedding everything again"));
    }
    Ok(embedder.with_file(file, known))
}

/// All rows together; they must be of one definition.
fn joined(parts: Vec<Dataset>) -> Result<Dataset, TrainingError> {
    let mut parts = parts.into_iter();
    let mut all = parts.next().expect("there is an input");
    for part in parts {
        // Rows of two definitions have columns of different meanings.
        if part.definition != all.definition {
            return Err(TrainingError::Unsuitable(
                "the logs are from models with different inputs; train from one kind of log"
                    .to_owned(),
            ));
        }
        all.values.extend(part.values);
        all.labels.extend(part.labels);
    }
    Ok(all)
}
