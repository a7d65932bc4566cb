//! One answer on its way from a replica to the client.

use axum::response::Response;
use headstart_core::TokenId;
use headstart_engine::{FinishReason, Output};
use headstart_insight::text::Sketch;
use http::{HeaderValue, header};

use super::super::body::{self, BodyWriter, ClientGone};
use super::super::call::CompletionCall;
use super::super::own_headers::{CACHED_HEADER, IMPORTANCE_HEADER, REPLICA_HEADER, header_value};
use crate::answer::{Answer, Finish, Piece};
use crate::gateway::{EmbeddedReplicas, PrefilledRequest};
use crate::insight::AnswerFacts;
use crate::metrics::PromptSources;
use crate::openai::{ApiError, Generation};
use crate::prediction::Forecast;
use crate::replica::ReplicaEvent;
use crate::shape::{AnswerWriter, Events, Usage};

/// An answer being generated.
pub(super) struct GenerationRun {
    call: CompletionCall,
    reply: ReplyFormat,
    accepted: PrefilledRequest,
    answer: Answer,
    usage: Usage,
    /// Its end is the end of the conversation's turn.
    _forecast: Option<Forecast>,
}

/// Shape of the answer, and the id and model name in it.
pub(super) struct ReplyFormat {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) shape: Box<dyn AnswerWriter>,
}

/// A request with its first token, and how it is answered.
pub(super) struct AcceptedRun {
    pub(super) prompt_tokens: usize,
    pub(super) sketch: Option<Sketch>,
    pub(super) forecast: Option<Forecast>,
    pub(super) reply: ReplyFormat,
    pub(super) accepted: PrefilledRequest,
}

impl GenerationRun {
    pub(super) fn start(
        call: CompletionCall,
        embedded: &EmbeddedReplicas,
        generation: &Generation,
        run: AcceptedRun,
    ) -> Self {
        let AcceptedRun { prompt_tokens, sketch, mut forecast, reply, accepted } = run;
        let tokenizer = embedded.prompt.tokenizer.clone();
        let answer = match generation.max_tokens {
            // The engine computes one token even for a prompt that is only made ready.
            Some(0) => Answer::unwanted(tokenizer),
            _ => Answer::new(tokenizer, generation.stop.clone()),
        };
        if let Some(forecast) = &mut forecast {
            forecast.answering();
        }
        let usage = prompt_usage(prompt_tokens, embedded.block_size, &accepted.sources);
        let run = Self { call, reply, accepted, answer, usage, _forecast: forecast };
        let waited_s = run.note_first_token();
        let answered = AnswerFacts {
            id: Some(&run.reply.id),
            request_id: run.call.request_id(),
            model: &run.reply.model,
            ttft_s: Some(waited_s),
        };
        // The answer's length does not change what was cached: the request is explained at its
        // first token.
        run.accepted.reservation.explain(&answered, sketch);
        run
    }

    /// The whole answer at once.
    pub(super) async fn collect(mut self) -> Result<Response, ApiError> {
        let mut text = String::new();
        let mut piece = self.first()?;
        let finish = loop {
            text.push_str(&piece.text);
            if let Some(finish) = piece.finish {
                break finish;
            }
            piece = self.next().await?;
        };
        self.finish(&finish);
        let body = self.reply.shape.whole(&text, &finish, self.usage);
        let mut response = Response::new(body.into());
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        self.describe(&mut response);
        Ok(response)
    }

    /// The answer piece by piece.
    pub(super) fn stream(self) -> Response {
        let call = &self.call;
        let (writer, body) = body::channel(body::PIECES, &call.gateway.limits, call.closer.clone());
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        self.describe(&mut response);
        tokio::spawn(async move {
            // A client that is gone needs no more; dropping the run cancels the request.
            let _ = self.write(&writer).await;
        });
        response
    }

    async fn write(mut self, writer: &BodyWriter) -> Result<(), ClientGone> {
        let mut events = Events::default();
        self.reply.shape.open(self.usage, &mut events);
        let mut next = self.first();
        loop {
            let is_over = self.add(next, &mut events);
            let ready = events.take();
            // A token may end inside a character, and then there is no text to send yet.
            if !ready.is_empty() {
                writer.send(ready.into()).await?;
            }
            if is_over {
                return Ok(());
            }
            // A client that hangs up frees its blocks at once, and not with the next token.
            next = tokio::select! {
                next = self.next() => next,
                () = writer.closed() => return Err(ClientGone),
            };
        }
    }

    /// Adds the events of what came next. Says whether the stream is over.
    fn add(&mut self, next: Result<Piece, ApiError>, events: &mut Events) -> bool {
        let piece = match next {
            Ok(piece) => piece,
            Err(error) => {
                if let Some(errors) = &self.call.errors {
                    errors.broke_off(&self.call.gateway, &error);
                }
                self.reply.shape.fail(&error, events);
                return true;
            }
        };
        self.usage.completion = self.answer.tokens();
        if !piece.text.is_empty() {
            self.reply.shape.text(&piece.text, self.usage, events);
        }
        match piece.finish {
            Some(finish) => {
                self.finish(&finish);
                self.reply.shape.close(&finish, self.usage, events);
                true
            }
            None => false,
        }
    }

    fn first(&mut self) -> Result<Piece, ApiError> {
        let (token, finish) = self.accepted.first;
        self.take(token, finish)
    }

    async fn next(&mut self) -> Result<Piece, ApiError> {
        match self.accepted.events.recv().await {
            Some(ReplicaEvent::Output(Output::Token { token, finish, .. })) => {
                self.take(token, finish)
            }
            Some(_) | None => Err(ApiError::replica_gone(
                "the replica failed in the middle of the answer; send the request again",
            )),
        }
    }

    fn take(&mut self, token: TokenId, finish: Option<FinishReason>) -> Result<Piece, ApiError> {
        self.answer.push(token, finish).map_err(|error| ApiError::internal(error.to_string()))
    }

    fn describe(&self, response: &mut Response) {
        let headers = response.headers_mut();
        let replica = self.accepted.reservation.replica_name();
        headers.insert(REPLICA_HEADER, header_value(replica));
        headers.insert(CACHED_HEADER, header_value(&self.usage.cached.to_string()));
        if let Some(percent) = self.accepted.sources.loaded_percent() {
            let value = format!("loaded={percent}%");
            headers.insert(IMPORTANCE_HEADER, header_value(&value));
        }
    }

    /// Seconds since the request's arrival.
    fn seconds(&self) -> f64 {
        self.call.gateway.clock.now().since(self.call.arrival).as_secs_f64()
    }

    /// Seconds from the request's arrival to its first token.
    fn note_first_token(&self) -> f64 {
        let metrics = &self.call.gateway.metrics;
        let labels = [&self.reply.model[..], self.accepted.reservation.replica_name()];
        let waited = self.seconds();
        metrics.requests.ttft.with_label_values(&labels).observe(waited);
        metrics.requests.cache_queries.with_label_values(&labels).inc_by(self.usage.prompt as u64);
        metrics.requests.cache_hits.with_label_values(&labels).inc_by(self.usage.cached as u64);
        metrics.requests.prompt_tokens.with_label_values(&labels).inc_by(self.usage.prompt as u64);
        let PrefilledRequest { sources, engine, .. } = &self.accepted;
        let prompt = self.usage.prompt;
        self.call.timeline.note(|facts| {
            facts.model = Some(self.reply.model.clone());
            facts.replica = Some(self.accepted.reservation.replica());
            facts.prompt_tokens = Some(prompt);
            facts.cached_tokens = Some(self.usage.cached);
        });
        metrics.savings.note(labels, prompt, sources, engine.as_ref());
        tracing::debug!(
            id = self.reply.id,
            replica = self.accepted.reservation.replica_name(),
            prompt_tokens = self.usage.prompt,
            cached_tokens = self.usage.cached,
            ttft_ms = waited * 1e3,
            "first token"
        );
        waited
    }

    /// Counts the answer.
    fn finish(&mut self, finish: &Finish) {
        self.usage.completion = self.answer.tokens();
        let metrics = &self.call.gateway.metrics;
        let replica = self.accepted.reservation.replica_name();
        let model = &self.reply.model[..];
        let labels = [model, replica];
        self.call.timeline.note(|facts| {
            facts.output_tokens = Some(self.usage.completion);
            facts.is_complete = true;
        });
        metrics.requests.e2e.with_label_values(&labels).observe(self.seconds());
        let tokens = metrics.requests.generation_tokens.with_label_values(&labels);
        tokens.inc_by(self.usage.completion as u64);
        metrics.requests.successes.with_label_values(&[model, replica, finish.name()]).inc();
    }
}

/// The counts of a prompt that has its first token: all its full blocks are cached by then.
fn prompt_usage(prompt: usize, block_size: usize, sources: &PromptSources) -> Usage {
    let cached = sources.found();
    let created = match sources.loaded_percent() {
        None => (prompt / block_size * block_size).saturating_sub(cached),
        // Nothing behind a prefix that was loaded in part is cached under its exact name.
        Some(_) => 0,
    };
    Usage { prompt, cached, created, completion: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_blocks_are_created_unless_they_were_found() {
        for (prompt, cached, created) in [(15, 0, 0), (16, 0, 16), (40, 16, 16), (32, 31, 1)] {
            let usage = prompt_usage(prompt, 16, &PromptSources::on_device(cached));
            assert_eq!((usage.cached, usage.created), (cached, created), "{prompt}");
        }
        let mut partly = PromptSources::on_device(16);
        partly.set_partly(1, 2);
        assert_eq!(prompt_usage(40, 16, &partly).created, 0);
    }
}
