//! The remote tier against a server that speaks S3: `moto_server`, started and killed by the test.
//!
//! Credentials and endpoint come from the environment, and changing a process's own is unsafe: so
//! the test runs itself once more, as a child that has them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::conformance::{Trial, check, record_of, slot_bytes};
use headstart_core::{BlockHash, IdentityDigest, TenantTag};
use headstart_store::backend::{Condition, Failure, LossReason, ResidentRecord, no_waker};
use headstart_store::record::{Content, Exactness, record_bytes};
use headstart_store::remote::{Remote, RemoteOptions};
use headstart_store::{
    Arena, Backend, Command, CommandOutcome, Draft, Meta, Record, Report, Ticket,
};

/// Longest wait for anything; a Python server takes some seconds to start.
const PATIENCE: Duration = Duration::from_secs(30);

const PROGRAM: &str = "moto_server";

/// Tells the child where its server shall listen.
const PORT: &str = "HEADSTART_TEST_S3_PORT";

/// Says who asks; this server believes it.
const AUTHORIZATION: &str = "AWS4-HMAC-SHA256 Credential=headstart/20260101/us-east-1/s3/\
                             aws4_request, SignedHeaders=host, Signature=0";

/// Of a record that is sent in parts, bytes: more than the default from which on it is.
const LARGE: usize = 20 << 20;

/// Largest part of the other records, bytes.
const PART: usize = 300;

#[test]
fn a_server_that_speaks_s3_is_a_store() {
    if program().is_none() {
        return;
    }
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let child = Process::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "s3::inside", "--ignored", "--nocapture"])
        .env(PORT, port.to_string())
        .env("AWS_ACCESS_KEY_ID", "headstart")
        .env("AWS_SECRET_ACCESS_KEY", "headstart")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"))
        .env("AWS_ALLOW_HTTP", "true")
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .expect("it starts");
    let [out, err] =
        [child.stdout, child.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let output = out + &err;
    assert!(child.status.success(), "{output}");
    assert!(output.contains("1 passed"), "{output}");
}

#[test]
#[ignore = "run by the other test, in an environment of its own"]
fn inside() {
    let port = std::env::var(PORT).ok().and_then(|port| port.parse().ok());
    let (Some(port), Some(program)) = (port, program()) else {
        return;
    };
    let mut server = Server { program, port, child: None };
    server.start();
    let error = Remote::open(&options(), no_waker()).expect_err("there is no bucket");
    assert!(error.to_string().contains("the bucket is there"), "{error}");
    server.make_bucket();

    let mut bench = Bench::open();
    assert!(bench.residents.is_empty());
    check(&mut bench.remote, Trial { seed: 1, commands: 150, names: 30, part_bytes: PART });
    large_records_go_in_parts(&mut bench);
    another_replica_finds_it_and_puts_it_again_for_nothing(&mut bench);
    a_damaged_object_is_set_aside(&mut bench, &server);
    an_outage_ends(&mut bench, &mut server);
    let purged = bench.ask(|ticket| Command::Purge { ticket, tenant: TenantTag(2) });
    assert!(matches!(purged, CommandOutcome::Removed(1)), "{purged:?}");
    assert!(matches!(bench.get(7002), CommandOutcome::Missing));
}

fn large_records_go_in_parts(bench: &mut Bench) {
    let slot = bench.arena.take().expect("a slot is free");
    let meta = Meta {
        name: BlockHash::from_u64(5001),
        parent: None,
        identity: IdentityDigest([1; 16]),
        tenant: TenantTag(1),
        tokens: 256,
        exactness: Exactness::Exact,
        content: Content::Unit,
        created_s: 1,
        expires_s: None,
    };
    let mut draft = Draft::new(slot, meta, &[LARGE]).expect("it fits");
    let pattern = |at: usize| (at / 3 + at / 70_000) as u8;
    let bytes = draft.part_mut(0).iter_mut().enumerate();
    bytes.for_each(|(at, byte)| *byte = pattern(at));
    let record = draft.seal();
    let stored = bench.ask(|ticket| Command::Put { ticket, record });
    assert!(matches!(stored, CommandOutcome::Stored), "{stored:?}");
    let CommandOutcome::Loaded(record) = bench.get(5001) else {
        panic!("it was stored");
    };
    let mut bytes = record.part(0).iter().enumerate();
    assert!(bytes.all(|(at, &byte)| byte == pattern(at)));
}

fn another_replica_finds_it_and_puts_it_again_for_nothing(bench: &mut Bench) {
    let mut second = Bench::open();
    let is_large = |resident: &&ResidentRecord| resident.name == BlockHash::from_u64(5001);
    let found = second.residents.iter().find(is_large);
    let found = found.expect("it is listed");
    assert_eq!((found.tokens, found.tenant), (256, TenantTag(1)));
    assert_eq!(found.bytes, record_bytes(&[LARGE]) as u64);
    assert!(matches!(second.get(5001), CommandOutcome::Loaded(_)));
    // Neither knows of what the other puts: the server's condition tells.
    assert!(matches!(bench.put(6001), CommandOutcome::Stored));
    let stats = second.remote.stats();
    assert!(matches!(second.put(6001), CommandOutcome::Stored));
    let counts = (stats.puts.load(Relaxed), stats.puts_saved.load(Relaxed));
    assert_eq!(counts, (0, 1));
}

fn a_damaged_object_is_set_aside(bench: &mut Bench, server: &Server) {
    assert!(matches!(bench.put(6002), CommandOutcome::Stored));
    let tenant = format!("{:016x}", 6002 % 5);
    let name = format!("{:032x}_{:032x}_16_0.kv", 6002, 6001);
    let object = format!("/bucket/some/prefix/v1/{tenant}/00/{name}");
    assert_eq!(server.ask("PUT", &object, "noise"), 200);
    let damaged = bench.get(6002);
    let is_seen = matches!(damaged, CommandOutcome::Failed(Failure::Corrupt));
    assert!(is_seen, "{damaged:?}");
    bench.eventually("loss", |bench| bench.has_lost(6002, LossReason::Corrupt));
    let aside = format!("/bucket/some/prefix/quarantine/{tenant}/{name}");
    bench.eventually("quarantine", |_| {
        server.ask("GET", &aside, "") == 200 && server.ask("GET", &object, "") == 404
    });
    assert!(matches!(bench.put(6002), CommandOutcome::Stored));
    assert!(matches!(bench.get(6002), CommandOutcome::Loaded(_)));
}

fn an_outage_ends(bench: &mut Bench, server: &mut Server) {
    server.kill();
    let gone = Condition::Gone(Failure::Offline);
    bench.eventually("end", |bench| {
        let is_offline = matches!(bench.get(6001), CommandOutcome::Failed(Failure::Offline));
        is_offline && bench.has_said(gone)
    });
    let started = Instant::now();
    let refused = bench.put(7001);
    assert!(matches!(refused, CommandOutcome::Failed(Failure::Offline)));
    assert!(started.elapsed() < Duration::from_millis(100), "at once");
    server.start();
    server.make_bucket();
    bench.eventually("return", |bench| bench.has_said(Condition::Well));
    // The server remembers nothing.
    bench.eventually("loss", |bench| bench.has_lost(6001, LossReason::Evicted));
    assert!(matches!(bench.put(7002), CommandOutcome::Stored));
    assert!(matches!(bench.get(7002), CommandOutcome::Loaded(_)));
}

fn options() -> RemoteOptions {
    RemoteOptions {
        refresh: Duration::from_secs(2),
        request_timeout: Duration::from_secs(10),
        backoff: Duration::from_millis(20),
        offline_after: 2,
        probe: Duration::from_millis(100),
        max_probe: Duration::from_millis(200),
        ..RemoteOptions::new("s3://bucket/some/prefix")
    }
}

/// A tier, and what it said.
struct Bench {
    remote: Remote,
    residents: Vec<ResidentRecord>,
    arena: Arc<Arena>,
    next: u64,
    answers: BTreeMap<Ticket, CommandOutcome>,
    others: Vec<Report>,
}

impl Bench {
    fn open() -> Self {
        let opened = Remote::open(&options(), no_waker());
        let (remote, residents) = opened.expect("the bucket is there");
        let slot_bytes = slot_bytes(PART).max(record_bytes(&[LARGE]));
        Self {
            remote,
            residents,
            arena: Arena::new(slot_bytes, 4).expect("memory"),
            next: 1 << 32,
            answers: BTreeMap::new(),
            others: Vec::new(),
        }
    }

    fn poll(&mut self) {
        let mut reports = Vec::new();
        self.remote.poll(&mut reports);
        for report in reports {
            match report {
                Report::Done { ticket, outcome } => drop(self.answers.insert(ticket, outcome)),
                other => self.others.push(other),
            }
        }
    }

    fn eventually(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let started = Instant::now();
        loop {
            self.poll();
            if is_so(self) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "no {what}: {:?}", self.others);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn ask(&mut self, command: impl FnOnce(Ticket) -> Command) -> CommandOutcome {
        let ticket = Ticket(self.next);
        self.next += 1;
        self.remote.submit(command(ticket)).expect("there is room");
        self.eventually("answer", |bench| bench.answers.contains_key(&ticket));
        self.answers.remove(&ticket).expect("it is there")
    }

    fn put(&mut self, name: u64) -> CommandOutcome {
        let slot = self.arena.take().expect("a slot is free");
        let record: Record = record_of(name, PART, slot);
        self.ask(|ticket| Command::Put { ticket, record })
    }

    fn get(&mut self, name: u64) -> CommandOutcome {
        let slot = self.arena.take().expect("a slot is free");
        let name = BlockHash::from_u64(name);
        self.ask(|ticket| Command::Get { ticket, name, slot })
    }

    fn has_said(&self, condition: Condition) -> bool {
        let is_it = |report: &Report| matches!(report, Report::Condition(is) if *is == condition);
        self.others.iter().any(is_it)
    }

    fn has_lost(&self, name: u64, why: LossReason) -> bool {
        let name = BlockHash::from_u64(name);
        self.others.iter().any(|report| match report {
            Report::Lost { names, loss } => *loss == why && names.contains(&name),
            _ => false,
        })
    }
}

/// A server that is killed when dropped.
struct Server {
    program: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Server {
    fn start(&mut self) {
        let child = Process::new(&self.program)
            .args(["-H", "127.0.0.1", "-p", &self.port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.expect("the server starts"));
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(started.elapsed() < PATIENCE, "the server never listened");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }

    fn make_bucket(&self) {
        assert_eq!(self.ask("PUT", "/bucket", ""), 200);
    }

    /// Sends a request whose signature is not checked; returns its status.
    fn ask(&self, method: &str, path: &str, body: &str) -> u16 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let host = format!("127.0.0.1:{}", self.port);
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\
             Connection: close\r\nAuthorization: {AUTHORIZATION}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
        status.expect("a status")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The server's program: as the environment says, on the path, or where `cargo x check --services`
/// installs it.
fn program() -> Option<PathBuf> {
    let named = std::env::var_os("HEADSTART_MOTO").map(PathBuf::from);
    let crate_folder = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let installed = crate_folder.map(|folder| {
        let target = folder.join("../../target/services/moto");
        target.join("bin").join(PROGRAM)
    });
    let runs = |program: &PathBuf| {
        let help = Process::new(program)
            .arg("--help")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        help.is_ok_and(|status| status.success())
    };
    let candidates = [named, Some(PROGRAM.into()), installed];
    let found = candidates.into_iter().flatten().find(runs);
    if found.is_none() {
        let is_wanted = std::env::var_os("HEADSTART_SERVICES").is_some_and(|value| value == "1");
        assert!(!is_wanted, "{PROGRAM} is not installed");
        // Past the capture of test output: who runs the tests is to see it.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: {PROGRAM} is not installed; `cargo x check --services` installs it"
        );
    }
    found
}
