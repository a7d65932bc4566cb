//! `headstart serve --state-dir`: the binary, ended and started again.

use crate::support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use support::{Scratch, Served, eventually, serve};

/// The replica that a prompt goes to.
fn home(server: &Served, seed: usize) -> String {
    let body = serde_json::json!({
        "model": "toy", "max_tokens": 1,
        "messages": [{"role": "user", "content": format!("{seed} times value. ").repeat(40)}],
    });
    let answer = server.ask("POST", "/v1/chat/completions", &body.to_string());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mut lines = answer.lines();
    let home = lines.find_map(|line| line.strip_prefix("x-headstart-replica: "));
    home.expect("named").to_owned()
}

/// An engine: a server with one embedded replica, and where that publishes and replays.
fn engine() -> (Served, String, String) {
    let mut command = serve(["--replicas", "1"]);
    let command = command.env("HEADSTART_LOG", "info");
    let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut process = process.expect("the binary runs");
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
    // A full pipe must not block the process.
    std::thread::spawn(move || lines.for_each(drop));
    (Served::ready(process), events, replay)
}

/// The number of entries, once no event has changed it for half a second.
fn settled(server: &Served) -> Value {
    let mut known = server.index()["entries"].clone();
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = server.index()["entries"].clone();
        if now == known {
            return known;
        }
        known = now;
    }
}

#[test]
fn a_gateway_that_starts_again_knows_where_prompts_were() {
    let folder = Scratch::new("state");
    let toy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/toy-tokenizer");
    let engines = [engine(), engine()];
    let arguments = |with_replay: bool| {
        let mut arguments = vec!["--state-dir".to_owned(), folder.path("")];
        for (server, events, replay) in &engines {
            let replay = if with_replay { format!("replay={replay},") } else { String::new() };
            let (address, toy) = (&server.address, toy.display());
            let upstream = format!("http://{address},kv={events},{replay}tokenizer={toy}");
            arguments.extend(["--upstream".to_owned(), upstream]);
        }
        arguments
    };
    let mut first = Served::start(arguments(true));
    let homes: Vec<String> = (0..8).map(|seed| home(&first, seed)).collect();
    assert!(homes.contains(&"0".to_owned()) && homes.contains(&"1".to_owned()), "{homes:?}");
    let is_complete = |server: &Served| {
        let index = server.index();
        let mut replicas = index["replicas"].as_array().expect("a list").iter();
        let is_whole = replicas.all(|replica| replica["stream"]["state"] == "complete");
        is_whole && index["entries"].as_u64() > Some(8 * 8)
    };
    eventually("all that they hold", || is_complete(&first));
    let known = settled(&first);
    first.end("-TERM");
    // Without replays nothing but the folder can tell the next two. The second is killed.
    for signal in ["-KILL", "-TERM"] {
        let mut next = Served::start(arguments(false));
        let index = next.index();
        assert_eq!((&index["entries"], &index["doubtful"]), (&known, &known));
        let again: Vec<String> = (0..8).map(|seed| home(&next, seed)).collect();
        assert_eq!(again, homes);
        next.end(signal);
    }
}
