//! The binary as a process: `headstart serve` on a port of its own, and raw HTTP to talk to it.
//!
//! No configuration or environment of the developer's matters to what is started here, and
//! nothing outlives its test.

// Each test file uses its own part.
#![allow(dead_code, unreachable_pub)]

pub mod every;
pub mod moto;

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Options with which a server has another model than the toy.
const OTHER_ENGINES: [&str; 4] = ["--upstream", "--model", "--config", "--executor"];

/// The binary, with these arguments.
pub fn headstart<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
    let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.to_string_lossy().starts_with("HEADSTART_")) {
        command.env_remove(name);
    }
    command
        .current_dir(std::env::temp_dir())
        // A machine under load is slow, and standard error is compared.
        .env("HEADSTART_PROGRESS_AFTER_MS", "3600000")
        .args(&args)
        .stdin(Stdio::null());
    // These tests are about what a server keeps, not about how long it computes.
    let is_own = |arg: &OsString| OTHER_ENGINES.iter().any(|other| arg == other);
    if !args.iter().any(is_own) {
        command.env("HEADSTART_MODEL", "toy-tiny").env("HEADSTART_SERVED_MODEL_NAME", "toy");
    }
    command
}

/// Runs the binary to its end, and returns its output.
pub fn output<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Output {
    headstart(args).output().expect("the binary runs")
}

/// Returns the command of a server on a free port.
pub fn serve<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Command {
    let own = ["serve", "--listen", "127.0.0.1:0"].map(OsString::from);
    let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
    headstart(own.into_iter().chain(args))
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A `headstart serve` process; killed when dropped.
pub struct Served {
    pub process: Child,
    pub address: String,
}

impl Served {
    /// Silent.
    pub fn start<I: IntoIterator<Item: AsRef<OsStr>>>(args: I) -> Self {
        Self::run(serve(args).stderr(Stdio::null()))
    }

    /// Runs a command until it is ready.
    pub fn run(command: &mut Command) -> Self {
        let process = command.stdout(Stdio::piped()).spawn();
        Self::ready(process.expect("the binary runs"))
    }

    /// A process whose standard output is piped, once it says where it listens.
    pub fn ready(mut process: Child) -> Self {
        let mut line = String::new();
        let stdout = process.stdout.take().expect("piped");
        let read = BufReader::new(stdout).read_line(&mut line);
        read.expect("a ready line");
        let mut words = line.split_whitespace();
        let address = words.find_map(|word| word.strip_prefix("http://"));
        let address = address.unwrap_or_else(|| panic!("a URL in the ready line: {line}"));
        Self { address: address.trim_end_matches("/v1").to_owned(), process }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends a request whose answer is still to be read.
    pub fn open(&self, method: &str, path: &str, body: &str) -> TcpStream {
        self.open_with(method, path, "", body)
    }

    /// The same with these lines in its head.
    fn open_with(&self, method: &str, path: &str, lines: &str, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(&self.address).expect("connects");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let head = format!("{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n");
        let request = format!("{head}{lines}content-length: {}\r\n\r\n{body}", body.len());
        socket.write_all(request.as_bytes()).expect("sends");
        socket
    }

    /// Posts something with a header more. Status line, head and body of the answer.
    pub fn post_with(&self, path: &str, (name, value): (&str, &str), body: &str) -> String {
        let mut answer = String::new();
        let lines = format!("{name}: {value}\r\n");
        let read = self.open_with("POST", path, &lines, body).read_to_string(&mut answer);
        read.expect("an answer in time");
        answer
    }

    /// Status line, head and body of the answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut answer = String::new();
        let read = self.open(method, path, body).read_to_string(&mut answer);
        read.expect("an answer in time");
        answer
    }

    /// Returns the JSON body of a successful answer.
    pub fn json(&self, method: &str, path: &str, body: &str) -> Value {
        let answer = self.ask(method, path, body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).unwrap_or_else(|_| panic!("JSON: {body}"))
    }

    pub fn index(&self) -> Value {
        self.json("GET", "/debug/index", "")
    }

    pub fn metrics(&self) -> String {
        self.ask("GET", "/metrics", "")
    }

    /// Sends it a signal, such as `-TERM`, and waits for its end.
    pub fn end(&mut self, signal: &str) -> ExitStatus {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("kill runs").success());
        self.process.wait().expect("it ends")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Says that something was not tested, past the capture of test output: who runs the tests is to
/// see it.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "never came: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A folder that goes with its test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// No two of one test file may have the same name.
    pub fn new(name: &str) -> Self {
        let folder =
            format!("headstart-{}-{}-{name}", env!("CARGO_CRATE_NAME"), std::process::id());
        let path = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes a file as a whole, as one should who replaces a file in use.
    pub fn write(&self, name: &str, bytes: &[u8]) -> String {
        let new = self.0.join(format!("{name}.new"));
        std::fs::write(&new, bytes).expect("writes");
        std::fs::rename(new, self.0.join(name)).expect("renames");
        self.path(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
