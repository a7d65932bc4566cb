//! The engines behind a gateway. Both kinds of fleet answer the same questions; a fleet of one kind
//! has no engines of the other.

use std::sync::Arc;

use headstart_core::{ReplicaId, TokenId};
use headstart_engine::{GenerationDefaults, LanguageModel};
use headstart_prompt::PromptModel;

use crate::config::TierReports;
use crate::prediction::Predictions;
use crate::replica::EmbeddedReplica;
use crate::responses::ResponseStore;
use crate::upstream::{Upstream, first_of_engine};

/// The engines: replicas in this process, or upstreams.
pub enum Fleet {
    /// Replicas in this process.
    Embedded(EmbeddedReplicas),
    /// Engines behind HTTP.
    Upstreams(Vec<Upstream>),
}

/// Replicas in this process.
pub struct EmbeddedReplicas {
    /// The model's name in the API.
    pub name: String,
    /// Generation defaults from the model's files.
    pub defaults: GenerationDefaults,
    /// Tokens with which calls of tools begin in an answer.
    pub tool_tokens: Arc<[TokenId]>,
    /// Tokenizer and template.
    pub prompt: Arc<PromptModel>,
    /// The weights.
    pub model: Arc<LanguageModel>,
    /// The replicas; the index is the replica id.
    pub replicas: Vec<EmbeddedReplica>,
    /// Tokens of a block of their KV memory.
    pub block_size: usize,
    /// Predictions of whether conversations continue, if there is a predictor.
    pub predictions: Option<Arc<Predictions>>,
    /// Reports on the tiers below host memory, if there are any.
    pub tier_reports: Option<Arc<TierReports>>,
    /// Earlier answers of the Responses API.
    pub responses: Arc<ResponseStore>,
}

impl EmbeddedReplicas {
    /// The longest sequence that a replica can hold, tokens.
    #[must_use]
    pub fn context(&self) -> usize {
        self.replicas.iter().map(EmbeddedReplica::context).max().unwrap_or(0)
    }
}

impl Fleet {
    /// The replicas in this process; `None` of a fleet behind HTTP.
    #[must_use]
    pub fn embedded(&self) -> Option<&EmbeddedReplicas> {
        match self {
            Self::Embedded(embedded) => Some(embedded),
            Self::Upstreams(_) => None,
        }
    }

    /// The engines behind HTTP; none of an embedded fleet. The index is the replica id.
    #[must_use]
    pub fn upstreams(&self) -> &[Upstream] {
        match self {
            Self::Embedded(_) => &[],
            Self::Upstreams(upstreams) => upstreams,
        }
    }

    /// The replicas in this process, with their ids.
    pub fn replicas(&self) -> impl Iterator<Item = (ReplicaId, &EmbeddedReplica)> {
        let replicas = self.embedded().into_iter().flat_map(|embedded| &embedded.replicas);
        (0..).map(ReplicaId).zip(replicas)
    }

    /// The engines behind HTTP, each by the first of its data-parallel ranks.
    pub fn engines(&self) -> impl Iterator<Item = (ReplicaId, &Upstream)> {
        let upstreams = self.upstreams();
        let replicas = (0..).map(ReplicaId).zip(upstreams);
        replicas.filter(|(replica, _)| first_of_engine(upstreams, *replica) == *replica)
    }

    /// The tokenizer and template of prompts. A prompt is tokenized before its upstream is chosen,
    /// so that one must do for all: the first one configured.
    pub(super) fn prompt(&self) -> Option<Arc<PromptModel>> {
        match self {
            Self::Embedded(embedded) => Some(embedded.prompt.clone()),
            Self::Upstreams(all) => all.iter().find_map(|upstream| upstream.prompt.clone()),
        }
    }

    /// The models that can be asked for.
    pub(super) fn models(&self) -> Vec<String> {
        match self {
            Self::Embedded(embedded) => vec![embedded.name.clone()],
            Self::Upstreams(upstreams) => {
                // Several upstreams may list the same model; a client sees it once.
                let mut names: Vec<_> = upstreams.iter().flat_map(Upstream::models).collect();
                names.sort();
                names.dedup();
                names
            }
        }
    }

    /// Tokens of prompt and answer together that are taken for `model`, where that is known.
    pub(super) fn context(&self, model: &str) -> Option<usize> {
        match self {
            Self::Embedded(embedded) => Some(embedded.context()),
            Self::Upstreams(all) => all.iter().filter_map(|one| one.context(model)).max(),
        }
    }
}
