//! `kill -9` of an upstream `headstart serve`, idle and in the middle of a stream.

use crate::support;

use std::io::Read;
use std::time::{Duration, Instant};

use support::Served;

/// A dead replica must be out of the router within this.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(1);

fn is_up(gateway: &Served, replica: usize) -> bool {
    let up = format!("headstart_replica_up{{replica=\"{replica}\"}} 1");
    gateway.metrics().contains(&up)
}

fn chat(max_tokens: usize, stream: bool) -> String {
    serde_json::json!({
        "model": "toy", "messages": [{"role": "user", "content": "Hello there"}],
        "max_tokens": max_tokens, "ignore_eos": true, "stream": stream,
    })
    .to_string()
}

fn fleet() -> (Vec<Served>, Served) {
    let engines = vec![Served::start(["--replicas", "1"]), Served::start(["--replicas", "1"])];
    let urls: Vec<_> = engines.iter().map(Served::url).collect();
    let gateway = Served::start(["--upstream", &urls[0], "--upstream", &urls[1]]);
    (engines, gateway)
}

#[test]
fn an_idle_upstream_that_dies_is_forgotten_within_a_second() {
    let (mut engines, gateway) = fleet();
    assert!(is_up(&gateway, 0) && is_up(&gateway, 1));
    engines[0].end("-KILL");
    let killed = Instant::now();
    while is_up(&gateway, 0) {
        assert!(killed.elapsed() < FORGOTTEN_WITHIN, "still there after {:?}", killed.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..4 {
        let answer = gateway.ask("POST", "/v1/chat/completions", &chat(2, false));
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("x-headstart-replica: 1"));
    }
}

#[test]
fn an_upstream_that_dies_in_mid_stream_is_an_error_event() {
    let (mut engines, gateway) = fleet();
    let mut socket = gateway.open("POST", "/v1/chat/completions", &chat(8_000, true));
    let mut start = [0; 600];
    socket.read_exact(&mut start).expect("the stream began");
    let start = String::from_utf8_lossy(&start).into_owned();
    let replica = if start.contains("x-headstart-replica: 0") { 0 } else { 1 };
    engines[replica].end("-KILL");
    let mut rest = String::new();
    socket.read_to_string(&mut rest).expect("the stream ends cleanly");
    assert!(rest.contains("replica_gone") && !rest.contains("[DONE]"), "{rest:.200}");
    let answer = gateway.ask("POST", "/v1/chat/completions", &chat(2, false));
    let other = format!("x-headstart-replica: {}", 1 - replica);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&other), "{answer:.300}");
}

#[test]
fn interrupting_a_server_ends_it_with_success() {
    let mut server = Served::start(["--replicas", "1"]);
    let status = server.end("-TERM");
    assert!(status.success(), "{status}");
}
