//! `kill -9` of an upstream `headstart serve`, idle and in the middle of a stream.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A dead replica must be out of the router within this.
const FORGOTTEN_WITHIN: Duration = Duration::from_secs(1);

/// Longest wait for anything else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `headstart serve` process; killed when dropped.
struct Served {
    process: Child,
    address: String,
}

impl Served {
    fn start(args: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_headstart"))
            .current_dir(std::env::temp_dir())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("a ready line");
        let url = line
            .split_whitespace()
            .find(|word| word.starts_with("http://"));
        let url = url.unwrap_or_else(|| panic!("a URL in the ready line: {line}"));
        let address = url
            .trim_start_matches("http://")
            .trim_end_matches("/v1")
            .to_owned();
        Self { process, address }
    }

    /// SIGKILL, as `kill -9`.
    fn kill(&mut self) {
        self.process.kill().expect("kills");
        self.process.wait().expect("reaps");
    }

    fn open(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(&self.address).expect("connects");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let head = format!("{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n");
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        socket.write_all(request.as_bytes()).expect("sends");
        socket
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut answer = String::new();
        self.open(method, path, body)
            .read_to_string(&mut answer)
            .expect("an answer in time");
        answer
    }

    fn replica_up(&self, replica: usize) -> bool {
        let metrics = self.ask("GET", "/metrics", "");
        metrics.contains(&format!("headstart_replica_up{{replica=\"{replica}\"}} 1"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn chat(max_tokens: usize, stream: bool) -> String {
    serde_json::json!({
        "model": "toy", "messages": [{"role": "user", "content": "Hello there"}],
        "max_tokens": max_tokens, "ignore_eos": true, "stream": stream,
    })
    .to_string()
}

fn fleet() -> (Vec<Served>, Served) {
    let engines = vec![
        Served::start(&["--replicas", "1"]),
        Served::start(&["--replicas", "1"]),
    ];
    let urls: Vec<_> = engines
        .iter()
        .map(|engine| format!("http://{}", engine.address))
        .collect();
    let gateway = Served::start(&["--upstream", &urls[0], "--upstream", &urls[1]]);
    (engines, gateway)
}

#[test]
fn an_idle_upstream_that_dies_is_forgotten_within_a_second() {
    let (mut engines, gateway) = fleet();
    assert!(gateway.replica_up(0) && gateway.replica_up(1));
    engines[0].kill();
    let killed = Instant::now();
    while gateway.replica_up(0) {
        assert!(
            killed.elapsed() < FORGOTTEN_WITHIN,
            "still there after {:?}",
            killed.elapsed()
        );
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
    let replica = if start.contains("x-headstart-replica: 0") {
        0
    } else {
        1
    };
    engines[replica].kill();
    let mut rest = String::new();
    socket
        .read_to_string(&mut rest)
        .expect("the stream ends cleanly");
    assert!(
        rest.contains("replica_gone") && !rest.contains("[DONE]"),
        "{rest:.200}"
    );
    let answer = gateway.ask("POST", "/v1/chat/completions", &chat(2, false));
    let other = format!("x-headstart-replica: {}", 1 - replica);
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains(&other),
        "{answer:.300}"
    );
}

#[test]
fn interrupting_a_server_ends_it_with_success() {
    let mut server = Served::start(&["--replicas", "1"]);
    let id = server.process.id().to_string();
    Command::new("kill")
        .args(["-TERM", &id])
        .status()
        .expect("kill runs");
    let status = server.process.wait().expect("it ends");
    assert!(status.success(), "{status}");
}
