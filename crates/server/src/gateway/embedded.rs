//! Placing a request on a replica of this process.

use std::sync::Arc;

use headstart_core::{Access, EngineModel, ReplicaId, SeqId, TokenId};
use headstart_engine::{FinishReason, Output, Sampling, Submission, Submit};
use headstart_router::RouteRequest;
use tokio::sync::mpsc;

use super::{EmbeddedReplicas, HttpGateway, REFUSALS, Reservation};
use crate::metrics::PromptSources;
use crate::openai::error::PromptLength;
use crate::openai::{ApiError, Generation};
use crate::prediction::Forecast;
use crate::replica::ReplicaEvent;
use crate::request_type::{CHAT, COMPLETION};
use crate::spans::{Mark, RequestTimeline};

/// Values that follow a request beside its submission and its routing.
#[derive(Clone, Copy)]
pub struct GenerationObservers<'a> {
    /// Prediction of whether its conversation continues, if there is a predictor.
    pub forecast: Option<&'a Forecast>,
    /// Times of its steps.
    pub timeline: &'a RequestTimeline,
}

/// A request that has its first token.
pub struct PrefilledRequest {
    /// Its place; hold it while the answer runs.
    pub reservation: Reservation,
    /// Cached prompt tokens by source.
    pub sources: PromptSources,
    /// Step costs that the replica has learned, if any.
    pub engine: Option<EngineModel>,
    /// The first token, and why it is the last, if it is.
    pub first: (TokenId, Option<FinishReason>),
    /// The rest. Dropping it cancels the request.
    pub events: mpsc::Receiver<ReplicaEvent>,
}

/// Why a replica did not take a request.
enum ReplicaRefusal {
    Full,
    Gone,
    TooSlow,
    TooLong(usize),
}

impl ReplicaRefusal {
    fn error(self, prompt_tokens: usize) -> ApiError {
        match self {
            Self::Full => ApiError::queue_full(),
            Self::TooLong(limit) => {
                ApiError::context_length(PromptLength::Exactly(prompt_tokens), limit)
            }
            Self::TooSlow => ApiError::new(
                http::StatusCode::GATEWAY_TIMEOUT,
                "first_token_timeout",
                "no token within the time limit, because too many requests wait; send the request \
                 again later",
            ),
            Self::Gone => ApiError::replica_gone(
                "the engine failed before the first token, and no other one could take the \
                 request; send it again later",
            ),
        }
    }
}

impl HttpGateway {
    /// Generates an answer, up to the first token. `route` is of the submission's prompt.
    ///
    /// # Errors
    /// When all queues are full, or no replica is left.
    pub async fn generate(
        self: &Arc<Self>,
        embedded: &EmbeddedReplicas,
        submission: &Submission,
        route: RouteRequest<'_>,
        observers: GenerationObservers<'_>,
    ) -> Result<PrefilledRequest, ApiError> {
        let GenerationObservers { forecast, timeline } = observers;
        let mut excluded: Vec<ReplicaId> = Vec::new();
        let mut last = ReplicaRefusal::Gone;
        // An engine that panicked counts too: the request may be what it panicked at.
        for _ in 0..REFUSALS {
            let placed = self.place(route, &excluded);
            // No other replica is left: say why the first one refused.
            let Ok((decision, reservation)) = placed else {
                break;
            };
            if !excluded.is_empty() {
                self.note_retry(decision.replica);
            }
            let replica = &embedded.replicas[decision.replica.0 as usize];
            // Each attempt has an id of its own: a prediction may still name the one before.
            let seq = SeqId(self.next_id());
            // A prediction that was sent to the attempt before is sent to no other one.
            let p_continue = forecast.and_then(Forecast::p_continue);
            let access = Access { p_continue, ..submission.access };
            let events = replica.submit(Submission { id: seq, access, ..submission.clone() });
            // Before the wait for the first token: a prediction that comes meanwhile goes to this
            // replica.
            if let Some(forecast) = forecast {
                forecast.placed(decision.replica.0 as usize, seq);
            }
            timeline.mark(Mark::Routed);
            let first = first_token(events, timeline);
            // Each attempt has the whole limit; there are two at most.
            let limit = self.limits.first_token_timeout;
            match tokio::time::timeout(limit, first).await.unwrap_or(Err(ReplicaRefusal::TooSlow)) {
                Ok((sources, first, events)) => {
                    reservation.first_token();
                    reservation.note_sources(&sources);
                    return Ok(PrefilledRequest {
                        reservation,
                        sources,
                        // Read when the prompt is computed, so that what the replica learned from
                        // this prompt counts.
                        engine: replica.learned(),
                        first,
                        events,
                    });
                }
                Err(refusal) => last = refusal,
            }
            // The other replicas run the same model, and a client that waited its whole limit gets
            // no second wait.
            if matches!(last, ReplicaRefusal::TooLong(_) | ReplicaRefusal::TooSlow) {
                break;
            }
            // The second attempt must meet another replica: this one is full or has just panicked.
            excluded.push(decision.replica);
        }
        Err(last.error(submission.prompt.len()))
    }

    /// The submission of a request with this prompt.
    ///
    /// # Errors
    /// When prompt and answer do not fit the context.
    pub fn submission(
        &self,
        embedded: &EmbeddedReplicas,
        generation: &Generation,
        prompt: Vec<TokenId>,
    ) -> Result<Submission, ApiError> {
        let defaults = &embedded.defaults.sampling;
        let id = self.next_id();
        let sampling = Sampling {
            temperature: generation.temperature.unwrap_or(defaults.temperature),
            top_k: generation.top_k.unwrap_or(defaults.top_k),
            top_p: generation.top_p.unwrap_or(defaults.top_p),
            // Requests without a seed must differ from each other, and from those of the process
            // before.
            seed: generation.seed.unwrap_or(id ^ self.run_id),
        };
        Ok(Submission {
            id: SeqId(id),
            max_tokens: max_tokens(embedded, generation, prompt.len())?,
            prompt,
            sampling,
            stop_tokens: if generation.ignore_eos {
                Arc::default()
            } else {
                embedded.model.generation.stop_tokens.clone()
            },
            tool_tokens: embedded.tool_tokens.clone(),
            // Who wants no answer wants the prompt made ready: all of it.
            is_exact: generation.max_tokens == Some(0),
            salt: generation.cache_salt.as_deref().map(Into::into),
            access: Access {
                request_type: match generation.turn {
                    0 => COMPLETION,
                    _ => CHAT,
                },
                turn: generation.turn,
                finish: generation.recorded_finish,
                tool: generation.recorded_tool,
                ..Access::default()
            },
        })
    }
}

/// The answer's limit: what the request says, else what the model's files say, else all that is
/// left of the context.
fn max_tokens(
    embedded: &EmbeddedReplicas,
    generation: &Generation,
    prompt: usize,
) -> Result<usize, ApiError> {
    let context = embedded.context();
    // One token of the answer must fit as well, so that a prompt as long as the context is too
    // long.
    if prompt >= context {
        let prompt = PromptLength::Exactly(prompt);
        return Err(ApiError::context_length(prompt, context.saturating_sub(1)));
    }
    let left = context - prompt;
    match generation.max_tokens {
        Some(asked) if asked > left => {
            let message = format!(
                "the prompt has {prompt} tokens and {asked} more were asked for, but prompt and \
                 answer together may have {context}; ask for at most {left}"
            );
            // OpenAI's code for a prompt that does not fit.
            let error = ApiError::invalid("max_tokens", message);
            Err(ApiError { code: "context_length_exceeded", ..error })
        }
        // A computed prompt yields a token, which the client does not see if it asked for none.
        Some(asked) => Ok(asked.max(1)),
        None => Ok(embedded.defaults.max_new_tokens.unwrap_or(left).min(left)),
    }
}

type GenerationStart =
    (PromptSources, (TokenId, Option<FinishReason>), mpsc::Receiver<ReplicaEvent>);

async fn first_token(
    events: Option<mpsc::Receiver<ReplicaEvent>>,
    timeline: &RequestTimeline,
) -> Result<GenerationStart, ReplicaRefusal> {
    // The inbox of the replica is full.
    let mut events = events.ok_or(ReplicaRefusal::Full)?;
    let mut sources = PromptSources::default();
    loop {
        let output = match events.recv().await {
            // The channel closed without a last token: the engine panicked, or its thread is gone.
            None => return Err(ReplicaRefusal::Gone),
            Some(ReplicaEvent::Refused(Submit::TooLong { limit })) => {
                return Err(ReplicaRefusal::TooLong(limit));
            }
            Some(ReplicaEvent::Refused(_)) => return Err(ReplicaRefusal::Full),
            Some(ReplicaEvent::Output(output)) => output,
        };
        match output {
            Output::Started { cached_tokens, .. } => {
                timeline.mark(Mark::Started);
                sources = PromptSources::on_device(cached_tokens);
            }
            Output::Loaded { tokens, from, .. } => {
                timeline.mark(Mark::Loaded);
                sources.add(from, tokens);
            }
            Output::Partly { loaded_bytes, whole_bytes, .. } => {
                sources.set_partly(loaded_bytes, whole_bytes);
            }
            Output::Token { token, finish, .. } => {
                timeline.mark(Mark::FirstToken);
                return Ok((sources, (token, finish), events));
            }
        }
    }
}
