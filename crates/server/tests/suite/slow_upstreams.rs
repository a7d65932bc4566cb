//! Engines that take a request and do not answer it: every wait ends, elsewhere if possible and
//! with an error that says what to do if not. And prompts that engines refuse.

use crate::support;

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::{StreamExt, stream};
use headstart_core::ReplicaId;
use headstart_server::{RunningServer, UpstreamConfig};
use http::{StatusCode, header};
use serde_json::{Value, json};
use support::{Answer, PATIENCE, eventually, proxy, start};
use tokio::task::JoinHandle;

/// Reaction of an engine to a request.
#[derive(Clone, Copy)]
enum Does {
    Answers,
    /// Takes it and says nothing, as a stopped process does.
    Freezes,
    /// Sends the head of an answer only.
    FreezesAfterHead,
    /// Begins a stream.
    FreezesInStream,
    /// Sends the head of an answer and closes the connection.
    BreaksOff,
    /// Closes the connection before any answer, this number of times.
    Closes(usize),
    Refuses,
    /// Sends the head of a refusal, and its words never.
    FreezesInRefusal,
}

struct Script {
    does: Does,
    health: StatusCode,
}

struct Seen {
    script: Mutex<Script>,
    requests: AtomicUsize,
}

/// An engine that follows its script; gone when dropped.
struct Engine {
    url: String,
    seen: Arc<Seen>,
    server: JoinHandle<()>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Tokens that the engines say they take.
const CONTEXT: usize = 40;

impl Engine {
    async fn start(does: Does) -> Self {
        let health = StatusCode::OK;
        let seen = Arc::new(Seen {
            script: Mutex::new(Script { does, health }),
            requests: AtomicUsize::new(0),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let router = axum::Router::new()
            .route("/health", get(health_of))
            .route("/v1/models", get(models))
            .route("/v1/completions", post(complete))
            .with_state(seen.clone());
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("it serves");
        });
        Self { url, seen, server }
    }

    fn is_ill(&self) {
        let mut script = self.seen.script.lock().expect("no panic");
        script.health = StatusCode::INTERNAL_SERVER_ERROR;
    }

    fn requests(&self) -> usize {
        self.seen.requests.load(SeqCst)
    }

    fn upstream(&self) -> UpstreamConfig {
        UpstreamConfig {
            url: self.url.clone(),
            kv_events: None,
            kv_replay: None,
            data_parallel_size: 1,
            tokenizer: Some(support::toy_tokenizer()),
        }
    }
}

async fn health_of(State(seen): State<Arc<Seen>>) -> StatusCode {
    seen.script.lock().expect("no panic").health
}

async fn models() -> Json<Value> {
    Json(json!({"data": [{"id": "m", "max_model_len": CONTEXT}]}))
}

async fn complete(State(seen): State<Arc<Seen>>) -> Response {
    let earlier = seen.requests.fetch_add(1, SeqCst);
    let does = seen.script.lock().expect("no panic").does;
    let begun = |first: &'static str, kind: &'static str| {
        let first = Ok::<_, Infallible>(Bytes::from(first));
        let begun = stream::iter([first].into_iter().filter(|first| first != &Ok(Bytes::new())));
        let body = Body::from_stream(begun.chain(stream::pending()));
        ([(header::CONTENT_TYPE, kind)], body).into_response()
    };
    match does {
        // An unwinding task takes its connection with it.
        Does::Closes(times) if earlier < times => std::panic::resume_unwind(Box::new("closed")),
        Does::Answers | Does::Closes(_) => {
            Json(json!({"choices": [{"text": "x"}]})).into_response()
        }
        Does::Freezes => std::future::pending().await,
        Does::FreezesAfterHead => begun("", "application/json"),
        Does::FreezesInStream => begun("data: {\"first\": 1}\n\n", "text/event-stream"),
        Does::BreaksOff => {
            let broken = stream::iter([Err::<Bytes, _>(std::io::Error::other("gone"))]);
            let kind = [(header::CONTENT_TYPE, "text/event-stream")];
            (kind, Body::from_stream(broken)).into_response()
        }
        Does::FreezesInRefusal => {
            let answer = begun("", "application/json");
            (StatusCode::SERVICE_UNAVAILABLE, answer).into_response()
        }
        Does::Refuses => {
            let error = json!({"error": {"message": "no", "code": "refused"}});
            (StatusCode::BAD_REQUEST, Json(error)).into_response()
        }
    }
}

/// A gateway that looks at its engines' health all the time.
async fn gateway(engines: &[&Engine], first: Duration, silence: Duration) -> RunningServer {
    let upstreams = engines.iter().map(|engine| engine.upstream());
    let mut config = proxy(upstreams.collect());
    config.limits.health_interval = Duration::from_millis(20);
    config.limits.first_token_timeout = first;
    config.limits.silence_timeout = silence;
    start(config).await
}

/// Prompts of different lengths share no prefix: no replica is home to the other's conversation.
async fn ask(gateway: &RunningServer, num_tokens: usize) -> Answer {
    let body = json!({"model": "m", "prompt": vec![num_tokens; num_tokens], "max_tokens": 1});
    support::post(gateway, "/v1/completions", &body).await
}

const SHORT: Duration = Duration::from_millis(200);

/// Both engines are frozen at first: which one is asked does not matter.
#[tokio::test]
async fn a_request_leaves_an_engine_that_is_found_dead() {
    for does in [Does::Freezes, Does::FreezesAfterHead] {
        let engines = [Engine::start(does).await, Engine::start(Does::Answers).await];
        let gateway = gateway(&[&engines[0], &engines[1]], PATIENCE, PATIENCE).await;
        let (first, second, ()) = tokio::join!(ask(&gateway, 20), ask(&gateway, 30), async {
            // Equal replicas take turns: one of the two is stuck.
            eventually("a stuck request", || engines[0].requests() == 1).await;
            engines[0].is_ill();
        });
        for answer in [first, second] {
            let replica = answer.header("x-headstart-replica");
            assert_eq!((answer.status, replica), (200, Some("1")), "{answer:?}");
        }
        let metrics = support::get(&gateway, "/metrics").await.body;
        let retried = "headstart_retries_total{replica=\"1\"} 1";
        assert!(metrics.contains(retried), "{metrics}");
        eventually("no reservation", || gateway.gateway().router().stats().reservations == 0).await;
        gateway.shutdown().await;
    }
}

/// Sends one request to a gateway of `num_breaking` engines that break off and, with `answers`, one
/// that answers. Returns the status, and the number of requests that broke off.
async fn among_breaking(num_breaking: usize, answers: bool) -> (u16, usize) {
    let mut engines = Vec::new();
    for _ in 0..num_breaking {
        engines.push(Engine::start(Does::BreaksOff).await);
    }
    let breaking = engines.len();
    if answers {
        engines.push(Engine::start(Does::Answers).await);
    }
    let all: Vec<&Engine> = engines.iter().collect();
    let gateway = gateway(&all, PATIENCE, PATIENCE).await;
    let answer = ask(&gateway, 20).await;
    gateway.shutdown().await;
    let asked = engines[..breaking].iter().map(Engine::requests).sum();
    (answer.status, asked)
}

/// An engine that says why it refuses, and never ends, costs a second and not the answer.
#[tokio::test]
async fn the_words_of_a_refusal_are_not_waited_for() {
    let refusing = Engine::start(Does::FreezesInRefusal).await;
    let answering = Engine::start(Does::Answers).await;
    let both = gateway(&[&refusing, &answering], PATIENCE, PATIENCE).await;
    for num_tokens in [20, 30] {
        assert_eq!(ask(&both, num_tokens).await.status, 200);
    }
    assert_eq!(refusing.requests(), 1, "equal replicas take turns");
    both.shutdown().await;
    let alone = gateway(&[&refusing], PATIENCE, PATIENCE).await;
    let answer = ask(&alone, 20).await;
    let said = (answer.status, &answer.error_code()[..]);
    assert_eq!(said, (503, "replica_gone"), "the gateway says it: {answer:?}");
    alone.shutdown().await;
}

#[tokio::test]
async fn a_request_outlives_several_engines() {
    // Whom it meets first is not said; with three it cannot end without an answer.
    for _ in 0..4 {
        let (status, broken) = among_breaking(3, true).await;
        assert_eq!(status, 200, "after {broken}");
        assert!(broken <= 3);
    }
}

/// An engine may close an idle connection when the gateway uses it again.
#[tokio::test]
async fn a_request_whose_connection_was_closed_goes_to_the_same_engine_once_more() {
    let engine = Engine::start(Does::Closes(1)).await;
    let alone = gateway(&[&engine], PATIENCE, PATIENCE).await;
    assert_eq!(ask(&alone, 20).await.status, 200);
    assert_eq!(engine.requests(), 2);
    alone.shutdown().await;

    let closing = Engine::start(Does::Closes(usize::MAX)).await;
    let answering = Engine::start(Does::Answers).await;
    let both = gateway(&[&closing, &answering], PATIENCE, PATIENCE).await;
    for num_tokens in [20, 30] {
        assert_eq!(ask(&both, num_tokens).await.status, 200);
    }
    assert!(closing.requests() <= 2 * 2, "{}", closing.requests());
    both.shutdown().await;
}

#[tokio::test]
async fn a_request_that_ends_all_engines_does_not_go_round_the_fleet() {
    assert_eq!(among_breaking(6, false).await, (503, 4));
}

#[tokio::test]
async fn without_another_engine_the_client_is_told_which_one_died() {
    let engine = Engine::start(Does::Freezes).await;
    let gateway = gateway(&[&engine], PATIENCE, PATIENCE).await;
    let (answer, ()) = tokio::join!(ask(&gateway, 20), async {
        eventually("a stuck request", || engine.requests() == 1).await;
        engine.is_ill();
    });
    let said = (answer.status, &answer.error_code()[..]);
    assert_eq!(said, (502, "upstream_died"));
    assert!(
        answer.body.contains(&engine.url) && answer.body.contains("answered 500"),
        "{answer:?}"
    );
    assert!(gateway.gateway().is_down(ReplicaId(0)));
    gateway.shutdown().await;
}

/// The limit is the request's, not each engine's.
#[tokio::test]
async fn an_engine_that_says_nothing_is_not_waited_for_longer_than_the_limit() {
    for does in [Does::Freezes, Does::FreezesAfterHead] {
        let engines = [Engine::start(does).await, Engine::start(does).await];
        let gateway = gateway(&[&engines[0], &engines[1]], SHORT, PATIENCE).await;
        let answer = ask(&gateway, 20).await;
        let said = (answer.status, &answer.error_code()[..]);
        assert_eq!(said, (504, "upstream_timeout"), "{answer:?}");
        let named = engines.iter().any(|one| answer.body.contains(&one.url));
        assert!(named && answer.body.contains("--upstream-timeout"));
        assert_eq!(engines[0].requests() + engines[1].requests(), 1);
        assert!(!gateway.gateway().is_down(ReplicaId(0)), "its health is fine");
        gateway.shutdown().await;
    }
}

#[tokio::test]
async fn a_stream_that_pauses_for_too_long_ends_with_an_error() {
    let engine = Engine::start(Does::FreezesInStream).await;
    let gateway = gateway(&[&engine], PATIENCE, SHORT).await;
    let answer = ask(&gateway, 20).await;
    assert_eq!(answer.status, 200);
    let events = answer.events();
    assert_eq!(events[0], "{\"first\": 1}");
    assert!(
        events[1].contains("upstream_timeout") && events[1].contains("--upstream-silence"),
        "{events:?}"
    );
    // The status was sent before: it counts as failed all the same.
    let snapshot = support::get(&gateway, "/dashboard/snapshot").await.json();
    let by_status = &snapshot["errors"]["by_status"];
    assert_eq!(*by_status, json!([{"status": 504, "count": 1}]));
    let failure = &snapshot["errors"]["latest"][0];
    assert_eq!(failure["code"], "upstream_timeout", "{failure}");
    assert_eq!(snapshot["requests"], json!([]), "none was answered");
    gateway.shutdown().await;
}

/// Issue 5: refused prompts were counted, and assumed to be held by the engine that refused them.
#[tokio::test]
async fn a_refused_prompt_counts_for_nothing() {
    let engine = Engine::start(Does::Refuses).await;
    let gateway = gateway(&[&engine], PATIENCE, PATIENCE).await;
    let counts = || {
        let stats = gateway.gateway().router().stats();
        (stats.predicted.lookups, stats.index.assumed_prompts)
    };
    let too_long = ask(&gateway, CONTEXT + 1).await;
    assert_eq!((too_long.status, &too_long.error_code()[..]), (400, "refused"));
    assert_eq!(counts(), (0, 0));
    // The gateway could not know before that this one would be refused.
    assert_eq!(ask(&gateway, CONTEXT).await.status, 400);
    // It may be assumed for two seconds.
    assert_eq!(counts().0, 0);
    engine.seen.script.lock().expect("no panic").does = Does::Answers;
    assert_eq!(ask(&gateway, 30).await.status, 200);
    assert_eq!(counts().0, 30);
    gateway.shutdown().await;
}
