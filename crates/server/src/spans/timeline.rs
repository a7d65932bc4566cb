//! When what happened to one request.

use std::sync::{Arc, Mutex, MutexGuard};

use headstart_core::{Nanos, ReplicaId};
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::propagation::TraceContextPropagator;

use super::Spans;
use crate::lock::lock;

/// Something that happened to a request, at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Its text became tokens.
    Tokenized,
    /// It has a replica.
    Routed,
    /// The part of its prompt that a lower tier held is loaded.
    Loaded,
    /// Its replica began to compute it.
    Started,
    /// Its first token, or an upstream's first bytes, came.
    FirstToken,
}

/// Number of marks.
const MARKS: usize = 5;

/// Facts about a request that are known at its end.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The model asked for.
    pub model: Option<String>,
    /// The replica that computed it.
    pub replica: Option<ReplicaId>,
    /// Prompt tokens.
    pub prompt_tokens: Option<usize>,
    /// Cached tokens among `prompt_tokens`.
    pub cached_tokens: Option<usize>,
    /// Tokens of the answer.
    pub output_tokens: Option<usize>,
    /// Whether the answer was given whole.
    pub is_complete: bool,
}

/// The times of one request; shared by all that have a hand in it, and sent when the last of them
/// drops it. Of a server without a collector it is empty and costs nothing.
#[derive(Clone, Debug, Default)]
pub struct RequestTimeline(Option<Arc<OpenTimeline>>);

#[derive(Debug)]
struct OpenTimeline {
    spans: Arc<Spans>,
    /// The request's own span.
    root: Context,
    arrival: Nanos,
    noted: Mutex<TimelineNotes>,
}

#[derive(Debug, Default)]
struct TimelineNotes {
    marks: [Option<Nanos>; MARKS],
    facts: Facts,
}

impl RequestTimeline {
    /// Of a request that arrived then, as part of the trace that its headers name, if they do.
    #[must_use]
    pub fn open(spans: Option<&Arc<Spans>>, headers: &HeaderMap, arrival: Nanos) -> Self {
        let Some(spans) = spans else {
            return Self::default();
        };
        let parent = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
        let span = spans
            .tracer
            .span_builder("request")
            .with_kind(SpanKind::Server)
            .with_start_time(spans.wall(arrival))
            .start_with_context(&spans.tracer, &parent);
        Self(Some(Arc::new(OpenTimeline {
            spans: spans.clone(),
            root: parent.with_span(span),
            arrival,
            noted: Mutex::default(),
        })))
    }

    /// Notes that something happened now. Of what happens again, the last time counts.
    pub fn mark(&self, mark: Mark) {
        if let Some(open) = &self.0 {
            let now = open.spans.now();
            open.noted().marks[mark as usize] = Some(now);
        }
    }

    /// Notes what is known.
    pub fn note(&self, note: impl FnOnce(&mut Facts)) {
        if let Some(open) = &self.0 {
            note(&mut open.noted().facts);
        }
    }

    /// Adds the trace's context to the headers of an outgoing request.
    pub fn pass_on(&self, headers: &mut HeaderMap) {
        if let Some(open) = &self.0 {
            let mut headers = HeadersMut(headers);
            TraceContextPropagator::new().inject_context(&open.root, &mut headers);
        }
    }
}

impl OpenTimeline {
    fn noted(&self) -> MutexGuard<'_, TimelineNotes> {
        lock(&self.noted)
    }
}

impl Drop for OpenTimeline {
    fn drop(&mut self) {
        let end = self.spans.now();
        let noted = std::mem::take(&mut *self.noted());
        for (name, from, to) in phases(self.arrival, &noted.marks, end) {
            let span = self
                .spans
                .tracer
                .span_builder(name)
                .with_start_time(self.spans.wall(from))
                .start_with_context(&self.spans.tracer, &self.root);
            Context::new().with_span(span).span().end_with_timestamp(self.spans.wall(to));
        }
        let root = self.root.span();
        root.set_attributes(attributes(&noted.facts));
        root.set_status(if noted.facts.is_complete {
            Status::Ok
        } else {
            Status::error("not answered in full")
        });
        root.end_with_timestamp(self.spans.wall(end));
    }
}

/// The phases that a request came to, with their beginnings and ends.
fn phases(
    arrival: Nanos,
    marks: &[Option<Nanos>; MARKS],
    end: Nanos,
) -> Vec<(&'static str, Nanos, Nanos)> {
    let at = |mark: Mark| marks[mark as usize];
    let chain = [
        ("prompt", at(Mark::Tokenized)),
        ("route", at(Mark::Routed)),
        ("queue", at(Mark::Started)),
        ("prefill", at(Mark::FirstToken)),
    ];
    let mut phases = Vec::new();
    let mut from = arrival;
    for (name, to) in chain {
        // After a retry, a mark of the first attempt may lie before the phase begins.
        if let Some(to) = to.filter(|&to| to >= from) {
            phases.push((name, from, to));
            from = to;
        }
    }
    if at(Mark::FirstToken).is_some() {
        phases.push(("decode", from, end));
    }
    if let (Some(routed), Some(loaded)) = (at(Mark::Routed), at(Mark::Loaded)) {
        phases.push(("load", routed, loaded.max(routed)));
    }
    phases
}

/// By the names of OpenTelemetry's conventions for generative AI, where there are some.
fn attributes(facts: &Facts) -> Vec<KeyValue> {
    let count = |name: &'static str, count: Option<usize>| {
        count.map(|count| KeyValue::new(name, i64::try_from(count).unwrap_or(i64::MAX)))
    };
    let model = facts.model.clone();
    let all = [
        model.map(|model| KeyValue::new("gen_ai.request.model", model)),
        count("gen_ai.usage.input_tokens", facts.prompt_tokens),
        count("gen_ai.usage.cache_read.input_tokens", facts.cached_tokens),
        count("gen_ai.usage.output_tokens", facts.output_tokens),
        facts.replica.map(|replica| KeyValue::new("headstart.replica", i64::from(replica.0))),
    ];
    all.into_iter().flatten().collect()
}

struct HeaderExtractor<'a>(&'a HeaderMap);

impl Extractor for HeaderExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

struct HeadersMut<'a>(&'a mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        let name = HeaderName::try_from(key);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(marks: &[(Mark, u64)], end: u64, expected: &[(&str, u64, u64)]) {
        let mut at = [None; MARKS];
        for &(mark, time) in marks {
            at[mark as usize] = Some(Nanos(time));
        }
        let told: Vec<_> = phases(Nanos(10), &at, Nanos(end))
            .into_iter()
            .map(|(name, from, to)| (name, from.0, to.0))
            .collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn phases_are_what_was_marked() {
        let all = [
            (Mark::Tokenized, 20),
            (Mark::Routed, 30),
            (Mark::Started, 50),
            (Mark::Loaded, 45),
            (Mark::FirstToken, 80),
        ];
        let expected = [
            ("prompt", 10, 20),
            ("route", 20, 30),
            ("queue", 30, 50),
            ("prefill", 50, 80),
            ("decode", 80, 99),
            ("load", 30, 45),
        ];
        check(&all, 99, &expected);
    }

    #[test]
    fn an_upstreams_prefill_begins_where_it_was_routed() {
        let marks = [(Mark::Tokenized, 20), (Mark::Routed, 30), (Mark::FirstToken, 80)];
        let expected =
            [("prompt", 10, 20), ("route", 20, 30), ("prefill", 30, 80), ("decode", 80, 99)];
        check(&marks, 99, &expected);
    }

    #[test]
    fn a_request_that_was_refused_has_what_it_came_to() {
        check(&[], 99, &[]);
        check(&[(Mark::Tokenized, 20)], 99, &[("prompt", 10, 20)]);
    }

    #[test]
    fn without_a_collector_nothing_is_noted() {
        let timeline = RequestTimeline::open(None, &HeaderMap::new(), Nanos(1));
        timeline.mark(Mark::Routed);
        let mut headers = HeaderMap::new();
        timeline.pass_on(&mut headers);
        assert!(headers.is_empty() && timeline.0.is_none());
    }
}
