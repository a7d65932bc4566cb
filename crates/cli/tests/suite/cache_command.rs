//! `headstart cache` and `headstart savings`: the binary beside a server, and after it.

use crate::support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Output;
use std::sync::Arc;

use headstart_core::{BlockHash, IdentityDigest, TenantTag};
use headstart_store::backend::no_waker;
use headstart_store::disk::unix_seconds;
use headstart_store::record::{Content, Exactness, Layout};
use headstart_store::{Arena, Backend, Command, Disk, DiskOptions, Draft, Meta, Ticket};
use serde_json::{Value, json};
use support::{Scratch, Served, eventually, output, text};

const GIB: f64 = (1u64 << 30) as f64;

/// Prompts of each tenant.
const PROMPTS: usize = 3;

fn ask(server: &Served, salt: Option<&str>, number: usize) -> Value {
    let mut body = json!({
        "model": "toy", "max_tokens": 8, "temperature": 0,
        "messages": [{"role": "user", "content": format!("{number} list string. ").repeat(120)}],
    });
    if let Some(salt) = salt {
        body["cache_salt"] = json!(salt);
    }
    server.json("POST", "/v1/chat/completions", &body.to_string())
}

fn ask_all(server: &Served, salt: Option<&str>) -> u64 {
    let answers = (0..PROMPTS).map(|number| ask(server, salt, number));
    let hits = answers.map(|answer| {
        let hits = &answer["usage"]["prompt_cache_hit_tokens"];
        hits.as_u64().expect("a count")
    });
    hits.sum()
}

/// Sums the lines of a metric that contain `part`.
fn sum_of(metrics: &str, start: &str, part: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(start) && line.contains(part));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

/// Waits until what was computed is stored.
fn stored(server: &Served) {
    let units = || {
        let metrics = server.metrics();
        sum_of(&metrics, "headstart_tier_units_total", "what=\"stored\"")
    };
    eventually("units are stored", || units() >= PROMPTS as f64);
    eventually("no more are", || {
        let before = units();
        std::thread::sleep(std::time::Duration::from_millis(200));
        units() == before
    });
}

fn run(args: &[&str]) -> Output {
    output([&["cache"], args].concat())
}

/// Returns the output of a command, which must succeed.
fn printed(args: &[&str]) -> String {
    let output = run(args);
    let complaint = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {complaint}");
    text(&output.stdout)
}

/// The same, as JSON.
fn told(args: &[&str]) -> Value {
    let printed = printed(&[args, &["--json"]].concat());
    serde_json::from_str(&printed).unwrap_or_else(|_| panic!("JSON: {printed}"))
}

/// Returns the complaint of a command, which must end with `exit_code`.
fn complaint(args: &[&str], exit_code: i32) -> String {
    let output = run(args);
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(exit_code), "{args:?}: {complaint}");
    complaint
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a count: {value}"))
}

/// Flips a bit of the first record of a segment that has one.
fn harm(folder: &str) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if !path.to_string_lossy().contains("/segment-") {
            continue;
        }
        let file = fs::File::options().read(true).write(true).open(path);
        let file = file.expect("a file");
        // A header, a table, then a record: past that one's own header.
        let at = 2 * 4096 + 3_001;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("in the file");
        if byte[0] != 0 {
            byte[0] ^= 16;
            return file.write_all_at(&byte, at).expect("written");
        }
    }
    panic!("no segment holds a record");
}

/// Fills a folder with prompts of alice and of a client without a salt.
fn served(folder: &Scratch) -> (String, Served) {
    let kv = folder.path("kv");
    let server = Served::start(["--context-cache", &kv, "--context-cache-gib", "0.2"]);
    ask_all(&server, None);
    ask_all(&server, Some("alice"));
    stored(&server);
    (kv, server)
}

/// Stores a record of its own.
fn put(disk: &mut Disk, arena: &Arc<Arena>, name: u64, content: Content) {
    let meta = Meta {
        name: BlockHash::from_u64(name),
        parent: Some(BlockHash::from_u64(9)),
        identity: IdentityDigest([1; 16]),
        tenant: TenantTag(1),
        tokens: 64,
        exactness: Exactness::Exact,
        content,
        created_s: unix_seconds(),
        expires_s: None,
    };
    let slot = arena.take().expect("a slot");
    let draft = Draft::laid_out(slot, meta, &[100, 5_000], Layout::Paged);
    let record = draft.expect("it fits").seal();
    let ticket = Ticket(name);
    disk.submit(Command::Put { ticket, record }).expect("there is room");
}

#[test]
fn packs_are_told_from_units() {
    let folder = Scratch::new("packs");
    let kv = folder.path("kv");
    let (mut disk, _) = Disk::open(DiskOptions::new(&kv, 64 << 20), no_waker()).expect("it opens");
    let arena = Arena::new(64 << 10, 2).expect("memory");
    put(&mut disk, &arena, 1, Content::Unit);
    put(&mut disk, &arena, 2, Content::Pack);
    // It ends what was begun.
    drop(disk);
    let lines = printed(&["ls", &kv]);
    let lines: Vec<&str> = lines.lines().collect();
    let [head, unit, pack] = lines[..] else {
        panic!("a head and two records: {lines:?}");
    };
    for (line, content) in [(head, "type"), (unit, "unit"), (pack, "pack")] {
        assert_eq!(line.split_whitespace().nth(1), Some(content), "{line}");
    }
    let told: Vec<Value> = printed(&["ls", &kv, "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!((&told[0]["content"], &told[1]["content"]), (&json!("unit"), &json!("pack")));
}

#[test]
fn beside_a_server_one_looks_and_does_not_touch() {
    let folder = Scratch::new("beside");
    let (kv, server) = served(&folder);
    let process = server.process.id();
    let stat = told(&["stat", &kv]);
    assert_eq!(stat["used_by"], format!("process {process}"));
    let records = count(&stat["records"]);
    assert!(records >= 2 * PROMPTS as u64, "{stat}");
    assert_eq!(count(&stat["tokens"]), 64 * records);
    assert_eq!(stat["tenants"].as_array().map(Vec::len), Some(2), "{stat}");
    let identities = stat["identities"].as_array().map(Vec::len);
    assert_eq!(identities, Some(2), "a salt is part of it: {stat}");
    assert_eq!(stat["segments"]["bytes"], stat["used_bytes"]);
    assert_eq!(count(&stat["budget_bytes"]), (0.2 * GIB) as u64);
    assert!(printed(&["stat", &kv]).contains("\nbudget       "));
    let lines = printed(&["ls", &kv, "--json"]);
    assert_eq!(lines.lines().count() as u64, records);
    let verified = told(&["verify", &kv, "--dry-run"]);
    assert_eq!(count(&verified["ok"]["records"]), records);
    for args in [
        &["verify", &kv][..],
        &["gc", &kv],
        &["purge", &kv, "--no-salt"],
        &["purge", &kv, "--all", "--yes"],
        &["export", &folder.path("objects"), &kv],
    ] {
        if args[0] == "export" {
            // Something to export from.
            let objects = format!("file://{}", folder.path("objects"));
            printed(&["export", &kv, &objects]);
            let told = complaint(&["export", &objects, &kv], 2);
            assert!(told.contains(&format!("process {process}")), "{told}");
            continue;
        }
        let told = complaint(args, 2);
        assert!(told.contains(&format!("used by process {process}")), "{told}");
        assert!(told.contains("stop that server first"), "{told}");
    }
    assert_eq!(count(&told(&["stat", &kv])["records"]), records);
    assert!(ask_all(&server, None) > 100, "the server did not notice");
}

#[test]
fn a_damaged_byte_is_found_and_computed_again() {
    let folder = Scratch::new("damaged");
    let (kv, mut server) = served(&folder);
    server.end("-TERM");
    let stat = told(&["stat", &kv]);
    assert_eq!(stat["used_by"], "no process");
    let records = count(&stat["records"]);
    assert_eq!(count(&told(&["verify", &kv])["ok"]["records"]), records);
    harm(&kv);
    for args in [&["verify", &kv, "--dry-run"][..], &["verify", &kv]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let (said, complaint) = (text(&output.stdout), text(&output.stderr));
        assert!(said.contains("is damaged"), "{said}");
        assert!(complaint.contains("1 of"), "{complaint}");
    }
    let after = told(&["verify", &kv]);
    assert_eq!(count(&after["ok"]["records"]), records - 1);
    let stat = told(&["stat", &kv]);
    assert_eq!(count(&stat["quarantined"]["records"]), 1);
    assert!(printed(&["stat", &kv]).contains("quarantined  1, "));

    let server = Served::start(["--context-cache", &kv, "--context-cache-gib", "0.2"]);
    assert!(ask_all(&server, None) + ask_all(&server, Some("alice")) > 200);
    let metrics = server.metrics();
    let damaged = sum_of(&metrics, "headstart_tier_quarantined_records_total", "disk");
    assert_eq!(damaged, 0.0, "it was not even tried");
}

#[test]
fn one_tenant_is_purged_and_then_all() {
    let folder = Scratch::new("purged");
    let (kv, mut server) = served(&folder);
    server.end("-TERM");
    let lines = |args: &[&str]| printed(&[&["ls", &kv, "--json"], args].concat()).lines().count();
    let (all, theirs) = (lines(&[]), lines(&["--salt", "alice"]));
    assert!(theirs >= PROMPTS && all > theirs, "{theirs} of {all}");
    let salt = folder.write("salt", b"alice\n");
    assert_eq!(lines(&["--salt-file", &salt]), theirs);
    assert_eq!(lines(&["--no-salt"]), all - theirs);
    assert_eq!(lines(&["--limit", "2"]), 2);
    let listed = printed(&["ls", &kv, "--salt", "alice", "--json"]);
    let first: Value = serde_json::from_str(listed.lines().next().expect("a line")).expect("JSON");
    let tag = first["tenant"].as_str().expect("a tag");
    assert_eq!(lines(&["--tenant", tag]), theirs);

    let told_whose = complaint(&["purge", &kv], 2);
    assert!(told_whose.contains("--salt"), "{told_whose}");
    let purged = told(&["purge", &kv, "--salt", "alice"]);
    assert_eq!(count(&purged["destroyed"]), theirs as u64);
    assert_eq!((lines(&[]), lines(&["--tenant", tag])), (all - theirs, 0));
    let cleared = told(&["gc", &kv]);
    assert_eq!(count(&cleared["garbage"]["records"]), theirs as u64);
    let verified = told(&["verify", &kv]);
    assert_eq!(count(&verified["ok"]["records"]), (all - theirs) as u64);

    let asked_back = complaint(&["purge", &kv, "--no-salt"], 2);
    assert!(asked_back.contains("no salt") && asked_back.contains("--yes"), "{asked_back}");
    let asked_back = complaint(&["purge", &kv, "--all"], 2);
    assert!(asked_back.contains("--yes"), "{asked_back}");
    assert_eq!(lines(&[]), all - theirs);
    printed(&["purge", &kv, "--all", "--yes"]);
    assert_eq!(lines(&[]), 0);
    let server = Served::start(["--context-cache", &kv, "--context-cache-gib", "0.2"]);
    ask_all(&server, None);
    stored(&server);
}

#[test]
fn what_was_exported_warms_another_server() {
    let folder = Scratch::new("exported");
    let (kv, mut server) = served(&folder);
    server.end("-TERM");
    let records = count(&told(&["stat", &kv])["records"]);
    let objects = format!("file://{}", folder.path("objects"));
    let exported = told(&["export", &kv, &objects]);
    assert_eq!(count(&exported["stored"]["records"]), records);
    let second = folder.path("second");
    let gib = ["--context-cache-gib", "0.2"];
    let exported = told(&["export", &objects, &second, "--no-salt", gib[0], gib[1]]);
    let theirs = count(&exported["stored"]["records"]);
    assert!(theirs > 0 && theirs < records, "{theirs} of {records}");
    for (place, expected) in [(&objects, records), (&second, theirs)] {
        let stat = told(&["stat", place]);
        assert_eq!(count(&stat["records"]), expected);
        // Object storage does not say which budget its servers have.
        assert_eq!(stat["budget_bytes"].is_null(), *place == objects, "{stat}");
        let verified = told(&["verify", place]);
        assert_eq!(count(&verified["ok"]["records"]), expected);
    }
    let same = complaint(&["export", &kv, &format!("{kv}/")], 2);
    assert!(same.contains("the source itself"), "{same}");
    let little = complaint(&["export", &kv, &second, gib[0], "0.001"], 2);
    assert!(little.contains("would lose"), "{little}");
    assert_eq!(count(&told(&["stat", &second])["records"]), theirs);
    let none = complaint(&["stat", &folder.path("none")], 2);
    assert!(none.contains("holds no context cache"), "{none}");

    let server = Served::start(["--context-cache", &second, gib[0], gib[1]]);
    assert!(ask_all(&server, None) > 100, "it starts warm");
    assert!(ask_all(&server, Some("alice")) < 100, "with what it was given");
}

#[test]
fn savings_are_counted_and_told() {
    let folder = Scratch::new("savings");
    let prices = folder.write(
        "prices.toml",
        b"currency = \"EUR\"\n[models.toy]\ncache_miss = 3000\ncache_hit = 1000\noutput = 0\n",
    );
    let kv = folder.path("kv");
    let arguments =
        ["--context-cache", &kv, "--context-cache-gib", "0.2", "--price-table", &prices];
    let mut server = Served::start(arguments);
    ask_all(&server, None);
    stored(&server);
    server.end("-TERM");
    let server = Served::start(arguments);
    ask_all(&server, Some("bob"));
    let found = ask_all(&server, None);
    let metrics = server.metrics();
    let tokens = |source: &str| {
        let source = format!("source=\"{source}\"");
        sum_of(&metrics, "headstart_prompt_tokens_by_source_total", &source)
    };
    assert!(tokens("disk") >= 64.0, "{metrics}");
    let all = sum_of(&metrics, "vllm:prompt_tokens_total", "toy");
    let hits = sum_of(&metrics, "vllm:prefix_cache_hits_total", "toy");
    assert!(hits >= found as f64);
    assert_eq!(tokens("disk") + tokens("device"), hits);
    assert_eq!(tokens("computed") + hits, all);
    let money = sum_of(&metrics, "headstart_saved_money_total", "EUR");
    assert!((money - hits * 2_000.0 / 1e6).abs() < 1e-9, "{money}");
    for (name, part) in [
        ("headstart_tier_up", "what=\"reads\""),
        ("headstart_tier_up", "what=\"writes\""),
        ("headstart_tier_records{", "disk"),
        ("headstart_tier_bytes{", "files"),
        ("headstart_tier_bytes_total", "what=\"read\""),
        ("headstart_tier_bytes_total", "what=\"written\""),
        ("headstart_tier_write_amplification", "disk"),
        ("headstart_tier_load_seconds_count", "disk"),
        ("headstart_tier_commands_total", "loaded"),
        ("headstart_saved_prefill_seconds_total", "toy"),
    ] {
        assert!(sum_of(&metrics, name, part) > 0.0, "{name} {part}: {metrics}");
    }

    let savings = |args: &[&str]| {
        let output = output([&["savings"], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let told: Value =
        serde_json::from_str(&savings(&["--url", &server.url(), "--json"])).expect("JSON");
    let model = &told["models"][0];
    assert_eq!(model["prompt_tokens"].as_f64(), Some(all));
    assert_eq!(model["saved_money_by_the_server"]["EUR"].as_f64(), Some(money));
    let file = folder.write("metrics.txt", metrics.as_bytes());
    let said = savings(&["--metrics", &file, "--price-table", "builtin"]);
    assert!(said.contains("units") && said.contains("instead of"), "{said}");
    let foreign = output(["savings", "--metrics", &prices]);
    assert_eq!(foreign.status.code(), Some(2));
    let nobody = output(["savings", "--url", "http://127.0.0.1:9"]);
    assert!(!nobody.status.success());
    let wrong = output(["serve", "--price-table", &file]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
}
