//! Spans as a collector receives them: OTLP over HTTP, from a server and from a gateway before it.

use crate::support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use headstart_server::{ServeConfig, UpstreamConfig};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use prost::Message;
use serde_json::json;
use support::{chat, embedded, exchange, proxy, request, start, text, toy_tokenizer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A collector that keeps what it is sent.
struct Collector {
    address: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let spans = Arc::new(Mutex::new(Vec::new()));
        let kept = spans.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(take(socket, kept.clone()));
            }
        });
        Self { address, spans }
    }

    fn spans(&self) -> Vec<Span> {
        self.spans.lock().expect("no panic").clone()
    }
}

/// Takes the exports of one connection.
async fn take(mut socket: TcpStream, kept: Arc<Mutex<Vec<Span>>>) {
    let mut raw = Vec::new();
    loop {
        let end = raw.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else {
            if socket.read_buf(&mut raw).await.unwrap_or(0) == 0 {
                return;
            }
            continue;
        };
        let head = String::from_utf8_lossy(&raw[..end]).to_lowercase();
        assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
        let length = head.split("content-length: ").nth(1).expect("a length");
        let length: usize = length.lines().next().unwrap_or("").parse().expect("a number");
        while raw.len() < end + 4 + length {
            assert!(socket.read_buf(&mut raw).await.expect("reads") > 0);
        }
        let body: Vec<u8> = raw.drain(..end + 4 + length).skip(end + 4).collect();
        let export = ExportTraceServiceRequest::decode(&body[..]).expect("an export");
        let scopes = export.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        kept.lock().expect("no panic").extend(scopes.flat_map(|scope| scope.spans));
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n\
                      content-length: 0\r\n\r\n";
        if socket.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn named<'a>(spans: &'a [Span], trace: &[u8]) -> BTreeMap<&'a str, &'a Span> {
    let of_trace = spans.iter().filter(|span| span.trace_id == trace);
    of_trace.map(|span| (&span.name[..], span)).collect()
}

fn number(span: &Span, name: &str) -> Option<i64> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::IntValue(number) => Some(*number),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_told_phase_by_phase() {
    let collector = Collector::start().await;
    let server =
        start(ServeConfig { otlp: Some(collector.address.clone()), ..embedded(1, 256) }).await;
    let question = json!({
        "model": "toy", "max_tokens": 5, "ignore_eos": true,
        "messages": [{"role": "user", "content": text(100, 1)}],
    });
    for _ in 0..2 {
        assert_eq!(chat(&server, &question).await.status, 200);
    }
    let wrong = json!({"model": "toy", "messages": "none"});
    assert_eq!(chat(&server, &wrong).await.status, 400);
    server.shutdown().await;

    let spans = collector.spans();
    let roots: Vec<_> = spans.iter().filter(|span| span.name == "request").collect();
    assert_eq!(roots.len(), 3, "one per request: {spans:?}");
    for (root, cached) in roots.iter().zip([false, true]) {
        let all = named(&spans, &root.trace_id);
        for (before, after) in [("prompt", "route"), ("route", "queue"), ("queue", "prefill")] {
            let (before, after) = (all[before], all[after]);
            assert_eq!(before.end_time_unix_nano, after.start_time_unix_nano);
            assert_eq!(before.parent_span_id, root.span_id);
        }
        assert_eq!(all["prompt"].start_time_unix_nano, root.start_time_unix_nano);
        assert_eq!(all["decode"].end_time_unix_nano, root.end_time_unix_nano);
        assert!(!all.contains_key("load"), "nothing was loaded");
        let prompt = number(root, "gen_ai.usage.input_tokens").expect("a count");
        let found = number(root, "gen_ai.usage.cache_read.input_tokens").expect("a count");
        assert!(prompt > 100 && (found > 0) == cached, "{found} of {prompt}");
        assert_eq!(number(root, "gen_ai.usage.output_tokens"), Some(5));
        let status = root.status.as_ref().expect("a status");
        assert_eq!(status.code, StatusCode::Ok as i32);
        let told = format!("{root:?}");
        assert!(!told.contains("value list"), "text in a span: {told}");
    }
    let refused = roots[2].status.as_ref().expect("a status");
    assert_eq!(refused.code, StatusCode::Error as i32);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_and_its_engine_are_one_trace() {
    let collector = Collector::start().await;
    let otlp = Some(collector.address.clone());
    let engine = start(ServeConfig { otlp: otlp.clone(), ..embedded(1, 256) }).await;
    let upstream = UpstreamConfig {
        url: format!("http://{}", engine.address()),
        kv_events: None,
        kv_replay: None,
        data_parallel_size: 1,
        tokenizer: Some(toy_tokenizer()),
    };
    let gateway = start(ServeConfig { otlp, ..proxy(vec![upstream]) }).await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let headers = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01\r\n");
    let body = json!({
        "model": "toy", "max_tokens": 3, "stream": true,
        "messages": [{"role": "user", "content": "Hello"}],
    });
    let raw = request("POST", "/v1/chat/completions", &headers, &body.to_string());
    assert_eq!(exchange(&gateway, &raw).await.status, 200);
    gateway.shutdown().await;
    engine.shutdown().await;

    let spans = collector.spans();
    let trace: Vec<u8> = (0..16)
        .map(|at| u8::from_str_radix(&trace[2 * at..2 * at + 2], 16).expect("hex"))
        .collect();
    let roots: Vec<_> = spans.iter().filter(|span| span.name == "request").collect();
    assert_eq!(roots.len(), 2, "{roots:?}");
    assert!(roots.iter().all(|root| root.trace_id == trace));
    let (outer, inner) = if roots[0].parent_span_id == roots[1].span_id {
        (roots[1], roots[0])
    } else {
        (roots[0], roots[1])
    };
    assert_eq!(inner.parent_span_id, outer.span_id, "the engine's is the gateway's child");
    let of_gateway: Vec<_> = spans
        .iter()
        .filter(|span| span.parent_span_id == outer.span_id && span.name != "request")
        .map(|span| &span.name[..])
        .collect();
    assert_eq!(of_gateway, ["prompt", "route", "prefill", "decode"]);
}

#[tokio::test]
async fn an_address_that_is_none_is_refused() {
    let config = ServeConfig { otlp: Some("collector:4317".to_owned()), ..embedded(1, 64) };
    let Err(error) = headstart_server::serve(config).await else {
        panic!("started with a wrong address");
    };
    assert!(error.to_string().contains("--otlp collector:4317"), "{error}");
}
