//! Warnings in the log of `headstart serve` when something is short or gone: once, with the cause
//! and what to do.

use crate::support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};

use support::{PATIENCE, Served, eventually, headstart, serve};

/// A server whose log is read.
fn logged(args: &[&str]) -> (Served, Receiver<String>) {
    let mut served = Served::run(support::serve(args).stderr(Stdio::piped()));
    let stderr = served.process.stderr.take().expect("piped");
    let (tell, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines() {
            // The test may have stopped listening.
            let _ = tell.send(line.expect("text"));
        }
    });
    (served, lines)
}

fn next(lines: &Receiver<String>, part: &str) -> String {
    loop {
        let line = lines.recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|_| panic!("no line says {part}"));
        if line.contains(part) {
            return line;
        }
    }
}

/// Issue 5: "replica is down replica=0" was all that was said.
#[test]
fn a_dead_upstream_is_told_once_with_address_and_cause() {
    let placeholder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = placeholder.local_addr().expect("bound");
    drop(placeholder);
    let url = format!("http://{address}");
    let (gateway, log) = logged(&["--upstream", &url]);
    let first = next(&log, "replica is down");
    for part in ["WARN", &url, "refused", "replica=\"0\"", "503", "/health"] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let listen = address.to_string();
    let mut engine = support::headstart(["serve", "--replicas", "1", "--listen", &listen]);
    let mut engine = Served::run(engine.stderr(Stdio::null()));
    let is_ready = || gateway.ask("GET", "/ready", "").starts_with("HTTP/1.1 200");
    eventually("the engine to be up", is_ready);
    engine.end("-KILL");
    eventually("the engine to be gone", || !is_ready());
    let second = next(&log, "replica is down");
    assert!(second.contains(&url), "{second}");
    drop(gateway);
    let more: Vec<String> = log.iter().filter(|line| line.contains("is down")).collect();
    assert!(more.is_empty(), "told once per change: {more:?}");
}

/// Issue 5: open connections kept all others out, without a warning.
#[test]
fn connections_without_a_place_are_told() {
    let (server, log) = logged(&["--replicas", "1", "--max-connections", "2"]);
    let open = || TcpStream::connect(&server.address).expect("connects");
    let held = [open(), open()];
    let line = next(&log, "connections=2");
    for part in ["WARN", "wait", "--max-connections", "open files"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let mut waiting = open();
    let request = "GET /health HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
    waiting.write_all(request.as_bytes()).expect("sends");
    drop(held);
    let mut answer = String::new();
    waiting.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    waiting.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let check = |args: &[&str], part: &str| {
        let output = support::serve(args).output().expect("the binary runs");
        let said = support::text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(part), "{part}: {said}");
    };
    let upstream = "http://127.0.0.1:1";
    check(&["--upstream-timeout", "5"], "concerns --upstream engines");
    check(&["--upstream", upstream, "--upstream-silence", "0"], "from 0.001");
    check(&["--upstream", upstream, "--upstream", upstream], "leave one out");
    check(&["--upstream", upstream, "--kv-events-port", "5557"], "concerns embedded");
    check(&["--max-connections", "0"], "accepts no client");
    check(&["--kv-events-port", "65535"], "--kv-events-port");
}

/// Standard error that cannot be written, such as a log on a full disk, ends nothing: commands keep
/// their exit codes, and a server serves and ends in order.
#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let full = || {
        let file = std::fs::File::options().write(true).open("/dev/full");
        Stdio::from(file.expect("a device of Linux"))
    };
    let code = |args: &[&str]| {
        let mut command = headstart(args);
        let status = command.stdout(Stdio::null()).stderr(full()).status();
        status.expect("the binary runs").code()
    };
    assert_eq!(code(&["analyze", "no such file"]), Some(2));
    assert_eq!(code(&["analyse"]), Some(2));
    for format in ["text", "json"] {
        let mut command = serve(["--upstream", "http://127.0.0.1:9"]);
        command.env("HEADSTART_LOG", "debug");
        let mut server = Served::run(command.env("HEADSTART_LOG_FORMAT", format).stderr(full()));
        let body = r#"{"model": "m", "messages": [{"role": "user", "content": "hi"}]}"#;
        let answer = server.ask("POST", "/v1/chat/completions", body);
        assert!(answer.contains("503"), "{answer}");
        assert!(server.end("-TERM").success());
    }
}
