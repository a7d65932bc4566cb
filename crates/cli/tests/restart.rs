//! `headstart serve --state-dir`: the binary, ended and started again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `headstart serve` process; killed when dropped.
struct Served {
    process: Child,
    address: String,
}

impl Served {
    fn start(args: &[String]) -> Self {
        Self::from(Self::spawn(args, Stdio::null()))
    }

    fn spawn(args: &[String], stderr: Stdio) -> Child {
        Command::new(env!("CARGO_BIN_EXE_headstart"))
            .current_dir(std::env::temp_dir())
            .env("HEADSTART_LOG", "info")
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("the binary runs")
    }

    fn from(mut process: Child) -> Self {
        let mut line = String::new();
        let stdout = process.stdout.take().expect("piped");
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("a ready line");
        let mut words = line.split_whitespace();
        let url = words.find(|word| word.starts_with("http://"));
        let url = url.unwrap_or_else(|| panic!("a URL in the ready line: {line}"));
        let address = url
            .trim_start_matches("http://")
            .trim_end_matches("/v1")
            .to_owned();
        Self { process, address }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).expect("connects");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let head = format!("{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n");
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        socket.write_all(request.as_bytes()).expect("sends");
        let mut answer = String::new();
        socket
            .read_to_string(&mut answer)
            .expect("an answer in time");
        answer
    }

    /// The replica that a prompt goes to.
    fn home(&self, seed: usize) -> String {
        let body = serde_json::json!({
            "model": "toy", "max_tokens": 1,
            "messages": [{"role": "user", "content": format!("{seed} times value. ").repeat(40)}],
        });
        let answer = self.ask("POST", "/v1/chat/completions", &body.to_string());
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let mut lines = answer.lines();
        let home = lines.find_map(|line| line.strip_prefix("x-headstart-replica: "));
        home.expect("named").to_owned()
    }

    fn index(&self) -> Value {
        let answer = self.ask("GET", "/debug/index", "");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).unwrap_or_else(|_| panic!("JSON: {body}"))
    }

    fn end(&mut self, signal: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("kill runs").success());
        self.process.wait().expect("it ends");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An engine: a server with one embedded replica, and where that publishes and replays.
fn engine() -> (Served, String, String) {
    let mut process = Served::spawn(&["--replicas".into(), "1".into()], Stdio::piped());
    let stderr = process.stderr.take().expect("piped");
    let mut lines = BufReader::new(stderr).lines();
    let line = lines.find_map(|line| {
        let line = line.expect("text");
        line.contains("publishing cache events").then_some(line)
    });
    let line = line.expect("it says where it publishes");
    let mut addresses = line.split('"').filter(|part| part.starts_with("tcp://"));
    let mut next = || addresses.next().expect("an address").to_owned();
    let (events, replay) = (next(), next());
    // Nobody may be stopped by a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    (Served::from(process), events, replay)
}

struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_gateway_that_starts_again_knows_where_prompts_were() {
    let name = format!("headstart-restart-{}", std::process::id());
    let folder = Temporary(std::env::temp_dir().join(name));
    let toy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/toy-tokenizer");
    let engines = [engine(), engine()];
    let arguments = |with_replay: bool| {
        let mut arguments = vec!["--state-dir".to_owned(), folder.0.display().to_string()];
        for (server, events, replay) in &engines {
            let replay = match with_replay {
                true => format!("replay={replay},"),
                false => String::new(),
            };
            let (address, toy) = (&server.address, toy.display());
            let upstream = format!("http://{address},kv={events},{replay}tokenizer={toy}");
            arguments.extend(["--upstream".to_owned(), upstream]);
        }
        arguments
    };
    let mut first = Served::start(&arguments(true));
    let homes: Vec<String> = (0..8).map(|seed| first.home(seed)).collect();
    assert!(
        homes.contains(&"0".to_owned()) && homes.contains(&"1".to_owned()),
        "{homes:?}"
    );
    let is_complete = |server: &Served| {
        let index = server.index();
        let mut replicas = index["replicas"].as_array().expect("a list").iter();
        let is_whole = replicas.all(|replica| replica["stream"]["state"] == "complete");
        is_whole && index["entries"].as_u64() > Some(8 * 8)
    };
    for _ in 0..600 {
        if is_complete(&first) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(is_complete(&first));
    let known = first.index()["entries"].clone();
    first.end("-TERM");
    // Without replays nothing but the folder can tell the next two. The second is killed.
    for signal in ["-KILL", "-TERM"] {
        let mut next = Served::start(&arguments(false));
        let index = next.index();
        assert_eq!((&index["entries"], &index["doubtful"]), (&known, &known));
        let again: Vec<String> = (0..8).map(|seed| next.home(seed)).collect();
        assert_eq!(again, homes);
        next.end(signal);
    }
}
