//! Compares prompts with what the engines make of them; see [`crate::drift`].

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Release};

use std::time::Duration;

use bytes::Bytes;
use headstart_core::TokenId;

use super::{Fleet, Gateway};
use crate::drift::{Difference, Subject, Verdict};
use crate::request_shape::RequestShape;

/// Longest wait for an engine to tokenize a prompt for a comparison that nobody waits for.
const COMPARE_TIMEOUT: Duration = Duration::from_secs(10);

/// A prompt that was sent, to be compared.
pub struct Comparison {
    /// What this gateway made of the prompt.
    pub tokens: Vec<TokenId>,
    /// The engine's count of them, where it told.
    pub counted: Option<usize>,
    /// The path of the request.
    pub path: String,
    /// Its body.
    pub body: Bytes,
}

impl Gateway {
    /// Compares a prompt's tokens with the engine's where that is due. Nobody waits for it, and
    /// where one comparison runs another is left out.
    pub fn self_check(
        self: &Arc<Self>,
        subject: Subject,
        counts_differ: bool,
        make: impl FnOnce() -> Comparison,
    ) {
        // A question that another one keeps from being asked stays due.
        if self.is_comparing.swap(true, AcqRel) {
            return;
        }
        let turn = Turn(self.clone());
        if !(self.drift).is_due(&subject, counts_differ, self.clock.now()) {
            return;
        }
        let comparison = make();
        tokio::spawn(async move { turn.0.compare(subject, comparison).await });
    }

    async fn compare(&self, subject: Subject, comparison: Comparison) {
        let Comparison {
            tokens,
            counted,
            path,
            body,
        } = comparison;
        let Fleet::Upstreams(upstreams) = &self.fleet else {
            return;
        };
        let (model, replica, _) = &subject;
        let upstream = &upstreams[replica.0 as usize];
        let theirs = upstream.render(&path, &body, COMPARE_TIMEOUT).await;
        let verdict = Verdict::of(&tokens, theirs.as_deref());
        let labels = [&model[..], &replica.to_string(), verdict.name()];
        self.metrics
            .index
            .drift_checks
            .with_label_values(&labels)
            .inc();
        if let Some(difference) = self.drift.note(&subject, verdict) {
            let part = self.part_that_differs(&tokens, difference.position);
            tell(&subject, difference, counted.unwrap_or(tokens.len()), &part);
        }
    }

    /// Where in a prompt a token is, by the message that it belongs to: its text is not said.
    fn part_that_differs(&self, tokens: &[TokenId], position: usize) -> String {
        let share = position as f64 / tokens.len().max(1) as f64;
        match position {
            0 => "the first token".to_owned(),
            _ if position >= tokens.len() => "the end".to_owned(),
            _ => format!("{:.0} % into the prompt", 100.0 * share),
        }
    }

    /// Shapes of requests whose tokens differ from an engine's.
    #[must_use]
    pub fn differing_shapes(&self) -> Vec<Subject> {
        self.drift.differing()
    }

    /// Takes note that requests of this shape come out as by the engines again.
    pub fn mend_drift(&self, model: &str, shape: RequestShape) {
        self.drift.mend(model, shape);
    }

    /// Whether requests of this shape came out otherwise than by an engine.
    #[must_use]
    pub fn has_drift(&self, model: &str, shape: RequestShape) -> bool {
        self.drift.differs(model, shape)
    }
}

/// The one comparison that may run; over when dropped, however it ended.
struct Turn(Arc<Gateway>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.is_comparing.store(false, Release);
    }
}

fn tell(subject: &Subject, difference: Difference, num_tokens: usize, part: &str) {
    let (model, replica, shape) = subject;
    let Difference {
        position,
        ours,
        theirs,
    } = difference;
    tracing::warn!(
        model,
        %replica,
        %shape,
        position,
        ?ours,
        ?theirs,
        num_tokens,
        part,
        "the engine makes other tokens of such requests than its tokenizer= does; they are routed \
         by the engine's tokens instead. Likely another chat template or tokenizer: give the \
         gateway those that the engine uses"
    );
}
