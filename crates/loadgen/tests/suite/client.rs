//! Tests of the client against a server with scripted answers.

use crate::fake;

use std::time::Duration;

use fake::{End, Fake, Reply, events};
use headstart_loadgen::{ApiClient, ChatApiRequest, Completion, LoadgenError};
use headstart_trace::format::conversation::{Role, Turn};

async fn ask(fake: &Fake) -> Result<Completion, LoadgenError> {
    ask_salted(fake, None).await
}

async fn ask_salted(fake: &Fake, cache_salt: Option<&str>) -> Result<Completion, LoadgenError> {
    let client = ApiClient::new(&fake.url, "m", Some("key")).expect("an address");
    let messages = [Turn::new(Role::User, "hi".to_owned())];
    let request = ChatApiRequest { messages: &messages, max_tokens: 7, cache_salt };
    client.with_request_timeout(Duration::from_secs(20)).chat(&request).await
}

/// One request answered by `reply`; `expected`: a part of the error.
async fn check_error(reply: impl Fn() -> Reply + Send + Sync + 'static, expected: &str) {
    let fake = Fake::start(move |_| reply()).await;
    let error = ask(&fake).await.expect_err(expected).to_string();
    assert!(error.contains(expected), "{error} lacks {expected}");
}

#[tokio::test]
async fn an_answer_is_read_however_it_is_cut() {
    let stream = events("héllo wörld", 20, 16).concat();
    let crlf = String::from_utf8(stream.clone()).expect("text").replace('\n', "\r\n");
    for size in [1, 2, 3, 7, 50, stream.len()] {
        for bytes in [stream.clone(), crlf.clone().into_bytes()] {
            let fake = Fake::start(move |_| {
                let mut reply = Reply::ok(bytes.chunks(size).map(<[u8]>::to_vec).collect());
                reply.headers.push("X-Headstart-Replica: r1".to_owned());
                reply
            })
            .await;
            let got = ask(&fake).await.expect("an answer");
            assert_eq!(got.text, "héllo wörld");
            assert_eq!((got.prompt_tokens, got.cached_tokens, got.output_tokens), (20, 16, 2));
            assert_eq!((got.finish_reason.as_str(), got.replica.as_deref()), ("stop", Some("r1")));
            assert!(Duration::ZERO < got.ttft && got.ttft <= got.e2e);
        }
    }
}

#[tokio::test]
async fn the_request_is_a_greedy_stream_with_usage() {
    let fake = Fake::start(|_| Reply::ok(events("a", 1, 0))).await;
    ask(&fake).await.expect("an answer");
    ask_salted(&fake, Some("s")).await.expect("an answer");
    let seen = fake.seen();
    assert!(seen[0].head.starts_with("post /v1/chat/completions http/1.1"));
    assert!(seen[0].head.contains("authorization: bearer key"));
    let mut expected = serde_json::json!({
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 7,
        "temperature": 0.0,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    assert_eq!(seen[0].body, expected);
    expected["cache_salt"] = "s".into();
    assert_eq!(seen[1].body, expected);
}

#[tokio::test]
async fn an_error_status_brings_the_servers_words() {
    let body = r#"{"error": {"message": "no such model", "type": "x", "code": "nope"}}"#;
    check_error(move || Reply::error("404 Not Found", body), "HTTP status 404: no such model")
        .await;
    check_error(|| Reply::error("502 Bad Gateway", "<h1>"), "502: <h1>").await;
    let broken = || Reply { end: End::Cut, ..Reply::error("500 Internal Server Error", "x") };
    check_error(broken, "500: no readable body").await;
}

#[tokio::test]
async fn a_broken_stream_is_an_error() {
    for kept in 0..events("a b", 1, 0).len() - 1 {
        let cut =
            move || Reply { end: End::Cut, ..Reply::ok(events("a b", 1, 0)[..kept].to_vec()) };
        check_error(cut, "broke off its answer").await;
    }
    let short = || Reply::ok(events("a b", 1, 0)[..3].to_vec());
    check_error(short, "before any `finish_reason`").await;
    let event = || Reply::ok(vec![b"data: {\"error\": {\"message\": \"oom\"}}\n\n".to_vec()]);
    check_error(event, "oom").await;
    let endless = || Reply::ok(vec![vec![b'x'; 1 << 16]; 17]);
    check_error(endless, "longer than 1048576 bytes").await;
    check_error(|| Reply::ok(vec![b"data: {\n\n".to_vec()]), "no completion chunk").await;
}

#[tokio::test]
async fn what_follows_the_last_event_does_not_matter() {
    let cut = |_: &_| Reply { end: End::Cut, ..Reply::ok(events("a", 1, 0)) };
    let fake = Fake::start(cut).await;
    assert_eq!(ask(&fake).await.expect("an answer").text, "a");
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let silent = |_: &_| Reply { end: End::Never, ..Reply::ok(vec![]) };
    let fake = Fake::start(silent).await;
    let client = ApiClient::new(&fake.url, "m", None).expect("an address");
    let request = ChatApiRequest { messages: &[], max_tokens: 1, cache_salt: None };
    let client = client.with_request_timeout(Duration::from_millis(20));
    let error = client.chat(&request).await.expect_err("silence").to_string();
    assert!(error.contains("had not finished its answer after 0.02 s"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("bound")
    };
    let client = ApiClient::new(&format!("http://{gone}"), "m", None).expect("an address");
    let request = ChatApiRequest { messages: &[], max_tokens: 1, cache_salt: None };
    let error = client.chat(&request).await.expect_err("nobody").to_string();
    assert!(error.contains(&gone.to_string()) && error.contains("refused"), "{error}");
}

#[tokio::test]
async fn an_unusable_key_is_refused_before_sending() {
    let error = ApiClient::new("http://a", "m", Some("two\nlines")).expect_err("a bad key");
    assert!(matches!(error, LoadgenError::ApiKey));
}
