//! A real server, started and killed by the test.

// Each user takes its own part.
#![allow(dead_code)]

use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longest wait for anything in these tests; far beyond what is expected.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// Whether the server remembers what it held when it is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    Kept,
    Lost,
}

/// A server that is killed when dropped.
pub(crate) struct Service {
    program: &'static str,
    memory: Memory,
    options: Vec<String>,
    port: u16,
    folder: PathBuf,
    child: Option<Child>,
}

impl Service {
    /// A running server; none, with a word about it, where there is no program.
    pub(crate) fn start(memory: Memory) -> Option<Self> {
        Self::start_with(memory, &[])
    }

    pub(crate) fn start_with(memory: Memory, options: &[&str]) -> Option<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let program = program()?;
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("headstart-shared-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder for the server");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let options = options.iter().map(|&option| option.to_owned());
        let mut service =
            Self { program, memory, options: options.collect(), port, folder, child: None };
        service.restart();
        Some(service)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    pub(crate) fn client(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).expect("an address");
        client.get_connection().expect("the server is there")
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
    }

    pub(crate) fn restart(&mut self) {
        let append_only = match self.memory {
            Memory::Kept => ["--appendonly", "yes", "--appendfsync", "always"],
            Memory::Lost => ["--appendonly", "no", "--appendfsync", "no"],
        };
        let child = Command::new(self.program)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--daemonize", "no"])
            .args(append_only)
            .args(&self.options)
            .current_dir(&self.folder)
            .stdout(Stdio::null())
            .spawn();
        self.child = Some(child.expect("the server starts"));
        let client = redis::Client::open(self.url()).expect("an address");
        eventually("a server", || {
            let answer = client.get_connection().and_then(|mut connection| {
                let pong: String = redis::cmd("PING").query(&mut connection)?;
                Ok(pong)
            });
            // One that wants a password is there as well.
            answer.map_or_else(|error| !error.is_io_error(), |pong| pong == "PONG")
        });
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn program() -> Option<&'static str> {
    let runs = |program: &&str| {
        let version = Command::new(program).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let found = PROGRAMS.into_iter().find(runs);
    if found.is_none() {
        let is_wanted = std::env::var_os("HEADSTART_SERVICES").is_some_and(|value| value == "1");
        assert!(!is_wanted, "neither of {PROGRAMS:?} is installed");
        // Past the capture of test output: who runs the tests is to see it.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: neither of {PROGRAMS:?} is installed; `cargo x check --services` installs one"
        );
    }
    found
}

/// Waits until `condition` holds.
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_about(|| what.to_owned(), condition);
}

/// The same, saying more where it never does.
pub(crate) fn eventually_about(what: impl Fn() -> String, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "never came: {}", what());
        std::thread::sleep(Duration::from_micros(100));
    }
}
