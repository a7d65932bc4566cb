//! `headstart serve --context-cache DIR --importance …` as clients meet it: which answers say that
//! they come from a part of what is stored, who can ask for others, and that what was computed in
//! part leaves no trace.

use crate::support;

use std::io::Read;

use serde_json::{Value, json};
use support::{Scratch, Served, eventually, serve, text};

const HEADER: &str = "x-headstart-importance";

/// Prompts that begin in different ways.
const PROMPTS: usize = 3;

/// Times that a prompt's own line stands in it: some 500 tokens, or 7 units.
const LINES: usize = 96;

/// Behind it: some 150 tokens, which are more than a unit and a few blocks.
const MORE_LINES: usize = 30;

/// Some of a prompt, always and whatever the heads that are asked say; nothing is left to speed.
const PART: &str = "ratio=0.1,least=256,fallback=off,when=always,reorder=off,check=0";

/// All of it, the same way.
const ALL: &str = "ratio=1,least=256,when=always,reorder=off,check=0";

/// Arguments of a server of toy replicas with a context cache, all or part of which it loads.
fn arguments<'a>(folder: &'a str, importance: Option<&'a str>) -> Vec<&'a str> {
    let mut arguments = vec!["--replicas", "1", "--context-cache", folder];
    // What stands in it is moved to make room for another prompt.
    arguments.extend(["--context-cache-gib", "0.2", "--cache-blocks", "60"]);
    arguments.extend(importance.into_iter().flat_map(|setting| ["--importance", setting]));
    arguments
}

/// Returns the body of prompt `number`, with lines of `more` behind it.
fn body(number: usize, more: &str) -> String {
    long_body(number, more, 6)
}

/// The same, with an answer of `max_tokens` tokens.
fn long_body(number: usize, more: &str, max_tokens: usize) -> String {
    let lines = format!("{number} times value. ").repeat(LINES);
    let more = match more {
        "" => String::new(),
        more => format!("{more} of it. ").repeat(MORE_LINES),
    };
    // Drawn words say more about numbers than the likeliest ones of a model that speaks noise.
    let body = json!({
        "model": "toy", "max_tokens": max_tokens, "ignore_eos": true,
        "temperature": 1, "seed": number, "prompt": lines + &more,
    });
    body.to_string()
}

/// An answer.
struct Answer {
    /// The header that says how much was loaded.
    loaded: Option<String>,
    text: String,
    prompt_tokens: u64,
    hit_tokens: u64,
}

fn read(answer: &str) -> Answer {
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    let body: Value = serde_json::from_str(body).expect("JSON");
    let start = format!("{HEADER}: ");
    let loaded = head.lines().find_map(|line| line.strip_prefix(&start));
    let count = |field: &str| body["usage"][field].as_u64().expect("a count");
    Answer {
        loaded: loaded.map(str::to_owned),
        text: body["choices"][0]["text"].as_str().expect("text").to_owned(),
        prompt_tokens: count("prompt_tokens"),
        hit_tokens: count("prompt_cache_hit_tokens"),
    }
}

fn ask(server: &Served, number: usize, more: &str) -> Answer {
    read(&server.ask("POST", "/v1/completions", &body(number, more)))
}

/// Asks the same, without approximation.
fn ask_exactly(server: &Served, number: usize, more: &str) -> Answer {
    read(&server.post_with("/v1/completions", (HEADER, "OFF"), &body(number, more)))
}

fn texts(answers: impl IntoIterator<Item = Answer>) -> Vec<String> {
    answers.into_iter().map(|answer| answer.text).collect()
}

/// The texts that a server answers which keeps nothing.
fn exact_texts(more: &str) -> Vec<String> {
    let server = Served::start(["--replicas", "1"]);
    texts((0..PROMPTS).map(|number| ask(&server, number, more)))
}

/// Sums the lines of a metric that contain `part`.
fn sum_of(server: &Served, start: &str, part: &str) -> f64 {
    let metrics = server.metrics();
    let start = format!("headstart_{start}");
    let lines = metrics.lines();
    let lines = lines.filter(|line| line.starts_with(&start) && line.contains(part));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

/// A folder in which all prompts are stored, and a server above it that does not have them in
/// memory.
fn filled(folder: &str, importance: &str) -> Served {
    let mut server = Served::start(arguments(folder, Some(importance)));
    let mut units = 0;
    for number in 0..PROMPTS {
        let answer = ask(&server, number, "");
        assert_eq!(answer.loaded, None, "there is nothing yet");
        units += answer.prompt_tokens / 64;
    }
    let stored = || sum_of(&server, "tier_units_total", "what=\"stored\"");
    eventually("all is stored", || stored() >= units as f64);
    server.end("-TERM");
    Served::start(arguments(folder, Some(importance)))
}

#[test]
fn answers_from_a_part_say_so_and_who_wants_none_gets_none() {
    let folder = Scratch::new("part");
    let server = filled(&folder.path("kv"), PART);
    let expected = exact_texts("the first");
    let mut differ = 0;
    for (number, expected) in expected.iter().enumerate() {
        let answer = ask(&server, number, "the first");
        let loaded = answer.loaded.expect("it says so");
        let percent = loaded.strip_prefix("loaded=").and_then(|share| share.strip_suffix('%'));
        let percent: u32 = percent.expect("a share").parse().expect("per cent");
        assert!((1..=100).contains(&percent), "{loaded}");
        assert!(answer.hit_tokens > 400, "{} found", answer.hit_tokens);
        differ += usize::from(answer.text != *expected);
        let exact = ask_exactly(&server, number, "the first");
        assert_eq!((exact.loaded, &exact.text), (None, expected));
    }
    assert!(differ > 0, "a tenth of a prompt is not the same as all of it");
    let told = |start: &str, part: &str| sum_of(&server, &format!("importance_{start}"), part);
    assert_eq!(told("prompts_total", "outcome=\"loaded\""), PROMPTS as f64);
    assert_eq!(told("prompts_total", "outcome=\"failed\""), 0.0);
    let bytes = |what: &str| told("bytes_total", &format!("what=\"{what}\""));
    let from = |source: &str| told("loaded_bytes_total", &format!("source=\"{source}\""));
    assert!(bytes("rest") > 0.0 && bytes("probes") + bytes("rest") <= bytes("whole"));
    let sources = from("device") + from("host") + from("disk") + from("shared");
    assert_eq!(bytes("probes") + bytes("rest"), sources);
    let tokens = |what: &str| told("tokens_total", &format!("what=\"{what}\""));
    let amplification = tokens("read") / tokens("selected");
    let gauge = told("read_amplification", "");
    assert!(amplification >= 1.0 && (gauge - amplification).abs() < 1e-9);
    let parts = sum_of(&server, "tier_parts_total", "content=\"unit\"");
    assert!(parts > 0.0, "the disk read them alone");
}

/// A request for no tokens prepares the prompt: it is loaded in full, and found after that.
#[test]
fn a_prompt_that_is_made_ready_is_loaded_in_full() {
    let folder = Scratch::new("ready");
    let server = filled(&folder.path("kv"), PART);
    let body = long_body(0, "the first", 0);
    let ready = server.ask("POST", "/v1/completions", &body);
    assert!(ready.starts_with("HTTP/1.1 200") && !ready.contains(HEADER), "{ready}");
    let answer = ask(&server, 0, "the first");
    assert_eq!(answer.loaded, None);
    assert!(answer.hit_tokens + 64 > answer.prompt_tokens, "{} found", answer.hit_tokens);
}

#[test]
fn an_empty_setting_asks_for_nothing() {
    let folder = Scratch::new("empty");
    let server = Served::start(arguments(&folder.path("kv"), Some("")));
    assert!(!server.metrics().contains("headstart_importance_"));
}

#[test]
fn what_was_computed_behind_a_part_is_never_found_again() {
    let folder = Scratch::new("trace");
    let kv = folder.path("kv");
    let server = filled(&kv, PART);
    // More than a unit behind what is stored, computed from a part of it.
    let stored: Vec<u64> = (0..PROMPTS)
        .map(|number| {
            let answer = ask(&server, number, "the first");
            assert!(answer.loaded.is_some());
            answer.hit_tokens
        })
        .collect();
    let expected = exact_texts("the first");
    for (number, expected) in expected.iter().enumerate() {
        let again = ask_exactly(&server, number, "the first");
        assert_eq!(again.text, *expected, "prompt {number}");
        let known = stored[number];
        assert!(again.hit_tokens <= known, "{} found of {known}", again.hit_tokens);
    }
    drop(server);
    // Servers that load all of it, or know of nothing else, find what is exact as well.
    let server = Served::start(arguments(&kv, Some(ALL)));
    let all = texts((0..PROMPTS).map(|number| ask(&server, number, "the first")));
    assert_eq!(all, expected);
    drop(server);
    let server = Served::start(arguments(&kv, None));
    let plain = texts((0..PROMPTS).map(|number| ask(&server, number, "the first")));
    assert_eq!(plain, expected);
}

#[test]
fn all_of_it_answers_like_a_server_that_keeps_nothing() {
    let folder = Scratch::new("all");
    let server = filled(&folder.path("kv"), ALL);
    for more in ["the first", "the second"] {
        let answers: Vec<Answer> = (0..PROMPTS).map(|number| ask(&server, number, more)).collect();
        let loaded = answers.iter().filter(|answer| answer.loaded.is_some()).count();
        assert_eq!(loaded, 0, "where nothing was left out nothing is said");
        assert_eq!(texts(answers), exact_texts(more));
    }
    let part = "outcome=\"loaded\"";
    let loaded = sum_of(&server, "importance_prompts_total", part);
    // What is exact is kept, so that the second may find it nearer.
    let all = PROMPTS as f64;
    assert!((all..=2.0 * all).contains(&loaded), "{loaded} went that way");
}

#[test]
fn a_gateway_passes_on_who_wants_what_and_what_came_of_it() {
    let folder = Scratch::new("gateway");
    let server = filled(&folder.path("kv"), PART);
    let gateway = Served::start(["--upstream", &server.url()]);
    assert!(ask(&gateway, 0, "the first").loaded.is_some());
    assert_eq!(ask_exactly(&gateway, 0, "the first").loaded, None);
    for server in [&gateway, &server] {
        for value in ["on", "0.5", "off, on"] {
            let answer = server.post_with("/v1/completions", (HEADER, value), &body(0, ""));
            assert!(answer.starts_with("HTTP/1.1 400"), "{value}: {answer}");
            assert!(answer.contains(&format!("\"param\":\"{HEADER}\"")));
            assert!(answer.contains("expected off"), "{answer}");
        }
    }
}

/// Two answers do not fit beside each other, so the younger prompt, loaded in part, makes room. It
/// then continues with all of its prefix, and no request reuses what it had computed.
#[test]
fn who_makes_room_for_others_leaves_no_trace_of_its_part() {
    let folder = Scratch::new("room");
    let server = filled(&folder.path("kv"), PART);
    let older = json!({
        "model": "toy", "max_tokens": 600, "ignore_eos": true, "temperature": 1, "seed": 9,
        "prompt": "Who came first?",
    });
    let older = older.to_string();
    let exact = exact_texts("the first");
    let mut in_part = 0;
    for (number, exact) in exact.iter().enumerate().skip(1) {
        let mut first = server.open("POST", "/v1/completions", &older);
        let younger = long_body(number, "the first", 250);
        let younger = read(&server.ask("POST", "/v1/completions", &younger));
        in_part += usize::from(younger.loaded.is_some());
        let mut answer = String::new();
        first.read_to_string(&mut answer).expect("an answer");
        assert!(read(&answer).text.split(' ').count() > 100, "{answer}");
        // Of long answers a drawn word hangs on rounding now and then; of short ones none does.
        assert_eq!(ask_exactly(&server, number, "the first").text, *exact);
    }
    let metrics = server.metrics();
    let preemptions = metrics
        .lines()
        .find_map(|line| line.strip_prefix("vllm:num_preemptions_total{"))
        .expect("they are counted");
    assert!(!preemptions.ends_with(" 0") && in_part > 0, "{preemptions}, {in_part}");
}

/// Every prompt is recomputed in full, and no difference is tolerated.
#[test]
fn a_prefix_that_was_too_far_off_is_loaded_in_full_from_then_on() {
    let folder = Scratch::new("guard");
    let kv = folder.path("kv");
    let strict = PART.replace("check=0", "check=1,max-kl=0");
    drop(filled(&kv, &strict));
    let log = folder.path("log");
    let file = std::fs::File::create(&log).expect("a file");
    let server = Served::run(serve(arguments(&kv, Some(&strict))).stderr(file));
    let compared = || sum_of(&server, "importance_checks_total", "\"compared\"");
    let barred = || sum_of(&server, "importance_barred_prefixes", "");
    assert!(ask(&server, 0, "the first").loaded.is_some());
    eventually("it is computed again", || compared() == 1.0);
    eventually("its prefix is barred", || barred() == 1.0);
    assert!(sum_of(&server, "importance_check_kl_nats_max", "") > 0.0);
    // What is not barred is loaded as before, and makes room.
    assert!(ask(&server, 1, "the first").loaded.is_some());
    eventually("that one is barred as well", || barred() == 2.0);
    let exact = ask(&server, 0, "the second");
    assert_eq!(exact.loaded, None);
    assert!(exact.hit_tokens > 400, "and it is found: {}", exact.hit_tokens);
    assert_eq!(exact.text, exact_texts("the second")[0]);
    drop(server);
    let log = text(&std::fs::read(log).expect("a log"));
    let warnings = log.lines().filter(|line| line.contains("WARN"));
    assert_eq!(warnings.count(), 2, "one a prefix: {log}");
    assert!(!log.contains("times value"), "no text: {log}");
}
