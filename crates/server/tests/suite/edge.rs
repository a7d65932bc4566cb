//! HTTP as people use it: headers both ways, packed bodies, pages of other origins, errors in the
//! shape of each API, and what a server says of itself.

use crate::support;

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use headstart_server::Cors;
use http::HeaderValue;
use serde_json::json;
use support::http_engine::{Fleet, HttpEngine, Received};
use support::{exchange, exchange_bytes, get, post, request, request_bytes, start};

#[tokio::test]
async fn headers_cross_in_both_directions_but_those_of_a_connection() {
    let fleet = Fleet::with([&["m"], &["m"]], |config| {
        config.api_key = Some("k".to_owned());
    })
    .await;
    let headers = "authorization: bearer k\r\nx-api-key: k\r\nanthropic-version: 2023-06-01\r\n\
                   openai-organization: org\r\nx-request-id: r1\r\ncookie: c=1\r\n\
                   user-agent: test/1\r\naccept-encoding: gzip\r\nte: trailers\r\n\
                   keep-alive: timeout=9\r\nproxy-authorization: Basic x\r\n\
                   connection: x-mine\r\nx-mine: 1\r\n";
    let body = r#"{"model": "m", "messages": [], "input": "x"}"#;
    for (path, accepts) in [("/v1/embeddings", Some("gzip")), ("/v1/chat/completions", None)] {
        let answer = exchange(&fleet.gateway, &request("POST", path, headers, body)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let all = fleet.engines.iter().flat_map(HttpEngine::received);
        let last = all.filter(|received| received.target == path).last().expect("came");
        for (name, expected) in [
            ("anthropic-version", Some("2023-06-01")),
            ("openai-organization", Some("org")),
            ("x-request-id", Some("r1")),
            ("cookie", Some("c=1")),
            ("user-agent", Some("test/1")),
            ("x-headstart-hops", Some("1")),
            ("accept-encoding", accepts),
            ("authorization", None),
            ("x-api-key", None),
            ("te", None),
            ("keep-alive", None),
            ("connection", None),
            ("proxy-authorization", None),
            ("x-mine", None),
        ] {
            assert_eq!(last.header(name), expected, "{path}: {name}");
        }
        assert_ne!(last.header("host"), Some("t"), "the engine's own host");
    }
    let answer =
        exchange(&fleet.gateway, &request("POST", "/v1/embeddings", "x-api-key: k\r\n", body))
            .await;
    for (name, expected) in [
        ("x-ratelimit-remaining-tokens", Some("7")),
        ("x-request-id", Some("of-the-engine")),
        ("openai-processing-ms", Some("12")),
        ("x-of-this-hop", None),
        ("keep-alive", None),
        ("access-control-allow-origin", None),
    ] {
        assert_eq!(answer.header(name), expected, "{name}");
    }
    let cookies = answer.head.lines().filter(|line| line.starts_with("set-cookie"));
    assert_eq!(cookies.count(), 2, "{}", answer.head);
    let none = exchange(&fleet.gateway, &request("POST", "/v1/embeddings", "", body)).await;
    assert_eq!((none.status, &none.error_code()[..]), (401, "invalid_api_key"));
    fleet.gateway.shutdown().await;
}

fn packed(coding: &str, text: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text).expect("writes");
            encoder.finish().expect("ends")
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text).expect("writes");
            encoder.finish().expect("ends")
        }
        "zstd" => {
            ruzstd::encoding::compress_to_vec(text, ruzstd::encoding::CompressionLevel::Fastest)
        }
        _ => {
            let mut out = Vec::new();
            let mut writer = brotli::CompressorWriter::new(&mut out, 4096, 5, 20);
            writer.write_all(text).expect("writes");
            drop(writer);
            out
        }
    }
}

#[tokio::test]
async fn packed_bodies_are_unpacked_and_bombs_refused() {
    let fleet = Fleet::with([&["m"], &["m"]], |config| {
        config.limits.body_bytes = 200_000;
    })
    .await;
    let plain =
        json!({"model": "m", "messages": [{"role": "user", "content": "hello ".repeat(99)}]});
    let plain = plain.to_string();
    let bomb = vec![b' '; 10_000_000];
    for coding in ["gzip", "deflate", "zstd", "br"] {
        let headers = format!("content-encoding: {coding}\r\n");
        for path in ["/v1/chat/completions", "/v1/embeddings"] {
            let raw = request_bytes(path, &headers, &packed(coding, plain.as_bytes()));
            let answer = exchange_bytes(&fleet.gateway, &raw).await;
            assert_eq!(answer.status, 200, "{coding} {path}: {answer:?}");
            let all = fleet.engines.iter().flat_map(HttpEngine::received);
            let is_here = |received: &Received| received.target == path;
            for got in all.filter(is_here) {
                assert_eq!(got.body, plain, "{coding}");
                assert_eq!(got.header("content-encoding"), None);
                let length = plain.len().to_string();
                assert_eq!(got.header("content-length"), Some(&length[..]));
            }
            let raw = request_bytes(path, &headers, &packed(coding, &bomb));
            let answer = exchange_bytes(&fleet.gateway, &raw).await;
            assert_eq!(
                (answer.status, &answer.error_code()[..]),
                (413, "body_too_large"),
                "{coding}"
            );
        }
    }
    let raw = request("POST", "/v1/score", "content-encoding: compress\r\n", "x");
    let answer = exchange(&fleet.gateway, &raw).await;
    assert_eq!(answer.status, 415);
    assert!(answer.body.contains("zstd"), "{}", answer.body);
    let raw = request("POST", "/v1/score", "content-encoding: gzip\r\n", "x");
    let answer = exchange(&fleet.gateway, &raw).await;
    assert_eq!((answer.status, &answer.error_code()[..]), (400, "invalid_encoding"));
    fleet.gateway.shutdown().await;
}

#[tokio::test]
async fn pages_of_other_origins_may_call_only_where_the_operator_says_so() {
    let origin = "https://chat.example";
    let preflight = |origin: &str| {
        let headers = format!(
            "origin: {origin}\r\naccess-control-request-method: POST\r\n\
             access-control-request-headers: authorization, x-stainless-os\r\n"
        );
        request("OPTIONS", "/v1/chat/completions", &headers, "")
    };
    let on = Fleet::with([&["m"], &["m"]], |config| {
        config.edge.cors = Cors::Origins(vec![HeaderValue::from_static("https://chat.example")]);
        config.api_key = Some("k".to_owned());
    })
    .await;
    let answer = exchange(&on.gateway, &preflight(origin)).await;
    assert_eq!(answer.status, 200, "a preflight has no key: {answer:?}");
    assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
    let allowed = answer.header("access-control-allow-headers").expect("told");
    assert!(allowed.contains("x-stainless-os"), "{allowed}");
    let other = exchange(&on.gateway, &preflight("https://evil.example")).await;
    assert_eq!(other.header("access-control-allow-origin"), None);
    let headers = format!("origin: {origin}\r\nauthorization: Bearer k\r\n");
    let answer = exchange(&on.gateway, &request("GET", "/version", &headers, "")).await;
    assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
    let exposed = answer.header("access-control-expose-headers").expect("told");
    assert!(exposed.contains("x-headstart-replica"), "{exposed}");
    assert_eq!(on.received(), 1);
    on.gateway.shutdown().await;

    let off = Fleet::start([&["m"], &["m"]]).await;
    let answer = exchange(&off.gateway, &preflight(origin)).await;
    assert_eq!((answer.status, off.received()), (403, 0), "{answer:?}");
    let headers = format!("origin: {origin}\r\n");
    let answer = exchange(&off.gateway, &request("GET", "/version", &headers, "")).await;
    assert_eq!(answer.header("access-control-allow-origin"), None);
    off.gateway.shutdown().await;
}

#[tokio::test]
async fn both_kinds_of_server_describe_themselves() {
    let fleet = Fleet::start([&["m"], &["org/n"]]).await;
    let document = get(&fleet.gateway, "/openapi.json").await.json();
    assert!(document["paths"]["/v1/responses"].is_object());
    let names = &document["components"]["schemas"]["ModelName"]["enum"];
    assert_eq!(names, &json!(["m", "org/n"]));
    let card = get(&fleet.gateway, "/v1/models/org/n").await.json();
    assert_eq!(card["id"], "org/n");
    fleet.gateway.shutdown().await;

    let server = start(support::embedded(1, 64)).await;
    let document = get(&server, "/openapi.json").await.json();
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.contains_key("/version") && paths.contains_key("/v1/chat/completions"));
    let version = get(&server, "/version").await.json();
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(get(&server, "/v1/models/toy").await.json()["id"], "toy");
    for (path, status, code) in [
        ("/v1/models/none", 404, "model_not_found"),
        ("/v1/models/%ff", 400, "invalid_path"),
        ("/v1/embeddings", 404, "not_found"),
        ("/sleep", 404, "not_found"),
    ] {
        let answer = get(&server, path).await;
        assert_eq!((answer.status, &answer.error_code()[..]), (status, code), "{path}");
    }
    let body = r#"{"model": "toy", "messages": [{"role": "user", "content": "Hi"}]}"#;
    let headers = "content-encoding: zstd\r\n";
    let raw = request_bytes("/v1/chat/completions", headers, &packed("zstd", body.as_bytes()));
    assert_eq!(exchange_bytes(&server, &raw).await.status, 200);
    server.shutdown().await;
}

#[tokio::test]
async fn errors_have_the_shape_of_their_api() {
    let fleet = Fleet::start([&["m"], &["m"]]).await;
    let body = json!({"model": "none", "messages": []});
    let answer = post(&fleet.gateway, "/v1/messages", &body).await;
    let error = answer.json();
    assert_eq!((answer.status, &error["type"]), (404, &json!("error")));
    assert_eq!(error["error"]["type"], "not_found_error");
    let answer = post(&fleet.gateway, "/v1/responses", &body).await;
    assert_eq!((answer.status, &answer.error_code()[..]), (404, "model_not_found"));
    fleet.gateway.shutdown().await;
}
