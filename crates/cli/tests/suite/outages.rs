//! The storage below the context cache fails under a real server, and comes back: a full disk, one
//! that can only be read, a folder and a mount that vanish, an object store that cannot be reached.
//!
//! Every request is answered as by a server that keeps nothing, the log says once that the cache
//! works worse and once that it works again, and what is asked again is found again.
//!
//! Disks are mounted in a namespace of the test's own; where that is not allowed, or there is no S3
//! server, the test says that it was skipped.

use crate::support;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use support::moto::{Moto, Way};
use support::{Scratch, Served, eventually, serve, skipped, text};

/// Memory for about one prompt: what is asked again was dropped from it.
const ARGUMENTS: [&str; 6] =
    ["--replicas", "1", "--cache-blocks", "40", "--context-cache-gib", "0.03125"];

/// Of what is found for a round of prompts, more than any template has.
const FOUND: u64 = 200;

/// Stores nothing, and reads.
const WRITES_FAIL: &str = "stores nothing for now";
const GONE: &str = "is gone for now";
const WELL: &str = "works again";

/// The answers to some prompts, and how many prompt tokens were found for them.
fn ask(server: &Served, prompts: std::ops::Range<usize>) -> (Vec<Value>, u64) {
    let ask = |number: usize| {
        let content = format!("{number} times value. ").repeat(80);
        let body = json!({
            "model": "toy", "max_tokens": 6, "temperature": 1, "seed": number, "ignore_eos": true,
            "messages": [{"role": "user", "content": content}],
        });
        let mut answer = server.json("POST", "/v1/chat/completions", &body.to_string());
        let found = answer["usage"]["prompt_cache_hit_tokens"].as_u64();
        (answer["choices"].take(), found.expect("a count"))
    };
    let (texts, found): (Vec<Value>, Vec<u64>) = prompts.map(ask).unzip();
    (texts, found.iter().sum())
}

/// A server with a context cache, and what is right.
struct Bench {
    server: Served,
    log: PathBuf,
    expected: Vec<Value>,
}

impl Bench {
    fn new(scratch: &Scratch, cache: &str, environment: &[(&str, String)]) -> Self {
        // Loading from afar pays only where computing takes longer.
        let model = if cache.starts_with("s3:") { "toy" } else { "toy-tiny" };
        let plain =
            Served::start(["--replicas", "1", "--model", model, "--served-model-name", "toy"]);
        let (expected, found) = ask(&plain, 0..6);
        assert!(found < FOUND, "{found} tokens of the template at most");
        let log = scratch.0.join("log");
        let arguments = ["--context-cache", cache, "--model", model, "--served-model-name", "toy"];
        let mut command = serve(arguments.iter().chain(&ARGUMENTS));
        command.stderr(File::create(&log).expect("a file"));
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Self { server: Served::run(&mut command), log, expected }
    }

    /// Asks; whatever happens below, the answers are right. How many tokens were found.
    fn ask(&self, prompts: std::ops::Range<usize>) -> u64 {
        let (texts, found) = ask(&self.server, prompts.clone());
        assert_eq!(texts, self.expected[prompts]);
        found
    }

    /// Asks until things are found that only the context cache can have kept. For three prompts: it
    /// does not hold all six, and of those, asked in turn, none would be found.
    fn until_found(&self, prompts: std::ops::Range<usize>) {
        eventually("hits", || self.ask(prompts.clone()) > FOUND);
    }

    /// Returns the log lines about the context cache, and every warning.
    fn said(&self) -> Vec<String> {
        let log = text(&fs::read(&self.log).expect("a log"));
        let is_it = |line: &&str| line.contains("the context cache") || line.contains("WARN");
        // A small disk is named once, at the start.
        let is_small = |line: &&str| line.contains("the disk has less room than");
        log.lines().filter(is_it).filter(|line| !is_small(line)).map(str::to_owned).collect()
    }

    /// Asks until so much was said.
    fn until_said(&self, lines: &[&str]) {
        eventually(lines[lines.len() - 1], || {
            self.ask(0..6);
            self.said().len() >= lines.len()
        });
        self.has_said(lines);
    }

    /// Neither more nor less was said than this.
    fn has_said(&self, lines: &[&str]) {
        let said = self.said();
        let is_right =
            |(said, line): (&String, &&str)| said.contains(line) && said.contains("WARN");
        let is_all = said.len() == lines.len() && said.iter().zip(lines).all(is_right);
        assert!(is_all, "{lines:?}: {said:#?}");
    }
}

/// Runs a test of this file again, in a namespace where it may mount.
fn with_mounts(test: &str) {
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--mount"]);
    let program = std::env::current_exe().expect("this test");
    let allowed = unshare.arg(program).args(["--exact", "outages::may_mount", "--ignored"]);
    if !allowed.output().is_ok_and(|output| output.status.success()) {
        return skipped("nothing may be mounted here");
    }
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--mount"]);
    unshare.arg(std::env::current_exe().expect("this test"));
    unshare.args(["--exact", &format!("outages::{test}"), "--ignored", "--nocapture"]);
    let output = unshare.output().expect("it runs");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

/// A file system in memory.
fn mount(place: &Path, size: &str) -> bool {
    fs::create_dir(place).expect("a folder");
    let size = format!("size={size}");
    let place = place.display().to_string();
    run("mount", &["-t", "tmpfs", "-o", &size, "none", &place])
}

#[test]
#[ignore = "run by others, in a namespace of its own"]
fn may_mount() {
    let scratch = Scratch::new("may");
    assert!(mount(&scratch.0.join("disk"), "1m"));
    assert!(run("umount", &[&scratch.path("disk")]));
}

#[test]
fn a_full_disk_ends() {
    with_mounts("a_full_disk");
}

#[test]
#[ignore = "run by another, in a namespace of its own"]
fn a_full_disk() {
    let scratch = Scratch::new("full");
    assert!(mount(&scratch.0.join("disk"), "48m"));
    let ballast = scratch.0.join("disk/ballast");
    let mut file = File::create(&ballast).expect("a file");
    while file.write_all(&[1; 4096]).is_ok() {}
    // Open it would keep its room when it is removed.
    drop(file);
    let bench = Bench::new(&scratch, &scratch.path("disk/kv"), &[]);
    bench.until_said(&[WRITES_FAIL]);
    assert!(bench.ask(0..6) < FOUND);
    bench.has_said(&[WRITES_FAIL]);
    fs::remove_file(ballast).expect("removed");
    bench.until_said(&[WRITES_FAIL, WELL]);
    bench.until_found(0..3);
    bench.has_said(&[WRITES_FAIL, WELL]);
}

#[test]
fn a_mount_that_vanishes_comes_back() {
    with_mounts("a_vanished_mount");
}

#[test]
#[ignore = "run by another, in a namespace of its own"]
fn a_vanished_mount() {
    let scratch = Scratch::new("mount");
    let (disk, place) = (scratch.path("disk"), scratch.path("place"));
    assert!(mount(Path::new(&disk), "48m"));
    fs::create_dir(&place).expect("a folder");
    assert!(run("mount", &["--bind", &disk, &place]));
    // Of prompts that are asked in turn, the engine's own cache then finds none.
    let lru = [("HEADSTART_POLICY", "lru".to_owned())];
    let bench = Bench::new(&scratch, &scratch.path("place/kv"), &lru);
    bench.ask(0..3);
    bench.until_found(0..3);
    assert!(run("umount", &["--lazy", &place]));
    bench.until_said(&[GONE]);
    assert!(bench.ask(0..6) < FOUND);
    assert!(!scratch.0.join("place/kv").exists(), "nothing goes to another disk");
    assert!(run("mount", &["--bind", &disk, &place]));
    eventually(WELL, || bench.said().len() == 2);
    // What was stored before is there again.
    assert!(bench.ask(0..3) > FOUND);
    bench.has_said(&[GONE, WELL]);
}

#[test]
fn a_folder_that_vanishes_is_made_anew() {
    let scratch = Scratch::new("folder");
    let folder = scratch.path("kv");
    let bench = Bench::new(&scratch, &folder, &[]);
    bench.ask(0..3);
    bench.until_found(0..3);
    fs::rename(&folder, scratch.path("away")).expect("it is moved");
    bench.until_said(&[GONE, WELL]);
    bench.until_found(0..3);
    assert!(fs::exists(scratch.path("kv/segment-00000")).expect("it is known"));
    bench.has_said(&[GONE, WELL]);
}

/// Files that cannot be written, even where they are open; released when dropped.
struct Immutable(PathBuf);

impl Immutable {
    fn set(&self, how: &str) -> bool {
        run("chattr", &["-R", how, &self.0.display().to_string()])
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        self.set("-i");
    }
}

#[test]
fn a_disk_that_can_only_be_read_is_read() {
    let scratch = Scratch::new("read-only");
    let folder = scratch.path("kv");
    let bench = Bench::new(&scratch, &folder, &[]);
    bench.ask(0..3);
    bench.until_found(0..3);
    let disk = Immutable(folder.into());
    if !disk.set("+i") {
        return skipped("this user, or this file system, makes no file immutable");
    }
    bench.until_said(&[WRITES_FAIL]);
    assert!(bench.ask(0..3) > FOUND, "what is there can be read");
    bench.has_said(&[WRITES_FAIL]);
    assert!(disk.set("-i"));
    bench.until_said(&[WRITES_FAIL, WELL]);
    bench.until_found(3..6);
    bench.has_said(&[WRITES_FAIL, WELL]);
}

#[test]
fn an_object_store_that_cannot_be_reached_is_used_again() {
    let Some(moto) = Moto::start() else { return };
    let way = Way::to(moto.port);
    let scratch = Scratch::new("objects");
    let endpoint = format!("http://127.0.0.1:{}", way.port);
    let environment = [
        ("AWS_ACCESS_KEY_ID", "headstart"),
        ("AWS_SECRET_ACCESS_KEY", "headstart"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", &endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("NO_PROXY", "127.0.0.1"),
    ];
    let environment = environment.map(|(name, value)| (name, value.to_owned()));
    let bench = Bench::new(&scratch, "s3://bucket/kv", &environment);
    bench.ask(0..3);
    bench.until_found(0..3);
    way.cut();
    bench.until_said(&[GONE]);
    assert!(bench.ask(0..6) < FOUND);
    bench.has_said(&[GONE]);
    way.mend();
    eventually(WELL, || bench.said().len() == 2);
    bench.until_found(0..3);
    bench.has_said(&[GONE, WELL]);
}
