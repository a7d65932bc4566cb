//! `headstart simulate fleet`.

use serde_json::Value;

use super::{lines, printed, scratch, simulate};

#[test]
fn a_fleet_stands_beside_what_was_published() {
    let args = ["fleet", "--preset", "llm-d-73", "--rates", "20"];
    let strategies = ["--strategies", "llm-d-precise,llm-d-load"];
    let lines = lines(&[&args[..], &strategies, &["--json"]].concat());
    let line = |strategy: &str, rung: Value| {
        let is_it = |line: &&Value| line["strategy"] == strategy && line["rung"] == rung;
        lines.iter().find(is_it).expect("a line")
    };
    let p90 = |strategy: &str| line(strategy, 1.into())["ttft_s"]["p90"].as_f64();
    assert!(p90("llm-d-precise") < Some(1.0) && p90("llm-d-load") > Some(10.0));
    assert_eq!(line("llm-d-precise", 1.into())["published"]["ttft_p90_s"], 0.6);
    assert_eq!(line("llm-d-precise", "all".into())["answered"], 760);
    let told = printed(&[&args[..], &["--strategies", "llm-d-precise"]].concat());
    assert!(told.contains("(9184)") && told.contains("8 replicas"), "{told}");
    assert!(told.contains(" (warm-up)") && told.contains("\nwarm-up: the first step"), "{told}");
}

#[test]
fn a_trace_is_played_to_a_fleet() {
    let request = |at_ms: u64, own: u64| {
        let lengths = r#""input_length":1500,"output_length":20"#;
        format!(r#"{{"timestamp":{at_ms},{lengths},"hash_ids":[0,1,{own}]}}"#)
    };
    let requests: Vec<String> = (0..40).map(|at| request(at * 500, at + 2)).collect();
    let trace = scratch("fleet.jsonl", &requests.join("\n"));
    let file = trace.to_str().expect("UTF-8");
    let args = ["fleet", "--trace", file, "--replicas", "2", "--json"];
    let of = |rest: &[&str]| {
        let lines = lines(&[&args[..], &["--strategies", "precise"], rest].concat());
        lines.last().expect("a line").clone()
    };
    let recorded = of(&[]);
    assert_eq!(recorded["answered"], 40);
    assert!(recorded["hit_rate"].as_f64() > Some(0.5), "{recorded}");
    assert_eq!(of(&["--speed", "2"])["seconds"], 10.0);
    let drawn = of(&["--request-rate", "5", "--hours", "0.05"]);
    let answered = drawn["answered"].as_u64();
    assert!(answered > Some(800) && answered < Some(1_000), "{answered:?}");
    let page = scratch("fleet.html", "");
    printed(&[&args[..], &["--html", page.to_str().expect("UTF-8")]].concat());
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.contains("approximate") && !html.contains("HEADSTART_DATA"));
    for path in [trace, page] {
        std::fs::remove_file(path).expect("it is there");
    }
}

#[test]
fn users_wait_for_their_answers_and_replicas_may_differ() {
    let args = ["fleet", "--preset", "laptop", "--users", "4,40", "--think-time", "5"];
    let rest = ["--rung-seconds", "20", "--strategies", "precise", "--json"];
    let run = |more: &[&str]| lines(&[&args[..], &rest[..], more].concat());
    let alike = run(&[]);
    // Four rounds of each user, and the rung that fills the caches.
    let answered = |lines: &[Value], rung: usize| lines[rung]["answered"].as_u64();
    assert_eq!((answered(&alike, 1), answered(&alike, 2)), (Some(16), Some(160)));
    let slow = run(&["--replica-speeds", "1,0.25", "--kv-tokens", "24000,6000"]);
    assert_eq!(answered(&slow, 2), Some(160));
    let tpot = |lines: &[Value]| lines[2]["tpot_s"]["p90"].as_f64().expect("a number");
    assert!(tpot(&slow) > 2.0 * tpot(&alike), "{} {}", tpot(&slow), tpot(&alike));
}

#[test]
fn a_fleet_is_of_the_engine_that_was_calibrated() {
    let engine = |token_s: f64| {
        format!(
            "overhead_s = 0.01\nweights_s = 0.01\ntoken_s = {token_s}\npair_s = 1e-9\n\
             kv_token_s = 1e-9\nmax_batched_tokens = 2048\nkv_tokens = 24000\nlatency_s = 0.2\n"
        )
    };
    let args = ["fleet", "--preset", "laptop", "--rates", "4", "--rung-seconds", "20"];
    let run = |file: &str, rest: &[&str]| {
        let model = ["--cost-model", file, "--strategies", "precise"];
        printed(&[&args[..], &model, rest].concat())
    };
    let mean = |file: &str| {
        let last = run(file, &["--json"]);
        let line: Value = serde_json::from_str(last.lines().last().expect("a line")).expect("JSON");
        line["ttft_s"]["mean"].as_f64().expect("a number")
    };
    let files = [1e-4, 1e-3].map(|token_s| {
        let path = scratch(&format!("engine-{token_s}.toml"), &engine(token_s));
        (path.to_str().expect("UTF-8").to_owned(), path)
    });
    let [fast, slow] = [&files[0].0, &files[1].0];
    // Most questions, of 96 tokens, are new.
    assert!(mean(slow) > mean(fast) + 0.05, "{} {}", mean(slow), mean(fast));
    // Long lines are broken.
    let told = run(fast, &[]);
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains(&format!("cost model {fast}")), "{told}");
    assert!(told.contains("200 ms outside the engine"), "{told}");
    assert!(!told.contains("published"), "{told}");
    for (_, path) in files {
        std::fs::remove_file(path).expect("it is there");
    }
}

#[test]
fn what_did_not_happen_is_not_told_as_if_it_had() {
    let line = r#"{"timestamp":0,"input_length":2000,"output_length":2,"hash_ids":[0]}"#;
    let long = scratch("long.jsonl", line);
    let file = long.to_str().expect("UTF-8");
    let args = ["fleet", "--trace", file, "--strategies", "precise"];
    let nobody = printed(&[&args[..], &["--kv-tokens", "640"]].concat());
    assert!(!nobody.contains("0.000") && nobody.contains('–'), "{nobody}");
    assert!(!nobody.contains("(published)"), "{nobody}");
    let late = simulate(&[&args[..], &["--replica-crash", "1000"]].concat());
    let warning = String::from_utf8_lossy(&late.stderr);
    assert!(late.status.success() && warning.contains("--replica-crash"), "{warning}");
    assert!(!String::from_utf8_lossy(&late.stdout).contains("died"));
    std::fs::remove_file(&long).expect("it is there");
}

#[test]
fn what_a_fleet_cannot_be_is_named() {
    let check = |args: &[&str], part: &str| {
        let output = simulate(args);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {complaint}");
        assert!(complaint.contains(part), "{args:?}: {complaint}");
    };
    let preset = |rest: &[&str], part: &str| {
        check(&[&["fleet", "--preset", "llm-d-73"], rest].concat(), part);
    };
    preset(&["--strategies", "best"], "--strategies: unknown strategy `best`");
    preset(&["--rates", "0"], "--rates 0");
    preset(&["--users", "0"], "--users 0");
    preset(&["--users", "5", "--think-time", "0"], "--think-time 0");
    preset(&["--replica-speeds", "0"], "--replica-speeds 0");
    preset(&["--kv-tokens", "100"], "--kv-tokens 100");
    preset(&["--event-loss", "101"], "--event-loss 101");
    preset(&["--gateways", "65"], "--gateways 65");
    preset(&["--sizes", "8K"], "unexpected argument '--sizes'");
    preset(&["--speed", "2"], "cannot be used with");
    for option in ["--speed", "--request-rate", "--think-time"] {
        preset(&["--rates", "20", option, "2"], "cannot be used with");
    }
    let small = scratch(
        "small.toml",
        "overhead_s = 0.01\nweights_s = 0.01\ntoken_s = 1e-4\npair_s = 1e-9\nkv_token_s = 1e-9\n\
         max_batched_tokens = 2048\nkv_tokens = 500\n",
    );
    let model = ["--cost-model", small.to_str().expect("UTF-8")];
    preset(&model, "kv_tokens 500: expected at least");
    std::fs::remove_file(&small).expect("it is there");
    check(&["fleet", "--preset", "best"], "known are llm-d-73");
    let line = r#"{"timestamp":0,"input_length":9,"output_length":2,"hash_ids":[0]}"#;
    let one = scratch("one.jsonl", line);
    let trace = |rest: &[&str], part: &str| {
        let file = one.to_str().expect("UTF-8");
        check(&[&["fleet", "--trace", file], rest].concat(), part);
    };
    trace(&["--request-rate", "0"], "--request-rate 0");
    trace(&["--request-rate", "1e6", "--hours", "9"], "expected up to");
    trace(&["--request-rate", "1", "--speed", "2"], "cannot be used with");
    trace(&["--speed", "nan"], "--speed NaN");
    std::fs::remove_file(&one).expect("it is there");
}
