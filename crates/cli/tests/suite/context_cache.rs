//! `headstart serve --context-cache`: the binary, killed and started again, and beside another one.

use crate::support;

use serde_json::Value;
use support::{Scratch, Served, eventually, output, serve, text};

/// Prompts long enough that loading them is worth waiting for.
const PROMPTS: usize = 4;

fn ask(server: &Served, number: usize) -> Value {
    ask_as(server, None, number)
}

/// A tenant's own prompt.
fn ask_as(server: &Served, tenant: Option<&str>, number: usize) -> Value {
    let body = serde_json::json!({
        "model": "toy", "max_tokens": 8, "temperature": 0, "cache_salt": tenant,
        "messages": [{"role": "user", "content": format!("{number} times value. ").repeat(150)}],
    });
    server.json("POST", "/v1/chat/completions", &body.to_string())
}

/// The answers to all prompts, and how many prompt tokens were found for them.
fn ask_all(server: &Served) -> (Vec<Value>, u64) {
    let answers: Vec<Value> = (0..PROMPTS).map(|number| ask(server, number)).collect();
    let found = answers.iter().map(|answer| {
        let usage = |field: &str| answer["usage"][field].as_u64().expect("a count");
        let (hit, miss) = (usage("prompt_cache_hit_tokens"), usage("prompt_cache_miss_tokens"));
        assert_eq!(hit + miss, usage("prompt_tokens"));
        hit
    });
    let found = found.sum();
    let texts = answers.into_iter().map(|mut answer| answer["choices"].take());
    (texts.collect(), found)
}

/// Sums a metric over all replicas.
fn sum_of(server: &Served, start: &str, part: &str) -> f64 {
    let metrics = server.metrics();
    let lines = metrics.lines().filter(|line| line.starts_with(start) && line.contains(part));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

/// Waits until what was computed is stored.
fn stored(server: &Served) {
    let units = || sum_of(server, "headstart_tier_units_total", "what=\"stored\"");
    eventually("units are stored", || units() >= PROMPTS as f64);
    eventually("no more are", || {
        let before = units();
        std::thread::sleep(std::time::Duration::from_millis(200));
        units() == before
    });
}

#[test]
fn what_was_computed_is_loaded_after_a_kill() {
    let folder = Scratch::new("killed");
    let arguments = ["--context-cache", &folder.path("kv"), "--context-cache-gib", "0.2"];
    let mut server = Served::start(arguments);
    let (expected, found) = ask_all(&server);
    assert!(found < 200, "{found} tokens of the template at most");
    stored(&server);
    server.end("-KILL");
    let server = Served::start(arguments);
    let (got, found) = ask_all(&server);
    assert_eq!(got, expected);
    assert!(found > 200, "{found} tokens were found");
    assert!(sum_of(&server, "headstart_tier_units_total", "what=\"loaded\"") > 0.0);
    assert!(sum_of(&server, "headstart_tier_units{", "what=\"readable\"") > 0.0);
    let second = serve(arguments).output().expect("the binary runs");
    assert!(!second.status.success());
    let told = text(&second.stderr);
    assert!(told.contains("used by another process"), "{told}");
}

#[test]
fn a_second_server_finds_what_the_first_one_stored() {
    let folder = Scratch::new("shared");
    let store = format!("file://{}", folder.path("objects"));
    let arguments = ["--context-cache", &store];
    let first = Served::start(arguments);
    let (expected, _) = ask_all(&first);
    stored(&first);
    let second = Served::start(arguments);
    let (got, found) = ask_all(&second);
    assert_eq!(got, expected);
    assert!(found > 200, "{found} tokens were found");
}

#[test]
fn what_cannot_be_used_is_refused_by_name() {
    for (arguments, part) in [
        (vec!["--host-cache-gib", "1"], "--context-cache"),
        (vec!["--context-cache-dtype", "fp8"], "--context-cache DIR"),
        (vec!["--context-cache", "x", "--context-cache-dtype", "int4"], "same, fp8"),
        (
            vec!["--upstream", "http://127.0.0.1:1", "--context-cache-dtype", "fp8"],
            "--context-cache-dtype concerns embedded replicas",
        ),
        (vec!["--context-cache", "/proc/none"], "/proc/none"),
        (vec!["--context-cache", "x", "--context-cache-gib", "0"], "--context-cache-gib"),
        (vec!["--context-cache", "ftp://x/y"], "ftp"),
    ] {
        let output = serve(&arguments).output().expect("the binary runs");
        assert!(!output.status.success(), "{arguments:?}");
        let told = text(&output.stderr);
        assert!(told.contains(part), "{arguments:?}: {told}");
    }
}

/// Servers of both kinds in turns on one folder: each finds what servers of its kind stored, and
/// the exact ones answer as one that keeps nothing.
#[test]
fn fp8_and_exact_servers_never_use_each_others_units() {
    let folder = Scratch::new("lossy");
    let kv = folder.path("kv");
    let (expected, _) = ask_all(&Served::start(["--replicas", "1"]));
    let kinds = [("same", "exact"), ("fp8", "lossy")];
    for is_new in [true, false] {
        for (dtype, _) in kinds {
            let arguments = ["--replicas", "1", "--context-cache", &kv];
            let gib = ["--context-cache-gib", "0.2", "--context-cache-dtype", dtype];
            let mut server = Served::start([&arguments[..], &gib].concat());
            let (got, found) = ask_all(&server);
            if is_new {
                assert!(found < 200, "{dtype}: {found} tokens of the template at most");
                assert_eq!(got, expected, "{dtype}: nothing was loaded");
                stored(&server);
            } else {
                assert!(found > 200, "{dtype}: {found} tokens were found");
            }
            if dtype == "same" {
                assert_eq!(got, expected);
            }
            let units = |what: &str| sum_of(&server, "headstart_tier_units_total", what);
            assert_eq!(units("what=\"failed\""), 0.0, "{dtype}");
            server.end("-TERM");
        }
    }
    let stat = output(["cache", "stat", &kv, "--json"]);
    let stat: Value = serde_json::from_slice(&stat.stdout).expect("JSON");
    let tally = |kind: &str, field: &str| {
        let kinds = stat["kinds"].as_array().expect("a list");
        let tally = kinds.iter().find(|entry| entry["exactness"] == kind);
        tally.expect("both are there")[field].as_f64().expect("a number")
    };
    assert_eq!(tally("exact", "records"), tally("lossy", "records"));
    let share = tally("lossy", "bytes") / tally("exact", "bytes");
    assert!((0.25..0.27).contains(&share), "{share} of the bytes of f32");
    let told = text(&output(["cache", "ls", &kv]).stdout);
    for (_, kind) in kinds {
        assert!(told.contains(&format!("  {kind}  ")), "{told}");
    }
}

#[test]
fn a_tenant_with_its_share_takes_nothing_from_others() {
    let folder = Scratch::new("tenants");
    let file = folder.path("headstart.toml");
    // Room for some of its eight prompts.
    let shares = "[tenants.loud]\ncontext-cache-gib = 0.002\n";
    std::fs::write(&file, shares).expect("a configuration");
    let arguments = [
        "--config",
        &file,
        "--replicas",
        "1",
        "--context-cache",
        &folder.path("kv"),
        "--context-cache-gib",
        "0.2",
    ];
    let mut server = Served::start(arguments);
    ask_as(&server, Some("quiet"), 0);
    for number in 0..8 {
        ask_as(&server, Some("loud"), number);
    }
    stored(&server);
    let evicted = || sum_of(&server, "headstart_tier_units_total", "what=\"evicted\"");
    assert!(evicted() > 0.0, "its share is full");
    server.end("-KILL");
    let server = Served::start(arguments);
    let found = |answer: Value| answer["usage"]["prompt_cache_hit_tokens"].as_u64();
    let quiet = found(ask_as(&server, Some("quiet"), 0));
    assert!(quiet > Some(200), "{quiet:?} tokens were found");
    let last = found(ask_as(&server, Some("loud"), 7));
    assert!(last > Some(200), "{last:?} tokens were found");
    let first = found(ask_as(&server, Some("loud"), 0));
    assert!(first < Some(200), "{first:?} tokens were found that had to go");
}
