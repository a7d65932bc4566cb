//! An engine that computes nothing and keeps each request as it came, to see what a gateway passes
//! on. It answers the three APIs with usages of their own shapes, and stores responses.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use headstart_server::{RunningServer, UpstreamConfig};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A request as the engine got it.
#[derive(Clone, Debug)]
pub struct Received {
    pub method: Method,
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Requests that it received, its contents, and its settings.
#[derive(Default)]
struct Inner {
    name: String,
    models: Mutex<Vec<String>>,
    adapters: Mutex<Vec<String>>,
    received: Mutex<Vec<Received>>,
    stored: Mutex<HashSet<String>>,
    refuses_adapters: Mutex<bool>,
    is_full: Mutex<bool>,
    refuses: Mutex<bool>,
    rendered: Mutex<Option<Value>>,
    tokenized: Mutex<Option<Vec<u32>>>,
    no_render: Mutex<StatusCode>,
    hides_usage: Mutex<bool>,
}

/// Two engines and a gateway before them.
pub struct Fleet {
    pub engines: [HttpEngine; 2],
    pub gateway: RunningServer,
}

impl Fleet {
    pub async fn start(models: [&[&str]; 2]) -> Self {
        Self::with(models, |_| {}).await
    }

    pub async fn with(
        models: [&[&str]; 2],
        change: impl FnOnce(&mut headstart_server::ServeConfig),
    ) -> Self {
        let engines =
            [HttpEngine::start("e0", models[0]).await, HttpEngine::start("e1", models[1]).await];
        let mut config = super::proxy(engines.iter().map(HttpEngine::upstream).collect());
        config.limits.health_interval = Duration::from_millis(50);
        change(&mut config);
        let gateway = super::start(config).await;
        Self { engines, gateway }
    }

    /// Requests that the engines got.
    pub fn received(&self) -> usize {
        self.engines.iter().map(|engine| engine.received().len()).sum()
    }

    pub fn engine(&self, answer: &super::Answer) -> &HttpEngine {
        let name = answer.json()["engine"].as_str().expect("named").to_owned();
        &self.engines[usize::from(name == "e1")]
    }
}

/// The engine; gone when dropped.
pub struct HttpEngine {
    url: String,
    inner: Arc<Inner>,
    server: JoinHandle<()>,
}

impl Drop for HttpEngine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl HttpEngine {
    /// With a name that its answers have, and its models.
    pub async fn start(name: &str, models: &[&str]) -> Self {
        let inner = Arc::new(Inner {
            name: name.to_owned(),
            no_render: Mutex::new(StatusCode::FORBIDDEN),
            models: Mutex::new(models.iter().map(|&model| model.to_owned()).collect()),
            ..Inner::default()
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let router = Router::new().fallback(answer).with_state(inner.clone());
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("it serves");
        });
        Self { url, inner, server }
    }

    /// Returns the gateway's configuration for this engine.
    pub fn upstream(&self) -> UpstreamConfig {
        UpstreamConfig {
            url: self.url.clone(),
            kv_events: None,
            kv_replay: None,
            data_parallel_size: 1,
            tokenizer: None,
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// All requests but those that a gateway sends by itself.
    pub fn received(&self) -> Vec<Received> {
        self.inner.received.lock().expect("no panic").clone()
    }

    /// The last of them.
    pub fn last(&self) -> Received {
        self.received().last().expect("a request").clone()
    }

    /// From now on it has another model.
    pub fn add_model(&self, name: &str) {
        let mut models = self.inner.models.lock().expect("no panic");
        models.push(name.to_owned());
    }

    /// From now on it answers 429 to new responses.
    pub fn fill(&self) {
        *self.inner.is_full.lock().expect("no panic") = true;
    }

    /// From now on it refuses chats in its own words, and says when to come again.
    pub fn refuse_chats(&self) {
        *self.inner.refuses.lock().expect("no panic") = true;
    }

    /// From now on its `/tokenize` answers these tokens, and its render routes answer `status`.
    pub fn tokenize(&self, ids: &[u32], status: StatusCode) {
        *self.inner.no_render.lock().expect("no panic") = status;
        *self.inner.tokenized.lock().expect("no panic") = Some(ids.to_vec());
    }

    /// From now on its render routes answer these tokens; before, it refuses them, as vLLM 0.32
    /// does without `--enable-scale-out`.
    pub fn render(&self, ids: &[u32]) {
        self.render_with_media(ids, &Value::Null);
    }

    /// The same for a prompt with media, as vLLM describes them.
    pub fn render_with_media(&self, ids: &[u32], features: &Value) {
        let answer = json!({"token_ids": ids, "features": features});
        *self.inner.rendered.lock().expect("no panic") = Some(answer);
    }

    /// From now on answers to chats and messages have no usage: its counts are made up.
    pub fn hide_usage(&self) {
        *self.inner.hides_usage.lock().expect("no panic") = true;
    }

    /// From now on it loads no adapters.
    pub fn refuse_adapters(&self) {
        *self.inner.refuses_adapters.lock().expect("no panic") = true;
    }
}

type Shared = State<Arc<Inner>>;

async fn answer(
    State(inner): Shared,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    // What a gateway asks by itself has passed no gateway.
    let is_passed_on = headers.contains_key("x-headstart-hops");
    let own = ["/health", "/metrics", "/v1/models", "/version"];
    if method == Method::GET && own.contains(&uri.path()) && !is_passed_on {
        return match uri.path() {
            "/v1/models" => inner.list().into_response(),
            "/version" => Json(json!({"version": "0.32.0"})).into_response(),
            _ => StatusCode::OK.into_response(),
        };
    }
    if uri.path().ends_with("/render") {
        return match &*inner.rendered.lock().expect("no panic") {
            Some(answer) => Json(answer).into_response(),
            None => {
                (*inner.no_render.lock().expect("no panic"), "Scale-out endpoints are disabled.")
                    .into_response()
            }
        };
    }
    if uri.path() == "/tokenize"
        && !is_passed_on
        && let Some(ids) = &*inner.tokenized.lock().expect("no panic")
    {
        return Json(json!({"count": ids.len(), "tokens": ids})).into_response();
    }
    inner.received.lock().expect("no panic").push(Received {
        method: method.clone(),
        target: uri.to_string(),
        headers,
        body: body.clone(),
    });
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    let hides_usage = *inner.hides_usage.lock().expect("no panic");
    match uri.path() {
        "/v1/chat/completions" | "/v1/messages" if hides_usage => {
            Json(json!({"id": "1"})).into_response()
        }
        "/v1/chat/completions" if *inner.refuses.lock().expect("no panic") => {
            let error = json!({"error": {"message": "your quota is used up", "code": "quota"}});
            let again = [("retry-after", "7")];
            (StatusCode::TOO_MANY_REQUESTS, again, Json(error)).into_response()
        }
        "/v1/messages" => messages(&json),
        "/v1/responses" => inner.respond(&json),
        "/v1/chat/completions" => Json(json!({
            "id": "chat-1", "choices": [],
            "usage": {"prompt_tokens": 20, "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 16, "created_cache_tokens": 4}},
        }))
        .into_response(),
        "/v1/load_lora_adapter" => inner.load(&json),
        path if path.starts_with("/v1/responses/") => inner.stored(path),
        _ => inner.echo(&method, &uri, &body),
    }
}

impl Inner {
    fn list(&self) -> Json<Value> {
        let card = |name: &String| json!({"id": name});
        let adapter = |name: &String| json!({"id": name, "parent": "m"});
        let models = self.models.lock().expect("no panic");
        let adapters = self.adapters.lock().expect("no panic");
        let data: Vec<Value> =
            models.iter().map(card).chain(adapters.iter().map(adapter)).collect();
        Json(json!({"data": data}))
    }

    fn load(&self, json: &Value) -> Response {
        if *self.refuses_adapters.lock().expect("no panic") {
            return (StatusCode::BAD_REQUEST, "no room for adapters").into_response();
        }
        let name = json["lora_name"].as_str().unwrap_or_default().to_owned();
        self.adapters.lock().expect("no panic").push(name);
        "Success: adapter added".into_response()
    }

    /// An answer of `/v1/responses`; a previous one must be here.
    fn respond(&self, json: &Value) -> Response {
        if *self.is_full.lock().expect("no panic") {
            return StatusCode::TOO_MANY_REQUESTS.into_response();
        }
        let mut stored = self.stored.lock().expect("no panic");
        if let Some(previous) = json["previous_response_id"].as_str()
            && !stored.contains(previous)
        {
            return (StatusCode::NOT_FOUND, "no such response").into_response();
        }
        let id = format!("resp_{}_{}", self.name, stored.len());
        stored.insert(id.clone());
        let usage = json!({
            "input_tokens": 30, "input_tokens_details": {"cached_tokens": 16}, "output_tokens": 2,
        });
        let whole = json!({"id": id, "object": "response", "engine": self.name, "usage": usage});
        if json["stream"] != true {
            return Json(whole).into_response();
        }
        let created = json!({"type": "response.created", "response": {"id": id, "usage": null}});
        let end = json!({"type": "response.completed", "response": whole});
        events(&[("response.created", created), ("response.completed", end)])
    }

    fn stored(&self, path: &str) -> Response {
        let id = path.split('/').nth(3).unwrap_or_default();
        if self.stored.lock().expect("no panic").contains(id) {
            Json(json!({"id": id, "engine": self.name})).into_response()
        } else {
            StatusCode::NOT_FOUND.into_response()
        }
    }

    fn echo(&self, method: &Method, uri: &Uri, body: &Bytes) -> Response {
        let json = json!({
            "engine": self.name, "method": method.as_str(), "target": uri.to_string(),
            "bytes": body.len(),
        });
        let mut response = Json(json).into_response();
        let headers = response.headers_mut();
        for (name, value) in [
            ("x-ratelimit-remaining-tokens", "7"),
            ("x-request-id", "of-the-engine"),
            ("openai-processing-ms", "12"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("connection", "x-of-this-hop"),
            ("x-of-this-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("access-control-allow-origin", "*"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        response
    }
}

fn messages(json: &Value) -> Response {
    let usage = json!({
        "input_tokens": 4, "cache_read_input_tokens": 32, "cache_creation_input_tokens": 16,
        "output_tokens": 3,
    });
    if json["stream"] != true {
        return Json(json!({"id": "msg_1", "type": "message", "usage": usage})).into_response();
    }
    let message = json!({"id": "msg_1", "usage": {"input_tokens": 52, "output_tokens": 0}});
    events(&[
        ("message_start", json!({"type": "message_start", "message": message})),
        ("message_delta", json!({"type": "message_delta", "usage": usage})),
    ])
}

fn events(events: &[(&str, Value)]) -> Response {
    let text: Vec<String> =
        events.iter().map(|(name, data)| format!("event: {name}\ndata: {data}\n\n")).collect();
    let pieces = futures::stream::unfold(text.into_iter(), |mut rest| async move {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let piece = rest.next()?;
        Some((Ok::<_, std::convert::Infallible>(piece), rest))
    });
    let body = Body::from_stream(pieces);
    ([("content-type", "text/event-stream")], body).into_response()
}
