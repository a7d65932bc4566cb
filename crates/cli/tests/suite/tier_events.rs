//! `headstart serve --context-cache` with two replicas: events tell what their lower tiers hold,
//! on the wire and in the gateway's index, and prompts go where they can be loaded.

use crate::support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use support::{PATIENCE, Scratch, Served, eventually};

/// More than the devices of both replicas hold.
const PROMPTS: usize = 6;

/// An answer's text, its replica, and how many prompt tokens were found.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    text: String,
    replica: String,
    found: u64,
}

fn ask(server: &Served, number: usize) -> Answer {
    let body = json!({
        "model": "toy", "max_tokens": 8, "temperature": 0,
        "messages": [{"role": "user", "content": format!("{number} times value. ").repeat(150)}],
    });
    let answer = server.ask("POST", "/v1/chat/completions", &body.to_string());
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    let headers = head.lines().filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<&str, &str> = headers.collect();
    let body: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("JSON: {answer}"));
    Answer {
        text: body["choices"][0]["message"]["content"].to_string(),
        replica: headers["x-headstart-replica"].to_owned(),
        found: body["usage"]["prompt_cache_hit_tokens"].as_u64().expect("a count"),
    }
}

/// Blocks of all replicas in a tier, by the gateway's index.
fn blocks(server: &Served, tier: &str) -> Vec<u64> {
    let index = server.index();
    let replicas = index["replicas"].as_array().expect("replicas").iter();
    let blocks = replicas.map(|replica| replica["blocks"][tier].as_u64().unwrap_or(0));
    blocks.collect()
}

/// Everything that a publisher sends from now on, as it comes: ZMTP 3.0 by hand, so that what is
/// seen is what is on the wire.
fn listen(endpoint: &str) -> Arc<Mutex<Vec<u8>>> {
    let address = endpoint.strip_prefix("tcp://").expect("an address");
    let mut socket = TcpStream::connect(address).expect("connects");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10]) = (0xff, 0x7f, 3);
    greeting[12..16].copy_from_slice(b"NULL");
    socket.write_all(&greeting).expect("sends");
    socket.read_exact(&mut greeting).expect("greets");
    let ready = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB";
    socket.write_all(ready).expect("sends");
    // All topics.
    socket.write_all(b"\x00\x01\x01").expect("sends");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = heard.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        while let Ok(count @ 1..) = socket.read(&mut buffer) {
            ear.lock().expect("nobody panics").extend(&buffer[..count]);
        }
    });
    heard
}

fn has(heard: &Mutex<Vec<u8>>, kind: &str, medium: &str) -> bool {
    let heard = heard.lock().expect("nobody panics");
    // Of one event: its type stands before its medium, and no other type between them.
    let mut last_kind = "";
    for at in 0..heard.len() {
        let rest = &heard[at..];
        for known in ["BlockStored", "BlockRemoved"] {
            if rest.starts_with(known.as_bytes()) {
                last_kind = known;
            }
        }
        let field = rest.strip_prefix(b"\xa6medium".as_slice());
        let value = field.and_then(|field| field.get(1..));
        let is_it = value.is_some_and(|value| value.starts_with(medium.as_bytes()));
        if is_it && last_kind == kind {
            return true;
        }
    }
    false
}

#[test]
fn prompts_go_where_lower_tiers_hold_them_and_events_name_the_medium() {
    let folder = Scratch::new("events");
    let store = folder.path("kv");
    let arguments = [
        "--replicas",
        "2",
        "--cache-blocks",
        "130",
        "--context-cache",
        &store,
        "--context-cache-gib",
        "0.2",
        "--host-cache-gib",
        "0.01",
    ];
    let server = Served::start(arguments);
    let replicas = server.index()["replicas"].as_array().expect("replicas").clone();
    let endpoints =
        replicas.iter().map(|replica| replica["kv_events"].as_str().expect("an address"));
    let heard: Vec<_> = endpoints.map(listen).collect();
    let heard_any = |kind, medium| heard.iter().any(|heard| has(heard, kind, medium));

    let first: Vec<Answer> = (0..PROMPTS).map(|number| ask(&server, number)).collect();
    let in_disk = |replica: usize| blocks(&server, "disk")[replica];
    eventually("more is announced below than the devices hold", || {
        in_disk(0) > 130 && in_disk(1) > 130
    });
    let on_device = || blocks(&server, "device");
    assert!(on_device().iter().all(|&blocks| blocks <= 130));
    let served: Vec<&str> = first.iter().map(|answer| &*answer.replica).collect();
    assert!(served.contains(&"0") && served.contains(&"1"), "{served:?}");

    // In another order than before, so that taking turns would not do.
    for (number, first) in first.iter().enumerate().rev() {
        let again = ask(&server, number);
        assert_eq!((&first.text, &first.replica), (&again.text, &again.replica));
        assert!(again.found > first.found + 200, "{first:?}, {again:?}");
    }
    for medium in ["GPU", "CPU", "STORAGE"] {
        eventually(medium, || heard_any("BlockStored", medium));
    }
    eventually("removals", || heard_any("BlockRemoved", "GPU"));
}

/// Blocks that a tier held before a start are known once a prompt has shown what they are.
#[test]
fn what_was_there_at_start_is_announced_when_a_prompt_has_shown_it() {
    let folder = Scratch::new("restart");
    let store = folder.path("kv");
    let arguments = ["--replicas", "1", "--context-cache", &store];
    let mut server = Served::start(arguments);
    let first = ask(&server, 1);
    eventually("whole units of the prompt are announced", || {
        let (device, disk) = (blocks(&server, "device"), blocks(&server, "disk"));
        device[0] > 40 && disk[0] == device[0] / 4 * 4
    });
    let before = blocks(&server, "disk");
    server.end("-TERM");
    let server = Served::start(arguments);
    assert_eq!(blocks(&server, "disk"), [0]);
    let again = ask(&server, 1);
    assert_eq!(first.text, again.text);
    assert!(again.found > 200, "{again:?}");
    eventually("it is announced again", || blocks(&server, "disk") == before);
}
