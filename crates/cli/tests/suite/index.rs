//! `headstart index`: its output about a gateway, and its complaints without one.

use crate::support;

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};
use support::{PATIENCE, Scratch, Served, eventually, output, text};

/// Returns the output of a command, which must succeed without a complaint.
fn printed(args: &[&str]) -> String {
    let output = output([&["index"], args].concat());
    let complaint = text(&output.stderr);
    assert!(output.status.success(), "{args:?}: {complaint}");
    assert_eq!(complaint, "", "{args:?}");
    text(&output.stdout)
}

/// Returns the complaint of a command: one line, and nothing on standard output.
fn complaint(args: &[&str], exit_code: i32) -> String {
    let output = output([&["index"], args].concat());
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(exit_code), "{args:?}: {complaint}");
    assert_eq!(text(&output.stdout), "", "{args:?}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    complaint.trim_end().to_owned()
}

fn chat(server: &Served) {
    let words = "time value list name string ".repeat(20);
    let body = json!({
        "model": "toy", "max_tokens": 1, "messages": [{"role": "user", "content": words}],
    });
    server.json("POST", "/v1/chat/completions", &body.to_string());
}

#[test]
fn an_index_is_shown_and_dumped_whole_or_in_part() {
    let server = Served::start(["--replicas", "2"]);
    let url = server.url();
    chat(&server);
    let entries = || server.index()["entries"].as_u64().expect("a count") as usize;
    eventually("the prompt's blocks", || entries() > 5);
    eventually("two streams", || {
        let told = server.index();
        (0..2).all(|replica| told["replicas"][replica]["stream"]["state"] == "complete")
    });
    let shown = printed(&["show", "--url", &url]);
    let row = |replica: &str| row(&shown, replica);
    assert!(row("0").starts_with("0 embedded up complete device "), "{shown}");
    assert!(row("1").starts_with("1 embedded up complete none "), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let told: Value =
        serde_json::from_str(&printed(&["show", "--url", &url, "--json"])).expect("JSON");
    assert_eq!(told["entries"], entries());
    let dumped = printed(&["dump", "--url", &url]);
    assert_eq!(dumped.lines().count(), entries());
    assert_eq!(printed(&["dump", "--url", &url, "--replica", "1"]), "");
    assert_eq!(printed(&["dump", "--url", &url, "--limit", "2"]).lines().count(), 2);
    let scratch = Scratch::new("dumps");
    let file = scratch.path("dump.jsonl");
    assert_eq!(printed(&["dump", "--url", &url, "-o", &file]), "");
    assert_eq!(std::fs::read_to_string(&file).expect("written"), dumped);
    let none = complaint(&["dump", "--url", &url, "--replica", "99", "-o", &file], 2);
    assert_eq!(none, "error: there is no replica 99; ask for one of 0 to 1");
    let kept = std::fs::read_to_string(&file).expect("still there");
    assert_eq!(kept, dumped, "what fails takes nothing away");
    printed(&["dump", "--url", &url, "--replica", "1", "-o", &file]);
    assert_eq!(std::fs::read_to_string(&file).expect("there"), "");
}

/// The first row of a replica, its cells one space apart.
fn row(shown: &str, replica: &str) -> String {
    let mut rows = shown.lines().skip_while(|line| !line.starts_with("replica"));
    let is_it = |line: &&str| line.split_whitespace().next() == Some(replica);
    let cells = rows.find(is_it).unwrap_or_default();
    cells.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn each_replica_is_shown_with_its_engine_and_rank() {
    let engine = Served::start(["--replicas", "1"]);
    let other = Served::start(["--replicas", "1"]);
    let ranks = format!("{},data-parallel-size=2", engine.url());
    let gateway = Served::start(["--upstream", &ranks, "--upstream", &other.url()]);
    let shown = printed(&["show", "--url", &gateway.url()]);
    let expected = [
        format!("0 {} rank 0 up none ", engine.url()),
        format!("1 {} rank 1 up none ", engine.url()),
        format!("2 {} up none ", other.url()),
    ];
    for (replica, expected) in expected.iter().enumerate() {
        let row = row(&shown, &replica.to_string());
        assert!(row.starts_with(expected), "{row}");
    }
    let told = gateway.index();
    assert_eq!(told["shared_index"], Value::Null);
    for (at, (url, rank)) in
        [(engine.url(), json!(0)), (engine.url(), json!(1)), (other.url(), Value::Null)]
            .into_iter()
            .enumerate()
    {
        let replica = &told["replicas"][at];
        assert_eq!((&replica["upstream"], &replica["rank"]), (&json!(url), &rank));
        assert_eq!(replica["listener"], Value::Null);
    }
}

#[test]
fn a_key_is_asked_for_by_the_option_that_gives_it() {
    let scratch = Scratch::new("keys");
    let right = scratch.write("right", b"sesame\n");
    let wrong = scratch.write("wrong", b"simsalabim\n");
    let server = Served::start(["--replicas", "1", "--api-key-file", &right]);
    let url = server.url();
    for what in ["show", "dump"] {
        let missing = complaint(&[what, "--url", &url], 2);
        assert!(missing.contains("give --api-key-file FILE"), "{missing}");
        let refused = complaint(&[what, "--url", &url, "--api-key-file", &wrong], 2);
        assert!(refused.contains(&wrong), "{refused}");
        for said in [missing, refused] {
            assert!(!said.contains("Authorization") && !said.contains("simsalabim"), "{said}");
        }
        printed(&[what, "--url", &url, "--api-key-file", &right]);
    }
}

/// A server that answers everything with this.
fn stranger(status: &str, body: &str) -> String {
    let length = body.len();
    answering(format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    ))
}

/// A server that answers everything with these bytes, and closes. Ends with the process.
fn answering(bytes: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let _ = socket.set_read_timeout(Some(PATIENCE));
            let _ = socket.read(&mut [0; 4096]);
            let _ = socket.write_all(bytes.as_bytes());
        }
    });
    url
}

#[test]
fn what_is_no_gateway_is_not_taken_for_one() {
    let page = "<html>\n<head>\u{1b}[31m<title>404</title></head>\n</html>\n";
    let scratch = Scratch::new("strangers");
    let file = scratch.write("dump", b"as it was");
    for (status, body, shown) in [
        ("404 Not Found", page, ": `<html> <head>\\u{1b}[31m<title>404</title></head> </html>`"),
        ("404 Not Found", r#"{"detail":"Not Found"}"#, ": `{\"detail\":\"Not Found\"}`"),
        ("301 Moved Permanently", "", " 301;"),
        ("200 OK", page, ": `<html> <head>\\u{1b}[31m"),
        ("200 OK", "{}", ": `{}`"),
        ("200 OK", "[1, 2]\n", ": `[1, 2]`"),
        ("200 OK", "pong\n", ": `pong`"),
    ] {
        let url = stranger(status, body);
        let asked: [&[&str]; 4] =
            [&["show"], &["show", "--json"], &["dump"], &["dump", "-o", &file]];
        for args in asked {
            let said = complaint(&[args, &["--url", &url]].concat(), 2);
            let start = format!("error: {url} is not a Headstart gateway, or an older one: ");
            assert!(said.starts_with(&start) && said.contains(shown), "{said}");
        }
    }
    assert_eq!(std::fs::read(&file).expect("still there"), b"as it was");
    let said = complaint(&["show", "--url", &stranger("200 OK", "")], 2);
    assert!(said.contains("is not a Headstart gateway"), "{said}");
    let said = complaint(&["show", "--url", &stranger("502 Bad Gateway", "nginx")], 2);
    assert!(said.contains("502: `nginx`; if a Headstart gateway is behind it"), "{said}");
    let said = complaint(&["show", "--url", "http://127.0.0.1:1"], 2);
    assert!(said.ends_with("is the server running there?"), "{said}");
    // A dump that breaks off is a part of one, and is called so.
    let entry = r#"{"replica":0,"key":"00ab","group":0,"tier":"device","doubtful":false}"#;
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let broken = answering(head.to_owned());
    let said = complaint(&["dump", "-o", &file, "--url", &broken], 2);
    assert!(said.contains("broke off"), "{said}");
    assert_eq!(std::fs::read(&file).expect("there"), b"as it was");
    let part = format!("46\r\n{entry}\n\r\n");
    let broken = answering(format!("{head}{part}"));
    let said = complaint(&["dump", "-o", &file, "--url", &broken], 2);
    assert!(said.contains("dump is incomplete: ") && said.contains("broke off"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).expect("there"), format!("{entry}\n"));
}
