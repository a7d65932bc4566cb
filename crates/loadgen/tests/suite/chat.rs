//! The closed loop against a fake model with a prefix cache.

use crate::fake;

use std::cell::RefCell;
use std::time::Duration;

use fake::model::Model;
use fake::{End, Fake, Reply};
use headstart_loadgen::{
    Answers, ApiClient, ChatBench, ChatObservations, ChatProgress, ChatReport, Starts, Think, chat,
};
use headstart_trace::format::conversation::{Conversation, Role, Turn};

const BENCH: ChatBench = ChatBench {
    active: 2,
    starts: Starts::Chained,
    think: Think::None,
    seed: 1,
    duration: None,
    max_tokens: 16,
    answers: Answers::Generated,
    max_turns: None,
    max_prompt_tokens: None,
};

/// `count` conversations of `turns` user turns of eight words, recorded answers of three.
fn conversations(count: usize, turns: usize) -> Vec<Conversation> {
    let one = |id: usize| {
        let turns = (0..turns).flat_map(|turn| {
            let said = Turn::new;
            [
                said(Role::User, format!("u{id} asks {turn} a b c d e")),
                said(Role::Assistant, format!("recorded {id} {turn}")),
            ]
        });
        Conversation { id: format!("c{id}"), turns: turns.collect(), ..Conversation::default() }
    };
    (0..count).map(one).collect()
}

async fn observe(
    fake: &Fake,
    conversations: &[Conversation],
    bench: &ChatBench,
) -> ChatObservations {
    let client = ApiClient::new(&fake.url, "m", None).expect("an address");
    chat::run(&client, conversations, bench, |_| ()).await
}

async fn run(fake: &Fake, conversations: &[Conversation], bench: &ChatBench) -> ChatReport {
    ChatReport::of(&observe(fake, conversations, bench).await)
}

/// Cached tokens by turn, on the model above: 9 tokens a user turn, 3 a generated answer, 4 a
/// recorded one.
async fn check_cached(answers: Answers, expected: &[f64]) {
    let model = Model::default();
    let fake = Fake::start(move |body| model.respond(body)).await;
    let report = run(&fake, &conversations(3, 3), &ChatBench { answers, ..BENCH }).await;
    let cached: Vec<f64> = report.turns.iter().map(|row| row.cached_tokens_mean).collect();
    assert_eq!(cached, expected);
    assert_eq!((report.conversations, report.failed, report.truncated), (3, 0, 0));
    assert_eq!((report.all.requests, report.later.requests), (9, 6));
    assert_eq!(report.output_tokens, 18);
    assert_eq!(report.replicas.values().sum::<usize>(), 9);
}

#[tokio::test]
async fn generated_answers_are_found_again_recorded_ones_are_not() {
    // Turn 2 finds user 1 and answer 1 (12 tokens), turn 3 all 24 before its own text.
    check_cached(Answers::Generated, &[0.0, 12.0, 24.0]).await;
    // Turn 2 finds user 1 and the role mark (10), turn 3 finds 9 + 4 + 9 + 1 of turn 2.
    check_cached(Answers::Recorded, &[0.0, 8.0, 20.0]).await;
}

#[tokio::test]
async fn the_history_is_all_that_was_said() {
    let model = Model::default();
    let fake = Fake::start(move |body| model.respond(body)).await;
    let mut conversations = conversations(1, 2);
    conversations[0].turns.insert(0, Turn::new(Role::Assistant, "left over".to_owned()));
    run(&fake, &conversations, &BENCH).await;
    let seen = fake.seen();
    let expected = serde_json::json!([
        {"role": "user", "content": "u0 asks 0 a b c d e"},
        {"role": "assistant", "content": "answer 9"},
        {"role": "user", "content": "u0 asks 1 a b c d e"},
    ]);
    assert_eq!(seen.last().expect("two requests").body["messages"], expected);
    assert_eq!(seen.len(), 2);
}

#[tokio::test]
async fn the_loop_is_closed() {
    let model = Model::default();
    let fake = Fake::start(move |body| model.respond(body)).await;
    let told = RefCell::new(Vec::new());
    let client = ApiClient::new(&fake.url, "m", None).expect("an address");
    let conversations = conversations(6, 2);
    chat::run(&client, &conversations, &BENCH, |progress| {
        told.borrow_mut().push(progress);
    })
    .await;
    // The first two conversations start together; no other starts before one of them has ended.
    let firsts: Vec<String> = fake.seen()[..4]
        .iter()
        .map(|seen| seen.body["messages"][0]["content"].to_string())
        .collect();
    assert!(firsts.iter().all(|text| text.contains("u0") || text.contains("u1")), "{firsts:?}");
    assert!(fake.connections() < 12, "connections are used again");
    let told = told.into_inner();
    assert_eq!(told.len(), 12 + 6);
    let last = ChatProgress { conversations: 6, ended: 6, requests: 12, failed: 0 };
    assert_eq!(told.last(), Some(&last));
}

/// Conversations of ten turns (9 + 12 tokens a turn); `expected`: requests and truncated.
async fn check_end(bench: ChatBench, context: Option<usize>, expected: (usize, usize)) {
    let model = Model { context, ..Model::default() };
    let fake = Fake::start(move |body| model.respond(body)).await;
    let report = run(&fake, &conversations(2, 10), &bench).await;
    assert_eq!((report.all.requests, report.truncated), expected);
    assert_eq!(report.failed, 0, "{:?}", report.failures);
    let labels: Vec<&str> = report.turns.iter().map(|row| row.turn.as_str()).collect();
    assert_eq!(labels.last() == Some(&"9+"), expected.0 == 20, "{labels:?}");
}

#[tokio::test]
async fn long_conversations_are_truncated_not_failed() {
    check_end(BENCH, None, (20, 0)).await;
    check_end(BENCH, Some(50), (8, 2)).await;
    let short = ChatBench { max_turns: Some(3), ..BENCH };
    check_end(short, None, (6, 0)).await;
    let capped = ChatBench { max_prompt_tokens: Some(50), ..BENCH };
    check_end(capped, None, (8, 2)).await;
}

#[tokio::test]
async fn a_failure_ends_its_conversation_only() {
    let model = Model::default();
    let fake = Fake::start(move |body| {
        let text = body["messages"].to_string();
        if text.contains("u1 asks 1") || text.contains("u2 asks") {
            return Reply::error("500 Internal Server Error", r#"{"error": "lost"}"#);
        }
        model.respond(body)
    })
    .await;
    let report = run(&fake, &conversations(4, 2), &BENCH).await;
    assert_eq!((report.all.requests, report.failed), (2 + 1 + 2, 2));
    let mut failures = report.failures;
    failures.sort();
    assert_eq!(
        failures,
        [
            "conversation c1, turn 2: HTTP status 500: lost",
            "conversation c2, turn 1: HTTP status 500: lost",
        ]
    );
}

const THINKING: ChatBench =
    ChatBench { starts: Starts::Spaced, think: Think::Exponential { mean_s: 0.02 }, ..BENCH };

/// Think times by (conversation, turn), of a server of its own.
async fn thinks() -> Vec<(usize, usize, Duration)> {
    let model = Model::default();
    let fake = Fake::start(move |body| model.respond(body)).await;
    let observed = observe(&fake, &conversations(6, 4), &THINKING).await;
    assert_eq!(observed.endings.len(), 6);
    // Closed loop: a request leaves its think time after the answer before it, not earlier.
    for conversation in 0..6 {
        let samples = observed.samples.iter();
        let samples: Vec<_> =
            samples.filter(|sample| sample.conversation == conversation).collect();
        assert_eq!(samples.len(), 4);
        for pair in samples.windows(2) {
            let earliest = pair[0].sent + pair[0].e2e + pair[1].think;
            assert!(pair[1].sent >= earliest, "{pair:?}");
        }
    }
    let mut thinks: Vec<_> = observed
        .samples
        .iter()
        .map(|sample| (sample.conversation, sample.turn, sample.think))
        .collect();
    thinks.sort();
    thinks
}

#[tokio::test]
async fn two_servers_meet_the_same_users() {
    let (first, second) = (thinks().await, thinks().await);
    assert_eq!(first, second);
    let (at_first, later): (Vec<_>, Vec<_>) = first.iter().partition(|(_, turn, _)| *turn == 1);
    assert!(at_first.iter().all(|(_, _, think)| think.is_zero()));
    assert!(later.iter().all(|(_, _, think)| !think.is_zero()));
}

/// The client waits a second for the end of a body, and a think time of a second contains that
/// wait.
#[tokio::test]
async fn users_think_from_the_last_event_of_a_body_that_stays_open() {
    let model = Model::default();
    let fake = Fake::start(move |body| Reply { end: End::Never, ..model.respond(body) }).await;
    let think = Duration::from_secs(1);
    let bench = ChatBench { think: Think::Fixed { seconds: think.as_secs_f64() }, ..BENCH };
    let observed = observe(&fake, &conversations(1, 3), &bench).await;
    let gaps = observed.samples.windows(2).map(|pair| pair[1].sent - pair[0].sent - pair[0].e2e);
    // The shorter of two gaps, because a busy machine may send one of them late.
    let gap = gaps.min().expect("three requests");
    assert!(gap < 2 * think, "{gap:?}");
}

#[tokio::test]
async fn spaced_conversations_begin_when_a_slot_is_free() {
    let model = Model::default();
    let fake = Fake::start(move |body| model.respond(body)).await;
    let bench = ChatBench { think: Think::Fixed { seconds: 0.05 }, ..THINKING };
    // Two slots, open at 0 and 25 ms; each conversation thinks 50 ms in all.
    let observed = observe(&fake, &conversations(6, 2), &bench).await;
    let firsts = observed.samples.iter().filter(|sample| sample.turn == 1);
    let mut firsts: Vec<_> = firsts.collect();
    firsts.sort_by_key(|sample| sample.conversation);
    for (number, sample) in firsts.iter().enumerate() {
        let planned = Duration::from_millis(25 * number as u64);
        assert!(sample.sent >= planned, "{number}: {:?}", sample.sent);
    }
    assert_eq!(firsts.len(), 6);
}

#[tokio::test]
async fn after_its_time_a_run_sends_nothing() {
    let model = Model::default();
    let fake = Fake::start(move |body| model.respond(body)).await;
    let bench = ChatBench {
        think: Think::Fixed { seconds: 3600.0 },
        duration: Some(Duration::from_secs(1)),
        ..THINKING
    };
    // The second slot opens after half an hour; the run waits neither for it nor for a second turn.
    let report = run(&fake, &conversations(3, 2), &bench).await;
    assert_eq!((report.all.requests, report.unfinished), (1, 3));
    assert_eq!(report.failed, 0);
}
