//! Failures: replicas that panic, clients that vanish, stall or send half a body, prompts that
//! never fit. Nothing hangs, nothing leaks, and errors reach the clients.

use crate::support;

use std::time::{Duration, Instant};

use headstart_router::Health;
use serde_json::{Value, json};
use support::{chat, drained, embedded, eventually, fleet, get, read_answer, request, start, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

fn long_stream(tokens: usize) -> Value {
    json!({
        "model": "toy", "messages": [{"role": "user", "content": text(60, 1)}],
        "max_tokens": tokens, "ignore_eos": true, "stream": true,
    })
}

async fn open(server: &headstart_server::RunningServer, raw: &str) -> TcpStream {
    let mut socket = TcpStream::connect(server.address()).await.expect("connects");
    socket.write_all(raw.as_bytes()).await.expect("sends");
    socket
}

#[tokio::test]
async fn a_panic_before_the_first_token_is_retried_elsewhere() {
    let server = start(embedded(2, 256)).await;
    // Both replicas are asked; whichever panics, every request is answered.
    fleet(&server).replicas[0].inject_panic();
    let calls = (0..6).map(|seed| {
        let body = json!({
            "model": "toy", "messages": [{"role": "user", "content": text(40, seed)}],
            "max_tokens": 4,
        });
        let server = &server;
        async move { chat(server, &body).await }
    });
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    eventually("the panic", || fleet(&server).replicas[0].panics() == 1).await;
    eventually("a new engine", || fleet(&server).replicas[0].health() == Health::Healthy).await;
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn a_panic_in_the_middle_is_an_error_event_and_the_router_forgets() {
    let server = start(embedded(1, 512)).await;
    let body = long_stream(3_000).to_string();
    let mut socket = open(&server, &request("POST", "/v1/chat/completions", "", &body)).await;
    let mut seen = [0; 400];
    socket.read_exact(&mut seen).await.expect("the stream began");
    let held = || server.gateway().router().stats().index.entries;
    eventually("events of the prompt", || held() > 0).await;
    let injected = Instant::now();
    fleet(&server).replicas[0].inject_panic();
    let down = || server.gateway().is_down(headstart_core::ReplicaId(0));
    eventually("the router to notice", || down() || fleet(&server).replicas[0].panics() > 0).await;
    assert!(injected.elapsed() < Duration::from_secs(1), "{:?}", injected.elapsed());
    eventually("the index to forget", || held() == 0).await;
    let mut rest = String::new();
    socket.read_to_string(&mut rest).await.expect("the stream ends cleanly");
    assert!(rest.contains("replica_gone") && !rest.contains("[DONE]"), "{rest:.300}");
    eventually("a new engine", || !down()).await;
    let again =
        json!({"model": "toy", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2});
    assert_eq!(chat(&server, &again).await.status, 200);
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn clients_that_vanish_free_their_blocks() {
    let server = start(embedded(1, 512)).await;
    // In the middle of a stream; before its first byte; while waiting for a whole answer.
    let streaming = request("POST", "/v1/chat/completions", "", &long_stream(3_000).to_string());
    let mut whole = long_stream(3_000);
    whole["stream"] = json!(false);
    let waiting = request("POST", "/v1/chat/completions", "", &whole.to_string());
    let mut socket = open(&server, &streaming).await;
    let mut seen = [0; 300];
    socket.read_exact(&mut seen).await.expect("the stream began");
    let others = [open(&server, &streaming).await, open(&server, &waiting).await];
    let running = || fleet(&server).replicas[0].load().running;
    eventually("three running", || running() == 3).await;
    drop(socket);
    drop(others);
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn clients_that_stall_lose_their_connection_not_ours() {
    let mut config = embedded(1, 512);
    config.limits.stall_timeout = Duration::from_millis(300);
    config.limits.send_buffer_bytes = 16 << 10;
    let server = start(config).await;
    // A small window fills at once; the engine continues regardless.
    let body = long_stream(3_500).to_string();
    let raw = request("POST", "/v1/chat/completions", "", &body);
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2_048).expect("a small window");
    let mut stalled = socket.connect(server.address()).await.expect("connects");
    stalled.write_all(raw.as_bytes()).await.expect("sends");
    let other =
        json!({"model": "toy", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2});
    assert_eq!(chat(&server, &other).await.status, 200);
    drained(&server).await;
    let mut rest = Vec::new();
    let _ = stalled.read_to_end(&mut rest).await;
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.starts_with("HTTP/1.1 200") && !rest.contains("[DONE]"), "it was cut off");
    server.shutdown().await;
}

#[tokio::test]
async fn half_a_body_and_half_a_head_time_out() {
    let mut config = embedded(1, 64);
    config.limits.read_timeout = Duration::from_millis(300);
    config.limits.head_timeout = Duration::from_millis(300);
    let server = start(config).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\nconnection: close\r\n";
    let mut half_body = open(&server, &format!("{head}content-length: 500\r\n\r\n{{\"mo")).await;
    let answer = read_answer(&mut half_body).await;
    assert_eq!((answer.status, &answer.error_code()[..]), (408, "body_timeout"));
    let mut half_head = open(&server, head).await;
    let mut nothing = Vec::new();
    let closed = tokio::time::timeout(support::PATIENCE, half_head.read_to_end(&mut nothing)).await;
    closed.expect("the server hangs up").ok();
    let mut broken = open(&server, &format!("{head}content-length: 500\r\n\r\n{{\"mo")).await;
    broken.shutdown().await.expect("half-closes");
    broken.read_to_end(&mut nothing).await.ok();
    assert_eq!(get(&server, "/health").await.status, 200);
    drained(&server).await;
    server.shutdown().await;
}

/// Issue 5: some thousand connections that say nothing kept everybody else out.
#[tokio::test]
async fn connections_that_say_nothing_give_their_places_back() {
    let mut config = embedded(1, 64);
    config.limits.connections = Some(3);
    config.limits.head_timeout = Duration::from_millis(300);
    let server = start(config).await;
    let silent = ["", "GET / HTTP/1.1\r\n", "G", "", ""].map(|raw| open(&server, raw));
    let silent = futures::future::join_all(silent).await;
    assert_eq!(get(&server, "/health").await.status, 200);
    for mut socket in silent {
        let mut nothing = Vec::new();
        let closed = tokio::time::timeout(support::PATIENCE, socket.read_to_end(&mut nothing));
        closed.await.expect("the server hangs up").ok();
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_prompt_that_never_fits_is_refused_and_tight_ones_all_finish() {
    let server = start(embedded(1, 24)).await;
    let body = |words: usize, seed: usize| {
        json!({
            "model": "toy", "messages": [{"role": "user", "content": text(words, seed)}],
            "max_tokens": 60, "ignore_eos": true,
        })
    };
    let answer = chat(&server, &body(900, 1)).await;
    assert_eq!((answer.status, &answer.error_code()[..]), (400, "context_length_exceeded"));
    // Far too long: it is refused before it is counted.
    let answer = chat(&server, &body(300_000, 1)).await;
    let limit = fleet(&server).context() - 1;
    let said = format!("the prompt has more than {limit} tokens");
    assert!(answer.body.contains(&said), "{answer:?}");
    assert_eq!(server.gateway().router().stats().predicted.lookups, 0);
    let bodies: Vec<_> = (0..8).map(|seed| body(60, seed)).collect();
    let answers = futures::future::join_all(bodies.iter().map(|body| chat(&server, body))).await;
    for answer in answers {
        assert_eq!(
            (answer.status, &answer.json()["usage"]["completion_tokens"]),
            (200, &json!(60))
        );
    }
    assert!(fleet(&server).replicas[0].load().preemptions > 0, "the run was tight");
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn shutdown_lets_running_answers_finish() {
    let server = start(embedded(2, 256)).await;
    let raw = request("POST", "/v1/chat/completions", "", &long_stream(200).to_string());
    let mut socket = open(&server, &raw).await;
    let mut seen = [0; 300];
    socket.read_exact(&mut seen).await.expect("the stream began");
    let reading = tokio::spawn(async move {
        let mut rest = String::new();
        socket.read_to_string(&mut rest).await.expect("ends cleanly");
        rest
    });
    server.shutdown().await;
    assert!(reading.await.expect("reads").contains("[DONE]"));
}
