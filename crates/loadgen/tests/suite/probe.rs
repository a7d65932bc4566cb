//! The reuse probe against a fake model with a prefix cache.

use crate::fake;

use fake::model::Model;
use fake::{Fake, Reply, events};
use headstart_loadgen::probe::{self, ProbeOrder};
use headstart_loadgen::{ApiClient, LoadgenError, ProbeReport, ReuseProbe};
use serde_json::Value;

const PROBE: ReuseProbe =
    ReuseProbe { rounds: 4, prompt_tokens: 500, new_share: 0.1, max_tokens: 8, seed: 1 };

async fn run(fake: &Fake) -> Result<ProbeReport, LoadgenError> {
    let client = ApiClient::new(&fake.url, "m", None).expect("an address");
    probe::run(&client, &PROBE, |_| ()).await
}

/// All rounds invalid, for a reason that has `expected` in it.
async fn check_invalid(respond: impl Fn(&Value) -> Reply + Send + Sync + 'static, expected: &str) {
    let fake = Fake::start(respond).await;
    let report = run(&fake).await.expect("calibrated");
    assert_eq!((report.rounds.len(), report.invalid.len()), (0, PROBE.rounds));
    for invalid in &report.invalid {
        assert!(invalid.reason.contains(expected), "{} lacks {expected}", invalid.reason);
    }
}

#[tokio::test]
async fn pairs_are_equal_but_for_the_cache() {
    let model = Model::default();
    let fake = Fake::start(move |body| model.respond(body)).await;
    // Twice against one server: the second run must not find the first one's prompts.
    for _ in 0..2 {
        let report = run(&fake).await.expect("calibrated");
        assert_eq!(report.invalid, []);
        let (prompt, cached) = (report.prompt_tokens_mean, report.cached_tokens_mean);
        assert!((500.0..600.0).contains(&prompt), "{prompt}");
        assert!((0.85..0.95).contains(&(cached / prompt)), "{cached} of {prompt}");
        assert!(report.ttft_ratio.is_some());
        let orders: Vec<ProbeOrder> = report.rounds.iter().map(|round| round.order).collect();
        assert_eq!(orders[..2], [ProbeOrder::CachedFirst, ProbeOrder::UncachedFirst]);
        assert_eq!(orders[..2], orders[2..]);
    }
    let seen = fake.seen();
    let last: Vec<_> = seen[seen.len() - 3..].iter().map(|seen| &seen.body).collect();
    assert_eq!(last[1]["messages"], last[2]["messages"]);
    assert_eq!(last[0]["cache_salt"], last[2]["cache_salt"], "uncached went first");
    assert_ne!(last[1]["cache_salt"], last[2]["cache_salt"]);
}

#[tokio::test]
async fn a_server_that_ignores_salts_is_found_out() {
    let model = Model { ignores_salt: true, ..Model::default() };
    check_invalid(move |body| model.respond(body), "under a fresh salt").await;
}

#[tokio::test]
async fn a_server_without_a_cache_is_found_out() {
    let respond = |body: &Value| {
        let words = body["messages"].to_string().split_whitespace().count();
        Reply::ok(events("a", words, 0))
    };
    check_invalid(respond, "only 0 of").await;
}

#[tokio::test]
async fn failures_make_a_round_invalid() {
    let model = Model::default();
    let respond = move |body: &Value| match body["cache_salt"].as_str() {
        Some(_) => Reply::error("503 Service Unavailable", r#"{"error": "busy"}"#),
        None => model.respond(body),
    };
    check_invalid(respond, "turn 1: HTTP status 503: busy").await;
}

#[tokio::test]
async fn a_server_that_does_not_count_is_an_error() {
    let fake = Fake::start(|_| Reply::ok(events("a", 7, 0))).await;
    let error = run(&fake).await.expect_err("no length").to_string();
    assert!(error.contains("stayed at 7 of 463 tokens"), "{error}");
}
