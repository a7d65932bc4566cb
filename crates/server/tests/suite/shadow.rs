//! Shadow mode: requests go to one upstream unchanged, and other fleets are played beside it.

use crate::support;

use headstart_server::shadow::ShadowConfig;
use headstart_server::{ServeConfig, UpstreamConfig};
use serde_json::{Value, json};
use support::{chat, embedded, get, proxy, start, text, toy_tokenizer};

fn upstream(address: std::net::SocketAddr, tokenizer: bool) -> UpstreamConfig {
    UpstreamConfig {
        url: format!("http://{address}"),
        kv_events: None,
        kv_replay: None,
        data_parallel_size: 1,
        tokenizer: tokenizer.then(toy_tokenizer),
    }
}

fn arm<'a>(report: &'a Value, strategy: &str, blocks: u64) -> &'a Value {
    let arms = report["arms"].as_array().expect("arms");
    let found = arms.iter().find(|arm| arm["strategy"] == strategy && arm["blocks"] == blocks);
    found.unwrap_or_else(|| panic!("no {strategy} of {blocks} in {report}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn other_fleets_are_played_beside_the_upstream() {
    let engine = start(embedded(1, 512)).await;
    let gateway = start(ServeConfig {
        shadow: Some(ShadowConfig { replicas: 2, blocks: 64, block_size: 16 }),
        ..proxy(vec![upstream(engine.address(), true)])
    })
    .await;
    for turn in [1, 1, 2, 2, 1] {
        let body = json!({
            "model": "toy", "max_tokens": 2, "stream": turn == 2,
            "stream_options": if turn == 2 { json!({"include_usage": true}) } else { Value::Null },
            "messages": [{"role": "user", "content": text(100, turn)}],
        });
        assert_eq!(chat(&gateway, &body).await.status, 200);
    }
    let report = loop {
        let report = get(&gateway, "/debug/shadow").await.json();
        if report["requests"] == 5 && report["upstream"]["prompt_tokens"].as_u64() > Some(500) {
            break report;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    assert_eq!((&report["replicas"], &report["left_out"]), (&json!(2), &json!(0)));
    let precise = arm(&report, "precise", 64);
    assert_eq!(precise["prompt_tokens"], report["upstream"]["prompt_tokens"]);
    // The engine found the second, fourth and fifth; a precise fleet would have done so as well.
    assert_eq!(precise["cached_tokens"], report["upstream"]["cached_tokens"]);
    assert!(precise["hit_rate"].as_f64() > Some(0.5), "{report}");
    assert!(arm(&report, "random", 64)["cached_tokens"].is_u64());
    assert!(
        arm(&report, "precise", 32)["cached_tokens"].as_u64() <= precise["cached_tokens"].as_u64()
    );
    gateway.shutdown().await;
    engine.shutdown().await;
}

#[tokio::test]
async fn what_cannot_be_played_is_refused() {
    let shadow = Some(ShadowConfig::default());
    let nobody = ([127, 0, 0, 1], 9).into();
    for (config, why) in [
        (embedded(1, 64), "beside one --upstream"),
        (proxy(vec![upstream(nobody, false)]), "tokenizer=FOLDER"),
    ] {
        let shadow = shadow.clone();
        let config = ServeConfig { shadow, ..config };
        let Err(error) = headstart_server::serve(config).await else {
            panic!("started");
        };
        assert!(error.to_string().contains(why), "{error}");
    }
    let server = start(embedded(1, 64)).await;
    let answer = get(&server, "/debug/shadow").await;
    assert_eq!((answer.status, &answer.error_code()[..]), (404, "no_shadow"));
}
