//! `headstart analyze` and `headstart demo`, as users and scripts call them.

mod support;

use std::path::Path;

use serde_json::{Value, json};
use support::{output, text};

/// A log in a folder of its own, analyzed with `args`; what is printed.
fn analyzed(folder: &Path, log: &str, args: &[&str]) -> String {
    let file = folder.join("requests.jsonl");
    std::fs::write(&file, log).expect("writes");
    let file = file.display().to_string();
    let args: Vec<&str> = ["analyze", &file]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    let output = output(args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("one JSON object")
}

/// Requests that share everything but a clock at the start of a long system prompt.
fn clocked(requests: usize) -> String {
    let rules: Vec<String> = (0..80)
        .map(|rule| format!("Rule {rule}: the keeper of key {rule} answers for door {rule}."))
        .collect();
    let line = |number: usize| {
        let system = format!(
            "It is 2026-03-02 09:{number:02}:17 now. {}",
            rules.join(" ")
        );
        json!({
            "request_id": format!("q{number}"),
            "model": "m",
            "user": format!("secret-user-{}", number % 3),
            "created": 1_772_442_000 + number * 60,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": format!("Which door is number {number}?")},
            ],
        })
        .to_string()
    };
    (0..requests).map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_clock_is_found_first_and_its_text_shown_only_when_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = clocked(30);
    let hidden = analyzed(folder.path(), &log, &["--json"]);
    assert!(
        !hidden.contains("09:01:17") && !hidden.contains("keeper"),
        "{hidden}"
    );
    assert!(!hidden.contains("secret-user"), "{hidden}");
    let report = parsed(&hidden);
    let finding = &report["findings"][0];
    assert_eq!(finding["cause"], "clock");
    assert_eq!(finding["requests"], 29);
    assert!(finding["example"]["old"].is_null());
    assert!(finding["tokens"].as_u64() > Some(10_000), "{finding}");
    let headline = report["headlines"][0].as_str().expect("a sentence");
    assert!(
        headline.contains("a date or time that changes"),
        "{headline}"
    );
    let shown = parsed(&analyzed(folder.path(), &log, &["--json", "--show-text"]));
    let example = &shown["findings"][0]["example"];
    assert!(
        example["new"]
            .as_str()
            .is_some_and(|new| new.contains("09:")),
        "{example}"
    );
}

#[test]
fn the_waterfall_sums_to_the_prompt_and_has_its_money() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = [
        "--json",
        "--gpu-hour",
        "2.5",
        "--kv-bytes",
        "1000",
        "--capacity",
        "1MB",
    ];
    let report = parsed(&analyzed(folder.path(), &clocked(12), &args));
    let steps = report["waterfall"].as_array().expect("steps");
    let tokens: u64 = steps
        .iter()
        .filter_map(|step| step["tokens"].as_u64())
        .sum();
    assert_eq!(Some(tokens), report["trace"]["prompt_tokens"].as_u64());
    assert!(steps.iter().any(|step| step["money"].as_f64() > Some(0.0)));
    assert_eq!(
        report["fleet"]["capacity_blocks"], 62,
        "a megabyte in blocks of 16,000 bytes"
    );
    assert_eq!(report["routing"]["replicas"], 4);
    for part in ["ceiling", "curve", "documents", "characterization", "knee"] {
        assert!(report.get(part).is_some(), "{part}");
    }
}

/// The money of some models' tokens is not shown as that of all.
#[test]
fn without_a_price_for_every_model_no_sum_has_money() {
    let folder = tempfile::tempdir().expect("a folder");
    let prices = folder.path().join("prices.toml");
    let table = "currency = \"EUR\"\n[models.m]\ncache_miss = 1\ncache_hit = 0.1\noutput = 2\n";
    std::fs::write(&prices, table).expect("writes");
    let prices = prices.display().to_string();
    // Tokens with money and without, and how many the remark says are of unpriced models.
    let told = |log: &str| {
        let args = ["--json", "--price-table", &prices];
        let report = parsed(&analyzed(folder.path(), log, &args));
        let steps = report["waterfall"].as_array().expect("steps");
        let tokens = |has_money: bool| -> u64 {
            let some = steps
                .iter()
                .filter(|step| step["money"].is_number() == has_money);
            some.filter_map(|step| step["tokens"].as_u64()).sum()
        };
        let remarks = report["trace"]["remarks"].as_array().expect("remarks");
        let mut said = remarks.iter().filter_map(Value::as_str);
        let remark = said.find_map(|it| it.split_once(" of the prompt tokens are of models"));
        let unpriced = remark.map(|(count, _)| count.replace(',', ""));
        let unpriced = unpriced.map(|count| count.parse::<u64>().expect("a number"));
        let money = &report["findings"][0]["money"];
        (tokens(true), tokens(false), unpriced, money.is_number())
    };
    let log = clocked(12);
    let (all, none, unpriced, has_money) = told(&log);
    assert_eq!((none, unpriced, has_money), (0, None, true));
    assert!(all > 10_000, "{all}");
    // Every request of another model: nothing has a price.
    let other = log.replace("\"model\":\"m\"", "\"model\":\"n\"");
    assert_eq!(told(&other), (0, all, Some(all), false));
    // Both: at least the tails of either are in one bucket.
    let (priced, without, unpriced, _) = told(&format!("{log}\n{other}"));
    assert_eq!(priced + without, 2 * all);
    assert_eq!(unpriced, Some(all));
    assert!(without > all, "{without} of {}", 2 * all);
}

#[test]
fn what_the_log_says_was_cached_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let usage = ", \"usage\": {\"prompt_tokens\": 1000, \"prompt_tokens_details\": \
                 {\"cached_tokens\": 250}}}";
    let plain = clocked(8);
    let log = plain
        .lines()
        .map(|line| line.trim_end_matches('}').to_owned() + usage);
    let log: Vec<_> = log.collect();
    let report = parsed(&analyzed(folder.path(), &log.join("\n"), &["--json"]));
    assert_eq!(report["fleet"]["requests_with_own_cached_tokens"], 8);
    let device = &report["waterfall"][0];
    let share = device["share"].as_f64().expect("a share");
    assert!((share - 0.25).abs() < 0.01, "{share}");
}

/// `requests` copies of one long prompt, each with what `more` says of it.
fn copies(requests: usize, more: impl Fn(usize) -> Value) -> String {
    let rules = (0..120).map(|rule| format!("Rule {rule} is on page {}.", rule * 7));
    let line = |number: usize| {
        let mut line = json!({"model": "m", "prompt": rules.clone().collect::<Vec<_>>().join(" ")});
        for (name, value) in more(number).as_object().expect("fields") {
            line[name] = value.clone();
        }
        line.to_string()
    };
    (0..requests).map(line).collect::<Vec<_>>().join("\n")
}

fn tokens_in(report: &Value, bucket: &str) -> u64 {
    let steps = report["waterfall"].as_array().expect("steps");
    let step = steps.iter().find(|step| step["bucket"] == bucket);
    step.and_then(|step| step["tokens"].as_u64()).unwrap_or(0)
}

/// Nobody knows what the engine held: nothing is said to be evicted, and the first thing told is
/// that nothing was served.
#[test]
fn an_engine_that_serves_nothing_is_told_first_and_nothing_is_invented() {
    let folder = tempfile::tempdir().expect("a folder");
    let usage = json!({"prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 0}});
    let log = copies(
        30,
        |number| json!({"usage": usage, "created": 1_772_442_000 + 60 * number}),
    );
    let report = parsed(&analyzed(folder.path(), &log, &["--json"]));
    for invented in ["evicted", "held-elsewhere", "device"] {
        assert_eq!(tokens_in(&report, invented), 0, "{invented}");
    }
    assert!(tokens_in(&report, "index-wrong") > 10_000);
    assert_eq!(report["logged"]["served_tokens"], 0);
    assert!(report["logged"]["replayed_share"].as_f64() > Some(0.9));
    let first = report["headlines"][0].as_str().expect("a sentence");
    assert!(first.contains("served nothing from its cache"), "{first}");
    assert!(first.contains("30 requests"), "{first}");
}

#[test]
fn what_is_asked_at_once_is_in_flight_where_times_tell() {
    let folder = tempfile::tempdir().expect("a folder");
    let at_once = copies(
        24,
        |number| json!({"timestamp": 1_772_442_000.0 + (number / 8 * 60) as f64, "ttft_ms": 400}),
    );
    let report = parsed(&analyzed(folder.path(), &at_once, &["--json"]));
    let (burst, found) = (
        tokens_in(&report, "in-flight"),
        tokens_in(&report, "device"),
    );
    // Seven of the first eight find the prompt being computed; of the others all find it.
    assert!(
        burst > 0 && found > 2 * burst && found < 3 * burst,
        "{burst} {found}"
    );
    let undated = copies(24, |_| json!({}));
    let report = parsed(&analyzed(folder.path(), &undated, &["--json"]));
    assert_eq!(tokens_in(&report, "in-flight"), 0);
}

#[test]
fn a_log_without_times_says_nothing_of_durations() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = copies(24, |_| json!({}));
    let report = parsed(&analyzed(folder.path(), &log, &["--json"]));
    assert!(report["trace"]["span_s"].is_null());
    for timed in ["over_time", "reuse", "lifespan", "next_turn"] {
        assert!(report["characterization"][timed].is_null(), "{timed}");
    }
    let text = analyzed(folder.path(), &log, &[]);
    assert!(!text.contains("until reuse"), "{text}");
    assert!(text.contains("the requests have no times"), "{text}");
}

#[test]
fn one_request_claims_nothing_and_few_say_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = analyzed(folder.path(), &copies(1, |_| json!({})), &[]);
    assert!(text.contains("1 request, 1 session"), "{text}");
    assert!(text.contains(" 1. One request alone shares"), "{text}");
    assert!(!text.contains(" 2. "), "{text}");
    let text = analyzed(folder.path(), &copies(3, |_| json!({})), &[]);
    assert!(text.contains(" 1. These are 3 requests only"), "{text}");
}

/// What one tenant sent cannot serve another, in whatever order.
#[test]
fn advice_on_order_stays_within_a_salt() {
    let folder = tempfile::tempdir().expect("a folder");
    let added = |salts: usize| {
        let log = copies(24, |number| {
            let prompt = format!(
                "{number} is who asks. {}",
                "One of many rules. ".repeat(300)
            );
            json!({"prompt": prompt, "cache_salt": format!("tenant {}", number % salts)})
        });
        let report = parsed(&analyzed(folder.path(), &log, &["--json"]));
        report["documents"]["order_free_tokens"]
            .as_u64()
            .expect("texts")
    };
    assert!(added(1) > 10_000);
    assert_eq!(added(24), 0);
}

/// The mean of many draws, not one: of two requests one in four finds the other's replica.
#[test]
fn random_routing_is_a_mean() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = parsed(&analyzed(
        folder.path(),
        &copies(2, |_| json!({})),
        &["--json"],
    ));
    let random = &report["routing"]["random"];
    let (mean, best) = (&random["tokens"], &report["routing"]["precise"]["tokens"]);
    assert!(random["draws"].as_u64() >= Some(32), "{random}");
    let share = mean.as_f64().expect("tokens") / best.as_f64().expect("tokens");
    assert!((0.05..0.5).contains(&share), "{share}");
}

#[test]
fn a_page_goes_to_standard_output_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = analyzed(folder.path(), &clocked(5), &["--html", "-"]);
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    let log = folder.path().join("requests.jsonl").display().to_string();
    check_refused(
        &["analyze", &log, "--html", "-", "--json"],
        2,
        "--html - --json",
    );
    check_refused(&["analyze", &log, "--export", "-"], 2, "name a file");
}

#[test]
fn an_export_says_the_same_and_names_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let export = folder.path().join("export.jsonl");
    let export_name = export.display().to_string();
    let log = clocked(10);
    let report = parsed(&analyzed(
        folder.path(),
        &log,
        &["--json", "--export", &export_name],
    ));
    let written = std::fs::read_to_string(&export).expect("written");
    for secret in ["secret-user", "keeper", "q1", "\"m\""] {
        assert!(!written.contains(secret), "{secret} in {written}");
    }
    let output = output(["analyze", &export_name, "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let again = parsed(&text(&output.stdout));
    for part in ["ceiling", "curve", "knee"] {
        assert_eq!(again[part], report[part], "{part}");
    }
    // Ids name whole prefixes: nobody can tell what is new from what changed in front.
    assert_eq!(
        tokens_in(&again, "never-seen") + tokens_in(&again, "diverged"),
        0
    );
    assert!(tokens_in(&again, "new-or-changed") > 0);
    assert_eq!(tokens_in(&again, "device"), tokens_in(&report, "device"));
}

#[test]
fn the_demo_needs_nothing_and_finds_what_was_put_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("demo.html");
    let output = output(["demo", "--json", "--html", &page.display().to_string()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = parsed(&text(&output.stdout));
    let findings = report["findings"].as_array().expect("findings");
    let causes: Vec<_> = findings
        .iter()
        .filter_map(|it| it["cause"].as_str())
        .collect();
    assert_eq!(causes, ["clock", "document-order", "tool-order"]);
    let headlines = report["headlines"].as_array().expect("headlines");
    assert!((3..=5).contains(&headlines.len()), "{headlines:?}");
    let page = std::fs::read_to_string(page).expect("written");
    for resource in [
        "http:", "https:", "src=", "href=", "url(", "@import", "fetch(",
    ] {
        assert!(!page.contains(resource), "{resource} in the page");
    }
    assert!(page.contains("default-src 'none'") && page.contains("document-order"));
    assert!(text(&output.stderr).contains("headstart analyze requests.jsonl"));
}

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
    assert!(first.starts_with("Little is computed twice"), "{first}");
    assert!(
        first.contains("ends of prompts, which are always computed"),
        "{first}"
    );
    assert!(!first.contains("is new"), "{first}");
}

/// Random ids behind a front of whole blocks: nothing behind it was known.
#[test]
fn random_ids_are_not_known_behind_another_prefix() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut state = 7u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % 30_000
    };
    let mut line = |front: u64| {
        let ids = (0..front)
            .chain((0..64).map(|_| random()))
            .collect::<Vec<_>>();
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
    let names = ["Anna", "Bert", "Cleo", "Dora", "Emil", "Frida"];
    let rules: String = (0..120)
        .map(|rule| format!("Rule {rule} is firm. "))
        .collect();
    let log = (0..60).map(|number| {
        let name = names[number % 6].repeat(1 + number / 6);
        let prompt = format!("You are talking to {name}. {rules}");
        json!({"request_id": format!("q{number}"), "prompt": prompt}).to_string()
    });
    let log: Vec<_> = log.collect();
    let report = parsed(&analyzed(folder.path(), &log.join("\n"), &["--json"]));
    let (first, next) = (headline(&report, 0), headline(&report, 1));
    assert!(first.contains("for no cause that has a name"), "{first}");
    let request = report["unnamed"]["request"].as_str().expect("an id");
    let command = format!("`headstart why {request} requests.jsonl --show-text`");
    assert!(
        request.starts_with('q') && next.contains(&command),
        "{next}"
    );
    assert!(
        next.contains("`headstart lint requests.jsonl --show-text`"),
        "{next}"
    );
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
    let report = parsed(&analyzed(
        folder.path(),
        &log,
        &["--json", "--gpu-hour", "2"],
    ));
    let from = report["fleet"]["seconds_from"].as_str().expect("words");
    assert!(
        from.contains("data-sheet") && from.contains("do not grow"),
        "{from}"
    );
    let steps = report["waterfall"].as_array().expect("steps");
    let computed = steps
        .iter()
        .filter(|step| step["tokens"].as_u64() > Some(0));
    for step in computed {
        assert!(step["seconds"].as_f64() > Some(0.0), "{step}");
    }
}

/// What a log counts itself is what time goes by, whatever the toy makes of its texts.
#[test]
fn time_goes_by_the_logs_own_count() {
    let folder = tempfile::tempdir().expect("a folder");
    let seconds = |prompt_tokens: u32| -> f64 {
        let log = copies(30, |_| json!({"usage": {"prompt_tokens": prompt_tokens}}));
        let report = parsed(&analyzed(folder.path(), &log, &["--json"]));
        assert_eq!(
            report["trace"]["logged"]["prompt_tokens"],
            30 * prompt_tokens
        );
        assert!(has_remark(&report, "the log counts"));
        let steps = report["waterfall"].as_array().expect("steps");
        steps
            .iter()
            .filter_map(|step| step["seconds"].as_f64())
            .sum()
    };
    let ratio = seconds(800) / seconds(400);
    assert!((1.8..2.3).contains(&ratio), "{ratio}");
}

/// Users who send the same prompt are users, and go on with nobody else's session.
#[test]
fn sessions_are_inferred_user_by_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = copies(40, |number| json!({"user": format!("u{}", number % 20)}));
    let report = parsed(&analyzed(folder.path(), &log, &["--json"]));
    assert_eq!(report["trace"]["sessions"], 20);
    assert!(has_remark(&report, "user by user"));
    let text = analyzed(folder.path(), &log, &[]);
    assert!(
        text.contains("20 sessions (inferred) of 20 users"),
        "{text}"
    );
}

/// A few times that cannot be read cost no other its own.
#[test]
fn a_few_bad_times_are_counted_and_the_others_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let dated = |bad: usize| {
        let log = copies(60, |number| match number < bad {
            true => json!({"timestamp": "yesterday"}),
            false => json!({"timestamp": 1_772_442_000 + 60 * number}),
        });
        parsed(&analyzed(folder.path(), &log, &["--json"]))
    };
    let few = dated(2);
    assert_eq!(few["trace"]["span_s"], 57.0 * 60.0);
    assert!(has_remark(&few, "2 of 60 requests without a time"));
    let many = dated(20);
    assert!(many["trace"]["span_s"].is_null());
    assert!(has_remark(&many, "only 40 of 60 requests have a time"));
    assert!(has_remark(
        &dated(60),
        "the times of 60 requests cannot be read"
    ));
}

/// What is given twice counts twice, and that is the first thing said.
#[test]
fn requests_that_are_there_twice_are_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = clocked(30);
    let file = folder.path().join("requests.jsonl").display().to_string();
    let twice = parsed(&analyzed(folder.path(), &log, &[&file, "--json"]));
    assert_eq!(twice["trace"]["copied_requests"], 30);
    assert!(has_remark(&twice, "requests.jsonl: given twice"));
    let first = headline(&twice, 0);
    assert!(
        first.starts_with("30 of the 60 requests are copies"),
        "{first}"
    );
    let again = parsed(&analyzed(
        folder.path(),
        &format!("{log}\n{log}"),
        &["--json"],
    ));
    assert_eq!(again["trace"]["copied_requests"], 30);
    assert!(has_remark(&again, "30 requests with the id and the prompt"));
}

/// Sessions without a start: what is drawn or put together is said.
#[test]
fn made_up_arrivals_of_sessions_are_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let request = |at: u64, last: u64| json!({"t": at, "type": "n", "in": 64 * last, "out": 1, "hash_ids": [[1, last]]});
    let session = |id: u64| {
        let requests: Vec<_> = (0..4).map(|it| request(it * 10, 5 + it)).collect();
        json!({"id": id.to_string(), "block_size": 64, "hash_id_scope": "local",
            "requests": requests})
        .to_string()
    };
    let log: Vec<_> = (0..6).map(session).collect();
    let report = parsed(&analyzed(folder.path(), &log.join("\n"), &["--json"]));
    assert!(has_remark(&report, "when sessions start is not recorded"));
    assert!(has_remark(&report, "no block is shared by two sessions"));
    let args = ["--json", "--arrivals", "5"];
    let drawn = parsed(&analyzed(folder.path(), &log.join("\n"), &args));
    assert!(has_remark(&drawn, "starts are drawn, 5 s apart"));
}

fn check_refused(args: &[&str], code: i32, part: &str) {
    let output = output(args);
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {complaint}");
    assert!(complaint.contains(part), "{args:?}: {complaint}");
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log.jsonl");
    std::fs::write(&log, "{\"prompt\": \"x\"}\n{\"model\": 1}\n").expect("writes");
    let log = log.display().to_string();
    check_refused(&["analyze"], 2, "FILE");
    check_refused(
        &["analyze", "./absent.jsonl"],
        1,
        "cannot open ./absent.jsonl",
    );
    check_refused(&["analyze", &log], 1, "line 2: no prompt");
    check_refused(
        &["analyze", &log, "--skip-bad"],
        1,
        "no request has a whole block",
    );
    check_refused(
        &["analyze", &log, "--skip-bad", "--html", &log],
        2,
        "is an input",
    );
    check_refused(
        &["analyze", &log, "--replicas", "-1"],
        2,
        "expected 1 to 1024",
    );
    check_refused(
        &["analyze", &log, "--arrivals", "5"],
        2,
        "agent sessions only",
    );
    let azure = folder.path().join("azure.csv");
    let rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,0,10\n";
    std::fs::write(&azure, rows).expect("writes");
    check_refused(
        &["analyze", &azure.display().to_string()],
        1,
        "lengths and times only",
    );
    std::fs::write(folder.path().join("good.jsonl"), copies(3, |_| json!({}))).expect("writes");
    let good = folder.path().join("good.jsonl").display().to_string();
    check_refused(&["analyze", &good, "--gpu-hour", "-5"], 2, "dollars from 0");
    check_refused(
        &["analyze", &log, "--format", "parquet"],
        2,
        "known: mooncake",
    );
    check_refused(
        &["analyze", &log, "--gpu-hour", "1", "--price-table", "x"],
        2,
        "--price-table",
    );
}
