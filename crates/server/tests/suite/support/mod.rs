//! A real server on port 0 and raw HTTP to talk to it.

// Each test file uses its own part.
#![allow(dead_code, unreachable_pub)]

pub mod fake_engine;
pub mod http_engine;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use headstart_engine::kv::{Dtype, KvStorageFormat};
use headstart_engine::model::toy;
use headstart_engine::{EngineConfig, LanguageModel, ModelConfig, QueueOrder};
use headstart_prompt::{Normalizers, PromptModel};
use headstart_router::Profile;
use headstart_server::gateway::{EmbeddedReplicas, Fleet};
use headstart_server::{
    Edge, EdgeLimits, EmbeddedFleet, EngineBackend, RunningServer, ServeConfig, UpstreamConfig,
    serve,
};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest wait for anything in these tests; far beyond what is expected.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A small toy (two layers), built once.
pub fn model() -> (Arc<LanguageModel>, Arc<PromptModel>) {
    static MODEL: OnceLock<(Arc<LanguageModel>, Arc<PromptModel>)> = OnceLock::new();
    MODEL
        .get_or_init(|| {
            let prompt = PromptModel::toy();
            let config = ModelConfig { num_layers: 2, max_context: 4096, ..toy::tiny_config() };
            let words = prompt.stable_words();
            let model = toy::build(config, &words, prompt.eos_token(), Dtype::F32);
            (Arc::new(model), Arc::new(prompt))
        })
        .clone()
}

/// An embedded fleet of `replicas`, `cache_blocks` each.
pub fn embedded(replicas: usize, cache_blocks: usize) -> ServeConfig {
    let (model, prompt) = model();
    config(EngineBackend::Embedded(Box::new(EmbeddedFleet {
        tiers: None,
        model,
        prompt,
        name: "toy".to_owned(),
        replicas,
        engine: EngineConfig {
            cache_blocks,
            block_size: 16,
            kv_dtype: Dtype::F32,
            stored: KvStorageFormat::Same,
            max_batched_tokens: 128,
            max_sequences: 8,
            max_waiting: 8,
            order: QueueOrder::FirstCome,
        },
        emulated: None,
        policy: "lru".to_owned(),
        learned_tables: None,
        prediction: None,
        kv_events_port: None,
    })))
}

/// A gateway before `upstreams`.
pub fn proxy(upstreams: Vec<UpstreamConfig>) -> ServeConfig {
    config(EngineBackend::Upstreams(upstreams))
}

fn config(backend: EngineBackend) -> ServeConfig {
    ServeConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        api_key: None,
        profile: Profile::precise(),
        seed: 1,
        index_secret: None,
        state_dir: None,
        shared_index: None,
        engine_model: None,
        backend,
        prices: None,
        otlp: None,
        shadow: None,
        insight: true,
        normalizers: Normalizers::default(),
        has_engine_hints: false,
        limits: EdgeLimits::default(),
        edge: Edge::default(),
        labels: Vec::new(),
    }
}

/// The toy's tokenizer, as a folder.
pub fn toy_tokenizer() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../data/toy-tokenizer")
}

/// Starts a server.
pub async fn start(config: ServeConfig) -> RunningServer {
    serve(config).await.expect("the server starts")
}

/// The replicas of an embedded server.
pub fn fleet(server: &RunningServer) -> &EmbeddedReplicas {
    match &server.gateway().fleet {
        Fleet::Embedded(embedded) => embedded,
        Fleet::Upstreams(_) => panic!("an embedded fleet"),
    }
}

/// A response taken apart.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("JSON: {}", self.body))
    }

    /// The `data:` lines of a stream.
    pub fn events(&self) -> Vec<String> {
        let lines = self.body.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.map(str::to_owned).collect()
    }

    pub fn error_code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Bytes of a request.
pub fn request(method: &str, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{headers}\
         content-length: {length}\r\n\r\n{body}"
    )
}

/// Sends a request and reads until the server closes.
pub async fn exchange(server: &RunningServer, raw: &str) -> Answer {
    exchange_bytes(server, raw.as_bytes()).await
}

/// The same, with a body that is no text.
pub async fn exchange_bytes(server: &RunningServer, raw: &[u8]) -> Answer {
    let mut socket = TcpStream::connect(server.address()).await.expect("connects");
    socket.write_all(raw).await.expect("sends");
    read_answer(&mut socket).await
}

/// Reads a whole response from a connection that the server closes.
pub async fn read_answer(socket: &mut TcpStream) -> Answer {
    let mut raw = Vec::new();
    let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut raw)).await;
    read.expect("the server answers in time").expect("the answer can be read");
    let text = String::from_utf8(raw).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head[9..12].parse().expect("a status");
    let chunked = head.contains("transfer-encoding: chunked");
    let body = if chunked { dechunk(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

fn dechunk(mut raw: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = raw.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        body.push_str(&rest[..size]);
        raw = &rest[(size + 2).min(rest.len())..];
        if size == 0 {
            break;
        }
    }
    body
}

/// Bytes of a request whose body may be no text.
pub fn request_bytes(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{headers}\
         content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

pub async fn post(server: &RunningServer, path: &str, body: &Value) -> Answer {
    exchange(server, &request("POST", path, "", &body.to_string())).await
}

pub async fn chat(server: &RunningServer, body: &Value) -> Answer {
    post(server, "/v1/chat/completions", body).await
}

pub async fn get(server: &RunningServer, path: &str) -> Answer {
    exchange(server, &request("GET", path, "", "")).await
}

/// Text of about `words` tokens that no other `seed` shares.
pub fn text(words: usize, seed: usize) -> String {
    let list = ["time", "value", "list", "name", "string", "number", "file", "line"];
    let word = |at: usize| list[(at * 7 + seed * 3 + at * at % 5) % list.len()];
    (0..words).map(|at| format!("{} ", word(at))).collect::<String>() + &seed.to_string()
}

/// Waits until `condition` holds.
pub async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never came: {what}"));
}

/// Nothing runs, nothing is held, nothing is reserved.
pub async fn drained(server: &RunningServer) {
    eventually("an idle fleet", || {
        fleet(server).replicas.iter().all(|replica| {
            let load = replica.load();
            load.running == 0 && load.waiting == 0 && load.available_blocks == load.capacity_blocks
        })
    })
    .await;
    eventually("no reservation", || server.gateway().router().stats().reservations == 0).await;
    server.gateway().router().check();
}
