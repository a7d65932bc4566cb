//! Answers computed in this process.

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use headstart_core::TokenId;
use headstart_engine::FinishReason;
use headstart_insight::text::Sketch;
use headstart_prompt::{GenerationPrompt, PromptError, RenderInput};
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;

use super::body::{self, ClientGone, Writer};
use super::{CACHED_HEADER, Call, IMPORTANCE_HEADER, REPLICA_HEADER, header_value};
use crate::answer::{Answer, Piece};
use crate::clock::unix_seconds;
use crate::gateway::{Accepted, Ask, Embedded, Fleet, Gateway, unknown_model};
use crate::insight::Answered;
use crate::openai::error::PromptLength;
use crate::openai::response::{Envelope, Kind, Usage};
use crate::openai::{ApiError, ChatRequest, CompletionRequest, Generation, PromptInput};
use crate::prediction::{Chat, Forecast, Scope};
use crate::prompt_tokens::{PromptTokens, Prompted};
use crate::replica::ReplicaEvent;
use crate::spans::{Mark, Timeline};

/// Answers a call.
pub(super) async fn answer(call: Call, body: &[u8]) -> Result<Response, ApiError> {
    let gateway = call.gateway.clone();
    let Fleet::Embedded(embedded) = &gateway.fleet else {
        unreachable!("the caller asked for embedded replicas");
    };
    let (generation, input) = parse(call.kind, body)?;
    if generation.model != embedded.name {
        return Err(unknown_model(&generation.model, &gateway.models()));
    }
    let (slo_ttft, is_exact) = (call.slo_ttft()?, call.is_exact()?);
    let session = call.session(generation.user.as_deref());
    let scope = Scope {
        salt: generation.cache_salt.clone(),
        session: session.map(str::to_owned),
    };
    let (Prompted { tokens, sketch }, chat) = read(&gateway, embedded, input, scope).await?;
    call.timeline.mark(Mark::Tokenized);
    let forecast = embedded.predictions.as_ref().zip(chat);
    let forecast = forecast.map(|(predictions, chat)| predictions.forecast(chat, call.arrival));
    let ask = Ask {
        generation: &generation,
        session,
        slo_ttft,
        is_exact,
        prompt: &tokens,
        forecast: forecast.as_ref(),
        timeline: &call.timeline,
    };
    let accepted = gateway.generate(embedded, &ask).await?;
    let prompt = Prompt {
        tokens: tokens.len(),
        sketch,
        forecast,
    };
    let run = Run::start(&call, embedded, &generation, prompt, accepted);
    if generation.stream {
        Ok(run.stream(&call, generation.include_usage))
    } else {
        run.collect().await
    }
}

/// A prompt before tokenization.
enum Input {
    Chat(Value),
    Plain(PromptInput),
}

fn parse(kind: Kind, body: &[u8]) -> Result<(Generation, Input), ApiError> {
    match kind {
        Kind::Chat => {
            ChatRequest::parse(body).map(|chat| (chat.generation, Input::Chat(chat.messages)))
        }
        Kind::Text => CompletionRequest::parse(body)
            .map(|completion| (completion.generation, Input::Plain(completion.prompt))),
        Kind::Messages | Kind::Responses => {
            let message = "this server answers /v1/chat/completions and /v1/completions";
            Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message))
        }
    }
}

/// Tokenizes, and reads the conversation where somebody predicts, off the network threads: a long
/// prompt takes milliseconds.
async fn read(
    gateway: &Gateway,
    embedded: &Embedded,
    input: Input,
    scope: Scope,
) -> Result<(Prompted, Option<Chat>), ApiError> {
    refuse_hopeless(embedded, &input)?;
    let prompt = gateway
        .prompt_tokens()
        .expect("embedded models have a tokenizer")
        .clone();
    let predictions = embedded.predictions.clone();
    let vocab = embedded.model.config.vocab;
    let reading = tokio::task::spawn_blocking(move || {
        let chat = match (&input, predictions) {
            (Input::Chat(messages), Some(predictions)) => predictions.read(messages, &scope),
            _ => None,
        };
        to_tokens(&prompt, input, scope.salt.as_deref()).map(|prompted| (prompted, chat))
    });
    let (prompted, chat) = reading
        .await
        .map_err(|_| server_error("the tokenizer failed"))??;
    let tokens = &prompted.tokens;
    if tokens.is_empty() {
        return Err(ApiError::invalid("prompt", "the prompt has no tokens"));
    }
    match tokens.iter().find(|&&token| token as usize >= vocab) {
        Some(token) => {
            let message = format!("token {token} is not in the vocabulary of {vocab}");
            Err(ApiError::invalid("prompt", message))
        }
        None => Ok((prompted, chat)),
    }
}

/// Longest text of one token, bytes; vocabularies stay below it.
const TOKEN_BYTES: usize = 256;

/// Refuses what cannot fit before any work is spent on it: by its bytes, as if all its tokens were
/// the longest ones.
fn refuse_hopeless(embedded: &Embedded, input: &Input) -> Result<(), ApiError> {
    let limit = embedded.context().saturating_sub(1);
    let at_least = |bytes: usize| bytes.div_ceil(TOKEN_BYTES);
    let (num_tokens, length) = match input {
        Input::Plain(PromptInput::Tokens(tokens)) => {
            (tokens.len(), PromptLength::Exactly(tokens.len()))
        }
        Input::Plain(PromptInput::Text(text)) => {
            (at_least(text.len()), PromptLength::MoreThan(limit))
        }
        Input::Chat(messages) => {
            let contents = messages.as_array().into_iter().flatten();
            let texts = contents.filter_map(|message| message["content"].as_str());
            let bytes = texts.map(str::len).sum();
            (at_least(bytes), PromptLength::MoreThan(limit))
        }
    };
    match num_tokens > limit {
        true => Err(ApiError::context_length(length, limit)),
        false => Ok(()),
    }
}

fn to_tokens(
    prompt: &PromptTokens,
    input: Input,
    salt: Option<&str>,
) -> Result<Prompted, ApiError> {
    match input {
        Input::Chat(messages) => chat_tokens(prompt, &messages, salt),
        Input::Plain(input) => plain_tokens(prompt, input, salt),
    }
}

/// The tokens of a plain prompt.
///
/// # Errors
/// When the tokenizer fails.
pub(super) fn plain_tokens(
    prompt: &PromptTokens,
    input: PromptInput,
    salt: Option<&str>,
) -> Result<Prompted, ApiError> {
    match input {
        PromptInput::Tokens(tokens) => Ok(tokens.into()),
        PromptInput::Text(text) => {
            let tokens = prompt.plain(&text, salt);
            tokens.map_err(|error| prompt_error(&error, "prompt"))
        }
    }
}

/// The tokens of a conversation, by the model's chat template.
///
/// # Errors
/// When the template refuses it.
fn chat_tokens(
    prompt: &PromptTokens,
    messages: &Value,
    salt: Option<&str>,
) -> Result<Prompted, ApiError> {
    let input = RenderInput {
        messages,
        tools: None,
        generation_prompt: GenerationPrompt::Add,
        now_unix_s: unix_seconds() as i64,
        extra: &serde_json::Map::new(),
    };
    prompt
        .chat(&input, salt)
        .map_err(|error| prompt_error(&error, "messages"))
}

fn prompt_error(error: &PromptError, param: &str) -> ApiError {
    match error {
        PromptError::Refused(_) | PromptError::Render { .. } | PromptError::NoTemplate => {
            ApiError::invalid(param, error.to_string())
        }
        other => server_error(&other.to_string()),
    }
}

fn server_error(message: &str) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
}

/// An answer being generated.
struct Run {
    gateway: Arc<Gateway>,
    envelope: Envelope,
    accepted: Accepted,
    answer: Answer,
    usage: Usage,
    arrival: headstart_core::Nanos,
    timeline: Timeline,
    /// Its end is the end of the conversation's turn.
    _forecast: Option<Forecast>,
}

/// What a run needs to know of its prompt.
struct Prompt {
    tokens: usize,
    sketch: Option<Sketch>,
    forecast: Option<Forecast>,
}

impl Run {
    fn start(
        call: &Call,
        embedded: &Embedded,
        generation: &Generation,
        mut prompt: Prompt,
        accepted: Accepted,
    ) -> Self {
        let gateway = call.gateway.clone();
        let prefix = if call.kind == Kind::Chat {
            "chatcmpl"
        } else {
            "cmpl"
        };
        let envelope = Envelope {
            kind: call.kind,
            id: gateway.answer_id(prefix, gateway.next_id()),
            model: embedded.name.clone(),
            created: unix_seconds() as u64,
        };
        let tokenizer = embedded.prompt.tokenizer.clone();
        let answer = match generation.max_tokens {
            Some(0) => Answer::unwanted(tokenizer),
            _ => Answer::new(tokenizer, generation.stop.clone()),
        };
        if let Some(forecast) = &mut prompt.forecast {
            forecast.answering();
        }
        let usage = Usage {
            prompt: prompt.tokens,
            cached: accepted.sources.found(),
            completion: 0,
        };
        let run = Self {
            gateway,
            envelope,
            accepted,
            answer,
            usage,
            arrival: call.arrival,
            timeline: call.timeline.clone(),
            _forecast: prompt.forecast,
        };
        let waited_s = run.note_first_token();
        let answered = Answered {
            id: Some(&run.envelope.id),
            request_id: call.request_id(),
            model: &run.envelope.model,
            ttft_s: Some(waited_s),
        };
        run.accepted.reservation.explain(&answered, prompt.sketch);
        run
    }

    /// The whole answer at once.
    async fn collect(mut self) -> Result<Response, ApiError> {
        let mut text = String::new();
        let mut piece = self.first()?;
        let reason = loop {
            text.push_str(&piece.text);
            if let Some(reason) = piece.finish {
                break reason;
            }
            piece = self.next().await?;
        };
        let usage = self.finish(reason);
        let mut response = Json(self.envelope.whole(&text, reason, usage)).into_response();
        self.describe(&mut response);
        Ok(response)
    }

    /// The answer piece by piece.
    fn stream(self, call: &Call, include_usage: bool) -> Response {
        let (writer, body) = body::channel(body::PIECES, &call.gateway.limits, call.closer.clone());
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        self.describe(&mut response);
        tokio::spawn(async move {
            // A client that is gone needs no more; dropping the run cancels the request.
            let _ = self.write(&writer, include_usage).await;
        });
        response
    }

    async fn write(mut self, writer: &Writer, include_usage: bool) -> Result<(), ClientGone> {
        if let Some(opening) = self.envelope.opening() {
            writer.send(body::event(&opening)).await?;
        }
        let mut next = self.first();
        loop {
            let piece = match next {
                Ok(piece) => piece,
                Err(error) => return writer.send(body::event(&error.body())).await,
            };
            if !piece.text.is_empty() {
                writer
                    .send(body::event(&self.envelope.text(&piece.text)))
                    .await?;
            }
            if let Some(reason) = piece.finish {
                writer.send(body::event(&self.envelope.end(reason))).await?;
                let usage = self.finish(reason);
                if include_usage {
                    writer
                        .send(body::event(&self.envelope.usage(usage)))
                        .await?;
                }
                return writer.send(Bytes::from_static(b"data: [DONE]\n\n")).await;
            }
            next = tokio::select! {
                next = self.next() => next,
                () = writer.closed() => return Err(ClientGone),
            };
        }
    }

    fn first(&mut self) -> Result<Piece, ApiError> {
        let (token, finish) = self.accepted.first;
        self.take(token, finish)
    }

    async fn next(&mut self) -> Result<Piece, ApiError> {
        match self.accepted.events.recv().await {
            Some(ReplicaEvent::Token { token, finish }) => self.take(token, finish),
            Some(_) | None => Err(ApiError::replica_gone(
                "the replica failed in the middle of the answer; send the request again",
            )),
        }
    }

    fn take(&mut self, token: TokenId, finish: Option<FinishReason>) -> Result<Piece, ApiError> {
        self.answer
            .push(token, finish)
            .map_err(|error| server_error(&error.to_string()))
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

    /// Seconds from the request's arrival to its first token.
    fn note_first_token(&self) -> f64 {
        let metrics = &self.gateway.metrics;
        let labels = [
            &self.envelope.model[..],
            self.accepted.reservation.replica_name(),
        ];
        let waited = self.gateway.clock.now().since(self.arrival).as_secs_f64();
        metrics
            .requests
            .ttft
            .with_label_values(&labels)
            .observe(waited);
        metrics
            .requests
            .cache_queries
            .with_label_values(&labels)
            .inc_by(self.usage.prompt as u64);
        metrics
            .requests
            .cache_hits
            .with_label_values(&labels)
            .inc_by(self.usage.cached as u64);
        metrics
            .requests
            .prompt_tokens
            .with_label_values(&labels)
            .inc_by(self.usage.prompt as u64);
        let Accepted {
            sources, engine, ..
        } = &self.accepted;
        let prompt = self.usage.prompt;
        self.timeline.note(|facts| {
            facts.model = Some(self.envelope.model.clone());
            facts.replica = Some(self.accepted.reservation.replica());
            facts.prompt_tokens = Some(prompt);
            facts.cached_tokens = Some(self.usage.cached);
        });
        metrics
            .savings
            .note(labels, prompt, sources, engine.as_ref());
        tracing::debug!(
            id = self.envelope.id,
            replica = self.accepted.reservation.replica_name(),
            prompt_tokens = self.usage.prompt,
            cached_tokens = self.usage.cached,
            ttft_ms = waited * 1e3,
            "first token"
        );
        waited
    }

    fn finish(&mut self, reason: &str) -> Usage {
        self.usage.completion = self.answer.tokens();
        let metrics = &self.gateway.metrics;
        let replica = self.accepted.reservation.replica_name();
        let model = &self.envelope.model[..];
        let labels = [model, replica];
        let took = self.gateway.clock.now().since(self.arrival).as_secs_f64();
        self.timeline.note(|facts| {
            facts.output_tokens = Some(self.usage.completion);
            facts.is_complete = true;
        });
        metrics
            .requests
            .e2e
            .with_label_values(&labels)
            .observe(took);
        metrics
            .requests
            .generation_tokens
            .with_label_values(&labels)
            .inc_by(self.usage.completion as u64);
        metrics
            .requests
            .successes
            .with_label_values(&[model, replica, reason])
            .inc();
        self.usage
    }
}
