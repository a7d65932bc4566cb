//! Headlines and remarks about the log itself: each test is of a sentence that was not true once.

use serde_json::{Value, json};

use super::{analyzed, clocked, copies, parsed, tokens_in};

fn headline(report: &Value, index: usize) -> &str {
    report["headlines"][index].as_str().unwrap_or_default()
}

fn has_remark(report: &Value, part: &str) -> bool {
    let remarks = report["trace"]["remarks"].as_array().expect("remarks");
    let mut remarks = remarks.iter().filter_map(Value::as_str);
    remarks.any(|remark| remark.contains(part))
}

/// One prompt again and again: what is computed is the end of each, and that is not new.
#[test]
fn ends_of_prompts_are_not_called_new() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = copies(100, |_| json!({}));
    let report = parsed(&analyzed(folder.path(), &log, &["--json"]));
    let first = headline(&report, 0);
    assert!(first.starts_with("Little is recomputed"), "{first}");
    assert!(first.contains("ends of prompts, which are always computed"), "{first}");
    assert!(!first.contains("is new"), "{first}");
}

/// Random ids behind a front of whole blocks: nothing behind it was known.
#[test]
fn random_ids_are_not_known_behind_another_prefix() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % 30_000
    };
    let mut line = |front: u64| {
        let ids = (0..front).chain((0..64).map(|_| random())).collect::<Vec<_>>();
        json!({"model": "m", "prompt": ids}).to_string()
    };
    for front in [0, 64] {
        let log: Vec<_> = (0..200).map(|_| line(front)).collect();
        let report = parsed(&analyzed(folder.path(), &log.join("\n"), &["--json"]));
        assert_eq!(tokens_in(&report, "diverged"), 0, "{front}");
        assert!(tokens_in(&report, "never-seen") > 9_000, "{front}");
        assert!(!has_remark(&report, "toy"), "these are tokens already");
    }
}

/// A large loss without a cause says so, how large it is, and what to run, with an id of the log;
/// a cause that explains little of it is not said to be behind it.
#[test]
fn a_loss_without_a_cause_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    // The last message is another one in each request by intent.
    let report = parsed(&analyzed(folder.path(), &greetings(true), &["--json"]));
    let (first, next) = (headline(&report, 0), headline(&report, 1));
    assert!(first.contains("for an unknown reason"), "{first}");
    let request = report["unnamed"]["request"].as_str().expect("an id");
    let command = format!("`headstart why {request} requests.jsonl --show-text`");
    assert!(request.starts_with('q') && next.contains(&command), "{next}");
    assert!(next.contains("`headstart lint requests.jsonl --show-text`"), "{next}");
}

/// Sixty requests that greet one of six names in front of the same rules.
fn greetings(is_last_message: bool) -> String {
    let names = ["Anna", "Bert", "Cleo", "Dora", "Emil", "Frida"];
    let rules: String = (0..120).map(|rule| format!("Rule {rule} is firm. ")).collect();
    let log = (0..60).map(|number| {
        let name = names[number % 6].repeat(1 + number / 6);
        let prompt = format!("You are talking to {name}. {rules}");
        let mut request = json!({"request_id": format!("q{number}"), "model": "m"});
        if is_last_message {
            request["messages"] = json!([{"role": "system", "content": "Help."},
                {"role": "user", "content": prompt}]);
        } else {
            request["prompt"] = json!(prompt);
        }
        request.to_string()
    });
    log.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_value_without_a_kind_is_named_by_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = parsed(&analyzed(folder.path(), &greetings(false), &["--json"]));
    let finding = &report["findings"][0];
    assert_eq!(finding["cause"], "changing-value", "{finding}");
    assert_eq!(finding["place"], "`You are talking to` in the prompt", "{finding}");
    assert!(finding["fix"].as_str().is_some_and(|fix| fix.contains("`You are talking to`")));
    let text = analyzed(folder.path(), &greetings(false), &[]);
    assert!(text.contains("at: `You are talking to` in the prompt"), "{text}");
    assert!(!text.contains("Anna"), "values stay out: {text}");
}

/// A proxy's constant time says nothing of what a token takes.
#[test]
fn a_constant_time_to_the_first_token_is_not_fitted() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = copies(60, |number| {
        let cached = if number % 2 == 0 { 0 } else { 800 };
        json!({
            "usage": {"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": cached}},
            "ttft_ms": 500,
        })
    });
    let report = parsed(&analyzed(folder.path(), &log, &["--json", "--gpu-hour", "2"]));
    let from = report["fleet"]["seconds_from"].as_str().expect("words");
    assert!(from.contains("data-sheet") && from.contains("do not grow"), "{from}");
    let steps = report["waterfall"].as_array().expect("steps");
    let computed = steps.iter().filter(|step| step["tokens"].as_u64() > Some(0));
    for step in computed {
        assert!(step["seconds"].as_f64() > Some(0.0), "{step}");
    }
}

/// Times follow the log's own count, whatever the toy makes of its texts.
#[test]
fn time_goes_by_the_logs_own_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let seconds = |prompt_tokens: u32| -> f64 {
        let log = copies(30, |_| json!({"usage": {"prompt_tokens": prompt_tokens}}));
        let report = parsed(&analyzed(folder.path(), &log, &["--json"]));
        assert_eq!(report["trace"]["logged"]["prompt_tokens"], 30 * prompt_tokens);
        assert!(has_remark(&report, "the log counts"));
        let steps = report["waterfall"].as_array().expect("steps");
        steps.iter().filter_map(|step| step["seconds"].as_f64()).sum()
    };
    let ratio = seconds(800) / seconds(400);
    assert!((1.8..2.3).contains(&ratio), "{ratio}");
}

/// Users who send the same prompt stay separate, and none continues another one's session.
#[test]
fn sessions_are_inferred_user_by_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = copies(40, |number| json!({"user": format!("u{}", number % 20)}));
    let report = parsed(&analyzed(folder.path(), &log, &["--json"]));
    assert_eq!(report["trace"]["sessions"], 20);
    assert!(has_remark(&report, "user by user"));
    let text = analyzed(folder.path(), &log, &[]);
    assert!(text.contains("20 sessions (inferred) of 20 users"), "{text}");
}

/// A few times that cannot be read cost no other its own.
#[test]
fn a_few_bad_times_are_counted_and_the_others_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let dated = |bad: usize| {
        let log = copies(60, |number| {
            if number < bad {
                json!({"timestamp": "yesterday"})
            } else {
                json!({"timestamp": 1_772_442_000 + 60 * number})
            }
        });
        parsed(&analyzed(folder.path(), &log, &["--json"]))
    };
    let few = dated(2);
    assert_eq!(few["trace"]["span_s"], 57.0 * 60.0);
    assert!(has_remark(&few, "2 of 60 requests without a time"));
    let many = dated(20);
    assert!(many["trace"]["span_s"].is_null());
    assert!(has_remark(&many, "only 40 of 60 requests have a time"));
    assert!(has_remark(&dated(60), "the times of 60 requests cannot be read"));
}

/// Input that is given twice counts twice, and the first headline says so.
#[test]
fn requests_that_are_there_twice_are_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = clocked(30);
    let file = folder.path().join("requests.jsonl").display().to_string();
    let twice = parsed(&analyzed(folder.path(), &log, &[&file, "--json"]));
    assert_eq!(twice["trace"]["copied_requests"], 30);
    assert!(has_remark(&twice, "requests.jsonl: given twice"));
    let first = headline(&twice, 0);
    assert!(first.starts_with("30 of the 60 requests are copies"), "{first}");
    let again = parsed(&analyzed(folder.path(), &format!("{log}\n{log}"), &["--json"]));
    assert_eq!(again["trace"]["copied_requests"], 30);
    assert!(has_remark(&again, "30 requests with the id and the prompt"));
}

/// Sessions without a start: what is drawn or put together is said.
#[test]
fn made_up_arrivals_of_sessions_are_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let request = |at: u64, last: u64| {
        let (tokens, ids) = (64 * last, json!([[1, last]]));
        json!({"t": at, "type": "n", "in": tokens, "out": 1, "hash_ids": ids})
    };
    let session = |id: u64| {
        let requests: Vec<_> = (0..4).map(|number| request(number * 10, 5 + number)).collect();
        json!({"id": id.to_string(), "block_size": 64, "hash_id_scope": "local",
            "requests": requests})
        .to_string()
    };
    let log: Vec<_> = (0..6).map(session).collect();
    let report = parsed(&analyzed(folder.path(), &log.join("\n"), &["--json"]));
    assert!(has_remark(&report, "the log has no start times of sessions"));
    assert!(has_remark(&report, "no block is shared by two sessions"));
    let args = ["--json", "--arrivals", "5"];
    let drawn = parsed(&analyzed(folder.path(), &log.join("\n"), &args));
    assert!(has_remark(&drawn, "they are random, 5 s apart"));
}
