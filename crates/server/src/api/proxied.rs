//! Requests with a prompt, placed on upstream engines.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use headstart_core::TokenId;
use headstart_insight::text::Sketch;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::Value;

use super::respond::respond;
use super::routed::{self, Routed};
use super::session::SessionKeys;
use super::usage::Usage;
use super::{Call, headers};
use crate::gateway::is_event_stream;
use crate::gateway::{Comparison, Due, Gateway, Passing, Pin, Proxied, Reservation};
use crate::insight::Answered;
use crate::openai::ApiError;
use crate::openai::response::Kind;
use crate::shadow::{Arrived, Shadowed};
use crate::spans::{Mark, Timeline};
use crate::upstream::{HOPS_HEADER, Outgoing};

/// Answers a call.
pub(super) async fn answer(call: Call, body: Bytes) -> Result<Response, ApiError> {
    let Routed { model, salt, keys } = Routed::parse(&body)?;
    let pin = pinned(&call, &keys);
    let session = call.session(keys.first(pin.as_ref()));
    let prompt = call.gateway.prompt_tokens();
    let prompted = routed::tokens(prompt, call.kind, salt.as_deref(), &body).await;
    let (tokens, sketch) = prompted.map_or((None, None), |it| (Some(it.tokens), it.sketch));
    call.timeline.mark(Mark::Tokenized);
    let shadowed = shadowed(&call, tokens.as_deref(), salt.as_deref(), session);
    // What it says goes on to an engine, which may load in part or not.
    call.is_exact()?;
    let headers = engine_headers(&call)?;
    let passing = Passing {
        request: Outgoing {
            method: &Method::POST,
            path: call.target.as_str(),
            headers: &headers,
            body,
        },
        model: Some(&model),
        pinned: pin.as_ref().map(|pin| pin.replica),
        salt: salt.as_deref(),
        session,
        slo_ttft: call.slo_ttft()?,
        tokens: tokens.as_deref(),
        timeline: &call.timeline,
    };
    let proxied = call.gateway.pass_on(&passing).await?;
    let ttft_s = note_first_bytes(&call, &model, &proxied);
    if proxied.head.status.is_success() {
        shadowed.began(call.gateway.clock.now());
    }
    let body = passing.request.body.clone();
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
        previous: keys.previous_response_id,
    };
    Ok(respond(&call, proxied, sent))
}

/// Where the response is that this request continues.
fn pinned(call: &Call, keys: &SessionKeys) -> Option<Pin> {
    let previous = keys.previous_response_id.as_deref()?;
    let pin = (call.kind == Kind::Responses).then(|| call.gateway.pins.find(previous));
    pin.flatten()
}

/// The headers that an engine gets with a prompt: its answer is read, so that it must come as it
/// is.
fn engine_headers(call: &Call) -> Result<HeaderMap, ApiError> {
    let mut headers = headers::to_engine(&call.gateway, &call.headers);
    headers.remove(header::ACCEPT_ENCODING);
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    count_hop(&mut headers)?;
    call.timeline.pass_on(&mut headers);
    Ok(headers)
}

/// A request that an engine answers, for what its usage will tell.
pub(super) struct Sent {
    gateway: Arc<Gateway>,
    pub(super) kind: Kind,
    model: String,
    body: Bytes,
    tokens: Option<Vec<TokenId>>,
    timeline: Timeline,
    shadowed: Shadowed,
    sketch: Option<Sketch>,
    ttft_s: Option<f64>,
    request_id: Option<String>,
    answer_id: Option<String>,
    /// The response that this one continues.
    previous: Option<String>,
}

/// Tells the request to the fleets that are played beside it, if there are any.
fn shadowed(
    call: &Call,
    tokens: Option<&[TokenId]>,
    salt: Option<&str>,
    session: Option<&str>,
) -> Shadowed {
    let Some(shadow) = &call.gateway.observers.shadow else {
        return Shadowed::default();
    };
    let arrived = Arrived {
        tokens,
        salt,
        session,
    };
    shadow.request(arrived, call.gateway.clock.now())
}

impl Sent {
    /// The answer has this id: by it, a client finds a stored response on its replica again.
    pub(super) fn note_id(&mut self, id: Option<&str>, reservation: &Reservation) {
        let Some(id) = id.filter(|_| self.answer_id.is_none()) else {
            return;
        };
        self.answer_id = Some(id.to_owned());
        if self.kind == Kind::Responses {
            let previous = self.previous.as_deref();
            self.gateway.pins.learn(id, previous, reservation.replica());
        }
    }

    /// The answer is complete: compares what was thought with what the engine says.
    pub(super) fn note(self, usage: Usage, reservation: &Reservation) {
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
            savings.note_created(labels, usage.created_tokens);
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
pub(super) fn count_hop(headers: &mut HeaderMap) -> Result<(), ApiError> {
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
