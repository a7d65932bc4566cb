//! A fleet that is played by a cost model: real scheduler, cache, events and API.

use crate::support;

use std::time::{Duration, Instant};

use headstart_core::{CostModel, EngineModel};
use headstart_server::EngineBackend;
use serde_json::json;
use support::{chat, drained, embedded, start, text};

/// 10 ms a step and 0.1 ms a token.
const ENGINE: EngineModel = EngineModel {
    cost: CostModel {
        overhead_s: 0.01,
        weights_s: 0.0,
        token_s: 1e-4,
        pair_s: 0.0,
        kv_token_s: 0.0,
        sequence_s: 0.0,
    },
    max_batched_tokens: 8_192,
    kv_tokens: 4_096,
    load_token_s: 0.0,
};

#[tokio::test]
async fn an_emulated_fleet_takes_its_time_and_caches_for_real() {
    let mut config = embedded(2, 256);
    if let EngineBackend::Embedded(fleet) = &mut config.backend {
        fleet.emulated = Some(Box::new(ENGINE));
    }
    let server = start(config).await;
    let body = json!({
        "model": "toy", "messages": [{"role": "user", "content": text(300, 1)}], "max_tokens": 20,
    });
    let began = Instant::now();
    let first = chat(&server, &body).await;
    let least = Duration::from_millis(20 * 10);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    assert_eq!(first.status, 200);
    let used = first.json()["usage"].clone();
    assert_eq!(used["completion_tokens"], 20);
    drained(&server).await;
    let second = chat(&server, &body).await;
    let replica = "x-headstart-replica";
    assert_eq!(second.header(replica), first.header(replica));
    let cached = second.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert!(cached > Some(250), "{cached:?}");
    let answer = |reply: &support::Answer| reply.json()["choices"][0]["message"]["content"].clone();
    assert_eq!(answer(&first), answer(&second));
    server.shutdown().await;
}
