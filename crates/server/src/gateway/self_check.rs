//! Compares prompts with what the engines make of them; see [`crate::drift`].

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Release};

use headstart_core::{ReplicaId, TokenId};
use serde_json::Value;

use super::{Fleet, Gateway};
use crate::drift::{Difference, Verdict};

/// A prompt that was sent, to be compared.
pub struct Comparison {
    /// The model asked for.
    pub model: String,
    /// Who computed.
    pub replica: ReplicaId,
    /// What this gateway made of the prompt.
    pub tokens: Vec<TokenId>,
    /// The engine's count of them, where it told.
    pub counted: Option<usize>,
    /// The same prompt as a question to the engine's `/tokenize`.
    pub question: Value,
}

impl Gateway {
    /// Compares a prompt's tokens with the engine's where that is due. Nobody waits for it, and
    /// where one comparison runs another is left out.
    pub fn self_check(self: &Arc<Self>, make: impl FnOnce() -> Comparison, due: Due<'_>) {
        let Due {
            model,
            replica,
            counts_differ,
        } = due;
        // A question that another one keeps from being asked stays due.
        if self.is_comparing.swap(true, AcqRel) {
            return;
        }
        let turn = Turn(self.clone());
        let now = self.clock.now();
        if !self.drift.is_due(model, replica, counts_differ, now) {
            return;
        }
        let comparison = make();
        tokio::spawn(async move { turn.0.compare(comparison).await });
    }

    async fn compare(&self, comparison: Comparison) {
        let Comparison {
            model,
            replica,
            tokens,
            counted,
            question,
        } = comparison;
        let Fleet::Upstreams(upstreams) = &self.fleet else {
            return;
        };
        let theirs = upstreams[replica.0 as usize].tokenize(&question).await;
        let verdict = Verdict::of(&tokens, theirs.as_deref());
        let labels = [&model[..], &replica.to_string(), verdict.name()];
        self.metrics
            .index
            .drift_checks
            .with_label_values(&labels)
            .inc();
        if let Some(difference) = self.drift.note(&model, replica, verdict) {
            tell(&model, replica, difference, counted.unwrap_or(tokens.len()));
        }
    }
}

/// The one comparison that may run; over when dropped, however it ended.
struct Turn(Arc<Gateway>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.is_comparing.store(false, Release);
    }
}

/// What decides whether a comparison is due.
pub struct Due<'a> {
    /// The model asked for.
    pub model: &'a str,
    /// Who computed.
    pub replica: ReplicaId,
    /// Whether the engine counted other than we did.
    pub counts_differ: bool,
}

fn tell(model: &str, replica: ReplicaId, difference: Difference, num_tokens: usize) {
    let Difference {
        position,
        ours,
        theirs,
    } = difference;
    tracing::warn!(
        model,
        %replica,
        position,
        ?ours,
        ?theirs,
        num_tokens,
        "the engine makes other tokens of a prompt than its tokenizer= does: its prefixes are not \
         found; give the gateway the tokenizer and chat template that the engine uses"
    );
}
