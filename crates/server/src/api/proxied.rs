//! Answers passed on from upstream engines.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use headstart_core::TokenId;
use headstart_insight::text::Sketch;
use headstart_prompt::{GenerationPrompt, RenderInput};
use http::{HeaderMap, HeaderName, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::Value;

use super::body::{self, ClientGone, Writer};
use super::routed::{self, Routed};
use super::usage::{Usage, UsageScan};
use super::{CACHED_HEADER, Call, IMPORTANCE_HEADER, REPLICA_HEADER, header_value};
use crate::clock::unix_seconds;
use crate::gateway::{Comparison, Due, Gateway, Passing, Proxied, Reservation, is_event_stream};
use crate::insight::Answered;
use crate::openai::response::Kind;
use crate::openai::{ApiError, request};
use crate::prompt_tokens::{PromptTokens, Prompted};
use crate::shadow::{Arrived, Shadowed};
use crate::spans::{Mark, Timeline};
use crate::upstream::HOPS_HEADER;

/// Answers a call.
pub(super) async fn answer(call: Call, body: Bytes) -> Result<Response, ApiError> {
    let Routed { model, salt, user } = Routed::parse(&body)?;
    let prompt = call.gateway.prompt_tokens();
    let prompted = routed::tokens(prompt, call.kind, salt.as_deref(), &body).await;
    let (tokens, sketch) = prompted.map_or((None, None), |it| (Some(it.tokens), it.sketch));
    call.timeline.mark(Mark::Tokenized);
    let path = match call.kind {
        Kind::Chat => "/v1/chat/completions",
        Kind::Text => "/v1/completions",
        Kind::Messages => "/v1/messages",
        Kind::Responses => "/v1/responses",
    };
    let shadowed = shadowed(&call, tokens.as_deref(), salt.as_deref(), user.as_deref());
    // What it says goes on to an engine, which may load in part or not.
    call.is_exact()?;
    let mut headers = call.headers.clone();
    count_hop(&mut headers)?;
    call.timeline.pass_on(&mut headers);
    if call.gateway.api_key.is_some() {
        // The key was this gateway's, not the engine's.
        headers.remove(header::AUTHORIZATION);
    }
    let passing = Passing {
        path,
        headers: &headers,
        body,
        model: &model,
        salt: salt.as_deref(),
        session: call.session(user.as_deref()),
        slo_ttft: call.slo_ttft()?,
        tokens: tokens.as_deref(),
        timeline: &call.timeline,
    };
    let proxied = call.gateway.pass_on(&passing).await?;
    let ttft_s = note_first_bytes(&call, &model, &proxied);
    if proxied.head.status.is_success() {
        shadowed.began(call.gateway.clock.now());
    }
    let body = passing.body.clone();
    let sent = Sent {
        gateway: call.gateway.clone(),
        kind: call.kind,
        model,
        body,
        tokens,
        timeline: call.timeline.clone(),
        shadowed,
        sketch,
        ttft_s: ttft_s.filter(|_| is_event_stream(&proxied.head.headers)),
        request_id: call.request_id().map(str::to_owned),
        answer_id: None,
    };
    Ok(respond(&call, proxied, sent))
}

/// A request that an engine answers, for what its usage will tell.
struct Sent {
    gateway: Arc<Gateway>,
    kind: Kind,
    model: String,
    body: Bytes,
    tokens: Option<Vec<TokenId>>,
    timeline: Timeline,
    shadowed: Shadowed,
    sketch: Option<Sketch>,
    ttft_s: Option<f64>,
    request_id: Option<String>,
    answer_id: Option<String>,
}

/// Tells the request to the fleets that are played beside it, if there are any.
fn shadowed(
    call: &Call,
    tokens: Option<&[TokenId]>,
    salt: Option<&str>,
    user: Option<&str>,
) -> Shadowed {
    let Some(shadow) = &call.gateway.observers.shadow else {
        return Shadowed::default();
    };
    let arrived = Arrived {
        tokens,
        salt,
        session: call.session(user),
    };
    shadow.request(arrived, call.gateway.clock.now())
}

impl Sent {
    /// The answer is complete: compares what was thought with what the engine says.
    fn note(self, usage: Usage, reservation: &Reservation) {
        self.timeline.note(|facts| {
            facts.model = Some(self.model.clone());
            facts.replica = Some(reservation.replica());
            facts.prompt_tokens = usage.prompt_tokens;
            facts.cached_tokens = usage.cached_tokens;
            facts.output_tokens = usage.completion_tokens;
            facts.is_complete = true;
        });
        if let Some(cached) = usage.cached_tokens {
            reservation.note_cached(cached);
        }
        let answered = Answered {
            id: self.answer_id.as_deref(),
            request_id: self.request_id.as_deref(),
            model: &self.model,
            ttft_s: self.ttft_s,
        };
        reservation.explain(&answered, self.sketch);
        if let (Some(prompt), Some(cached)) = (usage.prompt_tokens, usage.cached_tokens) {
            self.shadowed.found(prompt, cached);
            let labels = [&self.model[..], reservation.replica_name()];
            let savings = &self.gateway.metrics.savings;
            savings.note_upstream(labels, prompt, cached);
        }
        let Some(tokens) = self.tokens else {
            return;
        };
        let due = Due {
            model: &self.model,
            replica: reservation.replica(),
            counts_differ: usage
                .prompt_tokens
                .is_some_and(|count| count != tokens.len()),
        };
        let (model, replica) = (self.model.clone(), reservation.replica());
        let (kind, body) = (self.kind, self.body);
        let comparison = || Comparison {
            model,
            replica,
            tokens,
            counted: usage.prompt_tokens,
            question: tokenize_question(kind, &body),
        };
        self.gateway.self_check(comparison, due);
    }
}

/// The same prompt as a question to the engine's `/tokenize`: of a request, what makes its tokens.
fn tokenize_question(kind: Kind, body: &[u8]) -> Value {
    let names = match kind {
        Kind::Chat => &[
            "model",
            "messages",
            "tools",
            "add_generation_prompt",
            "continue_final_message",
            "chat_template",
            "chat_template_kwargs",
        ][..],
        Kind::Text => &["model", "prompt", "add_special_tokens"][..],
        Kind::Messages | Kind::Responses => &[][..],
    };
    let fields: Value = serde_json::from_slice(body).unwrap_or_default();
    let fields = names.iter().filter_map(|&name| {
        let value = fields.get(name)?;
        Some((name.to_owned(), value.clone()))
    });
    Value::Object(fields.collect())
}

/// Gateways that a request may pass: more are a loop.
const HOPS: u32 = 4;

/// Notes in the headers that the request passed this gateway.
fn count_hop(headers: &mut HeaderMap) -> Result<(), ApiError> {
    let before = headers
        .get(HOPS_HEADER)
        .and_then(|value| value.to_str().ok());
    let hops = before
        .and_then(|text| text.parse::<u32>().ok())
        .unwrap_or(0)
        + 1;
    if hops > HOPS {
        let message = "the request passed too many gateways; does one name itself as upstream?";
        return Err(ApiError::new(
            StatusCode::LOOP_DETECTED,
            "loop_detected",
            message,
        ));
    }
    headers.insert(HOPS_HEADER, hops.into());
    Ok(())
}

/// The tokens that an engine makes of a chat: with its tools and template variables.
pub(super) fn chat_tokens(
    prompt: &PromptTokens,
    mut fields: Value,
    salt: Option<&str>,
) -> Option<Prompted> {
    let mut messages = fields.get_mut("messages")?.take();
    for message in messages.as_array_mut()? {
        // Whatever else a message holds (tool calls, no content) is the template's affair.
        if message["content"].is_array() {
            let text = request::flat_content(message["content"].take(), "content").ok()?;
            message["content"] = text.into();
        }
    }
    let tools = fields["tools"].as_array().filter(|tools| !tools.is_empty());
    let generation_prompt = match fields["add_generation_prompt"].as_bool() {
        Some(false) => GenerationPrompt::Omit,
        Some(true) | None => GenerationPrompt::Add,
    };
    let no_variables = serde_json::Map::new();
    let input = RenderInput {
        messages: &messages,
        tools: tools.map(|_| &fields["tools"]),
        generation_prompt,
        now_unix_s: unix_seconds() as i64,
        extra: fields["chat_template_kwargs"]
            .as_object()
            .unwrap_or(&no_variables),
    };
    prompt.chat(&input, salt).ok()
}

fn note_first_bytes(call: &Call, model: &str, proxied: &Proxied) -> Option<f64> {
    if proxied.head.status.is_success() {
        let labels = [model, proxied.reservation.replica_name()];
        let waited = call.gateway.clock.now().since(call.arrival).as_secs_f64();
        call.gateway
            .metrics
            .requests
            .ttft
            .with_label_values(&labels)
            .observe(waited);
        tracing::debug!(
            replica = labels[1],
            ttft_ms = waited * 1e3,
            "first bytes of an upstream's answer"
        );
        return Some(waited);
    }
    None
}

fn respond(call: &Call, proxied: Proxied, mut sent: Sent) -> Response {
    let Proxied {
        reservation,
        head,
        first,
        rest,
    } = proxied;
    let is_stream = is_event_stream(&head.headers);
    let replica = header_value(reservation.replica_name());
    let (whole, answer_id) = match is_stream {
        true => (Usage::default(), None),
        false => Usage::of_answer(&first),
    };
    sent.answer_id = answer_id;
    let cached = cached_tokens(&head.headers, whole);
    let mut response = if is_stream {
        let (writer, body) = body::channel(body::PIECES, &call.gateway.limits, call.closer.clone());
        let (gateway, header_count) = (call.gateway.clone(), cached);
        tokio::spawn(async move {
            // The reservation is held until the answer ends or the client is gone.
            let held = reservation;
            let mut scan = UsageScan::default();
            if copy(&gateway, first, rest, &writer, &mut scan)
                .await
                .is_ok()
            {
                sent.answer_id = scan.take_id();
                let usage = scan.found();
                let cached_tokens = usage.cached_tokens.or(header_count);
                sent.note(
                    Usage {
                        cached_tokens,
                        ..usage
                    },
                    &held,
                );
            }
        });
        Response::new(body)
    } else {
        if head.status.is_success() {
            sent.note(
                Usage {
                    cached_tokens: cached,
                    ..whole
                },
                &reservation,
            );
        }
        Response::new(Body::from(first))
    };
    *response.status_mut() = head.status;
    for name in [
        header::CONTENT_TYPE,
        header::RETRY_AFTER,
        header::CACHE_CONTROL,
        HeaderName::from_static(IMPORTANCE_HEADER),
    ] {
        if let Some(value) = head.headers.get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response.headers_mut().insert(REPLICA_HEADER, replica);
    if let Some(cached) = cached {
        response
            .headers_mut()
            .insert(CACHED_HEADER, header_value(&cached.to_string()));
    }
    response
}

/// What the engine says of its cache: in a header, or in the usage of a whole answer.
fn cached_tokens(headers: &HeaderMap, usage: Usage) -> Option<usize> {
    let told = headers
        .get(CACHED_HEADER)
        .and_then(|value| value.to_str().ok());
    told.and_then(|text| text.parse().ok())
        .or(usage.cached_tokens)
}

/// Copies a stream to the client; if the engine breaks off or falls silent, the client is told.
async fn copy(
    gateway: &Gateway,
    first: Bytes,
    mut rest: hyper::body::Incoming,
    writer: &Writer,
    scan: &mut UsageScan,
) -> Result<(), ClientGone> {
    scan.feed(&first);
    writer.send(first).await?;
    let limit = gateway.limits.silence_timeout;
    loop {
        let frame = tokio::select! {
            frame = tokio::time::timeout(limit, rest.frame()) => frame,
            () = writer.closed() => return Err(ClientGone),
        };
        let error = match frame {
            Ok(None) => return Ok(()),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    scan.feed(&data);
                    writer.send(data).await?;
                }
                continue;
            }
            Ok(Some(Err(_))) => ApiError::replica_gone(
                "the engine failed in the middle of the answer; send the request again",
            ),
            Err(_) => silent(limit),
        };
        // What came may have ended inside an event.
        writer.send(Bytes::from_static(b"\n\n")).await?;
        return writer.send(body::event(&error.body())).await;
    }
}

fn silent(limit: Duration) -> ApiError {
    let message = format!(
        "the engine sent nothing for {} s in the middle of the answer; send the request again, or \
         raise --upstream-silence",
        limit.as_secs_f64()
    );
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "upstream_timeout", message)
}
