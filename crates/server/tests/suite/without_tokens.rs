//! Prompts whose tokens a gateway cannot make: each reason is logged, counted, and has its bucket
//! in the waterfall, and conversations stay on their replica all the same.

use crate::support;

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use headstart_server::RunningServer;
use http::StatusCode;
use serde_json::{Value, json};
use support::http_engine::{Fleet, HttpEngine};
use support::{chat, get, post, text, toy_tokenizer};

/// All that was logged in this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns all that was logged since the first call.
fn logged() -> String {
    static LOG: OnceLock<Log> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
        log
    });
    let bytes = log.0.lock().expect("no panic").clone();
    String::from_utf8(bytes).expect("text")
}

/// A folder with the toy's tokenizer and this chat template; with none where it is empty.
fn folder(name: &str, template: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("headstart-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let copy = |file: &str| std::fs::copy(toy_tokenizer().join(file), folder.join(file));
    copy("tokenizer.json").expect("the toy's tokenizer");
    if !template.is_empty() {
        std::fs::write(folder.join("chat_template.jinja"), template).expect("a template");
    }
    folder
}

async fn fleet(tokenizer: Option<PathBuf>) -> Fleet {
    logged();
    Fleet::with([&["m"], &["m"]], |config| {
        let headstart_server::EngineBackend::Upstreams(upstreams) = &mut config.backend else {
            panic!("a gateway of upstreams");
        };
        for upstream in upstreams {
            upstream.tokenizer.clone_from(&tokenizer);
        }
    })
    .await
}

async fn metric(server: &RunningServer, name: &str, reason: &str) -> f64 {
    let line = format!("{name}{{model_name=\"m\",reason=\"{reason}\"}} ");
    let page = get(server, "/metrics").await.body;
    let value = page.lines().find_map(|shown| shown.strip_prefix(&line));
    value.map_or(0.0, |value| value.parse().expect("a number"))
}

/// Tokens in a bucket of the waterfall.
async fn bucket(server: &RunningServer, name: &str) -> u64 {
    let waterfall = get(server, "/debug/waterfall").await.json();
    let mut rows = waterfall["waterfall"].as_array().expect("rows").iter();
    let row = rows.find(|row| row["bucket"] == name).expect("a bucket");
    row["tokens"].as_u64().expect("a number")
}

/// Six conversations of six turns, one turn of each after the other. Asserts that each stays on its
/// replica. Returns how many replicas were used.
async fn converse(fleet: &Fleet, path: &str, begin: impl Fn(usize) -> Value) -> usize {
    let mut conversations: Vec<_> = (0..6).map(begin).collect();
    let mut homes = vec![None; conversations.len()];
    for turn in 0..6 {
        for (body, home) in conversations.iter_mut().zip(&mut homes) {
            let answer = post(&fleet.gateway, path, body).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            let replica = answer.header("x-headstart-replica").map(str::to_owned);
            assert_eq!(home.get_or_insert(replica.clone()), &replica, "turn {turn}");
            let messages = body["messages"].as_array_mut().expect("messages");
            messages.push(json!({"role": "assistant", "content": text(20, turn)}));
            messages.push(json!({"role": "user", "content": text(20, turn + 100)}));
        }
    }
    homes.sort();
    homes.dedup();
    homes.len()
}

fn plain(number: usize) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": text(200, number)}]})
}

/// Checks one reason: routing, metric, waterfall and log.
async fn check(reason: &str, tokenizer: Option<PathBuf>, begin: impl Fn(usize) -> Value) {
    let fleet = fleet(tokenizer.clone()).await;
    let replicas = converse(&fleet, "/v1/chat/completions", begin).await;
    // Conversations that begin alike may all go to one replica.
    assert!(replicas == 2 || reason == "media", "{reason}");
    let count = metric(&fleet.gateway, "headstart_prompts_without_tokens_total", reason).await;
    assert_eq!(count, 36.0, "{reason}");
    // The fake engine counts 20 tokens, of which 16 were cached.
    assert_eq!(bucket(&fleet.gateway, "no-tokens").await, 36 * 4, "{reason}");
    assert_eq!(bucket(&fleet.gateway, "device").await, 36 * 16, "{reason}");
    let log = logged();
    let line = format!("reason=\"{reason}\"");
    assert!(log.contains(&line), "{reason} is not logged: {log}");
    fleet.gateway.shutdown().await;
    if let Some(folder) = tokenizer.filter(|folder| folder != &toy_tokenizer()) {
        std::fs::remove_dir_all(folder).expect("the temporary folder");
    }
}

#[tokio::test]
async fn a_gateway_without_a_tokenizer() {
    check("no-tokenizer", None, plain).await;
}

#[tokio::test]
async fn a_folder_without_a_chat_template() {
    check("no-template", Some(folder("no-template", "")), plain).await;
}

#[tokio::test]
async fn a_template_that_refuses() {
    let template = "{{ raise_exception('no ' ~ messages[0].role) }}";
    check("template-refused", Some(folder("refuses", template)), plain).await;
    assert!(!logged().contains("no user"), "a template's words stay out of the log");
}

#[tokio::test]
async fn a_template_that_fails() {
    let template = "{{ messages[0].content | wordcount }}";
    check("template-failed", Some(folder("fails", template)), plain).await;
}

#[tokio::test]
async fn a_field_that_only_the_engine_understands() {
    check("unsupported-field", Some(toy_tokenizer()), |number| {
        let mut body = plain(number);
        body["mm_processor_kwargs"] = json!({"size": 2});
        body
    })
    .await;
}

/// A client's template could loop or take all memory: it is not run here.
#[tokio::test]
async fn a_template_that_came_with_the_request() {
    check("unsupported-field", Some(toy_tokenizer()), |number| {
        let mut body = plain(number);
        let cycle = "{% set ns=namespace() %}{% set ns.a=ns %}{{ ns|tojson }}";
        body["chat_template"] = json!(cycle);
        body
    })
    .await;
}

/// Without events nothing tells what replicas hold, though the tokens are known.
#[tokio::test]
async fn conversations_stay_without_events() {
    let fleet = fleet(Some(toy_tokenizer())).await;
    fleet.engines.iter().for_each(HttpEngine::hide_usage);
    let replicas = converse(&fleet, "/v1/chat/completions", plain).await;
    assert_eq!(replicas, 2);
    fleet.gateway.shutdown().await;
}

#[tokio::test]
async fn a_request_that_the_engine_will_refuse() {
    check("malformed", Some(toy_tokenizer()), |number| {
        let mut body = plain(number);
        body["tools"] = json!([number]);
        body
    })
    .await;
}

#[tokio::test]
async fn a_conversation_with_an_image() {
    check("media", Some(toy_tokenizer()), with_image).await;
}

#[tokio::test]
async fn requests_that_the_engine_renders_otherwise() {
    let fleet = fleet(Some(toy_tokenizer())).await;
    fleet.engines.iter().for_each(|engine| engine.render(&[1, 2, 3]));
    let body = plain(1);
    chat(&fleet.gateway, &body).await;
    let rendered = "headstart_prompts_rendered_by_engine_total";
    for _ in 0..200 {
        if !fleet.gateway.gateway().drift.differing().is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    // From now on the engine's tokens count.
    chat(&fleet.gateway, &body).await;
    assert!(metric(&fleet.gateway, rendered, "engine-differs").await >= 1.0);
    assert!(logged().contains("the engine makes other tokens of such requests"));
    fleet.gateway.shutdown().await;
}

/// Tokens that come and go with the shape of a turn move no conversation.
#[tokio::test]
async fn conversations_stay_when_their_tokens_come_and_go() {
    let fleet = fleet(Some(toy_tokenizer())).await;
    fleet.engines.iter().for_each(HttpEngine::hide_usage);
    let mut conversations: Vec<_> = (0..8).map(plain).collect();
    let mut homes = vec![None; conversations.len()];
    for turn in 0..6 {
        for (body, home) in conversations.iter_mut().zip(&mut homes) {
            let lacks_tokens = turn % 2 == 0;
            body["mm_processor_kwargs"] =
                if lacks_tokens { json!({"size": 2}) } else { json!(null) };
            let answer = post(&fleet.gateway, "/v1/chat/completions", body).await;
            let replica = answer.header("x-headstart-replica").map(str::to_owned);
            assert_eq!(home.get_or_insert(replica.clone()), &replica, "turn {turn}");
            let messages = body["messages"].as_array_mut().expect("messages");
            messages.push(json!({"role": "assistant", "content": "yes"}));
            messages.push(json!({"role": "user", "content": text(20, turn + 100)}));
        }
    }
    let without = "headstart_prompts_without_tokens_total";
    assert_eq!(metric(&fleet.gateway, without, "unsupported-field").await, 24.0);
    fleet.gateway.shutdown().await;
}

/// vLLM 0.32 refuses its render routes unless `--enable-scale-out` is given, and others lack them.
#[tokio::test]
async fn engines_without_a_render_route_are_asked_to_tokenize() {
    for status in [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND] {
        let fleet = fleet(Some(toy_tokenizer())).await;
        let ids: Vec<u32> = (0..100).collect();
        for engine in &fleet.engines {
            engine.tokenize(&ids, status);
        }
        let mut body = plain(1);
        body["mm_processor_kwargs"] = json!({"size": 2});
        chat(&fleet.gateway, &body).await;
        let rendered = "headstart_prompts_rendered_by_engine_total";
        assert_eq!(metric(&fleet.gateway, rendered, "unsupported-field").await, 1.0, "{status}");
        fleet.gateway.shutdown().await;
    }
}

#[tokio::test]
async fn an_engine_is_asked_for_what_it_alone_can_render() {
    let fleet = fleet(Some(toy_tokenizer())).await;
    let ids: Vec<u32> = (0..100).collect();
    fleet.engines.iter().for_each(|engine| engine.render(&ids));
    let mut body = plain(1);
    body["mm_processor_kwargs"] = json!({"size": 2});
    chat(&fleet.gateway, &body).await;
    let rendered = "headstart_prompts_rendered_by_engine_total";
    assert_eq!(metric(&fleet.gateway, rendered, "unsupported-field").await, 1.0);
    let without = "headstart_prompts_without_tokens_total";
    assert_eq!(metric(&fleet.gateway, without, "unsupported-field").await, 0.0);
    assert_eq!(bucket(&fleet.gateway, "no-tokens").await, 0);
    fleet.gateway.shutdown().await;
}

/// A request with an image.
fn with_image(number: usize) -> Value {
    let url = format!("data:image/png;base64,{}{number}", "iVBORw0KGgo".repeat(500));
    json!({"model": "m", "messages": [
        {"role": "system", "content": text(300, 7)},
        {"role": "user", "content": [
            {"type": "text", "text": "what is this?"},
            {"type": "image_url", "image_url": {"url": url}},
        ]},
    ]})
}

/// Prompts with media that an engine rendered, and those that were routed by their text.
async fn media_counts(server: &RunningServer) -> (f64, f64) {
    let rendered = metric(server, "headstart_prompts_rendered_by_engine_total", "media");
    let without = metric(server, "headstart_prompts_without_tokens_total", "media");
    (rendered.await, without.await)
}

#[tokio::test]
async fn an_engine_is_asked_for_the_media_of_a_prompt() {
    let fleet = fleet(Some(toy_tokenizer())).await;
    let ids: Vec<u32> = (0..100).collect();
    // Tokens alone do not tell one image from another.
    for engine in &fleet.engines {
        engine.tokenize(&ids, StatusCode::FORBIDDEN);
    }
    chat(&fleet.gateway, &with_image(1)).await;
    assert_eq!(media_counts(&fleet.gateway).await, (0.0, 1.0));
    fleet.gateway.shutdown().await;

    let fleet = self::fleet(Some(toy_tokenizer())).await;
    for engine in &fleet.engines {
        engine.render(&ids);
    }
    chat(&fleet.gateway, &with_image(1)).await;
    assert_eq!(media_counts(&fleet.gateway).await, (0.0, 1.0));
    let features = json!({
        "mm_hashes": {"image": ["cat"]},
        "mm_placeholders": {"image": [{"offset": 50, "length": 30}]},
    });
    for engine in &fleet.engines {
        engine.render_with_media(&ids, &features);
    }
    chat(&fleet.gateway, &with_image(1)).await;
    assert_eq!(media_counts(&fleet.gateway).await, (1.0, 1.0));
    fleet.gateway.shutdown().await;
}

#[tokio::test]
async fn other_apis_are_routed_by_prefix_too() {
    let fleet = fleet(Some(toy_tokenizer())).await;
    fleet.engines.iter().for_each(HttpEngine::hide_usage);
    converse(&fleet, "/v1/messages", |number| {
        let mut body = plain(number);
        body["max_tokens"] = json!(4);
        body["system"] = json!(text(50, 3));
        body
    })
    .await;
    let without = "headstart_prompts_without_tokens_total";
    for reason in ["unsupported-field", "malformed"] {
        assert_eq!(metric(&fleet.gateway, without, reason).await, 0.0);
    }
    fleet.gateway.shutdown().await;
}

#[tokio::test]
async fn a_model_that_no_engine_lists_adds_no_label() {
    let fleet = fleet(None).await;
    for number in 0..3 {
        let mut body = plain(number);
        body["model"] = json!(format!("made-up-{number}"));
        let answer = post(&fleet.gateway, "/v1/chat/completions", &body).await;
        assert_eq!(answer.status, 404);
    }
    let page = get(&fleet.gateway, "/metrics").await.body;
    let without = "headstart_prompts_without_tokens_total";
    let line = format!("{without}{{model_name=\"unlisted\",reason=\"no-tokenizer\"}} 3");
    assert!(page.contains(&line), "{page}");
    assert!(!page.contains("made-up"), "{page}");
    assert!(!logged().contains("made-up"));
    fleet.gateway.shutdown().await;
}
