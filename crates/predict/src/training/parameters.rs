//! Parameters of a training.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::input::InputKind;

/// Inputs, features and amount of a training. Messages name the option of `headstart train` for a
/// parameter.
#[derive(Clone, Debug)]
pub struct TrainingParameters {
    /// Files to train on: conversations, traces or prediction logs, plain, gzip or zstd.
    pub inputs: Vec<PathBuf>,
    /// Files to evaluate on besides. Conversations of the training are left out of them.
    pub test_on: Vec<PathBuf>,
    /// Kind of all files; `None` detects it from the first line of each.
    pub kind: Option<InputKind>,
    /// Most conversations of each file; `None` reads all.
    pub conversations: Option<NonZeroUsize>,
    /// The model file. The caller writes it; the training reads its name only.
    pub output: Option<PathBuf>,
    /// Sentence encoder: `ngram` or a folder; `None` is `ngram`.
    pub encoder: Option<String>,
    /// Number of earlier prompts to read; `None` is the number of [`crate::Definition::new`].
    pub window: Option<u16>,
    /// Reads the answers between the prompts.
    pub answers: bool,
    /// Leaves out the embedding of the prompt alone.
    pub joined: bool,
    /// Reads lengths of prompts and answers, and gaps.
    pub behaviour: bool,
    /// Epochs of each classifier, from 1.
    pub epochs: u16,
    /// Seed of the split, the weights and all random choices.
    pub seed: u64,
    /// Number of splits and trainings, from 1. Their seeds start at `seed`.
    pub seeds: u16,
    /// Shuffles the outcomes, as a control. No model results.
    pub shuffle_labels: bool,
    /// Place of the embeddings of earlier trainings.
    pub embeddings: EmbeddingsCache,
    /// Steps of the learning curve, each with half the data of the one before. 0 is no curve;
    /// `None` is 4 steps up to 20,000 turns and no curve above.
    pub curve: Option<u16>,
}

/// Place where embeddings are kept between trainings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbeddingsCache {
    /// Embeddings are not kept.
    Off,
    /// A file beside the model; no file where no model is written.
    BesideModel,
    /// This file.
    File(PathBuf),
}

impl EmbeddingsCache {
    /// The file that the user named.
    pub(super) fn named(&self) -> Option<&Path> {
        match self {
            Self::File(file) => Some(file),
            Self::Off | Self::BesideModel => None,
        }
    }
}
