//! Prompts before routing: exact tokens made here or by the engine, or text.
//!
//! ```text
//! request ─ made here? ─ yes ─────────────────────────► tokens
//!               │ no, and why
//!               ├─ the engine renders it in time ─────► tokens, and the places of media
//!               └─ else ─► exact tokens in front of a medium, and numbers of its text
//! ```
//!
//! Each reason is logged once for a model, and counted for each prompt.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use headstart_core::TokenId;
use headstart_core::block::Medium;
use headstart_core::figures::counted;
use headstart_insight::text::Sketch;
use headstart_prompt::{Dialect, NoExactTokens};
use headstart_router::Health;
use tokio::sync::Semaphore;

use super::HttpGateway;
use crate::lock::lock;
use crate::prompt_tokens::TokenizedPrompt;
use crate::text_tokens::{plain_text, text_tokens};
use crate::upstream::{RenderedPrompt, Upstream};

/// Prompts that engines render for this gateway at a time; further ones go by their text at once.
const RENDERED_AT_ONCE: usize = 16;

/// Longest wait for an engine to render a prompt: a long one takes it a tenth of a second.
const RENDER_TIMEOUT: Duration = Duration::from_millis(500);

/// Stands in metrics and the log for a model that no engine lists: that name is a client's text.
const UNLISTED: &str = "unlisted";

/// Advice for such a model.
const UNLISTED_ADVICE: &str = "no engine lists the requested model in /v1/models; correct `model` \
                               in the client, or start an engine that serves it";

/// Renderings in a row that took too long, after which engines are not asked for a while.
const LATE_MAX: u32 = 3;

/// Pause after [`LATE_MAX`] late renderings in a row.
const RENDER_PAUSE: Duration = Duration::from_secs(30);

/// Most pairs of a model and a reason that are tracked; further ones appear in metrics alone.
const LACKS_MAX: usize = 1024;

/// A prompt as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct KnownPrompt {
    /// Exact tokens: of all of it, or of what is in front of its first medium.
    pub tokens: Option<Vec<TokenId>>,
    /// The media in these tokens, sorted by their start.
    pub media: Vec<Medium>,
    /// Sketch of its text, if requests are explained.
    pub sketch: Option<Sketch>,
    /// Its text as numbers, where not all tokens are known.
    pub text: Option<Vec<TokenId>>,
    /// Whether this gateway made the tokens by itself.
    pub is_ours: bool,
}

impl KnownPrompt {
    /// The tokens of the whole prompt, where they are known.
    #[must_use]
    pub fn exact(&self) -> Option<&[TokenId]> {
        self.tokens.as_deref().filter(|_| self.text.is_none())
    }
}

/// A request whose prompt an engine may render.
#[derive(Clone, Copy, Debug)]
pub struct ToRender<'a> {
    /// Its path.
    pub path: &'a str,
    /// Its body.
    pub body: &'a Bytes,
    /// Whether it has images or other media, as far as is known.
    pub has_media: bool,
}

/// Why a gateway lacks the tokens of a prompt.
#[derive(Debug)]
pub enum Lack {
    /// It has no tokenizer.
    NoTokenizer,
    /// It once made other tokens of such a request than the engine.
    Differs,
    /// The prompt crate says why.
    Prompt(NoExactTokens),
}

impl Lack {
    /// A short name for metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoTokenizer => "no-tokenizer",
            Self::Differs => "engine-differs",
            Self::Prompt(why) => why.reason(),
        }
    }

    /// Returns the suggested fix.
    fn advice(&self) -> Cow<'static, str> {
        let advice = match self {
            Self::NoTokenizer => {
                "name the engine's folder (--upstream URL,tokenizer=FOLDER) to route by exact \
                 prefixes"
            }
            Self::Differs => {
                "the gateway's tokenizer or chat template is not the engine's; give it the \
                 engine's own"
            }
            Self::Prompt(NoExactTokens::NoTemplate) => {
                "put the engine's chat_template.jinja into the tokenizer folder"
            }
            // A template's own words, and what it failed on, may repeat a prompt's.
            Self::Prompt(NoExactTokens::Refused(_)) => {
                "the chat template refused the conversation; the engine will, too"
            }
            Self::Prompt(NoExactTokens::Failed(_)) => {
                "the chat template or the tokenizer failed; POST /tokenize with such a request \
                 says why"
            }
            Self::Prompt(why) => return why.to_string().into(),
        };
        advice.into()
    }

    /// Whether an engine may know what this gateway does not.
    fn asks_engine(&self) -> bool {
        !matches!(
            self,
            Self::NoTokenizer
                | Self::Prompt(NoExactTokens::Refused(_) | NoExactTokens::Malformed(_))
        )
    }
}

/// Counts of prompts without tokens, and limits on asking engines to render them.
#[derive(Debug)]
pub(super) struct PromptDesk {
    lacks: Mutex<BTreeMap<(String, &'static str), LackCounts>>,
    asking: Semaphore,
    patience: Mutex<RenderPatience>,
}

/// Whether engines render in time.
#[derive(Debug, Default)]
struct RenderPatience {
    late: u32,
    paused_until: Option<Instant>,
}

impl RenderPatience {
    fn is_paused(&self, now: Instant) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    fn note(&mut self, is_late: bool, now: Instant) {
        self.late = if is_late { self.late + 1 } else { 0 };
        // Engines that are late time after time are busy or stuck, and each late question delays
        // its request by the whole limit.
        if self.late >= LATE_MAX {
            *self = Self { late: 0, paused_until: Some(now + RENDER_PAUSE) };
            tracing::warn!(
                pause_s = RENDER_PAUSE.as_secs(),
                "engines take too long to render prompts; they are not asked for a while"
            );
        }
    }
}

/// Prompts of one model that lack tokens for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LackCounts {
    by_text: u64,
    by_engine: u64,
}

impl Default for PromptDesk {
    fn default() -> Self {
        Self {
            lacks: Mutex::default(),
            asking: Semaphore::new(RENDERED_AT_ONCE),
            patience: Mutex::default(),
        }
    }
}

impl HttpGateway {
    /// Preprocessing of chat requests by the engines that serve `model`.
    #[must_use]
    pub fn dialect(&self, model: &str) -> Dialect {
        let known = self.serving(model).find_map(Upstream::dialect);
        known.unwrap_or_default()
    }

    fn serving<'a>(&'a self, model: &'a str) -> impl Iterator<Item = &'a Upstream> {
        let serves =
            move |upstream: &&Upstream| upstream.models().iter().any(|served| served == model);
        self.fleet.upstreams().iter().filter(serves)
    }

    /// Returns the known part of a prompt that `lack` keeps from being tokenized here: the engine's
    /// tokens, or its text.
    pub async fn prompt_without_tokens(
        self: &Arc<Self>,
        lack: Lack,
        model: &str,
        request: &ToRender<'_>,
        before_medium: Option<TokenizedPrompt>,
    ) -> KnownPrompt {
        let rendered =
            if lack.asks_engine() { self.rendered_by_engine(model, request).await } else { None };
        // The same placeholders stand for other images too: without their names, a prompt with
        // media is not known.
        let rendered = rendered.filter(|one| !request.has_media || !one.media.is_empty());
        self.note_lack(&lack, model, rendered.is_some());
        match rendered {
            Some(RenderedPrompt { tokens, media }) => {
                KnownPrompt { tokens: Some(tokens), media, ..KnownPrompt::default() }
            }
            None => KnownPrompt {
                tokens: before_medium.map(|prompted| prompted.tokens),
                text: Some(text_tokens(request.body)),
                sketch: self.sketch_without_tokens(&lack, request.body),
                ..KnownPrompt::default()
            },
        }
    }

    /// A sketch of the text of a request. None beside a tokenizer: prompts that its chat template
    /// rendered would differ from this text in their markup.
    fn sketch_without_tokens(&self, lack: &Lack, body: &Bytes) -> Option<Sketch> {
        let insight = self.observers.insight.as_ref()?;
        match lack {
            Lack::NoTokenizer => insight.look_at(body.len(), || plain_text(body)),
            Lack::Differs | Lack::Prompt(_) => None,
        }
    }

    async fn rendered_by_engine(
        &self,
        model: &str,
        request: &ToRender<'_>,
    ) -> Option<RenderedPrompt> {
        // The lock is taken for a statement at a time, never across the engine's answer.
        let patience = || lock(&self.prompts.patience);
        if patience().is_paused(Instant::now()) {
            return None;
        }
        // No wait: a prompt that goes by its text is better than one that queues for an engine.
        let _turn = self.prompts.asking.try_acquire().ok()?;
        // The router's guard ends with this statement, before the engine is asked.
        let upstream = self.router().replicas().find_map(|replica| {
            let upstream = self.upstream(replica.replica)?;
            let serves = upstream.models().iter().any(|served| served == model);
            (replica.health == Health::Healthy && serves).then_some(upstream)
        })?;
        // `prompt_without_tokens` discards a rendering that does not name the media.
        if request.has_media && !upstream.names_media() {
            return None;
        }
        let start = Instant::now();
        let tokens = upstream.render(request.path, request.body, RENDER_TIMEOUT);
        // `render` may ask more than one route. This limit is for all of it.
        let tokens = tokio::time::timeout(RENDER_TIMEOUT, tokens).await;
        let is_late = start.elapsed() >= RENDER_TIMEOUT;
        patience().note(is_late, Instant::now());
        tokens.ok()?
    }

    /// Counts a prompt without tokens of ours; logs a reason when it first comes up.
    fn note_lack(&self, lack: &Lack, model: &str, is_rendered: bool) {
        // A client may send any name. Only listed names become labels and keys, so that their
        // number is bounded.
        let reason = lack.reason();
        let is_listed = self.serving(model).next().is_some();
        let model = if is_listed { model } else { UNLISTED };
        let requests = &self.metrics.requests;
        let counter = if is_rendered { &requests.rendered } else { &requests.without_tokens };
        counter.with_label_values(&[model, reason]).inc();
        let mut lacks = lock(&self.prompts.lacks);
        let key = (model.to_owned(), reason);
        let is_new = !lacks.contains_key(&key);
        // The counters above still count it.
        if is_new && lacks.len() >= LACKS_MAX {
            return;
        }
        let counts = lacks.entry(key).or_default();
        counts.by_engine += u64::from(is_rendered);
        counts.by_text += u64::from(!is_rendered);
        if is_new {
            tracing::warn!(
                model,
                reason,
                "the gateway has no exact tokens of a prompt: {}; it routes such prompts by the \
                 engine's tokens if it has them, otherwise by their text",
                if is_listed { lack.advice() } else { UNLISTED_ADVICE.into() }
            );
        }
    }

    /// Notices for the operator: one per reason for missing exact tokens, per request shape that an
    /// engine renders differently, and per gap in usage.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let lacks = lock(&self.prompts.lacks);
        let lacking = lacks.iter().map(|((model, reason), counts)| {
            let all = counted(counts.by_engine + counts.by_text, "prompt");
            let by = format!(
                "{} routed by the engine's tokens and {} by their text",
                counts.by_engine, counts.by_text
            );
            if model == UNLISTED {
                format!(
                    "{all} for models that no engine lists in /v1/models, {by}; correct \
                     `model` in the client, or start an engine that serves it"
                )
            } else {
                format!("{model}: {all} without exact tokens ({reason}), {by}")
            }
        });
        // Collected, so that this lock is released before the other two are taken.
        let lacking: Vec<_> = lacking.collect();
        drop(lacks);
        let differing = self.drift.differing().into_iter().map(|(model, replica, shape)| {
            format!(
                "{model}: replica {replica} and this gateway tokenize {shape} differently; give \
                 the gateway the engine's tokenizer and chat template"
            )
        });
        differing.chain(lacking).chain(self.usage_gaps.notices()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_renderings_in_a_row_pause_the_questions() {
        let now = Instant::now();
        let mut patience = RenderPatience::default();
        for is_late in [true, true, false, true, true] {
            patience.note(is_late, now);
            assert!(!patience.is_paused(now));
        }
        patience.note(true, now);
        assert!(patience.is_paused(now) && patience.is_paused(now + RENDER_PAUSE / 2));
        assert!(!patience.is_paused(now + RENDER_PAUSE));
    }
}
