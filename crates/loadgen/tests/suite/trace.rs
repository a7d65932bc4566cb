//! A trace against a fake model: what is sent, when, and what is made of the answers.

use crate::fake;

use std::time::{Duration, Instant};

use fake::{Fake, Reply};
use headstart_core::{Nanos, SessionId};
use headstart_loadgen::{ApiClient, Pace, TraceObserved, TraceReport, trace};
use headstart_trace::materialize::TokenPrompt;
use serde_json::{Value, json};

fn prompt(number: u64, arrival_ms: u64) -> TokenPrompt {
    TokenPrompt {
        number,
        arrival: Nanos(arrival_ms * 1_000_000),
        session: (number == 1).then_some(SessionId(4)),
        tokens: vec![700 + number as u32; 20],
        output_tokens: 3,
        ..TokenPrompt::default()
    }
}

/// A plain completion whose prompt was cached but for its last four tokens.
fn answer(body: &Value) -> Reply {
    let tokens = body["prompt"].as_array().expect("token ids").len();
    let events = [
        json!({"choices": [{"index": 0, "text": "a", "finish_reason": null}]}),
        json!({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}),
        json!({"choices": [], "usage": {
            "prompt_tokens": tokens, "completion_tokens": body["max_tokens"],
            "prompt_tokens_details": {"cached_tokens": tokens - 4},
        }}),
    ];
    let events = events.iter().map(Value::to_string);
    let events = events.chain(["[DONE]".to_owned()]);
    Reply::ok(events.map(|event| format!("data: {event}\n\n").into_bytes()).collect())
}

async fn run(
    respond: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    prompts: Vec<Result<TokenPrompt, String>>,
    pace: Pace,
) -> (Fake, Result<TraceObserved, String>) {
    let fake = Fake::start(respond).await;
    let client = ApiClient::new(&fake.url, "m", None).expect("an address");
    let observed = trace::run(&client, prompts.into_iter(), pace, |_| ()).await;
    (fake, observed)
}

#[tokio::test]
async fn prompts_are_sent_in_order_as_token_ids_with_forced_lengths() {
    let prompts = (0..3).map(|number| Ok(prompt(number, 0))).collect();
    let (fake, observed) = run(answer, prompts, Pace::Sequential).await;
    let observed = observed.expect("no bad prompt");
    let seen = fake.seen();
    assert!(seen[0].head.starts_with("post /v1/completions http/1.1"));
    let mut expected = json!({
        "model": "m", "prompt": vec![701; 20], "max_tokens": 3, "min_tokens": 3,
        "ignore_eos": true, "temperature": 0, "user": "session-4",
        "stream": true, "stream_options": {"include_usage": true},
    });
    assert_eq!(seen[1].body, expected);
    expected["prompt"] = json!(vec![702; 20]);
    expected.as_object_mut().expect("an object").remove("user");
    assert_eq!(seen[2].body, expected);
    let numbers: Vec<_> = observed.samples.iter().map(|s| s.number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!(fake.connections(), 1, "one at a time needs one connection");
    let report = TraceReport::of(&observed);
    assert_eq!((report.prompt_tokens, report.cached_tokens), (60, 48));
    assert_eq!((report.hit_rate, report.output_tokens), (0.8, 9));
}

#[tokio::test]
async fn open_mode_keeps_the_arrivals_at_its_speed() {
    let prompts = [9_000, 9_100, 9_400].into_iter().enumerate();
    let prompts = prompts.map(|(number, at)| Ok(prompt(number as u64, at))).collect();
    let pace = Pace::Open { speed: 2.0, concurrency: 8 };
    let started = Instant::now();
    let (_, observed) = run(answer, prompts, pace).await;
    let took = started.elapsed();
    assert_eq!(observed.expect("no bad prompt").samples.len(), 3);
    assert!(
        (Duration::from_millis(200)..Duration::from_secs(5)).contains(&took),
        "{took:?}: the last is due 200 ms after the first, not 9.4 s after the start"
    );
}

#[tokio::test]
async fn the_concurrency_limit_makes_requests_late() {
    let slow = |body: &Value| {
        std::thread::sleep(Duration::from_millis(50));
        answer(body)
    };
    let prompts = (0..3).map(|number| Ok(prompt(number, 0))).collect();
    let pace = Pace::Open { speed: 1.0, concurrency: 1 };
    let (_, observed) = run(slow, prompts, pace).await;
    let late: Vec<_> = observed.expect("no bad prompt").samples.iter().map(|s| s.late).collect();
    assert!(late[1] >= Duration::from_millis(50), "{late:?}");
    assert!(late[2] >= Duration::from_millis(100), "{late:?}");
}

/// Three requests of two sessions, all due at once, to a server that takes 50 ms for each.
#[tokio::test]
async fn a_session_waits_for_its_answers_and_for_no_others() {
    let slow = |body: &Value| {
        std::thread::sleep(Duration::from_millis(50));
        answer(body)
    };
    let of_session = |(number, session): (u64, u64)| {
        Ok(TokenPrompt { session: Some(SessionId(session)), ..prompt(number, 0) })
    };
    let prompts = [(0, 7), (1, 7), (2, 8)].into_iter().map(of_session).collect();
    let pace = Pace::Sessions { speed: 1.0, concurrency: 8 };
    let (fake, observed) = run(slow, prompts, pace).await;
    let observed = observed.expect("no bad prompt");
    let order: Vec<_> = observed.samples.iter().map(|sample| sample.number).collect();
    assert_eq!(order.last(), Some(&1), "{order:?}");
    assert_eq!(fake.seen()[2].body["prompt"][0], 701, "it is sent after the others");
    let late = observed.samples.iter().map(|sample| sample.late).max();
    assert!(late < Some(Duration::from_millis(50)), "its session is no lateness: {late:?}");
}

#[tokio::test]
async fn a_failed_request_is_counted_and_the_rest_goes_on() {
    let refuse_second = |body: &Value| match body["prompt"][0].as_u64() {
        Some(701) => Reply::error("400 Bad Request", r#"{"error": {"message": "too long"}}"#),
        _ => answer(body),
    };
    let prompts = (0..3).map(|number| Ok(prompt(number, 0))).collect();
    let (_, observed) = run(refuse_second, prompts, Pace::Sequential).await;
    let report = TraceReport::of(&observed.expect("no bad prompt"));
    assert_eq!((report.requests, report.failed), (3, 1));
    assert!(report.failures[0].starts_with("request 1: "), "{report:?}");
    assert!(report.failures[0].contains("too long"), "{report:?}");
}

#[tokio::test]
async fn a_bad_line_ends_the_run() {
    let prompts = vec![Ok(prompt(0, 0)), Err("line 2".to_owned()), Ok(prompt(2, 0))];
    let (fake, observed) = run(answer, prompts, Pace::Sequential).await;
    assert_eq!(observed.err().as_deref(), Some("line 2"));
    assert_eq!(fake.seen().len(), 1);
}
