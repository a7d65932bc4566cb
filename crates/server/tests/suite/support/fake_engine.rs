//! An engine that computes nothing: it answers HTTP, publishes what a test says, and remembers
//! which data-parallel rank was asked for.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use axum::Json;
use axum::extract::State;
use axum::routing::{get, post};
use headstart_core::event::{CacheGroup, StoredBlocks};
use headstart_core::{BlockHash, CacheEvent, Tier};
use headstart_index_sync::clock::unix_seconds;
use headstart_kv_events::{EventPublisher, PublishOutcome, PublisherConfig};
use headstart_server::UpstreamConfig;
use http::HeaderMap;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Tokens per block.
pub const BLOCK: usize = 16;

/// Ports that are tried for rows of neighbours: below those that systems give away by themselves.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

#[derive(Default)]
struct Seen {
    model: Mutex<String>,
    ranks: Mutex<Vec<Option<String>>>,
    health_checks: Mutex<usize>,
    metrics: Mutex<String>,
    cached: Mutex<Option<usize>>,
}

/// The engine; gone when dropped.
pub struct FakeEngine {
    url: String,
    publishers: Vec<Option<EventPublisher>>,
    buffer_steps: usize,
    has_replay: bool,
    seen: Arc<Seen>,
    server: JoinHandle<()>,
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl FakeEngine {
    /// Starts an engine whose ranks keep `buffer_steps` batches each; `None`: no replays.
    pub async fn start(ranks: usize, buffer_steps: Option<usize>) -> Self {
        let seen = Arc::new(Seen::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let router = axum::Router::new()
            .route("/health", get(health))
            .route("/v1/models", get(models))
            .route("/metrics", get(metrics))
            .route("/v1/completions", post(complete))
            .with_state(seen.clone());
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("it serves");
        });
        let mut engine = Self {
            url,
            publishers: Vec::new(),
            buffer_steps: buffer_steps.unwrap_or(1),
            has_replay: buffer_steps.is_some(),
            seen,
            server,
        };
        engine.serve("m");
        engine.bind_all(ranks).await;
        engine
    }

    /// From now on it says that it serves this model.
    pub fn serve(&self, model: &str) {
        *self.seen.model.lock().expect("no panic") = model.to_owned();
    }

    /// From now on its metrics are these.
    pub fn tell_metrics(&self, page: &str) {
        *self.seen.metrics.lock().expect("no panic") = page.to_owned();
    }

    /// From now on its answers count tokens, and say that `tokens` of the prompt were cached.
    pub fn tell_cached(&self, tokens: usize) {
        *self.seen.cached.lock().expect("no panic") = Some(tokens);
    }

    /// Ranks publish on neighbouring ports, and replay on others.
    async fn bind_all(&mut self, ranks: usize) {
        for base in PORTS.step_by(2 * ranks) {
            self.publishers.clear();
            for rank in 0..ranks {
                let port =
                    |offset: usize| format!("tcp://127.0.0.1:{}", usize::from(base) + offset);
                let replay = self.has_replay.then(|| port(ranks + rank));
                match self.bound(port(rank), replay).await {
                    Some(publisher) => self.publishers.push(Some(publisher)),
                    None => break,
                }
            }
            if self.publishers.len() == ranks {
                return;
            }
        }
        panic!("no {} neighbouring ports are free", 2 * ranks);
    }

    async fn bound(&self, endpoint: String, replay: Option<String>) -> Option<EventPublisher> {
        let config = PublisherConfig {
            endpoint,
            replay_endpoint: replay,
            topic: String::new(),
            buffer_steps: self.buffer_steps,
        };
        EventPublisher::bind(config).await.ok()
    }

    /// Returns the gateway's configuration for this engine.
    pub fn upstream(&self) -> UpstreamConfig {
        let endpoints = self.publisher(0).endpoints();
        UpstreamConfig {
            url: self.url.clone(),
            kv_events: Some(endpoints.events.clone()),
            kv_replay: endpoints.replay.clone(),
            data_parallel_size: self.publishers.len() as u32,
            tokenizer: Some(super::toy_tokenizer()),
        }
    }

    fn publisher(&self, rank: usize) -> &EventPublisher {
        self.publishers[rank].as_ref().expect("it publishes")
    }

    fn publish(&self, rank: usize, event: CacheEvent) {
        let published = self.publisher(rank).publish(vec![event], unix_seconds());
        assert_eq!(published, PublishOutcome::Queued);
    }

    /// Says that a rank holds all full blocks of this prompt, each in a batch of its own.
    pub fn store(&self, rank: usize, tokens: &[u32]) {
        self.store_from(rank, tokens, 0);
    }

    /// The same from block `first` of the prompt on.
    pub fn store_from(&self, rank: usize, tokens: &[u32], first: usize) {
        self.store_in(rank, tokens, first..tokens.len() / BLOCK, Tier::Device);
    }

    /// The same for some blocks of the prompt and another tier.
    pub fn store_in(&self, rank: usize, tokens: &[u32], blocks: Range<usize>, tier: Tier) {
        let names = names(tokens);
        for at in blocks {
            let stored = StoredBlocks {
                blocks: vec![names[at]],
                parent: at.checked_sub(1).map(|before| names[before]),
                tokens: tokens[at * BLOCK..(at + 1) * BLOCK].to_vec(),
                block_size: BLOCK as u32,
                extras: Vec::new(),
                tier,
                group: CacheGroup::default(),
                salt: None,
                adapter: None,
            };
            self.publish(rank, CacheEvent::Stored(stored));
        }
    }

    /// Says that a rank does not hold this prompt any more from its block `first` on.
    pub fn remove(&self, rank: usize, tokens: &[u32], first: usize) {
        let blocks = names(tokens).split_off(first);
        self.publish(rank, CacheEvent::Removed { blocks, tier: Tier::Device, group: 0 });
    }

    /// A rank's publisher ends, and another one begins at its address.
    pub async fn restart_publisher(&mut self, rank: usize) {
        let publisher = self.publishers[rank].take().expect("it publishes");
        let endpoints = publisher.endpoints().clone();
        publisher.close().await;
        // The port may take a moment to be free.
        for _ in 0..500 {
            let bound = self.bound(endpoints.events.clone(), endpoints.replay.clone());
            if let Some(publisher) = bound.await {
                self.publishers[rank] = Some(publisher);
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("{endpoints:?} stays taken");
    }

    /// A request for this engine.
    pub fn ask(&self, tokens: &[u32]) -> Value {
        let model = self.seen.model.lock().expect("no panic").clone();
        json!({"model": model, "prompt": tokens, "max_tokens": 1})
    }

    /// The rank that each request named, in order.
    pub fn ranks_asked(&self) -> Vec<Option<String>> {
        self.seen.ranks.lock().expect("no panic").clone()
    }

    /// Returns the number of health checks so far.
    pub fn health_checks(&self) -> usize {
        *self.seen.health_checks.lock().expect("no panic")
    }
}

type Shared = State<Arc<Seen>>;

async fn health(State(seen): Shared) {
    *seen.health_checks.lock().expect("no panic") += 1;
}

async fn models(State(seen): Shared) -> Json<Value> {
    let model = seen.model.lock().expect("no panic").clone();
    Json(json!({"data": [{"id": model}]}))
}

async fn metrics(State(seen): Shared) -> String {
    seen.metrics.lock().expect("no panic").clone()
}

async fn complete(State(seen): Shared, headers: HeaderMap, Json(body): Json<Value>) -> Json<Value> {
    let rank = headers.get("x-data-parallel-rank");
    let rank = rank.map(|rank| rank.to_str().expect("text").to_owned());
    seen.ranks.lock().expect("no panic").push(rank);
    let mut answer = json!({"choices": [{"text": "x", "finish_reason": "length"}]});
    if let Some(cached) = *seen.cached.lock().expect("no panic") {
        answer["usage"] = json!({
            "prompt_tokens": body["prompt"].as_array().map_or(0, Vec::len),
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": cached},
        });
    }
    Json(answer)
}

/// Returns this engine's names of a prompt's full blocks.
fn names(tokens: &[u32]) -> Vec<BlockHash> {
    let ends = (1..=tokens.len() / BLOCK).map(|blocks| blocks * BLOCK);
    let name = |end: usize| {
        let mut hasher = DefaultHasher::new();
        tokens[..end].hash(&mut hasher);
        BlockHash::from_u64(hasher.finish())
    };
    ends.map(name).collect()
}
