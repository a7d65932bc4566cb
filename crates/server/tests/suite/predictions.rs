//! Predictions as requests meet them: they reach the policy, and no request waits for them.

use crate::support;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use headstart_core::Probability;
use headstart_server::config::EngineBackend;
use headstart_server::prediction::{
    Became, ConversationPredictor, PredictionConfig, PredictorStatus, Reads, TurnOutcome,
    TurnQuestion,
};
use headstart_server::{RunningServer, ServeConfig};
use serde_json::{Value, json};
use support::{chat, drained, embedded, eventually, get, post, start, text};

/// Says what the prompt tells it to: `keep`, `drop`, `panic`, or nothing.
#[derive(Default)]
struct Fake {
    asked: Mutex<Vec<TurnQuestion>>,
    told: Mutex<Vec<TurnOutcome>>,
    /// While true, it answers nothing.
    is_stuck: Mutex<bool>,
    freed: Condvar,
}

impl ConversationPredictor for Fake {
    fn reads(&self) -> Reads {
        Reads { prompts: 2, answers: false }
    }

    fn prior(&self, _turn: u16) -> Probability {
        Probability::EVEN
    }

    fn predict(&self, questions: &[TurnQuestion]) -> Vec<Option<Probability>> {
        let mut is_stuck = self.is_stuck.lock().expect("no panic holds it");
        while *is_stuck {
            is_stuck = self.freed.wait(is_stuck).expect("no panic holds it");
        }
        drop(is_stuck);
        let mut asked = self.asked.lock().expect("no panic holds it");
        asked.extend_from_slice(questions);
        drop(asked);
        let answer = |question: &TurnQuestion| {
            let prompt = question.said.prompts.last().expect("there is a prompt");
            let p = match prompt {
                prompt if prompt.contains("keep") => 0.99,
                prompt if prompt.contains("drop") => 0.01,
                prompt if prompt.contains("panic") => panic!("as asked for"),
                _ => return None,
            };
            Probability::new(p)
        };
        questions.iter().map(answer).collect()
    }

    fn learn(&self, outcomes: &[TurnOutcome]) {
        let mut told = self.told.lock().expect("no panic holds it");
        told.extend_from_slice(outcomes);
    }

    fn status(&self) -> PredictorStatus {
        PredictorStatus { model: Some("fake".to_owned()), ..PredictorStatus::default() }
    }
}

impl Fake {
    fn stick(&self, is_stuck: bool) {
        *self.is_stuck.lock().expect("no panic holds it") = is_stuck;
        self.freed.notify_all();
    }

    fn asked(&self) -> Vec<TurnQuestion> {
        self.asked.lock().expect("no panic holds it").clone()
    }

    fn told(&self) -> Vec<TurnOutcome> {
        self.told.lock().expect("no panic holds it").clone()
    }
}

/// One replica of `cache_blocks` under `policy`, and who predicts for it.
fn predicted(cache_blocks: usize, policy: &str, horizon: Duration) -> (ServeConfig, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    let mut config = embedded(1, cache_blocks);
    let EngineBackend::Embedded(fleet) = &mut config.backend else {
        panic!("an embedded fleet");
    };
    fleet.policy = policy.to_owned();
    fleet.prediction = Some(PredictionConfig { predictor: fake.clone(), horizon });
    (config, fake)
}

/// A body of alternating user and assistant messages.
fn body(said: &[&str], max_tokens: usize) -> Value {
    let message = |(index, content): (usize, &&str)| {
        let role = ["user", "assistant"][index % 2];
        json!({"role": role, "content": content})
    };
    let messages: Vec<_> = said.iter().enumerate().map(message).collect();
    json!({"model": "toy", "messages": messages, "max_tokens": max_tokens, "ignore_eos": true})
}

/// Sends and returns the answer and how many prompt tokens were cached.
async fn ask(server: &RunningServer, said: &[&str], max_tokens: usize) -> (String, u64) {
    let answer = chat(server, &body(said, max_tokens)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let cached = answer.header("x-headstart-cached-tokens");
    let cached = cached.and_then(|count| count.parse().ok());
    let answer = answer.json()["choices"][0]["message"]["content"].clone();
    (answer.as_str().unwrap_or_default().to_owned(), cached.expect("a count"))
}

/// The value of a metric, 0 where it is not there.
async fn metric(server: &RunningServer, name: &str) -> f64 {
    let metrics = get(server, "/metrics").await.body;
    let mut lines = metrics.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0.0, |value| value.parse().expect("a number"))
}

async fn ended(server: &RunningServer, outcome: &str) -> f64 {
    let name = format!("headstart_predictions_total{{outcome=\"{outcome}\"}}");
    metric(server, &name).await
}

/// Waits until `count` predictions have ended so.
async fn until_ended(server: &RunningServer, outcome: &str, count: f64) {
    let wait = async {
        while ended(server, outcome).await < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(support::PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("never came: {count} predictions that ended in {outcome}"));
    assert_eq!(ended(server, outcome).await, count, "{outcome}");
}

const HOUR: Duration = Duration::from_secs(3600);

/// Three conversations in a cache for two of them: what do the first two find again?
async fn found_again(policy: &str) -> (u64, u64) {
    let (config, _) = predicted(64, policy, HOUR);
    let server = start(config).await;
    let kept = format!("keep {}", text(220, 1));
    let dropped = format!("drop {}", text(220, 2));
    let (kept_answer, _) = ask(&server, &[&kept], 80).await;
    let (dropped_answer, _) = ask(&server, &[&dropped], 80).await;
    until_ended(&server, "model", 2.0).await;
    ask(&server, &[&text(600, 3)], 4).await;
    let kept = ask(&server, &[&kept, &kept_answer, "And?"], 1).await.1;
    let dropped = ask(&server, &[&dropped, &dropped_answer, "And?"], 1).await.1;
    drained(&server).await;
    server.shutdown().await;
    (kept, dropped)
}

#[tokio::test]
async fn what_the_model_says_decides_who_stays() {
    let (kept, dropped) = found_again("lpc").await;
    assert!(kept >= 288, "all of the older one stayed, not {kept}");
    assert!(dropped < 144, "most of the newer one went, not {dropped}");
    let (kept, _) = found_again("lru").await;
    assert!(kept < 144, "LRU lets the older one go, not all but {kept}");
}

#[tokio::test]
async fn a_stuck_predictor_delays_no_request_and_a_full_queue_drops() {
    let (config, fake) = predicted(256, "lpc", HOUR);
    let server = start(config).await;
    fake.stick(true);
    // 16 at most are in the predictor's hands and 256 wait.
    let calls = 16 + 256 + 8;
    for call in 0..calls {
        ask(&server, &[&format!("keep {call}")], 1).await;
    }
    let dropped = ended(&server, "dropped").await;
    assert!((8.0..24.0).contains(&dropped), "{dropped} were dropped");
    assert_eq!(metric(&server, "headstart_prediction_queue").await, 256.0);
    fake.stick(false);
    until_ended(&server, "late", f64::from(calls) - dropped).await;
    assert_eq!(ended(&server, "model").await, 0.0);
    // It works again, and a stuck one does not hold up the end.
    ask(&server, &["keep the last"], 60).await;
    until_ended(&server, "model", 1.0).await;
    fake.stick(true);
    ask(&server, &["keep more"], 1).await;
    tokio::time::timeout(support::PATIENCE, server.shutdown())
        .await
        .expect("it stops without its predictor");
    fake.stick(false);
}

#[tokio::test]
async fn a_panicking_predictor_costs_its_answer_and_nothing_else() {
    let (config, _) = predicted(256, "lpc", HOUR);
    let server = start(config).await;
    for call in 0..3 {
        ask(&server, &[&format!("panic {call}")], 2).await;
        until_ended(&server, "failed", f64::from(call) + 1.0).await;
    }
    assert_eq!(metric(&server, "headstart_predictor_panics_total").await, 3.0);
    ask(&server, &["nothing to say"], 2).await;
    until_ended(&server, "prior", 1.0).await;
    ask(&server, &["keep"], 60).await;
    until_ended(&server, "model", 1.0).await;
    drained(&server).await;
    server.shutdown().await;
}

#[tokio::test]
async fn outcomes_follow_from_the_requests_alone() {
    let (config, fake) = predicted(256, "lru", Duration::from_millis(1500));
    let server = start(config).await;
    let (answer, _) = ask(&server, &["one"], 2).await;
    ask(&server, &["one"], 2).await;
    ask(&server, &["other"], 2).await;
    ask(&server, &["one", &answer, "two"], 2).await;
    let plain = json!({"model": "toy", "prompt": "one", "max_tokens": 2});
    assert_eq!(post(&server, "/v1/completions", &plain).await.status, 200);
    eventually("all outcomes", || fake.told().len() == 3).await;
    let asked = fake.asked();
    let seen = |index: usize| {
        let question = &asked[index];
        (question.turn, question.is_repeat, &question.said.prompts[..])
    };
    assert_eq!(asked.len(), 4, "plain completions are not asked about");
    assert_eq!(seen(0), (1, false, &["one".to_owned()][..]));
    assert_eq!(seen(1), (1, true, &["one".to_owned()][..]));
    assert_eq!(seen(3), (2, false, &["one".to_owned(), "two".to_owned()][..]));
    assert_eq!(asked[0].conversation, asked[3].conversation);
    assert_ne!(asked[0].conversation, asked[2].conversation);
    assert!(asked[0].gap.is_none() && asked[3].gap.is_some());
    let told: Vec<_> = fake.told().iter().map(|one| (one.id, one.became)).collect();
    let expected = [
        (asked[0].id, Became::Continued),
        (asked[2].id, Became::Ended),
        (asked[3].id, Became::Ended),
    ];
    assert_eq!(told, expected);
    let turns = "headstart_turns_total{outcome=\"ended\"}";
    assert_eq!(metric(&server, turns).await, 2.0);
    assert_eq!(metric(&server, "headstart_turns_tracked").await, 0.0);
    let model = "headstart_predictor_model_info{fingerprint=\"fake\"}";
    assert_eq!(metric(&server, model).await, 1.0);
    server.shutdown().await;
}

#[tokio::test]
async fn a_server_that_predicts_nothing_says_nothing_of_it() {
    let server = start(embedded(1, 64)).await;
    ask(&server, &["keep"], 2).await;
    let metrics = get(&server, "/metrics").await.body;
    let of_predictor = ["headstart_predictor", "headstart_prediction", "headstart_turn"];
    for name in of_predictor {
        assert!(!metrics.contains(name), "{name}: {metrics}");
    }
    server.shutdown().await;
}
