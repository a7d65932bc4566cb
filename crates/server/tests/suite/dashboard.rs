//! The dashboard as its clients meet it: the page, one snapshot, and the stream of them.

use crate::support;

use std::time::Duration;

use headstart_server::UpstreamConfig;
use headstart_server::config::PrefixLabel;
use headstart_server::dashboard::{LISTENERS_MAX, Snapshot};
use serde_json::json;
use support::{PATIENCE, chat, embedded, eventually, get, post, proxy, start, text, toy_tokenizer};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::timeout;

/// A stream of snapshots that is being read.
struct Stream {
    lines: Lines<BufReader<OwnedReadHalf>>,
    _write: tokio::net::tcp::OwnedWriteHalf,
}

impl Stream {
    async fn open(address: std::net::SocketAddr, key: &str) -> (u16, Self) {
        let (read, mut write) = TcpStream::connect(address).await.expect("connects").into_split();
        let head = format!("GET /dashboard/events HTTP/1.1\r\nHost: x\r\n{key}\r\n");
        write.write_all(head.as_bytes()).await.expect("it is sent");
        let mut lines = BufReader::new(read).lines();
        let first = lines.next_line().await.expect("an answer").expect("a line");
        let status = first.split(' ').nth(1).expect("a status").parse();
        let stream = Self { lines, _write: write };
        (status.expect("a number"), stream)
    }

    /// The next snapshot; none when the stream ends.
    async fn next(&mut self) -> Option<Snapshot> {
        loop {
            let line = timeout(PATIENCE, self.lines.next_line()).await.expect("in time");
            let line = line.expect("readable")?;
            if let Some(json) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(json).expect("a snapshot"));
            }
        }
    }
}

async fn ask(server: &headstart_server::RunningServer, times: usize) {
    for _ in 0..times {
        let body = serde_json::json!({
            "model": "toy", "prompt": (1..100).collect::<Vec<u32>>(), "max_tokens": 2,
        });
        let answer = support::post(server, "/v1/completions", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_comes_from_the_binary_and_allows_nothing_else() {
    let mut config = embedded(1, 256);
    config.api_key = Some("secret".to_owned());
    let server = start(config).await;
    let page = get(&server, "/").await;
    assert_eq!(page.status, 200, "the page holds no data and needs no key");
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    for path in ["/dashboard/snapshot", "/dashboard/events"] {
        let answer = get(&server, path).await;
        assert_eq!((answer.status, &answer.error_code()[..]), (401, "invalid_api_key"), "{path}");
    }
    let key = "Authorization: Bearer secret\r\n";
    let (status, mut stream) = Stream::open(server.address(), key).await;
    assert_eq!(status, 200);
    assert!(stream.next().await.expect("a snapshot").history.is_whole);
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_says_what_was_served() {
    let server = start(embedded(2, 256)).await;
    let before: Snapshot = serde_json::from_value(get(&server, "/dashboard/snapshot").await.json())
        .expect("a snapshot");
    assert_eq!((before.totals.requests, before.tree.nodes.len()), (0, 0));
    ask(&server, 3).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let told = loop {
        let told: Snapshot =
            serde_json::from_value(get(&server, "/dashboard/snapshot").await.json()).expect("one");
        let holders = told.tree.nodes.first().map_or(0, |node| node.holders.len());
        if told.totals.requests == 3 && told.totals.prompt_tokens == 3 * 99 && holders > 0 {
            break told;
        }
        assert!(tokio::time::Instant::now() < deadline, "{told:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(told.totals.cached_tokens, 2 * 96, "two of three found six blocks");
    assert_eq!(told.savings.by_source[0].tokens, 2 * 96);
    let branch = &told.tree.nodes[0];
    assert_eq!((told.tree.block_tokens, branch.tokens, branch.prompts), (16, 96, 3));
    assert_eq!(branch.holders[0].tokens, 96);
    assert_eq!(told.replicas.len(), 2);
    assert_eq!(told.replicas[0].capacity_blocks, Some(256));
    server.shutdown().await;
}

/// Prompts that share a prefix make branches, of which no replica holds anything while all are
/// down.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_made_while_all_engines_are_down() {
    let engine = start(embedded(1, 256)).await;
    let endpoints = &engine.event_endpoints()[0];
    let described = UpstreamConfig {
        kv_events: Some(endpoints.events.clone()),
        kv_replay: endpoints.replay.clone(),
        tokenizer: Some(toy_tokenizer()),
        url: format!("http://{}", engine.address()),
        data_parallel_size: 1,
    };
    let mut config = proxy(vec![described]);
    config.limits.health_interval = Duration::from_millis(50);
    config.labels = vec![PrefixLabel { name: "shop".to_owned(), text: text(100, 1) }];
    let gateway = start(config).await;
    for seed in 0..4 {
        let messages = json!([
            {"role": "system", "content": text(100, 1)},
            {"role": "user", "content": text(40, 2 + seed)},
        ]);
        let body = json!({"model": "toy", "messages": messages, "max_tokens": 2});
        assert_eq!(chat(&gateway, &body).await.status, 200);
    }
    let entries = || gateway.gateway().router().stats().index.entries;
    eventually("events in the index", || entries() > 8).await;
    let tree = get(&gateway, "/dashboard/snapshot").await.json()["tree"].clone();
    let nodes = tree["nodes"].as_array().map_or(0, Vec::len);
    assert!(nodes > 0, "{tree}");
    assert_eq!(tree["nodes"][0]["label"], "shop", "{tree}");
    let index = get(&gateway, "/debug/index").await.json();
    let held = &index["labels"][0]["held"][0];
    assert_eq!((&index["labels"][0]["label"], &held["replica"]), (&json!("shop"), &json!(0)));
    assert!(held["tokens"].as_u64() >= Some(64), "{index}");
    engine.shutdown().await;
    let is_down = || gateway.gateway().is_down(headstart_core::ReplicaId(0));
    eventually("the engine to be down", is_down).await;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let snapshot = get(&gateway, "/dashboard/snapshot").await;
        assert_eq!(snapshot.status, 200, "{}", snapshot.body);
        let snapshot: Snapshot = serde_json::from_value(snapshot.json()).expect("a snapshot");
        let replica = &snapshot.replicas[0];
        if !replica.is_healthy && replica.trouble.is_some() {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{replica:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    gateway.shutdown().await;
}

/// Clients' requests count as errors; what browsers and the dashboard ask for does not.
#[tokio::test(flavor = "multi_thread")]
async fn errors_of_clients_are_counted_by_status() {
    let server = start(embedded(1, 256)).await;
    let unknown = json!({"model": "no such", "prompt": "Hello", "max_tokens": 2});
    assert_eq!(post(&server, "/v1/completions", &unknown).await.status, 404);
    for path in ["/favicon.ico", "/docs", "/nothing", "/debug/requests/x"] {
        get(&server, path).await;
        post(&server, path, &unknown).await;
    }
    ask(&server, 1).await;
    let snapshot = get(&server, "/dashboard/snapshot").await;
    assert!(!snapshot.body.contains("Hello") && !snapshot.body.contains("no such"));
    let told: Snapshot = serde_json::from_value(snapshot.json()).expect("a snapshot");
    let counts: Vec<_> = told.errors.by_status.iter().collect();
    assert_eq!((counts.len(), counts[0].status, counts[0].count), (1, 404, 1));
    assert_eq!(told.totals.errors, 1);
    let failure = &told.errors.latest[0];
    assert_eq!(failure.route, "/v1/completions");
    assert_eq!(failure.code.as_deref(), Some("model_not_found"));
    let request = &told.requests[0];
    assert_eq!((&request.model[..], request.status), ("toy", 200));
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_brings_a_snapshot_a_second_and_ends_with_the_server() {
    let server = start(embedded(1, 256)).await;
    let (status, mut stream) = Stream::open(server.address(), "").await;
    assert_eq!(status, 200);
    assert!(stream.next().await.expect("the first one").history.is_whole);
    ask(&server, 2).await;
    let requests = async {
        loop {
            let next = stream.next().await.expect("the next one");
            assert!(!next.history.is_whole && next.history.ttft.len() <= 2);
            if next.totals.requests == 2 && next.history.points.iter().any(|point| point[1] > 0) {
                break next.history.points.last().expect("a second").len();
            }
        }
    };
    assert_eq!(timeout(PATIENCE, requests).await.expect("in time"), 8);
    let ending = tokio::spawn(server.shutdown());
    while stream.next().await.is_some() {}
    timeout(Duration::from_secs(10), ending)
        .await
        .expect("an open page does not hold the server up")
        .expect("it ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_are_bounded_and_places_are_given_back() {
    let server = start(embedded(1, 256)).await;
    let mut streams = Vec::new();
    for _ in 0..LISTENERS_MAX {
        let (status, stream) = Stream::open(server.address(), "").await;
        assert_eq!(status, 200);
        streams.push(stream);
    }
    let answer = get(&server, "/dashboard/events").await;
    assert_eq!((answer.status, &answer.error_code()[..]), (503, "too_many_listeners"));
    streams.pop();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while Stream::open(server.address(), "").await.0 != 200 {
        assert!(tokio::time::Instant::now() < deadline, "the place is not given back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(streams);
    server.shutdown().await;
}
