//! Prompt tokens rendered by an engine, and its way to prepare chat requests.
//!
//! vLLM has a render route beside each route with a prompt: it answers a request with the tokens
//! that it would compute. It is asked first. Servers without that route (vLLM before 0.30), and
//! those that refuse it (403: vLLM 0.32 without `--enable-scale-out`), are asked at `/tokenize`,
//! which knows fewer fields, and chats and plain prompts alone.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use headstart_core::TokenId;
use headstart_core::block::Medium;
use headstart_prompt::{Dialect, VllmVersion};
use http::{Method, StatusCode, header};
use serde_json::{Map, Value};

use super::{HEALTH_TIMEOUT, Upstream, whole_body};
use crate::lock::lock;

/// Largest list of token ids that is read: some three million of them.
const TOKENS_BYTES: usize = 32 << 20;

/// Longest answer about an engine's version, bytes.
const VERSION_BYTES: usize = 64 << 10;

/// Longest refusal that is read, bytes: one about a model is a sentence in JSON.
const REFUSAL_BYTES: usize = 64 << 10;

/// Fields of a chat request that `/tokenize` takes as they are.
const TOKENIZE_FIELDS: [&str; 10] = [
    "model",
    "messages",
    "prompt",
    "tools",
    "add_generation_prompt",
    "add_special_tokens",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
    "cache_salt",
];

/// A prompt as an engine renders it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedPrompt {
    /// Its tokens, with placeholders for media.
    pub tokens: Vec<TokenId>,
    /// Its media, sorted by their start; empty also where the route does not name them.
    pub media: Vec<Medium>,
}

impl RenderedPrompt {
    /// Reads a render route's answer, which is a list for plain prompts. `None`: it does not name
    /// one prompt's tokens, or describes media in an unknown way.
    #[must_use]
    pub fn read(answer: &Value) -> Option<Self> {
        let answer = match answer.as_array().map(Vec::as_slice) {
            Some([one]) => one,
            Some(_) => return None,
            None => answer,
        };
        let tokens = ids(&answer["token_ids"])?;
        let media = match &answer["features"] {
            Value::Null => Vec::new(),
            features => media(features, tokens.len())?,
        };
        Some(Self { tokens, media })
    }
}

/// Why an engine did not answer a question about a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuestionFailure {
    /// It has no such route, or refuses all requests there.
    NoRoute,
    /// It did not answer this question; it may answer the next one.
    NoAnswer,
}

impl Upstream {
    /// Whether its answer may name the media of a prompt: `/tokenize` does not.
    #[must_use]
    pub fn names_media(&self) -> bool {
        !self.engine.has_no_render.load(Relaxed)
    }

    /// Returns the engine's way to prepare chat requests, if known.
    #[must_use]
    pub fn dialect(&self) -> Option<Dialect> {
        *lock(&self.engine.dialect)
    }

    /// Forgets what it said of itself: another release may answer next.
    pub(super) fn forget_engine(&self) {
        *lock(&self.engine.dialect) = None;
        self.engine.has_no_render.store(false, Relaxed);
    }

    /// Asks for its version. An engine that does not say is taken for the newest vLLM.
    pub(super) async fn ask_dialect(&self) {
        let request = self.request(Method::GET, "/version", Bytes::new());
        let Ok(answer) = self.send(request, HEALTH_TIMEOUT).await else {
            return;
        };
        let is_known = answer.status().is_success();
        let Some(body) = whole_body(answer, HEALTH_TIMEOUT, VERSION_BYTES).await else {
            return;
        };
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let version = answer["version"].as_str().filter(|_| is_known);
        let dialect = match (self.owner().as_deref(), version.map(VllmVersion::parse)) {
            (Some("sglang"), _) => Dialect::Sglang,
            (_, Some(Some(version))) => Dialect::Vllm(version),
            _ => Dialect::default(),
        };
        tracing::info!(upstream = self.base(), ?version, ?dialect, "the engine's dialect");
        *lock(&self.engine.dialect) = Some(dialect);
    }

    /// Returns the owner of its first model, from its list; engines write their own name.
    fn owner(&self) -> Option<String> {
        let models = self.lock_models();
        models.first().and_then(|model| model.owner.clone())
    }

    /// The prompt that the engine makes of a request with this path and body. `None`: the engine
    /// does not say within `limit`.
    pub async fn render(
        &self,
        path: &str,
        body: &Bytes,
        limit: Duration,
    ) -> Option<RenderedPrompt> {
        let asks_render = !self.engine.has_no_render.load(Relaxed);
        if asks_render {
            let path = path.split('?').next().unwrap_or(path);
            let path = format!("{path}/render");
            match self.ask(&path, without_tensors(body), limit).await {
                Ok(answer) => return RenderedPrompt::read(&answer),
                Err(QuestionFailure::NoRoute) => {
                    // Remembered until the engine goes down, so that each prompt costs one question
                    // and not two.
                    self.engine.has_no_render.store(true, Relaxed);
                }
                Err(QuestionFailure::NoAnswer) => return None,
            }
        }
        let question = tokenize_question(path, body)?;
        let answer = self.ask("/tokenize", question.to_string().into(), limit).await;
        Some(RenderedPrompt { tokens: ids(&answer.ok()?["tokens"])?, media: Vec::new() })
    }

    async fn ask(
        &self,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<Value, QuestionFailure> {
        let mut request = self.request(Method::POST, path, body);
        let json = header::HeaderValue::from_static("application/json");
        request.headers_mut().insert(header::CONTENT_TYPE, json);
        let answer = self.send(request, limit).await;
        let answer = answer.map_err(|_| QuestionFailure::NoAnswer)?;
        let status = answer.status();
        let bytes = if status.is_success() { TOKENS_BYTES } else { REFUSAL_BYTES };
        let body = whole_body(answer, limit, bytes).await.ok_or(QuestionFailure::NoAnswer)?;
        if !status.is_success() {
            return Err(refusal(status, &body));
        }
        serde_json::from_slice(&body).map_err(|_| QuestionFailure::NoAnswer)
    }
}

/// The meaning of a refusal. A missing route and an unknown model have the same status: an adapter
/// may be unloaded while the last list of models still names it.
fn refusal(status: StatusCode, body: &[u8]) -> QuestionFailure {
    match status {
        StatusCode::NOT_FOUND if is_unknown_model(body) => QuestionFailure::NoAnswer,
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::FORBIDDEN => {
            QuestionFailure::NoRoute
        }
        _ => QuestionFailure::NoAnswer,
    }
}

/// Whether a 404 is about the model that the request names. vLLM's type for that is
/// `NotFoundError`; older releases write the error's fields without `error` around them. OpenAI's
/// code is `model_not_found`, and a gateway such as this one has it too. An unknown route has
/// Starlette's `detail` instead, or the type `Not Found` of vLLM's handler.
fn is_unknown_model(body: &[u8]) -> bool {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = answer.get("error").unwrap_or(&answer);
    error["type"] == "NotFoundError" || error["code"] == "model_not_found"
}

fn ids(list: &Value) -> Option<Vec<TokenId>> {
    let id = |id: &Value| id.as_u64().and_then(|id| TokenId::try_from(id).ok());
    list.as_array()?.iter().map(id).collect()
}

/// The media of all modalities, sorted by their start. `None`: the engine describes them otherwise
/// than this gateway knows.
fn media(features: &Value, num_tokens: usize) -> Option<Vec<Medium>> {
    let mut media = Vec::new();
    for (modality, hashes) in features["mm_hashes"].as_object()? {
        let hashes = hashes.as_array()?;
        let places = features["mm_placeholders"][modality].as_array()?;
        if hashes.len() != places.len() {
            return None;
        }
        for (hash, place) in hashes.iter().zip(places) {
            let number = |name: &str| usize::try_from(place[name].as_u64()?).ok();
            media.push(Medium {
                identifier: hash.as_str()?.into(),
                start: number("offset")?,
                length: number("length")?,
            });
        }
    }
    media.sort_by_key(|medium| medium.start);
    // Media that overlap, or end beyond the prompt, would give block keys that no engine has.
    let mut end = 0;
    for medium in &media {
        let is_apart = medium.start >= end && medium.end() <= num_tokens;
        end = is_apart.then_some(medium.end())?;
    }
    Some(media)
}

/// The body with vLLM's request to leave out the tensors of media, which may have megabytes.
fn without_tensors(body: &Bytes) -> Bytes {
    // Added to the text, because a body with images may have megabytes to parse.
    let Some(end) = body.iter().rposition(|&byte| byte == b'}') else {
        return body.clone();
    };
    let mut asked = body[..end].to_vec();
    asked.extend_from_slice(b",\"mm_payload\":\"none\"}");
    asked.into()
}

/// The same prompt for `/tokenize`, which does not know all fields: those that are variables of the
/// template become such. The messages of other APIs would make other prompts there.
fn tokenize_question(path: &str, body: &[u8]) -> Option<Value> {
    if !path.contains("/completions") {
        return None;
    }
    let mut fields: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let mut take = |name: &str| {
        let value = fields.get_mut(name).map(Value::take);
        value.filter(|value| !value.is_null())
    };
    let effort = take("reasoning_effort");
    let documents = take("documents");
    let taken = TOKENIZE_FIELDS.map(|name| take(name).map(|value| (name.to_owned(), value)));
    let mut question: Map<String, Value> = taken.into_iter().flatten().collect();
    let messages = question.get_mut("messages").and_then(Value::as_array_mut);
    let messages = messages.into_iter().flatten();
    for message in messages.filter_map(Value::as_object_mut) {
        if let Some(deprecated) = message.shift_remove("reasoning_content")
            && !deprecated.is_null()
            && message.get("reasoning").is_none_or(Value::is_null)
        {
            message.insert("reasoning".to_owned(), deprecated);
        }
    }
    if effort.is_some() || documents.is_some() {
        let empty = || Value::Object(Map::new());
        let variables = question.entry("chat_template_kwargs").or_insert_with(empty);
        let variables = variables.as_object_mut()?;
        if let Some(effort) = effort {
            let is_on = (effort != "none").into();
            // The client's own setting wins.
            variables.entry("enable_thinking").or_insert(is_on);
            variables.insert("reasoning_effort".to_owned(), effort);
        }
        if let Some(documents) = documents {
            variables.insert("documents".to_owned(), documents);
        }
    }
    Some(question.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UpstreamConfig;
    use serde_json::json;

    const CHAT: &str = "/v1/chat/completions";

    #[test]
    fn both_routes_answers_are_read() {
        let tokens_of =
            |answer: Value| RenderedPrompt::read(&answer).map(|rendered| rendered.tokens);
        assert_eq!(tokens_of(json!({"token_ids": [1, 2]})), Some(vec![1, 2]));
        assert_eq!(tokens_of(json!([{"token_ids": [1]}])), Some(vec![1]));
        assert_eq!(tokens_of(json!([{"token_ids": [1]}, {"token_ids": [2]}])), None);
        assert_eq!(tokens_of(json!({"error": "no"})), None);
        assert_eq!(ids(&json!([])), Some(vec![]));
        assert_eq!(ids(&json!([-1])), None);
    }

    #[test]
    fn media_are_read_in_order_or_not_at_all() {
        let features = |places: Value, hashes: Value| {
            let answer = json!({
                "token_ids": [0, 1, 2, 3, 4, 5, 6, 7],
                "features": {
                    "mm_hashes": {"image": hashes, "audio": ["sound"]},
                    "mm_placeholders": {
                        "image": places,
                        "audio": [{"offset": 3, "length": 1}],
                    },
                },
            });
            RenderedPrompt::read(&answer).map(|rendered| {
                let media = rendered.media.iter();
                media
                    .map(|one| (one.identifier.to_string(), one.start, one.length))
                    .collect::<Vec<_>>()
            })
        };
        let two = || json!(["b", "a"]);
        let place = |offset: i64, length: i64| json!({"offset": offset, "length": length});
        let found = features(json!([place(5, 3), place(1, 2)]), two()).expect("well-formed");
        let expected = [("a", 1, 2), ("sound", 3, 1), ("b", 5, 3)];
        assert_eq!(found, expected.map(|(name, start, length)| (name.to_owned(), start, length)));
        for places in [
            json!([place(5, 3)]),
            json!([place(5, 4), place(1, 2)]),
            json!([place(5, 3), place(1, 3)]),
            json!([place(5, 3), place(-1, 2)]),
            json!([place(5, 3), place(i64::MAX, i64::MAX)]),
            json!("none"),
        ] {
            assert_eq!(features(places.clone(), two()), None, "{places}");
        }
        assert_eq!(features(json!([place(5, 3), place(1, 2)]), json!([1, 2])), None);
    }

    #[test]
    fn tokenize_gets_the_fields_that_it_knows() {
        let body = json!({
            "model": "m",
            "stream": true,
            "messages": [{"role": "assistant", "content": "a", "reasoning_content": "r"}],
            "reasoning_effort": "high",
        });
        let expected = json!({
            "model": "m",
            "messages": [{"role": "assistant", "content": "a", "reasoning": "r"}],
            "chat_template_kwargs": {"enable_thinking": true, "reasoning_effort": "high"},
        });
        assert_eq!(tokenize_question(CHAT, body.to_string().as_bytes()), Some(expected));
        let body = body.to_string();
        assert_eq!(tokenize_question("/v1/messages", body.as_bytes()), None);
    }

    #[test]
    fn fields_of_other_types_ask_nothing_strange() {
        let of = |body: Value| tokenize_question(CHAT, body.to_string().as_bytes());
        assert_eq!(of(json!(["a list"])), None);
        let strange = json!({"reasoning_effort": "low", "chat_template_kwargs": "a text"});
        assert_eq!(of(strange), None);
        let messages = json!(["a text", 1, null]);
        let strange = json!({ "messages": messages });
        assert_eq!(of(strange.clone()), Some(strange));
    }

    /// The answers of vLLM, and of its older releases.
    const UNKNOWN_MODEL: [&str; 2] = [
        r#"{"error":{"message":"The model `a` does not exist.","type":"NotFoundError",
            "param":"model","code":404}}"#,
        r#"{"object":"error","message":"The model `a` does not exist.","type":"NotFoundError",
            "param":null,"code":404}"#,
    ];

    #[test]
    fn an_unknown_model_is_no_missing_route() {
        let gateway = r#"{"error":{"message":"…","type":"invalid_request_error",
            "param":"model","code":"model_not_found"}}"#;
        for body in UNKNOWN_MODEL.into_iter().chain([gateway]) {
            let failure = refusal(StatusCode::NOT_FOUND, body.as_bytes());
            assert_eq!(failure, QuestionFailure::NoAnswer, "{body}");
        }
        let http = r#"{"error":{"message":"Not Found","type":"Not Found","param":null,
            "code":404}}"#;
        for body in [r#"{"detail":"Not Found"}"#, http, "404 page not found", "", "[1]"] {
            let failure = refusal(StatusCode::NOT_FOUND, body.as_bytes());
            assert_eq!(failure, QuestionFailure::NoRoute, "{body}");
        }
        for (status, failure) in [
            (StatusCode::FORBIDDEN, QuestionFailure::NoRoute),
            (StatusCode::METHOD_NOT_ALLOWED, QuestionFailure::NoRoute),
            (StatusCode::BAD_REQUEST, QuestionFailure::NoAnswer),
            (StatusCode::SERVICE_UNAVAILABLE, QuestionFailure::NoAnswer),
        ] {
            assert_eq!(refusal(status, b""), failure, "{status}");
        }
    }

    /// An engine that answers 404 with this body to all requests.
    async fn refusing(body: &'static str) -> Upstream {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let refuse = move || async move { (StatusCode::NOT_FOUND, body) };
        let routes = axum::Router::new().fallback(refuse);
        // Ends with the test's runtime.
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let config = UpstreamConfig {
            url,
            kv_events: None,
            kv_replay: None,
            data_parallel_size: 1,
            tokenizer: None,
        };
        Upstream::new(&config, None).expect("an address")
    }

    #[tokio::test]
    async fn an_unknown_model_does_not_end_the_questions_to_the_render_route() {
        for (body, has_render) in [(UNKNOWN_MODEL[0], true), (r#"{"detail":"Not Found"}"#, false)] {
            let upstream = refusing(body).await;
            let chat = Bytes::from_static(br#"{"model": "a", "messages": []}"#);
            let rendered = upstream.render(CHAT, &chat, Duration::from_secs(60)).await;
            assert_eq!((rendered, upstream.names_media()), (None, has_render), "{body}");
        }
    }

    #[test]
    fn a_body_is_asked_without_tensors() {
        let asked = without_tensors(&Bytes::from_static(b"{\"a\": 1} "));
        assert_eq!(&asked[..], b"{\"a\": 1,\"mm_payload\":\"none\"}");
    }
}
