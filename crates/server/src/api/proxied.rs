//! Requests with a prompt, placed on upstream engines.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use headstart_core::block::Namespace;
use headstart_core::{FinishKind, TokenId};
use headstart_prompt::NoExactTokens;
use headstart_router::RouteRequest;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use prometheus::IntCounterVec;

use super::call::CompletionCall;
use super::engine_hints::with_hints;
use super::headers;
use super::respond::respond;
use super::routed::{self, RouteFields};
use super::session::SessionKeys;
use super::usage::EngineUsage;
use crate::gateway::{
    Comparison, KnownPrompt, Lack, Passing, Pin, ProxyAnswer, Reservation, ToRender, UsageGap,
    is_event_stream,
};
use crate::insight::{AnswerFacts, CountedPrompt};
use crate::openai::ApiError;
use crate::openai::response::ApiKind;
use crate::prompt_tokens::TokenizedPrompt;
use crate::request_shape::RequestShape;
use crate::shadow::{ShadowArrival, ShadowGuard};
use crate::spans::Mark;
use crate::upstream::{HOPS_HEADER, Outgoing};

/// Answers a call.
pub(super) async fn answer(call: CompletionCall, body: Bytes) -> Result<Response, ApiError> {
    let call = Arc::new(call);
    let RouteFields { model, salt, keys, messages } = RouteFields::parse(&body)?;
    let pin = pinned(&call, &keys).await;
    let session = call.session(keys.first(pin.as_ref()));
    let known = known_prompt(&call, &model, salt.as_deref(), &body).await;
    call.timeline.mark(Mark::Tokenized);
    // Shadow fleets do not tell media apart.
    let shadow_tokens = known.exact().filter(|_| known.media.is_empty());
    let shadowed = shadowed(&call, shadow_tokens, salt.as_deref(), session);
    // Only validated here: the header passes on to an engine, which may load in part or not.
    call.is_exact()?;
    let headers = engine_headers(&call)?;
    // Added behind all reading, so that the client's own request is counted and explained.
    let has_hints = call.gateway.has_engine_hints;
    let outgoing = if has_hints { with_hints(&body, call.kind, session) } else { body.clone() };
    let passing = Passing {
        request: Outgoing {
            method: &Method::POST,
            path: call.target.as_str(),
            headers: &headers,
            body: outgoing,
        },
        model: Some(&model),
        pinned: pin.as_ref().map(|pin| pin.replica),
        route: RouteRequest {
            tokens: known.tokens.as_deref(),
            media: &known.media,
            text: known.text.as_deref(),
            messages: &messages,
            namespace: Namespace { salt: salt.as_deref(), ..Namespace::default() },
            session,
            slo_ttft: call.slo_ttft()?,
            ..RouteRequest::default()
        },
        timeline: &call.timeline,
    };
    let proxied = call.gateway.pass_on(&passing).await?;
    let ttft_s = note_first_bytes(&call, &model, &proxied);
    if proxied.head.status.is_success() {
        shadowed.began(call.gateway.clock.now());
    }
    let sent = ForwardedRequest {
        call: call.clone(),
        model,
        salt,
        body,
        known,
        shadowed,
        ttft_s,
        answer_id: None,
        previous: keys.previous_response_id,
    };
    Ok(respond(&call, proxied, sent))
}

/// Returns the request's prompt as far as it is known: its tokens, or its text.
async fn known_prompt(
    call: &CompletionCall,
    model: &str,
    salt: Option<&str>,
    body: &Bytes,
) -> KnownPrompt {
    let gateway = &call.gateway;
    let path = call.target.as_str();
    let Some(prompt) = gateway.prompt_tokens() else {
        let lack = Lack::NoTokenizer;
        let request = ToRender { path, body, has_media: false };
        return gateway.prompt_without_tokens(lack, model, &request, None).await;
    };
    let dialect = gateway.dialect(model);
    let made = routed::tokens(prompt, dialect, call.kind, salt, body).await;
    let request =
        ToRender { path, body, has_media: matches!(made, Err(NoExactTokens::Media { .. })) };
    let shape = RequestShape::of(call.kind, body);
    // The tokens of this shape once differed from an engine's. Its own are used until both agree.
    if gateway.drift.differs(model, shape) {
        let lack = Lack::Differs;
        let known = gateway.prompt_without_tokens(lack, model, &request, None).await;
        // The comparison costs nothing here, and notices a template that was corrected.
        if let Ok(made) = made
            && known.exact() == Some(&made.tokens)
        {
            gateway.drift.mend(model, shape);
        }
        return known;
    }
    let why = match made {
        Ok(TokenizedPrompt { tokens, sketch }) => {
            return KnownPrompt {
                tokens: Some(tokens),
                sketch,
                is_ours: true,
                ..KnownPrompt::default()
            };
        }
        Err(why) => why,
    };
    let before = match &why {
        NoExactTokens::Media { before } => prompt.before_medium(before, salt),
        _ => None,
    };
    let lack = Lack::Prompt(why);
    gateway.prompt_without_tokens(lack, model, &request, before).await
}

/// Finds the replica that holds the response this request continues.
async fn pinned(call: &CompletionCall, keys: &SessionKeys) -> Option<Pin> {
    let previous = keys.previous_response_id.as_deref()?;
    if call.kind != ApiKind::Responses {
        return None;
    }
    let headers = headers::to_engine(&call.gateway, &call.headers);
    call.gateway.holder(previous, &headers).await
}

/// The headers that an engine gets with a prompt: its answer is read, so that it must come as it
/// is.
fn engine_headers(call: &CompletionCall) -> Result<HeaderMap, ApiError> {
    let mut headers = headers::to_engine(&call.gateway, &call.headers);
    headers.remove(header::ACCEPT_ENCODING);
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    count_hop(&mut headers)?;
    call.timeline.pass_on(&mut headers);
    Ok(headers)
}

/// A request that an engine answers, for what its usage will tell.
pub(super) struct ForwardedRequest {
    pub(super) call: Arc<CompletionCall>,
    model: String,
    salt: Option<String>,
    body: Bytes,
    known: KnownPrompt,
    shadowed: ShadowGuard,
    ttft_s: Option<f64>,
    answer_id: Option<String>,
    /// The response that this one continues.
    previous: Option<String>,
}

/// Tells the request to the fleets that are played beside it, if there are any.
fn shadowed(
    call: &CompletionCall,
    tokens: Option<&[TokenId]>,
    salt: Option<&str>,
    session: Option<&str>,
) -> ShadowGuard {
    let Some(shadow) = &call.gateway.observers.shadow else {
        return ShadowGuard::default();
    };
    let arrived = ShadowArrival { tokens, salt, session };
    shadow.request(arrived, call.gateway.clock.now())
}

impl ForwardedRequest {
    /// The answer has this id: by it, a client finds a stored response on its replica again.
    pub(super) fn note_id(&mut self, id: Option<&str>, reservation: &Reservation) {
        // Every event of a stream may have the id. The first one is enough.
        let Some(id) = id.filter(|_| self.answer_id.is_none()) else {
            return;
        };
        self.answer_id = Some(id.to_owned());
        if self.call.kind == ApiKind::Responses {
            let previous = self.previous.as_deref();
            self.call.gateway.pins.learn(id, previous, reservation.replica());
        }
    }

    /// The answer is complete: compares what was thought with what the engine says.
    pub(super) fn note(self, usage: EngineUsage, reservation: &Reservation) {
        self.call.timeline.note(|facts| {
            facts.model = Some(self.model.clone());
            facts.replica = Some(reservation.replica());
            facts.prompt_tokens = usage.prompt_tokens;
            facts.cached_tokens = usage.cached_tokens;
            facts.output_tokens = usage.completion_tokens;
            facts.is_complete = true;
        });
        // Before the explanation, which takes the ticket.
        if let Some(cached) = usage.cached_tokens {
            reservation.note_cached(cached);
        }
        let answered = AnswerFacts {
            id: self.answer_id.as_deref(),
            request_id: self.call.request_id(),
            model: &self.model,
            ttft_s: self.ttft_s,
        };
        match (self.known.exact(), &self.call.gateway.observers.insight) {
            (None, Some(insight)) => {
                // An explanation needs the length of the prompt, which only the engine knows here.
                if let Some(prompt_tokens) = usage.prompt_tokens {
                    let counted =
                        CountedPrompt { prompt_tokens, cached_tokens: usage.cached_tokens };
                    let salt = self.salt.as_deref();
                    let sketch = self.known.sketch.clone();
                    let replica = reservation.replica();
                    insight.finish_unknown(replica, counted, salt, &answered, sketch);
                }
            }
            _ => reservation.explain(&answered, self.known.sketch.clone()),
        }
        if let (Some(prompt), Some(cached)) = (usage.prompt_tokens, usage.cached_tokens) {
            self.shadowed.found(prompt, cached);
            let labels = [&self.model[..], reservation.replica_name()];
            let savings = &self.call.gateway.metrics.savings;
            savings.note_upstream(labels, prompt, cached);
            savings.note_created(labels, usage.created_tokens);
        }
        if usage.finish != FinishKind::Unknown {
            let labels = [&self.model[..], reservation.replica_name(), usage.finish.name()];
            self.call.gateway.metrics.requests.successes.with_label_values(&labels).inc();
        }
        self.note_counts(usage, reservation);
        self.check_tokens(usage, reservation);
    }

    /// Counts tokens, and what the engine does not say.
    fn note_counts(&self, usage: EngineUsage, reservation: &Reservation) {
        let labels = [&self.model[..], reservation.replica_name()];
        let requests = &self.call.gateway.metrics.requests;
        let count = |counter: &IntCounterVec, tokens: Option<usize>| {
            let tokens = tokens.unwrap_or(0) as u64;
            counter.with_label_values(&labels).inc_by(tokens);
        };
        count(&requests.prompt_tokens, usage.prompt_tokens);
        count(&requests.generation_tokens, usage.completion_tokens);
        let gap = match (usage.prompt_tokens, usage.cached_tokens) {
            (None, _) => UsageGap::All,
            (Some(_), None) => UsageGap::Cached,
            (Some(_), Some(_)) => return,
        };
        self.call.gateway.usage_gaps.note(reservation.replica(), gap);
    }

    /// Compares the prompt's tokens with the engine's, where they were made here, or were given up
    /// because they differed once.
    fn check_tokens(self, usage: EngineUsage, reservation: &Reservation) {
        let Some(tokens) = self.known.tokens.filter(|_| self.known.is_ours) else {
            return;
        };
        let counts_differ = (usage.prompt_tokens).is_some_and(|count| count != tokens.len());
        let shape = RequestShape::of(self.call.kind, &self.body);
        let subject = (self.model, reservation.replica(), shape);
        self.call.gateway.self_check(subject, counts_differ, || Comparison {
            tokens,
            counted: usage.prompt_tokens,
            path: self.call.target.clone(),
            body: self.body,
        });
    }
}

/// Gateways that a request may pass: more are a loop.
const HOPS: u32 = 4;

/// Notes in the headers that the request passed this gateway.
pub(super) fn count_hop(headers: &mut HeaderMap) -> Result<(), ApiError> {
    let number = |value: &HeaderValue| value.to_str().ok()?.parse::<u32>().ok();
    // Gateways write small numbers. A value that cannot be read counts as too many hops: as none,
    // it would reset the count in a loop through a proxy that spoils it.
    let before = headers.get(HOPS_HEADER).map(|value| number(value).unwrap_or(u32::MAX));
    let hops = before.unwrap_or(0).saturating_add(1);
    if hops > HOPS {
        let message = "the request passed too many gateways; does one name itself as upstream?";
        return Err(ApiError::new(StatusCode::LOOP_DETECTED, "loop_detected", message));
    }
    headers.insert(HOPS_HEADER, hops.into());
    Ok(())
}

/// Notes when the first token came. An answer that is no stream comes whole, with its last token.
fn note_first_bytes(call: &CompletionCall, model: &str, proxied: &ProxyAnswer) -> Option<f64> {
    if proxied.head.status.is_success() && is_event_stream(&proxied.head.headers) {
        let labels = [model, proxied.reservation.replica_name()];
        let waited = call.gateway.clock.now().since(call.arrival).as_secs_f64();
        call.gateway.metrics.requests.ttft.with_label_values(&labels).observe(waited);
        tracing::debug!(
            replica = labels[1],
            ttft_ms = waited * 1e3,
            "first bytes of an upstream's answer"
        );
        return Some(waited);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_are_counted_and_no_value_resets_the_count() {
        let check = |before: Option<&[u8]>, after: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(before) = before {
                headers.insert(HOPS_HEADER, HeaderValue::from_bytes(before).expect("a value"));
            }
            let told = count_hop(&mut headers).ok().map(|()| headers[HOPS_HEADER].to_str());
            assert_eq!(told.map(|text| text.expect("a number")), after, "{before:?}");
        };
        check(None, Some("1"));
        check(Some(b"0"), Some("1"));
        check(Some(b"3"), Some("4"));
        for many in [&b"4"[..], b"4294967295", b"4294967296", b"-1", b"", b"1, 1", b"x", b"\xff"] {
            check(Some(many), None);
        }
    }
}
